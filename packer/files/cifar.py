"""The bytes of a CIFAR batch: a pickled dict, or records of labels and pixels.

Pixels are planes: red, green, blue, each row by row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from packer.files.safe_pickle import load_pickle

SIDE = 32
PIXEL_BYTES = 3 * SIDE * SIDE
PYTHON, BINARY = "python", "binary"
"""Names of a member: which version its file is of."""

PICKLE_BYTES_MAX = 2**28
"""Largest pickle that is read; the files of CIFAR-100 have 155 MB."""


def read_python_batch(data: bytes) -> dict[str, Any]:
    """The dict of a batch of the Python version, with its keys as text.

    Raises:
        UnsafePickleError: It is damaged, or holds more than data.
        ValueError: It is not a dict.
    """
    content = load_pickle(data)
    if not isinstance(content, dict):
        raise ValueError(f"a pickled {type(content).__name__}, expected a dict")
    return {
        key.decode("latin1") if isinstance(key, bytes) else str(key): value
        for key, value in content.items()
    }


def pixel_rows(batch: dict[str, Any]) -> list[NDArray[np.uint8]]:
    """Pixels of each image of a batch, (height, width, 3) uint8, RGB.

    Images of a batch may have sizes of their own, as other tools write them: then `image_sizes`
    says them, and each row is an array.

    Raises:
        ValueError: The pixels are not those of images.
    """
    data = batch.get("data")
    if not isinstance(data, np.ndarray) or data.ndim not in (1, 2):
        raise ValueError("no array 'data' of (image, 3072) bytes in the batch")
    sizes = batch.get("image_sizes")
    if sizes is not None and (not isinstance(sizes, list) or len(sizes) != len(data)):
        raise ValueError("'image_sizes' is not a list with one size for each image")
    rows = []
    for number, row in enumerate(data):
        pixels = row if isinstance(row, np.ndarray) and row.dtype != object else None
        if pixels is None:
            values = list(row) if isinstance(row, (np.ndarray, list, tuple)) else []
            if not all(isinstance(value, int) and 0 <= value < 256 for value in values):
                raise ValueError(f"image {number}: pixels that are not numbers in [0, 256)")
            pixels = np.array(values, np.uint8)
        height, width = _size(sizes[number] if sizes is not None else (SIDE, SIDE))
        if pixels.dtype != np.uint8 or pixels.shape != (3 * height * width,):
            raise ValueError(
                f"image {number}: {pixels.shape} {pixels.dtype}, expected {3 * height * width} "
                f"bytes of 3 planes of {width}x{height} pixels"
            )
        rows.append(planes_to_pixels(pixels, height, width))
    return rows


def planes_to_pixels(planes: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    """Planes of red, green and blue as pixels (height, width, 3)."""
    return np.ascontiguousarray(planes.reshape(3, height, width).transpose(1, 2, 0))


def _size(size: Any) -> tuple[int, int]:
    """(height, width) of an image, as the batch says."""
    if (
        not isinstance(size, (tuple, list))
        or len(size) != 2
        or not all(isinstance(side, int) and 1 <= side <= 2**15 for side in size)
    ):
        raise ValueError(f"image size {size!r:.40}; expected (height, width)")
    return size[0], size[1]
