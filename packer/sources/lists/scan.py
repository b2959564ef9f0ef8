"""What lists of pictures say, whatever kind of file they are: the scan that these sources share.

What a list holds is decided by the names of its columns:

    columns of a box               objects: several rows of one picture are its boxes
    a column `labels`              several labels for each picture
    a column `label`               one label for each picture
    no such column, but two or
    more that hold only 0 and 1    several labels for each picture, by the names of the columns
    a mask or a caption alone      pictures without labels; several captions of one picture are
                                   rows of it
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from packer.errors import SourceError
from packer.items.annotations import object_fields
from packer.items.findings import Findings
from packer.items.raw_item import RawItem, Scan
from packer.sources.lists.columns import BoxColumns, Columns
from packer.sources.lists.content import readable_lists
from packer.sources.lists.files import ListFile
from packer.sources.lists.labels import ListLabels
from packer.sources.lists.objects import check_forms, decide_form, label_position
from packer.sources.lists.pictures import ListedFiles
from packer.sources.lists.rows import Content, ListsRead, row_reader, written_paths
from packer.sources.lists.splits import splits_of, take_splits_of_folders
from packer.sources.only_split import is_other_split
from packer.sources.source import SourceOptions
from packer.sources.splits import split_field
from packer.sources.turned_boxes import angle_note
from packer.sources.walk import Picture, Tree, walk
from packer.wording import count_text, readable_path
from readers.store.schema import Field
from readers.store.wording import few_text

NOT_NAMED = "not named by the annotations"
LIST_NOT_READ = "list that was not read"

_BLOCK_ROWS = 16, 1024
"""Rows whose files are looked for together, at first and at most, where the file server is slow."""


def scan_lists(
    name: str,
    raw: Path,
    lists: Sequence[ListFile],
    options: SourceOptions,
    *,
    inside: Sequence[bytes] = (),
    extensions: tuple[str, ...] = (),
    also_read: Sequence[Path] = (),
) -> Scan:
    """The pictures that lists name, in their order, each with what its rows say.

    Every value of a text list is text, as written, but for blanks around it: `007`, `NA` and `1e3`
    stay what they are. Classes are sorted by code point, splits by meaning. What cannot be used is
    a reject that names its row.

    Args:
        name: The source's name.
        raw: The list or the raw folder.
        lists: From `find_lists`.
        options: `root` is where pictures are that do not lie beside their list.
        inside: Folders in the raw folder where pictures may lie as well.
        extensions: Of lists; those in the raw folder that were not read are counted.
        also_read: Other files of these extensions that were read.

    Raises:
        SourceError: The columns name no picture or say nothing about it, or not in a way that has
            one meaning.
    """
    readable = readable_lists(lists, options)
    lists, flags, content = readable.lists, readable.flags, readable.content
    tree = None
    if raw.is_dir():
        tree = walk(raw, tuple(extension.encode() for extension in extensions))
    known: dict[bytes, Picture] = {}
    if tree is not None:
        known = {p.path: p for folder in tree.folders.values() for p in folder.pictures}
    raw_folder = raw if tree is not None else raw.parent
    if content == "flags":
        options = replace(options, label_is_index=False)  # Labels are the names of columns.
    # What the lists say of a file comes before what the walk met; see `_add_rest`.
    findings = Findings() if tree is None else Findings(ignored=tree.findings.ignored)
    files = ListedFiles(raw_folder, options.root, inside, known)
    state = ListsRead(content, files, ListLabels(options), findings)
    for entry, problem in readable.left:
        findings.refuse(b"", problem, entry.shown, entry.split)
    row_count = 0
    for number, (entry, columns) in enumerate(zip(lists, flags, strict=True)):
        read = row_reader(state, number, entry, columns)
        rows, block_rows = iter(entry.table.rows()), _BLOCK_ROWS[0]
        try:
            while block := list(islice(rows, block_rows)):
                block_rows = min(2 * block_rows, _BLOCK_ROWS[1])
                row_count += len(block)
                state.files.ahead(written_paths(entry, block), entry.folder)
                for row in block:
                    read(*row)
        except SourceError as error:
            if not is_other_split(entry.split, options.split):
                raise
            findings.refuse(b"", str(error), entry.shown, entry.split)
    if not row_count:
        shown = readable_path(os.fsencode(lists[0].table.path))
        raise SourceError(
            f"{shown}: the list has a header and no rows; expected one row for each picture."
        )
    findings.notes += _column_notes(lists, flags, content, tree is None)
    if tree is not None and options.root is not None and not _is_inside(options.root, raw):
        shown = readable_path(os.fsencode(options.root))
        findings.notes.append(f"files in {shown} that the list does not name were not looked at")
    left = (entry.table.path for entry, _ in readable.left)
    read_paths = [*(entry.table.path for entry in lists), *left, *also_read]
    return _scan_of(name, raw, lists, state, tree, read_paths)


def _scan_of(
    name: str,
    raw: Path,
    lists: Sequence[ListFile],
    state: ListsRead,
    tree: Tree | None,
    read_paths: Sequence[Path],
) -> Scan:
    """Items and fields of all that was read."""
    findings = state.findings
    notes = findings.notes
    images, content = state.images, state.content
    if content == "flags":
        classes = state.labels.in_order_of_columns()
    else:
        classes = state.labels.classes()
        notes += state.labels.notes()
    label_of = state.labels.labels(classes)
    if content == "objects" and all(label_position(entry.table.columns) is None for entry in lists):
        notes.append(f"boxes have no class and are all taken for {classes[0]!r}, the only one")
    if content == "flags" and images and state.one_positive:
        notes.append(
            "every picture has exactly one class; kept as a list of labels, since another could "
            "have several"
        )
    notes += take_splits_of_folders(lists, images)
    splits = splits_of(lists, images)
    packed: list[bytes] = []
    if content == "objects":
        boxes = _decided_boxes(lists, state)
        notes += [*angle_note(state.angle_column, state.angle_count)]
        packed = state.objects.pack(
            [image.size for image in images],
            boxes,
            label_of,
            [f"{entry.shown}, {entry.table.unit}" for entry in lists],
        )
        background_count = len(images) - state.objects.image_count
        if background_count:
            notes.append(f"{count_text(background_count, 'picture')} without boxes: background")
    has_mask = any(entry.table.columns.mask is not None for entry in lists)
    has_caption = any(entry.table.columns.caption is not None for entry in lists)
    has_captions = any(len(image.captions) > 1 for image in images)
    split_places = {split: n for n, split in enumerate(splits)}
    # One dict for all items of the same values, which nobody changes.
    shared: dict[tuple[int, int], dict[str, Any]] = {}
    for n, image in enumerate(images):
        split = split_places[image.split] if splits else 0
        label = label_of[image.label] if content == "label" else 0
        values = shared.get((split, label))
        if values is None:
            values = {"label": label} if content == "label" else {}
            if splits:
                values["split"] = split
            shared[split, label] = values
        if content in ("labels", "flags"):
            values = {"labels": [label_of[number] for number in image.labels], **values}
        if has_captions:
            values = {**values, "captions": image.captions}
        elif has_caption:
            values = {**values, "caption": "".join(image.captions)}
        findings.items.append(
            RawItem(
                image.key,
                image.file.path,
                image.file.byte_count,
                image.file.mtime_ns,
                values,
                packed[n] if packed else b"",
                {"mask": image.mask} if image.mask is not None else {},
            )
        )
    if tree is not None:
        _add_rest(raw, read_paths, state, tree)
    return findings.as_scan(
        name,
        state.files.root,
        classes=classes,
        splits=splits,
        fields=_fields(content, classes, splits, has_mask, has_caption, has_captions),
    )


def _decided_boxes(lists: Sequence[ListFile], state: ListsRead) -> list[BoxColumns]:
    """How the boxes of each list are read; what the data decides is noted.

    Raises:
        SourceError: It cannot be decided, or the names of the columns cannot be right.
    """
    boxes = [entry.table.columns.box for entry in lists]
    decided = [box for box in boxes if box is not None]
    if len({box.is_relative for box in decided}) > 1:
        raise SourceError(
            f"{lists[0].shown} and the lists beside it have boxes in pixels and boxes relative to "
            "the picture's size; expected one of both. Give the path of one list instead."
        )
    undecided = [n for n, box in enumerate(decided) if box.form == "open"]
    if undecided:
        values, images = state.objects.values_of(undecided)
        known = np.array(
            [image.size or (np.inf, np.inf) for image in state.images], np.float64
        ).reshape(-1, 2)
        entry = lists[undecided[0]]
        column = entry.table.columns.names[decided[undecided[0]].positions[0]]
        place = readable_path(os.fsencode(entry.table.path))
        form, note = decide_form(values, known[images], column, place)
        state.findings.notes += [note] if note else []
        state.findings.choices["boxes"] = "x0 y0 x1 y1" if form == "corners" else "x y width height"
        decided = [replace(box, form=form) if box.form == "open" else box for box in decided]
    for n, (box, entry) in enumerate(zip(decided, lists, strict=True)):
        values, _ = state.objects.values_of([n])
        place = readable_path(os.fsencode(entry.table.path))
        check_forms(values, box, entry.table.columns, place)
    return decided


def _fields(
    content: Content,
    classes: tuple[str, ...],
    splits: tuple[str, ...],
    has_mask: bool,
    has_caption: bool,
    has_captions: bool,
) -> tuple[Field, ...]:
    fields: list[Field] = []
    if content == "objects":
        fields += object_fields(classes)
    elif content in ("labels", "flags"):
        fields.append(
            Field(name="labels", kind="label", dtype="int64", shape=(None,), names=classes)
        )
    elif content == "label":
        fields.append(Field(name="label", kind="label", dtype="int64", names=classes))
    if has_mask:
        fields.append(Field(name="mask", kind="mask", dtype="uint8", shape=(None, None)))
    if has_captions:
        fields.append(Field(name="captions", kind="json"))
    elif has_caption:
        fields.append(Field(name="caption", kind="text"))
    if splits:
        fields.append(split_field(splits))
    return tuple(fields)


def _add_rest(raw: Path, read_paths: Sequence[Path], state: ListsRead, tree: Tree) -> None:
    """Account for files of the raw folder that the lists do not name or that cannot be read."""
    findings = state.findings
    base = os.path.abspath(os.fsencode(raw))
    read = {os.path.abspath(os.fsencode(path)) for path in read_paths}
    for folder in tree.folders.values():
        for picture in folder.pictures:
            if os.path.join(base, picture.path) not in state.files.taken:
                findings.ignore(NOT_NAMED, [picture.path])
        for path in folder.annotation_files:
            if os.path.join(base, path) not in read:
                findings.ignore(LIST_NOT_READ, [path])
    named = {reject.key for reject in findings.rejects}
    findings.rejects += [reject for reject in tree.findings.rejects if reject.key not in named]
    findings.note_ignored(NOT_NAMED)


def _is_inside(folder: Path, raw: Path) -> bool:
    return Path(os.path.abspath(folder)).is_relative_to(os.path.abspath(raw))


def _column_notes(
    lists: Sequence[ListFile], flags: Sequence[dict[str, int]], content: Content, is_file: bool
) -> list[str]:
    """Which columns were read, and which were not."""
    notes = []
    told: set[tuple[str, ...]] = set()
    for entry, of_classes in zip(lists, flags, strict=True):
        columns = entry.table.columns
        if columns.names in told:
            continue
        told.add(columns.names)
        taken = _taken(columns, content, of_classes)
        left = [column for n, column in enumerate(columns.names) if n not in taken]
        named = few_text([columns.names[position] for position in taken], 20, repr)
        rest = "; files that the list does not name were not looked at" if is_file else ""
        notes.append(f"columns read: {named}{rest}")
        if left:
            notes.append(f"columns not read: {few_text(left, 10, repr)}")
    if any(entry.split for entry in lists):
        told_by = ", ".join(f"{entry.shown} ({entry.split})" for entry in lists)
        notes.append(f"one list for each split: {told_by}")
    return notes


def _taken(columns: Columns, content: Content, flags: dict[str, int]) -> list[int]:
    """Positions of the columns that are read: path, labels and boxes first."""
    positions: list[int | None] = [columns.path]
    if content == "objects":
        assert columns.box is not None
        positions.append(label_position(columns))
        positions += [*columns.box.positions, *(columns.size or ())]
    elif content == "labels":
        positions.append(columns.labels)
    elif content == "label":
        positions.append(columns.label)
    elif content == "flags":
        positions += flags.values()
    positions += [columns.split, columns.mask, columns.caption]
    return [position for position in positions if position is not None]
