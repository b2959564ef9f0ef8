"""How a picture is turned upright, by the orientation that its EXIF block gives."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

_SWAPPED = (5, 6, 7, 8)


def upright_size(height: int, width: int, orientation: int) -> tuple[int, int]:
    """(height, width) of a picture after it is turned upright."""
    return (width, height) if orientation in _SWAPPED else (height, width)


def turn_upright(pixels: NDArray[Any], orientation: int) -> NDArray[Any]:
    """The picture (height, width, channel) as EXIF `orientation`, in [1, 9), says to show it."""
    if orientation == 1:
        return pixels
    import cv2

    if orientation in (2, 3, 4):
        turned = cv2.flip(pixels, {2: 1, 3: -1, 4: 0}[orientation])
    else:
        turned = cv2.transpose(pixels)
        if orientation != 5:
            turned = cv2.flip(turned, {6: 1, 7: -1, 8: 0}[orientation])
    # OpenCV drops the axis of a single channel.
    return turned.reshape(*turned.shape[:2], pixels.shape[2])
