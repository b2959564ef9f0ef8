"""What there is to know of each op: one row each, found by the class of its description.

A new op is a description in `readers.ops.operations`, its numbers in `readers.chance.streams` and a
row here. What carries ops out asks the row, and knows no op by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from readers.chance import streams
from readers.chance.streams import Numbers, Span
from readers.ops import moves
from readers.ops import windows as places
from readers.ops.moves import Affines, Size
from readers.ops.operations import (
    CenterCrop,
    ColorJitter,
    Fill,
    Letterbox,
    Pad,
    RandomAffine,
    RandomFlip,
    RandomResizedCrop,
    RandomRotation90,
    RandomVerticalFlip,
    Resize,
)
from readers.ops.windows import Rows

WARPED_SIDE_MAX = 2**15 - 2
"""Of what OpenCV's warpAffine reads and writes."""

COLOR_ORDERS = tuple(permutations(range(3)))
"""Orders of brightness (0), contrast (1) and saturation (2)."""


@dataclass(frozen=True, kw_only=True)
class SizeRow:
    """An op that fixes the size of the result.

    Attributes:
        place: Description, sizes of images (sample, 2), size of the result and numbers -> windows
            and placements, each (sample, 4).
        spans: Of the numbers that it needs.
        is_whole: Whether every placement is the whole result.
        pad: Description -> value of pixels beside a placement.
        is_exact: Description -> whether every pixel of a window counts.
    """

    place: Callable[[Any, Rows, Size, Numbers], tuple[Rows, Rows]]
    spans: tuple[Span, ...] = ()
    is_whole: bool = False
    pad: Callable[[Any], int] = lambda op: 0
    is_exact: Callable[[Any], bool] = lambda op: bool(op.scaling == "exact")


@dataclass(frozen=True, kw_only=True)
class MoveRow:
    """An op that takes a canvas to the next one, by an affine for each sample.

    Attributes:
        affines: Description, size of the canvas, count of samples and numbers -> the affines.
        spans: Of the numbers that it needs.
        is_exact: Whether it takes whole pixels to whole pixels.
        fill: Description -> value of pixels beside the canvas. None: nothing lies beside it.
        size: Description and size of the canvas -> size of the next.
        problem: Description and size of the canvas -> why it cannot work there, or None.
    """

    affines: Callable[[Any, Size, int, Numbers], Affines]
    spans: tuple[Span, ...] = ()
    is_exact: bool = True
    fill: Callable[[Any], Fill | None] = lambda op: None
    size: Callable[[Any, Size], Size] = lambda op, size: size
    problem: Callable[[Any, Size], str | None] = lambda op, size: None


@dataclass(frozen=True, kw_only=True)
class ColorRow:
    """An op that changes pixels where they are.

    Attributes:
        draw: Description and numbers -> (sample, 4): factors of brightness, contrast and
            saturation, and which of `COLOR_ORDERS`.
        spans: Of the numbers that it needs.
        problem: Count of channels and dtype -> why it cannot work on such images, or None.
    """

    draw: Callable[[Any, Numbers], NDArray[np.float64]]
    spans: tuple[Span, ...]
    problem: Callable[[int, str], str | None]


def _cropped(op: RandomResizedCrop, sizes: Rows, size: Size, numbers: Numbers) -> tuple[Rows, Rows]:
    heights, widths = sizes.T
    corner, tries = numbers[streams.CROP_PLACE], numbers[streams.CROP_TRIES]
    windows = places.random_windows(heights, widths, op.scale, op.ratio, corner, tries)
    return windows, _whole(len(sizes), size)


def _cut(op: CenterCrop, sizes: Rows, size: Size, numbers: Numbers) -> tuple[Rows, Rows]:
    limits = np.array(size)
    sides = np.minimum(sizes, limits)
    return places.middles(sides, sizes), places.middles(sides, limits)


def _resized(op: Resize, sizes: Rows, size: Size, numbers: Numbers) -> tuple[Rows, Rows]:
    return places.whole_windows(*sizes.T), _whole(len(sizes), size)


def _letterboxed(op: Letterbox, sizes: Rows, size: Size, numbers: Numbers) -> tuple[Rows, Rows]:
    heights, widths = sizes.T
    sides = places.letterbox_sides(heights, widths, size)
    return places.whole_windows(heights, widths), places.middles(sides, np.array(size))


def _whole(count: int, size: Size) -> Rows:
    return np.tile(np.array([0, 0, *size], np.int64), (count, 1))


def _flipped(op: RandomFlip, size: Size, count: int, numbers: Numbers) -> Affines:
    return moves.flips(numbers[streams.FLIP][:, 0] < op.p, size, 0)


def _flipped_down(op: RandomVerticalFlip, size: Size, count: int, numbers: Numbers) -> Affines:
    return moves.flips(numbers[streams.VERTICAL_FLIP][:, 0] < op.p, size, 1)


def _turned(op: RandomRotation90, size: Size, count: int, numbers: Numbers) -> Affines:
    # One number says both whether and how far: below p, it is uniform in [0, p).
    drawn = numbers[streams.QUARTER_TURNS][:, 0]
    is_turned = drawn < op.p
    share = np.where(is_turned, drawn, 0) / (op.p or 1)
    # A quotient just below 1 may be rounded up to 1.
    at = np.minimum((share * len(op.turns)).astype(np.int64), len(op.turns) - 1)
    return moves.quarter_turns(np.where(is_turned, np.array(op.turns)[at], 0), size)


def _cannot_turn(op: RandomRotation90, size: Size) -> str | None:
    if size[0] == size[1] or not any(turn % 2 for turn in op.turns):
        return None
    return (
        f"RandomRotation90 needs a square, and works on {size[0]} x {size[1]} (height x width): "
        "a quarter turn would change the size. Make it square, or pass turns=(0, 2)"
    )


def _warped(op: RandomAffine, size: Size, count: int, numbers: Numbers) -> Affines:
    assert isinstance(op.degrees, tuple)
    assert op.shear is None or isinstance(op.shear, tuple)
    drawn = numbers[streams.AFFINE].T
    across, down = (0.0, 0.0) if op.translate is None else op.translate
    low_x, high_x, low_y, high_y = (*(op.shear or (0.0, 0.0)), 0.0, 0.0)[:4]
    far_x, far_y = across * size[1], down * size[0]
    return moves.about_the_middle(
        size,
        degrees=_between(op.degrees, drawn[0]),
        right=np.rint(_between((-far_x, far_x), drawn[1])),
        down=np.rint(_between((-far_y, far_y), drawn[2])),
        scale=_between(op.scale or (1.0, 1.0), drawn[3]),
        shear_x=_between((low_x, high_x), drawn[4]),
        shear_y=_between((low_y, high_y), drawn[5]),
    )


def _cannot_warp(op: RandomAffine, size: Size) -> str | None:
    if max(size) <= WARPED_SIDE_MAX:
        return None
    return (
        f"RandomAffine works on sides in [1, {WARPED_SIDE_MAX + 1}); "
        f"got {size[0]} x {size[1]} (height x width)"
    )


def _padded(op: Pad, size: Size, count: int, numbers: Numbers) -> Affines:
    left, top, _, _ = _sides(op)
    return moves.shifts(count, left, top)


def _padded_size(op: Pad, size: Size) -> Size:
    left, top, right, bottom = _sides(op)
    return size[0] + top + bottom, size[1] + left + right


def _sides(op: Pad) -> tuple[int, int, int, int]:
    assert isinstance(op.padding, tuple)
    assert len(op.padding) == 4, "a description has made its padding four sides"
    return op.padding


def _jittered(op: ColorJitter, numbers: Numbers) -> NDArray[np.float64]:
    drawn = numbers[streams.COLORS].copy()
    for column, ends in enumerate((op.brightness, op.contrast, op.saturation)):
        assert isinstance(ends, tuple)
        drawn[:, column] = _between(ends, drawn[:, column])
    drawn[:, 3] = np.floor(drawn[:, 3] * len(COLOR_ORDERS))
    return drawn


def _cannot_jitter(channel_count: int, dtype: str) -> str | None:
    if dtype == "uint8" and channel_count in (1, 3, 4):
        return None
    return (
        "ColorJitter works on gray, RGB and RGBA images of uint8 (1, 3 or 4 channels); "
        f"got {channel_count} of {dtype}. Leave it out"
    )


def _between(ends: tuple[float, float], numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Numbers in [0, 1) -> [low, high)."""
    return ends[0] + (ends[1] - ends[0]) * numbers


SIZE_ROWS: dict[type, SizeRow] = {
    RandomResizedCrop: SizeRow(
        place=_cropped, spans=(streams.CROP_PLACE, streams.CROP_TRIES), is_whole=True
    ),
    CenterCrop: SizeRow(place=_cut, is_exact=lambda op: True),  # Pixels stay as large as they are.
    Resize: SizeRow(place=_resized, is_whole=True),
    Letterbox: SizeRow(place=_letterboxed, pad=lambda op: int(op.pad)),
}

MOVE_ROWS: dict[type, MoveRow] = {
    RandomFlip: MoveRow(affines=_flipped, spans=(streams.FLIP,)),
    RandomVerticalFlip: MoveRow(affines=_flipped_down, spans=(streams.VERTICAL_FLIP,)),
    RandomRotation90: MoveRow(
        affines=_turned, spans=(streams.QUARTER_TURNS,), problem=_cannot_turn
    ),
    RandomAffine: MoveRow(
        affines=_warped,
        spans=(streams.AFFINE,),
        is_exact=False,
        fill=lambda op: op.fill,
        problem=_cannot_warp,
    ),
    Pad: MoveRow(affines=_padded, fill=lambda op: op.fill, size=_padded_size),
}

COLOR_ROWS: dict[type, ColorRow] = {
    ColorJitter: ColorRow(draw=_jittered, spans=(streams.COLORS,), problem=_cannot_jitter),
}

KINDS: tuple[type, ...] = (*SIZE_ROWS, *MOVE_ROWS, *COLOR_ROWS)
"""Classes of all descriptions, in the order in which messages list them."""
