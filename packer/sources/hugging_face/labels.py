"""Labels of Hugging Face tables, from the values of a column of classes."""

from __future__ import annotations

from typing import Any

from packer.sources.class_names import ClassNames
from packer.sources.source import SourceOptions
from packer.sources.text_labels import TextLabels


class Labels:
    """Labels of one column: numbers of a ClassLabel, or texts and numbers without names.

    Args:
        names: Of the ClassLabel, or None where the column is none.
        texts: All values of a column that is none, as text.
        options: `classes` and `label_is_index` say what the values mean.
    """

    def __init__(self, names: tuple[str, ...] | None, texts: set[str], options: SourceOptions):
        self._names = names
        self._texts = TextLabels(texts, options) if names is None else None
        if self._texts is not None:
            self.classes = self._texts.classes
        else:
            given = options.classes
            self.classes = ClassNames(given or names or (), are_given=given is not None)
        self.notes = self._texts.notes if self._texts is not None else []

    def label(self, value: Any) -> tuple[int, str]:
        """(position in the classes, "") or (-1, why there is none)."""
        if value is None:
            return -1, "no label (null)"
        if self._texts is not None:
            label = self._texts.label(str(value))
            return (-1, self._texts.problem(str(value))) if label is None else (label, "")
        assert self._names is not None
        if not isinstance(value, int) or not 0 <= value < len(self._names):
            mark = ", the mark of no label" if value == -1 else ""
            return -1, f"label {value!r:.40} is not in [0, {len(self._names)}){mark}"
        label = self.classes.label(self._names[value])
        if label is None:
            return -1, self.classes.unknown_reason(self._names[value])
        return label, ""
