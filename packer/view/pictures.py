"""Pixels of any kind -> small picture files that a browser shows, as `data:` addresses."""

from __future__ import annotations

import base64
import io
import math
from typing import Any, Literal

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from packer.view.colours import Colour, colour_of
from readers.store.errors import ImageError

SIDES = (1280, 960, 720, 560, 440, 340, 260, 200, 150, 110)
"""Long sides that are tried, from the largest, until a picture fits into its bytes."""

EXACT_SIDE = 96
"""Pictures up to this long side are kept pixel for pixel, as PNG: so small, each pixel is seen."""

_QUALITY = 80
_BYTES_A_PIXEL = 0.07
"""Of a calm photo as WebP of that quality."""

_PALETTE_MAX = 255


def picture_uri(pixels: NDArray[Any], bytes_max: int) -> tuple[str, str]:
    """A picture of at most about so many bytes.

    Args:
        pixels: (height, width, channel), of any element type, RGB order.
        bytes_max: Of the file. The smallest of `SIDES` is taken where nothing fits.

    Returns:
        Its address, and how its values were made visible where that is not as they are.

    Raises:
        ImageError: It has no pixels.
    """
    if pixels.ndim != 3 or 0 in pixels.shape:
        raise ImageError(f"pixels of shape {pixels.shape} are no picture")
    pixels, note = _channels(pixels)
    if pixels.dtype == np.bool_:
        pixels = pixels.astype(np.uint8) * 255
    bounds = _bounds(pixels)
    if pixels.dtype != np.uint8:
        said = f"{pixels.dtype.name}: {bounds[0]:g} shown as black, {bounds[1]:g} as white"
        note = "; ".join(filter(None, (note, said)))
    longest = max(pixels.shape[:2])
    if longest <= EXACT_SIDE:
        data = _encoded(_eight_bits(pixels, bounds), "PNG")
        if len(data) <= bytes_max:
            return _uri("png", data), note
    whole = min(longest, _likely_side(pixels.shape[:2], bytes_max))
    large = _eight_bits(scaled(pixels, whole), bounds)
    for side in (whole, *(side for side in SIDES if side < whole)):
        data = _encoded(scaled(large, side), "WEBP")
        if len(data) <= bytes_max:
            break
    return _uri("webp", data), note


def _likely_side(size: tuple[int, ...], bytes_max: int) -> int:
    """The side to begin with: a calm photo of it just fits, so that few are tried for nothing."""
    height, width = size
    shape = min(height, width) / max(height, width)
    side = math.sqrt(bytes_max / _BYTES_A_PIXEL / max(shape, 1 / 16))
    return next((known for known in SIDES if known <= side), SIDES[-1])


def scaled(pixels: NDArray[Any], side: int) -> NDArray[Any]:
    """Pixels whose long side is at most `side`, averaged."""
    height, width = pixels.shape[:2]
    share = side / max(height, width)
    if share >= 1:
        return pixels
    if pixels.dtype not in (np.uint8, np.uint16, np.float32):  # What OpenCV averages.
        pixels = pixels.astype(np.float32)
    size = max(1, round(width * share)), max(1, round(height * share))
    found = cv2.resize(np.ascontiguousarray(pixels), size, interpolation=cv2.INTER_AREA)
    return found.reshape(size[1], size[0], pixels.shape[2])


def mask_uri(
    ids: NDArray[Any], ignore: int | None, side: int
) -> tuple[str, list[tuple[int, float]]]:
    """A mask as a picture of its ids' colours, see-through where they count for nothing.

    Id 0 is see-through as well: most sets keep it for what is of no class.

    Args:
        ids: (height, width) whole numbers.
        ignore: The id that counts for nothing.
        side: Long side of the picture. No id arises that was not there.

    Returns:
        Its address, and (id, share of the pixels) of each id that is there, the largest first.
    """
    height, width = ids.shape
    step = max(1, math.ceil(max(height, width) / side))
    small = np.ascontiguousarray(ids[step // 2 :: step, step // 2 :: step])
    if not small.size:
        small = ids[:1, :1]
    found, places, counts = np.unique(small, return_inverse=True, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    shares = [(int(found[at]), float(counts[at] / counts.sum())) for at in order.tolist()]
    # The largest have a colour of their own; entry 255 is what is left, should there be so many.
    entry = np.full(len(found), _PALETTE_MAX, np.uint8)
    entry[order[:_PALETTE_MAX]] = np.arange(min(len(order), _PALETTE_MAX), dtype=np.uint8)
    palette: list[int] = []
    alpha = bytearray()
    for number, _ in shares[:_PALETTE_MAX]:
        palette += mask_colour(number)
        alpha.append(0 if number in (0, ignore) else 255)
    palette += [128, 128, 128] * (256 - len(alpha))
    alpha += bytes([255]) * (256 - len(alpha))
    indexed = entry[places.reshape(small.shape)]
    return _uri("png", _paletted(indexed, palette, bytes(alpha))), shares


def mask_colour(number: int) -> Colour:
    """The colour of an id of a mask: that of the class with its number."""
    return colour_of(number)


def _paletted(indexed: NDArray[np.uint8], palette: list[int], alpha: bytes) -> bytes:
    image = Image.fromarray(indexed)
    image.putpalette(palette)  # Makes a gray picture one of a palette.
    stream = io.BytesIO()
    image.save(stream, "PNG", transparency=alpha, optimize=True)
    return stream.getvalue()


def _channels(pixels: NDArray[Any]) -> tuple[NDArray[Any], str]:
    """The channels that can be shown: 1 to 4."""
    count = pixels.shape[2]
    if count <= 4:
        return pixels, ""
    return pixels[..., :3], f"the first 3 of {count} channels"


def _bounds(pixels: NDArray[Any]) -> tuple[float, float]:
    """The least and the greatest finite value."""
    if pixels.dtype.kind == "f":
        pixels = pixels[np.isfinite(pixels)]
    return (float(pixels.min()), float(pixels.max())) if pixels.size else (0.0, 0.0)


def _eight_bits(pixels: NDArray[Any], bounds: tuple[float, float]) -> NDArray[np.uint8]:
    """Pixels as they can be shown; what is not 8 bits goes from its least to its greatest value."""
    if pixels.dtype == np.uint8:
        return pixels
    low, high = bounds
    share = (pixels.astype(np.float64) - low) / ((high - low) or 1.0)
    share = np.nan_to_num(share, nan=0, posinf=1, neginf=0)
    return np.rint(np.clip(share, 0, 1) * 255).astype(np.uint8)


def _encoded(pixels: NDArray[Any], kind: Literal["PNG", "WEBP"]) -> bytes:
    count = pixels.shape[2]
    if count == 2:
        pixels = np.concatenate([np.repeat(pixels[..., :1], 3, axis=2), pixels[..., 1:]], axis=2)
    image = Image.fromarray(np.ascontiguousarray(pixels[..., 0] if count == 1 else pixels))
    stream = io.BytesIO()
    if kind == "PNG":
        image.save(stream, kind)
    else:
        # Method 2 takes 7 ms for 440 x 330 and the default, 4, takes 17, for 4% fewer bytes.
        image.save(stream, kind, quality=_QUALITY, method=2)
    return stream.getvalue()


def _uri(kind: str, data: bytes) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
