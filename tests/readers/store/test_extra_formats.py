"""JPEG XL and 12-bit JPEG: sizes without a decoder, pixels with the extra, its name without."""

from __future__ import annotations

import contextlib
import importlib.util
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from readers.store.errors import ImageError
from readers.store.pictures.decode import decode_image
from readers.store.pictures.extra_formats import JPEG_12, JPEG_XL, read_extra_header
from readers.store.pictures.image_header import read_header

HAS_CODECS = importlib.util.find_spec("imagecodecs") is not None
needs_codecs = pytest.mark.skipif(not HAS_CODECS, reason="needs the extra named scientific")

CONTAINER = b"\0\0\0\x0cJXL \r\n\x87\n"
LIMIT = 2**28


def codestream(width: int, height: int) -> bytes:
    """The start of a JPEG XL codestream: signature and size, each side in 30 bits."""
    bits = 0 | 3 << 1 | (height - 1) << 3 | 0 << 33 | 3 << 36 | (width - 1) << 38
    return b"\xff\x0a" + bits.to_bytes(9, "little") + bytes(8)


def jpeg_12(width: int, height: int, precision: int = 12) -> bytes:
    """A JPEG that ends after its frame header, with padding and an application segment before."""
    frame = struct.pack(">BHHB", precision, height, width, 1) + b"\1\x11\0"
    return (
        b"\xff\xd8\xff\xe1\0\6abcd\xff\xff\xc1"
        + struct.pack(">H", len(frame) + 2)
        + frame
        + b"\xff\xda\0\2"
    )


@given(st.integers(1, 2**30), st.integers(1, 2**30))
def test_sizes_of_jpeg_xl_are_read_from_the_first_bits(width, height):
    """Bare or in a container, behind boxes of other kinds, in one part or several."""
    stream = codestream(width, height)
    box = struct.pack(">I4s", 8 + len(stream), b"jxlc") + stream
    part = struct.pack(">I4sI", 12 + len(stream), b"jxlp", 0) + stream
    other = struct.pack(">I4s", 20, b"ftyp") + bytes(12)
    large = struct.pack(">I4sQ", 1, b"Exif", 20) + bytes(4)
    for data in (stream, CONTAINER + other + box, CONTAINER + large + part):
        assert read_extra_header(data) == (JPEG_XL, width, height)


@pytest.mark.parametrize(
    ("ratio", "width"), [(1, 120), (2, 144), (3, 160), (4, 180), (5, 213), (6, 150), (7, 240)]
)
def test_a_width_may_be_a_ratio_of_the_height(ratio, width):
    """The seven of the format, and heights of up to 256 in steps of 8."""
    bits = 1 | 14 << 1 | ratio << 6
    assert read_extra_header(b"\xff\x0a" + bits.to_bytes(2, "little") + bytes(9)) == (
        JPEG_XL,
        width,
        120,
    )


def test_only_twelve_bits_are_taken_from_other_decoders():
    """A JPEG of 8 bits, one that ends early and other bytes are none of these formats."""
    assert read_extra_header(jpeg_12(640, 480)) == (JPEG_12, 640, 480)
    assert read_extra_header(jpeg_12(640, 480, precision=8)) is None
    assert read_extra_header(jpeg_12(640, 480)[:18]) is None
    assert read_extra_header(b"\xff\xd8\xff") is None
    assert read_extra_header(b"\x89PNG\r\n\x1a\n") is None
    assert read_extra_header(b"") is None


@given(st.binary(max_size=60), st.sampled_from((b"\xff\x0a", CONTAINER, b"\xff\xd8\xff")))
def test_damaged_headers_are_image_errors_or_none(rest, start):
    """Whatever follows the signature."""
    with contextlib.suppress(ImageError):
        found = read_extra_header(start + rest)
        assert found is None or found.format in (JPEG_12, JPEG_XL)


def test_a_bomb_is_refused_by_its_header():
    """Before a decoder is even looked for."""
    for data in (codestream(60_000, 60_000), jpeg_12(60_000, 60_000)):
        with pytest.raises(ImageError, match="60000x60000 pixels is over the limit of 268435456"):
            read_header(data, pixels_max=LIMIT)


@pytest.mark.skipif(HAS_CODECS, reason="the extra named scientific is here")
@pytest.mark.parametrize("data", [codestream(8, 8), jpeg_12(8, 8)])
def test_without_the_extra_its_name_is_in_the_reason(data):
    """So that a reject says what to install."""
    header = read_header(data, pixels_max=LIMIT)
    with pytest.raises(ImageError, match=r"needs imagecodecs: .*lmdb-packer\[scientific\]"):
        decode_image(data, "rgb", header)


@needs_codecs
def test_jpeg_xl_is_decoded_to_the_pixel():
    """Lossless, 8 and 16 bits, gray and colour; 16 bits are kept under "unchanged"."""
    import imagecodecs

    rng = np.random.default_rng(3)
    color = rng.integers(0, 256, (20, 30, 3), dtype=np.uint8)
    data = imagecodecs.jpegxl_encode(color, lossless=True)
    header = read_header(data, pixels_max=LIMIT)
    assert (header.format, header.width, header.height) == (JPEG_XL, 30, 20)
    assert np.array_equal(decode_image(data, "rgb", header), color)
    deep = rng.integers(0, 65536, (9, 11), dtype=np.uint16)
    data = imagecodecs.jpegxl_encode(deep, lossless=True)
    header = read_header(data, pixels_max=LIMIT)
    assert np.array_equal(decode_image(data, "unchanged", header)[:, :, 0], deep)
    assert decode_image(data, "rgb", header).shape == (9, 11, 3)


@needs_codecs
def test_twelve_bits_are_scaled_and_not_cut_off():
    """White is white: 65535 under "unchanged", 255 in 8 bits."""
    import imagecodecs

    pixels = np.full((16, 16), 4095, np.uint16)
    data = imagecodecs.jpeg8_encode(pixels, level=100, bitspersample=12)
    header = read_header(data, pixels_max=LIMIT)
    assert (header.format, header.bit_depth) == (JPEG_12, 16)
    assert decode_image(data, "unchanged", header).min() > 65_400
    assert decode_image(data, "gray", header).min() == 255
