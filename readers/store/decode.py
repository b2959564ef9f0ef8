"""Picture files -> pixels, for the build and for images stored as their own bytes.

Which decoder reads what, and why:

    8-bit JPEG, PNG and still WebP      OpenCV: the fastest of the two, same pixels
    16-bit colour of PNG and TIFF       OpenCV: Pillow keeps 8 of the 16 bits
    everything else, and second tries   Pillow: palettes, CMYK, TIFF, GIF, AVIF, ... and the reason

Colour profiles are not applied, gamma is not corrected, alpha is never blended.
"""

from __future__ import annotations

import functools
import importlib
import io
import logging
import re
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from readers.store.errors import ImageError
from readers.store.extra_formats import (
    JPEG_12,
    JPEG_XL,
    ExtraHeader,
    decode_extra,
    read_extra_header,
)

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

MODES = ("rgb", "gray", "rgba", "unchanged")
"""Colour modes that `decode_image` knows."""

_FORMATS = ("JPEG", "PNG", "WEBP", "TIFF", "BMP", "GIF", "PPM", "AVIF", "JPEG2000", "TGA")
"""Pillow's names of what is read, the commonest first. No others: some start other programs."""

_READ = "JPEG, MPO, PNG, WebP, TIFF, BMP, GIF, PPM, AVIF, JPEG 2000 and TGA"

_SIGNATURES = (
    (re.compile(rb"\xff\xd8\xff"), "JPEG"),
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "PNG"),
    (re.compile(rb"RIFF....WEBP", re.DOTALL), "WEBP"),
    (re.compile(rb"II[*+]\0|MM\0[*+]"), "TIFF"),
    (re.compile(rb"BM"), "BMP"),
    (re.compile(rb"GIF8[79]a"), "GIF"),
    (re.compile(rb"P[1-6]\s"), "PPM"),
    (re.compile(rb"....ftypavi[fs]", re.DOTALL), "AVIF"),
    (re.compile(rb"\0\0\0\x0cjP  \r\n\x87\n|\xff\x4f\xff\x51"), "JPEG2000"),
)

_STRANGERS = (
    (re.compile(rb"\s*(<!doctype html|<html)", re.IGNORECASE), "an HTML page"),
    (re.compile(rb"\s*(<\?xml[^>]*>\s*)?<svg", re.IGNORECASE), "an SVG drawing"),
    (re.compile(rb"version https://git-lfs"), "a Git LFS pointer: get the file with git lfs pull"),
    (re.compile(rb"%PDF"), "a PDF document"),
    (re.compile(rb"PK\x03\x04"), "a zip archive"),
    (re.compile(rb"\x1f\x8b"), "gzip data"),
    (re.compile(rb"\x93NUMPY"), "a NumPy array"),
    (re.compile(rb"\0\x05\x16\x07"), "a macOS resource fork (AppleDouble)"),
)

_HEIC = re.compile(rb"....ftyp(hei[cxms]|hev[cx]|mif1|msf1)", re.DOTALL)
_EOI = b"\xff\xd9"
_IEND = b"IEND\xaeB`\x82"
_ORIENTATION_TAG = 0x0112
_TIFF_WIDTH, _TIFF_HEIGHT, _TIFF_BITS, _TIFF_TILE_WIDTH, _TIFF_TILE_HEIGHT = 256, 257, 258, 322, 323
_EXIF_KEYS = frozenset(("exif", "Raw profile type exif", "xmp", "XML:com.adobe.xmp"))
_PNG_DEPTH, _PNG_COLOR = 24, 25
_PNG_GRAY_ALPHA = 4
_SWAPPED = (5, 6, 7, 8)

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
    plain = _plain_jpeg_header(data)
    if plain is not None and plain.width * plain.height <= pixels_max:
        return plain
    extra = read_extra_header(data)
    if extra is not None:
        _check_pixel_count(extra.width, extra.height, pixels_max)
        bit_depth = 16 if extra.format == JPEG_12 else 8
        return ImageHeader(extra.format, extra.width, extra.height, "RGB", 1, 1, bit_depth)
    with _pillow_kept_quiet():
        try:
            image = _open(data)
            width, height = _stored_size(image)
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
        except ImageError:
            raise
        except Exception as error:  # Broken files make Pillow's plugins raise nearly any class.
            raise ImageError(_damage(data, error)) from error


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
    _check_end(data, header)
    if not _suits_opencv(data, mode, header) or header.format not in ("JPEG", "MPO"):
        reduction = 1
    pixels = None
    if _suits_opencv(data, mode, header):
        pixels = _decode_by_opencv(data, mode, header, reduction)
    if pixels is None:
        reduction = 1
        pixels = _decode_by_pillow(data, mode, header)
    if mode != "unchanged":
        pixels = in_mode(pixels, mode)
    # Both decoders turn a TIFF by themselves, whatever they are told, and no other format.
    if header.format != "TIFF":
        pixels = turn_upright(pixels, header.orientation)
    found = pixels.shape[:2]
    stored = -(-header.height // reduction), -(-header.width // reduction)
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


def upright_size(height: int, width: int, orientation: int) -> tuple[int, int]:
    """(height, width) of a picture after it is turned upright."""
    return (width, height) if orientation in _SWAPPED else (height, width)


def turn_upright(pixels: NDArray[Any], orientation: int) -> NDArray[Any]:
    """The picture (height, width, channel) as EXIF `orientation`, in [1, 9), says to show it."""
    if orientation == 1:
        return pixels
    import cv2

    if orientation in (2, 3, 4):
        turned = cv2.flip(pixels, {2: 1, 3: -1, 4: 0}[orientation])
    else:
        turned = cv2.transpose(pixels)
        if orientation != 5:
            turned = cv2.flip(turned, {6: 1, 7: -1, 8: 0}[orientation])
    # OpenCV drops the axis of a single channel.
    return turned.reshape(*turned.shape[:2], pixels.shape[2])


# Opening, and what the header says.

_SOF, _SOS, _APP0 = (0xC0, 0xC1, 0xC2), 0xDA, 0xE0
_PLAIN_SEGMENTS = (_APP0, 0xC4, 0xDB, 0xDD, 0xFE)
"""JFIF, the tables of codes and of quantization, the restart interval, comments."""


def _plain_jpeg_header(data: bytes | memoryview) -> ImageHeader | None:
    """The header of a JPEG that has nothing but what every decoder takes alike; else None.

    Pillow reads the same in 0.03 to 0.15 ms, a tenth of the time that the decoding takes. EXIF,
    colour profiles, Adobe's marker and whatever is odd or damaged are left to it.
    """
    if data[:2] != b"\xff\xd8":
        return None
    at, end = 2, len(data)
    size: tuple[int, int, int] | None = None
    while at + 4 <= end and data[at] == 0xFF:
        marker = data[at + 1]
        length = data[at + 2] << 8 | data[at + 3]
        if marker == _SOS:
            break
        if marker in _SOF:
            if size is not None or length < 8 or at + 10 > end or data[at + 4] != 8:
                return None
            height, width = data[at + 5] << 8 | data[at + 6], data[at + 7] << 8 | data[at + 8]
            size = height, width, data[at + 9]
        elif marker not in _PLAIN_SEGMENTS or length < 2:
            return None
        at += 2 + length
    else:
        return None
    if size is None or size[2] not in (1, 3) or not size[0] or not size[1]:
        return None
    mode = "L" if size[2] == 1 else "RGB"
    return ImageHeader("JPEG", size[1], size[0], mode, 1, 1, 8)


def _open(data: bytes | memoryview) -> ImageFile:
    """Pillow's lazy image: its header is parsed, its pixels are not."""
    image_module = _pillow()
    try:
        try:
            return _opened(data, _formats())
        except image_module.DecompressionBombError:
            with _pillow_limit_lifted():
                return _opened(data, _formats())
    except image_module.UnidentifiedImageError as error:
        start = bytes(data[:256])
        if _HEIC.match(start):
            return _open_heic(data)
        name = _signed_format(start)
        if name is None:
            raise ImageError(_stranger(start)) from error
        # Pillow has swallowed what its plugin said; ask the plugin itself.
        if name in _formats():
            factory, _ = image_module.OPEN[name]
            factory(io.BytesIO(data), "")
        raise ImageError(_damage(data, error)) from error


def _opened(data: bytes | memoryview, formats: tuple[str, ...]) -> ImageFile:
    image: ImageFile = _pillow().open(io.BytesIO(data), formats=formats)
    return image


def _open_heic(data: bytes | memoryview) -> ImageFile:
    try:
        plugin = importlib.import_module("pillow_heif")
    except ImportError as error:
        raise ImageError(
            "HEIC pictures need pillow-heif: install the extra named heif, or convert to JPEG"
        ) from error
    plugin.register_heif_opener()
    return _opened(data, ("HEIF",))


@functools.cache
def _formats() -> tuple[str, ...]:
    """The formats that are read and that this Pillow has: AVIF came with 11.3."""
    _pillow().init()
    return tuple(name for name in _FORMATS if name in _pillow().OPEN)


@functools.cache
def _pillow() -> Any:
    """The module PIL.Image, imported on first use."""
    # Without a handler, errors that Pillow logs about a broken file would be printed to stderr.
    logging.getLogger("PIL").addHandler(logging.NullHandler())
    return importlib.import_module("PIL.Image")


_LIMIT_LOCK = threading.RLock()


@contextmanager
def _pillow_limit_lifted() -> Iterator[None]:
    """Let Pillow open a picture of any size.

    NOTE [ two pixel limits ] Pillow refuses above 2 * MAX_IMAGE_PIXELS before it tells width and
    height, so our own limit could neither be higher nor name the size. Its limit is one number for
    the process and guards the user's own code too: it is lifted for the few files that hit it,
    while they are opened or loaded, and put back. Opening takes no memory for pixels, and only
    what has passed our limit is loaded.
    """
    module = _pillow()
    with _LIMIT_LOCK:
        kept = module.MAX_IMAGE_PIXELS
        module.MAX_IMAGE_PIXELS = None
        try:
            yield
        finally:
            module.MAX_IMAGE_PIXELS = kept


_PILLOW_WARNINGS = ("ignore", None, Warning, re.compile(r"PIL\."), 0)


@contextmanager
def _pillow_kept_quiet() -> Iterator[None]:
    """Silence what Pillow's own modules warn of: odd EXIF, palettes with transparency, large sizes.

    `warnings.catch_warnings` puts back the whole list of filters, which mixes up threads that do so
    at the same time, and makes Python repeat warnings that it had shown once. One more
    entry, put in and taken out by itself, does neither.
    """
    filters = cast("list[object]", warnings.filters)
    filters.insert(0, _PILLOW_WARNINGS)
    try:
        yield
    finally:
        with suppress(ValueError):  # Somebody has emptied the list meanwhile.
            filters.remove(_PILLOW_WARNINGS)


def _stored_size(image: ImageFile) -> tuple[int, int]:
    """(width, height) before orientation; Pillow gives a TIFF's after it."""
    tags = getattr(image, "tag_v2", None)
    if tags is None or image.format != "TIFF":
        return image.size
    return int(tags[_TIFF_WIDTH]), int(tags[_TIFF_HEIGHT])


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
    over = f"pixels is over the limit of {pixels_max} pixels; raise it with --max-pixels"
    if image.format == "TIFF":
        # A tile may reach over the edge of its image; memory is taken for the whole tile.
        tags = cast("Any", image).tag_v2
        tile = int(tags.get(_TIFF_TILE_WIDTH, 1)), int(tags.get(_TIFF_TILE_HEIGHT, 1))
        if tile[0] * tile[1] > max(pixels_max, _TILE_PIXELS):
            raise ImageError(f"a tile of {tile[0]}x{tile[1]} {over}")


def _check_mode(image: ImageFile) -> None:
    # Of "I", only PPM's is known to lie in [0, 65536).
    if image.mode == "F" or (image.mode == "I" and image.format != "PPM"):
        kind = "floating-point" if image.mode == "F" else "32-bit or signed"
        raise ImageError(
            f"{kind} pixels (mode {image.mode}) are not supported: what is black and what is white "
            "is not known; convert to unsigned integers of 8 or 16 bits"
        )


def _orientation(image: ImageFile) -> int:
    if image.format != "TIFF" and _EXIF_KEYS.isdisjoint(image.info):
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
        bits = data[_PNG_DEPTH]
    elif image.format == "TIFF":
        bits = max(cast("Any", image).tag_v2.get(_TIFF_BITS, (8,)))
    elif image.format == "PPM":
        bits = 16 if _ppm_max(image) > 255 else 8
    elif image.format == "JPEG2000":
        bits = _jpeg2000_bits(data)
    return 16 if bits > 8 else 8


def _ppm_max(image: ImageFile) -> int:
    """The value of white in a PPM file."""
    args = image.tile[0][3]
    return int(args[1]) if isinstance(args, tuple) else 255


def _jpeg2000_bits(data: bytes | memoryview) -> int:
    """Bits of the first channel, from the codestream's SIZ segment."""
    siz = bytes(data[:65536]).find(b"\xff\x4f\xff\x51")
    return (data[siz + 42] & 0x7F) + 1 if siz >= 0 else 8


# Reasons.


def _signed_format(start: bytes) -> str | None:
    """Pillow's name of the format whose signature the file starts with."""
    return next((name for signature, name in _SIGNATURES if signature.match(start)), None)


def _stranger(start: bytes) -> str:
    """Why the bytes are no picture, told from the first of them."""
    if not any(start):
        return (
            f"not an image: the first {len(start)} bytes are all zero, an unfinished copy perhaps"
        )
    kind = next((kind for signature, kind in _STRANGERS if signature.match(start)), None)
    looks = f"it looks like {kind}" if kind else f"it starts with {start[:16]!r}"
    return f"not an image: {looks}; pictures that are read: {_READ}"


def _damage(data: bytes | memoryview, error: Exception) -> str:
    """What is wrong with the file, in the decoder's words without its memory addresses."""
    name = _signed_format(bytes(data[:256])) or "image"
    if isinstance(error, MemoryError):
        return f"not enough memory to decode this {name} file"
    text = str(error)
    if name == "WEBP" and len(data) < (expected := int.from_bytes(data[4:8], "little") + 8):
        return f"truncated WEBP file: {len(data)} bytes of {expected}"
    if isinstance(error, _pillow().UnidentifiedImageError) or not text:
        text = type(error).__name__
    return f"damaged {name} file: {text}"


def _check_end(data: bytes | memoryview, header: ImageHeader) -> None:
    """Refuse what decoders let pass: a PNG cut after its last row lacks its end, not its pixels."""
    if header.format == "PNG" and _IEND not in bytes(data[-64:]) and _IEND not in bytes(data):
        raise ImageError("truncated PNG file: it does not end in an IEND chunk")


# Decoding.


def _suits_opencv(data: bytes | memoryview, mode: str, header: ImageHeader) -> bool:
    """Whether OpenCV gives all pixels as stored, faster than Pillow or with more bits."""
    colors = header.mode in ("RGB", "RGBA")
    if header.frame_count > 1 and header.format != "MPO":
        return False  # Of a 16-bit APNG, OpenCV 5.0 returns a black picture.
    if header.bit_depth == 16:
        is_whole = header.format != "JPEG2000" or _jpeg2000_bits(data) == 16
        return colors and is_whole and header.format in ("PNG", "TIFF", "JPEG2000")
    if header.format in ("JPEG", "MPO"):
        # OpenCV may fill the missing rows of a truncated JPEG with gray, without a word.
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


def _decode_by_pillow(data: bytes | memoryview, mode: str, header: ImageHeader) -> NDArray[Any]:
    """Pixels (height, width, channel) as stored, but a TIFF's upright."""
    with _pillow_kept_quiet():
        try:
            try:
                return _loaded_pixels(data, mode, header)
            except _pillow().DecompressionBombError:
                # See NOTE [ two pixel limits ]: a TIFF's size is looked at again when it is loaded.
                with _pillow_limit_lifted():
                    return _loaded_pixels(data, mode, header)
        except ImageError:
            raise
        except Exception as error:  # Broken files make Pillow's plugins raise nearly any class.
            raise ImageError(_damage(data, error)) from error


def _loaded_pixels(data: bytes | memoryview, mode: str, header: ImageHeader) -> NDArray[Any]:
    image = _open(data)
    if _stored_size(image) != (header.width, header.height):
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
    bits = int(cast("Any", image).tag_v2.get(_TIFF_BITS, (16,))[0])
    return pixels if bits == 16 else pixels << (16 - bits) | pixels >> (2 * bits - 16)


def _with_key_as_alpha(
    pixels: NDArray[Any], image: ImageFile, data: bytes | memoryview
) -> NDArray[Any]:
    """Adds an alpha channel where the file declares one gray or colour to be transparent."""
    key = image.info.get("transparency")
    if pixels.shape[2] not in (1, 3) or not isinstance(key, (int, tuple)):
        return pixels
    if image.format == "PNG" and image.mode == "L" and isinstance(key, int):
        key = key * 255 // ((1 << data[_PNG_DEPTH]) - 1)  # Pillow scales the pixels, not the key.
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
