"""Boxes that follow their image."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from readers.store.shapes.affine import map_boxes


def move_boxes(
    boxes: NDArray[np.float32], affine: ArrayLike, size: tuple[int, int], *, clip: bool = True
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Where the boxes of an image are after an affine.

    Args:
        boxes: (box, 4) float32, x0 y0 x1 y1 in pixels.
        affine: (2, 3), from points of the image to points of the result. Where it turns, a box
            becomes the upright one around the turned one.
        size: (height, width) of the result.
        clip: Whether to cut boxes off at the border of the result.

    Returns:
        New boxes, (box, 4) float32 with x0 <= x1 and y0 <= y1, and for each whether any of it is
        left: whether the part inside the result has an area.

    Raises:
        ValueError: `boxes` or `affine` has another shape.
    """
    moved = map_boxes(boxes, affine).astype(np.float32)
    height, width = size
    limits = np.array([width, height, width, height], np.float32)
    inside = np.clip(moved, np.float32(0), limits)
    kept = (inside[:, 0] < inside[:, 2]) & (inside[:, 1] < inside[:, 3])
    return (inside if clip else moved), kept
