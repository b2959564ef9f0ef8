"""The Hugging Face source: rows of the tables on disk become raw items."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from packer.errors import SourceError
from packer.files.arrow import arrow_errors
from packer.items.annotations import BOX_FIELDS, object_fields
from packer.items.raw_item import Member, RawItem, Scan
from packer.sources.container_files import ContainerFiles
from packer.sources.hugging_face.account import Account, account_notes
from packer.sources.hugging_face.columns import Columns, columns_of
from packer.sources.hugging_face.labels import Labels
from packer.sources.hugging_face.objects import BOX_FORMAT, listed, row_annotations
from packer.sources.hugging_face.pictures import file_beside
from packer.sources.hugging_face.rows import Row, column_values, read_schema, table_rows
from packer.sources.hugging_face.tables import Table, find_tables
from packer.sources.only_split import is_other_split
from packer.sources.pairing import stem_of
from packer.sources.source import SourceOptions
from packer.sources.splits import ordered_splits, split_field
from packer.wording import names_text, readable_path
from readers.store.schema import Field

name = "hf"


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
    found, tables = find_tables(raw)
    findings = found.findings
    columns, tables = _common_columns(raw, tables, found, options.split)
    if columns is None:
        found.ignore_pictures()
        return findings.as_scan(name, found.root)
    account = Account(found, columns, options)
    labels, categories = _read_labels(tables, account)
    splits = ordered_splits(table.split for table in tables if table.split)
    for table in tables:
        shared = {"split": splits.index(table.split)} if splits else {}
        last = -1
        mark = findings.mark()
        try:
            for row in table_rows(table, columns, found):
                last = row.number
                item = _item(table, row, dict(shared), labels, categories, account)
                if item is not None:
                    findings.items.append(item)
        except arrow_errors() as error:
            reason = f"damaged after row {last}: {error}; what follows was not read"
            findings.refuse(table.file.path, reason)
        findings.tag_split(mark, table.split)
    found.ignore_pictures(account.used_pictures)
    classes = next((each.classes.names for each in (categories, labels) if each is not None), ())
    findings.notes += account_notes(account, [each for each in (labels, categories) if each])
    if columns.objects is not None:
        findings.choices["bbox_format"] = BOX_FORMAT
    fields = _fields(columns, labels, categories, splits)
    return findings.as_scan(name, found.root, classes=classes, splits=splits, fields=fields)


def _common_columns(
    raw: Path, tables: list[Table], found: ContainerFiles, wanted: str | None
) -> tuple[Columns | None, list[Table]]:
    """What the columns of all tables are, and the tables that can be read.

    Those of other splits than the wanted one are rejects where they differ.

    Raises:
        SourceError: No table has images, or they differ.
    """
    common: Columns | None = None
    first: Table | None = None
    readable = []
    # Tables of the wanted split decide.
    for table in sorted(tables, key=lambda table: is_other_split(table.split, wanted)):
        shown = readable_path(table.file.path)
        try:
            schema = read_schema(table, found)
        except arrow_errors() as error:
            reason = f"cannot be read as {table.kind.capitalize()}: {error}"
            found.findings.refuse(table.file.path, reason, split=table.split)
            continue
        columns = columns_of(schema, table.info)
        if first is not None and columns != common and is_other_split(table.split, wanted):
            reason = f"has other columns than {readable_path(first.file.path)}"
            found.findings.refuse(table.file.path, reason, split=table.split)
            continue
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
    return common, [table for table in tables if table in readable]


def _read_labels(tables: list[Table], account: Account) -> tuple[Labels | None, Labels | None]:
    """Labels of the images, and of the objects on them; None where there are none."""
    columns, objects = account.columns, account.columns.objects
    labels = categories = None
    if columns.label is not None:
        texts: set[str] = set()
        if columns.label_names is None:
            for value in column_values(tables, columns.label, account.found):
                if value is not None:
                    texts.add(str(value))
        labels = Labels(columns.label_names, texts, account.options)
    if objects is not None:
        texts = set()
        if objects.category_names is None:
            for value in column_values(tables, objects.column, account.found):
                texts.update(str(c) for c in listed(value, objects.category) if c is not None)
        categories = Labels(objects.category_names, texts, account.options)
    return labels, categories


def _item(
    table: Table,
    row: Row,
    values: dict[str, Any],
    labels: Labels | None,
    categories: Labels | None,
    account: Account,
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
        annotations, problem = row_annotations(
            row, columns.objects, categories, key, place, account
        )
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
        picture, problem = file_beside(row.path, file.path, account)
        if picture is not None:
            path, byte_count, mtime_ns = picture
    if problem:
        account.found.findings.refuse(key, problem, place)
        return None
    return RawItem(key, path, byte_count, mtime_ns, values, annotations, member=member)


def _fields(
    columns: Columns,
    labels: Labels | None,
    categories: Labels | None,
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
