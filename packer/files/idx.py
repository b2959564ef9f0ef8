"""The bytes of IDX files, compressed with gzip or not.

bytes   images                     labels
0..4    0, 0, 8 (uint8), 3 axes    0, 0, 8 (uint8), 1 axis
4..8    count, big-endian          count
8..12   height                     labels, one byte each
12..16  width
16..    pixels, row by row
"""

from __future__ import annotations

import gzip
import struct
from typing import IO, NamedTuple

IMAGES_HEADER_BYTES = 16

PIXELS_MAX = 2**28
"""Of an image: 16384 x 16384."""

IMAGES_MAX = 20_000_000
"""Of a file: a few bytes of gzip claim billions, and each takes memory as soon as it is known. The
largest that is published, the infinite MNIST, has 8 million."""

_LABELS_HEADER_BYTES = 8


class IdxHeader(NamedTuple):
    """Extents of a file of images."""

    image_count: int
    height: int
    width: int


def open_idx(file: IO[bytes]) -> IO[bytes] | gzip.GzipFile:
    """The stream of an IDX file, uncompressed if need be; its content decides, not its name."""
    is_compressed = file.read(2) == b"\x1f\x8b"
    file.seek(0)
    return gzip.GzipFile(fileobj=file) if is_compressed else file


def read_images_header(stream: IO[bytes] | gzip.GzipFile) -> IdxHeader:
    """The extents of a file of images, whose pixels come next.

    Raises:
        ValueError: It is none. The text is the reason.
        OSError: It cannot be read, or is damaged.
        EOFError: It is cut.
    """
    data = stream.read(IMAGES_HEADER_BYTES)
    if len(data) < IMAGES_HEADER_BYTES or data[:4] != b"\0\0\x08\x03":
        raise ValueError(f"begins with {data[:4].hex() or 'nothing'}, expected 00000803 of images")
    header = IdxHeader(*struct.unpack(">3I", data[4:]))
    if not 1 <= header.height * header.width <= PIXELS_MAX:
        raise ValueError(
            f"images of {header.width}x{header.height} pixels; expected [1, {PIXELS_MAX:,}] pixels"
        )
    return header


def read_labels(stream: IO[bytes] | gzip.GzipFile, count: int) -> bytes:
    """The labels of a file of them, one byte each.

    Args:
        stream: From `open_idx`, at its start.
        count: How many there must be.

    Raises:
        ValueError: It is none, or holds another number. The text is the reason.
        OSError: It cannot be read, or is damaged.
        EOFError: It is cut.
    """
    start = stream.read(_LABELS_HEADER_BYTES)
    if len(start) < _LABELS_HEADER_BYTES or start[:4] != b"\0\0\x08\x01":
        raise ValueError(f"begins with {start[:4].hex() or 'nothing'}, expected 00000801 of labels")
    declared = int.from_bytes(start[4:], "big")
    if declared != count:
        raise ValueError(f"{declared:,} labels, expected one for each of {count:,} images")
    labels = stream.read(count + 1)
    if len(labels) != count:
        more = "at least " if len(labels) > count else ""
        raise ValueError(f"{more}{len(labels):,} bytes of labels, expected {count:,}")
    return labels
