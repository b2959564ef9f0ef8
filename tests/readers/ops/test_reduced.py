"""A window that is read from a reduced picture lies where it lies in the whole one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from readers.ops import CenterCrop, Letterbox, RandomResizedCrop, Resize
from readers.ops.image_plan import compile_ops
from readers.ops.pixels import averaged
from readers.ops.reduced import reduced_window, reductions
from readers.store.pictures.orientation import turn_upright, upright_size
from readers.store.pictures.reduction import REDUCED_MARGIN, reduced_starts


def ramp(height, width, factor):
    """A picture that says at each pixel where its middle is, divided: (height, width, 2) uint16.

    What a reduced pixel stands for beyond the picture goes on as it does within.
    """
    rows = (np.arange(-(-height // factor)) + 0.5) * factor
    columns = (np.arange(-(-width // factor)) + 0.5) * factor
    places = np.stack(np.meshgrid(rows, columns, indexing="ij"), axis=2)
    return np.rint(places * 16).astype(np.uint16)


@st.composite
def crops(draw):
    """(height, width) of a picture, a window in it, and a smaller size that it is scaled to."""
    sides, window, size = [], [], []
    for _ in range(2):
        wanted = draw(st.integers(1, 40))
        extent = draw(st.integers(12 * wanted, 30 * wanted))
        first, behind = draw(st.integers(0, 60)), draw(st.integers(0, 60))
        sides.append(first + extent + behind)
        window.append((first, extent))
        size.append(wanted)
    (top, height), (left, width) = window
    return tuple(sides), (top, left, height, width), tuple(size)


@given(crops(), st.sampled_from([2, 4, 8]))
@settings(deadline=None)
def test_a_window_lies_between_pixels_of_a_reduced_picture(crop, factor):
    """Each pixel of the result has its middle where it is to be, to a tenth of a pixel of it."""
    sides, window, size = crop
    block, place = reduced_window(window, sides, factor)
    top, left, height, width = block
    pixels = ramp(*sides, factor)[top : top + height, left : left + width]
    assert pixels.shape[:2] == (height, width)
    found = averaged(np.ascontiguousarray(pixels), place, size) / 16
    for axis in (0, 1):
        step = window[2 + axis] / size[axis]
        middles = window[axis] + (np.arange(size[axis]) + 0.5) * step
        along = found[:, :, axis].mean(axis=1 - axis)
        inside = slice(1, -1)  # Beside a border, the outermost pixels go on.
        assert np.abs(along - middles)[inside].max(initial=0) < 0.1 * step


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("factor", [2, 4, 8])
@pytest.mark.parametrize("size", [(48, 64), (43, 61), (41, 55)])
def test_a_turned_picture_begins_where_its_padding_ends(size, factor, orientation):
    """Sides are rounded up at the end of the file's grid, which may be any side of the picture."""
    places = ramp(*size, factor) / 16
    height, width = upright_size(*size, orientation)
    top, left = reduced_starts((height, width), orientation, factor)
    rows, columns = np.mgrid[0 : size[0], 0 : size[1]] + 0.5
    upright = turn_upright(np.stack([rows, columns], axis=2), orientation)
    reduced = turn_upright(places, orientation)
    for y in range(0, reduced.shape[0]):
        for x in range(0, reduced.shape[1]):
            middle = top + (y + 0.5) * factor, left + (x + 0.5) * factor
            if 0.5 <= middle[0] <= height - 0.5 and 0.5 <= middle[1] <= width - 0.5:
                low = int(middle[0] - 0.5), int(middle[1] - 0.5)
                high = -int(-(middle[0] - 0.5) // 1), -int(-(middle[1] - 0.5) // 1)
                around = (upright[low] + upright[high]) / 2
                assert np.allclose(around, reduced[y, x])


def test_pictures_are_reduced_as_far_as_the_margin_allows():
    """By both sides, and never beyond an eighth."""
    windows = np.array(
        [[0, 0, h, w] for h, w in ((300, 300), (299, 900), (600, 601), (9999, 1200))]
    )
    sides = np.full((4, 2), 100)
    assert reductions(windows, sides).tolist() == [2, 1, 4, 8]
    assert REDUCED_MARGIN == 1.5


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (RandomResizedCrop(10, scale=(1, 1), ratio=(1, 1)), 8),
        (RandomResizedCrop(10, scale=(1, 1), ratio=(1, 1), scaling="exact"), 1),
        (Resize(10), 8),
        (Resize(10, scaling="exact"), 1),
        (Letterbox((10, 40)), 8),
        (Letterbox((10, 40), scaling="exact"), 1),
        (CenterCrop(10), 1),
    ],
)
def test_an_operation_says_whether_every_pixel_counts(op, expected):
    """A crop at its own scale needs all of its pixels in any case."""
    params = compile_ops([op]).draw([200], [200], 0, 0, [0])
    assert params.reductions == [expected]


@pytest.mark.parametrize("kind", [RandomResizedCrop, Resize, Letterbox])
def test_another_scaling_is_refused(kind):
    """By the names that there are."""
    with pytest.raises(ValueError, match="scaling must be fast or exact; got 'slow'"):
        kind(10, scaling="slow")
