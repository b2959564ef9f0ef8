"""Image files inside archives: tar, tar compressed with gzip, and zip."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from packer.files.gzip_stream import GzipDamageError, GzipStream
from packer.files.sizes import LOOKED_AT_BYTES, check_start
from packer.items.raw_item import RawItem
from packer.raw.container import check_unchanged, open_file, read_at
from readers.store.errors import ImageError
from readers.store.pictures.signatures import START_BYTES

_CHUNK_BYTES = 2**20

_LOCAL_HEADER = struct.Struct("<4sHHHHHIIIHH")
_LOCAL_SIGNATURE = b"PK\x03\x04"
_DESCRIPTOR_SIGNATURE = b"PK\x07\x08"
_HAS_DESCRIPTOR = 0x08
_STORED, _DEFLATED = 0, 8


class _FileContainer:
    """Images that can be read at any place of a file, in any order.

    Args:
        path: The file.
        read_member: Reads the image of an item from the open file.

    Raises:
        RawFileError: It cannot be opened.
    """

    def __init__(self, path: Path, read_member: Callable[[BinaryIO, RawItem], bytes]) -> None:
        self._file = open_file(path)
        self._read_member = read_member

    def read(self, item: RawItem) -> bytes:
        """The uncompressed bytes of the item's image."""
        check_unchanged(self._file, item)
        return self._read_member(self._file, item)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def range_container(path: Path) -> _FileContainer:
    """Images whose bytes lie in the file as they are, from `member.position` on: those of a tar."""
    return _FileContainer(path, _range_member)


def zip_container(path: Path) -> _FileContainer:
    """Members of a zip archive, stored or deflated; `member.position` is that of a local header.

    The archive's directory is not read again, since that of a million members takes longer to read
    than a shard's members do. So the scan wrote down where each begins.
    """
    return _FileContainer(path, _zip_member)


class GzipContainer:
    """Images in a stream that is compressed as a whole: members of a .tgz.

    `member.position` is a place in the uncompressed stream, which can only be read forward; see
    `GzipStream`.

    Args:
        path: The file.

    Raises:
        RawFileError: It cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._file = open_file(path)
        self._stream = GzipStream(self._file)

    def read(self, item: RawItem) -> bytes:
        """The bytes from `member.position` of the uncompressed stream on."""
        check_unchanged(self._file, item)
        assert item.member is not None
        position = item.member.position
        try:
            if item.byte_count > LOOKED_AT_BYTES:
                start = self._stream.read(position, START_BYTES)
                check_start(start, item.byte_count, item.key)
            data = self._stream.read(position, item.byte_count)
        except GzipDamageError as error:
            raise ImageError(f"the compressed file is damaged: {error}") from error
        if len(data) < item.byte_count:
            raise ImageError(
                f"the compressed file ends after {self._stream.end:,} bytes, before the end of "
                "this image"
            )
        return data

    def close(self) -> None:
        """Close the file."""
        self._stream.close()
        self._file.close()


def _range_member(file: BinaryIO, item: RawItem) -> bytes:
    assert item.member is not None
    if item.byte_count > LOOKED_AT_BYTES:
        check_start(read_at(file, item.member.position, START_BYTES), item.byte_count, item.key)
    return read_at(file, item.member.position, item.byte_count)


def _zip_member(file: BinaryIO, item: RawItem) -> bytes:
    """The uncompressed bytes, which have the checksum that the archive says."""
    assert item.member is not None
    start = item.member.position
    header = _LOCAL_HEADER.unpack(read_at(file, start, _LOCAL_HEADER.size))
    signature, _, flags, method, _, _, crc32, _, _, name_bytes, extra_bytes = header
    if signature != _LOCAL_SIGNATURE:
        raise ImageError(f"the zip archive is damaged: no member begins at byte {start:,}")
    start += _LOCAL_HEADER.size + name_bytes + extra_bytes
    if method == _STORED:
        if item.byte_count > LOOKED_AT_BYTES:
            check_start(read_at(file, start, START_BYTES), item.byte_count, item.key)
        data, end = read_at(file, start, item.byte_count), start + item.byte_count
    elif method == _DEFLATED:
        data, end = _inflated(file, start, item)
    else:
        raise ImageError(f"compressed by method {method} of zip; expected stored or deflated")
    expected = {crc32}
    if flags & _HAS_DESCRIPTOR:
        # The checksum follows the data then, behind a signature that may be left out.
        after = read_at(file, end, 8)
        expected = {int.from_bytes(after[:4], "little")}
        if after.startswith(_DESCRIPTOR_SIGNATURE):
            expected.add(int.from_bytes(after[4:], "little"))
    found = zlib.crc32(data)
    if found not in expected:
        raise ImageError(
            f"the zip member is damaged: checksum {found:08x}, expected {min(expected):08x}"
        )
    return data


def _inflated(file: BinaryIO, start: int, item: RawItem) -> tuple[bytes, int]:
    """The member's bytes, and where the compressed ones end."""
    decompressor = zlib.decompressobj(-zlib.MAX_WBITS)
    # Gives its bytes without another copy of them, as joining pieces would make.
    data = io.BytesIO()
    byte_count = item.byte_count
    left = byte_count
    position = start
    file.seek(start)
    try:
        while not decompressor.eof:
            compressed = decompressor.unconsumed_tail or file.read(_CHUNK_BYTES)
            if not compressed:
                raise ImageError("the zip member is damaged: the file ends within it")
            if not decompressor.unconsumed_tail:
                position += len(compressed)
            # One byte more than is left, since more than the directory says is damage too.
            piece = decompressor.decompress(compressed, min(left + 1, _CHUNK_BYTES))
            if not data.tell() and piece:
                check_start(piece, byte_count, item.key)
            left -= len(piece)
            if left < 0:
                raise ImageError(
                    f"the zip member is damaged: more than the {byte_count:,} bytes that the "
                    "archive says"
                )
            data.write(piece)
    except (zlib.error, OSError) as error:
        raise ImageError(f"the zip member is damaged: {error}") from error
    if left:
        raise ImageError(
            f"the zip member is damaged: {byte_count - left:,} bytes, expected {byte_count:,}"
        )
    return data.getvalue(), position - len(decompressor.unused_data)
