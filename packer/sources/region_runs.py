"""A mask of a part of a picture -> runs over all of it, and the box around its pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from packer.items.annotations import pack_runs
from packer.sources.turned_boxes import Box

PIXELS_MAX = 2**28
"""Of a picture that runs are drawn on."""


def check_region(box: tuple[int, int, int, int], size: tuple[int, int]) -> None:
    """See that a part of a picture can have a mask.

    Args:
        box: Its left, top, width and height.
        size: (width, height) of the picture.

    Raises:
        ValueError: The picture is too large, or the part is not inside of it.
    """
    left, top, width, height = box
    if size[0] * size[1] > PIXELS_MAX:
        raise ValueError(
            f"a mask on a picture of {size[0]}x{size[1]}, expected at most {PIXELS_MAX} pixels"
        )
    is_inside = 0 <= left <= left + width <= size[0] and 0 <= top <= top + height <= size[1]
    if width < 1 or height < 1 or not is_inside:
        raise ValueError(
            f"a mask of {width}x{height} at {left}, {top}, expected inside of {size[0]}x{size[1]}"
        )


def region_runs(
    is_on: NDArray[Any], left: int, top: int, size: tuple[int, int]
) -> tuple[Box, bytes]:
    """The box around the pixels of a mask, and its packed runs over the columns of the picture.

    Args:
        is_on: (height, width) bool, of a part that lies inside of the picture.
        left: Where the part begins.
        top: Where the part begins.
        size: (width, height) of the picture.

    Raises:
        ValueError: The mask has no pixel.
    """
    columns, rows = np.nonzero(is_on.T)
    if not len(rows):
        raise ValueError("a mask without a pixel")
    pixels = (left + columns) * size[1] + top + rows  # Rising, as they are counted in columns.
    breaks = np.flatnonzero(np.diff(pixels) != 1)
    starts = pixels[np.append(0, breaks + 1)]
    ends = pixels[np.append(breaks, len(pixels) - 1)] + 1
    flips = np.stack((starts, ends), axis=1).ravel()
    counts = np.diff(flips, prepend=0, append=size[0] * size[1])
    x0, y0 = left + int(columns.min()), top + int(rows.min())
    x1, y1 = left + int(columns.max()) + 1, top + int(rows.max()) + 1
    return (float(x0), float(y0), float(x1), float(y1)), pack_runs(counts)
