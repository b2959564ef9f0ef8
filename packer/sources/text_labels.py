"""Labels that raw data writes as text or numbers, without saying which it means."""

from __future__ import annotations

from collections.abc import Collection

from packer.sources.class_names import ClassNames, class_names
from packer.sources.source import SourceOptions

_INDEX_MAX = 2**16
"""Numbers from here on are ids of something: a class for each up to them would be absurd."""


class TextLabels:
    """The class of each label text.

    Numbers are positions in the classes, all else are names. It is decided for all texts at once:
    one name among the numbers, or one number such as `007`, makes names of all of them. Where
    classes are given and the numbers are among them, they are names as well.

    Args:
        texts: Every different text.
        options: `classes` and `label_is_index` are used.
    """

    def __init__(self, texts: Collection[str], options: SourceOptions) -> None:
        given = options.classes
        are_numbers = all(_is_index(text) for text in texts)
        are_listed = given is not None and set(texts) <= set(given)
        self.are_indices = options.label_is_index or (are_numbers and not are_listed)
        if self.are_indices and given is None:
            count = 1 + max((int(text) for text in texts if _is_index(text)), default=-1)
            self.classes = ClassNames(tuple(str(number) for number in range(count)))
        else:
            self.classes = class_names(texts, given)
        self._labels = {text: self._label(text) for text in texts}
        self.notes: list[str] = []
        if self.are_indices and given is None and self.classes.names:
            last = len(self.classes.names) - 1
            self.notes.append(
                f"labels are numbers from 0 to {last}, and the data does not name the classes; "
                "to name them, give --classes"
            )

    def label(self, text: str) -> int | None:
        """Position of the class of one of the texts, or None when it has none."""
        return self._labels.get(text)

    def _label(self, text: str) -> int | None:
        if not self.are_indices:
            return self.classes.label(text)
        if _is_index(text) and int(text) < len(self.classes.names):
            return int(text)
        return None

    def problem(self, text: str) -> str:
        """Why a text has no class."""
        if not self.are_indices:
            return self.classes.unknown_reason(text)
        return f"label {text!r} is not a number in [0, {len(self.classes.names)})"


def _is_index(text: str) -> bool:
    return (
        text.isascii()
        and text.isdecimal()
        and len(text) <= 5
        and text == str(int(text))
        and int(text) < _INDEX_MAX
    )
