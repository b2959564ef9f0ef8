"""Boxes that follow their images, each by an affine of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from readers.ops.moves import Affines


def hulls(boxes: NDArray[Any], affines: Affines) -> NDArray[np.float64]:
    """The upright boxes around boxes that are taken somewhere.

    Args:
        boxes: (box, 4), x0 y0 x1 y1.
        affines: (box, 2, 3).

    Returns:
        (box, 4) float64 with x0 <= x1 and y0 <= y1.
    """
    # Of all four corners, a box's x sum one of two products with x and one of two with y.
    by_x = boxes[:, None, 0::2] * affines[:, :, 0:1]
    by_y = boxes[:, None, 1::2] * affines[:, :, 1:2]
    starts = by_x.min(axis=2) + by_y.min(axis=2) + affines[:, :, 2]
    ends = by_x.max(axis=2) + by_y.max(axis=2) + affines[:, :, 2]
    return np.concatenate([starts, ends], axis=1)


def cut(
    boxes: NDArray[np.float64], limits: NDArray[Any]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Boxes without what sticks out.

    Args:
        boxes: (box, 4), x0 y0 x1 y1.
        limits: (4,) or (box, 4): the box that each is cut to.

    Returns:
        The boxes, and for each whether any of it is left, (box,): whether it has an area, also in
        float32.
    """
    limits = np.broadcast_to(limits, boxes.shape)
    corners = boxes.reshape(-1, 2, 2)
    inside = np.clip(corners, limits[:, None, :2], limits[:, None, 2:]).reshape(-1, 4)
    # As they are handed on: rounding may leave nothing of a sliver.
    rounded = inside.astype(np.float32)
    return inside, (rounded[:, 0] < rounded[:, 2]) & (rounded[:, 1] < rounded[:, 3])
