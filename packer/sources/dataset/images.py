"""An image that a dataset makes in Python -> a PNG file, pixel by pixel the same."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from packer.items.raw_item import RawFile


class NotAnImageError(Exception):
    """A value is not an image that can be kept as it is. The text is the reason."""


def is_mask(target: Any) -> bool:
    """Whether what belongs to an image is itself one value for each pixel."""
    if getattr(target, "mode", None) in ("P", "L", "1"):
        return True
    return len(getattr(target, "shape", ())) == 2


def spool_mask(target: Any, path: Path) -> RawFile:
    """Write a mask to a file of the build's own: ids as they are.

    Raises:
        NotAnImageError: It is none.
    """
    # A palette's positions are the ids; its colours are not.
    is_ids = getattr(target, "mode", None) in ("P", "L")
    pixels = np.asarray(target)[:, :, None] if is_ids else pixels_of(target)
    if pixels.shape[2] != 1 or pixels.dtype != np.uint8:
        raise NotAnImageError(
            f"its mask has shape {pixels.shape} of {pixels.dtype}; expected (height, width) uint8"
        )
    return spool_pixels(pixels, path)


def spool_pixels(pixels: NDArray[Any], path: Path) -> RawFile:
    """Write pixels (height, width, channel) uint8 or uint16 to a PNG file."""
    import cv2

    codes = {3: cv2.COLOR_RGB2BGR, 4: cv2.COLOR_RGBA2BGRA}
    code = codes.get(pixels.shape[2])
    swapped = pixels if code is None else cv2.cvtColor(pixels, code)
    # Level 1: it is read once, soon, and removed.
    done, data = cv2.imencode(".png", swapped, [cv2.IMWRITE_PNG_COMPRESSION, 1])
    assert done
    path.write_bytes(data.tobytes())
    # The same each time, so that a build that was interrupted can go on.
    os.utime(path, ns=(0, 0))
    return RawFile(os.fsencode(os.path.abspath(path)), len(data), 0)


def pixels_of(image: Any) -> NDArray[Any]:
    """An image as (height, width, channel) uint8 or uint16, of 1, 3 or 4 channels.

    Raises:
        NotAnImageError: It is none, or of another element type.
    """
    if hasattr(image, "getbands") and hasattr(image, "convert"):  # A Pillow image.
        if image.mode in ("P", "CMYK", "YCbCr", "LAB", "HSV", "PA", "La", "RGBa"):
            image = image.convert("RGB")
        elif image.mode in ("1", "LA"):
            image = image.convert("L")
        pixels = np.asarray(image)
    elif hasattr(image, "detach") and hasattr(image, "numpy"):  # A tensor: channels first.
        pixels = image.detach().cpu().numpy()
        if pixels.ndim == 3:
            pixels = pixels.transpose(1, 2, 0)
    elif isinstance(image, np.ndarray):
        pixels = image
    else:
        raise NotAnImageError(
            f"the image is a {type(image).__name__}; expected a path, a Pillow image, an array or "
            "a tensor"
        )
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    if pixels.dtype == bool:
        pixels = pixels.astype(np.uint8) * 255
    if pixels.dtype not in (np.dtype(np.uint8), np.dtype(np.uint16)):
        raise NotAnImageError(
            f"the image's elements are {pixels.dtype}; expected uint8 or uint16. Build from the "
            "dataset without ToTensor or normalisation: training does that"
        )
    if pixels.ndim != 3 or pixels.shape[2] not in (1, 3, 4) or not pixels.size:
        raise NotAnImageError(
            f"the image has shape {pixels.shape}; expected (height, width) or (height, width, "
            "1, 3 or 4), a tensor's channels first"
        )
    return np.ascontiguousarray(pixels)
