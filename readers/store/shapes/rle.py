"""Masks as runs, COCO's way: its compressed text, and its rule for the pixels of a polygon.

Runs are lengths over the pixels of a `(height, width)` mask in column-major order, down the first
column, then down the second. They alternate between outside and inside; the first counts pixels
outside and may be 0:

    0 1 1
    0 1 0      down the columns: 0 0 | 1 1 | 1 0      runs: 2 3 1

Text and pixels are those of pycocotools 2.0.11, to the last byte and pixel, without needing it.
That matters for polygons: other libraries fill another set of pixels, up to a quarter more on small
objects, and a model that was trained on one is scored on the other.

NOTE [ what decides a pixel of a polygon ]
The outline is drawn on a grid five times as fine as the picture, one grid point for each step along
the longer side of an edge. Where it passes through the middle of a column of pixels, from grid
column `5 c + 2` to `5 c + 3`, the higher of the two points says before which pixel of column `c`
inside and outside change places: a flip. A polygon is its flips, sorted; two at one place cancel
out. Only the flips are computed here, never the outline, so that a polygon costs its columns
whatever lies outside of the picture.

All of it may come from a stranger's file: sizes and sums are checked before memory is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

PIXELS_MAX = 2**28
"""Pixels of a mask: 16384 x 16384. More in a file of annotations is damage, or an attack."""

COORDINATE_MAX = 2**24
"""Distance of a point of a polygon from the picture's corner, in pixels.

pycocotools counts in 32-bit integers, and walks the outline point by point: far beyond this its
answer is an accident, or memory runs out.
"""

CROSSINGS_MAX = 2**24
"""Columns that the edges of the polygons of one call cross, added up: 128 MiB of flips."""

_CROSSINGS_AT_ONCE = 2**17  # Its dozen temporary arrays stay at 1 MiB each.
_GRID = 5  # Grid points for each pixel.

# One character of compressed counts: five bits of a number, and whether more of it follow.
_CODE_ZERO = ord("0")
_CODE_COUNT = 64
_CODE_BITS = 5
_CODE_VALUE, _CODE_SIGN, _CODE_MORE = 0x1F, 0x10, 0x20
_NUMBER_CODES_MAX = 7  # 35 bits; a difference of two runs needs 30, but zeros may be padded.

Runs = NDArray[np.uint32]
"""Lengths of the runs, `(run,) uint32`."""


# --- compressed counts ----------------------------------------------------------------------------


def decode_counts(text: bytes | str, pixel_count: int | None = None) -> Runs:
    """The runs in COCO's compressed `counts`.

    Each number takes as many characters from `0` to `o` as it needs, five bits in each, the lowest
    first, in two's complement. From the fourth run on it is the difference to the run two before,
    which has the same colour.

    Args:
        text: The text as it stands in the JSON file.
        pixel_count: Height times width of the mask, in pixels. None leaves the sum of the runs
            unchecked, but for its limit.

    Returns:
        The runs, `(run,) uint32`.

    Raises:
        ValueError: The text has a character that no counts have, ends within a number, has a run
            below 0, or runs that add up to another size than `pixel_count`, or to more than
            `PIXELS_MAX`.
    """
    codes = _codes(text)
    if not len(codes):
        return _checked_runs(codes, pixel_count).astype(np.uint32)
    ends = np.flatnonzero(codes < _CODE_MORE)
    if not len(ends) or ends[-1] != len(codes) - 1:
        raise ValueError(
            f"counts of {len(codes)} characters end within a run, expected more: the text was cut"
        )
    starts = np.concatenate(([0], ends[:-1] + 1))
    lengths = ends + 1 - starts
    if lengths.max() > _NUMBER_CODES_MAX:
        at = int(lengths.argmax())
        raise ValueError(
            f"counts: run {at} takes {lengths[at]} characters from position {starts[at]}, "
            f"expected at most {_NUMBER_CODES_MAX}: the text is damaged"
        )
    shifts = _CODE_BITS * (np.arange(len(codes)) - np.repeat(starts, lengths))
    values = np.add.reduceat((codes & _CODE_VALUE).astype(np.int64) << shifts, starts)
    is_negative = (codes[ends] & _CODE_SIGN) != 0
    values -= is_negative.astype(np.int64) << (_CODE_BITS * lengths)
    # 2^34 at most, so no sum of a text's worth of them overflows.
    values[1::2] = np.cumsum(values[1::2])
    values[2::2] = np.cumsum(values[2::2])
    return _checked_runs(values, pixel_count).astype(np.uint32)


def encode_counts(runs: NDArray[np.integer[Any]]) -> bytes:
    """The compressed `counts` of runs, the very bytes that pycocotools writes.

    Raises:
        ValueError: A run is below 0, or they add up to more than `PIXELS_MAX`.
    """
    values = _checked_runs(runs)
    if not len(values):
        return b""
    numbers = values.copy()
    numbers[3:] -= values[1:-2]
    # Bits without the sign: as many for -1 as for 0. Floats hold numbers of this size exactly.
    _, bits = np.frexp((numbers ^ (numbers >> 63)).astype(np.float64))
    lengths = bits // _CODE_BITS + 1
    places = np.arange(lengths.max())
    codes = (numbers[:, None] >> (_CODE_BITS * places)) & _CODE_VALUE
    codes |= np.where(places < lengths[:, None] - 1, _CODE_MORE, 0)
    text: bytes = (codes + _CODE_ZERO).astype(np.uint8)[places < lengths[:, None]].tobytes()
    return text


def _codes(text: bytes | str) -> NDArray[np.uint8]:
    """The characters as numbers in [0, 64)."""
    # What is not Latin is not a counts either; one byte a character keeps the positions right.
    data = text.encode("latin-1", "replace") if isinstance(text, str) else text
    codes = np.frombuffer(data, np.uint8) - np.uint8(_CODE_ZERO)  # What is below "0" wraps round.
    is_wrong = codes >= _CODE_COUNT
    if isinstance(text, str) and not text.isascii():
        is_wrong |= np.fromiter((not character.isascii() for character in text), bool, len(text))
    if is_wrong.any():
        at = int(is_wrong.argmax())
        raise ValueError(
            f"counts: character {text[at : at + 1]!r} at position {at}, expected '0' to 'o': "
            "the text is damaged, or is not a compressed counts"
        )
    return codes


# --- runs and masks -------------------------------------------------------------------------------


def mask_runs(mask: NDArray[np.bool_] | NDArray[np.uint8]) -> Runs:
    """The runs of a mask, `(height, width)` bool or uint8, where all but 0 is inside.

    Raises:
        ValueError: The mask is of another shape or type, or has more than `PIXELS_MAX` pixels.
    """
    if mask.ndim != 2 or mask.dtype not in (np.bool_, np.uint8):
        raise ValueError(
            f"mask: an array {mask.shape} {mask.dtype}, expected (height, width) bool or uint8"
        )
    pixel_count = _checked_size(*mask.shape)
    pixels = mask.T.ravel() != 0
    flips = np.flatnonzero(pixels[1:] != pixels[:-1]) + 1
    if pixel_count and pixels[0]:
        flips = np.concatenate(([0], flips))
    return _runs_of_flips(flips, pixel_count)


def fill(runs: NDArray[np.integer[Any]], height: int, width: int) -> NDArray[np.uint8]:
    """The mask of runs, `(height, width) uint8` of 0 and 1, in C order.

    Raises:
        ValueError: A run is below 0, they do not add up to `height * width`, or that is more than
            `PIXELS_MAX`.
    """
    lengths = _checked_runs(runs, _checked_size(height, width))
    mask = np.zeros((height, width), np.uint8)
    inside_count = len(lengths) // 2
    ends = np.cumsum(lengths[: 2 * inside_count])
    if not inside_count or ends[0] == ends[-1]:
        return mask
    # Most objects are small beside their picture: only the columns that they lie in are drawn.
    left, right = int(ends[0]) // height, -(-int(ends[-1]) // height)
    drawn = np.append(lengths[: 2 * inside_count], right * height - ends[-1])
    drawn[0] -= left * height
    colours = (np.arange(len(drawn)) & 1).astype(np.uint8)
    mask[:, left:right] = np.repeat(colours, drawn).reshape(right - left, height).T
    return mask


def area(runs: NDArray[np.integer[Any]]) -> int:
    """How many pixels are inside.

    Raises:
        ValueError: A run is below 0, or they add up to more than `PIXELS_MAX`.
    """
    return int(_checked_runs(runs)[1::2].sum())


def union(runs: Sequence[NDArray[np.integer[Any]]], height: int, width: int) -> Runs:
    """The runs of what is inside of any of several masks of one size. Of none, it is empty.

    Raises:
        ValueError: A run is below 0, those of one mask do not add up to `height * width`, or that
            is more than `PIXELS_MAX`.
    """
    pixel_count = _checked_size(height, width)
    flips = [np.cumsum(_checked_runs(part, pixel_count))[:-1] for part in runs]
    return _runs_of_flips(_union_of_flips(flips, pixel_count), pixel_count)


def _checked_size(height: int, width: int) -> int:
    """The count of pixels."""
    if height < 0 or width < 0 or int(height) * int(width) > PIXELS_MAX:
        raise ValueError(
            f"a mask of height {height} and width {width}, expected neither below 0 and "
            f"at most {PIXELS_MAX} pixels"
        )
    return int(height) * int(width)


def _checked_runs(
    runs: NDArray[np.integer[Any]], pixel_count: int | None = None
) -> NDArray[np.int64]:
    array = np.asarray(runs)
    if array.ndim != 1 or (len(array) and array.dtype.kind not in "iu"):
        raise ValueError(
            f"runs: an array {array.shape} {array.dtype}, expected whole numbers (run,)"
        )
    is_wrong = (array < 0) | (array > PIXELS_MAX)
    if is_wrong.any():
        at = int(is_wrong.argmax())
        raise ValueError(
            f"run {at} of {len(array)} is {array[at]}, expected [0, {PIXELS_MAX}]: "
            "the counts are damaged"
        )
    total = int(array.sum(dtype=np.int64))
    if total > PIXELS_MAX:
        raise ValueError(f"runs of {total} pixels, expected at most {PIXELS_MAX}")
    if pixel_count is not None and total != pixel_count:
        raise ValueError(
            f"runs of {total} pixels, expected height x width = {pixel_count}: "
            "the counts are damaged, or belong to a picture of another size"
        )
    return array.astype(np.int64)


def _runs_of_flips(flips: NDArray[np.int64], pixel_count: int) -> Runs:
    """Runs that change at `flips`, which rise and lie in [0, pixel_count)."""
    ends = np.concatenate((flips, [pixel_count]))
    ends[1:] -= flips
    return ends.astype(np.uint32)


def _union_of_flips(parts: Sequence[NDArray[np.int64]], pixel_count: int) -> NDArray[np.int64]:
    """Flips of what is inside of any part; they may stand still, as runs of 0 have it."""
    # A part that is still inside after its last flip ends with the picture.
    closed = [np.append(part, np.full(len(part) % 2, pixel_count)) for part in parts]
    spans = np.concatenate([np.empty(0, np.int64), *closed]).reshape(-1, 2)
    spans = spans[spans[:, 0] < spans[:, 1]]
    if not len(spans):
        return spans.ravel()
    starts, ends = np.sort(spans, axis=0).T
    # After the nth end nothing is inside, unless an (n + 1)th span has begun by then.
    is_gap = starts[1:] > ends[:-1]
    firsts, lasts = starts[np.append(True, is_gap)], ends[np.append(is_gap, True)]
    merged = np.stack((firsts, lasts), axis=1).ravel()
    return merged[merged < pixel_count]


# --- polygons -------------------------------------------------------------------------------------


def polygon_runs(points: NDArray[np.float64], height: int, width: int) -> Runs:
    """The runs of the pixels of one polygon, by COCO's rule.

    The outline closes by itself, may cross itself (what it goes round twice is outside) and may
    leave the picture. Fewer than three points, or points on a line, may well have no pixel inside.

    Args:
        points: `(point, 2) float64`, x y in pixels; (0, 0) is the corner of the first pixel, not
            its middle.
        height: Height of the picture, in pixels.
        width: Width of the picture, in pixels.

    Returns:
        The runs, `(run,) uint32`, as pycocotools' `frPyObjects` has them. (Two points, four
        numbers, it takes for a box `x y width height`, which is not done here.)

    Raises:
        ValueError: A point is not finite or beyond `COORDINATE_MAX`, the array has another shape,
            the picture has more than `PIXELS_MAX` pixels, or the edges cross more than
            `CROSSINGS_MAX` columns.
    """
    (runs,) = runs_of_polygons([points], height, width)
    return runs


def runs_of_polygons(
    polygons: Sequence[NDArray[np.float64]], height: int, width: int
) -> list[Runs]:
    """`polygon_runs` of each of several polygons of one picture, several times as fast.

    Raises:
        ValueError: As `polygon_runs`, which says more.
    """
    pixel_count = _checked_size(height, width)
    return [_runs_of_flips(flips, pixel_count) for flips in _polygon_flips(polygons, height, width)]


def fill_polygons(
    polygons: Sequence[NDArray[np.float64]], height: int, width: int
) -> NDArray[np.uint8]:
    """The mask of one object of several polygons, `(height, width) uint8` of 0 and 1, in C order.

    A pixel is inside when it is inside of any of the polygons, `(point, 2) float64`, x y in pixels.

    Raises:
        ValueError: As `polygon_runs`, which says more.
    """
    pixel_count = _checked_size(height, width)
    flips = _polygon_flips(polygons, height, width)
    merged = flips[0] if len(flips) == 1 else _union_of_flips(flips, pixel_count)
    return fill(_runs_of_flips(merged, pixel_count), height, width)


class _Edges(NamedTuple):
    """Edges that cross the middle of at least one column; arrays of `(edge,)`, on the fine grid.

    They point right when they are flat, down when they are steep, whichever way they were given.
    """

    polygon: NDArray[np.int64]
    is_flat: NDArray[np.bool_]  # At least as wide as high.
    x: NDArray[np.int64]  # Where it starts.
    y: NDArray[np.int64]
    length: NDArray[np.int64]  # Of the longer side: the count of its steps.
    slope: NDArray[np.float64]  # Of the shorter side, in one step.
    column: NDArray[np.int64]  # The first that it crosses, in pixels.
    column_count: NDArray[np.int64]


def _polygon_flips(
    polygons: Sequence[NDArray[np.float64]], height: int, width: int
) -> list[NDArray[np.int64]]:
    """Flips of each polygon: rising, each once, in [0, height * width)."""
    points = _checked_points(polygons)
    pixel_count = height * width
    if not len(points):
        return [np.empty(0, np.int64) for _ in polygons]
    edges = _edges(points, np.array([len(polygon) for polygon in polygons]), width)
    ends = np.cumsum(edges.column_count)
    crossing_count = int(ends[-1]) if len(ends) else 0
    if crossing_count > CROSSINGS_MAX:
        raise ValueError(
            f"polygons of {len(points)} points whose edges cross {crossing_count} columns of "
            f"pixels, expected at most {CROSSINGS_MAX}: hand over fewer at once"
        )
    # All polygons are sorted at once: each has a range of numbers to itself.
    flips = np.empty(crossing_count, np.int64)
    for start in range(0, crossing_count, _CROSSINGS_AT_ONCE):
        crossing = np.arange(start, min(start + _CROSSINGS_AT_ONCE, crossing_count))
        edge = np.searchsorted(ends, crossing, side="right")
        column = edges.column[edge] + crossing - (ends - edges.column_count)[edge]
        row = np.minimum(np.maximum(_rows(edges, edge, column), 0), height)
        flips[crossing] = edges.polygon[edge] * (pixel_count + 1) + column * height + row
    flips.sort()
    flips = _odd_ones(flips)
    first = np.arange(len(polygons)) * (pixel_count + 1)
    # The place after the last pixel may be flipped too, which changes nothing.
    begins, stops = np.searchsorted(flips, first), np.searchsorted(flips, first + pixel_count)
    return [
        flips[begin:stop] - base
        for base, begin, stop in zip(first, begins.tolist(), stops.tolist(), strict=True)
    ]


def _checked_points(polygons: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Points of all polygons, one after the other."""
    for number, polygon in enumerate(polygons):
        if np.ndim(polygon) != 2 or np.shape(polygon)[1] != 2:
            raise ValueError(
                f"polygon {number}: an array {np.shape(polygon)}, expected (point, 2), x y"
            )
    points = np.concatenate([np.empty((0, 2)), *polygons]).astype(np.float64)
    is_right = np.abs(points) <= COORDINATE_MAX  # False for what is not a number.
    if not is_right.all():
        at = int(is_right.all(axis=1).argmin())
        number = int(
            np.searchsorted(np.cumsum([len(polygon) for polygon in polygons]), at, "right")
        )
        x, y = points[at].tolist()
        raise ValueError(
            f"polygon {number}: a point ({x}, {y}), expected finite numbers of pixels in "
            f"[-{COORDINATE_MAX}, {COORDINATE_MAX}]"
        )
    return points


def _edges(points: NDArray[np.float64], counts: NDArray[np.int64], width: int) -> _Edges:
    # Towards 0, as C turns a float into an integer: below 0 this is not the nearest grid point.
    ends = np.cumsum(counts)
    following = np.arange(1, len(points) + 1)
    following[ends[counts > 0] - 1] = (ends - counts)[counts > 0]
    x, y = (points * _GRID + 0.5).astype(np.int64).T
    next_x, next_y = x[following], y[following]
    # From column to column, at the middle of a pixel.
    left, right = np.minimum(x, next_x), np.maximum(x, next_x)
    column = np.maximum((left + 2) // _GRID, 0)
    column_count = np.minimum((right - 3) // _GRID, width - 1) + 1 - column

    kept = np.flatnonzero(column_count > 0)
    x, y, next_x, next_y = x[kept], y[kept], next_x[kept], next_y[kept]
    is_flat = np.abs(next_x - x) >= np.abs(next_y - y)
    is_backwards = np.where(is_flat, x > next_x, y > next_y)
    across, down = next_x - x, next_y - y
    length = np.abs(np.where(is_flat, across, down))
    slope = np.where(is_flat, down, across) / length
    return _Edges(
        polygon=np.repeat(np.arange(len(counts)), counts)[kept],
        is_flat=is_flat,
        x=np.where(is_backwards, next_x, x),
        y=np.where(is_backwards, next_y, y),
        length=length,
        slope=np.where(is_backwards, -slope, slope),
        column=column[kept],
        column_count=column_count[kept],
    )


def _rows(edges: _Edges, edge: NDArray[np.int64], column: NDArray[np.int64]) -> NDArray[np.int64]:
    """The row before which `edge` flips `column`, in pixels; it may lie outside of the picture."""
    is_flat = edges.is_flat[edge]
    y = np.empty(len(edge), np.int64)
    y[is_flat] = _y_on_flat_edges(edges, edge[is_flat], column[is_flat])
    y[~is_flat] = _y_on_steep_edges(edges, edge[~is_flat], column[~is_flat])
    return (y + 2) // _GRID


def _y_on_flat_edges(
    edges: _Edges, edge: NDArray[np.int64], column: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The smaller y of the two grid points where each flat edge crosses its column."""
    slope = edges.slope[edge]
    step = _GRID * column + 2 - edges.x[edge] + (slope < 0)
    # The original's operations in its order, so that ties round alike. Below 0 all y mean row 0.
    return (edges.y[edge] + slope * step + 0.5).astype(np.int64)


def _y_on_steep_edges(
    edges: _Edges, edge: NDArray[np.int64], column: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The smaller y of the two grid points where each steep edge crosses its column."""
    x, slope, length = edges.x[edge], edges.slope[edge], edges.length[edge]
    middle = _GRID * column + 3
    is_rightwards = slope > 0

    def has_crossed(step: NDArray[np.int64]) -> NDArray[np.bool_]:
        is_right: NDArray[np.bool_] = (x + slope * step + 0.5 >= middle) == is_rightwards
        return is_right

    # The first step beyond the middle: solved for, then put right where rounding errs by one.
    step: NDArray[np.int64] = np.clip(
        np.ceil((middle - 0.5 - x) / slope).astype(np.int64), 1, length
    )
    while True:
        change = ~has_crossed(step) & (step < length)
        change_back = has_crossed(step - 1) & (step > 1)
        if not (change | change_back).any():
            break
        step += change.astype(np.int64) - change_back
    # The point before it, which lies above, since steep edges point down.
    y: NDArray[np.int64] = edges.y[edge] + step - 1
    return y


def _odd_ones(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of sorted values those that stand there an odd number of times, once each."""
    is_new = values[1:] != values[:-1]
    if is_new.all():
        return values  # Most polygons, in half the time.
    starts = np.flatnonzero(np.append(True, is_new))
    is_odd = np.diff(starts, append=len(values)) % 2 == 1
    odd: NDArray[np.int64] = values[starts[is_odd]]
    return odd
