"""A mask's file -> its values, as the file has them.

A mask says one number for each pixel of its picture. Decoders made for pictures lose it: they look
palettes up, scale 2 bits to 8, and smooth what they resize. Nothing of that happens here.

    1, 2, 4, 8 and 16 bits of gray      the number that is stored, not its brightness
    palettes                            the position in the palette, not its colour
    colours, also those of a GIF        the position in a table of colours, from a label map
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from readers.store.errors import ImageError
from readers.store.pictures.essentials import essentials
from readers.store.pictures.image_header import ImageHeader, read_header
from readers.store.pictures.pillow_files import open_as
from readers.store.schema import Field
from readers.store.wording import few_text

Color: TypeAlias = tuple[int, int, int]

NO_COLOR: Color = (-1, -1, -1)
"""Stands in a table of colours for a value that has none."""

PANOPTIC_NAME = "panoptic"
"""A field of this name holds ids of segments, which COCO writes as R + 256 G + 65536 B."""

EXACT_FORMATS = ("PNG", "TIFF", "BMP", "GIF", "PPM", "TGA")
"""Pillow's names of the formats that keep every value."""

_EXACT = "PNG, TIFF, BMP, GIF, PGM or TGA"
_LOSSY_TIFF = ("jpeg", "tiff_jpeg", "webp")
_TIFF_BITS, _TIFF_PHOTOMETRIC = 258, 262
_WHITE_IS_ZERO = 0
_PNG_DEPTH = 24
_SHOWN_MAX = 5


@dataclass(frozen=True, slots=True)
class MaskPixels:
    """What a mask's file holds.

    Attributes:
        ids: (height, width) uint8, or int32 where the file has 16 bits: values of gray, or
            positions in the palette. None for a file of colours.
        colors: (height, width, 3) uint8, R G B. None for a file of values.
        palette: (entry, 3) uint8, R G B: the colour of each value, where the file has a palette,
            or less than 8 bits of gray. None where value v is the gray (v, v, v).
    """

    ids: NDArray[Any] | None = None
    colors: NDArray[np.uint8] | None = None
    palette: NDArray[np.uint8] | None = None


def read_mask(
    data: bytes, colors: tuple[Color, ...], field: Field, pixels_max: int
) -> NDArray[Any]:
    """The values of a mask's file, in the file's own grid.

    An EXIF orientation of the mask itself counts for nothing; see `packer.pictures.mask_grid`.

    Args:
        data: The whole file.
        colors: Colour of each value, R G B in [0, 256), where masks are painted: then it is the
            colour that counts in gray files and palettes as well, since tools that make files
            smaller turn one into the other. Empty where masks hold the values themselves.
        field: Of the store, which says what values there may be. Where it has names, a value
            is a position in them or `field.ignore`. One that is called "panoptic" takes
            R + 256 G + 65536 B of each pixel.
        pixels_max: A mask of more pixels than this is refused.

    Returns:
        (height, width) of the field's dtype.

    Raises:
        ImageError: The file is damaged, of a kind that does not keep values, or holds a value or
            colour that is none of the field. The message is the reason; callers add the place.
    """
    pixels = decode_mask(data, pixels_max)
    if field.name == PANOPTIC_NAME:
        return _segment_ids(pixels)
    ids = _ids_of_colors(color_codes(pixels), colors) if colors else pixels.ids
    if ids is None:
        assert pixels.colors is not None
        raise ImageError(
            f"a mask with three channels ({colors_text(pixels)}), where one with a value for each "
            "pixel was expected; say what the colours mean in a label map, or convert the mask"
        )
    _check_values(ids, field)
    return ids.astype(field.dtype, copy=False)


def decode_mask(data: bytes, pixels_max: int) -> MaskPixels:
    """Values or colours of a mask's file as it stores them, whatever they mean.

    Raises:
        ImageError: See `read_mask`.
    """
    header = read_header(data, pixels_max=pixels_max)
    if header.format not in EXACT_FORMATS:
        raise ImageError(
            f"a {header.format} file: its compression changes the values of a mask; expected "
            f"{_EXACT}. Write the masks anew from where they were made: converting what is there "
            "keeps its errors"
        )
    if header.frame_count > 1:
        raise ImageError(f"{header.frame_count} pictures in one file; a mask is one")
    if header.format == "PNG":
        data = next(essentials(data))  # Pillow would give it up for a damaged comment.
    try:
        # The size was checked against our own limit, and Pillow's is lower.
        image: Any = open_as(data, header.format)
        if header.format == "TIFF":
            _check_tiff(image, header)
        # What loading takes to be done is gone afterwards.
        white = _white(image, header, data)
        image.load()
        return _pixels(image, header, data, white)
    except ImageError:
        raise
    except Exception as error:  # Broken files make Pillow's plugins raise nearly any class.
        reason = str(error) or type(error).__name__
        raise ImageError(f"damaged {header.format} file: {reason}") from error


def _check_tiff(image: Any, header: ImageHeader) -> None:
    """Refuse what Pillow changes as it loads a TIFF."""
    if image.info.get("compression") in _LOSSY_TIFF:
        raise ImageError(
            f"a TIFF compressed as {image.info['compression']}: this changes the values of a mask; "
            f"expected a compression without loss, or {_EXACT}"
        )
    if header.orientation != 1:
        raise ImageError(
            f"a mask whose TIFF says orientation {header.orientation}; save it upright, without"
        )
    if image.mode == "L" and image.tag_v2.get(_TIFF_PHOTOMETRIC) == _WHITE_IS_ZERO:
        raise ImageError(
            "a TIFF whose 0 is white, so that it is not clear which of the two its values are; "
            "save it with 0 as black"
        )


def _pixels(image: Any, header: ImageHeader, data: bytes, white: int) -> MaskPixels:
    """Values or colours of a loaded image."""
    mode = image.mode
    if mode == "1":
        return MaskPixels(ids=np.asarray(image).astype(np.uint8), palette=_grays(1))
    if mode == "L":
        ids = _unscaled(np.asarray(image), white, 255)
        return MaskPixels(ids=ids, palette=_grays(white) if white < 255 else None)
    if mode == "P":
        palette = np.array(image.getpalette("RGB"), np.uint8).reshape(-1, 3)
        if header.format == "GIF":
            return _colors_or_grays(palette[np.asarray(image)])
        return MaskPixels(ids=np.asarray(image), palette=palette)
    if mode.startswith("I"):
        values = np.asarray(image).astype(np.int32)
        return MaskPixels(ids=_unscaled(values, white, 65535))
    bits = data[_PNG_DEPTH] if header.format == "PNG" else header.bit_depth
    if mode in ("LA", "RGBA", "RGB") and bits <= 8:
        pixels = np.asarray(image)
        if mode != "RGB" and (pixels[..., -1] != 255).any():
            raise ImageError(
                "a mask with transparent pixels, of which it is not clear whether they count; save "
                "it without alpha"
            )
        return (
            MaskPixels(ids=pixels[..., 0]) if mode == "LA" else MaskPixels(colors=pixels[..., :3])
        )
    raise ImageError(
        f"{bits} bits of {mode}; expected a mask of gray, of a palette, or of 8-bit RGB"
    )


def _colors_or_grays(colors: NDArray[np.uint8]) -> MaskPixels:
    """What a GIF holds: it has nothing but palettes, which programs renumber as they write."""
    if (colors == colors[..., :1]).all():
        return MaskPixels(ids=np.ascontiguousarray(colors[..., 0]))
    return MaskPixels(colors=colors)


def _white(image: Any, header: ImageHeader, data: bytes) -> int:
    """The largest value that a gray file can hold, which Pillow scales to that of 8 or 16 bits."""
    full = 65535 if image.mode.startswith("I") else 255
    if header.format == "PPM":
        arguments = image.tile[0][3]
        return int(arguments[1]) if isinstance(arguments, tuple) else full
    if header.format == "PNG" and image.mode == "L":
        return min(full, (1 << data[_PNG_DEPTH]) - 1)
    if header.format == "TIFF" and image.mode == "L":
        return min(full, (1 << int(image.tag_v2.get(_TIFF_BITS, (8,))[0])) - 1)
    return full


def _unscaled(values: NDArray[Any], white: int, full: int) -> NDArray[Any]:
    """Values that were scaled so that `white` became `full`, as they were before."""
    if white == full:
        return values
    # Exact: rounding moved a value by a half at most, which is less than half a step here.
    return ((values.astype(np.int64) * (2 * white) + full) // (2 * full)).astype(values.dtype)


def _grays(white: int) -> NDArray[np.uint8]:
    """The colour of each value of gray where `white`, in [1, 256), is white."""
    values = (np.arange(white + 1) * (2 * 255) + white) // (2 * white)
    return np.repeat(values.astype(np.uint8)[:, None], 3, axis=1)


# What the values mean.


def color_codes(pixels: MaskPixels) -> NDArray[np.int32]:
    """(height, width) the colour of each pixel as one number, R * 65536 + G * 256 + B.

    Raises:
        ImageError: The mask has 16 bits of gray, which are no colours.
    """
    if pixels.colors is not None:
        return _codes(pixels.colors)
    ids = pixels.ids
    assert ids is not None
    if ids.dtype != np.uint8:
        raise ImageError("a mask of 16-bit gray among masks of colours; expected colours")
    table = _grays(255) if pixels.palette is None else pixels.palette
    if ids.size and int(ids.max()) >= len(table):
        raise ImageError(f"value {int(ids.max())} is not in the palette of {len(table)} colours")
    codes: NDArray[np.int32] = _codes(table)[ids]
    return codes


def color_of(code: int) -> Color:
    """R, G, B of a colour's number."""
    return code >> 16, code >> 8 & 255, code & 255


def distinct(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The different values of a mask, sorted, and how many pixels each has.

    Masks are made of long runs of one value: sorting the runs is many times faster than sorting
    the pixels.
    """
    starts, run_values = _runs(values)
    lengths = np.diff(starts, append=values.size)
    found, inverse = np.unique(run_values, return_inverse=True)
    counts = np.bincount(inverse.ravel(), weights=lengths, minlength=len(found))
    return found, counts.astype(np.int64)


def colors_text(pixels: MaskPixels) -> str:
    """The colours of a mask for a message, the commonest first."""
    codes, counts = distinct(color_codes(pixels))
    order = np.lexsort((codes, -counts))
    return f"colours {_colors_named(codes[order])}"


def _colors_named(codes: NDArray[np.int32]) -> str:
    """The first few colours of these codes."""
    return few_text(codes.tolist(), _SHOWN_MAX, lambda code: str(color_of(code)))


def _codes(colors: NDArray[np.uint8]) -> NDArray[np.int32]:
    wide = colors.astype(np.int32)
    codes: NDArray[np.int32] = wide[..., 0] << 16 | wide[..., 1] << 8 | wide[..., 2]
    return codes


def _runs(values: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Where runs of one value start, in row order, and the value of each."""
    flat = values.ravel()
    starts = np.concatenate([[0], np.flatnonzero(flat[1:] != flat[:-1]) + 1]).astype(np.int64)
    run_values: NDArray[Any] = flat[starts]
    return starts, run_values


@functools.lru_cache(maxsize=4)
def _color_table(colors: tuple[Color, ...]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The numbers of the colours, sorted, and the value of each."""
    pairs = sorted((r << 16 | g << 8 | b, n) for n, (r, g, b) in enumerate(colors) if r >= 0)
    table = np.array(pairs, np.int32).reshape(-1, 2)
    return np.ascontiguousarray(table[:, 0]), np.ascontiguousarray(table[:, 1])


def _ids_of_colors(codes: NDArray[np.int32], colors: tuple[Color, ...]) -> NDArray[np.int32]:
    """(height, width) the position of each pixel's colour in `colors`."""
    known, values = _color_table(colors)
    starts, run_codes = _runs(codes)
    at = np.searchsorted(known, run_codes).clip(max=len(known) - 1)
    lengths = np.diff(starts, append=codes.size)
    is_strange = known[at] != run_codes
    if is_strange.any():
        strange, inverse = np.unique(run_codes[is_strange], return_inverse=True)
        counts = np.bincount(inverse.ravel(), weights=lengths[is_strange]).astype(np.int64)
        raise ImageError(
            f"{int(counts.sum()):,} pixels of colours that are not in the label map: "
            f"{_colors_named(strange)}"
        )
    return np.repeat(values[at], lengths).reshape(codes.shape)


def _segment_ids(pixels: MaskPixels) -> NDArray[np.int32]:
    """R + 256 G + 65536 B of each pixel."""
    if pixels.colors is None and pixels.palette is None:
        raise ImageError("a panoptic mask with one channel; expected R, G and B of segment ids")
    codes = color_codes(pixels)
    ids: NDArray[np.int32] = (codes & 255) << 16 | codes & 0xFF00 | codes >> 16
    return ids


def _check_values(ids: NDArray[Any], field: Field) -> None:
    """Refuse values that are none of the field."""
    largest = int(ids.max())
    limit = int(np.iinfo(np.dtype(field.dtype)).max)
    if largest > limit:
        raise ImageError(
            f"value {largest} does not fit into the {field.dtype} of this store's masks, which was "
            "chosen by a sample of them that holds no value over 255"
        )
    if field.names is None or largest < len(field.names):
        return
    found, counts = distinct(ids)
    wrong = [
        (int(value), int(count))
        for value, count in zip(found, counts, strict=True)
        if value >= len(field.names) and value != field.ignore
    ]
    if wrong:
        shown = few_text(wrong, _SHOWN_MAX, lambda one: f"{one[0]} ({one[1]:,} pixels)")
        ignored = "" if field.ignore is None else f" or {field.ignore}, which is ignored"
        raise ImageError(f"values {shown}; expected a class in [0, {len(field.names)}){ignored}")
