"""Which part of each image a batch takes, and where in the result it goes. No pixels here.

A window is a part of an image, a placement a part of the result: both are rows of (top, left,
height, width) in pixels, int64, one for each sample.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


def random_windows(
    heights: Rows,
    widths: Rows,
    scale: tuple[float, float],
    ratio: tuple[float, float],
    corner: NDArray[np.float64],
    tries: NDArray[np.float64],
) -> Rows:
    """The windows of a `RandomResizedCrop`.

    Args:
        heights: Of the images, (sample,).
        widths: Of the images, (sample,).
        scale: See `RandomResizedCrop`.
        ratio: See `RandomResizedCrop`.
        corner: Numbers in [0, 1) for top and left, (sample, 2).
        tries: Numbers in [0, 1) for area and ratio by turns, (sample, 2 * try).

    Returns:
        (sample, 4).
    """
    # All tries of all samples at once. To draw the later ones only for the quarter of samples that
    # need them takes as long for a batch of 256, and a second way through this code.
    sides, fits = _first_that_fits(heights, widths, scale, ratio, tries)
    sides = np.where(fits[:, None], sides, _widest_allowed(heights, widths, ratio))
    room = np.stack([heights, widths], axis=1) - sides
    # A number below 1 times a whole number stays below the whole number when it is rounded.
    anywhere = (corner * (room + 1)).astype(np.int64)
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


LEFT_RIGHT, UP_DOWN, TRANSPOSED = 1, 2, 4
"""Bits of an orientation: rows and columns change places first, then left and right, up and down.

All eight ways in which a rectangle lies on the grid of pixels are a number in [0, 8).
"""


def affines_of(windows: Rows, placements: Rows, orientations: Rows) -> NDArray[np.float64]:
    """(sample, 2, 3) float64: from points of an image to points of the result.

    Coordinates are continuous: pixel i covers [i, i + 1).

    Args:
        windows: (sample, 4).
        placements: (sample, 4), after turning.
        orientations: (sample,), how windows lie in their placements.
    """
    transposed = (orientations & TRANSPOSED) != 0
    affines = np.zeros((len(windows), 2, 3))
    rows = np.arange(len(windows))
    # x of the result comes from x of the image, or from y where it is transposed; y likewise.
    window: NDArray[Any] = windows.astype(np.float64)
    for axis, bit in ((0, LEFT_RIGHT), (1, UP_DOWN)):
        mirrored = (orientations & bit) != 0
        source = np.where(transposed, 1 - axis, axis)
        starts, extents = window[rows, 1 - source], window[rows, 3 - source]
        scales = placements[:, 3 - axis] / extents
        scales = np.where(mirrored, -scales, scales)
        corners = placements[:, 1 - axis] + np.where(mirrored, placements[:, 3 - axis], 0)
        affines[rows, axis, source] = scales
        affines[:, axis, 2] = corners - scales * starts
    return affines
