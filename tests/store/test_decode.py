"""Picture files become the pixels that a viewer shows, or an error that says why not."""

from __future__ import annotations

import dataclasses
import io
import struct
import subprocess
import sys
import threading
import warnings
import zlib
from contextlib import suppress
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from readers.store.decode import (
    MODES,
    ImageHeader,
    decode_image,
    read_header,
    turn_upright,
    upright_size,
)
from readers.store.errors import ImageError

HEIGHT, WIDTH = 12, 20
LIMIT = 10**6

TURNS = {
    1: lambda a: a,
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.transpose(1, 0, 2),
    6: lambda a: a[::-1].transpose(1, 0, 2),
    7: lambda a: a[::-1, ::-1].transpose(1, 0, 2),
    8: lambda a: a[:, ::-1].transpose(1, 0, 2),
}
"""EXIF's eight orientations in numpy: where row 0 and column 0 of the file are to be seen."""


def noise(channel_count: int, dtype: type = np.uint8) -> NDArray[Any]:
    """(HEIGHT, WIDTH, channel) of every value alike, the same in every run."""
    top = int(np.iinfo(dtype).max) + 1
    return np.random.default_rng(5).integers(0, top, (HEIGHT, WIDTH, channel_count)).astype(dtype)


def smooth() -> NDArray[Any]:
    """A colour gradient (96, 128, 3) uint8 that JPEG keeps well."""
    y, x = np.mgrid[0:96, 0:128]
    return np.stack([x * 2, y * 2, 255 - x - y], axis=2).astype(np.uint8)


def saved(pixels: NDArray[Any] | Image.Image, format: str, **options: Any) -> bytes:
    if isinstance(pixels, np.ndarray):
        pixels = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    file = io.BytesIO()
    pixels.save(file, format, **options)
    return file.getvalue()


def decoded(data: bytes, mode: str = "rgb") -> NDArray[Any]:
    return decode_image(data, mode, read_header(data, pixels_max=LIMIT))


def exif(orientation: int) -> Image.Exif:
    block = Image.Exif()
    block[0x0112] = orientation
    return block


def png(pixels: NDArray[Any], color_type: int, bits: int, *chunks: tuple[bytes, bytes]) -> bytes:
    """A PNG of what Pillow cannot write; `chunks` stand before the pixels."""
    rows = pixels.astype(">u2" if bits == 16 else np.uint8).reshape(len(pixels), -1)
    if bits < 8:
        rows = np.packbits(
            np.unpackbits(rows[..., None], axis=2)[..., 8 - bits :].reshape(len(rows), -1), axis=1
        )
    lines = b"".join(b"\0" + row.tobytes() for row in rows)
    head = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], bits, color_type, 0, 0, 0)
    parts = [(b"IHDR", head), *chunks, (b"IDAT", zlib.compress(lines)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in parts
    )


def tiff(
    pixels: NDArray[Any], bits: int, orientation: int, stored: bytes | None = None, extra: int = 2
) -> bytes:
    """An uncompressed TIFF of what Pillow cannot write; `extra` 2 is alpha, 0 filler."""
    height, width, count = pixels.shape
    body = pixels.astype(f"<u{(bits + 7) // 8}").tobytes() if stored is None else stored
    tags = [
        (256, 4, 1, width),
        (257, 4, 1, height),
        (258, 3, count, bits if count == 1 else 8),
        (259, 3, 1, 1),
        (262, 3, 1, 2 if count >= 3 else 1),
        (273, 4, 1, 16),
        (274, 3, 1, orientation),
        (277, 3, 1, count),
        (278, 4, 1, height),
        (279, 4, 1, len(body)),
    ]
    if count == 4:
        tags.append((338, 3, 1, extra))
    directory = struct.pack("<H", len(tags)) + b"".join(struct.pack("<HHII", *tag) for tag in tags)
    head = b"II*\0" + struct.pack("<I", 16 + len(body)) + struct.pack("<4H", *[bits] * 4)
    return head + body + directory + struct.pack("<I", 0)


# Pixels.


@pytest.mark.parametrize(
    ("format", "options"),
    [
        ("PNG", {}),
        ("WEBP", {"lossless": True}),
        ("BMP", {}),
        ("TIFF", {}),
        ("TIFF", {"compression": "tiff_lzw"}),
        ("PPM", {}),
        ("TGA", {}),
        ("JPEG2000", {}),
    ],
)
@pytest.mark.parametrize("mode", ["rgb", "unchanged"])
def test_a_lossless_file_gives_the_pixels_that_were_saved(format, options, mode):
    """Whatever decoder reads it, no pixel differs, and the array may be kept and written to."""
    pixels = noise(3)
    data = saved(pixels, format, **options)
    result = decoded(data, mode)
    assert np.array_equal(result, pixels)
    assert result.dtype == np.uint8
    assert result.flags.c_contiguous
    assert result.flags.writeable
    assert np.array_equal(
        decode_image(memoryview(data), mode, read_header(data, pixels_max=LIMIT)), pixels
    )


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 0}])
def test_a_jpeg_gives_the_pixels_that_pillow_gives(options):
    """The two decoders are one library; a store must not depend on which of them was used."""
    data = saved(smooth(), "JPEG", quality=90, **options)
    assert np.array_equal(decoded(data), np.asarray(Image.open(io.BytesIO(data))))
    # A trailer makes it Pillow's turn; zero bytes do not.
    assert np.array_equal(decoded(data + b"trailer of a phone"), decoded(data))
    assert np.array_equal(decoded(data + bytes(5000)), decoded(data))


def test_a_gray_jpeg_has_three_equal_channels_or_one():
    """A gray file among colour files must stack with them in mode rgb."""
    data = saved(smooth()[..., :1], "JPEG")
    expected = np.asarray(Image.open(io.BytesIO(data)))
    assert np.array_equal(decoded(data, "rgb"), np.dstack([expected] * 3))
    assert np.array_equal(decoded(data, "gray"), expected[..., None])
    assert np.array_equal(decoded(data, "unchanged"), expected[..., None])


@pytest.mark.parametrize(
    ("stored", "unchanged"), [("1", 1), ("L", 1), ("LA", 2), ("P", 3), ("RGB", 3), ("RGBA", 4)]
)
@pytest.mark.parametrize("format", ["PNG", "TIFF"])
def test_every_mode_follows_from_the_stored_channels(stored, unchanged, format):
    """Alpha is dropped with the colour under it kept, or added as 255; gray is luma."""
    image = Image.fromarray(noise(4)).convert("RGBA" if stored == "RGBA" else "RGB")
    if stored == "LA":
        image = Image.fromarray(noise(2))
    elif stored not in ("RGB", "RGBA"):
        image = image.quantize(7) if stored == "P" else image.convert(stored)
    data = saved(image, format)
    full = np.asarray(image.convert("RGBA"))
    assert np.array_equal(decoded(data, "rgb"), full[..., :3])
    assert np.array_equal(decoded(data, "rgba"), full)
    gray = full[..., :3] @ np.array([0.299, 0.587, 0.114])
    assert np.abs(decoded(data, "gray")[..., 0] - gray).max() <= 0.51
    expected = {1: full[..., :1], 2: full[..., [0, 3]], 3: full[..., :3], 4: full}[unchanged]
    assert np.array_equal(decoded(data, "unchanged"), expected)


def test_a_palette_with_transparency_equals_the_same_picture_as_rgba():
    """Two encodings of one picture must not differ by the route, and must not warn."""
    palette = Image.new("P", (30, 10))
    palette.putpalette([10, 200, 30, 230, 60, 200, 0, 0, 255])
    palette.paste(1, (10, 0, 20, 10))
    palette.paste(2, (20, 0, 30, 10))
    data = saved(palette, "PNG", transparency=bytes([255, 0, 128]))
    full = np.zeros((10, 30, 4), np.uint8)
    full[:, :10], full[:, 10:20], full[:, 20:] = (
        (10, 200, 30, 255),
        (230, 60, 200, 0),
        (0, 0, 255, 128),
    )
    for mode in MODES:
        assert np.array_equal(decoded(data, mode), decoded(saved(full, "PNG"), mode)), mode
    assert np.array_equal(decoded(data, "unchanged"), full)


@pytest.mark.parametrize(
    ("pixels", "color_type", "bits", "key"),
    [
        (np.array([[[0], [80], [90]]]), 0, 8, [80]),
        (np.array([[[0], [2], [3]]]), 0, 2, [2]),
        (np.array([[[0], [1], [0]]]), 0, 1, [1]),
        (np.array([[[0], [20000], [65535]]]), 0, 16, [20000]),
        (np.array([[[1, 2, 3], [1, 2, 4], [3, 2, 1]]]), 2, 8, [1, 2, 4]),
        (np.array([[[257, 0, 0], [9, 8, 7], [0, 0, 257]]]), 2, 16, [9, 8, 7]),
    ],
)
def test_a_colour_declared_transparent_counts_in_rgba_alone(pixels, color_type, bits, key):
    """PNG can name one gray or colour as transparent instead of storing alpha."""
    plain = png(pixels, color_type, bits)
    keyed = png(pixels, color_type, bits, (b"tRNS", struct.pack(f">{len(key)}H", *key)))
    for mode in ("rgb", "gray", "unchanged"):
        assert np.array_equal(decoded(keyed, mode), decoded(plain, mode)), mode
    expected = decoded(plain, "rgba")
    assert (expected[..., 3] == 255).all()
    expected[..., 3] = np.where((pixels == key).all(axis=2), 0, 255)
    assert np.array_equal(decoded(keyed, "rgba"), expected)
    assert (expected[..., 3] == 0).sum() == 1


def test_cmyk_with_inverted_ink_gives_the_colours_that_are_printed():
    """JPEGs of print programs store ink upside down; a negative has the right shape too."""
    colors = [(255, 0, 0), (0, 255, 0), (0, 0, 255), (0, 0, 0), (255, 255, 255)]
    image = Image.new("RGB", (80, 16))
    for i, color in enumerate(colors):
        image.paste(color, (i * 16, 0, i * 16 + 16, 16))
    for format in ("JPEG", "TIFF"):
        data = saved(image.convert("CMYK"), format)
        assert read_header(data, pixels_max=LIMIT).mode == "CMYK"
        for mode in ("rgb", "unchanged"):
            result = decoded(data, mode)
            assert result.shape == (16, 80, 3)
            assert np.abs(result[8, 8::16].astype(int) - colors).max() <= 3


# Depth.

DEEP = {
    "PNG": lambda pixels: cv2.imencode(".png", pixels[..., ::-1])[1].tobytes(),
    "TIFF": lambda pixels: tiff(pixels, 16, 1),
    "JPEG2000": lambda pixels: cv2.imencode(
        ".jp2", pixels[..., ::-1], [cv2.IMWRITE_JPEG2000_COMPRESSION_X1000, 1000]
    )[1].tobytes(),
    "PPM": lambda pixels: b"P6 96 64 65535\n" + pixels.astype(">u2").tobytes(),
}


@pytest.mark.parametrize("format", list(DEEP))
def test_16_bit_colour_keeps_all_bits_unchanged_and_is_scaled_otherwise(format):
    """Pillow keeps the upper 8 of 16 bits; neither that nor clipping may happen."""
    pixels = np.random.default_rng(1).integers(0, 65536, (64, 96, 3)).astype(np.uint16)
    data = DEEP[format](pixels)
    header = read_header(data, pixels_max=LIMIT)
    assert (header.format, header.bit_depth) == (format, 16)
    deep = decoded(data, "unchanged")
    assert deep.dtype == np.uint16
    assert np.array_equal(deep, pixels)
    assert np.array_equal(decoded(data, "rgb"), (pixels.astype(int) + 128) // 257)
    assert (decoded(data, "rgba")[..., 3] == 255).all()


@pytest.mark.parametrize("format", ["PNG", "TIFF"])
def test_16_bit_gray_keeps_all_bits_unchanged_and_is_scaled_otherwise(format):
    """A plain conversion to 8 bits would show everything above 255 as white."""
    values = np.array([0, 4096, 16384, 32768, 49152, 65535], np.uint16)
    data = saved(Image.fromarray(np.tile(values, (2, 1))), format)
    assert read_header(data, pixels_max=LIMIT).bit_depth == 16
    deep = decoded(data, "unchanged")
    assert (deep.shape, deep.dtype) == ((2, 6, 1), np.uint16)
    assert np.array_equal(deep[1, :, 0], values)
    for mode, channel_count in (("rgb", 3), ("gray", 1)):
        result = decoded(data, mode)
        assert (result.shape, result.dtype) == ((2, 6, channel_count), np.uint8)
        assert result[0, :, -1].tolist() == [0, 16, 64, 128, 191, 255]


def test_16_bit_channels_with_alpha_keep_their_order():
    """OpenCV returns blue first and makes four channels of gray with alpha."""
    color = noise(4, np.uint16)
    assert np.array_equal(decoded(png(color, 6, 16), "unchanged"), color)
    assert np.array_equal(decoded(tiff(color, 16, 1), "unchanged"), color)
    assert np.array_equal(
        decoded(png(color, 6, 16), "rgb"), (color[..., :3].astype(int) + 128) // 257
    )
    # Four channels, of which the file says that the last is nothing.
    filled = tiff(color, 16, 1, extra=0)
    assert np.array_equal(decoded(filled, "unchanged"), color[..., :3])
    assert (decoded(filled, "rgba")[..., 3] == 255).all()
    gray = noise(2, np.uint16)
    assert np.array_equal(decoded(png(gray, 4, 16), "unchanged"), gray)
    small = (gray.astype(int) + 128) // 257
    assert np.array_equal(decoded(png(gray, 4, 16), "rgba"), small[..., [0, 0, 0, 1]])


def test_white_of_12_bits_is_white():
    """A 12-bit TIFF ends at 4095, and a PGM at the number that it names."""
    # Two pixels of 12 bits share three bytes.
    data = tiff(np.zeros((1, 2, 1)), 12, 1, stored=bytes([0xFF, 0xF8, 0x00]))
    assert decoded(data, "unchanged")[0, :, 0].tolist() == [4095, 2048]
    assert decoded(data, "gray")[0, :, 0].tolist() == [255, 128]
    pgm = b"P5 2 1 1000\n" + struct.pack(">2H", 1000, 500)
    assert decoded(pgm, "gray")[0, :, 0].tolist() == [255, 128]
    ppm = b"P6 1 1 1000\n" + struct.pack(">3H", 1000, 500, 0)
    assert decoded(ppm, "rgb")[0, 0].tolist() == [255, 128, 0]


def test_a_depth_that_nobody_reads_whole_is_refused_unchanged_and_scaled_otherwise():
    """Nothing may lose bits in silence under the mode that promises to keep them."""
    data = b"P3 1 1 65535\n65535 32768 0\n"
    assert decoded(data, "rgb")[0, 0].tolist() == [255, 128, 0]
    with pytest.raises(ImageError, match="16-bit colour in this kind of PPM"):
        decoded(data, "unchanged")


@pytest.mark.parametrize(
    ("dtype", "words"), [(np.float32, "floating-point"), (np.int32, "32-bit or signed")]
)
def test_pixels_without_a_known_white_are_refused_by_name(dtype, words):
    """Float and 32-bit files have no range that could be scaled; guessing one would be silent."""
    data = saved(Image.fromarray(np.ones((4, 4), dtype)), "TIFF")
    with pytest.raises(ImageError, match=words):
        read_header(data, pixels_max=LIMIT)


# Orientation.


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF", "TIFF 16", "PNG 16", "PNG L", "TIFF L"])
def test_a_picture_is_turned_upright_exactly_once(orientation, kind):
    """Of the two decoders, each turns some formats by itself; none may be turned twice."""
    pixels = noise(3)
    if kind == "TIFF 16":
        pixels = noise(3, np.uint16)
        data = tiff(pixels, 16, orientation)
    elif kind == "PNG 16":
        pixels = noise(1, np.uint16)
        data = saved(pixels, "PNG", exif=exif(orientation))
    else:
        format, *gray = kind.split()
        pixels = noise(1) if gray else pixels
        data = saved(
            pixels,
            format,
            exif=exif(orientation),
            **({"lossless": True} if format == "WEBP" else {}),
        )
    header = read_header(data, pixels_max=LIMIT)
    assert (header.width, header.height, header.orientation) == (WIDTH, HEIGHT, orientation)
    expected = TURNS[orientation](pixels)
    assert upright_size(HEIGHT, WIDTH, orientation) == expected.shape[:2]
    result = decode_image(data, "unchanged", header)
    assert np.array_equal(result, expected)
    assert result.flags.c_contiguous


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("is_gray", [False, True])
def test_a_jpeg_is_turned_upright_exactly_once(orientation, is_gray):
    """OpenCV turns a JPEG unless it is told not to, in colour and in gray."""
    pixels = smooth()[..., :1] if is_gray else smooth()
    flat = saved(pixels, "JPEG")
    data = saved(pixels, "JPEG", exif=exif(orientation))
    expected = TURNS[orientation](decoded(flat, "unchanged"))
    assert np.array_equal(decoded(data, "unchanged"), expected)
    assert np.array_equal(decoded(data + b"trailer", "unchanged"), expected)


@pytest.mark.parametrize("channel_count", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_turning_moves_pixels_and_keeps_channels(channel_count, dtype, orientation):
    """Every kind of array that a decoder returns can be turned."""
    pixels = noise(channel_count, dtype)
    turned = turn_upright(pixels, orientation)
    assert turned.dtype == dtype
    assert np.array_equal(turned, TURNS[orientation](pixels))


@pytest.mark.parametrize(
    "block",
    [
        b"Exif\0\0",
        b"Exif\0\0II*\0",
        b"Exif\0\0" + b"\xff" * 40,
        b"Exif\0\0MM\0*\0\0",
        b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x09\0\0\0\0\0\0\0",  # Says 9.
        b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\0\0\0\0\0\0\0\0",  # Says 0.
        b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x02\0\x02\0\0\x006\0\0\0\0\0\0\0",  # Says "6".
    ],
)
@pytest.mark.parametrize("format", ["JPEG", "PNG"])
def test_a_damaged_exif_block_is_the_same_as_none(block, format):
    """The pixels are fine; an empty or broken block must not cost the picture."""
    data = saved(smooth(), format, exif=block)
    assert read_header(data, pixels_max=LIMIT).orientation == 1
    assert np.array_equal(decoded(data), decoded(saved(smooth(), format)))


# Several pictures in one file.


@pytest.mark.parametrize("format", ["MPO", "GIF", "TIFF", "PNG", "WEBP"])
def test_of_several_pictures_the_first_is_decoded_and_all_are_counted(format):
    """Phone photos hold a second picture; animations and pages are many. None is an error."""
    frames = [Image.new("RGB", (32, 16), color) for color in ("red", "lime", "blue")]
    data = saved(frames[0], format, save_all=True, append_images=frames[1:])
    header = read_header(data, pixels_max=LIMIT)
    assert (header.format, header.frame_count) == (format, 3)
    result = decode_image(data, "rgb", header)
    assert result.shape == (16, 32, 3)
    assert np.abs(result.astype(int) - (255, 0, 0)).max() <= 3


def test_the_first_picture_of_a_16_bit_animation_is_not_black():
    """OpenCV reads 16-bit PNG best, but not an animated one."""
    pixels = noise(4, np.uint16)
    control = struct.pack(">5I2H2B", 0, WIDTH, HEIGHT, 0, 0, 1, 10, 0, 0)
    data = png(pixels, 6, 16, (b"acTL", struct.pack(">2I", 2, 0)), (b"fcTL", control))
    header = read_header(data, pixels_max=LIMIT)
    assert (header.frame_count, header.bit_depth) == (2, 16)
    # Pillow's 8 bits are the upper ones of the 16.
    assert np.abs(decoded(data, "rgb").astype(int) - pixels[..., :3] / 257).max() <= 1
    with pytest.raises(ImageError, match="convert it to a still 16-bit PNG"):
        decoded(data, "unchanged")


# What is refused, and in which words.


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", r"the file is empty \(0 bytes\)"),
        (b"\n<!DOCTYPE html><html>", "looks like an HTML page"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer: get the file with"),
        (bytes(5000), "the first 256 bytes are all zero"),
        (b"hello, this is text", r"starts with b'hello, this is t'; pictures that are read: JPEG"),
        (b"\xff\xd8\xff", "damaged JPEG file"),
        (saved(smooth(), "WEBP")[:300], "truncated WEBP file: 300 bytes of [0-9]+"),
        (b"\x89PNG\r\n\x1a\n" + b"x" * 50, "damaged PNG file: Truncated File Read"),
    ],
)
def test_what_is_no_picture_is_refused_with_what_it_looks_like(data, words):
    """An empty file, a web page and a broken picture need different repairs."""
    with pytest.raises(ImageError, match=words):
        read_header(data, pixels_max=LIMIT)


def test_heic_names_the_extra_that_it_needs(monkeypatch):
    """A phone's photos must not be called broken."""
    monkeypatch.setitem(sys.modules, "pillow_heif", None)  # As if it were not installed.
    for brand in (b"heic", b"heix", b"mif1"):
        data = b"\0\0\0\x18ftyp" + brand + b"\0\0\0\0" + brand + b"heic"
        with pytest.raises(
            ImageError, match="HEIC pictures need pillow-heif: install the extra named heif"
        ):
            read_header(data, pixels_max=LIMIT)


WHOLE = {
    "JPEG": saved(smooth(), "JPEG"),
    "progressive JPEG": saved(smooth(), "JPEG", progressive=True),
    "gray JPEG": saved(smooth()[..., :1], "JPEG"),
    "PNG": saved(noise(3), "PNG"),
    "palette PNG": saved(Image.fromarray(noise(3)).quantize(7), "PNG"),
    "16-bit PNG": saved(noise(1, np.uint16), "PNG"),
    "WebP": saved(smooth(), "WEBP"),
    "BMP": saved(noise(3), "BMP"),
    "PPM": saved(noise(3), "PPM"),
    "16-bit PPM": b"P6 20 12 65535\n" + noise(3, np.uint16).astype(">u2").tobytes(),
}


@pytest.mark.parametrize("kind", list(WHOLE))
@given(share=st.floats(0, 1, exclude_max=True))
def test_a_truncated_file_is_never_decoded(kind, share):
    """A store would keep the filler of the missing rows for ever."""
    whole = WHOLE[kind]
    decoded(whole)
    with pytest.raises(ImageError):
        decoded(whole[: int(len(whole) * share)])


@pytest.mark.parametrize("kind", ["JPEG", "progressive JPEG", "PNG"])
def test_a_copy_that_ends_in_zeros_is_truncated_too(kind):
    """Interrupted copies often have the right length, and zeros where data is missing."""
    whole = WHOLE[kind]
    half = len(whole) // 2
    with pytest.raises(ImageError):
        decoded(whole[:half] + bytes(len(whole) - half))


@given(
    data=st.binary(max_size=60),
    start=st.sampled_from([w[:n] for w in WHOLE.values() for n in (4, 16, 60)]),
)
def test_no_bytes_raise_anything_but_an_image_error(data, start):
    """Thousands of files are read in one run; one of them must not end it."""
    with suppress(ImageError):
        assert decoded(start + data).ndim == 3


def claim(width: int, height: int) -> bytes:
    """A small PNG whose header promises width x height pixels."""
    data = png(np.zeros((1, 1, 1)), 0, 8)
    body = struct.pack(">II", width, height) + data[24:29]
    return data[:16] + body + struct.pack(">I", zlib.crc32(b"IHDR" + body)) + data[33:]


def test_a_header_that_promises_too_much_is_refused_unread():
    """The limit is ours alone: both sides of Pillow's own, and its guard is put back."""
    message = "60000x60000 pixels is over the limit of 268435456 pixels; raise it with --max-pixels"
    before = Image.MAX_IMAGE_PIXELS
    with pytest.raises(ImageError) as caught:
        read_header(claim(60000, 60000), pixels_max=2**28)
    assert str(caught.value) == message
    header = read_header(claim(60000, 60000), pixels_max=60000 * 60000)
    assert (header.width, header.height) == (60000, 60000)
    with pytest.raises(ImageError, match=r"^20x12 pixels is over the limit of 239 pixels"):
        read_header(saved(noise(3), "PNG"), pixels_max=239)
    assert before == Image.MAX_IMAGE_PIXELS


@pytest.mark.parametrize("format", ["PNG", "GIF", "TIFF"])
def test_pillows_own_limit_neither_counts_nor_is_lost(format, monkeypatch):
    """A user may have set it low for his own code; it guards that, not us."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    gray = saved(noise(1), format)
    assert np.array_equal(decoded(gray, "gray"), noise(1))
    assert Image.MAX_IMAGE_PIXELS == 10


def test_a_tile_larger_than_the_limit_is_refused():
    """A TIFF takes memory for whole tiles, however small its picture."""
    data = bytearray(tiff(noise(1), 8, 1))
    strip = data.index(struct.pack("<HHI", 277, 3, 1))
    # SamplesPerPixel may be left out; RowsPerStrip and StripByteCounts become tile sides.
    struct.pack_into("<HHII", data, strip, 322, 4, 1, 60000)
    struct.pack_into("<HHII", data, strip + 12, 323, 4, 1, 60000)
    with pytest.raises(ImageError, match="a tile of 60000x60000 pixels is over the limit"):
        read_header(bytes(data), pixels_max=LIMIT)


def test_pixels_that_are_not_the_headers_are_refused():
    """A record's header and bytes may have been mixed up, or the file tells two sizes."""
    data = saved(smooth(), "JPEG")
    header = read_header(data, pixels_max=LIMIT)
    wrong = dataclasses.replace(header, height=90)
    with pytest.raises(ImageError, match="128x96 after turning, but the header promises 128x90"):
        decode_image(data, "rgb", wrong)
    with pytest.raises(ImageError, match="read from other bytes"):
        decode_image(data + b"trailer", "rgb", wrong)
    gray = saved(smooth()[..., :1], "JPEG")
    with pytest.raises(ImageError, match="128x96 after turning, but the header promises 128x90"):
        decode_image(gray, "gray", dataclasses.replace(wrong, mode="L"))


def test_an_unknown_mode_is_a_wrong_argument():
    """A typing error is the caller's, not the file's."""
    data = saved(noise(3), "PNG")
    with pytest.raises(
        ValueError, match="mode must be one of rgb, gray, rgba, unchanged; got 'bgr'"
    ):
        decode_image(data, "bgr", read_header(data, pixels_max=LIMIT))


# Manners.


def test_nothing_is_warned_of_and_the_filters_stay():
    """One line per picture would bury what matters; a user's own filters are not ours to change."""
    palette = Image.new("P", (4, 4))
    palette.putpalette([1, 2, 3, 4, 5, 6])
    odd = [
        saved(palette, "PNG", transparency=bytes([255, 7])),
        saved(smooth(), "JPEG", exif=b"Exif\0\0II*\0\x08\0\0\0\xff\xff" + b"\x12\x01" * 9),
        claim(12000, 12000),  # Large enough for Pillow to warn.
    ]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        before = list(warnings.filters)
        for data in odd:
            header = read_header(data, pixels_max=2**28)
            if header.width < 1000:
                decode_image(data, "rgba", header)
        assert list(warnings.filters) == before
    assert [str(w.message) for w in caught] == []


def test_threads_decode_at_the_same_time():
    """Loader threads share one process: what one sets aside must not disturb the others."""
    files = [saved(noise(3), "PNG"), saved(noise(3), "BMP"), claim(60000, 60000)]
    before = list(warnings.filters), Image.MAX_IMAGE_PIXELS
    wrong: list[object] = []

    def work(number: int) -> None:
        for i in range(60):
            data = files[(i + number) % 3]
            try:
                if not np.array_equal(decoded(data), noise(3)):
                    wrong.append((i, number))
            except ImageError as error:
                if "60000x60000" not in str(error):
                    wrong.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive()
    assert wrong == []
    assert (list(warnings.filters), Image.MAX_IMAGE_PIXELS) == before


def test_importing_it_loads_no_decoder():
    """`import readers.store` stays light; OpenCV alone takes a fifth of a second."""
    code = "import sys, readers.store.decode; print({'cv2', 'PIL'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "set()"


def test_a_header_says_what_is_in_the_file():
    """All of it, for the plainest file."""
    assert read_header(saved(noise(3), "PNG"), pixels_max=LIMIT) == ImageHeader(
        format="PNG",
        width=WIDTH,
        height=HEIGHT,
        mode="RGB",
        orientation=1,
        frame_count=1,
        bit_depth=8,
    )


# Reduced JPEGs, and headers that are read without Pillow.


@pytest.mark.parametrize(
    "options", [{}, {"progressive": True}, {"subsampling": 0}, {"optimize": 1}]
)
@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("size", [(1, 1), (7, 300), (500, 375)])
def test_a_plain_jpeg_has_the_header_that_pillow_reads(options, mode, size):
    """A segment that only Pillow reads leaves it the choice; both must say the same."""
    stream = io.BytesIO()
    Image.new(mode, size, 77).save(stream, "JPEG", **options)
    data = stream.getvalue()
    stranger = data[:2] + b"\xff\xed\0\4ab" + data[2:]
    assert read_header(data, pixels_max=LIMIT) == read_header(stranger, pixels_max=LIMIT)
    assert read_header(data, pixels_max=LIMIT).width == size[0]


@pytest.mark.parametrize("mode", ["CMYK", "YCbCr"])
def test_jpegs_of_other_colours_are_left_to_pillow(mode):
    """Adobe's marker and four channels mean more than their number."""
    stream = io.BytesIO()
    Image.new(mode, (8, 6)).save(stream, "JPEG")
    assert read_header(stream.getvalue(), pixels_max=LIMIT).mode == (
        "CMYK" if mode == "CMYK" else "RGB"
    )


def test_a_plain_jpeg_over_the_limit_or_cut_is_refused_as_ever():
    """With the size, or the damage, in the message."""
    stream = io.BytesIO()
    Image.new("RGB", (200, 100)).save(stream, "JPEG")
    data = stream.getvalue()
    with pytest.raises(ImageError, match="200x100 pixels is over the limit of 19999"):
        read_header(data, pixels_max=19_999)
    for end in range(2, data.index(b"\xff\xda"), 7):
        with pytest.raises(ImageError):
            decode_image(data[:end], "rgb", read_header(data[:end], pixels_max=LIMIT))


@pytest.mark.parametrize("reduction", [2, 4, 8])
@pytest.mark.parametrize(("height", "width"), [(96, 128), (97, 131), (1, 3)])
@pytest.mark.parametrize("mode", MODES)
def test_a_jpeg_can_come_at_a_part_of_its_size(reduction, height, width, mode):
    """Its sides divided and rounded up, near the average of its pixels, in the colours asked
    for."""
    pixels = cv2.resize(smooth(), (width, height))
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "JPEG", quality=95)
    data = stream.getvalue()
    header = read_header(data, pixels_max=LIMIT)
    whole = decode_image(data, mode, header)
    found = decode_image(data, mode, header, reduction=reduction)
    assert found.shape == (-(-height // reduction), -(-width // reduction), whole.shape[2])
    if (height, width) == (96, 128):
        to = found.shape[1], found.shape[0]
        expected = cv2.resize(whole, to, interpolation=cv2.INTER_AREA).reshape(found.shape)
        assert np.abs(found.astype(int) - expected).max() <= 6


def test_what_cannot_be_reduced_comes_whole():
    """PNG, a CMYK JPEG, and one that OpenCV is not trusted with."""
    for data in (saved(noise(3), "PNG"), saved(noise(4), "TIFF")):
        header = read_header(data, pixels_max=LIMIT)
        assert decode_image(data, "rgb", header, reduction=8).shape == (HEIGHT, WIDTH, 3)
    stream = io.BytesIO()
    Image.new("CMYK", (WIDTH, HEIGHT)).save(stream, "JPEG")
    header = read_header(stream.getvalue(), pixels_max=LIMIT)
    assert decode_image(stream.getvalue(), "rgb", header, reduction=8).shape == (HEIGHT, WIDTH, 3)
