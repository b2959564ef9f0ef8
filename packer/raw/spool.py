"""The spool of a build: images one after the other in a file of its own, to be read in any order.

Each is kept as its container gave it, behind a header that says what follows:

    kind      1 byte: what follows. f: an image file, p: bare pixels as .npy, r: why there is no
              image, UTF-8
    length    8 bytes, little-endian: of what follows
"""

from __future__ import annotations

import io
import os
import struct
from pathlib import Path
from typing import BinaryIO

import msgspec
import numpy as np
from numpy.typing import NDArray

from packer.items.raw_item import RawItem
from packer.raw.container import check_unchanged, open_file, read_at
from readers.store.errors import ImageError

SPOOLED_OVERHEAD_BYTES = 160
"""What an image may take in a spool beside its own bytes: the header here, and that of .npy."""

_HEADER = struct.Struct("<cQ")
_FILE, _PIXELS, _REASON = b"f", b"p", b"r"


def write_spooled(spool: BinaryIO, found: bytes | NDArray[np.uint8] | ImageError) -> int:
    """Append what a container gave for an item to a spool. Bytes that it takes there."""
    if isinstance(found, ImageError):
        kind, data = _REASON, str(found).encode("utf-8", "replace")
    elif isinstance(found, bytes):
        kind, data = _FILE, found
    else:
        pixels = io.BytesIO()
        np.save(pixels, found, allow_pickle=False)
        kind, data = _PIXELS, pixels.getvalue()
    spool.write(_HEADER.pack(kind, len(data)))
    spool.write(data)
    return _HEADER.size + len(data)


def spooled_item(item: RawItem, spool: Path, position: int) -> RawItem:
    """An item that is read from a place of a spool; all else of it stays about its raw file."""
    assert item.member is not None
    member = msgspec.structs.replace(
        item.member, container="spool", position=position, name=os.fspath(spool)
    )
    return msgspec.structs.replace(item, member=member)


class SpoolContainer:
    """Images of one raw file, of which a spool has a copy: `member.name`, at `member.position`.

    Args:
        path: The raw file. It is not read, but must be the one that the scan saw.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._spool: BinaryIO | None = None

    def read(self, item: RawItem) -> bytes | NDArray[np.uint8]:
        """What the raw file's own container gave, or said was wrong."""
        check_unchanged(self._path, item)
        assert item.member is not None
        if self._spool is None:
            self._spool = open_file(Path(item.member.name))
        position = item.member.position
        kind, byte_count = _HEADER.unpack(read_at(self._spool, position, _HEADER.size))
        data = read_at(self._spool, position + _HEADER.size, byte_count)
        if kind == _REASON:
            raise ImageError(data.decode())
        if kind == _FILE:
            return data
        pixels: NDArray[np.uint8] = np.load(io.BytesIO(data), allow_pickle=False)
        return pixels

    def close(self) -> None:
        """Close the spool."""
        if self._spool is not None:
            self._spool.close()
            self._spool = None
