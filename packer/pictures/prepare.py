"""A raw item's file -> the image that is stored: decoded, upright, resized, with its geometry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from packer.pictures.forms import encoded, form_of, keeps_file
from packer.pictures.geometry import FitPlan, orientation_affine, plan_fit
from packer.pictures.scaling import reduction, scaled
from packer.policies import Form
from packer.recipe import Recipe
from readers.store.codecs import dtype_name
from readers.store.errors import ImageError
from readers.store.pictures.decode import decode_image, in_mode
from readers.store.pictures.image_header import ImageHeader, read_header
from readers.store.pictures.orientation import upright_size
from readers.store.shapes.affine import compose

PAD_GRAY = 114
"""What "letterbox" pads with: the gray that detectors are commonly trained on, 114 of 255."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """One image as it is stored, and where it came from.

    Attributes:
        image: Pixels (height, width, channel), or the bytes of an image file.
        size: (height, width, channel) of the image as it will be read: upright and resized.
        dtype: "uint8" or "uint16".
        orientation: EXIF orientation that a reader must still apply; 1 for all but a raw file's own
            bytes.
        pixels: The image as it will be read, but for what JPEG and WebP lose.
        original_size: (height, width) as stored in the file, before orientation.
        transform: (2, 3) float32, from the file's own pixel grid to the image as it will be read,
            in continuous coordinates; see `packer.pictures.geometry`.
        extra_frame_count: Pictures of the file that are not stored.
        turn: Orientation of the file, 1 to 8: from its own pixel grid to the upright picture.
        plan: How the upright picture came to the stored image.
    """

    image: NDArray[Any] | bytes
    size: tuple[int, int, int]
    dtype: str
    orientation: int
    pixels: NDArray[Any]
    original_size: tuple[int, int]
    transform: NDArray[np.float32]
    extra_frame_count: int
    turn: int
    plan: FitPlan


def prepare_image(data: bytes, recipe: Recipe, key: bytes = b"") -> Prepared:
    """The first picture of a file as `recipe` wants it stored.

    Args:
        data: The whole file.
        recipe: The settings.
        key: Of the sample, which decides about its form where only a share is stored raw.

    Raises:
        ImageError: The file cannot be decoded in full, or is over `recipe.pixels_max` before or
            after resizing, or cannot be encoded. The message is the reason; callers add the place.
    """
    header = read_header(data, pixels_max=recipe.pixels_max)
    pixels, plan = prepared_pixels(data, header, recipe)
    form = form_of(recipe, key, pixels.nbytes)
    image: NDArray[Any] | bytes = pixels
    orientation = 1
    if form != "raw":
        is_whole = plan.final == upright_size(header.height, header.width, header.orientation)[::-1]
        if is_whole and plan.resized == plan.final and keeps_file(form, header, data, recipe):
            image, orientation = data, header.orientation
        else:
            image = encoded(pixels, form, recipe.quality, recipe.mode)
    return _prepared(
        pixels,
        image,
        orientation,
        (header.height, header.width),
        header.orientation,
        plan,
        header.frame_count - 1,
    )


def prepared_pixels(
    data: bytes, header: ImageHeader, recipe: Recipe
) -> tuple[NDArray[Any], FitPlan]:
    """The picture of a file decoded, upright and resized, and how it came to its size.

    Also where the file's own bytes are stored: only decoding proves that it is whole.

    Raises:
        ImageError: See `prepare_image`.
    """
    height, width = upright_size(header.height, header.width, header.orientation)
    plan = plan_fit(width, height, recipe.size, recipe.fit, recipe.max_side)
    factor = reduction((width, height), plan.resized, recipe)
    pixels = decode_image(data, recipe.mode, header, reduction=factor)
    return _fitted(pixels, plan, recipe), plan


def prepare_pixels(pixels: NDArray[Any], recipe: Recipe, key: bytes = b"") -> Prepared:
    """An image that has no file of its own, as `recipe` wants it stored.

    Under "original" it is kept as PNG, which loses nothing.

    Args:
        pixels: (height, width, channel) uint8 or uint16, RGB order.
        recipe: The settings.
        key: Of the sample; see `prepare_image`.

    Raises:
        ImageError: It is over `recipe.pixels_max`, has no pixels, or cannot be encoded.
    """
    height, width, _ = pixels.shape
    if not 1 <= height * width <= recipe.pixels_max:
        raise ImageError(
            f"{width}x{height} pixels, expected [1, {recipe.pixels_max}]; "
            "raise the limit with --max-pixels"
        )
    kept = pixels if recipe.mode == "unchanged" else in_mode(pixels, recipe.mode)
    plan = plan_fit(width, height, recipe.size, recipe.fit, recipe.max_side)
    kept = np.ascontiguousarray(_fitted(kept, plan, recipe))
    form: Form = form_of(recipe, key, kept.nbytes)
    if form == "original":
        form = "png"
    image = kept if form == "raw" else encoded(kept, form, recipe.quality, recipe.mode)
    return _prepared(kept, image, 1, (height, width), 1, plan)


def _prepared(
    pixels: NDArray[Any],
    image: NDArray[Any] | bytes,
    orientation: int,
    original_size: tuple[int, int],
    turn: int,
    plan: FitPlan,
    extra_frame_count: int = 0,
) -> Prepared:
    """The stored picture with its geometry."""
    height, width = original_size
    transform = plan.stored_affine
    if turn != 1:
        affine = compose(orientation_affine(turn, width, height), plan.affine)
        transform = affine.astype(np.float32)
    return Prepared(
        image=image,
        size=(pixels.shape[0], pixels.shape[1], pixels.shape[2]),
        dtype=dtype_name(pixels.dtype),
        orientation=orientation,
        pixels=pixels,
        original_size=original_size,
        transform=transform,
        extra_frame_count=extra_frame_count,
        turn=turn,
        plan=plan,
    )


def _fitted(pixels: NDArray[Any], plan: FitPlan, recipe: Recipe) -> NDArray[Any]:
    """The upright picture resized and placed as planned, C-contiguous."""
    resized = scaled(pixels, plan.resized, recipe)
    if plan.resized == plan.final:
        return resized
    (width, height), (left, top) = plan.final, plan.offset
    if resized.shape[1] >= width and resized.shape[0] >= height:
        return np.ascontiguousarray(resized[-top : height - top, -left : width - left])
    padded = np.empty((height, width, pixels.shape[2]), pixels.dtype)
    pixel = _padding(pixels.shape[2], pixels.dtype)
    if (pixel == pixel[0]).all():
        padded.fill(pixel[0])  # A tenth of the time of writing pixel by pixel.
    else:
        padded[:] = pixel
    padded[top : top + resized.shape[0], left : left + resized.shape[1]] = resized
    return padded


def _padding(channel_count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """One pixel of padding: gray, and opaque where there is alpha."""
    white = int(np.iinfo(dtype).max)
    pixel = np.full(channel_count, PAD_GRAY * white // 255, dtype)
    if channel_count in (2, 4):
        pixel[-1] = white
    return pixel
