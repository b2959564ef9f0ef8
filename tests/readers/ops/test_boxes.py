"""Boxes follow their image through crops, resizes, flips and turns."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from readers.ops.boxes import cut, hulls
from readers.store.shapes.affine import map_boxes

HALF = [[0.5, 0, 3], [0, 2, -4]]  # Half as wide, twice as high, 3 to the right, 4 up.
FLIP = [[-1, 0, 10], [0, 1, 0]]  # Left and right of a picture 10 wide changed over.
TURN = [[0, -1, 10], [1, 0, 0]]  # A quarter turn clockwise of a picture 10 high.
TILT = [[0.6, -0.8, 0], [0.8, 0.6, 0]]  # About the corner, clockwise.


def moved(box, affine, size):
    height, width = size
    boxes, kept = cut(
        hulls(np.array([box], np.float32), np.array([affine], float)),
        np.array([0, 0, width, height]),
    )
    return boxes[0].tolist(), bool(kept[0])


@pytest.mark.parametrize(
    ("box", "affine", "size", "expected", "kept"),
    [
        ([2, 3, 6, 5], HALF, (20, 20), [4, 2, 6, 6], True),
        ([2, 3, 6, 5], FLIP, (20, 20), [4, 3, 8, 5], True),
        ([2, 3, 6, 5], TURN, (20, 20), [5, 2, 7, 6], True),
        ([5, 0, 10, 5], TILT, (20, 20), [0, 4, 6, 11], True),  # Cut off at the left.
        ([2, 1, 6, 5], HALF, (5, 5), [4, 0, 5, 5], True),  # Cut off above, right and below.
        ([-8, -1, 60, 9], FLIP, (7, 10), [0, 0, 10, 7], True),
        ([12, 1, 16, 5], FLIP, (7, 10), [0, 1, 0, 5], False),  # Left of the result.
        ([2, 7, 6, 9], FLIP, (7, 10), [4, 7, 8, 7], False),  # Touches it from below.
        ([2, 3, 2, 5], FLIP, (20, 20), [8, 3, 8, 5], False),  # Never had an area.
    ],
)
def test_a_box_lands_where_its_image_does(box, affine, size, expected, kept):
    """Corners are sorted, what sticks out is cut off, and what is gone is said to be."""
    boxes, flag = moved(box, affine, size)
    assert boxes == pytest.approx(expected, abs=1e-6)
    assert flag == kept


def test_a_sliver_that_float32_cannot_hold_is_gone():
    """A box is handed on in float32: one without an area there is not kept."""
    boxes, kept = cut(np.array([[1000, 0, 1000.00001, 5]]), np.array([0, 0, 2000, 9]))
    assert boxes[0, 0] < boxes[0, 2]
    assert not kept[0]


def test_no_boxes_stay_no_boxes():
    """An image without boxes is an ordinary one."""
    boxes = hulls(np.zeros((0, 4), np.float32), np.zeros((0, 2, 3)))
    boxes, kept = cut(boxes, np.array([0, 0, 5, 5]))
    assert boxes.shape == (0, 4)
    assert kept.shape == (0,)


numbers = st.floats(-1000, 1000, width=32)


@given(
    st.lists(st.tuples(numbers, numbers, numbers, numbers), min_size=1, max_size=5),
    st.lists(st.floats(-3, 3), min_size=6, max_size=6),
    st.tuples(st.integers(1, 500), st.integers(1, 500)),
)
def test_a_moved_box_is_the_upright_one_around_its_corners(rows, affine, size):
    """For every affine: the least and greatest x and y of the four corners, cut to the result."""
    boxes = np.array(rows, np.float32)
    matrix = np.array(affine).reshape(2, 3)
    around = hulls(boxes, np.tile(matrix, (len(boxes), 1, 1)))
    assert np.allclose(around, map_boxes(boxes, matrix), rtol=1e-12, atol=0)
    limits = np.array(size[::-1])
    inside, kept = cut(around, np.array([0, 0, *limits]))
    assert (inside[:, :2] <= inside[:, 2:]).all()
    corners = boxes[:, [[0, 1], [2, 1], [2, 3], [0, 3]]].astype(np.float64)
    points = corners @ matrix[:, :2].T + matrix[:, 2]
    expected = np.hstack([points.min(axis=1).clip(0, limits), points.max(axis=1).clip(0, limits)])
    assert np.allclose(inside, expected, rtol=1e-6, atol=1e-3)
    rounded = inside.astype(np.float32)
    assert kept.tolist() == ((rounded[:, 2:] - rounded[:, :2]).min(axis=1) > 0).tolist()
