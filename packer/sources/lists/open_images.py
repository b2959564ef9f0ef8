"""Open Images: CSV files of boxes whose rows name pictures by their id."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from packer.items.annotations import object_fields
from packer.items.findings import Findings
from packer.items.raw_item import Scan
from packer.sources.class_names import ClassNames, class_names
from packer.sources.lists.columns import BoxColumns
from packer.sources.lists.csv_table import read_lines
from packer.sources.lists.files import split_in_name
from packer.sources.lists.objects import CellBox, ListObjects, four_numbers
from packer.sources.pairing import several_reason, split_path, stem_of
from packer.sources.picture_item import picture_item
from packer.sources.source import SourceOptions
from packer.sources.splits import ordered_splits, split_field
from packer.sources.walk import Picture, Tree, walk
from packer.wording import count_text, readable_path
from readers.store.splits import canonical_split

name = "open-images"

BOX_COLUMNS = ("ImageID", "LabelName", "XMin", "XMax", "YMin", "YMax")
FLAG_COLUMNS = ("IsOccluded", "IsTruncated", "IsGroupOf", "IsDepiction", "IsInside")
"""1 for yes, 0 for no, -1 for not known; kept as `attributes`."""

NOT_NAMED = "not named by the annotations"
SEGMENT_MASK = "mask of a segment, which this source does not read"
NOT_BOXES = "annotation file without boxes"

_MASK_NAME = re.compile(rb"[^_]+_m[0-9a-z_]+_[0-9a-f]{8}\.png")
_EVERY_BOX = BoxColumns(positions=(), form="corners", is_relative=True)


@dataclass
class _Found:
    """What the files have said so far.

    Attributes:
        pictures: By id: the pictures that are called so.
        taken: Pictures that are named, in the order in which they are.
        keys: Position in `taken`, by path.
        splits: Split of each picture that was taken, or "".
        objects: Boxes, by position of their picture.
        extras: The different flags of boxes, and the number of each.
        findings: Takes pictures and rows that are not packed, and notes.
        rejected: Ids whose pictures are not packed.
    """

    pictures: dict[bytes, list[Picture]]
    findings: Findings
    keys: dict[bytes, int] = field(default_factory=dict)
    taken: list[Picture] = field(default_factory=list)
    splits: list[str] = field(default_factory=list)
    objects: ListObjects = field(default_factory=ListObjects)
    extras: dict[tuple[tuple[str, int], ...], int] = field(default_factory=dict)
    rejected: set[bytes] = field(default_factory=set)


def scan(raw: Path, options: SourceOptions) -> Scan:
    """Every picture that a file of boxes, of ids or of image-level labels names.

    Boxes are shares of the picture's sides. A picture is found by its id with any extension, in
    the folder of the split where there are several. Classes are the display names of
    `class-descriptions*.csv`, in its order; without it they are the MIDs (`/m/01g317`), sorted.
    IsGroupOf is kept as `iscrowd`, IsTruncated as `truncated`, and all flags as `attributes`.

    Raises:
        SourceError: There is no file of boxes, or no picture that it names.
    """
    tree = walk(raw, (b".csv",))
    headers = {
        path: _header(raw, path)
        for folder in tree.folders.values()
        for path in folder.annotation_files
    }
    box_paths = [path for path, header in headers.items() if _has(header, BOX_COLUMNS)]
    if not box_paths:
        raise tree.findings.nothing(
            raw,
            "no Open Images boxes found",
            f"expected a .csv file with the columns {', '.join(BOX_COLUMNS)}, such as "
            "train-annotations-bbox.csv",
        )
    description_paths = [
        path
        for path, header in headers.items()
        if b"class-descriptions" in path.lower() and len(header) == 2
    ]
    label_names = _label_names(raw, description_paths)
    classes = _classes(raw, box_paths, label_names, options)
    by_id, masks = _pictures_by_id(tree)
    # What the files say of a picture comes before what the walk met.
    findings = Findings(ignored=tree.findings.ignored)
    found = _Found(by_id, findings)
    for number, path in enumerate(box_paths):
        _read_boxes(raw, path, number, headers[path], found, label_names, classes)
    name_paths = [
        path
        for path, header in headers.items()
        if path not in (*box_paths, *description_paths)
        and _has(header, ("ImageID",))
        and not _has(header, ("MaskPath",))
    ]
    unknown_count = sum(_read_names(raw, path, headers[path], found) for path in name_paths)
    if not found.taken:
        raise tree.findings.nothing(
            raw,
            f"none of the pictures that {readable_path(box_paths[0])} names is there",
            "looked for the ImageID with the extension of a picture in this folder and all folders "
            "below",
        )
    _account_for_rest(tree, found, masks, headers, [*box_paths, *description_paths, *name_paths])
    if unknown_count:
        findings.notes.append(
            f"{count_text(unknown_count, 'row')} without boxes are about pictures that are not here"
        )
    if not description_paths:
        findings.notes.append("no class-descriptions*.csv: classes are called by their MIDs")
    return _scan_of(raw, tree, box_paths, headers, found, classes)


def _scan_of(
    raw: Path,
    tree: Tree,
    box_paths: Sequence[bytes],
    headers: dict[bytes, dict[str, int]],
    found: _Found,
    classes: ClassNames,
) -> Scan:
    """Items and fields of all that was read."""
    findings = found.findings
    packed = found.objects.pack(
        [None] * len(found.taken),
        [_EVERY_BOX] * len(box_paths),
        range(len(classes.names)),
        [f"{readable_path(path)}, line" for path in box_paths],
        [
            {
                "iscrowd": ("IsGroupOf", 1) in flags,
                "truncated": ("IsTruncated", 1) in flags,
                "attributes": dict(flags),
            }
            for flags in found.extras
        ],
    )
    splits = ordered_splits(split for split in found.splits if split)
    findings.rejects += tree.findings.rejects
    for picture, split, objects in zip(found.taken, found.splits, packed, strict=True):
        if splits and not split:
            reason = "in no split: neither its folder nor the annotations tell one"
            findings.refuse(picture.path, reason)
            continue
        values = {"split": splits.index(split)} if splits else {}
        findings.items.append(picture_item(picture, values, objects))
    findings.items.sort(key=lambda item: item.key)
    columns = [column for path in box_paths for column in headers[path]]
    flags = {"IsGroupOf": "iscrowd", "IsTruncated": "truncated"}
    names = ["boxes", "labels", *(name for column, name in flags.items() if column in columns)]
    if any(column in columns for column in FLAG_COLUMNS):
        names.append("attributes")
    read = (*BOX_COLUMNS, *FLAG_COLUMNS)
    left = dict.fromkeys(repr(column) for column in columns if column not in read)
    if left:
        findings.notes.append(f"columns of boxes not read: {', '.join(left)}")
    return findings.as_scan(
        name,
        raw,
        classes=classes.names,
        splits=splits,
        fields=(
            *object_fields(classes.names, tuple(names)),
            *((split_field(splits),) if splits else ()),
        ),
    )


def _header(raw: Path, path: bytes) -> dict[str, int]:
    """Columns of a CSV file and their positions."""
    names = next(read_lines(_full(raw, path), ","), (0, []))[1]
    return {column.strip(): n for n, column in reversed(list(enumerate(names)))}


def _full(raw: Path, path: bytes) -> Path:
    return Path(os.fsdecode(os.path.join(os.fsencode(raw), path)))


def _has(header: dict[str, int], columns: Sequence[str]) -> bool:
    return all(column in header for column in columns)


def _label_names(raw: Path, paths: Sequence[bytes]) -> dict[str, str]:
    """Display name of each MID, in the order of the files. Those of one name get their MID added.

    Older releases have no header line.
    """
    names: dict[str, str] = {}
    for path in paths:
        for _, row in read_lines(_full(raw, path), ","):
            if len(row) == 2 and row[0].strip() != "LabelName":
                shown = row[1].strip().encode("utf-8", "surrogateescape")
                names.setdefault(row[0].strip(), shown.decode("utf-8", "backslashreplace"))
    counts: dict[str, int] = {}
    for text in names.values():
        counts[text] = counts.get(text, 0) + 1
    return {mid: f"{n} ({mid})" if counts[n] > 1 or not n else n for mid, n in names.items()}


def _classes(
    raw: Path, box_paths: Sequence[bytes], label_names: dict[str, str], options: SourceOptions
) -> ClassNames:
    """The classes in the order of their labels."""
    if options.classes is not None:
        return ClassNames(options.classes, are_given=True)
    if label_names:
        return ClassNames(tuple(label_names.values()))
    mids: set[str] = set()
    for path in box_paths:
        rows = read_lines(_full(raw, path), ",")
        position = {column.strip(): n for n, column in enumerate(next(rows)[1])}["LabelName"]
        mids.update(row[position].strip() for _, row in rows if len(row) > position)
    return class_names((mid for mid in mids if mid and _is_text(mid)), None)


def _is_text(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _pictures_by_id(tree: Tree) -> tuple[dict[bytes, list[Picture]], list[Picture]]:
    """Pictures by the name without extension, and the masks of segments."""
    by_id: dict[bytes, list[Picture]] = {}
    masks = []
    for folder in tree.folders.values():
        for picture in folder.pictures:
            file_name = split_path(picture.path)[1]
            if _MASK_NAME.fullmatch(file_name):
                masks.append(picture)
            else:
                by_id.setdefault(stem_of(file_name), []).append(picture)
    return by_id, masks


def _read_boxes(
    raw: Path,
    path: bytes,
    number: int,
    header: dict[str, int],
    found: _Found,
    label_names: dict[str, str],
    classes: ClassNames,
) -> None:
    """Take in the boxes of one file."""
    split = split_in_name(Path(os.fsdecode(path))) or ""
    order = [header[column] for column in ("XMin", "YMin", "XMax", "YMax")]
    id_column, label_column = header["ImageID"], header["LabelName"]
    flags = [(column, header[column]) for column in FLAG_COLUMNS if column in header]
    # Rows of a picture follow each other, so that it is looked up once.
    last_id, last_image = "", -1
    width = max(header.values()) + 1
    mark = found.findings.mark()
    for line, row in _rows(raw, path):
        place = f"{readable_path(path)}, line {line}"
        if len(row) != width:
            reason = f"has {len(row)} columns; the header has {width}"
            found.findings.refuse_annotation(b"", reason, place)
            continue
        if row[id_column] != last_id or last_image < 0:
            last_id = row[id_column]
            last_image = _image(last_id, split, place, found, is_needed=True)
        mid = row[label_column].strip()
        label = classes.label(label_names.get(mid, mid))
        if label is None and classes.are_given:
            label = classes.label(mid)
        numbers = four_numbers([row[n] for n in order], is_relative=True)
        reason = ""
        extra = 0
        if last_image < 0:
            reason = "its picture was rejected"
        elif label is None:
            shown = label_names.get(mid, mid)
            reason = classes.unknown_reason(shown.encode("utf-8", "backslashreplace").decode())
        elif isinstance(numbers, str):
            reason = numbers
        else:
            values, problem = _flags(row, flags)
            extra = found.extras.setdefault(values, len(found.extras))
            if problem:
                found.findings.refuse_annotation(
                    found.taken[last_image].path,
                    f"{problem}. It is left out",
                    f"{place}, attributes",
                    "attributes",
                )
        if reason:
            key = found.taken[last_image].path if last_image >= 0 else b""
            found.findings.refuse_annotation(key, reason, place)
        else:
            assert label is not None
            box = CellBox(0, numbers, mid)
            found.objects.add(last_image, number, line, box, label, extra)
    found.findings.tag_split(mark, split)


def _read_names(raw: Path, path: bytes, header: dict[str, int], found: _Found) -> int:
    """Take in pictures that a file without boxes names; how many of its rows are about others."""
    split = split_in_name(Path(os.fsdecode(path))) or ""
    id_column, subset_column = header["ImageID"], header.get("Subset")
    unknown_count = 0
    for line, row in _rows(raw, path):
        if len(row) <= max(id_column, subset_column or 0):
            unknown_count += 1
            continue
        told = row[subset_column].strip() if subset_column is not None else split
        place = f"{readable_path(path)}, line {line}"
        if _image(row[id_column], told, place, found, is_needed=False) < 0:
            unknown_count += 1
    return unknown_count


def _rows(raw: Path, path: bytes) -> Iterator[tuple[int, list[str]]]:
    rows = read_lines(_full(raw, path), ",")
    next(rows, None)
    return rows


def _flags(
    row: list[str], flags: Sequence[tuple[str, int]]
) -> tuple[tuple[tuple[str, int], ...], str]:
    """Flags of a box, and why the others cannot be read."""
    values: list[tuple[str, int]] = []
    problems = []
    for column, position in flags:
        text = row[position].strip()
        if text in ("-1", "0", "1"):
            values.append((column, int(text)))
        else:
            problems.append(f"{column} is {text!r}; expected 1, 0 or -1")
    return tuple(values), "; ".join(problems)


def _image(written: str, split: str, place: str, found: _Found, *, is_needed: bool) -> int:
    """Position of the picture of an id, taking it in if it is new; -1 where it is rejected.

    Args:
        written: The id.
        split: Split that the file of annotations tells, or "".
        place: The row, for a reject.
        found: What was found so far.
        is_needed: Whether an id without a picture is a reject.
    """
    image_id = written.strip().encode("utf-8", "surrogateescape")
    pictures = found.pictures.get(image_id, [])
    if len(pictures) > 1:
        meaning = canonical_split(split)
        of_split = [p for p in pictures if canonical_split(_split_of(p)) == meaning]
        pictures = of_split if meaning is not None and of_split else pictures
    if len(pictures) != 1:
        if is_needed and image_id not in found.rejected:
            reason = f"no picture of ImageID {readable_path(image_id)!r}; looked in all folders"
            if pictures:
                reason = several_reason(pictures)
            found.rejected.add(image_id)
            found.findings.refuse(image_id, reason, place, split)
        return -1
    picture = pictures[0]
    if picture.path not in found.keys:
        found.keys[picture.path] = len(found.taken)
        found.taken.append(picture)
        found.splits.append(_split_of(picture) or split)
    return found.keys[picture.path]


def _split_of(picture: Picture) -> str:
    """The innermost folder of a picture that is named like a split, or ""."""
    for part in reversed(picture.path.split(b"/")[:-1]):
        text = part.decode("utf-8", "replace")
        if canonical_split(text) is not None:
            return text
    return ""


def _account_for_rest(
    tree: Tree,
    found: _Found,
    masks: Sequence[Picture],
    headers: dict[bytes, dict[str, int]],
    read_paths: Sequence[bytes],
) -> None:
    """Account for files without use, and say how many pictures have no boxes."""
    findings = found.findings
    masked = {picture.path for picture in masks}
    for folder in tree.folders.values():
        for picture in folder.pictures:
            if picture.path in masked:
                findings.ignore(SEGMENT_MASK, [picture.path])
            elif picture.path not in found.keys:
                findings.ignore(NOT_NAMED, [picture.path])
        unread = (path for path in folder.annotation_files if path not in read_paths)
        findings.ignore(NOT_BOXES, unread)
    findings.note_ignored(NOT_NAMED, SEGMENT_MASK)
    background_count = len(found.taken) - found.objects.image_count
    if background_count:
        findings.notes.append(
            f"{count_text(background_count, 'picture')} named by other files and without boxes: "
            "background"
        )
    levels = [path for path in read_paths if _has(headers[path], ("Confidence",))]
    levels = [path for path in levels if not _has(headers[path], BOX_COLUMNS)]
    if levels:
        shown = ", ".join(map(readable_path, levels))
        findings.notes.append(f"image-level labels left aside: {shown}")
