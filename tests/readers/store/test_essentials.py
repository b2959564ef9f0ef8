"""Files whose pixels are whole are read, whatever else in them is damaged."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from packer.files.masks import decode_mask
from readers.store.errors import ImageError
from readers.store.pictures.decode import MODES
from readers.store.pictures.image_header import read_header
from tests.readers.store.pictures import LIMIT, decoded, exif, noise, saved, smooth

PICTURES = {
    "RGB": lambda: saved(noise(3), "PNG"),
    "RGBA": lambda: saved(noise(4), "PNG"),
    "gray": lambda: saved(noise(1), "PNG"),
    "gray and alpha": lambda: saved(noise(2), "PNG"),
    "16-bit gray": lambda: saved(noise(1, np.uint16), "PNG"),
    "palette": lambda: saved(Image.fromarray(noise(3)).quantize(7), "PNG"),
    "transparent palette": lambda: saved(
        Image.fromarray(noise(3)).quantize(7), "PNG", transparency=bytes([0, 128])
    ),
}

ASIDE = {
    "pHYs": struct.pack(">IIB", 2835, 2835, 1),
    "tEXt": b"Comment\0hello",
    "zTXt": b"Comment\0\0" + zlib.compress(b"hello"),
    "iTXt": b"Comment\0\0\0\0\0hello",
    "iCCP": b"ICC PROFILE\0\0" + zlib.compress(b"x" * 200),
    "gAMA": struct.pack(">I", 45455),
    "cHRM": bytes(32),
    "sRGB": b"\0",
    "tIME": bytes(7),
    "eXIf": b"II*\0" + bytes(20),
    "acTL": struct.pack(">2I", 2, 0),
    "abCd": b"whatever",
}


def chunk(kind: str, body: bytes, change: int = 0) -> bytes:
    """A chunk; `change` makes its checksum wrong."""
    name = kind.encode()
    checksum = zlib.crc32(name + body) ^ change
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", checksum)


def parts(data: bytes) -> tuple[bytes, bytes, bytes]:
    """(up to the pixels, the pixels, the end) of a PNG with one chunk of pixels."""
    start, end = data.index(b"IDAT") - 4, data.index(b"IEND") - 4
    return data[:start], data[start:end], data[end:]


@pytest.mark.parametrize("picture", list(PICTURES))
@pytest.mark.parametrize("kind", list(ASIDE))
@pytest.mark.parametrize("is_behind", [False, True])
def test_a_wrong_checksum_beside_the_pixels_costs_nothing(picture, kind, is_behind):
    """A comment, a profile or a resolution that changed says nothing about pixels."""
    whole = PICTURES[picture]()
    head, body, end = parts(whole)
    bad = chunk(kind, ASIDE[kind], change=0x1234)
    damaged = head + body + bad + end if is_behind else whole[:33] + bad + whole[33:]
    for mode in MODES:
        assert np.array_equal(decoded(damaged, mode), decoded(whole, mode)), mode


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("pHYs", b"short"[:1]),
        ("gAMA", b"x"),
        ("iCCP", b"ICC\0\0garbage"),
        ("zTXt", b"a\0\x07garbage"),
        ("zTXt", b"a\0\0" + zlib.compress(bytes(5_000_000))),
        ("tEXt", b""),
    ],
)
@pytest.mark.parametrize("is_behind", [False, True])
def test_content_that_is_none_beside_the_pixels_costs_nothing(kind, body, is_behind):
    """Its checksum may be right, and a writer wrong, or a comment longer than Pillow takes."""
    for picture in ("RGB", "palette"):
        whole = PICTURES[picture]()
        head, pixels, end = parts(whole)
        bad = chunk(kind, body)
        damaged = head + pixels + bad + end if is_behind else whole[:33] + bad + whole[33:]
        assert np.array_equal(decoded(damaged), decoded(whole))


def test_a_sound_orientation_beside_damage_still_counts():
    """What is left out is what is damaged, not what says how the picture stands."""
    whole = saved(noise(3), "PNG", exif=exif(6))
    damaged = whole[:33] + chunk("tEXt", b"a\0b", change=1) + whole[33:]
    assert read_header(damaged, pixels_max=LIMIT).orientation == 6
    assert np.array_equal(decoded(damaged), decoded(whole))


@pytest.mark.parametrize("picture", list(PICTURES))
def test_damage_to_pixels_stays_a_reject(picture):
    """A wrong checksum, a stream that breaks off or is not one: the pixels cannot be trusted."""
    head, body, end = parts(PICTURES[picture]())
    stream = body[8:-4]
    half = len(stream) // 2
    flipped = stream[:half] + bytes([stream[half] ^ 0xFF]) + stream[half + 1 :]
    for damaged in (
        head + body[:-4] + b"\0\1\2\3" + end,
        head + chunk("IDAT", flipped) + end,
        head + chunk("IDAT", stream[:-4] + b"\0\1\2\3") + end,
        head + chunk("IDAT", stream[:half]) + end,
        head[:29] + b"\0\1\2\3" + head[33:] + body + end,
        head + end,
    ):
        with pytest.raises(ImageError):
            decoded(damaged)
    with pytest.raises(ImageError, match=r"checksum of its IDAT chunk is wrong.*copy it again"):
        decoded(head + body[:-4] + b"\0\1\2\3" + end)


@pytest.mark.parametrize("kind", ["PLTE", "tRNS"])
def test_damage_to_colours_or_transparency_stays_a_reject(kind):
    """A palette is what pixels are looked up in, and transparency is stored with them."""
    whole = PICTURES["transparent palette"]()
    at = whole.index(kind.encode())
    end = at + 4 + struct.unpack(">I", whole[at - 4 : at])[0]
    damaged = whole[:end] + b"\0\1\2\3" + whole[end + 4 :]
    with pytest.raises(ImageError, match=f"checksum of its {kind} chunk is wrong"):
        decoded(damaged)


@pytest.mark.parametrize("picture", list(PICTURES))
def test_the_checksum_of_the_end_is_about_nothing(picture):
    """The last chunk is empty."""
    whole = PICTURES[picture]()
    assert np.array_equal(decoded(whole[:-4] + b"\0\1\2\3"), decoded(whole))


@pytest.mark.parametrize("picture", list(PICTURES))
def test_a_png_without_its_end_says_whether_its_pixels_are_whole(picture):
    """The one is mended by saving it again, the other by copying it again."""
    head, body, end = parts(PICTURES[picture]())
    for missing in (b"", end[:7], end[:-1]):
        with pytest.raises(ImageError, match=r"its pixels are whole: open it .* and save it again"):
            decoded(head + body + missing)
    with pytest.raises(ImageError) as error:
        decoded(head + body[:-30])
    assert "whole" not in str(error.value)


def test_masks_are_read_and_refused_alike():
    """A mask's comment is no reason to lose it, and its pixels are guarded as a picture's are."""
    values = noise(1) % 5
    whole = saved(values, "PNG")
    head, body, end = parts(whole)
    for kind, content in ASIDE.items():
        damaged = whole[:33] + chunk(kind, content, change=1) + whole[33:]
        ids = decode_mask(damaged, LIMIT).ids
        assert ids is not None
        assert np.array_equal(ids, values[..., 0])
    with pytest.raises(ImageError, match="checksum of its IDAT chunk is wrong"):
        decode_mask(head + body[:-4] + b"\0\1\2\3" + end, LIMIT)


# JPEG.


def segment(marker: int, body: bytes) -> bytes:
    return bytes([0xFF, marker]) + struct.pack(">H", len(body) + 2) + body


@pytest.mark.parametrize(
    "bad",
    [
        segment(0xE1, b"Exif\0\0II*\0\x08"),
        segment(0xE1, b"Exif\0\0garbage"),
        segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0<x:xmpmeta"),
        segment(0xE2, b"ICC_PROFILE\0"),
        segment(0xE2, b"ICC_PROFILE\0\1\3garbage"),
        segment(0xE2, b"MPF\0garbage"),
        segment(0xED, b"Photoshop 3.0\x008BIM\4"),
        segment(0xEE, b"Adobe"),
        segment(0xFE, b"\xff" * 50),
        b"\xff\xff\xff",
    ],
)
@pytest.mark.parametrize("options", [{}, {"exif": exif(6)}])
def test_damage_beside_the_pixels_of_a_jpeg_costs_nothing(bad, options):
    """A profile or a maker's note that breaks off says nothing about pixels."""
    whole = saved(smooth(), "JPEG", **options)
    damaged = whole[:2] + bad + whole[2:]
    reference = decoded(whole) if not bad.startswith(b"\xff\xe1") else decoded(damaged)
    assert np.array_equal(decoded(damaged), reference)
    assert sorted(decoded(damaged).shape) == [3, 96, 128]
    assert np.array_equal(decoded(damaged + b"junk behind it"), reference)
