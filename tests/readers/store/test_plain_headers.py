"""A header that is read without Pillow is the one that Pillow reads, and damage is still told."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from readers.store.errors import ImageError
from readers.store.pictures import image_header
from readers.store.pictures.image_header import read_header
from readers.store.pictures.plain_headers import PlainHeader, plain_header
from tests.readers.store.pictures import LIMIT, exif, noise, saved

REAL_DATA = Path(__file__).resolve().parents[4] / "shared" / "data"
PNG_END = 33
"""Where the first chunk of a PNG ends."""


def outcome(data):
    """What the header of a file says, or why it has none."""
    try:
        return read_header(data, pixels_max=LIMIT)
    except ImageError as error:
        return str(error)


def check(data):
    """With and without the short way, the same is found in a file."""
    found = outcome(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(image_header, "plain_header", lambda data: None)
        assert found == outcome(data)


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def with_chunks(data, *chunks):
    """A PNG with chunks before its pixels."""
    return data[:PNG_END] + b"".join(chunks) + data[PNG_END:]


def png_of(bits, color, compression, filters, interlace):
    """A PNG that claims a kind of pixels."""
    data = saved(noise(3), "PNG")
    kind = bytes((bits, color, compression, filters, interlace))
    return data[:8] + chunk(b"IHDR", data[16:24] + kind) + data[PNG_END:]


CHUNKS = [
    chunk(b"sRGB", b"\0"),
    chunk(b"sRGB", b""),
    chunk(b"gAMA", struct.pack(">I", 45455)),
    chunk(b"gAMA", b"\0"),
    chunk(b"pHYs", struct.pack(">IIB", 2835, 2835, 1)),
    chunk(b"pHYs", b"\0\0"),
    chunk(b"cHRM", bytes(32)),
    chunk(b"cHRM", bytes(31)),
    chunk(b"tIME", bytes(7)),
    chunk(b"sBIT", bytes(3)),
    chunk(b"bKGD", bytes(6)),
    chunk(b"tEXt", b"Software\0something"),
    chunk(b"tEXt", b"no end"),
    chunk(b"tEXt", b""),
    chunk(b"tEXt", b"exif\0not one"),
    chunk(b"tEXt", b"XML:com.adobe.xmp\0<x tiff:Orientation='6'/>"),
    chunk(b"tEXt", b"Raw profile type exif\0\nexif\n0\n"),
    chunk(b"zTXt", b"Comment\0\0" + zlib.compress(b"text")),
    chunk(b"zTXt", b"Comment\0\7"),
    chunk(b"iTXt", b"Comment\0\0\0\0\0text"),
    chunk(b"iCCP", b"name\0\7"),
    chunk(b"eXIf", exif(6).tobytes()[6:]),
    chunk(b"acTL", struct.pack(">II", 3, 0)),
    chunk(b"PLTE", bytes(6)),
    chunk(b"tRNS", bytes(6)),
    chunk(b"tRNS", b""),
    chunk(b"IHDR", struct.pack(">IIBBBBB", 5, 5, 8, 0, 0, 0, 0)),
    chunk(b"IDAT", b""),
    chunk(b"IEND", b""),
    chunk(b"abCd", b"private"),
    chunk(b"ABCD", b"critical"),
    chunk(b"a1\0d", b"no name"),
    struct.pack(">I", 2**31) + b"sBIT",
]


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA"])
def test_a_plain_png_is_read_here(mode):
    """Nearly all files of a data set of PNGs are; else the test below proves nothing."""
    stream = io.BytesIO()
    Image.new(mode, (7, 300), 77).save(stream, "PNG", dpi=(72, 72))
    assert plain_header(stream.getvalue()) == PlainHeader("PNG", 7, 300, mode)
    check(stream.getvalue())


@pytest.mark.parametrize("bits", [1, 2, 4, 8, 16, 3])
@pytest.mark.parametrize("color", [0, 2, 3, 4, 6, 1])
def test_whatever_kind_of_pixels_a_png_claims_to_have(bits, color):
    """Palettes, alpha, 16 bits and kinds that there are none of."""
    for rest in ((0, 0, 0), (1, 0, 0), (2, 0, 0), (0, 1, 0), (0, 0, 1)):
        check(png_of(bits, color, *rest))


@given(
    st.sampled_from(["L", "RGB", "RGBA", "P", "LA", "1", "I;16"]),
    st.tuples(st.integers(1, 40), st.integers(1, 40)),
    st.lists(st.sampled_from(CHUNKS), max_size=4),
    st.none() | st.integers(0, 300),
    st.none() | st.tuples(st.integers(0, 200), st.integers(1, 255)),
)
@settings(max_examples=300, deadline=None)
def test_any_png_has_the_header_that_pillow_reads(mode, size, chunks, end, flip):
    """Whatever stands before its pixels, cut off anywhere, with any byte changed."""
    stream = io.BytesIO()
    Image.new(mode, size, 1).save(stream, "PNG")
    data = bytearray(with_chunks(stream.getvalue(), *chunks)[:end])
    if flip is not None and flip[0] < len(data):
        data[flip[0]] ^= flip[1]
    check(bytes(data))
    check(memoryview(bytes(data)))


def test_a_png_of_many_or_long_parts_is_left_to_pillow():
    """Their number is bounded, and so is what is read of them."""
    data = saved(noise(3), "PNG")
    text = chunk(b"tEXt", b"Title\0short")
    assert plain_header(with_chunks(data, *[text] * 12)) is not None
    assert plain_header(with_chunks(data, *[text] * 40)) is None
    assert plain_header(with_chunks(data, chunk(b"tEXt", b"Title\0" + bytes(2**13)))) is None
    check(with_chunks(data, *[text] * 40))


def test_a_png_over_the_limit_is_refused_as_ever():
    """With its size in the message."""
    data = saved(np.zeros((30, 50, 1), np.uint8), "PNG")
    with pytest.raises(ImageError, match="50x30 pixels is over the limit of 1499 pixels"):
        read_header(data, pixels_max=1499)
    assert read_header(data, pixels_max=1500).width == 50


@pytest.mark.skipif(not REAL_DATA.is_dir(), reason="the collected real data is not there")
@pytest.mark.parametrize("folder", ["images-odd", "images-broken", "images-exif", "flat-folder"])
def test_files_of_the_wild_have_the_header_that_pillow_reads(folder):
    """Oddities that were collected: animations, profiles, wrong checksums, files that are cut."""
    paths = [path for path in sorted((REAL_DATA / folder).rglob("*")) if path.is_file()]
    assert paths
    for path in paths[:200]:
        check(path.read_bytes())
