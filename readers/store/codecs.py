"""One field's value <-> bytes: both directions of each kind, side by side.

A codec of a field of variable size gives its header items (extents, element type, orientation) and
its payload; from the same two it gives the value back. It trusts neither: both may come from a
stranger's file.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from readers.store.errors import CodecError, ImageError
from readers.store.schema import ITEM_DTYPES, SIDE_MAX, Field
from readers.store.shapes.polygons import Polygons, decode_polygons, encode_polygons

Items = tuple[int, ...]

AXIS_NAMES = ("height", "width", "channel")


@dataclass(frozen=True, slots=True)
class OriginalImage:
    """An image as an image file's bytes, with what a reader needs to know before decoding.

    Attributes:
        data: The file's bytes: the raw file's own, or those that the build encoded.
        size: (height, width, channel) of the pixels as they are read: upright, converted.
        dtype: Element type as it is read, uint8 or uint16.
        orientation: EXIF orientation that the reader applies, in [1, 8].
    """

    data: bytes
    size: tuple[int, int, int]
    dtype: str
    orientation: int


class Codec(Protocol):
    """Turns one value of variable size into header items and a payload, and back.

    Attributes:
        gives_views: Whether `decode` may give arrays over the payload's memory.
    """

    gives_views: bool

    def item_names(self, field: Field) -> tuple[tuple[str, str], ...]:
        """(name, dtype) of each header item, besides the end of the payload."""

    def encode(self, field: Field, value: Any) -> tuple[Items, bytes | memoryview]:
        """Header items and payload of a value. Raises CodecError."""

    def decode(self, field: Field, items: Items, payload: memoryview) -> Any:
        """The value; see `gives_views`. Raises CodecError or ImageError."""


def free_axes(field: Field) -> tuple[tuple[str, int], ...]:
    """(name, axis) of the axes whose extent differs between samples."""
    is_picture = field.kind in ("image", "mask")
    names = AXIS_NAMES if is_picture else tuple(map(str, range(len(field.shape))))
    return tuple((names[axis], axis) for axis, side in enumerate(field.shape) if side is None)


class _Elements:
    """Raw images, masks, boxes, points, labels and arrays as their elements in C order."""

    gives_views = True

    def item_names(self, field: Field) -> tuple[tuple[str, str], ...]:
        dtype = (("dtype", "uint8"),) if field.dtype is None else ()
        return tuple((name, "uint32") for name, _ in free_axes(field)) + dtype

    def encode(self, field: Field, value: Any) -> tuple[Items, bytes | memoryview]:
        array = fitting_array(field, value)
        if field.kind == "label" and field.names is not None:
            _check_positions(array, len(field.names))
        items = [array.shape[axis] for _, axis in free_axes(field)]
        if field.dtype is None:
            items.append(ITEM_DTYPES.index(array.dtype.name))
        return tuple(items), array.reshape(-1).view(np.uint8).data

    def decode(self, field: Field, items: Items, payload: memoryview) -> NDArray[Any]:
        shape, dtype = _recorded_shape(field, items)
        need = math.prod(shape) * np.dtype(dtype).itemsize
        if need != len(payload):
            raise CodecError(f"{len(payload)} bytes, expected {need} for {shape} of {dtype}")
        try:
            return np.frombuffer(payload, little(dtype)).reshape(shape)
        except ValueError as error:  # Without elements, the other sides may be beyond all numbers.
            raise CodecError(f"sides {shape}: {error}") from error


class _Original:
    """Images as their own files' bytes, decoded when they are read."""

    gives_views = False

    def item_names(self, field: Field) -> tuple[tuple[str, str], ...]:
        return (*_ELEMENTS.item_names(field), ("orientation", "uint8"))

    def encode(self, field: Field, value: Any) -> tuple[Items, bytes | memoryview]:
        if not isinstance(value, OriginalImage):
            raise CodecError(f"expected an OriginalImage, found {type(value).__name__}")
        _check_extents(field, value.size, value.dtype)
        if not 1 <= value.orientation <= 8:
            raise CodecError(f"orientation {value.orientation}, expected [1, 8]")
        items = [value.size[axis] for _, axis in free_axes(field)]
        if field.dtype is None:
            items.append(ITEM_DTYPES.index(value.dtype))
        return (*items, value.orientation), value.data

    def decode(
        self, field: Field, items: Items, payload: memoryview, reduction: int = 1
    ) -> NDArray[Any]:
        from readers.store.pictures.decode import decode_image
        from readers.store.pictures.image_header import read_header
        from readers.store.pictures.reduction import reduced_side

        *items_of_pixels, orientation = items
        size, dtype = _recorded_shape(field, items_of_pixels)
        if not 1 <= orientation <= 8:
            raise CodecError(f"orientation {orientation}, expected [1, 8]")
        # The record says how large the picture is, so a bomb behind it is refused undecoded.
        header = read_header(payload, pixels_max=max(1, size[0] * size[1]))
        # It also says how the picture is turned, however a later Pillow may read the file's EXIF.
        header = replace(header, orientation=orientation)
        pixels = decode_image(payload, field.mode or "rgb", header, reduction=reduction)
        reduced = [*(reduced_side(side, reduction) for side in size[:2]), size[2]]
        if list(pixels.shape) not in (size, reduced) or pixels.dtype.name != dtype:
            found = f"{list(pixels.shape)} of {pixels.dtype.name}"
            raise ImageError(f"decoded to {found}, expected {size} of {dtype}")
        return pixels


class _Mixed:
    """Images that are elements in some samples and an image file's bytes in others.

    An orientation of 0, which no file has, tells the former.
    """

    gives_views = True

    def item_names(self, field: Field) -> tuple[tuple[str, str], ...]:
        return _ORIGINAL.item_names(field)

    def encode(self, field: Field, value: Any) -> tuple[Items, bytes | memoryview]:
        if isinstance(value, OriginalImage):
            return _ORIGINAL.encode(field, value)
        items, payload = _ELEMENTS.encode(field, value)
        return (*items, 0), payload

    def decode(self, field: Field, items: Items, payload: memoryview) -> NDArray[Any]:
        if items[-1] == 0:
            return _ELEMENTS.decode(field, items[:-1], payload)
        return _ORIGINAL.decode(field, items, payload)


class _PngMask:
    """Masks as PNG files: gray of 8 bits, or of an int32 mask R + 256 G + 65536 B."""

    gives_views = False

    def item_names(self, field: Field) -> tuple[tuple[str, str], ...]:
        return _ELEMENTS.item_names(field)

    def encode(self, field: Field, value: Any) -> tuple[Items, bytes | memoryview]:
        import cv2

        ids = fitting_array(field, value)
        pixels = ids
        if ids.dtype != np.uint8:
            if ids.size and not 0 <= ids.min() <= ids.max() < _PNG_IDS:
                raise CodecError(f"ids in [{ids.min()}, {ids.max()}], expected [0, {_PNG_IDS})")
            # OpenCV writes B G R.
            pixels = ids.view(np.uint8).reshape(*ids.shape, 4)[..., 2::-1]
        if not ids.size:
            raise CodecError(f"a mask of shape {ids.shape} has no pixels, which a PNG must have")
        done, data = cv2.imencode(".png", np.ascontiguousarray(pixels))
        assert done
        items = tuple(ids.shape[axis] for _, axis in free_axes(field))
        return items, data.tobytes()

    def decode(self, field: Field, items: Items, payload: memoryview) -> NDArray[Any]:
        import cv2

        shape, dtype = _recorded_shape(field, items)
        height, width = shape
        head = struct.pack(">II", height, width)
        channels = b"\0" if dtype == "uint8" else b"\2"
        # Before any memory is taken: the file says the size and kind that the record says.
        found = bytes(payload[: len(_PNG_START) + 10])
        if found != _PNG_START + head[4:] + head[:4] + b"\x08" + channels:
            raise ImageError(f"no PNG of {width}x{height} pixels of {dtype}")
        try:
            pixels = cv2.imdecode(np.frombuffer(payload, np.uint8), cv2.IMREAD_UNCHANGED)
        except cv2.error as error:
            raise ImageError(f"the PNG of a mask is damaged: {error}") from error
        if pixels is None or pixels.shape[:2] != (height, width):
            raise ImageError("the PNG of a mask is damaged")
        if dtype == "uint8":
            return pixels
        blue, green, red = (pixels[..., at].astype(np.int32) for at in range(3))
        ids: NDArray[np.int32] = red | green << 8 | blue << 16
        return ids


_PNG_IDS = 2**24
_PNG_START = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"


class _Polygons:
    """Outlines of objects; see `readers.store.shapes.polygons`."""

    gives_views = False

    def item_names(self, field: Field) -> tuple[tuple[str, str], ...]:
        return ()

    def encode(self, field: Field, value: Any) -> tuple[Items, bytes | memoryview]:
        if not isinstance(value, Polygons):
            raise CodecError(f"expected Polygons, found {type(value).__name__}")
        return (), encode_polygons(value)

    def decode(self, field: Field, items: Items, payload: memoryview) -> Polygons:
        return decode_polygons(payload)


class _Text:
    """Text as UTF-8; bytes that are no UTF-8 (names of files) survive as surrogates."""

    gives_views = False

    def item_names(self, field: Field) -> tuple[tuple[str, str], ...]:
        return ()

    def encode(self, field: Field, value: Any) -> tuple[Items, bytes | memoryview]:
        if isinstance(value, bytes):
            return (), value
        if not isinstance(value, str):
            raise CodecError(f"expected text, found {type(value).__name__}")
        try:
            return (), value.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:
            raise CodecError(f"not UTF-8: {error}") from error

    def decode(self, field: Field, items: Items, payload: memoryview) -> str:
        return str(payload, "utf-8", "surrogateescape")


class _Json:
    """Open-ended attributes as JSON."""

    gives_views = False

    def item_names(self, field: Field) -> tuple[tuple[str, str], ...]:
        return ()

    def encode(self, field: Field, value: Any) -> tuple[Items, bytes | memoryview]:
        try:
            return (), msgspec.json.encode(value)
        except (TypeError, ValueError, msgspec.EncodeError, RecursionError) as error:
            raise CodecError(f"not JSON: {error}") from error

    def decode(self, field: Field, items: Items, payload: memoryview) -> Any:
        try:
            return msgspec.json.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise CodecError(f"not JSON: {error}") from error


class _Bytes:
    """Bytes, as they are."""

    gives_views = False

    def item_names(self, field: Field) -> tuple[tuple[str, str], ...]:
        return ()

    def encode(self, field: Field, value: Any) -> tuple[Items, bytes | memoryview]:
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise CodecError(f"expected bytes, found {type(value).__name__}")
        return (), bytes(value)

    def decode(self, field: Field, items: Items, payload: memoryview) -> bytes:
        return bytes(payload)


_ELEMENTS = _Elements()
_ORIGINAL = _Original()

CODECS: dict[str, Codec] = {
    "raw": _ELEMENTS,
    "original": _ORIGINAL,
    "mixed": _Mixed(),
    "png": _PngMask(),
    "mask": _ELEMENTS,
    "label": _ELEMENTS,
    "boxes": _ELEMENTS,
    "keypoints": _ELEMENTS,
    "polygons": _Polygons(),
    "array": _ELEMENTS,
    "text": _Text(),
    "json": _Json(),
    "bytes": _Bytes(),
}


def decode_reduced(field: Field, items: Items, payload: memoryview, reduction: int) -> NDArray[Any]:
    """An image that is a file's bytes, upright, with both sides divided where that is possible.

    Args:
        field: An image, of codec "original" or "mixed".
        items: Header items; the orientation is not 0, which says that the payload is no file.
        payload: The file.
        reduction: 2, 4 or 8: by how much. A file that is no JPEG, or one that only Pillow decodes,
            comes whole.

    Raises:
        CodecError: The items are those of no image.
        ImageError: The file cannot be decoded.
    """
    return _ORIGINAL.decode(field, items, payload, reduction)


def codec_of(field: Field) -> Codec:
    """The codec of a field that is not a scalar: images and masks choose theirs."""
    return CODECS[field.codec or field.kind]


@functools.cache
def dtype_name(dtype: np.dtype[Any]) -> str:
    """The element type's name, which numpy takes 10 us to put together each time."""
    return dtype.name


@functools.cache
def little(dtype: str) -> np.dtype[Any]:
    """The element type in the format's byte order."""
    return np.dtype(dtype).newbyteorder("<")


def fitting_array(field: Field, value: Any) -> NDArray[Any]:
    """The value as a C-contiguous little-endian array, or a CodecError that says what is wrong."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:  # Lists of unequal lengths.
        raise CodecError(f"no array: {error}") from error
    name = dtype_name(array.dtype)
    _check_extents(field, array.shape, name)
    return np.ascontiguousarray(array, little(name))


def _recorded_shape(field: Field, items: Sequence[int]) -> tuple[list[int], str]:
    """Shape and element type of a value, from its field and header items. Raises CodecError."""
    extents = dict(zip((axis for _, axis in free_axes(field)), items, strict=False))
    shape = [extents[axis] if side is None else side for axis, side in enumerate(field.shape)]
    if field.dtype is not None:
        return shape, field.dtype
    if not 0 <= items[-1] < len(ITEM_DTYPES):
        raise CodecError(f"element type {items[-1]}, expected [0, {len(ITEM_DTYPES)})")
    return shape, ITEM_DTYPES[items[-1]]


def _check_positions(labels: NDArray[Any], count: int) -> None:
    wrong = labels[(labels < 0) | (labels >= count)]
    if len(wrong):
        raise CodecError(f"{wrong[0]}, expected [0, {count}): a position among its names")


def _check_extents(field: Field, shape: tuple[int, ...], dtype: str) -> None:
    fits = len(shape) == len(field.shape) and all(
        0 <= side <= SIDE_MAX if want is None else want == side
        for want, side in zip(field.shape, shape, strict=True)
    )
    if not fits:
        expected = ", ".join("any" if side is None else str(side) for side in field.shape)
        raise CodecError(f"shape {tuple(shape)}, expected ({expected})")
    if dtype != field.dtype and (field.dtype is not None or dtype not in ITEM_DTYPES):
        raise CodecError(
            f"element type {dtype}, expected {field.dtype or ' or '.join(ITEM_DTYPES)}"
        )
