"""The forms in which an image can be stored: its pixels, or the bytes of an image file."""

from __future__ import annotations

import hashlib
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from packer.pictures.jpeg_quality import jpeg_quality
from packer.policies import POLICIES, Form
from packer.recipe import ColorMode, Recipe
from readers.store.errors import ImageError
from readers.store.pictures.image_header import ImageHeader

JPEG_SIDE_MAX = 65_500
"""OpenCV's and libjpeg's limit."""

WEBP_SIDE_MAX = 16_383

_PNG_LEVEL = 1
"""Of zlib, 0 to 9. Photos of 341 x 256 take 5.8 ms and 159 kB at 1, 9.5 ms and 157 kB at 3, 16.4
ms and 158 kB at 6."""


def form_of(recipe: Recipe, key: bytes, pixel_bytes: int) -> Form:
    """In which form an image is to be stored.

    Args:
        recipe: The build's recipe.
        key: Of the sample, which decides alone under "proportion": an image has the same form
            however many others there are.
        pixel_bytes: Size of its pixels as they would be stored.
    """
    if recipe.image == "smart":
        assert recipe.raw_below is not None
        return "raw" if pixel_bytes <= recipe.raw_below else "jpeg"
    if recipe.image == "proportion":
        assert recipe.raw_share is not None
        return "raw" if drawn(b"proportion", key) < recipe.raw_share else "jpeg"
    (form,) = POLICIES[recipe.image].forms
    return form


def drawn(purpose: bytes, key: bytes) -> float:
    """A number in [0, 1) that follows from a key alone, another one for each purpose."""
    digest = hashlib.blake2b(key, digest_size=8, key=purpose).digest()
    return (int.from_bytes(digest, "big") >> 11) / 2**53


def keeps_file(form: Form, header: ImageHeader, data: bytes, recipe: Recipe) -> bool:
    """Whether a file whose picture needs no resizing is stored as it is, byte for byte.

    Of the kind that is wanted and of one picture, with the colours and bits that are wanted, and
    if it is a JPEG of no higher quality.
    """
    if form == "original":
        return True
    if header.format != form.upper() or header.frame_count > 1:
        return False
    if form == "jpeg":
        quality = jpeg_quality(data)
        assert recipe.quality is not None
        return header.mode in ("L", "RGB") and quality is not None and quality <= recipe.quality
    return header.bit_depth == 8 or recipe.mode == "unchanged"


def encoded(pixels: NDArray[Any], form: Form, quality: int | None, mode: ColorMode) -> bytes:
    """The bytes of an image file.

    JPEG and WebP hold neither 16 bits nor every number of channels nor every size: where they do
    not, it is PNG, which loses nothing.

    Args:
        pixels: (height, width, channel) uint8 or uint16, RGB order.
        form: "jpeg", "png" or "webp".
        quality: Of the first and the last.
        mode: In which a reader will decode it.

    Raises:
        ImageError: They cannot be encoded.
    """
    import cv2

    height, width, channel_count = pixels.shape
    is_deep, longest = pixels.dtype != np.uint8, max(height, width)
    if form == "jpeg" and not is_deep and channel_count in (1, 3) and longest <= JPEG_SIDE_MAX:
        return _by_opencv(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, quality or 0])
    # WebP leaves out an alpha that is opaque everywhere, and the file would have 3 channels.
    has_hole = channel_count == 4 and (mode != "unchanged" or pixels[..., 3].min() < 255)
    is_webp = form == "webp" and not is_deep and longest <= WEBP_SIDE_MAX
    if is_webp and (channel_count == 3 or has_hole):
        return _by_pillow("WEBP", pixels, quality=quality, exact=True)
    if channel_count == 2 and not is_deep:
        return _by_pillow("PNG", pixels, compress_level=_PNG_LEVEL)
    return _by_opencv(".png", pixels, [cv2.IMWRITE_PNG_COMPRESSION, _PNG_LEVEL])


def _by_opencv(name: str, pixels: NDArray[Any], options: list[int]) -> bytes:
    import cv2

    codes = {3: cv2.COLOR_RGB2BGR, 4: cv2.COLOR_RGBA2BGRA}
    code = codes.get(pixels.shape[2])
    try:
        ordered = pixels if code is None else cv2.cvtColor(pixels, code)
        done, data = cv2.imencode(name, ordered, options)
    except cv2.error as error:
        raise ImageError(_unencoded(pixels, name[1:])) from error
    if not done:
        raise ImageError(_unencoded(pixels, name[1:]))
    return data.tobytes()


def _unencoded(pixels: NDArray[Any], kind: str) -> str:
    height, width, channel_count = pixels.shape
    return (
        f"{width}x{height} pixels of {channel_count} channels of {pixels.dtype} cannot be stored "
        f"as {kind}; use --image raw"
    )


def _by_pillow(format_name: str, pixels: NDArray[Any], **options: Any) -> bytes:
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, format_name, **options)
    return stream.getvalue()
