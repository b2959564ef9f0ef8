"""What a picture file says about itself, read before any pixel is decoded.

Those of plain files are read by `plain_headers`, the others by Pillow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from readers.store.errors import ImageError
from readers.store.pictures.extra_formats import JPEG_12, read_extra_header
from readers.store.pictures.pillow_files import open_picture, reading_by_pillow
from readers.store.pictures.plain_headers import EXIF_KEYS, plain_header
from readers.store.pictures.tiff_planes import read_tiff_planes

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

PNG_DEPTH = 24
"""Where a PNG file has its bits per channel."""

TIFF_BITS = 258
"""The tag of a TIFF's bits per channel."""

_TIFF_WIDTH, _TIFF_HEIGHT, _TIFF_TILE_WIDTH, _TIFF_TILE_HEIGHT = 256, 257, 322, 323
_ORIENTATION_TAG = 0x0112

_TILE_PIXELS = 2**20
"""A tile of this size takes no memory to speak of, however small its picture and the limit are."""


@dataclass(frozen=True, slots=True)
class ImageHeader:
    """What a file says about itself, before any pixel is decoded.

    Attributes:
        format: Pillow's name: JPEG, PNG, MPO, ...
        width: Width in pixels as stored, before `orientation`.
        height: Height in pixels as stored, before `orientation`.
        mode: Pillow's mode: L, RGB, P, I;16, ...
        orientation: EXIF orientation in [1, 9); 1 when absent, damaged or out of range.
        frame_count: How many pictures the file holds (MPO, animations, pages of a TIFF).
        bit_depth: Bits per channel: 8 or 16. 1, 2 and 4 count as 8; 9 to 15 as 16. Of JPEG XL only
            its decoder knows; it counts as 8 here.
    """

    format: str
    width: int
    height: int
    mode: str
    orientation: int
    frame_count: int
    bit_depth: int


def read_header(data: bytes | memoryview, *, pixels_max: int) -> ImageHeader:
    """What the file says about itself. No pixel is decoded and no memory for pixels taken.

    Args:
        data: The whole file.
        pixels_max: A picture of more pixels than this is refused.

    Raises:
        ImageError: Not a picture that is read here, damaged, or over the limit.
    """
    if not len(data):
        raise ImageError("the file is empty (0 bytes)")
    plain = plain_header(data)
    if plain is not None and plain.width * plain.height <= pixels_max:
        return ImageHeader(plain.format, plain.width, plain.height, plain.mode, 1, 1, 8)
    extra = read_extra_header(data)
    if extra is not None:
        _check_pixel_count(extra.width, extra.height, pixels_max)
        bit_depth = 16 if extra.format == JPEG_12 else 8
        return ImageHeader(extra.format, extra.width, extra.height, "RGB", 1, 1, bit_depth)
    planes = read_tiff_planes(data)
    if planes is not None:
        _check_pixel_count(planes.width, planes.height, pixels_max)
        _check_tile(planes.tile, pixels_max)
        return ImageHeader(
            format="TIFF",
            width=planes.width,
            height=planes.height,
            mode=planes.mode,
            orientation=planes.orientation,
            frame_count=planes.page_count,
            bit_depth=planes.bits,
        )
    with reading_by_pillow(data):
        image = open_picture(data)
        width, height = stored_size(image)
        _check_size(image, width, height, pixels_max)
        _check_mode(image)
        return ImageHeader(
            format=image.format or "",
            width=width,
            height=height,
            mode=image.mode,
            orientation=_orientation(image),
            frame_count=int(getattr(image, "n_frames", 1)),
            bit_depth=_bit_depth(image, data),
        )


def stored_size(image: ImageFile) -> tuple[int, int]:
    """(width, height) before orientation; Pillow gives a TIFF's after it."""
    tags = getattr(image, "tag_v2", None)
    if tags is None or image.format != "TIFF":
        return image.size
    return int(tags[_TIFF_WIDTH]), int(tags[_TIFF_HEIGHT])


def jpeg2000_bits(data: bytes | memoryview) -> int:
    """Bits of the first channel, from the codestream's SIZ segment."""
    siz = bytes(data[:65536]).find(b"\xff\x4f\xff\x51")
    return (data[siz + 42] & 0x7F) + 1 if siz >= 0 else 8


def _check_pixel_count(width: int, height: int, pixels_max: int) -> None:
    if width < 1 or height < 1:
        raise ImageError(f"{width}x{height} pixels: the header is damaged")
    if width * height > pixels_max:
        raise ImageError(
            f"{width}x{height} pixels is over the limit of {pixels_max} pixels; raise it with "
            "--max-pixels"
        )


def _check_size(image: ImageFile, width: int, height: int, pixels_max: int) -> None:
    _check_pixel_count(width, height, pixels_max)
    if image.format == "TIFF":
        tags = cast("Any", image).tag_v2
        tile = int(tags.get(_TIFF_TILE_WIDTH, 1)), int(tags.get(_TIFF_TILE_HEIGHT, 1))
        _check_tile(tile, pixels_max)


def _check_tile(tile: tuple[int, int], pixels_max: int) -> None:
    """A tile may reach over the edge of its image; memory is taken for the whole tile."""
    if tile[0] * tile[1] > max(pixels_max, _TILE_PIXELS):
        raise ImageError(
            f"a tile of {tile[0]}x{tile[1]} pixels is over the limit of {pixels_max} pixels; raise "
            "it with --max-pixels"
        )


def _check_mode(image: ImageFile) -> None:
    # Of "I", only PPM's is known to lie in [0, 65536).
    if image.mode == "F" or (image.mode == "I" and image.format != "PPM"):
        kind = "floating-point" if image.mode == "F" else "32-bit or signed"
        raise ImageError(
            f"{kind} pixels (mode {image.mode}) are not supported: what is black and what is white "
            "is not known; convert to unsigned integers of 8 or 16 bits"
        )


def _orientation(image: ImageFile) -> int:
    if image.format != "TIFF" and EXIF_KEYS.isdisjoint(image.info):
        return 1
    try:
        orientation = image.getexif().get(_ORIENTATION_TAG, 1)
    except Exception:  # A damaged EXIF block, in whatever way, is the same as none.
        return 1
    return orientation if isinstance(orientation, int) and 1 <= orientation <= 8 else 1


def _bit_depth(image: ImageFile, data: bytes | memoryview) -> int:
    if image.mode.startswith("I"):
        return 16
    if image.mode not in ("RGB", "RGBA"):
        return 8
    bits = 8
    if image.format == "PNG":
        bits = data[PNG_DEPTH]
    elif image.format == "TIFF":
        bits = max(cast("Any", image).tag_v2.get(TIFF_BITS, (8,)))
    elif image.format == "PPM":
        bits = 16 if _ppm_max(image) > 255 else 8
    elif image.format == "JPEG2000":
        bits = jpeg2000_bits(data)
    return 16 if bits > 8 else 8


def _ppm_max(image: ImageFile) -> int:
    """The value of white in a PPM file."""
    args = image.tile[0][3]
    return int(args[1]) if isinstance(args, tuple) else 255
