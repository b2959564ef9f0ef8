"""Where a picture's pixels go: sizes and affines, no pixels.

Affines are those of `readers.store.shapes.affine`.

    raw file grid  --orientation_affine-->  upright  --FitPlan.affine-->  stored image
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from packer.recipe import EXACT_FITS, Fit, Recipe, Size
from readers.store.shapes.affine import Affine


@dataclass(frozen=True, eq=False)
class FitPlan:
    """How an upright picture comes to the size that is stored: first resized, then placed.

    Attributes:
        resized: (width, height) that the whole picture is scaled to.
        offset: (left, top) of the resized picture in the final one. Above 0 where it is padded,
            below 0 where it is cut.
        final: (width, height) of what is stored.
        affine: Upright picture -> stored image. Its scale is `resized` over the picture's size,
            exactly, axis by axis.
    """

    resized: tuple[int, int]
    offset: tuple[int, int]
    final: tuple[int, int]
    affine: Affine

    @functools.cached_property
    def stored_affine(self) -> NDArray[np.float32]:
        """`affine` as it is stored."""
        stored = self.affine.astype(np.float32)
        stored.flags.writeable = False
        return stored


@functools.lru_cache(2**12)
def plan_fit(
    width: int, height: int, size: Size | None, fit: Fit, max_side: int | None = None
) -> FitPlan:
    """How an upright picture of width x height pixels comes to `size` in the way of `fit`.

    Sides are rounded to the nearest pixel, halves up, and are at least 1. Where an odd number of
    pixels is padded or cut, the left and top get the smaller half.

    Args:
        width: In pixels, at least 1.
        height: In pixels, at least 1.
        size: Side in pixels that `fit` is about, or (height, width); see `Recipe`. None keeps the
            picture as it is.
        fit: See `Recipe`.
        max_side: Longest side that the result may have, in pixels; at least `size`.

    Raises:
        ValueError: A side or the size is below 1, or `fit` is unknown or not one that brings
            pictures to a rectangle.
    """
    to_height, to_width = size if isinstance(size, tuple) else (size, size)
    for name, value in (
        ("width", width),
        ("height", height),
        ("size", to_height),
        ("size", to_width),
        ("max_side", max_side),
    ):
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1 pixel; got {value!r}")
    if to_width is None or to_height is None:
        resized = final = (width, height)
    elif fit not in get_args(Fit) or (to_width != to_height and fit not in EXACT_FITS):
        raise ValueError(
            f"fit must be one of {', '.join(get_args(Fit))}, and one of {', '.join(EXACT_FITS)} "
            f"for a rectangle; got {fit!r}"
        )
    elif fit == "stretch":
        resized = final = (to_width, to_height)
    else:
        # The side of the picture that comes to the size's, and by which the other follows.
        is_wide = width * to_height > height * to_width
        by_width = is_wide if fit in ("long", "letterbox") else not is_wide
        side, to_side = (width, to_width) if by_width else (height, to_height)
        resized = final = _scaled(width, height, to_side, side)
        if fit in EXACT_FITS:
            final = (to_width, to_height)
    if max_side is not None and max(final) > max_side:
        # Only where pictures keep their aspect: a size that all come to is at most this.
        resized = final = _scaled(width, height, max_side, max(width, height))
    offset = _middle(resized[0], final[0]), _middle(resized[1], final[1])
    affine = fit_affine((width, height), resized, offset)
    affine.flags.writeable = False  # Pictures of one size share it.
    return FitPlan(resized, offset, final, affine)


def known_size(
    image_size: tuple[int, int] | None, recipe: Recipe
) -> tuple[int, int] | tuple[None, None]:
    """(height, width) of every stored image, where it is known before one is read.

    Args:
        image_size: (height, width) that all pictures have, upright; None where that is not known.
        recipe: The build's recipe.
    """
    if recipe.stored_size is not None:
        return recipe.stored_size
    if image_size is None:
        return None, None
    height, width = image_size
    return plan_fit(width, height, recipe.size, recipe.fit, recipe.max_side).final[::-1]


def _scaled(width: int, height: int, size: int, side: int) -> tuple[int, int]:
    """(width, height) scaled so that `side`, one of the two, becomes `size`."""
    # Whole numbers, so that every machine rounds alike.
    return (
        max(1, (2 * width * size + side) // (2 * side)),
        max(1, (2 * height * size + side) // (2 * side)),
    )


def _middle(inner: int, outer: int) -> int:
    """Where `inner` pixels start so that they lie in the middle of `outer` pixels."""
    return (outer - inner) // 2 if outer >= inner else -((inner - outer) // 2)


def fit_affine(
    original: tuple[int, int], resized: tuple[int, int], offset: tuple[int, int]
) -> Affine:
    """Scales a picture from `original` to `resized` (width, height), then moves it by `offset`."""
    return np.array(
        [
            [resized[0] / original[0], 0.0, offset[0]],
            [0.0, resized[1] / original[1], offset[1]],
        ]
    )


def orientation_affine(orientation: int, width: int, height: int) -> Affine:
    """From a file's own pixel grid to the upright picture.

    Args:
        orientation: EXIF orientation, in [1, 9).
        width: Of the file's grid, before turning.
        height: Of the file's grid, before turning.

    Raises:
        ValueError: `orientation` is not in [1, 9).
    """
    rows: dict[int, list[list[float]]] = {
        1: [[1, 0, 0], [0, 1, 0]],
        2: [[-1, 0, width], [0, 1, 0]],  # Mirrored left to right.
        3: [[-1, 0, width], [0, -1, height]],  # Half a turn.
        4: [[1, 0, 0], [0, -1, height]],  # Mirrored top to bottom.
        5: [[0, 1, 0], [1, 0, 0]],  # Mirrored at the main diagonal.
        6: [[0, -1, height], [1, 0, 0]],  # A quarter turn clockwise makes it upright.
        7: [[0, -1, height], [-1, 0, width]],  # Mirrored at the other diagonal.
        8: [[0, 1, 0], [-1, 0, width]],  # A quarter turn counter-clockwise makes it upright.
    }
    if orientation not in rows:
        raise ValueError(f"orientation must be in [1, 9); got {orientation!r}")
    return np.array(rows[orientation], dtype=np.float64)
