"""JSON lines files as tables: one object a line."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from packer.errors import SourceError
from packer.files.start import pointer_reason_of
from packer.files.text import LINE_BYTES_MAX, bounded_lines
from packer.sources.lists.columns import columns_of
from packer.sources.lists.table import Row, Table, flat_record
from packer.wording import readable_path

_DECODER = msgspec.json.Decoder(dict[str, Any])


def jsonl_table(path: Path) -> Table:
    """A JSON lines file. Its columns are the keys of all lines, in order of their appearance.

    A line that is not a JSON object is a row that cannot be read. The file is read twice: a key may
    appear in its last line for the first time.

    Raises:
        SourceError: The file cannot be read.
    """
    names: dict[str, None] = {}
    for _, record in _records(path):
        if not isinstance(record, str):
            names.update(dict.fromkeys(record))
    order = list(names)

    def rows() -> Iterator[Row]:
        for line, record in _records(path):
            if isinstance(record, str):
                yield line, record
            else:
                yield line, [record.get(name) for name in order]

    return Table(path=path, columns=columns_of(order), unit="line", rows=rows)


def _record(data: bytes) -> dict[str, Any]:
    """The object of a line.

    Raises:
        ValueError: It is none.
    """
    try:
        return _DECODER.decode(data)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error  # As it is only in newer versions of msgspec.
    except (msgspec.DecodeError, UnicodeDecodeError):
        # Slower, and takes what real files have: NaN, half of a pair of surrogates, and a
        # byte-order mark.
        record = json.loads(data)
        if not isinstance(record, dict):
            raise ValueError(f"it is a {type(record).__name__}") from None
        return record


def _records(path: Path) -> Iterator[tuple[int, dict[str, Any] | str]]:
    """The flat record of each line that is not empty, or why it is none."""
    problem = pointer_reason_of(path)
    if problem:
        raise SourceError(f"{readable_path(os.fsencode(path))}: {problem}.")
    try:
        with open(path, "rb") as file:
            for line, written in enumerate(bounded_lines(file), 1):
                if written is None:
                    yield line, f"over {LINE_BYTES_MAX:,} bytes, far more than a line of a list has"
                    continue
                data = written.strip()
                if not data:
                    continue
                try:
                    yield line, flat_record(_record(data))
                except (ValueError, RecursionError) as error:
                    yield line, f"not a JSON object: {error}"
    except OSError as error:
        raise SourceError(
            f"{readable_path(os.fsencode(path))}: the list cannot be read: {error.strerror}. "
            "Check its permissions."
        ) from error
