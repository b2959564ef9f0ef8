"""Image files in a column of a table: Arrow and Parquet. `member.position` is the row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from packer.files.arrow import (
    ArrowBatches,
    arrow_errors,
    image_bytes_column,
    open_parquet,
)
from packer.items.raw_item import RawItem
from packer.raw.container import check_unchanged, open_file
from readers.store.errors import ImageError

_ROWS_READ = 16
"""Rows of a Parquet file that are in memory at once."""


class _TableContainer:
    """Rows read forward, with the batch of the last one kept.

    Args:
        path: The file.
        batches: Opens the file's batches from (about) a row on: yields the first row of each with
            the column of its images.

    Raises:
        ImageError: It cannot be opened.
    """

    def __init__(
        self, path: Path, batches: Callable[[Path, str, int], Iterator[tuple[int, Any]]]
    ) -> None:
        self._path = path
        self._file = open_file(path)
        self._open_batches = batches
        self._batches: Iterator[tuple[int, Any]] | None = None
        self._first = 0
        self._images: Any = None

    def read(self, item: RawItem) -> bytes:
        """The bytes of the image in a row of the column `member.name`."""
        check_unchanged(self._file, item)
        assert item.member is not None
        row, column = item.member.position, item.member.name
        try:
            if self._batches is None or row < self._first:
                self._batches = self._open_batches(self._path, column, row)
                self._first, self._images = 0, []
            while row >= self._first + len(self._images):
                following = next(self._batches, None)
                if following is None:
                    raise ImageError(f"the file ends before row {row}")
                self._first, self._images = following
            value = self._images[row - self._first].as_py()
        except ImageError:
            self._batches = None
            raise
        except arrow_errors() as error:
            self._batches = None
            raise ImageError(f"row {row} cannot be read: {error}") from error
        if not isinstance(value, bytes):
            raise ImageError(f"row {row} has no bytes of an image in column {column!r}")
        return value

    def close(self) -> None:
        """Close the file and let go of the rows in memory."""
        self._file.close()
        if self._batches is not None:
            self._batches.close()  # type: ignore[attr-defined]  # They are generators.
        self._batches = self._images = None


def arrow_container(path: Path) -> _TableContainer:
    """Images of an Arrow file."""
    return _TableContainer(path, _arrow_batches)


def parquet_container(path: Path) -> _TableContainer:
    """Images of a Parquet file."""
    return _TableContainer(path, _parquet_batches)


def _arrow_batches(path: Path, column: str, row: int) -> Iterator[tuple[int, Any]]:
    batches = ArrowBatches(path)
    try:
        first = 0
        for batch in batches:
            if row < first + batch.num_rows:
                images = image_bytes_column(batch.column(column))
                # Offsets in a file are believed otherwise, and lead anywhere.
                images.validate(full=True)
                yield first, images
            first += batch.num_rows
    finally:
        batches.close()


def _parquet_batches(path: Path, column: str, row: int) -> Iterator[tuple[int, Any]]:
    with open_parquet(path) as file:
        first = 0
        for group in range(file.metadata.num_row_groups):
            row_count = file.metadata.row_group(group).num_rows
            if row >= first + row_count:
                first += row_count
                continue
            for batch in file.iter_batches(_ROWS_READ, row_groups=[group], columns=[column]):
                images = image_bytes_column(batch.column(0))
                yield first, images
                first += batch.num_rows
