"""A mask on the grid of the image that is stored."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from packer.pictures.geometry import FitPlan
from readers.store.errors import ImageError
from readers.store.pictures.orientation import turn_upright, upright_size


def place_mask(ids: NDArray[Any], plan: FitPlan, orientation: int, fill: int) -> NDArray[Any]:
    """A mask on the grid of the image that is stored.

    Each pixel takes the one value that lies under its middle, so that no value arises that was not
    there. What lies under the middle is what `plan.affine` says.

    Args:
        ids: (height, width), of the size of the picture upright, or as its file stores it. Only
            in the latter case, where the two differ, it is turned with the picture.
        plan: The picture's plan.
        orientation: EXIF orientation of the picture's file, in [1, 9).
        fill: Value of pixels outside of the picture: `field.ignore`, or 0 where that is None.

    Returns:
        (height, width) as `plan.final` says, of the dtype of `ids`, C-contiguous.

    Raises:
        ImageError: The mask's size is neither the picture's nor that before it was turned.
    """
    # The affine's scale is the quotient of whole numbers far below 2**53.
    width = round(plan.resized[0] / plan.affine[0, 0])
    height = round(plan.resized[1] / plan.affine[1, 1])
    if ids.shape != (height, width) and ids.shape == upright_size(height, width, orientation):
        ids = turn_upright(np.ascontiguousarray(ids)[..., None], orientation)[..., 0]
    if ids.shape != (height, width):
        raise ImageError(
            f"the mask is {ids.shape[1]}x{ids.shape[0]} pixels and its picture {width}x{height}; "
            "expected the same size"
        )
    if plan.resized == plan.final == (width, height):
        return np.ascontiguousarray(ids)
    x, columns = _sources(width, plan.resized[0], plan.offset[0], plan.final[0])
    y, rows = _sources(height, plan.resized[1], plan.offset[1], plan.final[1])
    placed = ids.take(rows, axis=0).take(columns, axis=1)
    if placed.shape == (plan.final[1], plan.final[0]):
        return np.ascontiguousarray(placed)
    padded = np.full((plan.final[1], plan.final[0]), fill, ids.dtype)
    padded[y : y + placed.shape[0], x : x + placed.shape[1]] = placed
    return padded


def _sources(original: int, resized: int, offset: int, final: int) -> tuple[int, NDArray[np.int64]]:
    """Along one axis: the first stored pixel that shows the picture, and the pixel each shows."""
    first = max(0, offset)
    shown = np.arange(first, min(final, offset + resized), dtype=np.int64) - offset
    # The middle of pixel i lies at (i + 1/2) * original / resized. In whole numbers, since where
    # it falls between two pixels every machine has to take the same one.
    return first, (2 * shown + 1) * original // (2 * resized)


# What the file holds.
