"""Windows of pictures that were decoded at a part of their size.

A window begins and ends between pixels of the reduced picture, and stays where it is: it is read
there, so that pixels lie as exactly as those of a whole picture do, beside boxes and masks that
know nothing of it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from readers.ops.windows import Rows
from readers.store.pictures.reduction import REDUCED_MARGIN, REDUCTIONS, reduced_side


class ReducedWindow(NamedTuple):
    """Where a window is in a reduced picture.

    Attributes:
        block: Top, left, height and width of the pixels that are needed, whole ones.
        place: Top, left, height and width of the window within the block, between pixels.
    """

    block: tuple[int, int, int, int]
    place: tuple[float, float, float, float]


def reductions(windows: Rows, sides: Rows) -> NDArray[np.int64]:
    """By how much both sides of each picture may be divided before its window is read: 1, 2, 4, 8.

    Args:
        windows: (sample, 4): top, left, height and width of each window.
        sides: (sample, 2): height and width that it is scaled to.
    """
    found = np.ones(len(windows), np.int64)
    for factor in sorted(REDUCTIONS):
        is_large = (windows[:, 2:] >= REDUCED_MARGIN * factor * sides).all(axis=1)
        found[is_large] = factor
    return found


def reduced_window(
    window: tuple[int, ...], size: tuple[int, int], factor: int, starts: tuple[int, int] = (0, 0)
) -> ReducedWindow:
    """Where a window is in a reduced picture.

    Args:
        window: Top, left, height and width in pixels of the picture.
        size: (height, width) of the picture.
        factor: By how much its sides are divided.
        starts: Where the reduced picture begins in it; see `reduced_starts`.
    """
    sides = zip(window[:2], window[2:], size, starts, strict=True)
    (top, height, y), (left, width, x) = (_pixels(*side, factor) for side in sides)
    place = (y, x, window[2] / factor, window[3] / factor)
    return ReducedWindow((top, left, height, width), place)


def _pixels(first: int, extent: int, side: int, start: int, factor: int) -> tuple[int, int, float]:
    """Along one side: the first pixel that is needed, how many, and where the window begins."""
    begin, end = (first - start) / factor, (first + extent - start) / factor
    # The middles of two pixels lie around a point that is read, so one more on either side.
    low = max(0, math.floor(begin) - 1)
    high = min(reduced_side(side, factor), math.ceil(end) + 1)
    return low, high - low, begin - low
