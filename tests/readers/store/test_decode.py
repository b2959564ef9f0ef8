"""Picture files become the pixels that a viewer shows, or an error that says why not."""

from __future__ import annotations

import dataclasses
import io
import struct
import subprocess
import sys
from contextlib import suppress

import cv2
import numpy as np
import PIL
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from readers.store.errors import ImageError
from readers.store.pictures.decode import MODES, decode_image
from readers.store.pictures.image_header import read_header
from readers.store.pictures.orientation import upright_size
from tests.readers.store.pictures import (
    HEIGHT,
    LIMIT,
    TURNS,
    WIDTH,
    decoded,
    exif,
    noise,
    png,
    saved,
    smooth,
    tiff,
)

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


# Several pictures in one file.


@pytest.mark.parametrize("format", ["MPO", "GIF", "TIFF", "PNG", "WEBP"])
def test_of_several_pictures_the_first_is_decoded_and_all_are_counted(format):
    """Phone photos hold a second picture; animations and pages are many. None is an error."""
    if format == "MPO" and tuple(map(int, PIL.__version__.split(".")[:2])) < (11, 3):
        pytest.skip("Pillow before 11.3 writes MPO files that it takes for damaged itself")
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


# Importing.


def test_importing_it_loads_no_decoder():
    """`import readers.store` stays light; OpenCV alone takes a fifth of a second."""
    code = "import sys, readers.store.pictures.decode; print({'cv2', 'PIL'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "set()"


# Reduced JPEGs.


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
