"""Boxes follow their image through crops, resizes, flips and turns."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from readers.ops.boxes import move_boxes

HALF = [[0.5, 0, 3], [0, 2, -4]]  # Half as wide, twice as high, 3 to the right, 4 up.
FLIP = [[-1, 0, 10], [0, 1, 0]]  # Left and right of a picture 10 wide changed over.
TURN = [[0, -1, 10], [1, 0, 0]]  # A quarter turn clockwise of a picture 10 high.


@pytest.mark.parametrize(
    ("box", "affine", "size", "moved", "kept"),
    [
        ([2, 3, 6, 5], HALF, (20, 20), [4, 2, 6, 6], True),
        ([2, 3, 6, 5], FLIP, (20, 20), [4, 3, 8, 5], True),
        ([2, 3, 6, 5], TURN, (20, 20), [5, 2, 7, 6], True),
        ([2, 1, 6, 5], HALF, (5, 5), [4, 0, 5, 5], True),  # Cut off above, right and below.
        ([-8, -1, 60, 9], FLIP, (7, 10), [0, 0, 10, 7], True),
        ([12, 1, 16, 5], FLIP, (7, 10), [0, 1, 0, 5], False),  # Left of the result.
        ([2, 7, 6, 9], FLIP, (7, 10), [4, 7, 8, 7], False),  # Touches it from below.
        ([2, 3, 2, 5], FLIP, (20, 20), [8, 3, 8, 5], False),  # Never had an area.
    ],
)
def test_a_box_lands_where_its_image_does(box, affine, size, moved, kept):
    """Corners are sorted, what sticks out is cut off, and what is gone is said to be."""
    boxes, flags = move_boxes(np.array([box], np.float32), affine, size)
    assert boxes.dtype == np.float32
    assert flags.dtype == bool
    assert boxes.tolist() == [moved]
    assert flags.tolist() == [kept]


def test_boxes_need_not_be_clipped():
    """Unclipped, a box keeps its extent; `kept` says whether any of it is inside, as before."""
    boxes = np.array([[-4, -2, 6, 5], [12, 1, 16, 5]], np.float32)
    moved, kept = move_boxes(boxes, FLIP, (3, 10), clip=False)
    assert moved.tolist() == [[4, -2, 14, 5], [-6, 1, -2, 5]]
    assert kept.tolist() == [True, False]


def test_no_boxes_stay_no_boxes():
    """An image without boxes is an ordinary one."""
    moved, kept = move_boxes(np.zeros((0, 4), np.float32), HALF, (5, 5))
    assert moved.shape == (0, 4)
    assert moved.dtype == np.float32
    assert kept.shape == (0,)


def test_boxes_of_the_caller_are_left_alone():
    """A box that moves is a new one, even where nothing changes."""
    boxes = np.array([[1, 2, 3, 4]], np.float32)
    moved, _ = move_boxes(boxes, [[1, 0, 0], [0, 1, 0]], (9, 9))
    moved += 1
    assert boxes.tolist() == [[1, 2, 3, 4]]


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
    moved, kept = move_boxes(boxes, matrix, size)
    assert (moved[:, :2] <= moved[:, 2:]).all()
    corners = boxes[:, [[0, 1], [2, 1], [2, 3], [0, 3]]].astype(np.float64)
    around = corners @ matrix[:, :2].T + matrix[:, 2]
    limits = np.array(size[::-1])
    expected = np.hstack([around.min(axis=1).clip(0, limits), around.max(axis=1).clip(0, limits)])
    assert np.allclose(moved, expected, rtol=1e-6, atol=1e-3)
    inside = (moved[:, 2:] - moved[:, :2]).min(axis=1) > 0
    assert kept.tolist() == inside.tolist()


@pytest.mark.parametrize(
    ("boxes", "affine", "message"),
    [
        (np.zeros(4, np.float32), HALF, r"boxes must be \(box, 4\), x0 y0 x1 y1; got \(4,\)"),
        (np.zeros((2, 5), np.float32), HALF, r"boxes must be \(box, 4\).*got \(2, 5\)"),
        (np.zeros((2, 4), np.float32), np.eye(3), r"affine must be \(2, 3\); got \(3, 3\)"),
    ],
)
def test_other_shapes_are_refused(boxes, affine, message):
    """The message says the shape that was given."""
    with pytest.raises(ValueError, match=message):
        move_boxes(boxes, affine, (5, 5))
