"""Text files of a stranger: never more of one in memory than such a file has.

What is far larger than any file of its kind is something else: a disk image under a wrong name, a
file with holes, an attack. Its size says so before it is read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from packer.errors import SourceError
from packer.files.start import pointer_reason
from packer.wording import readable_path

TEXT_BYTES_MAX = 2**24
"""Of what is about one picture or says how a data set is to be read. 16 MiB of labels are 400,000
boxes, and the names of ImageNet's 21,841 classes take 1 MB."""

LIST_BYTES_MAX = 2**29
"""Of a list of all pictures that is read at once. 512 MiB name ten million of them."""

LINE_BYTES_MAX = 2**26
"""Of a line of a list. 64 MiB of JSON are a million boxes of one picture."""

_SKIPPED_BYTES = 2**20


def read_bounded(path: bytes | Path, bytes_max: int = TEXT_BYTES_MAX) -> bytes:
    """All of a file.

    Raises:
        OSError: It cannot be read.
        ValueError: It is larger than `bytes_max`. The text is the reason.
    """
    with open(path, "rb") as file:
        byte_count = os.fstat(file.fileno()).st_size
        # A pipe or device has no size, and may never end.
        data = b"" if byte_count > bytes_max else file.read(bytes_max + 1)
        if max(byte_count, len(data)) > bytes_max:
            raise ValueError(
                f"{max(byte_count, len(data)):,} bytes, far more than a file of this kind has; "
                f"expected at most {bytes_max:,}"
            )
        return data


def read_listing(path: bytes | Path, shown: str) -> bytes:
    """All of a list.

    Raises:
        SourceError: It cannot be read, is too large, or is a pointer of Git LFS.
    """
    try:
        data = read_bounded(path, LIST_BYTES_MAX)
    except OSError as error:
        raise SourceError(f"{shown}: cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise SourceError(f"{shown}: {error}. Is it a list?") from error
    if pointer_reason(data):
        raise SourceError(f"{shown}: {pointer_reason(data)}.")
    return data


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, without a byte order mark.

    Raises:
        SourceError: The file cannot be read, is too large or is not UTF-8.
    """
    place = readable_path(os.fsencode(path))
    try:
        data = read_bounded(path)
        if pointer_reason(data):
            raise SourceError(f"{place}: {pointer_reason(data)}.")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise SourceError(f"{place}: cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise SourceError(f"{place}: not UTF-8 ({error}). Save it as UTF-8.") from error
    except ValueError as error:
        raise SourceError(f"{place}: {error}.") from error


def bounded_lines(file: IO[bytes], bytes_max: int = LINE_BYTES_MAX) -> Iterator[bytes | None]:
    """The lines of a file one by one; None for each that is longer than may be."""
    while line := file.readline(bytes_max + 1):
        if len(line) <= bytes_max:
            yield line
            continue
        while line and not line.endswith(b"\n"):
            line = file.readline(_SKIPPED_BYTES)
        yield None
