"""A window of a JPEG has the pixels that the whole decode has there."""

from __future__ import annotations

import io
from pathlib import Path

import cv2
import numpy as np
import PIL
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from readers.reading.jpeg_window import EXIT_STATUS, load

DECODER = load()
FOUND = list((Path(PIL.__file__).parents[1] / "pillow.libs").glob("libjpeg*.so*"))
pytestmark = pytest.mark.skipif(not FOUND, reason="Pillow brings no libjpeg of its own here")

SAMPLINGS = {
    "4:2:0": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420,
    "4:2:2": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_422,
    "4:4:4": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444,
    "4:4:0": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_440,
    "4:1:1": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_411,
}


def picture(height, width, seed=0):
    """(height, width, 3) uint8: colours that change everywhere, smoothly and at edges."""
    noise = np.random.default_rng(seed)
    small = noise.integers(0, 256, (height // 7 + 2, width // 7 + 2, 3)).astype(np.uint8)
    smooth = cv2.resize(small, (width, height))
    smooth[height // 3 :, width // 2 :] ^= 255
    return smooth


def jpeg(pixels, sampling="4:2:0", **options):
    """The bytes of a JPEG of (height, width, 3) uint8."""
    flags = [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, SAMPLINGS[sampling], cv2.IMWRITE_JPEG_QUALITY, 88]
    for name, value in options.items():
        flags += [getattr(cv2, f"IMWRITE_JPEG_{name}"), value]
    return cv2.imencode(".jpg", pixels, flags)[1].tobytes()


def whole(data):
    """All pixels, by OpenCV."""
    flags = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION
    return cv2.imdecode(np.frombuffer(data, np.uint8), flags)


def check(data, window):
    top, left, height, width = window
    expected = whole(data)
    found = DECODER.decode(data, expected.shape[:2], window)
    assert found.dtype == np.uint8
    assert np.array_equal(found, expected[top : top + height, left : left + width])


def test_the_library_of_pillows_wheel_is_used():
    """It is there, so it must have passed its trial."""
    assert DECODER is not None


@st.composite
def windows(draw):
    """(height, width) of an image and a window in it."""
    height, width = draw(st.integers(1, 90)), draw(st.integers(1, 90))
    top, left = draw(st.integers(0, height - 1)), draw(st.integers(0, width - 1))
    return (
        height,
        width,
        (
            top,
            left,
            draw(st.integers(1, height - top)),
            draw(st.integers(1, width - left)),
        ),
    )


@given(
    windows(),
    st.sampled_from(sorted(SAMPLINGS)),
    st.sampled_from([{}, {"PROGRESSIVE": 1}, {"RST_INTERVAL": 2}, {"OPTIMIZE": 1}]),
)
def test_any_window_has_the_pixels_of_the_whole(case, sampling, options):
    """At any place, of any size, from one pixel to all, however the file was coded."""
    height, width, window = case
    check(jpeg(picture(height, width, seed=height * 91 + width), sampling, **options), window)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_large_images_too(sampling):
    """Of the size of a photo, where whole rows and columns of blocks are left out."""
    data = jpeg(picture(375, 500), sampling)
    for window in ((0, 0, 375, 500), (100, 333, 200, 167), (374, 499, 1, 1), (17, 3, 224, 224)):
        check(data, window)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_windows_beside_every_border_of_blocks(sampling):
    """Colours are smoothed over their neighbours, also where those are beside the window."""
    data = jpeg(picture(70, 70), sampling)
    expected = whole(data)
    for start in range(70):
        for extent in (1, 2, 7, 16):
            if start + extent <= 70:
                columns = DECODER.decode(data, (70, 70), (20, start, 3, extent))
                assert np.array_equal(columns, expected[20:23, start : start + extent])
                rows = DECODER.decode(data, (70, 70), (start, 20, extent, 3))
                assert np.array_equal(rows, expected[start : start + extent, 20:23])


def test_a_decoder_is_used_again_and_again():
    """Images of many sizes one after the other; the result is a view until the next call."""
    for seed in range(40):
        height, width = 20 + seed * 7 % 50, 20 + seed * 13 % 60
        check(jpeg(picture(height, width, seed)), (seed % 9, seed % 7, 11, 12))


def test_what_is_not_of_three_colours_or_not_of_the_size_is_left_to_others():
    """Gray, RGB and CMYK JPEGs, and a file that is not what the index says."""
    pixels = picture(40, 50)
    gray = cv2.imencode(".jpg", pixels[:, :, 0])[1].tobytes()
    assert DECODER.decode(gray, (40, 50), (0, 0, 5, 5)) is None
    for mode in ("CMYK", "RGB"):
        stream = io.BytesIO()
        Image.fromarray(pixels).convert(mode).save(stream, "jpeg", keep_rgb=mode == "RGB")
        assert DECODER.decode(stream.getvalue(), (40, 50), (0, 0, 5, 5)) is None
    assert DECODER.decode(jpeg(pixels), (50, 40), (0, 0, 5, 5)) is None
    check(jpeg(pixels), (1, 2, 3, 4))


def test_a_fatal_error_ends_the_process_and_nothing_else(run_python):
    """libjpeg must not be returned to: a worker that is given no JPEG leaves with a status of its
    own."""
    code = """
import json, os
from readers.reading.jpeg_window import load
child = os.fork()
if child == 0:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    load().decode(b"no picture", (4, 4), (0, 0, 2, 2))
    os._exit(0)
print(json.dumps(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))
"""
    assert run_python(code) == EXIT_STATUS == 70
