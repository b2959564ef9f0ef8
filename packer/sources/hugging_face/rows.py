"""Rows of Arrow and Parquet tables, without the bytes of their images."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from packer.files.arrow import (
    ArrowBatches,
    arrow_errors,
    image_bytes_column,
    load_pyarrow,
    open_parquet,
)
from packer.items.raw_item import MEMBER_BYTES_MAX
from packer.sources.container_files import ContainerFiles
from packer.sources.hugging_face.columns import Columns
from packer.sources.hugging_face.tables import Table

_BATCH_ROWS = 1024

_UNPACKED_BYTES_LEAST, _UNPACKED_RATIO_MAX = 2**28, 64
"""What a row group may always be unpacked to, and how many times what it takes in the file. A page
comes into memory as a whole, however large; files of pictures are compressed already, and black
ones in BMP become a fiftieth."""


class Row(NamedTuple):
    """One row without its image.

    Attributes:
        number: From 0.
        values: By column.
        has_bytes: Whether the image is in the table.
        path: Of the image as the table writes it, if it does.
        byte_count: Size of the image in the table; in Parquet the mean of its row group.
    """

    number: int
    values: dict[str, Any]
    has_bytes: bool
    path: str | None
    byte_count: int


def read_schema(table: Table, found: ContainerFiles) -> Any:
    """The `pyarrow.Schema` of a table. Its errors are `arrow_errors()`."""
    path = found.full_path(table.file.path)
    if table.kind == "parquet":
        with open_parquet(path) as parquet:
            return parquet.schema_arrow
    batches = ArrowBatches(path)
    try:
        return batches.schema
    finally:
        batches.close()


def column_values(tables: list[Table], column: str, found: ContainerFiles) -> Iterator[Any]:
    """All values of one column. What cannot be read is left to the pass over the rows."""
    for table in tables:
        path = found.full_path(table.file.path)
        try:
            for batch in _batches(table, path, [column]):
                yield from batch.column(column).to_pylist()
        except arrow_errors():
            continue


def table_rows(table: Table, columns: Columns, found: ContainerFiles) -> Iterator[Row]:
    """The rows of a table in their order. Errors of a damaged one are `arrow_errors()`."""
    path = found.full_path(table.file.path)
    if table.kind == "parquet":
        yield from _parquet_rows(path, columns)
    else:
        yield from _arrow_rows(table, path, columns)


def _arrow_rows(table: Table, path: Path, columns: Columns) -> Iterator[Row]:
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
                yield Row(first + number, values, has_bytes, paths[number], size)
        first += batch.num_rows


def _parquet_rows(path: Path, columns: Columns) -> Iterator[Row]:
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
            if chunk is not None:
                _check_unpacked(group, total_bytes, chunk.total_compressed_size)
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
                    yield Row(number, values, has, image_path, mean_bytes)
                    number += 1


def _check_unpacked(group: int, unpacked_bytes: int, packed_bytes: int) -> None:
    """Refuse a row group whose images would be far more than pictures that were compressed again.

    Raises:
        ValueError: They would.
    """
    if unpacked_bytes > max(_UNPACKED_BYTES_LEAST, _UNPACKED_RATIO_MAX * packed_bytes):
        raise ValueError(
            f"images of {unpacked_bytes:,} bytes in {packed_bytes:,} of row group {group}; "
            f"expected at most {_UNPACKED_RATIO_MAX} times as many: pictures hardly get smaller"
        )


def _has_no_null(chunk: Any) -> bool:
    statistics = chunk.statistics if chunk is not None else None
    return statistics is not None and statistics.has_null_count and statistics.null_count == 0


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
