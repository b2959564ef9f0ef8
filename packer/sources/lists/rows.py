"""From the rows of lists to pictures, labels and boxes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from packer.items.findings import Findings
from packer.items.raw_item import RawFile
from packer.sources.lists.columns import Columns
from packer.sources.lists.files import ListFile
from packer.sources.lists.flags import SIGNS, flag_values
from packer.sources.lists.labels import ListLabels, cell_text, text_problem
from packer.sources.lists.objects import (
    CellBox,
    ListObjects,
    label_position,
    parsed_list,
    row_boxes,
    row_size,
)
from packer.sources.lists.pictures import Listed, ListedFiles
from packer.sources.turned_boxes import ANGLE_NAMES, turn_degrees

Content = Literal["objects", "labels", "label", "flags", "pictures"]

ReadRow: TypeAlias = "Callable[[int, list[Any] | str], None]"
"""Takes in a row, by its number and its values, or why it cannot be read."""

_NO_FILE = RawFile(b"", 0, 0)


@dataclass(slots=True)
class ListImage:
    """A picture, as the first of its rows has it; but for captions, of which each row has one."""

    key: bytes
    place: str
    list_number: int
    line: int
    file: RawFile = _NO_FILE
    split: str = ""
    label: int = 0
    labels: tuple[int, ...] = ()
    size: tuple[int, int] | None = None
    captions: list[str] = field(default_factory=list)
    mask: RawFile | None = None


@dataclass
class ListsRead:
    """What all lists have said so far.

    Attributes:
        content: What they hold.
        files: Finds what they name.
        labels: Classes that they name.
        images: In the order of the lists.
        numbers: Position in `images` by key; -1 for a picture that was rejected.
        objects: Boxes, by position of their image.
        findings: Takes pictures, boxes and labels that are not packed, and notes.
        angle_column: Name of a column of angles of boxes, which is not read.
        angle_count: How many boxes have one there.
        one_positive: Whether every row of columns of classes so far says yes in just one.
    """

    content: Content
    files: ListedFiles
    labels: ListLabels
    findings: Findings
    images: list[ListImage] = field(default_factory=list)
    numbers: dict[bytes, int] = field(default_factory=dict)
    objects: ListObjects = field(default_factory=ListObjects)
    one_positive: bool = True
    angle_column: str = ""
    angle_count: int = 0


def written_paths(entry: ListFile, rows: Iterable[tuple[int, list[Any] | str]]) -> Iterator[str]:
    """Paths of pictures and masks that rows of a list name."""
    columns = entry.table.columns
    for _, row in rows:
        for position in (columns.path, columns.mask):
            if position is not None and not isinstance(row, str):
                written = cell_text(row[position])
                if written:
                    yield written if written.isascii() else _writable(written)


def row_reader(
    state: ListsRead, list_number: int, entry: ListFile, flags: Mapping[str, int]
) -> ReadRow:
    """What takes in one row of a list after the other.

    Args:
        state: Where it goes.
        list_number: The list's list number.
        entry: The list.
        flags: Its columns of classes, from `flag_columns`.
    """
    columns, findings = entry.table.columns, state.findings
    assert columns.path is not None
    path_column, box = columns.path, columns.box
    labels_at = label_position(columns) if box is not None else None
    rows_are_boxes = box is not None and len(box.positions) == 4
    angle = _angle_position(columns.names) if box is not None else None
    if angle is not None:
        state.angle_column = columns.names[angle]
    place_start = f"{entry.shown}, {entry.table.unit}"
    read_labels = _label_reader(state, entry, flags)
    # Where a row says anything else, a second one of the same picture would have it lost.
    adds_captions = (
        state.content == "pictures" and columns.caption is not None and columns.mask is None
    )
    last_path, last_number = "", -1

    def read_row(line: int, row: list[Any] | str) -> None:
        nonlocal last_path, last_number
        place = f"{place_start} {line}"
        if isinstance(row, str):
            if rows_are_boxes:
                findings.refuse_annotation(b"", row, place, split=entry.split)
            else:
                findings.refuse(b"", row, place, entry.split)
            return
        path = cell_text(row[path_column])
        if path is None:
            reason = f"the path is {row[path_column]!r}; expected text"
            findings.refuse(b"", reason, place, _split_told(row, entry))
            return
        boxes = row_boxes(row, box, labels_at) if box is not None else []
        # Rows of a picture mostly follow each other.
        image_number = last_number if box is not None and path == last_path else -1
        if image_number < 0:
            listed = _listed(state, path, entry)
            known_number = state.numbers.get(listed.key) if listed.key else None
            if known_number is None:
                image = ListImage(listed.key, place, list_number, line)
                problem: str | None = boxes if isinstance(boxes, str) else listed.problem
                problem = problem or _read_rest(state, image, row, entry, listed)
                # Labels last: a class that only rejected rows have is none.
                problem = problem or read_labels(image, row)
                split = _split_told(row, entry) if problem else ""
                image_number = _add_image(state, image, problem, split)
            elif state.content == "objects":
                image_number = known_number
            elif adds_captions:
                image = state.images[known_number]
                problem = _split_problem(image, row, entry) or _read_caption(image, row, columns)
                if problem is not None:
                    split = _split_told(row, entry)
                    findings.refuse_annotation(listed.key, problem, place, split=split)
            else:
                first = state.images[known_number]
                where = first.place
                if first.list_number == list_number:
                    where = f"{entry.table.unit} {first.line}"
                reason = f"listed twice (first in {where})"
                findings.refuse(listed.key, reason, place, _split_told(row, entry))
            key = listed.key
        else:
            key = state.images[image_number].key
        last_path, last_number = path, image_number
        if isinstance(boxes, str):
            # One for all of them. Where this is the picture's first row, it was refused as well.
            findings.refuse_annotation(key, boxes, place, split=_split_told(row, entry))
        elif boxes:
            if angle is not None:
                angles = row[angle] if isinstance(row[angle], list) else [row[angle]]
                state.angle_count += sum(bool(turn_degrees(value)) for value in angles)
            problem = _row_problem(state, image_number, row, entry)
            for found in boxes:
                at = f"{place}, box {found.number}" if found.number else place
                label = _box_label(state, found, problem, has_labels=labels_at is not None)
                if isinstance(label, int):
                    state.objects.add(image_number, list_number, line, found, label)
                else:
                    split = _split_told(row, entry)
                    findings.refuse_annotation(key, label, at, split=split)

    return read_row


def _angle_position(names: Sequence[str]) -> int | None:
    """Which column says by how much boxes are turned, or None."""
    bare = [name.rpartition(".")[2].strip().lower() for name in names]
    return next((n for n, name in enumerate(bare) if name in ANGLE_NAMES), None)


def _label_reader(
    state: ListsRead, entry: ListFile, flags: Mapping[str, int]
) -> Callable[[ListImage, list[Any]], str | None]:
    """What takes in the labels of a picture, and returns the problem if there is one."""
    columns = entry.table.columns
    if state.content == "label":
        return lambda image, row: _read_label(state, image, row, columns)
    if state.content == "labels":
        return lambda image, row: _read_labels(state, image, row, columns)
    if state.content == "flags":
        values = flag_values(entry.table, flags)
        return lambda image, row: _read_flags(state, image, row, flags, values)
    return lambda image, row: None


def _box_label(
    state: ListsRead, box: CellBox, problem: str | None, *, has_labels: bool
) -> int | str:
    """Number of the class of a box, or why the box is refused.

    A class that only refused boxes have is none, so that its label is looked at last.
    """
    if problem is not None:
        return problem
    if isinstance(box.numbers, str):
        return box.numbers
    return state.labels.number(box.label) if has_labels else 0


def _listed(state: ListsRead, path: str, entry: ListFile) -> Listed:
    """The picture of a path; one that is known already is not looked for again."""
    path = path if path.isascii() else _writable(path)
    key = state.files.key(path, entry.folder) if path else b""
    if key and key in state.numbers:
        return Listed(key, None)
    return state.files.find(path, entry.folder)


def _split_told(row: list[Any], entry: ListFile) -> str:
    """The split that a row says it is of, for a reject; empty where it says none."""
    column = entry.table.columns.split
    return (entry.split if column is None else cell_text(row[column])) or ""


def _add_image(state: ListsRead, image: ListImage, problem: str | None, split: str) -> int:
    """Take in a picture, or refuse it; its number, -1 where it is refused."""
    if problem:
        state.findings.refuse(image.key, problem, image.place, split)
        if state.content == "objects" and image.key:
            state.numbers[image.key] = -1
        return -1
    state.images.append(image)
    state.numbers[image.key] = len(state.images) - 1
    return len(state.images) - 1


def _read_caption(image: ListImage, row: list[Any], columns: Columns) -> str | None:
    """Add the caption of a row, if there is a column of them; the problem if there is one."""
    if columns.caption is None:
        return None
    caption = cell_text(row[columns.caption])
    if caption is None:
        return f"the caption is a {type(row[columns.caption]).__name__}; expected text"
    problem = text_problem("caption", caption)
    if problem is None:
        image.captions.append(caption)
    return problem


def _row_problem(
    state: ListsRead, image_number: int, row: list[Any], entry: ListFile
) -> str | None:
    """Why boxes of a row do not belong to its picture, or None when they do."""
    if image_number < 0:
        return "its picture was rejected"
    image = state.images[image_number]
    problem = _split_problem(image, row, entry)
    if problem is not None:
        return problem
    size = row_size(row, entry.table.columns)
    if isinstance(size, str):
        return size
    if size != image.size:
        return f"the picture's size is {size}, and {image.size} in {image.place}"
    return None


def _split_problem(image: ListImage, row: list[Any], entry: ListFile) -> str | None:
    """Why a row is not about its picture, which has a split already, or None when it is."""
    split = _split_told(row, entry)
    if split == image.split:
        return None
    return f"the split is {split!r}, and {image.split!r} in {image.place}, of the same picture"


def _read_rest(
    state: ListsRead, image: ListImage, row: list[Any], entry: ListFile, listed: Listed
) -> str | None:
    """Take in file, split, mask, caption and size; the problem if there is one."""
    columns = entry.table.columns
    if listed.file is not None:
        image.file = listed.file
    if columns.split is not None:
        split = cell_text(row[columns.split])
        if not split:
            return "the split is empty"
        image.split = split
        problem = text_problem("split", split)
        if problem is not None:
            return problem
    else:
        image.split = entry.split or ""
    problem = _read_caption(image, row, columns)
    if problem is not None:
        return problem
    if columns.mask is not None:
        written = cell_text(row[columns.mask])
        if not written:
            return "the path of the mask is empty"
        mask = state.files.find(_writable(written), entry.folder)
        if mask.file is None:
            return f"mask {mask.problem}"
        image.mask = mask.file
    if state.content == "objects":
        size = row_size(row, columns)
        if isinstance(size, str):
            return size
        image.size = size
    return None


def _read_label(state: ListsRead, image: ListImage, row: list[Any], columns: Columns) -> str | None:
    assert columns.label is not None
    number = state.labels.number(row[columns.label])
    if isinstance(number, str):
        return number
    image.label = number
    return None


def _read_labels(
    state: ListsRead, image: ListImage, row: list[Any], columns: Columns
) -> str | None:
    """Take in a list of labels; one that is not known is refused alone."""
    assert columns.labels is not None
    cell = row[columns.labels]
    if isinstance(cell, str) and cell.lstrip().startswith("["):
        cell = parsed_list(cell)
    if not isinstance(cell, list):
        shown = repr(columns.names[columns.labels])
        return f'{shown} is {cell!r}; expected a list such as ["a", "b"], which may be empty'
    numbers = []
    for n, value in enumerate(cell, 1):
        number = state.labels.number(value)
        if isinstance(number, str):
            place = f"{image.place}, label {n}"
            state.findings.refuse_annotation(image.key, number, place, split=image.split)
        else:
            numbers.append(number)
    image.labels = tuple(numbers)
    return None


def _read_flags(
    state: ListsRead,
    image: ListImage,
    row: list[Any],
    flags: Mapping[str, int],
    values: Mapping[str, int],
) -> str | None:
    """Take in the classes whose column says yes."""
    numbers = []
    positive_count = 0
    for name, position in flags.items():
        value = values.get(cell_text(row[position]) or "")
        if value is None:
            no, yes = ("-1", "1") if values is SIGNS else ("0", "1")
            return f"column {name!r} has {row[position]!r}; expected {no} or {yes}"
        # All columns are met in the first row, so that their order is that of the classes.
        number = state.labels.number(name)
        if value:
            positive_count += 1
            if isinstance(number, str):
                place = f"{image.place}, column {name!r}"
                state.findings.refuse_annotation(image.key, number, place, split=image.split)
            else:
                numbers.append(number)
    state.one_positive = state.one_positive and positive_count == 1
    image.labels = tuple(numbers)
    return None


def _writable(path: str) -> str:
    """A path that the file system can hold: JSON may write half of a pair of surrogates."""
    try:
        path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return path.encode("utf-8", "backslashreplace").decode()
    return path
