"""CSV and TSV files as tables of text."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator
from pathlib import Path

from packer.errors import SourceError
from packer.files.start import pointer_reason
from packer.files.text import LINE_BYTES_MAX
from packer.sources.lists.columns import Columns, columns_of
from packer.sources.lists.table import Row, Table
from packer.wording import readable_path
from readers.store.pictures.signatures import START_BYTES


def csv_table(path: Path) -> Table:
    """A CSV or TSV file. Every value is text as written, but for blanks around it.

    Raises:
        SourceError: It cannot be read, is not text, or its quoting is broken.
    """
    columns = read_columns(path)

    def rows() -> Iterator[Row]:
        width = len(columns.names)
        for line, row in read_rows(path, columns.delimiter):
            if len(row) == width:
                yield line, row
            else:
                yield line, f"has {len(row)} columns; the header has {width}"

    return Table(path=path, columns=columns, unit="line", rows=rows)


def read_columns(path: Path) -> Columns:
    """Read the header of a list, trying the delimiters.

    Raises:
        SourceError: It cannot be read, or is not text in UTF-8.
    """
    delimiters = "\t,;" if path.suffix.lower() == ".tsv" else ",;\t"
    fallback = None
    for delimiter in delimiters:
        header = next(read_lines(path, delimiter), (0, []))[1]
        columns = columns_of(header, delimiter)
        if columns.path is not None and len(columns.names) > 1:
            return columns
        if fallback is None or len(columns.names) > len(fallback.names):
            fallback = columns
    assert fallback is not None
    return fallback


def read_rows(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Rows below the header with the number of their first line, which counts from 1."""
    rows = read_lines(path, delimiter)
    next(rows, None)
    return rows


def _line(text: io.TextIOWrapper) -> str:
    """The next line.

    Raises:
        csv.Error: It is longer than may be.
    """
    line = text.readline(LINE_BYTES_MAX)
    if len(line) == LINE_BYTES_MAX:
        raise csv.Error(f"a line of over {LINE_BYTES_MAX:,} characters")
    return line


def read_lines(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Rows of a list, the header included, without empty ones.

    Bytes that are not UTF-8 come as lone surrogates, from which the name of a file can be had back.

    Raises:
        SourceError: The file cannot be read, is UTF-16, or its quoting is broken.
    """
    place = readable_path(os.fsencode(path))
    line = 1
    try:
        with open(path, "rb") as file:
            start = file.read(START_BYTES)
            if pointer_reason(start):
                raise SourceError(f"{place}: {pointer_reason(start)}.")
            if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
                raise SourceError(f"{place}: the list is UTF-16. Save it as CSV in UTF-8.")
            file.seek(0)
            text = io.TextIOWrapper(
                file, encoding="utf-8-sig", errors="surrogateescape", newline=""
            )
            # Strict, or an unclosed quote takes the rest of the list for one label silently.
            lines = iter(lambda: _line(text), "")
            rows = csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True)
            for row in rows:
                if row:
                    yield line, row
                line = rows.line_num + 1
    except OSError as error:
        raise SourceError(
            f"{place}: the list cannot be read: {error.strerror}. Check its permissions."
        ) from error
    except csv.Error as error:
        raise SourceError(
            f"{place}, line {line}: not CSV: {error}. Is it a list, and is there an unclosed quote "
            "in this line?"
        ) from error
