"""A raw item's file -> the image that is stored: decoded, upright, resized, with its geometry."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from packer.geometry import FitPlan, orientation_affine, plan_fit
from packer.recipe import Recipe
from readers.store.affine import compose
from readers.store.decode import decode_image, in_mode, read_header
from readers.store.errors import ImageError

PAD_GRAY = 114
"""What "letterbox" pads with: the gray that detectors are commonly trained on, 114 of 255."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """One image as it is stored, and where it came from.

    Attributes:
        image: Pixels (height, width, channel) for image="raw", the file's own bytes for "original".
        size: (height, width, channel) of the image as it will be read: upright and resized.
        dtype: "uint8" or "uint16".
        orientation: EXIF orientation that a reader must still apply; 1 for pixels.
        original_size: (height, width) as stored in the file, before orientation.
        transform: (2, 3) float32, from the file's own pixel grid to the image as it will be read,
            in continuous coordinates; see `packer.geometry`.
        extra_frame_count: Pictures of the file that are not stored.
        turn: Orientation of the file, 1 to 8: from its own pixel grid to the upright picture.
        plan: How the upright picture came to the stored image.
    """

    image: NDArray[Any] | bytes
    size: tuple[int, int, int]
    dtype: str
    orientation: int
    original_size: tuple[int, int]
    transform: NDArray[np.float32]
    extra_frame_count: int
    turn: int
    plan: FitPlan


def prepare_image(data: bytes, recipe: Recipe) -> Prepared:
    """The first picture of a file as `recipe` wants it stored.

    Raises:
        ImageError: The file cannot be decoded in full, or is over `recipe.pixels_max` before or
            after resizing. The message is the reason; callers add the place.
    """
    header = read_header(data, pixels_max=recipe.pixels_max)
    # Also for "original": only decoding proves that the file is whole.
    pixels = decode_image(data, recipe.mode, header)
    size = (header.height, header.width)
    prepared = _prepared(pixels, data, header.orientation, size, recipe)
    return replace(prepared, extra_frame_count=header.frame_count - 1)


def prepare_pixels(pixels: NDArray[Any], recipe: Recipe) -> Prepared:
    """An image that has no file of its own, as `recipe` wants it stored.

    Under "original" it is kept as PNG, which loses nothing.

    Args:
        pixels: (height, width, channel) uint8 or uint16, RGB order.
        recipe: The settings.

    Raises:
        ImageError: It is over `recipe.pixels_max`, or has no pixels.
    """
    height, width, _ = pixels.shape
    if not 1 <= height * width <= recipe.pixels_max:
        raise ImageError(
            f"{width}x{height} pixels, expected [1, {recipe.pixels_max}]; "
            "raise the limit with --max-pixels"
        )
    if recipe.image == "original":
        return prepare_image(_png(pixels), recipe)
    kept = pixels if recipe.mode == "unchanged" else in_mode(pixels, recipe.mode)
    return _prepared(kept, b"", 1, (height, width), recipe)


def _prepared(
    pixels: NDArray[Any], data: bytes, turn: int, original_size: tuple[int, int], recipe: Recipe
) -> Prepared:
    """The decoded, upright picture as it is stored."""
    plan = plan_fit(pixels.shape[1], pixels.shape[0], recipe.size, recipe.fit)
    if recipe.image == "raw":
        pixels = _fitted(pixels, plan, recipe)
    height, width = original_size
    return Prepared(
        image=pixels if recipe.image == "raw" else data,
        size=(pixels.shape[0], pixels.shape[1], pixels.shape[2]),
        dtype=pixels.dtype.name,
        orientation=1 if recipe.image == "raw" else turn,
        original_size=original_size,
        transform=compose(orientation_affine(turn, width, height), plan.affine).astype(np.float32),
        extra_frame_count=0,
        turn=turn,
        plan=plan,
    )


def _png(pixels: NDArray[Any]) -> bytes:
    import cv2

    codes = {3: cv2.COLOR_RGB2BGR, 4: cv2.COLOR_RGBA2BGRA}
    code = codes.get(pixels.shape[2])
    done, data = cv2.imencode(".png", pixels if code is None else cv2.cvtColor(pixels, code))
    assert done
    return data.tobytes()


def _fitted(pixels: NDArray[Any], plan: FitPlan, recipe: Recipe) -> NDArray[Any]:
    """The upright picture resized and placed as planned, C-contiguous."""
    resized = _resized(pixels, plan.resized, recipe)
    if plan.resized == plan.final:
        return resized
    (width, height), (left, top) = plan.final, plan.offset
    if left <= 0 and top <= 0:
        return np.ascontiguousarray(resized[-top : height - top, -left : width - left])
    padded = np.empty((height, width, pixels.shape[2]), pixels.dtype)
    padded[:] = _padding(pixels.shape[2], pixels.dtype)
    padded[top : top + resized.shape[0], left : left + resized.shape[1]] = resized
    return padded


def _resized(pixels: NDArray[Any], to: tuple[int, int], recipe: Recipe) -> NDArray[Any]:
    """The picture at `to` (width, height)."""
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

    # Interpolation skips pixels of a picture several times the size, and makes moire of them; area
    # averaging does not. OpenCV averages only where neither side grows, so growing comes second.
    smaller = min(width, to[0]), min(height, to[1])
    resized: NDArray[Any] = pixels
    try:
        if smaller != (width, height):
            resized = cv2.resize(resized, smaller, interpolation=cv2.INTER_AREA)
        if to != smaller:
            resized = cv2.resize(resized, to, interpolation=cv2.INTER_LINEAR)
    except cv2.error as error:
        raise ImageError(
            f"{width}x{height} pixels cannot be resized to {to[0]}x{to[1]}: {error}"
        ) from error
    # OpenCV drops the axis of a single channel.
    return resized.reshape(to[1], to[0], channel_count)


def _padding(channel_count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """One pixel of padding: gray, and opaque where there is alpha."""
    white = int(np.iinfo(dtype).max)
    pixel = np.full(channel_count, PAD_GRAY * white // 255, dtype)
    if channel_count in (2, 4):
        pixel[-1] = white
    return pixel
