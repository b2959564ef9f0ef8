"""The pixels of a shape of kind `mask`: a PNG in base64, as large as the box of the shape."""

from __future__ import annotations

import base64
import binascii
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray


def read_png_mask(text: Any, width: int, height: int) -> NDArray[np.bool_]:
    """The pixels, (height, width) bool.

    Raises:
        ValueError: It is not such a PNG.
    """
    from PIL import Image, UnidentifiedImageError

    if not isinstance(text, str):
        raise ValueError(f"mask is a {type(text).__name__}, expected a PNG in base64")
    try:
        data = base64.b64decode(text, validate=True)
        with Image.open(io.BytesIO(data), formats=("PNG",)) as image:
            if image.size != (width, height):
                found = f"{image.size[0]}x{image.size[1]}"
                raise ValueError(f"mask of {found} pixels, expected {width}x{height}")
            is_on: NDArray[np.bool_] = np.asarray(image.convert("L")) != 0
    except (binascii.Error, UnidentifiedImageError, OSError, SyntaxError) as error:
        raise ValueError(f"mask cannot be read as PNG in base64: {error}") from error
    return is_on
