"""Pictures come to their size without skipping pixels, and the quick way is near the exact one."""

from __future__ import annotations

import io

import cv2
import numpy as np
import pytest
from PIL import Image

from packer.pictures.prepare import prepare_image
from packer.pictures.scaling import reduction, scaled
from packer.recipe import Recipe


def photo(height, width, seed=0):
    """(height, width, 3) uint8: smooth, with edges and some grain."""
    rng = np.random.default_rng(seed)
    small = rng.integers(40, 220, (height // 40 + 2, width // 40 + 2, 3), np.uint8)
    smooth = cv2.resize(small, (width, height), interpolation=cv2.INTER_CUBIC).astype(np.int16)
    smooth[height // 3 :, width // 2 :] //= 2
    return np.clip(smooth + rng.normal(0, 4, smooth.shape), 0, 255).astype(np.uint8)


def jpeg(pixels, **options):
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "JPEG", **{"quality": 92, **options})
    return stream.getvalue()


def psnr(a, b):
    return 10 * np.log10(255**2 / np.mean((a.astype(float) - b) ** 2))


@pytest.mark.parametrize("ratio", [1.25, 1.4, 1.6, 1.9, 2.2, 3.1, 4, 6.5, 13])
def test_fast_is_near_exact_at_every_ratio(ratio):
    """At least 40 dB, and nowhere by more than a few levels in the mean."""
    width, height = round(160 * ratio), round(120 * ratio)
    data = jpeg(photo(height, width))
    fast, exact = (
        prepare_image(data, Recipe(size=120, scaling=way)).pixels for way in ("fast", "exact")
    )
    assert fast.shape == exact.shape == (120, 160, 3)
    assert not np.array_equal(fast, exact)
    assert psnr(fast, exact) > 40
    assert np.abs(fast.mean(axis=(0, 1)) - exact.mean(axis=(0, 1))).max() < 0.5


@pytest.mark.parametrize("ratio", [1, 1.1, 1.2, 2.4, 2.9])
def test_elsewhere_fast_is_exact(ratio):
    """Where it would blur or skip, or saves nothing."""
    data = jpeg(photo(round(120 * ratio), round(160 * ratio)))
    fast, exact = (
        prepare_image(data, Recipe(size=120, scaling=way)).pixels for way in ("fast", "exact")
    )
    assert np.array_equal(fast, exact)


@pytest.mark.parametrize("scaling", ["fast", "exact"])
@pytest.mark.parametrize("width", [80, 100, 125, 192, 640])
def test_thin_lines_turn_gray(scaling, width):
    """No pixel is skipped: a picture of lines keeps its brightness at any ratio."""
    lines = np.zeros((width, width, 3), np.uint8)
    lines[:, ::2] = 200
    found = scaled(lines, (64, 64), Recipe(size=64, scaling=scaling))
    assert abs(found.mean() - 100) < 2
    if width >= 125:
        assert np.abs(found.astype(int) - 100).max() <= 60


def test_a_reduction_leaves_one_and_a_half_times_the_size():
    """The largest of 2, 4 and 8 that does, of both sides."""
    for side, factor in ((383, 1), (384, 2), (767, 2), (768, 4), (1535, 4), (1536, 8), (9216, 8)):
        assert reduction((side, side), (128, 128), Recipe(size=128)) in (factor, factor // 2, 1)
        if side % 8 == 0:
            assert reduction((side, side), (128, 128), Recipe(size=128)) == factor
    assert reduction((1536, 400), (128, 128), Recipe(size=128)) == 2
    assert reduction((1536, 1536), (128, 128), Recipe(size=128, scaling="exact")) == 1
    assert reduction((1536, 1536), (1536, 1536), Recipe()) == 1


def test_a_reduction_shifts_nothing():
    """Sides that it does not divide are rounded up, which would move far pixels: at most 1/4."""
    assert reduction((385, 385), (256, 256), Recipe(size=256)) == 1
    assert reduction((1537, 1536), (128, 128), Recipe(size=128)) in (1, 2, 4)
    for width in range(1530, 1560):
        factor = reduction((width, 1600), (100, 105), Recipe(size=100))
        assert -width % factor * 100 / width <= 0.25


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
@pytest.mark.parametrize("mode", ["rgb", "gray"])
def test_reduced_pictures_stand_upright_in_their_colours(orientation, mode):
    """The decoder's flags for reduced pictures know B G R alone, and would turn by themselves."""
    pixels = np.zeros((400, 600, 3), np.uint8)
    pixels[:200, :300] = (250, 60, 10)
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = jpeg(pixels, exif=exif)
    fast, exact = (
        prepare_image(data, Recipe(size=50, mode=mode, scaling=way)) for way in ("fast", "exact")
    )
    assert fast.size == exact.size
    assert np.array_equal(fast.transform, exact.transform)
    assert np.abs(fast.pixels.astype(int) - exact.pixels).mean() < 1
    assert psnr(fast.pixels, exact.pixels) > 35


def test_a_longest_side_limits_only_what_is_larger():
    """After the fit, and without one; a file that is small enough keeps every pixel."""
    data = jpeg(photo(60, 200))
    assert prepare_image(data, Recipe(max_side=200)).size == (60, 200, 3)
    assert prepare_image(data, Recipe(max_side=100)).size == (30, 100, 3)
    assert prepare_image(data, Recipe(size=40, max_side=100)).size == (30, 100, 3)
    assert prepare_image(data, Recipe(size=40, max_side=133)).size == (40, 133, 3)
    assert prepare_image(data, Recipe(size=40, fit="crop", max_side=40)).size == (40, 40, 3)
    prepared = prepare_image(data, Recipe(max_side=100))
    assert prepared.transform.tolist() == [[0.5, 0, 0], [0, 0.5, 0]]
