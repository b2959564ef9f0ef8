"""Scaling a picture to the size that is stored.

Interpolation skips pixels of a picture several times the size, and makes moire of them; averaging
does not. `exact` averages by area. It costs as much as the decoding, so `fast` does the same in two
ways that come near it:

    JPEGs of 3 times the size and more   the decoder leaves out the finest frequencies and gives the
                                         picture at 1/2, 1/4 or 1/8, still 1.5 times the size
    1.25 to 2.25 times the size          interpolated to twice the size that is wanted, then
                                         averaged in squares of 2 x 2

Measured by `scripts/bench_build.py --quality`, as PSNR in dB (mean, least), on grainy photos of 500
x 375 at 256: fast to exact 47.8, 42.6; to Pillow's antialiased bilinear filter fast 45.6, exact
42.5; to its Lanczos filter fast 38.1, exact 38.4. So `fast` differs from `exact` by less than one
good filter from another. Time: 0.52 ms against 1.22 ms.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from packer.recipe import Recipe
from readers.store.errors import ImageError
from readers.store.pictures.reduction import REDUCED_MARGIN, REDUCTIONS

_SUPERSAMPLED = (1.25, 2.25)
"""How many times the size a picture is for which it is as good. Against Pillow's Lanczos filter it
is then at most 1.0 dB behind averaging by area, and 0.2 dB ahead at best; at 1.1 it is 1.8 behind,
since two interpolations blur, at 2.6 it is 1.5 behind, since the first one begins to skip
pixels."""

_SHIFT_PIXELS = 0.25
"""A reduced side is rounded up, so that its end is this much beside its place, at most."""


def reduction(size: tuple[int, int], to: tuple[int, int], recipe: Recipe) -> int:
    """By how much the decoder of a JPEG may divide the sides of a picture.

    Args:
        size: (width, height) of the picture.
        to: (width, height) that it is scaled to afterwards.
        recipe: The build's recipe.
    """
    if recipe.scaling == "exact":
        return 1
    sides = tuple(zip(size, to, strict=True))
    for factor in REDUCTIONS:
        is_large = all(side >= REDUCED_MARGIN * factor * wanted for side, wanted in sides)
        if is_large and all(
            -side % factor * wanted <= _SHIFT_PIXELS * side for side, wanted in sides
        ):
            return factor
    return 1


def scaled(pixels: NDArray[Any], to: tuple[int, int], recipe: Recipe) -> NDArray[Any]:
    """The picture (height, width, channel) at `to` (width, height).

    Raises:
        ImageError: The result has more than `recipe.pixels_max` pixels, or is none that OpenCV can
            make.
    """
    height, width, channel_count = pixels.shape
    if to == (width, height):
        return pixels
    # A line of 1x60000 pixels whose short side is to be 256 would take 11 GB.
    if to[0] * to[1] > recipe.pixels_max:
        raise ImageError(
            f"{width}x{height} pixels become {to[0]}x{to[1]} under size={recipe.size} and "
            f"fit={recipe.fit!r}, over the limit of {recipe.pixels_max} pixels; use another fit, "
            "or raise it with --max-pixels"
        )
    import cv2

    try:
        if recipe.scaling == "fast" and _suits_supersampling((width, height), to):
            twice = cv2.resize(pixels, (2 * to[0], 2 * to[1]), interpolation=cv2.INTER_LINEAR)
            resized: NDArray[Any] = cv2.resize(twice, to, interpolation=cv2.INTER_AREA)
        else:
            resized = _averaged(pixels, to)
    except cv2.error as error:
        raise ImageError(
            f"{width}x{height} pixels cannot be resized to {to[0]}x{to[1]}: {error}"
        ) from error
    # OpenCV drops the axis of a single channel.
    return resized.reshape(to[1], to[0], channel_count)


def _suits_supersampling(size: tuple[int, int], to: tuple[int, int]) -> bool:
    low, high = _SUPERSAMPLED
    return all(low <= side / wanted < high for side, wanted in zip(size, to, strict=True))


def _averaged(pixels: NDArray[Any], to: tuple[int, int]) -> NDArray[Any]:
    """By area where a side shrinks, interpolated where one grows."""
    import cv2

    # OpenCV averages only where neither side grows, so growing comes second.
    height, width, _ = pixels.shape
    smaller = min(width, to[0]), min(height, to[1])
    resized: NDArray[Any] = pixels
    if smaller != (width, height):
        resized = cv2.resize(resized, smaller, interpolation=cv2.INTER_AREA)
    if to != smaller:
        resized = cv2.resize(resized, to, interpolation=cv2.INTER_LINEAR)
    return np.asarray(resized)
