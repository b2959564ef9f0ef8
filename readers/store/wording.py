"""Lists of names as messages say them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import Any


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """A question for the nearest of the known names, a space before it; nothing if none is near."""
    close = difflib.get_close_matches(str(name), list(known), 1)
    return f" Did you mean {close[0]!r}?" if close else ""


def few(
    values: Sequence[Any],
    most: int,
    show: Callable[[Any], str] = str,
    *,
    what: str = "",
    count: int | None = None,
) -> list[str]:
    """The first few of many, and a last text for the others: ["a", "b", "and 7 more"].

    Args:
        values: All of them, or the first.
        most: How many are shown.
        show: The text of one.
        what: What the last text ends with.
        count: How many there are in all, where `values` are only the first of them.
    """
    shown = [show(value) for value in values[:most]]
    left = (len(values) if count is None else count) - len(shown)
    return [*shown, f"and {left:,} more{what}"] if left > 0 else shown


def few_text(
    values: Sequence[Any],
    most: int,
    show: Callable[[Any], str] = str,
    *,
    count: int | None = None,
) -> str:
    """The same in a sentence: "a, b and 7 more"."""
    shown = few(values, most, show, count=count)
    has_more = len(shown) > min(len(values), most)
    return f"{', '.join(shown[:-1])} {shown[-1]}" if has_more else ", ".join(shown)
