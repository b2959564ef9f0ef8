"""Picture files -> pixels, for the build and for images stored as their own bytes.

Which decoder reads what, and why:

    8-bit JPEG, PNG and still WebP      OpenCV: the fastest of the two, same pixels
    16-bit colour of PNG and TIFF       OpenCV: Pillow keeps 8 of the 16 bits
    planes apart, 16-bit gray + alpha   Pillow, channel by channel: see tiff_planes.py
    everything else, and second tries   Pillow: palettes, CMYK, TIFF, GIF, AVIF, ... and the reason

Colour profiles are not applied, gamma is not corrected, alpha is never blended. Colours that a file
holds multiplied by alpha are divided by it.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from readers.store.errors import ImageError
from readers.store.pictures.essentials import (
    check_png,
    essentials,
    has_all_pixels,
    has_png_end,
    sound_png,
)
from readers.store.pictures.extra_formats import JPEG_12, JPEG_XL, ExtraHeader, decode_extra
from readers.store.pictures.image_header import (
    PNG_DEPTH,
    TIFF_BITS,
    ImageHeader,
    jpeg2000_bits,
    stored_size,
)
from readers.store.pictures.orientation import turn_upright, upright_size
from readers.store.pictures.pillow_files import of_any_size, open_picture, reading_by_pillow
from readers.store.pictures.reduction import reduced_side
from readers.store.pictures.tiff_planes import (
    PREMULTIPLIED,
    TiffPlanes,
    decode_tiff_planes,
    divided,
    read_tiff_planes,
    tiff_alpha,
)

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

MODES = ("rgb", "gray", "rgba", "unchanged")
"""Colour modes that `decode_image` knows."""

_EOI = b"\xff\xd9"
_IEND = b"IEND\xaeB`\x82"
_PNG_COLOR = 25
_PNG_GRAY_ALPHA = 4


def decode_image(
    data: bytes | memoryview, mode: str, header: ImageHeader, *, reduction: int = 1
) -> NDArray[Any]:
    """The first picture of a file, turned upright.

    Modes: "rgb" drops alpha and keeps the stored colour; "gray" is the luma 0.299 R + 0.587 G +
    0.114 B; "rgba" has alpha 255 where the file has none. These scale 16 bits to 8. "unchanged"
    keeps channels and depth; 1 bit becomes 0 or 255, palettes are looked up, and CMYK, YCbCr and
    LAB become RGB.

    Args:
        data: The whole file.
        mode: One of `MODES`.
        header: What `read_header` found in `data`.
        reduction: 1, 2, 4 or 8: a JPEG may come with both sides divided by it, rounded up, which
            costs less. What cannot is decoded whole.

    Returns:
        (height, width, channel) uint8, or uint16 for "unchanged" when `header.bit_depth` is 16.
        C-contiguous and writable.

    Raises:
        ImageError: The file is truncated or damaged, or of a kind that is not supported.
        ValueError: `mode` is not one of `MODES`.
    """
    if mode not in MODES:
        raise ValueError(f"mode must be one of {', '.join(MODES)}; got {mode!r}")
    if header.format in (JPEG_12, JPEG_XL):
        deep = decode_extra(data, ExtraHeader(header.format, header.width, header.height))
        return deep if mode == "unchanged" else np.ascontiguousarray(in_mode(deep, mode))
    planes = read_tiff_planes(data) if header.format == "TIFF" else None
    if planes is not None:
        return _decode_planes(data, mode, header, planes)
    _check_end(data, header)
    if header.format == "PNG":
        data = sound_png(data)
    if not _suits_opencv(data, mode, header) or header.format not in ("JPEG", "MPO"):
        reduction = 1
    pixels = None
    if _suits_opencv(data, mode, header):
        pixels = _decode_by_opencv(data, mode, header, reduction)
    if pixels is None:
        reduction = 1
        pixels = _decode_by_pillow(data, mode, header)
    if header.bit_depth == 16 and header.mode == "RGBA" and tiff_alpha(data) == PREMULTIPLIED:
        # Of 8 bits Pillow does it.
        pixels = divided(pixels, is_deep=mode == "unchanged")
    if mode != "unchanged":
        pixels = in_mode(pixels, mode)
    # Both decoders turn a TIFF by themselves, whatever they are told, and no other format.
    if header.format != "TIFF":
        pixels = turn_upright(pixels, header.orientation)
    found = pixels.shape[:2]
    stored = reduced_side(header.height, reduction), reduced_side(header.width, reduction)
    expected = upright_size(*stored, header.orientation)
    if found != expected:
        raise ImageError(
            f"the pixels are {found[1]}x{found[0]} after turning, but the header promises "
            f"{expected[1]}x{expected[0]}; the file is damaged"
        )
    if pixels.flags.c_contiguous and pixels.flags.writeable:
        return pixels
    # Arrays of Pillow's are read-only, which PyTorch warns of.
    return pixels.copy()


def _check_end(data: bytes | memoryview, header: ImageHeader) -> None:
    """Refuse what decoders let pass: a PNG cut after its last row lacks its end, not its pixels."""
    if header.format != "PNG" or _IEND in bytes(data[-64:]) or _IEND in bytes(data):
        return
    if has_png_end(data):
        return  # Its checksum alone is wrong, and it is about nothing.
    reason = "truncated PNG file: it does not end in an IEND chunk"
    if has_all_pixels(data, header.height * (8 * header.width + 2)):
        reason += "; its pixels are whole: open it in an image program and save it again"
    raise ImageError(reason)


def _suits_opencv(data: bytes | memoryview, mode: str, header: ImageHeader) -> bool:
    """Whether OpenCV gives all pixels as stored, faster than Pillow or with more bits."""
    colors = header.mode in ("RGB", "RGBA")
    if header.frame_count > 1 and header.format != "MPO":
        return False  # Of a 16-bit APNG, OpenCV 5.0 returns a black picture.
    if header.bit_depth == 16:
        is_whole = header.format != "JPEG2000" or jpeg2000_bits(data) == 16
        return colors and is_whole and header.format in ("PNG", "TIFF", "JPEG2000")
    if header.format in ("JPEG", "MPO"):
        # OpenCV may fill the missing rows of a truncated JPEG with gray, silently.
        return header.mode in ("L", "RGB") and _ends_with_eoi(data)
    if header.format == "PNG":
        # A colour declared transparent (tRNS) counts only for "rgba"; there it is Pillow's.
        return header.mode == "RGBA" or (header.mode in ("L", "RGB") and mode != "rgba")
    return header.format == "WEBP" and colors


def _ends_with_eoi(data: bytes | memoryview) -> bool:
    """Whether a JPEG ends in its end-of-image marker, apart from zero bytes."""
    if data[-2:] == _EOI:
        return True
    return data[-1] == 0 and bytes(data).rstrip(b"\0").endswith(_EOI)


_REDUCED = {
    1: ("IMREAD_GRAYSCALE", "IMREAD_COLOR_RGB"),
    2: ("IMREAD_REDUCED_GRAYSCALE_2", "IMREAD_REDUCED_COLOR_2"),
    4: ("IMREAD_REDUCED_GRAYSCALE_4", "IMREAD_REDUCED_COLOR_4"),
    8: ("IMREAD_REDUCED_GRAYSCALE_8", "IMREAD_REDUCED_COLOR_8"),
}
"""OpenCV's flags for gray and colour, by reduction."""


def _decode_by_opencv(
    data: bytes | memoryview, mode: str, header: ImageHeader, reduction: int
) -> NDArray[Any] | None:
    """Pixels (height, width, channel) as stored, or None where OpenCV cannot."""
    import cv2

    keeps_alpha = header.mode == "RGBA" and mode in ("rgba", "unchanged")
    if header.bit_depth == 16 or keeps_alpha:
        flags = cv2.IMREAD_UNCHANGED  # Turns no picture but a TIFF.
    else:
        gray, color = _REDUCED[reduction]
        flags = getattr(cv2, gray if header.mode == "L" else color)
        flags |= cv2.IMREAD_IGNORE_ORIENTATION
    try:
        pixels: NDArray[Any] | None = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    except cv2.error:
        return None
    if pixels is None:
        return None
    if flags != cv2.IMREAD_UNCHANGED:
        if reduction > 1 and pixels.ndim == 3:
            # There are flags for reduced pictures in B G R alone.
            pixels = cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB)
        return pixels[..., None] if pixels.ndim == 2 else pixels
    return _reordered(pixels, data, mode, header)


def _reordered(
    pixels: NDArray[Any], data: bytes | memoryview, mode: str, header: ImageHeader
) -> NDArray[Any] | None:
    """What OpenCV reads unchanged, B G R and A, in the channels and order of the file."""
    import cv2

    if pixels.ndim != 3 or pixels.shape[2] not in (3, 4) or pixels.itemsize * 8 != header.bit_depth:
        return None
    if pixels.shape[2] == 3:
        return None if header.mode == "RGBA" else cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB)
    if header.format == "PNG" and data[_PNG_COLOR] == _PNG_GRAY_ALPHA:
        return pixels[..., 2:]
    # A fourth channel of an RGB file is a PNG's declared transparent colour, or a TIFF's filler.
    if header.mode == "RGB" and not (mode == "rgba" and header.format == "PNG"):
        return cv2.cvtColor(pixels, cv2.COLOR_BGRA2RGB)
    return cv2.cvtColor(pixels, cv2.COLOR_BGRA2RGBA)


def _decode_planes(
    data: bytes | memoryview, mode: str, header: ImageHeader, planes: TiffPlanes
) -> NDArray[Any]:
    """A TIFF that is read channel by channel, turned upright."""
    if (planes.width, planes.height) != (header.width, header.height):
        raise ImageError("the header was read from other bytes than these")

    def read(channel: bytes) -> NDArray[Any]:
        image = open_picture(channel)
        image.load()
        return np.asarray(image).astype(np.uint16 if planes.bits == 16 else np.uint8)

    with reading_by_pillow(data):
        # See NOTE [ two pixel limits ].
        pixels = of_any_size(lambda: decode_tiff_planes(data, planes, read))
    if planes.alpha == PREMULTIPLIED:
        pixels = divided(pixels, is_deep=mode == "unchanged")
    if mode != "unchanged":
        pixels = in_mode(pixels, mode)
    pixels = turn_upright(np.ascontiguousarray(pixels), header.orientation)
    return np.array(pixels, order="C")


def _decode_by_pillow(data: bytes | memoryview, mode: str, header: ImageHeader) -> NDArray[Any]:
    """Pixels (height, width, channel) as stored, but a TIFF's upright."""
    with reading_by_pillow(data):
        if header.format == "PNG":
            check_png(data)  # Pillow does not look at the checksums of pixels.
        try:
            # See NOTE [ two pixel limits ]: a TIFF's size is looked at again when it is loaded.
            return of_any_size(lambda: _loaded_pixels(data, mode, header))
        except Exception:
            if header.format != "PNG":
                raise
            # What stands behind the pixels may be damaged alone.
            lean = next(essentials(data))
            return of_any_size(lambda: _loaded_pixels(lean, mode, header))


def _loaded_pixels(data: bytes | memoryview, mode: str, header: ImageHeader) -> NDArray[Any]:
    image = open_picture(data)
    if stored_size(image) != (header.width, header.height):
        raise ImageError("the header was read from other bytes than these")
    if header.bit_depth == 16 and header.mode in ("RGB", "RGBA"):
        return _deep_color(data, mode, image)
    image.load()
    pixels = _stored_pixels(image)
    if mode == "unchanged":
        return pixels
    pixels = _full_range(pixels, image)
    return _with_key_as_alpha(pixels, image, data) if mode == "rgba" else pixels


def _deep_color(data: bytes | memoryview, mode: str, image: ImageFile) -> NDArray[Any]:
    """16-bit colour that OpenCV does not read: PPM by hand, of others what Pillow leaves."""
    codec, _, offset, args = image.tile[0]
    if image.format == "PPM" and codec == "ppm":
        width, height = image.size
        white = int(cast("Any", args)[1])
        stored = np.frombuffer(data, ">u2", count=height * width * 3, offset=offset)
        deep = (np.minimum(stored, white).astype(np.uint32) * 65535 + white // 2) // white
        pixels: NDArray[Any] = deep.astype(np.uint16).reshape(height, width, 3)
        return pixels
    image.load()  # First, so that a broken file is called broken.
    if mode == "unchanged":
        raise ImageError(
            f"16-bit colour in this kind of {image.format} file can only be read as 8 bits; "
            "convert it to a still 16-bit PNG, or use mode rgb or rgba"
        )
    return _stored_pixels(image)


def _stored_pixels(image: ImageFile) -> NDArray[Any]:
    """Pixels of a loaded image: uint16 for 16-bit gray, else uint8 of 1 to 4 channels."""
    if image.mode.startswith("I"):
        return np.asarray(image).astype(np.uint16)[..., None]
    if image.mode == "P":
        plain = "RGBA" if image.has_transparency_data else "RGB"
    else:
        plain = _PLAIN_MODES.get(image.mode, "RGB")
    pixels = np.asarray(image if image.mode == plain else image.convert(plain))
    return pixels[..., None] if pixels.ndim == 2 else pixels


_PLAIN_MODES = {
    "1": "L",
    "L": "L",
    "LA": "LA",
    "La": "LA",
    "RGBA": "RGBA",
    "RGBa": "RGBA",
    "PA": "RGBA",
}
"""What a mode of Pillow is converted to; RGB where it is not named."""


def _full_range(pixels: NDArray[Any], image: ImageFile) -> NDArray[Any]:
    """12-bit gray of a TIFF with its white at 65535."""
    if image.format != "TIFF" or pixels.dtype != np.uint16:
        return pixels
    bits = int(cast("Any", image).tag_v2.get(TIFF_BITS, (16,))[0])
    return pixels if bits == 16 else pixels << (16 - bits) | pixels >> (2 * bits - 16)


def _with_key_as_alpha(
    pixels: NDArray[Any], image: ImageFile, data: bytes | memoryview
) -> NDArray[Any]:
    """Adds an alpha channel where the file declares one gray or colour to be transparent."""
    key = image.info.get("transparency")
    if pixels.shape[2] not in (1, 3) or not isinstance(key, (int, tuple)):
        return pixels
    if image.format == "PNG" and image.mode in ("1", "L") and isinstance(key, int):
        # Pillow scales the pixels; and the key only of 1 bit, and only from its version 13 on.
        key = min(255, key * 255 // ((1 << data[PNG_DEPTH]) - 1))
    is_clear = (pixels == np.asarray(key)).all(axis=2, keepdims=True)
    opaque = np.iinfo(pixels.dtype).max
    return np.concatenate([pixels, np.where(is_clear, 0, opaque).astype(pixels.dtype)], axis=2)


def in_mode(pixels: NDArray[Any], mode: str) -> NDArray[Any]:
    """Pixels of 1 to 4 channels (L, LA, RGB, RGBA), 8 or 16 bits, as uint8 of the mode.

    Args:
        pixels: (height, width, channel) uint8 or uint16; 16 bits are scaled to 8.
        mode: "rgb", "gray" or "rgba".
    """
    import cv2

    if pixels.dtype == np.uint16:
        pixels = _eight_bits()[pixels]
    count = pixels.shape[2]
    is_gray = count <= 2
    if mode == "gray":
        return (
            pixels[..., :1]
            if is_gray
            else cv2.cvtColor(pixels[..., :3], cv2.COLOR_RGB2GRAY)[..., None]
        )
    if count == 1:
        color = cv2.cvtColor(pixels, cv2.COLOR_GRAY2RGB)
    else:
        color = np.repeat(pixels[..., :1], 3, axis=2) if is_gray else pixels[..., :3]
    if mode == "rgb":
        return color
    has_alpha = count in (2, 4)
    alpha = pixels[..., -1:] if has_alpha else np.full_like(pixels[..., :1], 255)
    return np.concatenate([color, alpha], axis=2)


@functools.cache
def _eight_bits() -> NDArray[np.uint8]:
    """Table from 16 bits to 8: scaled and rounded, so that 65535 is 255 and nothing is clipped."""
    return ((np.arange(65536, dtype=np.uint32) + 128) // 257).astype(np.uint8)
