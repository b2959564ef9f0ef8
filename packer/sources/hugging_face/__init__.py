"""Hugging Face data sets on disk: folders of `save_to_disk` (Arrow), and Parquet files."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from packer.errors import SourceError
from packer.sources.annotations import (
    BOX_FIELDS,
    Annotations,
    RawObject,
    object_fields,
    pack_annotations,
)
from packer.sources.class_names import ClassNames
from packer.sources.container_files import MEMBER_BYTES_MAX, ContainerFiles
from packer.sources.hugging_face.arrow_files import (
    ArrowBatches,
    arrow_errors,
    image_bytes_column,
    load_pyarrow,
    open_parquet,
)
from packer.sources.hugging_face.columns import Columns, ObjectColumns, columns_of
from packer.sources.hugging_face.tables import Table, find_tables
from packer.sources.items import Member, RawItem, Reject, Scan
from packer.sources.pairing import normal_path, split_path, stem_of
from packer.sources.source import SourceOptions
from packer.sources.splits import ordered_splits, split_field
from packer.sources.text_labels import TextLabels
from packer.sources.walk import readable_path
from packer.wording import count_text, names_text
from readers.store.schema import Field

name = "hf"

_BATCH_ROWS = 1024
_BOX_FORMAT = "xywh"


class _Row(NamedTuple):
    """One row without its image: values by column, and where the image is."""

    number: int
    values: dict[str, Any]
    has_bytes: bool
    path: str | None
    byte_count: int


class _Labels:
    """Labels of one column: numbers of a ClassLabel, or texts and numbers without names."""

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


@dataclass
class _Account:
    """What was met while rows were read."""

    found: ContainerFiles
    columns: Columns
    options: SourceOptions
    annotation_rejects: list[Reject] = field(default_factory=list)
    used_pictures: set[bytes] = field(default_factory=set)
    empty_texts: dict[str, int] = field(default_factory=dict)
    box_count: int = 0
    corner_like_count: int = 0


def scan(raw: Path, options: SourceOptions) -> Scan:
    """Rows of Arrow or Parquet tables, in the order of the tables and of their rows.

    Images lie in a column of the feature Image, or of {bytes, path}; where there are no bytes, the
    path leads to a file beside the table. A ClassLabel is the label; a column of structs with boxes
    and categories gives objects; `image_id` and columns of text are kept. A note names all columns
    that are not read. The bytes of images are not read here.

    Keys are the table's path without extension and the number of the row. `RawItem.byte_count` of a
    Parquet row is the mean of its row group: only reading the images would tell more.

    Args:
        raw: A folder, or one table.
        options: `classes` and `label_is_index` say what labels mean, `root` where pictures lie that
            are not in the tables.

    Raises:
        SourceError: There is no table with images, tables differ in their columns, or pyarrow is
            not installed.
    """
    found, tables, notes = find_tables(raw)
    columns, tables = _common_columns(raw, tables, found)
    if columns is None:
        found.ignore_pictures()
        return Scan(
            format=name, root=found.root, items=[], rejects=found.rejects, ignored=found.ignored
        )
    account = _Account(found, columns, options)
    labels, categories = _read_labels(tables, account)
    splits = ordered_splits(table.split for table in tables if table.split)
    items: list[RawItem] = []
    for table in tables:
        shared = {"split": splits.index(table.split)} if splits else {}
        last = -1
        try:
            for row in _rows(table, account):
                last = row.number
                item = _item(table, row, dict(shared), labels, categories, account)
                if item is not None:
                    items.append(item)
        except arrow_errors() as error:
            reason = f"damaged after row {last}: {error}; what follows was not read"
            shown = readable_path(table.file.path)
            found.rejects.append(Reject(key=table.file.path, path=shown, reason=reason))
    found.ignore_pictures(account.used_pictures)
    classes = next((each.classes.names for each in (categories, labels) if each is not None), ())
    notes += _notes(account, [each for each in (labels, categories) if each is not None])
    return Scan(
        format=name,
        root=found.root,
        items=items,
        classes=classes,
        splits=splits,
        fields=_fields(columns, labels, categories, splits),
        rejects=found.rejects,
        annotation_rejects=account.annotation_rejects,
        ignored=found.ignored,
        notes=notes,
        choices={"bbox_format": _BOX_FORMAT} if columns.objects is not None else {},
    )


def _common_columns(
    raw: Path, tables: list[Table], found: ContainerFiles
) -> tuple[Columns | None, list[Table]]:
    """What the columns of all tables are, and the tables that can be read.

    Raises:
        SourceError: No table has images, or they differ.
    """
    common: Columns | None = None
    first: Table | None = None
    readable = []
    for table in tables:
        shown = readable_path(table.file.path)
        try:
            schema = _read_schema(table, found)
        except arrow_errors() as error:
            reason = f"cannot be read as {table.kind.capitalize()}: {error}"
            found.rejects.append(Reject(key=table.file.path, path=shown, reason=reason))
            continue
        columns = columns_of(schema, table.info)
        if columns is None:
            raise SourceError(
                f"{shown}: the columns are {names_text(schema.names)}; expected one of images: "
                "the feature Image, or structs of bytes and path."
            )
        if first is not None and columns != common:
            raise SourceError(
                f"{readable_path(os.fsencode(raw))}: {shown} has other columns or class names than "
                f"{readable_path(first.file.path)}. Give the folder or file of one data set "
                "(one configuration) only."
            )
        common, first = columns, first or table
        readable.append(table)
    return common, readable


def _read_schema(table: Table, found: ContainerFiles) -> Any:
    path = found.full_path(table.file.path)
    if table.kind == "parquet":
        with open_parquet(path) as parquet:
            return parquet.schema_arrow
    batches = ArrowBatches(path)
    try:
        return batches.schema
    finally:
        batches.close()


def _read_labels(tables: list[Table], account: _Account) -> tuple[_Labels | None, _Labels | None]:
    """Labels of the images, and of the objects on them; None where there are none."""
    columns, objects = account.columns, account.columns.objects
    labels = categories = None
    if columns.label is not None:
        texts: set[str] = set()
        if columns.label_names is None:
            for value in _values(tables, columns.label, account):
                if value is not None:
                    texts.add(str(value))
        labels = _Labels(columns.label_names, texts, account.options)
    if objects is not None:
        texts = set()
        if objects.category_names is None:
            for value in _values(tables, objects.column, account):
                texts.update(str(c) for c in _listed(value, objects.category) if c is not None)
        categories = _Labels(objects.category_names, texts, account.options)
    return labels, categories


def _values(tables: list[Table], column: str, account: _Account) -> Iterator[Any]:
    """All values of one column. What cannot be read is left to the pass over the rows."""
    for table in tables:
        path = account.found.full_path(table.file.path)
        try:
            for batch in _batches(table, path, [column]):
                yield from batch.column(column).to_pylist()
        except arrow_errors():
            continue


def _batches(table: Table, path: Path, columns: list[str]) -> Iterator[Any]:
    """Batches of some columns of a table, checked."""
    if table.kind == "parquet":
        with open_parquet(path) as parquet:
            yield from parquet.iter_batches(_BATCH_ROWS, columns=columns)
        return
    batches = ArrowBatches(path)
    try:
        for batch in batches:
            chosen = batch.select(columns)
            chosen.validate(full=True)
            yield chosen
    finally:
        batches.close()


def _rows(table: Table, account: _Account) -> Iterator[_Row]:
    path = account.found.full_path(table.file.path)
    if table.kind == "parquet":
        yield from _parquet_rows(path, account.columns)
    else:
        yield from _arrow_rows(table, path, account.columns)


def _arrow_rows(table: Table, path: Path, columns: Columns) -> Iterator[_Row]:
    """Rows of an Arrow file, whose images' sizes are in their offsets."""
    compute = load_pyarrow("pyarrow.compute")
    first = 0
    for batch in _batches(table, path, [columns.image, *columns.read]):
        image = batch.column(columns.image)
        sizes = compute.binary_length(image_bytes_column(image)).to_pylist()
        valid = image.is_valid().to_pylist()
        paths = image.field("path").to_pylist() if columns.has_path else [None] * len(sizes)
        # In pieces: a batch may hold any number of rows.
        for start in range(0, batch.num_rows, _BATCH_ROWS):
            piece = batch.slice(start, _BATCH_ROWS)
            rows = piece.select(columns.read).to_pylist() or [{}] * piece.num_rows
            for number, values in enumerate(rows, start):
                has_bytes = valid[number] and sizes[number] is not None
                size = sizes[number] if has_bytes else 0
                yield _Row(first + number, values, has_bytes, paths[number], size)
        first += batch.num_rows


def _parquet_rows(path: Path, columns: Columns) -> Iterator[_Row]:
    """Rows of a Parquet file; its images are read only where some of them may be missing."""
    leaf = f"{columns.image}.bytes" if columns.image_type == "struct" else columns.image
    with open_parquet(path) as parquet:
        number = 0
        for group in range(parquet.metadata.num_row_groups):
            facts = parquet.metadata.row_group(group)
            chunk = next(
                (
                    facts.column(n)
                    for n in range(facts.num_columns)
                    if facts.column(n).path_in_schema == leaf
                ),
                None,
            )
            total_bytes = chunk.total_uncompressed_size if chunk is not None else 0
            mean_bytes = min(max(total_bytes // max(facts.num_rows, 1), 0), MEMBER_BYTES_MAX)
            wanted = [*columns.read, *([f"{columns.image}.path"] if columns.has_path else [])]
            # A row group says how many of its values are missing; that none is needs no reading.
            is_whole = bool(wanted) and _has_no_null(chunk)
            if not is_whole:
                wanted = [*columns.read, columns.image]
            # Few rows at once where they come with their images.
            row_count = _BATCH_ROWS if is_whole else 16
            for batch in parquet.iter_batches(row_count, row_groups=[group], columns=wanted):
                has_bytes = [True] * batch.num_rows
                paths = [None] * batch.num_rows
                if columns.image in batch.schema.names:
                    image = batch.column(columns.image)
                    if not is_whole:
                        has_bytes = image_bytes_column(image).is_valid().to_pylist()
                    if columns.has_path:
                        paths = image.field("path").to_pylist()
                rows = batch.select(columns.read).to_pylist() or [{}] * batch.num_rows
                for values, has, image_path in zip(rows, has_bytes, paths, strict=True):
                    yield _Row(number, values, has, image_path, mean_bytes)
                    number += 1


def _has_no_null(chunk: Any) -> bool:
    statistics = chunk.statistics if chunk is not None else None
    return statistics is not None and statistics.has_null_count and statistics.null_count == 0


def _item(
    table: Table,
    row: _Row,
    values: dict[str, Any],
    labels: _Labels | None,
    categories: _Labels | None,
    account: _Account,
) -> RawItem | None:
    """The raw item of a row, or None when it is rejected."""
    columns, file = account.columns, table.file
    key = b"%s/%05d" % (stem_of(file.path), row.number)
    place = f"{readable_path(file.path)}, row {row.number}"
    problem = ""
    if labels is not None and columns.label is not None:
        values["label"], problem = labels.label(row.values[columns.label])
    annotations = b""
    if columns.objects is not None and not problem:
        assert categories is not None
        annotations, problem = _annotations(row, columns.objects, categories, key, place, account)
    if columns.image_id and not problem:
        values["image_id"] = row.values["image_id"]
        if values["image_id"] is None or not -(2**63) <= values["image_id"] < 2**63:
            problem = f"image_id {values['image_id']}; expected a whole number of 64 bits"
    for column, field_name in columns.texts:
        text = row.values[column]
        if text is None:
            account.empty_texts[column] = account.empty_texts.get(column, 0) + 1
        values[field_name] = text or ""
    for column, field_name, names in columns.numbers:
        number = row.values[column]
        if number is None or not 0 <= number < len(names):
            problem = problem or f"{column} {number} is not in [0, {len(names)})"
        values[field_name] = number
    path, byte_count, mtime_ns = file.path, row.byte_count, file.mtime_ns
    member: Member | None = Member(table.kind, file.byte_count, row.number, columns.image)
    if not row.has_bytes and not problem:
        member = None
        picture, problem = _file_beside(row.path, file.path, account)
        if picture is not None:
            path, byte_count, mtime_ns = picture
    if problem:
        account.found.rejects.append(Reject(key=key, path=place, reason=problem))
        return None
    return RawItem(key, path, byte_count, mtime_ns, values, annotations, member=member)


def _file_beside(
    written: str | None, table_path: bytes, account: _Account
) -> tuple[tuple[bytes, int, int] | None, str]:
    """(path, size, time) of the picture of a row that has only a path, or why there is none."""
    if not written:
        return None, "no image: neither bytes nor a path"
    path = written.encode("utf-8", "surrogateescape")
    folder = split_path(table_path)[0]
    beside = normal_path(folder + b"/" + path)
    below_root = normal_path(path)
    if b"\0" in path or path.startswith(b"/") or beside.startswith(b"../"):
        return (
            None,
            f"image {written!r:.200} leads out of the raw folder; expected one inside of it",
        )
    tries = [(beside, account.found.full_path(beside))]
    if account.options.root is not None and not below_root.startswith(b"../"):
        full = os.path.abspath(account.options.root / os.fsdecode(below_root))
        tries.append((os.fsencode(full), Path(full)))
    for candidate, full_path in tries:
        try:
            status = os.stat(full_path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            return None, f"image {written!r:.200} cannot be read: {error.strerror}"
        account.used_pictures.add(candidate)
        return (candidate, status.st_size, status.st_mtime_ns), ""
    looked = " and ".join(readable_path(os.fsencode(full_path)) for _, full_path in tries)
    return None, f"no bytes of an image, and its file is not there; looked at {looked}"


def _listed(value: Any, key: str) -> list[Any]:
    """The values of one key of objects, which are a dict of lists or a list of dicts."""
    if isinstance(value, dict):
        inner = value.get(key)
        return inner if isinstance(inner, list) else []
    if isinstance(value, list):
        return [entry.get(key) if isinstance(entry, dict) else None for entry in value]
    return []


def _annotations(
    row: _Row,
    names: ObjectColumns,
    categories: _Labels,
    key: bytes,
    place: str,
    account: _Account,
) -> tuple[bytes, str]:
    """The objects of a row, or why they are not known."""
    value = row.values[names.column]
    if value is None:
        return b"", f"{names.column} is null; expected a list of objects, empty if there are none"
    boxes, labels = _listed(value, names.boxes), _listed(value, names.category)
    areas = _listed(value, names.area) if names.area else [None] * len(boxes)
    crowds = _listed(value, names.iscrowd) if names.iscrowd else [None] * len(boxes)
    if not len(boxes) == len(labels) == len(areas) == len(crowds):
        return b"", (
            f"{names.column} has {count_text(len(boxes), 'box')} and {len(labels)} categories; "
            "expected as many of each"
        )
    objects = []
    for number, (box, raw_label) in enumerate(zip(boxes, labels, strict=True)):
        label, problem = categories.label(raw_label)
        numbers = _numbers_of(box)
        if numbers is None:
            problem = f"box {box!r:.100}; expected 4 finite numbers: x, y, width, height"
        if numbers is None or problem:
            at = f"{place}, object {number}"
            account.annotation_rejects.append(Reject(key=key, path=at, reason=problem))
            continue
        x, y, width, height = numbers
        account.box_count += 1
        account.corner_like_count += width > x and height > y
        area = areas[number]
        objects.append(
            RawObject(
                place=f"object {number}",
                label=label,
                box=(x, y, x + width, y + height),
                area=float(area) if isinstance(area, (int, float)) else None,
                iscrowd=bool(crowds[number]),
            )
        )
    size = (row.values["width"], row.values["height"]) if account.columns.has_size else (0, 0)
    is_known = all(isinstance(side, int) and 0 < side < 2**31 for side in size)
    return pack_annotations(
        Annotations(objects=tuple(objects), size=size if is_known else None)
    ), ""


def _numbers_of(box: Any) -> tuple[float, float, float, float] | None:
    """x, y, width and height of a box, or None when it is not 4 finite numbers."""
    try:
        x, y, width, height = box
        # Their sum is finite only if each is; one question instead of four, a million times.
        is_finite = math.isfinite(x + y + width + height)
        return (float(x), float(y), float(width), float(height)) if is_finite else None
    except (TypeError, ValueError, OverflowError):
        return None


def _fields(
    columns: Columns,
    labels: _Labels | None,
    categories: _Labels | None,
    splits: tuple[str, ...],
) -> tuple[Field, ...]:
    fields: list[Field] = []
    if labels is not None:
        names = labels.classes.names
        fields.append(Field(name="label", kind="label", dtype="int64", names=names))
    if categories is not None:
        assert columns.objects is not None
        extra = [("area", columns.objects.area), ("iscrowd", columns.objects.iscrowd)]
        present = tuple(field_name for field_name, key in extra if key is not None)
        fields += object_fields(categories.classes.names, (*BOX_FIELDS, *present))
    if columns.image_id:
        fields.append(Field(name="image_id", kind="scalar", dtype="int64"))
    fields += [Field(name=field_name, kind="text") for _, field_name in columns.texts]
    fields += [
        Field(name=field_name, kind="scalar", dtype="int64", names=names)
        for _, field_name, names in columns.numbers
    ]
    return (*fields, split_field(splits)) if splits else tuple(fields)


def _notes(account: _Account, labels: list[_Labels]) -> list[str]:
    """What was read and what not, and what was taken for granted."""
    columns = account.columns
    notes = [f"columns read: {names_text([columns.image, *columns.read])}"]
    if columns.unread:
        notes.append(f"columns not read: {names_text(columns.unread)}")
    renamed = [
        f"{column!r} as {field_name}"
        for column, field_name, *_ in (*columns.texts, *columns.numbers)
        if column != field_name
    ]
    if renamed:
        notes.append(f"columns stored under another name: {', '.join(renamed)}")
    for column, count in account.empty_texts.items():
        notes.append(f"{count_text(count, 'row')} without {column!r} (null): stored as empty text")
    if columns.objects is not None:
        note = (
            f"boxes in {columns.objects.column}.{columns.objects.boxes} taken as x, y, width, "
            "height, as is the convention of Hugging Face: the data does not say"
        )
        if account.box_count > 20 and account.corner_like_count == account.box_count:
            note += (
                f"; but in all {account.box_count} of them the third and fourth number are larger "
                "than the first and second, as in x0, y0, x1, y1. Look at some with packer view"
            )
        notes.append(note)
    for each in labels:
        notes += each.notes
    return notes
