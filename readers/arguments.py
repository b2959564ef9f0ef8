"""What arguments take, stated once each: whatever else is given is refused by name, at once.

Python would take a text for a row of letters, a dataset for a row of numbers, and any text for
True; what follows is an error much later, or none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

_SHOWN_MAX = 200
"""Characters of a wrong value in a message."""

_PYTHONS = ("self", "__class__")
"""What a method has besides its arguments."""


def _nothing(value: Any) -> str:
    return ""


@dataclass(frozen=True)
class Takes:
    """What an argument takes.

    Attributes:
        what: In words, to follow "is".
        accepts: Whether a value is of the right kind. Its range is checked where it is used.
        hint: What to say of a wrong value, if more than that is known.
    """

    what: str
    accepts: Callable[[Any], bool]
    hint: Callable[[Any], str] = _nothing

    def or_none(self) -> Takes:
        """The same, or None."""
        return Takes(
            f"{self.what}, or None", lambda value: value is None or self.accepts(value), self.hint
        )

    def hinting(self, hint: Callable[[Any], str]) -> Takes:
        """The same, with something to say of wrong values."""
        return Takes(self.what, self.accepts, hint)


def check_arguments(of: str, rules: Mapping[str, Takes], given: Mapping[str, Any]) -> None:
    """Hold arguments against what they take.

    Args:
        of: What they are given to.
        rules: For each of them, by name.
        given: Their values: `locals()`, as the first thing that it does.

    Raises:
        TypeError: One is of another kind.
    """
    for name, value in given.items():
        if name in _PYTHONS:
            continue
        rule = rules[name]
        if not rule.accepts(value):
            hint = rule.hint(value)
            raise TypeError(
                f"{of}: {name} is {rule.what}; got {_shown(value)}" + (f". {hint}" if hint else "")
            )


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}... ({type(value).__name__})"


def is_whole(value: Any) -> bool:
    """Whether a value is a whole number; True is an int to Python alone."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_flag(value: Any) -> bool:
    return isinstance(value, (bool, np.bool_))


def _is_names(value: Any) -> bool:
    if isinstance(value, (str, Iterator)):  # What is wrong with a text alone is told with its name.
        return True
    is_list = isinstance(value, Collection) and not isinstance(value, (bytes, Mapping))
    return is_list and all(isinstance(name, str) for name in value)


WHOLE = Takes("a whole number", is_whole)
FLAG = Takes("True or False", _is_flag)
TEXT = Takes("a text", lambda value: isinstance(value, str))
FUNCTION = Takes("a function, or something else that can be called", callable)
NAMES = Takes("a list of names", _is_names)
