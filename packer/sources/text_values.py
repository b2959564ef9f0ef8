"""Numbers in lines of text, and what is wrong with a line in words that say how to mend it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from packer.wording import cut_text

_SEPARATORS = ((b";", "semicolons"), (b",", "commas"), (b"|", "bars"))
_DECIMAL_COMMA = re.compile(rb"[-+]?\d*,\d+([eE][-+]?\d+)?")
_PERCENT = re.compile(rb"[-+]?[\d.]+%")


def shown_value(value: bytes) -> str:
    """A value as a message shows it."""
    return cut_text(value.decode("ascii", "backslashreplace"), 40)


def read_numbers(values: Sequence[bytes], first: int) -> list[float] | str:
    """Values as finite numbers, or which is none; `first` is the position of the first in its line.

    Positions count from 1, as an editor's columns do.
    """
    numbers = []
    for at, value in enumerate(values, first):
        number = _number(value)
        if not -1e9 < number < 1e9:
            return number_problem(value, at)
        numbers.append(number)
    return numbers


def is_number(value: bytes) -> bool:
    """Whether a value is a number, finite or not."""
    try:
        float(value)
    except ValueError:
        return False
    return True


def number_problem(value: bytes, at: int) -> str:
    """Why a value is not a number that can be used, and what should stand there.

    Args:
        value: As written.
        at: Its position in the line, from 1.
    """
    text = f"value {at} is {shown_value(value)!r}; expected a number"
    if _DECIMAL_COMMA.fullmatch(value):
        return f"{text} with a point, not a comma: {shown_value(value.replace(b',', b'.'))}"
    if _PERCENT.fullmatch(value):
        return f"{text} without a percent sign"
    return text


def separator_problem(values: Sequence[bytes], is_count: Callable[[int], bool]) -> str:
    """That values are separated by something else than blanks, or nothing where they are not.

    Args:
        values: Of a line that was split at blanks.
        is_count: Whether a good line may have so many values.
    """
    line = b" ".join(values)
    for separator, name in _SEPARATORS:
        # As many values as there should be, with commas in them, are numbers with commas. But a
        # comma at the end of one comes before the next.
        is_between = separator in line and not (separator == b"," and is_count(len(values)))
        if not is_between and not any(value.endswith(separator) for value in values[:-1]):
            continue
        parts = [part for part in re.split(rb"[\s" + re.escape(separator) + rb"]+", line) if part]
        if is_count(len(parts)):
            return f"the numbers are separated by {name}; expected blanks"
    return ""


def _number(value: bytes) -> float:
    try:
        # Python reads 1_000 as a number.
        return float(value) if b"_" not in value else float("nan")
    except ValueError:
        return float("nan")
