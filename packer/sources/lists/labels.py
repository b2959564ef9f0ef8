"""Labels of lists: from the values in a column to positions in the classes."""

from __future__ import annotations

from typing import Any

from packer.sources.source import SourceOptions
from packer.wording import readable_path

INDEX_MAX = 999_999
"""Largest label that is taken for a position, where no class names say how many there are."""


class ListLabels:
    """Classes as they are met; which label each has is only known when all rows were read.

    Args:
        options: `classes` are the only ones then; `label_is_index` takes labels for positions.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._given = options.classes
        self._is_index = options.label_is_index
        self._numbers: dict[str, int] = {}
        for name in options.classes or ():
            self._numbers[name] = len(self._numbers)

    def number(self, value: Any) -> int | str:
        """A number for the class in a cell, which `labels` turns into its label; or the problem."""
        text = cell_text(value)
        if text is None:
            return f"the label is a {type(value).__name__}; expected one text or number"
        if not text:
            return "the label is empty"
        number = self._numbers.get(text)
        if number is not None and not self._is_index:
            return number
        problem = text_problem("label", text)
        if problem is not None:
            return problem
        if self._is_index:
            if not (text.isascii() and text.isdigit()) or int(text[:19]) > INDEX_MAX:
                return (
                    f"the label is {text[:40]!r}; with --label-is-index a whole number in "
                    f"[0, {INDEX_MAX + 1}) is expected"
                )
            index = int(text)
            if self._given is not None:
                if index < len(self._given):
                    return index
                return (
                    f"label {index} is not in [0, {len(self._given)}), the positions of --classes"
                )
            text = str(index)
        elif self._given is not None:
            return f"class {text!r} is not one of --classes"
        return self._numbers.setdefault(text, len(self._numbers))

    def classes(self) -> tuple[str, ...]:
        """Class names in the order of their labels: as given, by number, or by code point."""
        if self._given is not None:
            return self._given
        if self._is_index:
            count = max(map(int, self._numbers), default=-1) + 1
            return tuple(map(str, range(count)))
        return tuple(sorted(self._numbers))

    def in_order_of_columns(self) -> tuple[str, ...]:
        """Class names as they were met, or as given."""
        return tuple(self._numbers)

    def labels(self, classes: tuple[str, ...]) -> list[int]:
        """The label of each number that `number` has given out."""
        places = {name: label for label, name in enumerate(classes)}
        return [places[name] for name in self._numbers]

    def notes(self) -> list[str]:
        """What a user should know about the labels."""
        if self._is_index:
            return []
        if self._numbers and self._given is None and all(map(str.isdigit, self._numbers)):
            return [
                "all labels are digits and are taken for names, sorted by code point; "
                "--label-is-index takes them for positions in --classes"
            ]
        return []


def cell_text(value: Any) -> str | None:
    """The text in a cell, without blanks around it; "" where it is empty, None where it is a list.

    Numbers are written as Python writes them, true and false as JSON does.
    """
    if isinstance(value, str):
        return value.strip()
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, dict, bytes)):
        return None
    return str(value)


def text_problem(kind: str, text: str) -> str | None:
    """Why a text cannot be kept as one, or None when it can."""
    if text.isascii():
        return None
    try:
        text.encode()
    except UnicodeEncodeError:
        # A lone surrogate stands for a byte of a text file; one that JSON wrote may stand for none.
        stands_for_bytes = all(
            not "\ud800" <= c < "\udc80" and not "\udcff" < c <= "\udfff" for c in text
        )
        written = text.encode("utf-8", "surrogateescape" if stands_for_bytes else "surrogatepass")
        return f"the {kind} is not UTF-8 text: {readable_path(written)}"
    return None
