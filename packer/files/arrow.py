"""Parquet and Arrow files through pyarrow, which is loaded when it is needed (extra `parquet`)."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packer.errors import SourceError
from packer.files.start import pointer_reason_of

READ_BYTES = 2**20
"""Parquet is read in pieces of this size, rather than a whole column of a row group at once."""


def load_pyarrow(name: str = "pyarrow") -> Any:
    """The module pyarrow, or one below it.

    Raises:
        SourceError: It is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise SourceError(
            f"Parquet and Arrow files need pyarrow, which cannot be imported: {error}. "
            "Install it with: pip install 'lmdb-packer[parquet]'"
        ) from error


def open_parquet(path: Path) -> Any:
    """A `pyarrow.parquet.ParquetFile`, which reads columns in small pieces.

    Raises:
        SourceError: pyarrow is not installed.
        pyarrow.ArrowException, OSError, ValueError: It is not a Parquet file, or damaged.
    """
    parquet = load_pyarrow("pyarrow.parquet")
    _refuse_pointer(path)
    return parquet.ParquetFile(path, buffer_size=READ_BYTES, memory_map=False)


def _refuse_pointer(path: Path) -> None:
    """Raise ValueError, one of `arrow_errors`, where Git LFS has not fetched the file."""
    problem = pointer_reason_of(path)
    if problem:
        raise ValueError(problem)


class ArrowBatches:
    """The record batches of an Arrow file, of the stream or the file form, read from where it lies.

    Args:
        path: The file. It is mapped, so that columns which nobody looks at are not read.

    Attributes:
        schema: Names and types of the columns.

    Raises:
        SourceError: pyarrow is not installed.
        pyarrow.ArrowException, OSError, ValueError: It is not an Arrow file, or damaged.
    """

    def __init__(self, path: Path) -> None:
        arrow = load_pyarrow()
        ipc = load_pyarrow("pyarrow.ipc")
        _refuse_pointer(path)
        self._source = arrow.memory_map(str(path))
        self._is_stream = self._source.read(6) != b"ARROW1"
        self._source.seek(0)
        opened = ipc.open_stream if self._is_stream else ipc.open_file
        self._reader = opened(self._source)
        self.schema: Any = self._reader.schema

    def __iter__(self) -> Iterator[Any]:
        """Each batch, once."""
        if self._is_stream:
            yield from self._reader
            return
        for number in range(self._reader.num_record_batches):
            yield self._reader.get_batch(number)

    def close(self) -> None:
        """Give back the file."""
        self._source.close()


def arrow_errors() -> tuple[type[Exception], ...]:
    """What pyarrow raises for damaged files."""
    lib: Any = load_pyarrow("pyarrow.lib")
    return (lib.ArrowException, OSError, ValueError, OverflowError, MemoryError, LookupError)


def image_value_type(arrow_type: Any) -> str:
    """What a column of this type may hold: "struct" of bytes and path, "bytes", or ""."""
    types = load_pyarrow("pyarrow.types")
    if types.is_binary(arrow_type) or types.is_large_binary(arrow_type):
        return "bytes"
    if types.is_struct(arrow_type):
        names = {arrow_type.field(n).name: arrow_type.field(n).type for n in range(len(arrow_type))}
        if "bytes" in names and image_value_type(names["bytes"]) == "bytes":
            return "struct"
    return ""


def image_bytes_column(column: Any) -> Any:
    """The array of image bytes in a column of images (an array, not chunked)."""
    return column if image_value_type(column.type) == "bytes" else column.field("bytes")
