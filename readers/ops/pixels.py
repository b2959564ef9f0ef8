"""One image, or one mask, into its place: resized and laid on the grid, or warped off it.

All of it writes into memory that it is given, by OpenCV.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from readers.ops.moves import Size
from readers.ops.windows import LEFT_RIGHT, TRANSPOSED, UP_DOWN

Pixels = NDArray[Any]
"""(height, width, channel) uint8 or uint16."""

_FLIP_CODES = {LEFT_RIGHT: 1, UP_DOWN: 0, LEFT_RIGHT | UP_DOWN: -1}
_TRANSPOSED_BYTES = frozenset((1, 2, 3, 4, 6, 8, 12, 16, 24, 32))
"""Of pixels that OpenCV transposes."""

_SPACING_MAX = 1.125
"""Pixels of a reduced picture from one point that is read to the next, at most: else some would be
skipped. It is what a build allows itself where it reads twice the size that is wanted."""

_HALVED = 3.375
"""How many times the wanted size a picture is from which its pixels are first joined 2 x 2, which
takes less time than to read so many points. From 2.5 on it would cost 1.2 dB."""

_WHOLE = 255
"""Of a pixel that is covered by all of it."""


def lay(window: Pixels, place: Sequence[int], pad: int, out: Pixels) -> None:
    """Write a window, resized and turned on the grid of pixels, and what lies beside it.

    Args:
        window: What is written.
        place: Top, bottom, left and right of where in `out`; OpenCV's number of how it is resized;
            and how it lies there, see `readers.ops.windows.TRANSPOSED`.
        pad: Value of the pixels beside it.
        out: Written whole.
    """
    top, bottom, left, right, method, orientation = place
    inner = out
    height, width = bottom - top, right - left
    if width != out.shape[1]:
        # All of it: a third of the time that the two strips beside the image take, each of
        # which is many short rows.
        out.fill(pad)
        inner = out[top:bottom, left:right]
    elif height != out.shape[0]:
        out[:top] = pad
        out[bottom:] = pad
        inner = out[top:bottom]
    if not orientation:
        cv2.resize(window, (width, height), inner, 0, 0, method)
    elif orientation & TRANSPOSED:
        _lay_transposed(window, method, orientation, inner)
    elif window.shape == inner.shape:
        cv2.flip(window, _FLIP_CODES[orientation], inner)
    else:
        # Flipped in its place, while it is in the cache: a twentieth of the resize, where
        # flipping from one array to another takes half of it.
        cv2.resize(window, (width, height), inner, 0, 0, method)
        cv2.flip(inner, _FLIP_CODES[orientation], inner)


def _lay_transposed(window: Pixels, method: int, orientation: int, place: Pixels) -> None:
    height, width, channel_count = place.shape
    resized = cv2.resize(window, (height, width), interpolation=method)
    resized = resized.reshape(width, height, channel_count)
    if channel_count * place.itemsize in _TRANSPOSED_BYTES:
        cv2.transpose(resized, place)
    else:
        place[:] = resized.transpose(1, 0, 2)
    if orientation != TRANSPOSED:
        cv2.flip(place, _FLIP_CODES[orientation - TRANSPOSED], place)


def lay_ids(
    window: NDArray[Any],
    placement: Sequence[int],
    orientation: int,
    fill: int,
    out: NDArray[Any],
) -> None:
    """Write the window of a mask as `lay` writes an image: each pixel is the nearest one's id."""
    top, bottom, left, right = placement
    out.fill(fill)
    height, width = bottom - top, right - left
    if orientation & TRANSPOSED:
        window = window.T
    # Flips come after the resize: what is read from the end is written from the start.
    rows = _nearest(window.shape[0], height)[:: -1 if orientation & UP_DOWN else 1]
    columns = _nearest(window.shape[1], width)[:: -1 if orientation & LEFT_RIGHT else 1]
    out[top:bottom, left:right] = window[rows[:, None], columns]


def nearest_ids(window: NDArray[Any], size: Size) -> NDArray[Any]:
    """A mask at another size."""
    return window[_nearest(window.shape[0], size[0])[:, None], _nearest(window.shape[1], size[1])]


def _nearest(source: int, target: int) -> NDArray[np.int64]:
    """For each of `target` pixels, which of `source` pixels its middle lies in."""
    # Whole numbers, so that every machine rounds alike: floor((2 i + 1) source / (2 target)).
    return (2 * np.arange(target) + 1) * source // (2 * target)


def warp(
    source: Pixels,
    sampling: NDArray[np.float64],
    out: Pixels,
    fill: Sequence[int] | None = None,
    method: int = cv2.INTER_LINEAR,
) -> None:
    """Write an image wherever an affine takes it.

    Args:
        source: Of sides up to `WARPED_SIDE_MAX`.
        sampling: (2, 3), from indices of pixels of `out` to indices of the source's.
        out: Written whole.
        fill: Value of what lies beside the source, four numbers; pixels of its border are mixed
            with it by how much they cover. None goes on with the source's outermost pixels.
        method: How pixels are read: OpenCV's INTER_LINEAR or INTER_NEAREST.
    """
    border = cv2.BORDER_REPLICATE if fill is None else cv2.BORDER_CONSTANT
    height, width = out.shape[:2]
    flags = method | cv2.WARP_INVERSE_MAP
    cv2.warpAffine(source, sampling, (width, height), out, flags, border, fill or (0,))


def averaged(block: Pixels, place: Sequence[float], size: Size) -> Pixels:
    """A window of a reduced picture, scaled to its size.

    Interpolated at several points of each pixel of the result, then averaged.

    Args:
        block: The pixels that are needed, (height, width, channel).
        place: Where the window lies in it; see `readers.ops.reduced`.
        size: (height, width) of the result.
    """
    height, width = size
    top, left, tall, wide = place
    while min(tall / height, wide / width) > _HALVED:
        block = _halved(block)
        top, left, tall, wide = top / 2, left / 2, tall / 2, wide / 2
    rows = height * math.ceil(tall / height / _SPACING_MAX)
    columns = width * math.ceil(wide / width / _SPACING_MAX)
    down, across = tall / rows, wide / columns
    sampling = np.array([[across, 0.0, left + across / 2 - 0.5], [0.0, down, top + down / 2 - 0.5]])
    points = np.empty((rows, columns, block.shape[2]), block.dtype)
    warp(block, sampling, points)
    # OpenCV drops the axis of a single channel.
    found: Pixels = cv2.resize(points, (width, height), interpolation=cv2.INTER_AREA)
    return found.reshape(height, width, block.shape[2])


def _halved(pixels: Pixels) -> Pixels:
    """Each 2 x 2 pixels as their mean; the last ones go on where there is an odd number."""
    height, width, channel_count = pixels.shape
    if height % 2 or width % 2:
        pixels = cv2.copyMakeBorder(pixels, 0, height % 2, 0, width % 2, cv2.BORDER_REPLICATE)
    size = (width + 1) // 2, (height + 1) // 2
    found: Pixels = cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)
    return found.reshape(size[1], size[0], channel_count)


def coverage(size: Size, sampling: NDArray[np.float64], out_size: Size) -> NDArray[np.uint8]:
    """How much of each pixel a canvas of some size covers, in [0, 255].

    Args:
        size: The canvas's size.
        sampling: (2, 3), from indices of pixels of the result to indices of the canvas'.
        out_size: The result's out size.
    """
    covered = np.empty(out_size, np.uint8)
    warp(np.full(size, _WHOLE, np.uint8), sampling, covered, (0, 0, 0, 0))
    return covered


def fill_beside(out: Pixels, covered: NDArray[np.uint8], fill: int | NDArray[Any]) -> None:
    """Mix pixels with a value where they are not covered, by how much they are."""
    # Two ways: few pixels are mixed, and to write many by a mask takes numpy thirty times as long.
    uncovered = (covered == 0).view(np.uint8)
    is_border = np.flatnonzero(covered - np.uint8(1) < _WHOLE - 1)  # 0 becomes 255.
    rows, columns = np.divmod(is_border, covered.shape[1])
    shares = covered[rows, columns].astype(np.uint32)[:, None]
    mixed = out[rows, columns].astype(np.uint32) * shares
    mixed += np.asarray(fill, np.uint32) * (_WHOLE - shares)
    out[rows, columns] = (mixed + _WHOLE // 2) // _WHOLE
    cv2.copyTo(np.full(out.shape, fill, out.dtype), uncovered, out)


def fill_around(out: NDArray[Any], inner: Sequence[int], fill: int | NDArray[Any]) -> None:
    """Write a value beside a rectangle (top, bottom, left, right) of an image or a mask."""
    top, bottom, left, right = inner
    out[:top] = fill
    out[bottom:] = fill
    out[top:bottom, :left] = fill
    out[top:bottom, right:] = fill
