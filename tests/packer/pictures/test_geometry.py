"""Sizes and affines agree with what is done to pixels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from packer.pictures.geometry import fit_affine, orientation_affine, plan_fit
from readers.store.pictures.orientation import turn_upright, upright_size
from readers.store.shapes.affine import compose, invert

FITS = ("short", "long", "letterbox", "stretch", "crop")

orientations = st.integers(1, 8)
sides = st.integers(1, 5000)
sizes = st.integers(1, 2000)
fits = st.sampled_from(FITS)


def moved(affine: NDArray[np.float64], points: object) -> NDArray[np.float64]:
    return np.asarray(points, dtype=np.float64) @ affine[:, :2].T + affine[:, 2]


@pytest.mark.parametrize(
    ("width", "height", "size", "fit", "resized", "offset", "final"),
    [
        (500, 375, 256, "short", (341, 256), (0, 0), (341, 256)),
        (375, 500, 256, "short", (256, 341), (0, 0), (256, 341)),
        (500, 375, 256, "long", (256, 192), (0, 0), (256, 192)),
        (500, 375, 256, "letterbox", (256, 192), (0, 32), (256, 256)),
        (375, 500, 256, "letterbox", (192, 256), (32, 0), (256, 256)),
        (10, 5, 7, "letterbox", (7, 4), (0, 1), (7, 7)),  # 3.5 rounds up; 1 above, 2 below.
        (5, 10, 7, "letterbox", (4, 7), (1, 0), (7, 7)),
        (500, 375, 256, "stretch", (256, 256), (0, 0), (256, 256)),
        (500, 375, 256, "crop", (341, 256), (-42, 0), (256, 256)),  # 42 left, 43 right.
        (375, 500, 256, "crop", (256, 341), (0, -42), (256, 256)),
        (1, 5000, 16, "long", (1, 16), (0, 0), (1, 16)),  # Never 0 wide.
        (500, 375, None, "crop", (500, 375), (0, 0), (500, 375)),
        (20, 20, 20, "letterbox", (20, 20), (0, 0), (20, 20)),
        (500, 375, (224, 320), "stretch", (320, 224), (0, 0), (320, 224)),
        (500, 375, (224, 320), "crop", (320, 240), (0, -8), (320, 224)),
        (500, 375, (224, 320), "letterbox", (299, 224), (10, 0), (320, 224)),  # 11 right.
        (375, 500, (224, 320), "crop", (320, 427), (0, -101), (320, 224)),
        (375, 500, (224, 320), "letterbox", (168, 224), (76, 0), (320, 224)),
        (640, 448, (224, 320), "crop", (320, 224), (0, 0), (320, 224)),
    ],
)
def test_a_plan_has_the_sizes_of_its_fit(width, height, size, fit, resized, offset, final):
    """Rounded to the nearest pixel, at least one, and the smaller half at the left and top."""
    plan = plan_fit(width, height, size, fit)
    assert (plan.resized, plan.offset, plan.final) == (resized, offset, final)
    assert plan.affine.tolist() == [
        [resized[0] / width, 0, offset[0]],
        [0, resized[1] / height, offset[1]],
    ]


@given(sides, sides, sizes, fits)
def test_corners_of_the_picture_are_corners_of_the_content(width, height, size, fit):
    """The picture's edges lie where the resized pixels begin and end, padded or cut."""
    plan = plan_fit(width, height, size, fit)
    (left, top), (w, h) = plan.offset, plan.resized
    corners = moved(plan.affine, [[0, 0], [width, 0], [width, height], [0, height]])
    expected = [[left, top], [left + w, top], [left + w, top + h], [left, top + h]]
    assert np.abs(corners - expected).max() <= 1e-6


@given(sides, sides, sizes, fits)
def test_a_fit_keeps_its_promise_about_the_final_size(width, height, size, fit):
    """Squares are squares, the named side is `size`, and nothing has no pixels."""
    plan = plan_fit(width, height, size, fit)
    assert min(plan.final) >= 1
    if fit in ("letterbox", "stretch", "crop"):
        assert plan.final == (size, size)
    elif fit == "short":
        assert min(plan.final) == size
    else:
        assert max(plan.final) == size
    # The middle lies in the middle, but for half a pixel that cannot be shared.
    middle = moved(plan.affine, [width / 2, height / 2])
    assert np.abs(middle - np.array(plan.final) / 2).max() <= 0.5 + 1e-6


@given(sides, sides, sizes, sizes, st.sampled_from(("letterbox", "stretch", "crop")))
def test_a_rectangle_is_filled_or_padded_in_one_direction_at_most(
    width, height, to_height, to_width, fit
):
    """A crop cuts nothing but what is over, a letterbox pads nothing but what is missing."""
    plan = plan_fit(width, height, (to_height, to_width), fit)
    assert plan.final == (to_width, to_height)
    over = [resized - final for resized, final in zip(plan.resized, plan.final, strict=True)]
    assert 0 in over
    if fit == "stretch":
        assert over == [0, 0]
    else:
        assert min(over) >= 0 if fit == "crop" else max(over) <= 0


def test_a_rectangle_needs_a_fit_that_brings_images_to_it():
    """The short or long side of a picture says nothing about the other."""
    with pytest.raises(ValueError, match="one of letterbox, stretch, crop for a rectangle"):
        plan_fit(500, 375, (224, 320), "short")


@given(orientations, sides, sides)
def test_orientation_keeps_the_picture_on_its_grid(orientation, width, height):
    """Corners go to corners of the upright grid, and no two to the same one."""
    affine = orientation_affine(orientation, width, height)
    high, wide = upright_size(height, width, orientation)
    corners = moved(affine, [[0, 0], [width, 0], [width, height], [0, height]])
    assert {tuple(c) for c in corners} == {(0, 0), (wide, 0), (wide, high), (0, high)}


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_moves_points_as_turning_moves_pixels(orientation):
    """A box must stay on its object when the picture is turned."""
    width, height = 5, 3
    pixels = np.arange(height * width).reshape(height, width, 1).astype(np.uint16)
    turned = turn_upright(pixels, orientation)
    affine = orientation_affine(orientation, width, height)
    for y in range(height):
        for x in range(width):
            to_x, to_y = moved(affine, [x + 0.5, y + 0.5])  # The middle of the pixel.
            assert turned[int(to_y), int(to_x), 0] == pixels[y, x, 0]


@given(
    orientations,
    sides,
    sides,
    sizes,
    fits,
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=5),
)
def test_points_come_back_within_a_hundredth_of_a_pixel(
    orientation, width, height, size, fit, shares
):
    """Predictions are mapped back to the raw file with the stored float32 transform."""
    points = np.array(shares) * [width, height]
    high, wide = upright_size(height, width, orientation)
    plan = plan_fit(wide, high, size, fit)
    turn = orientation_affine(orientation, width, height)
    there = compose(turn, plan.affine)
    assert np.abs(moved(there, points) - moved(plan.affine, moved(turn, points))).max() <= 1e-6
    assert np.abs(moved(invert(there), moved(there, points)) - points).max() <= 0.01


def test_compose_does_the_first_one_first():
    """Scaling and then moving differs from moving and then scaling."""
    double = fit_affine((1, 1), (2, 2), (0, 0))
    move = fit_affine((1, 1), (1, 1), (10, 20))
    assert moved(compose(double, move), [1, 1]).tolist() == [12, 22]
    assert moved(compose(move, double), [1, 1]).tolist() == [22, 42]
    assert compose(invert(move), move).tolist() == [[1, 0, 0], [0, 1, 0]]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: plan_fit(0, 5, 5, "short"), "width must be at least 1 pixel; got 0"),
        (lambda: plan_fit(5, 5, 0, "short"), "size must be at least 1 pixel; got 0"),
        (lambda: plan_fit(5, 5, 5, "fill"), "fit must be one of short, .* got 'fill'"),
        (lambda: orientation_affine(9, 5, 5), r"orientation must be in \[1, 9\); got 9"),
        (lambda: invert(np.zeros((2, 3))), "an affine that can be undone was expected"),
    ],
)
def test_a_wrong_argument_is_named(call, words):
    """With its limit and the value given."""
    with pytest.raises(ValueError, match=words):
        call()
