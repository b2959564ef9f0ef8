"""Outlines of pixels become one polygon of the same pixels, by the rule of COCO's own tools."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from packer.sources.turned_boxes import turned_corners
from packer.stores.export.outlines import BOXED, JOINED, PLAIN, TRACED, one_polygon
from packer.stores.export.turned import short_numbers, turned_box
from readers.store.shapes.polygons import Runs
from readers.store.shapes.rle import fill_polygons, mask_runs

BOX = np.array([1.0, 2.0, 3.0, 5.0])


@given(arrays(np.uint8, (7, 9), elements=st.integers(0, 1)))
def test_runs_are_followed_along_the_edges_of_their_pixels(mask):
    """No pixel is lost, however thin a part is; what is filled besides are holes."""
    points, how = one_polygon(Runs(mask_runs(mask)), BOX, *mask.shape)
    if not mask.any():
        assert how == BOXED
        return
    assert how == TRACED
    filled = fill_polygons([points], *mask.shape).astype(bool)
    contours, _ = cv2.findContours(mask, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    whole = np.zeros_like(mask)
    for contour in contours:
        cv2.drawContours(whole, [contour], -1, 1, cv2.FILLED)
    assert np.array_equal(filled, whole.astype(bool))
    assert np.ptp(points, axis=0).min() >= 1


def test_polygons_are_joined_without_a_change_of_area():
    """By lines that go there and back; one alone stays as it is, and a box stands in for none."""
    square = np.array([[1.0, 1], [4, 1], [4, 4], [1, 4]])
    aside = square + np.array([5, 0])
    points, how = one_polygon((square, square + 4, aside), BOX, 12, 12)
    assert how == JOINED
    expected = fill_polygons([square, square + 4, aside], 12, 12)
    assert np.array_equal(fill_polygons([points], 12, 12), expected)
    same, how = one_polygon((square,), BOX, 12, 12)
    assert how == PLAIN
    assert np.array_equal(same, square)
    corners, how = one_polygon((), BOX, 12, 12)
    assert how == BOXED
    assert corners.tolist() == [[1, 2], [3, 2], [3, 5], [1, 5]]


@given(
    st.tuples(*[st.floats(-500, 500)] * 2),
    st.tuples(*[st.floats(1, 500)] * 2),
    st.floats(-180, 180),
)
def test_a_turned_box_is_known_by_its_corners(middle, size, degrees):
    """Whatever its angle is; corners of no rectangle are none of a turned box."""
    corners = np.array(turned_corners(*middle, *size, degrees), np.float32)
    found = turned_box(corners)
    assert found is not None
    again = turned_corners(found.x, found.y, found.width, found.height, found.degrees)
    assert np.abs(np.array(again) - corners).max() < 0.01
    corners[0] += 5
    assert turned_box(corners) is None


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_short_numbers_are_read_back_as_the_same_float32(value):
    """They have as few digits as that takes."""
    (number,) = short_numbers(np.float32(value))
    assert np.float32(number) == np.float32(value)
    assert short_numbers(np.float32(12.3)) == [pytest.approx(12.3, abs=0)]
