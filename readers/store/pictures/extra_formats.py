"""Formats that need the extra named scientific: JPEG XL, and JPEG of 12 bits (imagecodecs).

Their sizes are read here, from the first bytes, so that a file that promises billions of pixels is
refused before a decoder sees it.

    JPEG         a start-of-frame segment: precision, height, width, components (ITU-T T.81, B.2.2)
    JPEG XL      the size header of the codestream, bits from the lowest (ISO/IEC 18181-1, annex D);
                 in a container (18181-2), that of the first `jxlc` or `jxlp` box
"""

from __future__ import annotations

import importlib
import struct
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from readers.store.errors import ImageError
from readers.store.pictures.jpeg_segments import FRAME_STARTS, JPEG_START, jpeg_segments

JPEG_12, JPEG_XL = "JPEG 12 bit", "JPEG XL"

_CODESTREAM = b"\xff\x0a"
_CONTAINER = b"\0\0\0\x0cJXL \r\n\x87\n"
_RATIOS = ((1, 1), (12, 10), (4, 3), (3, 2), (16, 9), (5, 4), (2, 1))
_EXTRA = "install the extra named scientific: pip install lmdb-packer[scientific]"


class ExtraHeader(NamedTuple):
    """What a file says of itself.

    Attributes:
        format: `JPEG_12` or `JPEG_XL`.
        width: In pixels, as the header has it.
        height: In pixels, as the header has it.
    """

    format: str
    width: int
    height: int


def read_extra_header(data: bytes | memoryview) -> ExtraHeader | None:
    """The header of a file of one of these formats; None when it is of another.

    Raises:
        ImageError: It is one, and damaged.
    """
    start = bytes(data[:12])
    if start[:2] == _CODESTREAM:
        return _jpeg_xl_size(bytes(data[2:16]))
    if start == _CONTAINER:
        return _jpeg_xl_size(_codestream_of(data))
    if start[:2] == JPEG_START:
        return _jpeg_frame(data)
    return None


def decode_extra(data: bytes | memoryview, header: ExtraHeader) -> NDArray[Any]:
    """The first picture of a file, upright: (height, width, channel) uint8 or uint16.

    12 bits are scaled to 16, so that white is 65535.

    Raises:
        ImageError: The extra is not installed, or the file is damaged.
    """
    try:
        codecs: Any = importlib.import_module("imagecodecs")
    except ImportError as error:
        raise ImageError(f"{header.format} needs imagecodecs: {_EXTRA}") from error
    try:
        if header.format == JPEG_XL:
            pixels = np.asarray(codecs.jpegxl_decode(bytes(data)))
        else:
            pixels = np.asarray(codecs.jpeg8_decode(bytes(data)))
    except Exception as error:  # Its errors have no class of their own in common.
        raise ImageError(f"damaged {header.format} file: {error}") from error
    if pixels.ndim == 4:
        pixels = pixels[0]  # The first of several frames.
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    if pixels.dtype not in (np.dtype(np.uint8), np.dtype(np.uint16)):
        raise ImageError(
            f"{header.format} with elements of {pixels.dtype}; integers of up to 16 bits are read"
        )
    if pixels.shape[:2] != (header.height, header.width):
        raise ImageError(
            f"decoded to {pixels.shape[1]}x{pixels.shape[0]} pixels; its header says "
            f"{header.width}x{header.height}. It is damaged, or turned by its metadata"
        )
    if header.format == JPEG_12:
        pixels = ((pixels.astype(np.uint32) * 65535 + 2047) // 4095).astype(np.uint16)
    return np.ascontiguousarray(pixels)


def _jpeg_frame(data: bytes | memoryview) -> ExtraHeader | None:
    """The start of frame of a JPEG of 12 bits; None for one of 8, which every decoder reads."""
    for marker, start, _ in jpeg_segments(data):
        if marker in FRAME_STARTS:
            if start + 9 > len(data):
                return None
            precision, height, width = struct.unpack_from(">BHH", data, start + 4)
            return ExtraHeader(JPEG_12, width, height) if precision == 12 else None
    return None  # Damaged, or junk that other decoders skip.


def _codestream_of(data: bytes | memoryview) -> bytes:
    """The first bytes of the codestream in a container, after its signature."""
    at = len(_CONTAINER)
    while at + 8 <= len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        start = at + 8
        if size == 1 and start + 8 <= len(data):
            (size,) = struct.unpack_from(">Q", data, start)
            start += 8
        if kind in (b"jxlc", b"jxlp"):
            start += 4 if kind == b"jxlp" else 0  # A part begins with its number.
            if bytes(data[start : start + 2]) != _CODESTREAM:
                break
            return bytes(data[start + 2 : start + 16])
        if size == 0:
            break
        at += max(8, size)
    raise ImageError("damaged JPEG XL file: no codestream in its container")


def _jpeg_xl_size(data: bytes) -> ExtraHeader:
    bits, left = int.from_bytes(data, "little"), 8 * len(data)

    def take(count: int) -> int:
        nonlocal bits, left
        if count > left:
            raise ImageError("truncated JPEG XL file: it ends within its header")
        value = bits & ((1 << count) - 1)
        bits, left = bits >> count, left - count
        return value

    def side(is_small: bool) -> int:
        return (take(5) + 1) * 8 if is_small else take((9, 13, 18, 30)[take(2)]) + 1

    is_small = bool(take(1))
    height = side(is_small)
    ratio = take(3)
    if ratio:
        numerator, denominator = _RATIOS[ratio - 1]
        width = height * numerator // denominator
    else:
        width = side(is_small)
    return ExtraHeader(JPEG_XL, width, height)
