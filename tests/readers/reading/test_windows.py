"""Windows and placements: what is taken of an image, and where it goes."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.pictures.geometry import plan_fit
from readers.chance.random_state import uniforms
from readers.chance.streams import CROP_PLACE, CROP_TRIES
from readers.ops.windows import (
    LEFT_RIGHT,
    affines_of,
    letterbox_sides,
    middles,
    random_windows,
    whole_windows,
)

SCALE, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
BELOW_ONE = 1 - 2**-53
TOP, LEFT, TRIES = CROP_PLACE.first, CROP_PLACE.first + 1, CROP_TRIES.first
NUMBER_COUNT = TRIES + CROP_TRIES.count

sides = st.integers(1, 700)
seeds = st.integers(0, 2**64 - 1)


def crop_by_hand(height, width, scale, ratio, draw, place):
    """torchvision's RandomResizedCrop.get_params, with its random numbers handed in.

    Args:
        draw: Returns the next number of [0, 1).
        place: Makes a whole number of [0, n) from n.
    """
    for _ in range(10):
        area = height * width * (scale[0] + draw() * (scale[1] - scale[0]))
        low, high = math.log(ratio[0]), math.log(ratio[1])
        aspect = math.exp(low + draw() * (high - low))
        w = round(math.sqrt(area * aspect))
        h = round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            return place(height - h + 1), place(width - w + 1), h, w
    if width / height < ratio[0]:
        w, h = width, max(1, round(width / ratio[0]))
    elif width / height > ratio[1]:
        h, w = height, max(1, round(height * ratio[1]))
    else:
        h, w = height, width
    return (height - h) // 2, (width - w) // 2, h, w


def windows_of(heights, widths, numbers, scale=SCALE, ratio=RATIO):
    corner, tries = numbers[:, TOP : LEFT + 1], numbers[:, TRIES:]
    return random_windows(np.array(heights), np.array(widths), scale, ratio, corner, tries)


@given(
    st.lists(st.tuples(sides, sides), min_size=1, max_size=20),
    seeds,
    st.tuples(st.floats(0.01, 1), st.floats(0.01, 1)).map(sorted),
    st.tuples(st.floats(0.05, 20), st.floats(0.05, 20)).map(sorted),
)
def test_windows_of_a_batch_are_torchvisions_one_by_one(sizes, seed, scale, ratio):
    """Given the same numbers, each window is the one that torchvision's loop comes to."""
    numbers = uniforms(seed, 0, np.arange(len(sizes)), NUMBER_COUNT)
    heights, widths = zip(*sizes, strict=True)
    windows = windows_of(heights, widths, numbers, scale, ratio)
    assert windows.dtype == np.int64
    for (height, width), row, window in zip(sizes, numbers.tolist(), windows, strict=True):
        draw = iter(row[TRIES:]).__next__
        place = iter([row[TOP], row[LEFT]]).__next__
        expected = crop_by_hand(
            height, width, scale, ratio, draw, lambda n, place=place: math.floor(place() * n)
        )
        assert tuple(window) == expected


def test_windows_never_change():
    """A seed means the same in every release: these windows stay as they are."""
    numbers = uniforms(0, 0, np.arange(4), NUMBER_COUNT)
    assert windows_of([256, 256, 480, 32], [384, 341, 640, 32], numbers).tolist() == [
        [59, 218, 109, 88],
        [54, 102, 127, 115],
        [83, 248, 240, 270],
        [0, 0, 32, 31],
    ]


@pytest.mark.parametrize(
    ("height", "width", "window"),
    [
        (1, 1000, (0, 499, 1, 1)),
        (1000, 1, (499, 0, 1, 1)),
        (30, 1000, (0, 480, 30, 40)),
        (1000, 30, (480, 0, 40, 30)),
        (31, 1000, (0, 479, 31, 41)),  # 41.33 wide; 479.5 rounds down.
    ],
)
def test_the_middle_is_taken_where_no_try_fits(height, width, window):
    """What ratio allows of the image, in the middle, as torchvision does."""
    numbers = uniforms(3, 0, np.arange(50), NUMBER_COUNT)
    windows = windows_of([height] * 50, [width] * 50, numbers, scale=(0.5, 1.0))
    assert {tuple(row) for row in windows.tolist()} == {window}


@given(sides, sides, st.sampled_from([0.0, BELOW_ONE]), st.sampled_from([0.0, 0.5, BELOW_ONE]))
def test_windows_at_the_ends_of_the_interval_touch_the_border(height, width, place, share):
    """The least number puts a window at the top left, the greatest at the bottom right."""
    numbers = np.full((1, NUMBER_COUNT), share)
    numbers[0, TRIES + 1 :: 2] = 0.5  # As wide as high.
    numbers[0, [TOP, LEFT]] = place
    top, left, h, w = windows_of([height], [width], numbers, scale=(0.05, 0.2))[0]
    if max(height, width) * 0.25 < min(height, width) and min(height, width) > 4:
        assert (top, left) == ((0, 0) if place == 0 else (height - h, width - w))
    assert 0 <= top <= top + h <= height
    assert 0 <= left <= left + w <= width
    assert min(h, w) >= 1


def furthest(values: np.ndarray, expected: np.ndarray | None = None) -> float:
    """Kolmogorov and Smirnov's distance, times the root of the count: 1.95 in one of 1,000.

    From uniform numbers in [0, 1], or between two samples.
    """
    ordered = np.sort(values)
    if expected is None:
        ranks = np.arange(len(ordered) + 1) / len(ordered)
        gap = max((ranks[1:] - ordered).max(), (ordered - ranks[:-1]).max())
        return float(gap * np.sqrt(len(ordered)))
    at = np.concatenate([values, expected])
    first = np.searchsorted(ordered, at, side="right") / len(values)
    second = np.searchsorted(np.sort(expected), at, side="right") / len(expected)
    count = len(values) * len(expected) / (len(values) + len(expected))
    return float(np.abs(first - second).max() * np.sqrt(count))


def test_area_proportions_and_place_are_uniform():
    """Where every try fits: area, logarithm of width over height, and place, all independent."""
    count, side = 20_000, 30_000
    numbers = uniforms(11, 0, np.arange(count), NUMBER_COUNT)
    windows = windows_of([side] * count, [side] * count, numbers, scale=(0.1, 0.5))
    top, left, height, width = windows.T.astype(float)
    low, high = np.log(RATIO)
    parts = {
        "area": (height * width / side**2 - 0.1) / 0.4,
        "ratio": (np.log(width / height) - low) / (high - low),
        "top": (top + 0.5) / (side - height + 1),
        "left": (left + 0.5) / (side - width + 1),
    }
    for name, values in parts.items():
        assert furthest(values) < 1.95, name
    correlations = np.corrcoef(list(parts.values())) - np.eye(4)
    assert np.abs(correlations).max() * np.sqrt(count) < 4


@pytest.mark.parametrize(("height", "width"), [(256, 384), (60, 200), (33, 24)])
def test_windows_are_distributed_as_torchvisions(height, width):
    """Where tries fail: the same distribution as the loop with a random generator of its own."""
    count = 20_000
    numbers = uniforms(12, 0, np.arange(count), NUMBER_COUNT)
    windows = windows_of([height] * count, [width] * count, numbers)
    generator = random.Random(5)
    expected = np.array(
        [
            crop_by_hand(height, width, SCALE, RATIO, generator.random, generator.randrange)
            for _ in range(count)
        ]
    )
    for ours, theirs in zip(windows.T, expected.T, strict=True):
        assert furthest(ours, theirs) < 1.95
    assert furthest(windows[:, 2] * windows[:, 3], expected[:, 2] * expected[:, 3]) < 1.95
    assert furthest(windows[:, 2] / windows[:, 3], expected[:, 2] / expected[:, 3]) < 1.95


@given(sides, sides, st.integers(1, 900))
def test_a_letterbox_is_the_one_of_the_build(height, width, size):
    """Letterboxed when it is read, an image lies where `packer build --fit letterbox` puts it."""
    plan = plan_fit(width, height, size, "letterbox")
    scaled = letterbox_sides(np.array([height]), np.array([width]), (size, size))
    placements = middles(scaled, np.array([size, size]))
    assert placements.tolist() == [[*plan.offset[::-1], *plan.resized[::-1]]]
    whole = whole_windows(np.array([height]), np.array([width]))
    affines = affines_of(whole, placements, np.array([0]))
    assert np.allclose(affines[0], plan.affine, rtol=1e-15, atol=0)


@pytest.mark.parametrize(
    ("height", "width", "size", "expected"),
    [
        (100, 200, (50, 80), (40, 80)),
        (100, 200, (30, 80), (30, 60)),
        (3, 7, (100, 100), (43, 100)),  # 42.86
        (10, 4, (5, 5), (5, 2)),
        (2, 1, (5, 5), (5, 3)),  # 2.5 rounds up.
        (1, 2, (5, 5), (3, 5)),
        (1, 5000, (16, 16), (1, 16)),  # Never nothing.
        (50, 80, (50, 80), (50, 80)),
    ],
)
def test_a_letterbox_touches_two_borders(height, width, size, expected):
    """As large as fits; rounded to the nearest pixel, halves up."""
    assert letterbox_sides(np.array([height]), np.array([width]), size).tolist() == [list(expected)]


def test_the_smaller_half_lies_before_the_middle():
    """Of an odd number of pixels left over, one more lies after."""
    assert middles(np.array([[3, 4]]), np.array([[8, 8]])).tolist() == [[2, 2, 3, 4]]
    assert middles(np.array([[3, 8]]), np.array([8, 8])).tolist() == [[2, 0, 3, 8]]


def test_affines_take_windows_onto_placements():
    """Corners go to corners, and after a flip left ones to right ones."""
    windows = np.array([[10, 20, 30, 40], [10, 20, 30, 40]])
    placements = np.array([[1, 2, 60, 20], [1, 2, 60, 20]])
    plain, flipped = affines_of(windows, placements, np.array([0, LEFT_RIGHT]))
    assert plain.tolist() == [[0.5, 0, -8], [0, 2, -19]]
    assert flipped.tolist() == [[-0.5, 0, 32], [0, 2, -19]]
