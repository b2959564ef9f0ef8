"""Which part of each image a batch takes, and where in the result it goes. No pixels here.

A window is a part of an image, a placement a part of the result: both are rows of (top, left,
height, width) in pixels, int64, one for each sample.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

# NOTE [ positions of random numbers ]
# Each op reads its numbers at positions of its own, so that what is drawn for one does not depend
# on which others there are. Positions are never given to another use.
#
#     0          RandomResizedCrop: top
#     1          RandomResizedCrop: left
#     2          RandomFlip
#     3          not in use
#     4 + 2 k    RandomResizedCrop: area of try k, in [0, 10)
#     5 + 2 k    RandomResizedCrop: width over height of try k
TOP, LEFT, FLIP, TRIES = 0, 1, 2, 4
TRY_COUNT = 10
NUMBER_COUNT = TRIES + 2 * TRY_COUNT

Rows = NDArray[np.int64]


def random_windows(
    heights: Rows,
    widths: Rows,
    scale: tuple[float, float],
    ratio: tuple[float, float],
    numbers: NDArray[np.float64],
) -> Rows:
    """The windows of a `RandomResizedCrop`.

    Args:
        heights: Of the images, (sample,).
        widths: Of the images, (sample,).
        scale: See `RandomResizedCrop`.
        ratio: See `RandomResizedCrop`.
        numbers: Uniform in [0, 1), (sample, `NUMBER_COUNT`), by position.

    Returns:
        (sample, 4).
    """
    # All tries of all samples at once. To draw the later ones only for the quarter of samples that
    # need them takes as long for a batch of 256, and a second way through this code.
    sides, fits = _first_that_fits(heights, widths, scale, ratio, numbers[:, TRIES:])
    sides = np.where(fits[:, None], sides, _widest_allowed(heights, widths, ratio))
    room = np.stack([heights, widths], axis=1) - sides
    # A number below 1 times a whole number stays below the whole number when it is rounded.
    anywhere = (numbers[:, TOP : LEFT + 1] * (room + 1)).astype(np.int64)
    return np.concatenate([np.where(fits[:, None], anywhere, room // 2), sides], axis=1)


def _first_that_fits(
    heights: Rows,
    widths: Rows,
    scale: tuple[float, float],
    ratio: tuple[float, float],
    tries: NDArray[np.float64],
) -> tuple[Rows, NDArray[np.bool_]]:
    """The first of each sample's tries that fits into its image.

    Args:
        heights: (sample,).
        widths: (sample,).
        scale: Of areas.
        ratio: Of width over height.
        tries: (sample, 2 * try): for area and ratio by turns.

    Returns:
        (sample, 2) height and width, and whether any try fits, (sample,).
    """
    low, high = np.log(ratio)
    areas = (heights * widths)[:, None] * (scale[0] + tries[:, 0::2] * (scale[1] - scale[0]))
    # The one step that is not exactly rounded: its last bit may differ between processors, and
    # with it, once in about 10**12 samples, a side by a pixel.
    ratios = np.exp(low + tries[:, 1::2] * (high - low))
    sides = np.rint(np.sqrt(np.stack([areas / ratios, areas * ratios], axis=2))).astype(np.int64)
    limits = np.stack([heights, widths], axis=1)[:, None]
    fit = ((sides >= 1) & (sides <= limits)).all(axis=2)
    chosen = fit.argmax(axis=1)
    rows = np.arange(len(heights))
    return sides[rows, chosen], fit[rows, chosen]


def _widest_allowed(heights: Rows, widths: Rows, ratio: tuple[float, float]) -> Rows:
    """(sample, 2) height and width of the largest part whose proportions `ratio` allows."""
    proportions = widths / heights
    tall = np.where(proportions < ratio[0], np.rint(widths / ratio[0]), heights)
    wide = np.where(proportions > ratio[1], np.rint(heights * ratio[1]), widths)
    # A side of 1 pixel and a steep ratio round to nothing.
    sides: Rows = np.maximum(np.stack([tall, wide], axis=1), 1).astype(np.int64)
    return sides


def whole_windows(heights: Rows, widths: Rows) -> Rows:
    """The whole of each image, (sample, 4)."""
    zeros = np.zeros_like(heights)
    return np.stack([zeros, zeros, heights, widths], axis=1)


def middles(inner: Rows, outer: Rows) -> Rows:
    """The part of sides `inner` in the middle of sides `outer`, the smaller half before it.

    Args:
        inner: Heights and widths, (sample, 2).
        outer: Heights and widths, (sample, 2) or (2,), not smaller.

    Returns:
        (sample, 4).
    """
    return np.concatenate([(outer - inner) // 2, inner], axis=1)


def letterbox_sides(heights: Rows, widths: Rows, size: tuple[int, int]) -> Rows:
    """(sample, 2) height and width of images scaled to fit into `size`.

    Sides are rounded to the nearest pixel, halves up, and are at least 1.
    """
    height, width = size
    # Whole numbers, so that every machine rounds alike.
    by_height = height * widths <= width * heights
    tall = np.where(by_height, height, (2 * heights * width + widths) // (2 * widths))
    wide = np.where(by_height, (2 * widths * height + heights) // (2 * heights), width)
    sides: Rows = np.maximum(np.stack([tall, wide], axis=1), 1)
    return sides


def affines_of(
    windows: NDArray[np.int64], placements: NDArray[np.int64], flips: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """(sample, 2, 3) float64: from points of an image to points of the result.

    Coordinates are continuous: pixel i covers [i, i + 1).
    """
    window: NDArray[Any] = windows.astype(np.float64)
    scales = placements[:, 2:] / window[:, 2:]
    across = np.where(flips, -scales[:, 1], scales[:, 1])
    starts = placements[:, 1] + np.where(flips, placements[:, 3], 0)
    affines = np.zeros((len(windows), 2, 3))
    affines[:, 0, 0] = across
    affines[:, 0, 2] = starts - across * window[:, 1]
    affines[:, 1, 1] = scales[:, 0]
    affines[:, 1, 2] = placements[:, 0] - scales[:, 0] * window[:, 0]
    return affines
