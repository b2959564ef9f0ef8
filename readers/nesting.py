"""What is a container in a sample or batch, and how one is made of changed parts: said once.

Containers are mappings, tuples, named tuples, lists and dataclasses. Each function that goes
through a batch (to join samples, to send it to another process, to pin it, to move it to a device)
asks here, so that all of them go equally deep, and give back the types that they were given.
"""

from __future__ import annotations

import copy
import dataclasses
import operator
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

_ATOMS = frozenset((str, bytes, int, float, bool, type(None)))
"""Types that are seen to hold nothing at once: a batch may have thousands of each."""


def parts_of(value: Any) -> dict[Any, Any] | None:
    """The parts of a container, by key, position or name; None for anything else.

    Those of a named tuple are by position.
    """
    if type(value) in _ATOMS:
        return None
    if isinstance(value, (tuple, list)):
        return dict(enumerate(value))
    if isinstance(value, (dict, Mapping)):  # The former is told sooner.
        return dict(value.items())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return None


def rebuilt(value: Any, parts: Mapping[Any, Any]) -> Any:
    """A container of the type of `value` with other parts; `value` stays as it is.

    A type that cannot be made of parts gives way to the plain one: a dict or a tuple.

    Args:
        value: A container.
        parts: By the same keys as those of `parts_of(value)`.
    """
    if isinstance(value, Mapping):
        return _rebuilt_mapping(value, parts)
    if isinstance(value, list):
        clone = copy.copy(value)
        clone[:] = parts.values()
        return clone
    if isinstance(value, tuple):
        return _rebuilt_tuple(value, parts)
    clone = copy.copy(value)
    for name, part in parts.items():
        # Past the guard of a frozen one, and past __init__, which may want other arguments.
        object.__setattr__(clone, name, part)
    return clone


def _rebuilt_mapping(value: Mapping[Any, Any], parts: Mapping[Any, Any]) -> Any:
    if type(value) is dict:
        return dict(parts)
    try:
        if isinstance(value, MutableMapping):
            clone = copy.copy(value)  # With what else it holds, like the default of a defaultdict.
            clone.update(parts)
            return clone
        return type(value)(parts)  # type: ignore[call-arg]
    except Exception:  # A class of the user's, or of a framework, may refuse in whatever way.
        return dict(parts)


def _rebuilt_tuple(value: tuple[Any, ...], parts: Mapping[Any, Any]) -> Any:
    if type(value) is tuple:
        return tuple(parts.values())
    try:
        if hasattr(value, "_make"):  # A named tuple. Its own __new__ may check what it is given.
            return value._make(parts.values())
        return type(value)(parts.values())
    except Exception:
        return tuple(parts.values())


def moves_itself(value: Any) -> bool:
    """Whether a value is an object with a method `to`, be it a container as well.

    It knows better than we what it is made of: torch.nn.utils.rnn.PackedSequence, a TensorDict.
    """
    return callable(getattr(value, "to", None)) and not isinstance(value, type)


def mapped(value: Any, change: Callable[[Any, Any], Any]) -> Any:
    """A container with its parts changed, of its own type; itself, where none is another then.

    Anything else, and what moves itself, is given back as it is.

    Args:
        value: A part of a batch, or all of it.
        change: Called with each part and its key, position or name.
    """
    if type(value) in _ATOMS:
        return value
    parts = None if moves_itself(value) else parts_of(value)
    if parts is None:
        return value
    changed = {key: change(part, key) for key, part in parts.items()}
    if all(map(operator.is_, changed.values(), parts.values())):
        return value
    return rebuilt(value, changed)
