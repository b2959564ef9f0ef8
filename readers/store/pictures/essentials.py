"""A picture file without what says nothing about its pixels.

Browsers and the libraries behind decoders read on where a comment, a resolution or a colour profile
is damaged; Pillow gives the whole picture up. What pixels follow from stays guarded: a wrong
checksum of a chunk with pixels, of a palette or of transparency is damage.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from readers.store.errors import ImageError
from readers.store.pictures.jpeg_segments import (
    APP1,
    APP14,
    APP15,
    COMMENT,
    JPEG_START,
    SCAN,
    jpeg_segments,
)

_PNG = b"\x89PNG\r\n\x1a\n"

_IEND = struct.pack(">I4sI", 0, b"IEND", zlib.crc32(b"IEND"))

_TRANSPARENCY = b"tRNS"
_KEPT_WHEN_SOUND = frozenset((b"eXIf", b"acTL", b"fcTL", b"fdAT"))
"""The orientation, and the pictures of an animation: a damaged one is the same as none."""

_ADOBE_BYTES = 14
"""Of Adobe's segment, which says how colours are coded. A shorter one is not of theirs."""

_INFLATED_AT_ONCE = 2**20


def essentials(data: bytes | memoryview) -> Iterator[bytes]:
    """The file with fewer and fewer of the parts that its pixels do not follow from.

    Yields nothing for a file of another format than PNG and JPEG, or that cannot be taken apart.

    Raises:
        ImageError: A part that pixels follow from is damaged.
    """
    start = bytes(data[:8])
    if start == _PNG:
        check_png(data)
        yield _essential_png(data)
    elif start[:2] == JPEG_START:
        yield from filter(
            None, (_essential_jpeg(data, keeps_app1=keeps) for keeps in (True, False))
        )


# PNG.


def check_png(data: bytes | memoryview) -> None:
    """Refuse a PNG whose pixels, palette or transparency do not have their checksum.

    Raises:
        ImageError: See above.
    """
    for kind, start, end in _png_chunks(data):
        is_needed = kind == _TRANSPARENCY or not kind[:1].islower()
        if is_needed and kind != b"IEND" and not _is_sound(data, start, end):
            raise ImageError(
                f"damaged PNG file: the checksum of its {kind.decode('latin-1')} chunk is wrong, "
                "so that its pixels cannot be trusted; copy it again from where it came from"
            )


def sound_png(data: bytes | memoryview) -> bytes | memoryview:
    """A PNG without damage before its pixels that is not about them; itself where there is none.

    OpenCV would warn of it on stderr, or take a picture for an animation.

    Raises:
        ImageError: A part that pixels follow from is damaged.
    """
    for kind, start, end in _png_chunks(data):
        if kind == b"IDAT":
            break
        if kind[:1].islower() and not _is_sound(data, start, end):
            return next(essentials(data))
    return data


def has_png_end(data: bytes | memoryview) -> bool:
    """Whether a PNG has its last chunk, be it with a wrong checksum."""
    return any(kind == b"IEND" for kind, _, _ in _png_chunks(data))


def has_all_pixels(data: bytes | memoryview, byte_count_max: int) -> bool:
    """Whether the stream of pixels of a PNG is whole up to its own checksum.

    Args:
        data: The whole file.
        byte_count_max: More than the pixels take; a stream that goes on beyond is not followed.
    """
    stream = zlib.decompressobj()
    count = 0
    try:
        for kind, start, end in _png_chunks(data):
            rest = bytes(data[start + 8 : end - 4]) if kind == b"IDAT" else b""
            while rest and not stream.eof and count <= byte_count_max:
                count += len(stream.decompress(rest, _INFLATED_AT_ONCE))
                rest = stream.unconsumed_tail
    except zlib.error:
        return False
    return stream.eof


def _essential_png(data: bytes | memoryview) -> bytes:
    parts = [_PNG]
    for kind, start, end in _png_chunks(data):
        if kind == b"IEND":
            parts.append(_IEND)
        elif (
            kind == _TRANSPARENCY
            or not kind[:1].islower()
            or (kind in _KEPT_WHEN_SOUND and _is_sound(data, start, end))
        ):
            parts.append(bytes(data[start:end]))
    return b"".join(parts)


def _png_chunks(data: bytes | memoryview) -> Iterator[tuple[bytes, int, int]]:
    """(kind, start, end) of each chunk that is there in full, to the last."""
    at = len(_PNG)
    while at + 12 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        end = at + 12 + length
        if end > len(data):
            return
        yield kind, at, end
        if kind == b"IEND":
            return
        at = end


def _is_sound(data: bytes | memoryview, start: int, end: int) -> bool:
    (said,) = struct.unpack_from(">I", data, end - 4)
    return zlib.crc32(data[start + 4 : end - 4]) == int(said)


# JPEG.


def _essential_jpeg(data: bytes | memoryview, *, keeps_app1: bool) -> bytes | None:
    """The file without colour profiles, comments and the like; and EXIF, where that is not kept."""
    parts = [JPEG_START]
    for marker, start, end in jpeg_segments(data):
        if marker == SCAN:
            return b"".join([*parts, bytes(data[start:])])
        is_left_out = (
            (APP1 < marker <= APP15 and marker != APP14)
            or (marker == APP14 and end - start - 2 < _ADOBE_BYTES)
            or (marker == APP1 and not keeps_app1)
            or marker == COMMENT
        )
        if not is_left_out:
            parts.append(bytes(data[start:end]))
    return None
