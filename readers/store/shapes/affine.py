"""Affines between pixel grids: a raw file's, the stored image's, a batch's.

An affine is a (2, 3) array that maps points `x' = a x + b y + c`, `y' = d x + e y + f`. Coordinates
are continuous: pixel i covers [i, i + 1), so a picture spans [0, width] x [0, height]. A sample's
`transform` is one, from the raw file's grid to the stored image; `invert` leads back:

    >>> import numpy as np
    >>> transform = np.array([[0.5, 0, 0], [0, 0.5, 16]])  # Half the size, 16 pixels lower.
    >>> map_boxes(np.array([[10.0, 20, 30, 40]]), invert(transform)).tolist()
    [[20.0, 8.0, 60.0, 48.0]]
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Affine: TypeAlias = NDArray[np.float64]
"""(2, 3) float64, from continuous pixel coordinates to continuous pixel coordinates."""


def as_affine(affine: ArrayLike) -> Affine:
    """An affine as float64.

    Raises:
        ValueError: It is not (2, 3).
    """
    matrix = np.asarray(affine, np.float64)
    if matrix.shape != (2, 3):
        raise ValueError(f"affine must be (2, 3); got {matrix.shape}")
    return matrix


def compose(first: ArrayLike, second: ArrayLike) -> Affine:
    """The affine that does `first` and then `second`."""
    first, second = as_affine(first), as_affine(second)
    return np.column_stack(
        [second[:, :2] @ first[:, :2], second[:, :2] @ first[:, 2] + second[:, 2]]
    )


def invert(affine: ArrayLike) -> Affine:
    """The affine that undoes `affine`: of a sample's `transform`, from stored to raw pixels.

    Raises:
        ValueError: `affine` maps the plane onto a line or a point, and cannot be undone.
    """
    matrix = as_affine(affine)
    try:
        linear = np.linalg.inv(matrix[:, :2])
    except np.linalg.LinAlgError as error:
        raise ValueError(f"an affine that can be undone was expected; got {affine!r}") from error
    return np.column_stack([linear, -linear @ matrix[:, 2]])


def map_points(points: ArrayLike, affine: ArrayLike) -> NDArray[np.float64]:
    """(..., 2) x y points where the affine takes them, as float64."""
    matrix = as_affine(affine)
    return np.asarray(points, np.float64) @ matrix[:, :2].T + matrix[:, 2]


def map_boxes(boxes: ArrayLike, affine: ArrayLike) -> NDArray[np.float64]:
    """(box, 4) x0 y0 x1 y1 boxes where the affine takes them, as float64.

    Where it turns, a box becomes the upright one around the turned one.

    Raises:
        ValueError: `boxes` or `affine` has another shape.
    """
    corners = np.asarray(boxes, np.float64)
    matrix = as_affine(affine)
    if corners.ndim != 2 or corners.shape[1] != 4:
        raise ValueError(f"boxes must be (box, 4), x0 y0 x1 y1; got {corners.shape}")
    # Of all four corners, a box's x sum one of two products with x and one of two with y.
    by_x: NDArray[Any] = corners[:, None, 0::2] * matrix[:, 0:1]
    by_y: NDArray[Any] = corners[:, None, 1::2] * matrix[:, 1:2]
    starts = by_x.min(axis=2) + by_y.min(axis=2) + matrix[:, 2]
    ends = by_x.max(axis=2) + by_y.max(axis=2) + matrix[:, 2]
    return np.concatenate([starts, ends], axis=1)
