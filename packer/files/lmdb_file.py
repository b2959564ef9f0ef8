"""An LMDB file that others wrote, read by its pages: nothing is opened for writing, or locked.

LMDB itself would want a lock file beside it, and a second opening of a file that the process has
open already. What is needed here is where each value lies, which the pages say. They are read, not
mapped: a file that ends early is an error then, and no signal.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from packer.files.blocks import FileBlocks
from packer.files.start import pointer_reason
from readers.store.errors import CodecError
from readers.store.pages import MAGIC, PageFile
from readers.store.pictures.signatures import START_BYTES

_MAGIC_AT, _MAGIC_AT_OF_32_BIT = 16, 12
"""Behind the header of a page, whose number takes 8 bytes, or 4."""

_GET_WHOLE = "Copy it whole, with `mdb_copy` where it may be in use"


class LmdbFileError(ValueError):
    """The file is no LMDB file that can be read. The text is why, with what to do."""


class LmdbEntry(NamedTuple):
    """One key of a file.

    Attributes:
        key: The key; of a named database, behind the database's name and a slash.
        position: Where its value begins in the file.
        byte_count: Size of the value.
    """

    key: bytes
    position: int
    byte_count: int


def is_lmdb_file(path: Path) -> bool:
    """Whether a file begins as LMDB's do, of whatever machine."""
    try:
        with open(path, "rb") as file:
            start = file.read(_MAGIC_AT + 4)
    except OSError:
        return False
    return any(
        start[at : at + 4] in (MAGIC.to_bytes(4, "little"), MAGIC.to_bytes(4, "big"))
        for at in (_MAGIC_AT, _MAGIC_AT_OF_32_BIT)
    )


class LmdbFile:
    """The entries of an LMDB file, and their values.

    Args:
        path: The file: `data.mdb` of a folder, or the one of `subdir=False`.

    Attributes:
        database_names: Of the named databases, once `entries` is through the main one.

    Raises:
        LmdbFileError: It is none, or one of another kind of machine.
        OSError: It cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._blocks = FileBlocks(path)
        self.database_names: tuple[bytes, ...] = ()
        try:
            self._state = self._blocks.state()
            _check_kind(bytes(self._blocks[0:START_BYTES]))
            self._pages = PageFile(self._blocks)
        except CodecError as error:
            self.close()
            raise _damaged(error) from error
        except BaseException:
            self.close()
            raise

    def entries(self) -> Iterator[LmdbEntry]:
        """All entries: those of the main database in the order of their keys, then of each other.

        Raises:
            LmdbFileError: The file is damaged, has several values of a key, or is being written.
            OSError: It cannot be read.
        """
        pages = self._pages
        try:
            named = {}
            for key, position, byte_count, database in pages.foreign_entries(pages.main):
                if database is None:
                    yield LmdbEntry(key, position, byte_count)
                else:
                    named[key] = database
            self.database_names = tuple(named)
            for name, database in named.items():
                for key, position, byte_count, _ in pages.foreign_entries(database):
                    yield LmdbEntry(name + b"/" + key, position, byte_count)
        except CodecError as error:
            self._check_at_rest()
            raise _damaged(error) from error
        self._check_at_rest()

    def read(self, position: int, byte_count: int) -> bytes:
        """Bytes of the file. Raises OSError where it cannot be read or has become shorter."""
        return bytes(self._blocks[position : position + byte_count])

    def value(self, entry: LmdbEntry, bytes_max: int) -> bytes:
        """The value of an entry, or its first bytes. Raises OSError where it cannot be read."""
        return self.read(entry.position, min(entry.byte_count, bytes_max))

    def close(self) -> None:
        """Close the file."""
        self._blocks.close()

    def _check_at_rest(self) -> None:
        if self._blocks.state() != self._state:
            raise LmdbFileError(
                "it changed while it was read: a program writes to it. Build when that has ended, "
                "or from a copy that `mdb_copy` made"
            )


def _check_kind(start: bytes) -> None:
    """Raise LmdbFileError where the first bytes are not those of a file that can be read."""
    if not start.strip(b"\0"):
        raise LmdbFileError(f"it holds nothing but zeros, an unfinished copy perhaps. {_GET_WHOLE}")
    little, big = MAGIC.to_bytes(4, "little"), MAGIC.to_bytes(4, "big")
    if start[_MAGIC_AT : _MAGIC_AT + 4] == little:
        return
    if start[_MAGIC_AT_OF_32_BIT : _MAGIC_AT_OF_32_BIT + 4] == little:
        kind = "a 32-bit program"
    elif big in (
        start[_MAGIC_AT : _MAGIC_AT + 4],
        start[_MAGIC_AT_OF_32_BIT : _MAGIC_AT_OF_32_BIT + 4],
    ):
        kind = "a machine of the other byte order"
    else:
        raise LmdbFileError(pointer_reason(start) or f"it begins with {start[:20].hex()}, as none")
    raise LmdbFileError(
        f"{kind} wrote it, whose pages are others. Dump it there with `mdb_dump -a` and load that "
        "here with `mdb_load`"
    )


def _damaged(error: CodecError) -> LmdbFileError:
    return LmdbFileError(f"it is damaged or cut short: {error}. {_GET_WHOLE}")
