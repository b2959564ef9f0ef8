"""Parquet files as tables."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packer.errors import SourceError
from packer.files.start import pointer_reason_of
from packer.sources.lists.columns import columns_of
from packer.sources.lists.table import Row, Table, flat_record
from packer.wording import readable_path

_BATCH_ROWS = 10_000


def parquet_table(path: Path) -> Table:
    """A Parquet file whose rows name pictures by path.

    Raises:
        SourceError: It cannot be read, or pyarrow is not installed.
    """
    place = readable_path(os.fsencode(path))
    problem = pointer_reason_of(path)
    if problem:
        raise SourceError(f"{place}: {problem}.")
    pyarrow, parquet = _pyarrow(place)
    try:
        with parquet.ParquetFile(path) as file:
            names = list(_flat_names(file.schema_arrow, pyarrow))
    except (OSError, pyarrow.ArrowException) as error:
        raise _unreadable(place, error) from error

    def rows() -> Iterator[Row]:
        number = 0
        try:
            with parquet.ParquetFile(path) as file:
                for batch in file.iter_batches(batch_size=_BATCH_ROWS):
                    for record in batch.to_pylist():
                        number += 1
                        flat = flat_record(record)
                        yield number, [flat.get(name) for name in names]
        except (OSError, pyarrow.ArrowException) as error:
            raise _unreadable(f"{place}, after row {number}", error) from error

    return Table(path=path, columns=columns_of(names), unit="row", rows=rows)


def _unreadable(place: str, error: Exception) -> SourceError:
    return SourceError(f"{place}: cannot be read as Parquet: {error}. Write the file again.")


def _flat_names(fields: Any, pyarrow: Any) -> Iterator[str]:
    """Names of the columns as `flat_record` has them."""
    for field in fields:
        kind = field.type
        if pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind):
            kind = kind.value_type
        if pyarrow.types.is_struct(kind):
            for n in range(kind.num_fields):
                yield f"{field.name}.{kind.field(n).name}"
        else:
            yield field.name


def _pyarrow(place: str) -> tuple[Any, Any]:
    """Pyarrow and its Parquet module, loaded here since few need the 170 MB."""
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise SourceError(
            f"{place}: reading Parquet needs pyarrow, which is not installed. "
            "Install it with: pip install lmdb-packer[parquet]"
        ) from error
