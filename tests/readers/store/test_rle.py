"""Runs, their compressed text and the pixels of polygons are those of pycocotools.

What stands here as expected text or picture was made with pycocotools 2.0.11.
"""

from __future__ import annotations

import math
import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from readers.store.shapes.rle import (
    COORDINATE_MAX,
    CROSSINGS_MAX,
    PIXELS_MAX,
    area,
    decode_counts,
    encode_counts,
    fill,
    fill_polygons,
    mask_runs,
    polygon_runs,
    runs_of_polygons,
    union,
)

Points = list[tuple[float, float]]

TEXTS = [
    (b"", []),
    (b"0", [0]),
    (b"06", [0, 6]),
    (b"123", [1, 2, 3]),
    (b"55500", [5, 5, 5, 5, 5]),
    (b"?`0o0`0P?P?UCW@", [15, 16, 31, 32, 511, 512, 100, 7]),
    (b"PeQ311odQ300", [100_000, 1, 1, 100_000, 1, 100_000]),
    (b"010oooo03", [0, 1, 0, 2**20, 3]),
    (b"oo?PP`0ooo?PP`?RPP@", [16383, 16384, 524287, 524288, 1]),
    (b"0PPPPP8", [0, 2**28]),
]
"""Compressed counts and their runs: about each number of characters, up and down."""

POLYGONS: dict[str, tuple[Points, bytes, list[str]]] = {
    "triangle": (
        [(1, 1), (8, 2), (3, 6)],
        b"8163M1OO2N1O=",
        [
            ".........",
            ".####....",
            "..#####..",
            "..####...",
            "..###....",
            "...#.....",
            ".........",
        ],
    ),
    "points at the middle of pixels": (
        [(1.5, 0.5), (6.5, 0.5), (6.5, 4.5), (1.5, 4.5)],
        b"=4200000005",
        [
            "........",
            "..#####.",
            "..#####.",
            "..#####.",
            "..#####.",
            "........",
        ],
    ),
    "points of two decimals": (
        [(0.33, 1.27), (4.71, 0.48), (8.62, 3.95), (5.04, 6.61), (2.18, 4.43)],
        b"8252N0O20O1N2O4",
        [
            "....#....",
            ".#####...",
            ".######..",
            "..######.",
            "..######.",
            "....##...",
            ".........",
        ],
    ),
    "edges that cross": (
        [(5, 0), (8, 9), (0, 3.4), (10, 3.4), (2, 9)],
        b"318001J01OO1001O010O20M120N01O50M",
        [
            "..........",
            "....##....",
            "....##....",
            "####..####",
            "..#....#..",
            "..........",
            "...####...",
            "..##..##..",
            "..#....#..",
        ],
    ),
    "points left of the picture and above": (
        [(-0.7, -0.7), (5.9, 1.3), (2.4, 5.6)],
        b"0242N10N1O1O6",
        [
            "###....",
            "######.",
            ".####..",
            ".###...",
            "..#....",
            ".......",
        ],
    ),
    "a steep edge from the left": (
        [(-1.9, 0), (6.3, 11.6), (0, 8)],
        b"359O0O101N10i0",
        [
            ".........",
            ".........",
            ".........",
            "#........",
            "#........",
            "##.......",
            "###......",
            "####.....",
            ".###.....",
            "...##....",
            ".....#...",
            ".........",
        ],
    ),
    "a tie on a steep edge to the left": (
        [(6.2, 2.6), (1.0, 0.6), (0.2, 3.8)],
        b"42101O",
        ["....", ".##.", ".###"],
    ),
    "a tie on a steep edge that comes from outside": (
        [(0.6, 2.2), (-0.6, 6.2), (2.0, 2.4)],
        b"516",
        ["....", "....", ".#.."],
    ),
    "a tie on a steep edge to the right": (
        [(-1.8, -2.6), (1.2, 5.6), (4.2, 2.6)],
        b"03110O1N?",
        ["##......", "###.....", "####....", ".##....."],
    ),
    "points right of the picture and below": (
        [(2, 2), (30, 2), (30, 30), (2, 30)],
        b":22000",
        [".....", ".....", "..###", "..###"],
    ),
    "a polygon around the picture": (
        [(-9, -9), (20, -9), (20, 20), (-9, 20)],
        b"0d0",
        ["#####", "#####", "#####", "#####"],
    ),
    "a polygon beside the picture": (
        [(30, 30), (40, 30), (40, 40)],
        b"d0",
        [".....", ".....", ".....", "....."],
    ),
    "points given twice": (
        [(1, 1), (1, 1), (5, 1), (5, 4), (5, 4), (1, 4), (1, 1)],
        b"632000004",
        ["......", ".####.", ".####.", ".####.", "......"],
    ),
    "the whole round given twice": (
        [(1, 1), (5, 1), (5, 4), (1, 4)] * 2,
        b"n0",
        ["......", "......", "......", "......", "......"],
    ),
    "thinner than a pixel": (
        [(0, 2.9), (8, 3.1), (8, 3.2), (0, 3.0)],
        b"`1",
        ["........"] * 6,
    ),
    "points on a line": ([(0, 2), (3, 2), (5, 2)], b"d0", ["....."] * 4),
    "two points": ([(0, 0), (5, 4)], b"d0", ["....."] * 4),
    "one point": ([(2, 2)], b"d0", ["....."] * 4),
    "one point four times": ([(2, 2)] * 4, b"d0", ["....."] * 4),
    "no point": ([], b"d0", ["....."] * 4),
}
"""By name: points, compressed counts, and the picture of the mask."""

masks = hnp.arrays(np.bool_, st.tuples(st.integers(0, 12), st.integers(0, 12)))
same_size_masks = hnp.array_shapes(min_dims=2, max_dims=2, max_side=8).flatmap(
    lambda shape: st.lists(hnp.arrays(np.bool_, shape), min_size=1, max_size=4)
)
run_lists = st.lists(st.integers(0, 40) | st.integers(0, 2**21), max_size=60)
sides = st.integers(1, 14)
coordinates = st.one_of(
    *(
        st.integers(-8 * parts, 24 * parts).map(lambda n, d=parts: n / d)
        for parts in (1, 2, 10, 100)
    )
)
polygons = st.lists(st.tuples(coordinates, coordinates), min_size=1, max_size=7)


def as_points(points: Points) -> NDArray[np.float64]:
    return np.array(points, np.float64).reshape(-1, 2)


def drawn(rows: list[str]) -> NDArray[np.uint8]:
    return np.array([[pixel == "#" for pixel in row] for row in rows], np.uint8)


def walked(points: Points, height: int, width: int) -> NDArray[np.uint8]:
    """COCO's rule for a polygon, as slow as it is told: every point of the outline in turn."""
    flips = np.zeros(height * width + 1, int)
    grid = [(int(5 * x + 0.5), int(5 * y + 0.5)) for x, y in points]
    for a, b in zip(grid, grid[1:] + grid[:1], strict=True):
        across, down = abs(b[0] - a[0]), abs(b[1] - a[1])
        major = 0 if across >= down else 1
        (x0, y0), (x1, y1) = (a, b) if a[major] <= b[major] else (b, a)
        outline = []
        for step in range(max(across, down) + 1):
            if across < down:
                outline.append((int(x0 + (x1 - x0) / down * step + 0.5), y0 + step))
            elif across:
                outline.append((x0 + step, int(y0 + (y1 - y0) / across * step + 0.5)))
        for (x, y), (next_x, next_y) in pairwise(outline):
            column, place = divmod(min(x, next_x), 5)
            if x != next_x and place == 2 and 0 <= column < width:
                row = math.ceil((min(y, next_y) - 2) / 5)
                flips[column * height + min(max(row, 0), height)] += 1
    return (np.cumsum(flips[:-1]) % 2).astype(np.uint8).reshape(width, height).T


# --- compressed counts ----------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "runs"), TEXTS)
def test_compressed_counts_are_those_of_the_original(text, runs):
    """The text read gives the runs, as bytes and as a string; the runs give the same text."""
    read = decode_counts(text)
    assert read.dtype == np.uint32
    assert read.tolist() == runs
    assert decode_counts(text.decode(), sum(runs)).tolist() == runs
    assert encode_counts(np.array(runs, np.uint32)) == text


@given(run_lists)
def test_runs_survive_their_compressed_text(runs):
    """Whatever the runs, the text says them, in characters that need no escape but a backslash."""
    text = encode_counts(np.array(runs, np.int64))
    assert decode_counts(text, sum(runs)).tolist() == runs
    assert all(ord("0") <= character <= ord("o") for character in text)


@pytest.mark.parametrize(
    ("text", "pixel_count", "reason"),
    [
        (b"55!5", None, "character b'!' at position 2, expected '0' to 'o'"),
        ("55 5", None, "character ' ' at position 2"),
        ("5p", None, "character 'p' at position 1"),
        ("55\n", None, r"character '\n' at position 2"),
        ("5é5", None, "character 'é' at position 1"),
        ("55日", None, "character '日' at position 2"),
        (b"55P", None, "3 characters end within a run"),
        (b"P", None, "1 characters end within a run"),
        (b"5PPPPPPP0", None, "run 1 takes 8 characters from position 1, expected at most 7"),
        (b"O", None, "run 0 of 1 is -1, expected [0, 268435456]"),
        (b"512N", None, "run 3 of 4 is -1"),
        (b"PPPPPP1", None, "run 0 of 1 is 1073741824"),
        (b"PPPPP81", None, "268435457 pixels, expected at most 268435456"),
        (b"123", 7, "6 pixels, expected height x width = 7"),
        (b"", 7, "0 pixels, expected height x width = 7"),
    ],
)
def test_damaged_counts_are_refused_with_the_reason(text, pixel_count, reason):
    """A text that is not a counts of this picture says what is wrong with it, and where."""
    with pytest.raises(ValueError, match=re.escape(reason)):
        decode_counts(text, pixel_count)


@given(st.binary(max_size=30) | st.text("0OPo_`@?", max_size=30))
def test_any_text_is_runs_or_a_value_error(text):
    """Nothing that a file may hold gives another error, or runs that do not add up."""
    try:
        runs = decode_counts(text)
    except ValueError:
        return
    assert runs.sum(dtype=np.int64) <= PIXELS_MAX
    assert decode_counts(encode_counts(runs)).tolist() == runs.tolist()


def test_numbers_with_more_characters_than_they_need_are_read():
    """Further zeros, or ones below 0, change no number: not written here, but read."""
    assert decode_counts(b"565O").tolist() == [5, 6, 5, 5]
    assert decode_counts(b"UPPPPP065oO").tolist() == [5, 6, 5, 5]


# --- runs and masks -------------------------------------------------------------------------------


def test_runs_go_down_the_columns_and_begin_outside():
    """The order is column-major, and a mask that begins inside begins with a run of 0."""
    mask = np.array([[0, 1, 1], [0, 1, 0]], np.uint8)
    assert mask_runs(mask).tolist() == [2, 3, 1]
    assert mask_runs(1 - mask).tolist() == [0, 2, 3, 1]
    assert mask_runs(mask * 255).tolist() == [2, 3, 1]
    assert mask_runs(mask).dtype == np.uint32
    assert fill(np.array([2, 3, 1]), 2, 3).tolist() == mask.tolist()


@given(masks)
def test_a_mask_survives_its_runs(mask):
    """Filling the runs gives the mask again: uint8 of 0 and 1, in C order; the area is its sum."""
    runs = mask_runs(mask)
    filled = fill(runs, *mask.shape)
    assert filled.dtype == np.uint8
    assert filled.flags.c_contiguous
    assert np.array_equal(filled, mask)
    assert area(runs) == mask.sum()


def test_runs_of_0_within_are_filled_as_they_stand():
    """Others than pycocotools write runs of 0 in the middle and at the end: they have no pixel."""
    runs = np.array([0, 0, 1, 2, 0, 1, 2, 0, 0])
    assert fill(runs, 3, 2).tolist() == fill(np.array([1, 3, 2]), 3, 2).tolist()
    assert fill(np.array([3, 0, 3, 0]), 3, 2).tolist() == [[0, 0]] * 3
    assert union([runs], 3, 2).tolist() == [1, 3, 2]
    assert area(runs) == 3
    assert fill(np.array([0, 0]), 0, 4).shape == (0, 4)


@given(same_size_masks)
def test_a_union_holds_what_any_mask_holds(parts):
    """The runs of a union are the runs of the masks' OR, touching and nested ones included."""
    height, width = parts[0].shape
    united = union([mask_runs(part) for part in parts], height, width)
    assert united.tolist() == mask_runs(np.logical_or.reduce(parts)).tolist()


def test_a_union_of_nothing_is_empty():
    """An object without parts has no pixel; that is a mask as well."""
    assert union([], 2, 3).tolist() == [6]
    assert fill_polygons([], 2, 3).tolist() == [[0, 0, 0]] * 2


@pytest.mark.parametrize(
    ("runs", "height", "width", "reason"),
    [
        ([5], 2, 3, "5 pixels, expected height x width = 6"),
        ([7], 2, 3, "7 pixels, expected height x width = 6"),
        ([8, -2], 2, 3, "run 1 of 2 is -2"),
        ([2**32 + 6], 2, 3, "run 0 of 1 is 4294967302"),
        ([2.0, 4.0], 2, 3, "float64, expected whole numbers"),
        ([[6]], 2, 3, "(1, 1)"),
        ([6], -2, -3, "height -2 and width -3"),
        ([0], 2**14, 2**14 + 1, "at most 268435456 pixels"),
        ([0], 2**40, 2**40, "at most 268435456 pixels"),
    ],
)
def test_runs_that_are_not_of_this_picture_are_refused(runs, height, width, reason):
    """Before any memory is taken, the runs must be lengths that add up to the picture."""
    for refuse in (fill, lambda runs, *size: union([runs], *size)):
        with pytest.raises(ValueError, match=re.escape(reason)):
            refuse(np.array(runs), height, width)


def test_a_mask_of_another_kind_is_refused():
    """Floats and stacks of masks are no mask: the message says what came and what should."""
    with pytest.raises(ValueError, match=r"\(2, 3\) float64, expected \(height, width\) bool"):
        mask_runs(np.zeros((2, 3)))
    with pytest.raises(ValueError, match=r"\(1, 2, 3\) bool"):
        mask_runs(np.zeros((1, 2, 3), bool))


# --- polygons -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", POLYGONS)
def test_pixels_of_a_polygon_are_those_of_the_original(name):
    """The mask, and the text of its runs, are what pycocotools makes of the same points."""
    points, text, rows = POLYGONS[name]
    height, width = len(rows), len(rows[0])
    runs = polygon_runs(as_points(points), height, width)
    assert runs.dtype == np.uint32
    assert encode_counts(runs) == text
    assert fill(runs, height, width).tolist() == drawn(rows).tolist()
    assert fill_polygons([as_points(points)], height, width).tolist() == drawn(rows).tolist()


@given(polygons, sides, sides)
def test_pixels_of_a_polygon_are_found_by_walking_its_outline(points, height, width):
    """The flips that are computed edge by edge are those met on the way round."""
    mask = walked(points, height, width)
    assert polygon_runs(as_points(points), height, width).tolist() == mask_runs(mask).tolist()


@given(st.lists(polygons, max_size=4), sides, sides)
def test_polygons_at_once_are_the_polygons_one_by_one(parts, height, width):
    """Neither speed nor company changes a pixel, and the parts of an object add up by OR."""
    arrays = [as_points(part) for part in parts]
    each = [polygon_runs(array, height, width) for array in arrays]
    at_once = runs_of_polygons(arrays, height, width)
    assert [runs.tolist() for runs in at_once] == [runs.tolist() for runs in each]
    united = fill(union(each, height, width), height, width)
    assert fill_polygons(arrays, height, width).tolist() == united.tolist()


def test_parts_without_points_stand_among_others():
    """A part without a point takes no pixel, and no pixel from its neighbours."""
    square = as_points([(1, 1), (5, 1), (5, 4), (1, 4)])
    none = np.empty((0, 2))
    runs = runs_of_polygons([none, square, none, none, square, none], 5, 6)
    assert [area(part) for part in runs] == [0, 12, 0, 0, 12, 0]


def test_a_wide_polygon_is_whole():
    """Columns are worked on so many at a time; the seams must not show."""
    width = 300_000
    band = as_points([(0, 1), (width, 1), (width, 2), (0, 2)])
    assert polygon_runs(band, 3, width).tolist() == [1] + [1, 2] * (width - 1) + [1, 1]


def test_points_far_outside_cost_nothing():
    """The outline is never laid out, so a point at the limit is as quick as one in the picture."""
    end = COORDINATE_MAX
    around = as_points([(-end, -end), (end, -end), (end, end), (-end, end)])
    assert polygon_runs(around, 4, 5).tolist() == [0, 20]
    below_the_diagonal = as_points([(-end, -end), (end, end), (-end, end)])
    assert fill(polygon_runs(below_the_diagonal, 3, 3), 3, 3).tolist() == [
        [1, 0, 0],
        [1, 1, 0],
        [1, 1, 1],
    ]


def test_a_picture_without_pixels_has_empty_masks():
    """A height or width of 0 is not an error, but there is nothing to fill."""
    square = as_points([(0, 0), (4, 0), (4, 3), (0, 3)])
    for height, width in ((0, 5), (5, 0), (0, 0)):
        assert polygon_runs(square, height, width).tolist() == [0]
        assert fill_polygons([square, square], height, width).shape == (height, width)


@pytest.mark.parametrize(
    ("points", "reason"),
    [
        ([(0, 0), (4, math.nan), (4, 3)], "polygon 1: a point (4.0, nan), expected finite"),
        ([(0, 0), (math.inf, 0), (4, 3)], "polygon 1: a point (inf, 0.0)"),
        ([(0, 0), (-math.inf, 0), (4, 3)], "polygon 1: a point (-inf, 0.0)"),
        ([(0, 0), (4, 2.0**24 + 1), (4, 3)], "in [-16777216, 16777216]"),
        ([(0, 0, 0), (4, 0, 0), (4, 3, 0)], "polygon 1: an array (3, 3), expected (point, 2)"),
        ([0, 0, 4, 0, 4, 3], "polygon 1: an array (6,), expected (point, 2)"),
    ],
)
def test_points_that_are_no_polygon_are_refused(points, reason):
    """The message names the polygon, counted from 0, and the point."""
    whole = as_points([(0, 0), (4, 0), (4, 3)])
    for draw in (runs_of_polygons, fill_polygons):
        with pytest.raises(ValueError, match=re.escape(reason)):
            draw([whole, np.array(points, np.float64), whole], 4, 5)


def test_more_crossings_than_memory_should_hold_are_refused():
    """A small file can ask for a zigzag over a huge picture: refused before memory is taken."""
    width = 2**20
    zigzag = as_points([(0, 0), (width, 1)] * 9)
    with pytest.raises(ValueError, match=f"cross {18 * width} columns .* at most {CROSSINGS_MAX}"):
        polygon_runs(zigzag, 1, width)
    with pytest.raises(ValueError, match="at most 268435456 pixels"):
        polygon_runs(zigzag, 2**10, width)


def test_polygons_are_those_of_pycocotools_where_it_is_installed():
    """Thousands of polygons of all kinds: the same text from the original, alone and merged."""
    original = pytest.importorskip("pycocotools._mask", reason="needs pycocotools, the original")
    random = np.random.default_rng(5)
    for number in range(3000):
        height, width = random.integers(1, 80, 2).tolist()
        parts = []
        for _ in range(random.integers(1, 4)):
            spread = random.choice([1, 2, 40])
            points = (random.random((random.integers(3, 30), 2)) - 0.5) * spread + 0.5
            step = random.choice([1, 0.5, 0.2, 0.1, 0.01, 1e-9])
            parts.append(np.round(points * (width, height) / step) * step)
        theirs = original.frPoly([part.ravel().tolist() for part in parts], height, width)
        ours = runs_of_polygons(parts, height, width)
        for part, runs, rle in zip(parts, ours, theirs, strict=True):
            assert encode_counts(runs) == rle["counts"], (number, height, width, part.tolist())
            assert area(runs) == original.area([rle])[0]
        merged = original.merge(theirs, 0)["counts"]
        assert encode_counts(union(ours, height, width)) == merged, number
