"""Boxes of lists: from the cells of a row to the objects of an image."""

from __future__ import annotations

import json
import math
import re
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from packer.errors import SourceError
from packer.items.annotations import Annotations, RawObject, pack_annotations
from packer.sources.lists.columns import BoxColumns, BoxForm, Columns
from packer.wording import count_text, cut_text

IMPOSSIBLE_SHARE = 0.05
"""A reading of boxes under which so many of them are impossible is wrong; fewer may be dirt."""

_SHARE_MAX = 1.01
_FORM_TEXT = {"corners": "x0, y0, x1, y1", "size": "x, y, width, height", "centre": "its centre"}


class CellBox(NamedTuple):
    """One box as its row has it.

    Attributes:
        number: Which of the boxes of its cell, from 1; 0 where the row is the box.
        numbers: Its four numbers, or why there are none.
        label: Value of its label.
    """

    number: int
    numbers: tuple[float, float, float, float] | str
    label: Any


def row_boxes(row: Sequence[Any], box: BoxColumns, position: int | None) -> list[CellBox] | str:
    """All boxes of a row, or why it is not known which they are.

    Args:
        row: Values of all columns.
        box: Where the boxes are.
        position: Where their labels are, from `label_position`.
    """
    if len(box.positions) == 4:
        cells = [row[position] for position in box.positions]
        if all(_is_empty(cell) for cell in cells):
            return []
        label = None if position is None else row[position]
        return [CellBox(0, four_numbers(cells, box.is_relative), label)]
    cell = row[box.positions[0]]
    boxes = _box_list(cell)
    labels = None if position is None else row[position]
    if isinstance(labels, str) and labels.lstrip().startswith("["):
        labels = parsed_list(labels)
    if not isinstance(labels, list):
        labels = [labels] if position is not None else [None] * len(boxes)
        if not boxes:
            labels = []
    if len(labels) != len(boxes):
        return (
            f"has {count_text(len(boxes), 'box')} and {count_text(len(labels), 'label')}; "
            "expected one label for each box"
        )
    return [
        CellBox(
            0 if len(boxes) == 1 and not _holds_lists(cell) else number,
            four_numbers(inner, box.is_relative),
            label,
        )
        for number, (inner, label) in enumerate(zip(boxes, labels, strict=True), 1)
    ]


def label_position(columns: Columns) -> int | None:
    """Which column has the labels of the boxes, or None."""
    box = columns.box
    assert box is not None
    wanted = (box.label, columns.labels, columns.label)
    if len(box.positions) == 4:
        wanted = (columns.label, columns.labels, None)
    return next((position for position in wanted if position is not None), None)


def row_size(row: Sequence[Any], columns: Columns) -> tuple[int, int] | str | None:
    """Width and height of the picture that a row tells, None where it tells none, or a problem."""
    if columns.size is None:
        return None
    sides = []
    for position in columns.size:
        cell = row[position]
        if _is_empty(cell):
            return None
        number = _number(cell)
        if number is None or number != int(number) or not 0 <= number < 2**31:
            return f"{columns.names[position]!r} is {cell!r}; expected a whole number of pixels"
        sides.append(int(number))
    # Tools that do not know the size write 0.
    return (sides[0], sides[1]) if all(sides) else None


class ListObjects:
    """All boxes of some lists, in the order of their rows, in flat arrays."""

    def __init__(self) -> None:
        self._values = array("d")
        self._images = array("q")
        self._labels = array("q")
        self._lists = array("q")
        self._rows = array("q")
        self._places = array("q")
        self._extras = array("q")

    def __len__(self) -> int:
        return len(self._images)

    @property
    def image_count(self) -> int:
        """How many images have boxes."""
        return len(set(self._images))

    def add(
        self, image: int, list_number: int, row: int, box: CellBox, label: int, extra: int = 0
    ) -> None:
        """Keep a box of an image, by the numbers of its image, list, row, class and extras."""
        assert not isinstance(box.numbers, str)
        self._values.extend(box.numbers)
        self._images.append(image)
        self._labels.append(label)
        self._lists.append(list_number)
        self._rows.append(row)
        self._places.append(box.number)
        self._extras.append(extra)

    def values_of(self, list_numbers: Sequence[int]) -> tuple[NDArray[np.float64], NDArray[Any]]:
        """Numbers of the boxes of some lists, (box, 4) float64, and the image of each."""
        chosen = np.isin(np.frombuffer(self._lists, np.int64), list_numbers)
        values = np.frombuffer(self._values, np.float64).reshape(-1, 4)
        return values[chosen], np.frombuffer(self._images, np.int64)[chosen]

    def pack(
        self,
        sizes: Sequence[tuple[int, int] | None],
        boxes: Sequence[BoxColumns],
        labels: Sequence[int],
        list_names: Sequence[str],
        extras: Sequence[dict[str, Any]] = ({},),
    ) -> list[bytes]:
        """The annotations of every image, in the order of the images.

        Args:
            sizes: Of each image, as its rows tell.
            boxes: How the boxes of each list are read; no form is open any more.
            labels: Of each number of a class.
            list_names: How a report names each list, with what its row numbers count.
            extras: What else objects have, as `RawObject` calls it.
        """
        is_relative = any(box.is_relative for box in boxes)
        order = np.argsort(np.frombuffer(self._images, np.int64), kind="stable").tolist()
        packed = []
        at = 0
        for image, size in enumerate(sizes):
            objects = []
            while at < len(order) and self._images[order[at]] == image:
                n = order[at]
                at += 1
                list_number, ordinal = self._lists[n], self._places[n]
                place = f"{list_names[list_number]} {self._rows[n]}"
                objects.append(
                    RawObject(
                        place=f"{place}, box {ordinal}" if ordinal else place,
                        label=labels[self._labels[n]],
                        box=corners_of(self._values[4 * n : 4 * n + 4], boxes[list_number].form),
                        **extras[self._extras[n]],
                    )
                )
            packed.append(
                pack_annotations(
                    Annotations(objects=tuple(objects), size=size, is_relative=is_relative)
                )
            )
        return packed


def corners_of(numbers: Sequence[float], form: BoxForm) -> tuple[float, float, float, float]:
    """x0, y0, x1, y1 of a box of the given form."""
    a, b, c, d = numbers
    if form == "size":
        return a, b, a + c, b + d
    if form == "centre":
        return a - c / 2, b - d / 2, a + c / 2, b + d / 2
    return a, b, c, d


def decide_form(
    values: NDArray[np.float64], sizes: NDArray[np.float64], column: str, place: str
) -> tuple[BoxForm, str]:
    """Whether boxes whose column leaves it open are corners or have a size, and a note about it.

    A reading is out when at least one box in twenty is impossible under it: its x1 or y1 is less
    than its x0 or y0, or it ends more than a pixel outside of the picture, where the list tells
    the picture's size.

    Args:
        values: (box, 4) float64, as written.
        sizes: (box, 2) float64, width and height of the picture of each; infinite when not known.
        column: Name of the column.
        place: How a message names the list.

    Raises:
        SourceError: Both readings are possible, or neither.
    """
    if not len(values):
        return "corners", ""
    is_reversed = np.any(values[:, 2:] < values[:, :2], axis=1)
    is_out = {
        "corners": is_reversed | np.any(values[:, 2:] > sizes + 1, axis=1),
        "size": np.any(values[:, :2] + values[:, 2:] > sizes + 1, axis=1)
        | np.any(values[:, 2:] < 0, axis=1),
    }
    counts = {form: int(out.sum()) for form, out in is_out.items()}
    possible: list[BoxForm] = [
        form for form in ("corners", "size") if counts[form] < IMPOSSIBLE_SHARE * len(values)
    ]
    if len(possible) == 1:
        taken = possible[0]
        other = "size" if taken == "corners" else "corners"
        return taken, (
            f"column {column!r} is read as {_FORM_TEXT[taken]}: as {_FORM_TEXT[other]}, "
            f"{counts[other]:,} of {count_text(len(values), 'box')} would be impossible"
        )
    fit = "both fit" if possible else "neither fits"
    raise SourceError(
        f"{place}: column {column!r} holds boxes of four numbers that may be x0, y0, x1, y1 or x, "
        f"y, width, height, and {fit} its {count_text(len(values), 'box')}. Rename the column to "
        f"{column + '_xyxy'!r} or {column + '_xywh'!r}."
    )


def check_forms(values: NDArray[np.float64], box: BoxColumns, columns: Columns, place: str) -> None:
    """Refuse boxes that are not what the names of their columns say.

    Raises:
        SourceError: They are shares of the sides, and the names do not say so; or most of what is
            called corners is none.
    """
    if not len(values) or box.is_relative:
        return
    shown = ", ".join(repr(columns.names[n]) for n in box.positions)
    if values.min() >= 0 and values.max() <= 1 and np.any(values != np.floor(values)):
        raise SourceError(
            f"{place}: all {count_text(len(values), 'box')} in {shown} lie in [0, 1]; expected "
            "pixels. If they are shares of the picture's sides, let the names of the "
            f"columns say so: {columns.names[box.positions[0]] + '_rel'!r} and so on."
        )
    if box.form == "corners":
        reversed_count = int(np.any(values[:, 2:] < values[:, :2], axis=1).sum())
        if reversed_count >= IMPOSSIBLE_SHARE * len(values) and len(box.positions) == 1:
            raise SourceError(
                f"{place}: column {shown} is read as x0, y0, x1, y1, and in {reversed_count:,} of "
                f"{count_text(len(values), 'box')} x1 or y1 is less than x0 or y0. If it holds x, "
                "y, width, height, rename it to 'bbox_xywh'."
            )


def _is_empty(cell: Any) -> bool:
    return cell is None or (isinstance(cell, str) and not cell.strip())


def _number(cell: Any) -> float | None:
    """A cell's number, or None when it holds no finite one."""
    if isinstance(cell, bool) or (isinstance(cell, str) and "_" in cell):
        return None  # Python reads 1_000, and takes true for 1.
    try:
        number = float(cell)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def four_numbers(cells: Any, is_relative: bool) -> tuple[float, float, float, float] | str:
    """The numbers of a box, or why there are none."""
    if not isinstance(cells, list) or len(cells) != 4:
        return f"box {_short(cells)}; expected four numbers"
    a, b, c, d = map(_number, cells)
    if a is None or b is None or c is None or d is None:
        return f"box {_short(cells)}; expected four numbers"
    if is_relative and not all(-_SHARE_MAX < number <= _SHARE_MAX for number in (a, b, c, d)):
        return f"box {_short(cells)}; expected shares of the picture's sides, at most 1"
    return a, b, c, d


def _box_list(cell: Any) -> list[Any]:
    """The boxes of a cell that holds one or several, as text or as lists; each may be anything."""
    if _is_empty(cell):
        return []
    if isinstance(cell, str):
        cell = parsed_list(cell)
    if isinstance(cell, list) and (not cell or _holds_lists(cell)):
        return cell
    return [cell]


def _holds_lists(cell: Any) -> bool:
    if isinstance(cell, str):
        return cell.lstrip().startswith("[[")
    return isinstance(cell, list) and any(isinstance(inner, (list, tuple)) for inner in cell)


def parsed_list(text: str) -> Any:
    """A list written as text: JSON, or numbers with blanks, commas or semicolons between them."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        inner = text.strip().strip("[]()").strip()
        return re.split(r"\s*[,;]\s*|\s+", inner) if inner else []


def _short(value: Any) -> str:
    return cut_text(repr(value), 80)
