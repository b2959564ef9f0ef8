"""A file says what it is before any pixel is decoded, or why it is refused."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest
from PIL import Image

from readers.store.errors import ImageError
from readers.store.pictures.decode import decode_image
from readers.store.pictures.image_header import ImageHeader, read_header
from tests.readers.store.pictures import (
    HEIGHT,
    LIMIT,
    WIDTH,
    claim,
    decoded,
    noise,
    saved,
    smooth,
    tiff,
)


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


def test_an_empty_file_is_called_empty():
    """It is a copy that failed, not a picture that is broken."""
    with pytest.raises(ImageError, match=r"the file is empty \(0 bytes\)"):
        read_header(b"", pixels_max=LIMIT)


@pytest.mark.parametrize(
    ("dtype", "words"), [(np.float32, "floating-point"), (np.int32, "32-bit or signed")]
)
def test_pixels_without_a_known_white_are_refused_by_name(dtype, words):
    """Float and 32-bit files have no range that could be scaled; guessing one would be silent."""
    data = saved(Image.fromarray(np.ones((4, 4), dtype)), "TIFF")
    with pytest.raises(ImageError, match=words):
        read_header(data, pixels_max=LIMIT)


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


def test_a_tile_larger_than_the_limit_is_refused():
    """A TIFF takes memory for whole tiles, however small its picture."""
    data = bytearray(tiff(noise(1), 8, 1))
    strip = data.index(struct.pack("<HHI", 277, 3, 1))
    # SamplesPerPixel may be left out; RowsPerStrip and StripByteCounts become tile sides.
    struct.pack_into("<HHII", data, strip, 322, 4, 1, 60000)
    struct.pack_into("<HHII", data, strip + 12, 323, 4, 1, 60000)
    with pytest.raises(ImageError, match="a tile of 60000x60000 pixels is over the limit"):
        read_header(bytes(data), pixels_max=LIMIT)


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
