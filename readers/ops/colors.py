"""Brightness, contrast and saturation of one image, in its place.

As torchvision has them: levels lose their decimals after each step, and so do those of the gray
image to which contrast and saturation lead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

_GRAY = np.array([0.2989, 0.587, 0.114])
"""Weights of red, green and blue in gray: torchvision's."""

_GRAY_LOSS = 0.5
"""What its levels lose on average with their decimals."""

_LEVELS = np.arange(256, dtype=np.float32)

_TO_FLOOR = 0.499
"""Taken off what OpenCV rounds to the nearest whole number, so that decimals are lost."""


def jitter(
    pixels: NDArray[np.uint8],
    factors: Sequence[float],
    order: Sequence[int],
    seen: NDArray[np.uint8] | None = None,
) -> None:
    """Change an image in its place.

    Args:
        pixels: (height, width, 1, 3 or 4) uint8; a fourth channel is alpha, and stays.
        factors: Of brightness, contrast and saturation.
        order: In which these are changed, as positions in `factors`.
        seen: (height, width) uint8, 0 for pixels that do not count for the mean, on which contrast
            depends. None: all count.
    """
    for step in order:
        factor = factors[step]
        if factor == 1:
            continue
        if step == 0:
            _mapped(pixels, _LEVELS * np.float32(factor))
        elif step == 1:
            mean = _mean_gray(pixels, seen)
            _mapped(pixels, _LEVELS * np.float32(factor) + np.float32((1 - factor) * mean))
        elif pixels.shape[2] > 1:
            _saturated(pixels, factor)


def _mapped(pixels: NDArray[np.uint8], levels: NDArray[np.float32]) -> None:
    """Each level becomes another one."""
    table: NDArray[Any] = np.clip(levels, 0, 255).astype(np.uint8)
    if pixels.shape[2] == 4:
        table = np.stack([table, table, table, _LEVELS.astype(np.uint8)], axis=1)[:, None]
    cv2.LUT(pixels, table, pixels)


def _mean_gray(pixels: NDArray[np.uint8], seen: NDArray[np.uint8] | None) -> float:
    means = np.array(cv2.mean(pixels, seen))
    if pixels.shape[2] == 1:
        return float(means[0])
    # A sum of means is the mean of sums: no gray image has to be made.
    return float(means[:3] @ _GRAY) - _GRAY_LOSS


def _saturated(pixels: NDArray[np.uint8], factor: float) -> None:
    matrix = np.eye(pixels.shape[2], pixels.shape[2] + 1)
    matrix[:3, :3] = factor * np.eye(3) + (1 - factor) * _GRAY
    matrix[:3, -1] = -(1 - factor) * _GRAY_LOSS - _TO_FLOOR
    cv2.transform(pixels, matrix, pixels)
