"""TIFF files that neither decoder reads right, channel by channel; and what their alpha means.

    planes apart            OpenCV shows the first 16-bit plane as every channel; Pillow refuses
                            some of 8 bits, and loses the alpha of others
    16-bit gray with alpha  neither reads it, nor that of 8 bits of which nothing is said

A plane is a picture of one channel already: its strips are named by a directory of its own, put
behind the file, and Pillow decodes that, whatever the compression. Two channels that take turns are
read as one that is twice as wide. The tags are those of TIFF 6.0.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from readers.store.errors import ImageError

_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC, _FILL_ORDER = 256, 257, 258, 259, 262, 266
_STRIPS, _ORIENTATION, _CHANNELS, _STRIP_ROWS, _STRIP_BYTES, _PLANAR = 273, 274, 277, 278, 279, 284
_PREDICTOR, _TILE_WIDTH, _TILE_HEIGHT, _TILES, _TILE_BYTES = 317, 322, 323, 324, 325
_EXTRA, _SAMPLE_FORMAT = 338, 339

_PLAIN = 1
_LOSSLESS = frozenset((_PLAIN, 5, 8, 32773, 32946, 34925, 50000))
"""None, LZW, deflate, PackBits, old deflate, LZMA, Zstandard."""

_GRAY, _RGB = 1, 2
_APART = 2
_DIFFERENCES = 2
FILLER, PREMULTIPLIED = 0, 1
"""Of `TiffPlanes.alpha`: the last channel is nothing; colours are multiplied by it."""

_NUMBERS = {2: " with a sign", 3: " in floating point"}

_TYPES = {1: "B", 3: "H", 4: "I", 16: "Q"}
_PAGES_MAX = 100_000


@dataclass(frozen=True, kw_only=True)
class TiffPlanes:
    """The first picture of a TIFF that is to be read channel by channel.

    Attributes:
        order: "<" or ">": the order of bytes.
        tags: Values of its directory, by tag.
        width: In pixels, as stored.
        height: In pixels, as stored.
        bits: Of a channel: 8 or 16.
        channel_count: As stored, alpha or a filler included.
        alpha: Meaning of a channel beyond the colours, as the file says; None: there is none, or
            nothing is said.
        orientation: EXIF orientation in [1, 9).
        page_count: Pictures in the file.
    """

    order: str
    tags: dict[int, tuple[int, ...]]
    width: int
    height: int
    bits: int
    channel_count: int
    alpha: int | None
    orientation: int
    page_count: int

    @property
    def tile(self) -> tuple[int, int]:
        """(width, height) of a tile; (1, 1) where there are strips."""
        return self.tags.get(_TILE_WIDTH, (1,))[0], self.tags.get(_TILE_HEIGHT, (1,))[0]

    @property
    def mode(self) -> str:
        """Pillow's mode of what is read."""
        kept = self.channel_count - (self.alpha == FILLER)
        return ("L", "LA", "RGB", "RGBA")[kept - 1]


def tiff_alpha(data: bytes | memoryview) -> int | None:
    """What a TIFF says about its first channel beyond the colours; None: nothing, or no TIFF."""
    read = _read_tags(data)
    return read[1].get(_EXTRA, (None,))[0] if read is not None else None


def read_tiff_planes(data: bytes | memoryview) -> TiffPlanes | None:
    """The first picture of a TIFF, where it is one that is to be read here; else None."""
    read = _read_tags(data)
    if read is None:
        return None
    order, tags, page_count = read
    count = tags.get(_CHANNELS, (1,))[0]
    bits = set(tags.get(_BITS, (1,)))
    alpha = tags.get(_EXTRA, (None,))[0]
    is_apart = tags.get(_PLANAR, (1,))[0] == _APART and count > 1
    color_count = {_GRAY: 1, _RGB: 3}.get(tags.get(_PHOTOMETRIC, (-1,))[0], -1)
    is_here = (
        bits in ({8}, {16})
        and (is_apart or (count == 2 and (bits == {16} or alpha in (None, PREMULTIPLIED))))
        and count - color_count in (0, 1)
    )
    is_whole = {_WIDTH, _HEIGHT} <= tags.keys() and set(tags.get(_SAMPLE_FORMAT, (1,))) == {1}
    if not (is_here and is_whole):
        return None
    if tags.get(_COMPRESSION, (_PLAIN,))[0] not in _LOSSLESS and bits == {8}:
        return None  # JPEG in planes; Pillow reads it.
    orientation = tags.get(_ORIENTATION, (1,))[0]
    return TiffPlanes(
        order=order,
        tags=tags,
        width=tags[_WIDTH][0],
        height=tags[_HEIGHT][0],
        bits=bits.pop(),
        channel_count=count,
        alpha=alpha if count > color_count else None,
        orientation=orientation if 1 <= orientation <= 8 else 1,
        page_count=page_count,
    )


def tiff_kind_text(data: bytes | memoryview) -> str:
    """What kind of TIFF a file is, for a message: "5 channels of 16 bits, ..."."""
    read = _read_tags(data)
    if read is None:
        return "damaged, or of an unknown kind"
    _, tags, _ = read
    count = tags.get(_CHANNELS, (1,))[0]
    bits = " and ".join(map(str, sorted(set(tags.get(_BITS, (1,))))))
    kind = tags.get(_PHOTOMETRIC, (0,))[0]
    numbers = _NUMBERS.get(tags.get(_SAMPLE_FORMAT, (1,))[0], "")
    return f"{count} channels of {bits} bits{numbers}, photometric interpretation {kind}"


def decode_tiff_planes(
    data: bytes | memoryview, planes: TiffPlanes, read: Callable[[bytes], NDArray[Any]]
) -> NDArray[Any]:
    """Pixels (height, width, channel) as stored, not turned, without a filler; alpha as it is.

    Args:
        data: The whole file.
        planes: What `read_tiff_planes` found in it.
        read: Decodes a TIFF of one channel: (height, width) of its values.

    Raises:
        ImageError: The file is truncated or damaged, or compressed in a way that loses values.
    """
    compression = planes.tags.get(_COMPRESSION, (_PLAIN,))[0]
    if compression not in _LOSSLESS:
        raise ImageError(
            f"a TIFF with planes apart, compressed by method {compression}, is not read; save it "
            "with its channels together, or as PNG"
        )
    count = planes.channel_count
    if planes.tags.get(_PLANAR, (1,))[0] == _APART:
        pixels = np.stack(
            [read(_one_channel(data, planes, plane, 1)) for plane in range(count)], axis=2
        )
    else:
        wide = read(_one_channel(data, planes, 0, count))
        pixels = wide.reshape(planes.height, planes.width, count)
        if planes.tags.get(_PREDICTOR, (1,))[0] == _DIFFERENCES:
            pixels = _summed(pixels, planes)
    return pixels[..., :-1] if planes.alpha == FILLER else pixels


def divided(pixels: NDArray[Any], *, is_deep: bool) -> NDArray[Any]:
    """Colours that were multiplied by alpha divided by it again, rounded down as Pillow does.

    Where alpha is 0 nothing is known of the colour: it is 0.

    Args:
        pixels: (height, width, channel) uint8 or uint16, the last channel alpha.
        is_deep: Whether 16 bits are to stay 16; else they become 8, without rounding twice.
    """
    white = int(np.iinfo(pixels.dtype).max)
    top = white if is_deep else 255
    color, alpha = pixels[..., :-1].astype(np.uint32), pixels[..., -1:].astype(np.uint32)
    quotient = np.minimum(color * top // np.maximum(alpha, 1), top) * (alpha > 0)
    result = np.concatenate([quotient, (alpha * top + white // 2) // white], axis=2)
    return result.astype(pixels.dtype if is_deep else np.uint8)


def _summed(pixels: NDArray[Any], planes: TiffPlanes) -> NDArray[Any]:
    """Values of which each was stored as the difference from the pixel to its left."""
    side = planes.tags.get(_TILE_WIDTH, (planes.width,))[0]
    parts = [
        np.cumsum(pixels[:, left : left + side], axis=1, dtype=pixels.dtype)
        for left in range(0, planes.width, side)
    ]
    return np.concatenate(parts, axis=1)


def _one_channel(data: bytes | memoryview, planes: TiffPlanes, plane: int, times: int) -> bytes:
    """The file with a directory of one channel: of a plane, or of all that take turns."""
    tags, order = planes.tags, planes.order
    is_tiled = _TILES in tags
    starts, sizes = (_TILES, _TILE_BYTES) if is_tiled else (_STRIPS, _STRIP_BYTES)
    share = len(tags.get(starts, ())) // (planes.channel_count if times == 1 else 1)
    own = slice(plane * share, (plane + 1) * share)
    offsets, counts = tags.get(starts, ())[own], tags.get(sizes, ())[own]
    _check_parts(data, planes, offsets, counts, times)
    directory = {
        _WIDTH: (planes.width * times,),
        _HEIGHT: (planes.height,),
        _BITS: (planes.bits,),
        _COMPRESSION: tags.get(_COMPRESSION, (_PLAIN,)),
        _PHOTOMETRIC: (_GRAY,),
        starts: offsets,
        _CHANNELS: (1,),
        sizes: counts,
    }
    for tag in (_FILL_ORDER, _STRIP_ROWS, _TILE_WIDTH, _TILE_HEIGHT, _PREDICTOR):
        if tag in tags:
            directory[tag] = tags[tag]
    if times > 1:
        directory.pop(_PREDICTOR, None)  # It would take the difference from another channel.
        if is_tiled:
            directory[_TILE_WIDTH] = (tags[_TILE_WIDTH][0] * times,)
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "I", len(data))
    return b"".join([head, bytes(data[8:]), _directory(directory, order, len(data))])


def _directory(tags: dict[int, tuple[int, ...]], order: str, start: int) -> bytes:
    """A directory at an offset in its file, with the values that it points to behind it."""
    entries = struct.pack(order + "H", len(tags))
    behind = start + 2 + 12 * len(tags) + 4
    values = b""
    for tag, found in sorted(tags.items()):
        packed = struct.pack(f"{order}{len(found)}I", *found)
        entries += struct.pack(order + "HHI", tag, 4, len(found))
        if len(found) == 1:
            entries += packed
        else:
            entries += struct.pack(order + "I", behind + len(values))
            values += packed
    return entries + struct.pack(order + "I", 0) + values


def _check_parts(
    data: bytes | memoryview,
    planes: TiffPlanes,
    offsets: tuple[int, ...],
    counts: tuple[int, ...],
    times: int,
) -> None:
    """Refuse strips or tiles that are not all in the file: what is behind it would be read."""
    tags = planes.tags
    is_tiled = _TILES in tags
    if is_tiled:
        width, height = tags.get(_TILE_WIDTH, (0,))[0], tags.get(_TILE_HEIGHT, (0,))[0]
        if width < 1 or height < 1:
            raise ImageError("damaged TIFF file: its tiles have no size")
        part_count = -(-planes.width // width) * -(-planes.height // height)
    else:
        width, height = planes.width, tags.get(_STRIP_ROWS, (planes.height,))[0]
        height = min(max(1, height), planes.height)
        part_count = -(-planes.height // height)
    if not len(offsets) == len(counts) == part_count:
        raise ImageError(
            f"damaged TIFF file: {len(offsets)} strips or tiles with {len(counts)} sizes for a "
            f"channel; expected {part_count} of both"
        )
    is_plain = tags.get(_COMPRESSION, (_PLAIN,))[0] == _PLAIN
    left = planes.height
    for offset, size in zip(offsets, counts, strict=True):
        rows = height if is_tiled else min(height, left)
        left -= rows
        needed = rows * width * times * planes.bits // 8 if is_plain else 1
        if offset + size > len(data) or size < needed:
            raise ImageError(
                f"truncated TIFF file: {len(data)} bytes, and pixels up to byte "
                f"{offset + max(size, needed)}"
            )


def _read_tags(
    data: bytes | memoryview,
) -> tuple[str, dict[int, tuple[int, ...]], int] | None:
    """(order of bytes, values of the first directory by tag, count of directories), or None.

    Raises:
        ImageError: The directory is not all there: Pillow would take the picture for one of another
            kind, by the tags that are left.
    """
    start = bytes(data[:4])
    order = {b"II": "<", b"MM": ">"}.get(start[:2], "")
    if not order:
        return None
    (version,) = struct.unpack(order + "H", start[2:]) if len(start) == 4 else (0,)
    if version not in (42, 43):
        return None
    # The counts and offsets of BigTIFF have 8 bytes each.
    head, entry, at_first = ("HHI", "I", 4) if version == 42 else ("HHQ", "Q", 8)
    try:
        (at,) = struct.unpack_from(order + entry, data, at_first)
        tags = _directory_tags(data, order, at, head, entry)
        return order, tags, _page_count(data, order, at, entry)
    except (struct.error, OverflowError):
        return None  # Damaged: Pillow says how.


def _directory_tags(
    data: bytes | memoryview, order: str, at: int, head: str, entry: str
) -> dict[int, tuple[int, ...]]:
    size, value_bytes = struct.calcsize("<" + head + entry), struct.calcsize("<" + entry)
    count_type = "H" if entry == "I" else "Q"
    (count,) = struct.unpack_from(order + count_type, data, at)
    at += struct.calcsize("<" + count_type)
    if at + count * size > len(data):
        raise ImageError(
            f"truncated TIFF file: {len(data)} bytes, and its directory up to byte "
            f"{at + count * size}"
        )
    tags: dict[int, tuple[int, ...]] = {}
    for position in range(at, at + count * size, size):
        tag, kind, length = struct.unpack_from(order + head, data, position)
        if kind not in _TYPES:
            continue
        where = position + size - value_bytes
        byte_count = length * struct.calcsize("<" + _TYPES[kind])
        if byte_count > value_bytes:
            (where,) = struct.unpack_from(order + entry, data, where)
        if length and where + byte_count <= len(data):
            tags[tag] = struct.unpack_from(f"{order}{length}{_TYPES[kind]}", data, where)
    return tags


def _page_count(data: bytes | memoryview, order: str, at: int, entry: str) -> int:
    count_type, size = ("H", 12) if entry == "I" else ("Q", 20)
    seen: set[int] = set()
    while at and at not in seen and len(seen) < _PAGES_MAX:
        seen.add(at)
        try:
            (count,) = struct.unpack_from(order + count_type, data, at)
            after = at + struct.calcsize("<" + count_type) + count * size
            (at,) = struct.unpack_from(order + entry, data, after)
        except (struct.error, OverflowError):
            break
    return max(1, len(seen))
