"""TIFF files of every order of channels and kind of alpha give the picture that they hold."""

from __future__ import annotations

import itertools
import struct
import zlib
from typing import Any

import numpy as np
import PIL
import pytest
from numpy.typing import NDArray

from readers.store.errors import ImageError
from readers.store.pictures.decode import MODES, decode_image
from readers.store.pictures.image_header import read_header
from tests.readers.store.pictures import HEIGHT, LIMIT, TURNS, WIDTH, decoded, noise, saved

PLAIN, DEFLATE, PACK_BITS = 1, 8, 32773


def tiff_file(
    pixels: NDArray[Any],
    *,
    extra: int | None = None,
    is_apart: bool = False,
    order: str = "<",
    compression: int = PLAIN,
    predictor: int = 1,
    rows: int | None = None,
    tile: int | None = None,
    is_big: bool = False,
    orientation: int = 1,
) -> bytes:
    """A TIFF of (height, width, channel) uint8 or uint16."""
    height, width, count = pixels.shape
    stored = pixels.astype(pixels.dtype.newbyteorder(order))
    planes = [stored[..., n : n + 1] for n in range(count)] if is_apart else [stored]
    across, down = (tile, tile) if tile else (width, rows or height)
    parts = []
    for plane in planes:
        for top, left in itertools.product(range(0, height, down), range(0, width, across)):
            part = plane[top : top + down, left : left + across]
            if tile:
                missing = (0, down - part.shape[0]), (0, across - part.shape[1]), (0, 0)
                part = np.pad(part, missing)
            if predictor == 2:
                part = np.concatenate([part[:, :1], np.diff(part, axis=1)], axis=1)
                part = part.astype(stored.dtype)
            parts.append(_packed(part.tobytes(), compression))
    start = 16 if is_big else 8
    offsets = [start + sum(map(len, parts[:n])) for n in range(len(parts))]
    sizes = list(map(len, parts))
    tags: dict[int, tuple[int, list[int]]] = {
        256: (4, [width]),
        257: (4, [height]),
        258: (3, [8 * pixels.itemsize] * count),
        259: (3, [compression]),
        262: (3, [2 if count >= 3 else 1]),
        274: (3, [orientation]),
        277: (3, [count]),
        284: (3, [2 if is_apart else 1]),
        317: (3, [predictor]),
    }
    if tile:
        tags |= {322: (4, [tile]), 323: (4, [tile]), 324: (4, offsets), 325: (4, sizes)}
    else:
        tags |= {273: (4, offsets), 278: (4, [down]), 279: (4, sizes)}
    if extra is not None:
        tags[338] = (3, [extra])
    at = start + sum(sizes)
    return _head(order, at, is_big) + b"".join(parts) + _directory(tags, order, at, is_big)


def _packed(data: bytes, compression: int) -> bytes:
    if compression == DEFLATE:
        return zlib.compress(data)
    if compression == PACK_BITS:  # Runs that repeat nothing.
        pieces = [data[at : at + 128] for at in range(0, len(data), 128)]
        return b"".join(bytes([len(piece) - 1]) + piece for piece in pieces)
    return data


def _head(order: str, at: int, is_big: bool) -> bytes:
    mark = b"II" if order == "<" else b"MM"
    if is_big:
        return mark + struct.pack(order + "HHHQ", 43, 8, 0, at)
    return mark + struct.pack(order + "HI", 42, at)


def _directory(tags: dict[int, tuple[int, list[int]]], order: str, at: int, is_big: bool) -> bytes:
    count, number, room, size = ("Q", "Q", 8, 20) if is_big else ("H", "I", 4, 12)
    entries = struct.pack(order + count, len(tags))
    behind = at + len(entries) + size * len(tags) + room
    values = b""
    for tag, (kind, found) in sorted(tags.items()):
        packed = struct.pack(f"{order}{len(found)}{'H' if kind == 3 else 'I'}", *found)
        entries += struct.pack(f"{order}HH{number}", tag, kind, len(found))
        if len(packed) <= room:
            entries += packed.ljust(room, b"\0")
        else:
            entries += struct.pack(order + number, behind + len(values))
            values += packed
    return entries + struct.pack(order + number, 0) + values


FORMS: list[dict[str, Any]] = [
    {},
    {"order": ">"},
    {"rows": 5},
    {"tile": 16},
    {"compression": DEFLATE},
    {"compression": DEFLATE, "order": ">", "rows": 5},
    {"compression": DEFLATE, "predictor": 2},
    {"compression": DEFLATE, "predictor": 2, "rows": 5, "order": ">"},
    {"compression": DEFLATE, "predictor": 2, "tile": 16},
    {"compression": PACK_BITS, "tile": 16},
    {"is_big": True},
]


def text(form: Any) -> str:
    return " ".join(f"{key}={value}" for key, value in form.items()) or "plain"


def _need_pillow_13(count: int, extra: int | None) -> None:
    """Skip where an older Pillow refuses the file, as it says itself in the reject."""
    if (count, extra) == (2, 0) and int(PIL.__version__.split(".")[0]) < 13:
        pytest.skip("Pillow before 13 reads no TIFF of a gray channel and one without a meaning")


@pytest.mark.parametrize("form", FORMS, ids=text)
@pytest.mark.parametrize("is_apart", [False, True])
@pytest.mark.parametrize(("count", "extra"), [(2, 2), (2, 0), (2, None), (3, None), (4, 2), (4, 0)])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_channels_are_those_that_were_stored(form, is_apart, count, extra, dtype):
    """Together or apart, in strips or tiles, packed in any way: no channel is lost or swapped."""
    pixels = noise(count, dtype)
    data = tiff_file(pixels, extra=extra, is_apart=is_apart, **form)
    if dtype == np.uint8:
        _need_pillow_13(count, extra)
    expected = pixels[..., :-1] if extra == 0 else pixels
    assert np.array_equal(decoded(data, "unchanged"), expected)
    small = expected if dtype == np.uint8 else ((expected.astype(int) + 128) // 257)
    color = small[..., : 1 if count == 2 else 3]
    assert np.array_equal(decoded(data, "rgb"), np.broadcast_to(color, (HEIGHT, WIDTH, 3)))
    alpha = decoded(data, "rgba")[..., 3]
    assert np.array_equal(alpha, small[..., -1] if extra != 0 and count != 3 else alpha * 0 + 255)


@pytest.mark.parametrize("is_apart", [False, True])
@pytest.mark.parametrize("extra", [None, 0, 1, 2])
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("mode", ["rgb", "gray", "rgba"])
def test_8_and_16_bits_give_the_same_picture(mode, count, extra, is_apart):
    """How many bits a tool writes is no reason for other colours, whatever alpha means."""
    pixels = noise(count)
    pixels[..., :-1] = pixels[..., :-1] // 3
    pixels[0, :4, -1] = (0, 1, 254, 255)
    _need_pillow_13(count, extra)
    small = tiff_file(pixels, extra=extra, is_apart=is_apart)
    deep = tiff_file(pixels.astype(np.uint16) * 257, extra=extra, is_apart=is_apart)
    assert np.array_equal(decoded(small, mode), decoded(deep, mode))


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("is_apart", [False, True])
def test_colours_that_are_multiplied_by_alpha_are_divided_by_it(dtype, is_apart):
    """The colour is what a viewer shows over its own background, not what is left of it."""
    scale = 1 if dtype == np.uint8 else 257
    pixels = np.zeros((2, 4, 4), dtype)
    pixels[:] = np.array([60, 30, 15, 64]) * scale
    pixels[1] = np.array([7, 0, 0, 0]) * scale
    data = tiff_file(pixels, extra=1, is_apart=is_apart)
    assert decoded(data, "rgb")[:, 0].tolist() == [[239, 119, 59], [0, 0, 0]]
    assert decoded(data, "rgba")[:, 0].tolist() == [[239, 119, 59, 64], [0, 0, 0, 0]]
    deep = decoded(data, "unchanged")
    assert deep.dtype == dtype
    expected = [239, 119, 59, 64] if dtype == np.uint8 else [61439, 30719, 15359, 16448]
    assert deep[0, 0].tolist() == expected


def test_alpha_that_is_not_multiplied_leaves_colours_alone():
    """PNG, WebP and TIFF with alpha of its own keep the colour that is stored."""
    pixels = noise(4)
    expected = pixels[..., :3]
    for data in (
        saved(pixels, "PNG"),
        tiff_file(pixels, extra=2),
        tiff_file(pixels.astype(np.uint16) * 257, extra=2),
    ):
        assert np.array_equal(decoded(data, "rgb"), expected)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize(("count", "is_apart"), [(3, True), (2, False)])
def test_they_are_turned_upright_exactly_once(orientation, count, is_apart):
    """Pillow turns a TIFF by itself, and these are put together behind it."""
    pixels = noise(count, np.uint16)
    data = tiff_file(pixels, extra=2 if count == 2 else None, is_apart=is_apart, rows=5)
    data = tiff_file(
        pixels, extra=2 if count == 2 else None, is_apart=is_apart, orientation=orientation
    )
    header = read_header(data, pixels_max=LIMIT)
    assert (header.width, header.height, header.orientation) == (WIDTH, HEIGHT, orientation)
    assert (header.format, header.bit_depth, header.frame_count) == ("TIFF", 16, 1)
    found = decode_image(data, "unchanged", header)
    assert np.array_equal(found, TURNS[orientation](pixels))
    assert found.flags.c_contiguous
    assert found.flags.writeable


@pytest.mark.parametrize("compression", [PLAIN, DEFLATE])
@pytest.mark.parametrize(("count", "is_apart"), [(3, True), (2, False)])
def test_what_is_cut_short_is_refused(compression, count, is_apart):
    """A directory that lost its end is not that of another picture; and a wrong size is seen."""
    pixels = noise(count, np.uint16)
    data = tiff_file(pixels, is_apart=is_apart, compression=compression)
    start = struct.unpack("<I", data[4:8])[0]
    for end in (*range(0, start, 7), *range(start, start + 2 + 12 * 12)):
        with pytest.raises(ImageError):
            decoded(data[:end])
    order = struct.pack("<HHI", 279, 4, count if is_apart else 1)
    at = data.index(order) + 8
    if not is_apart:
        for size in (1, 2**31):
            damaged = data[:at] + struct.pack("<I", size) + data[at + 4 :]
            with pytest.raises(ImageError):
                decoded(damaged)


def test_limits_hold_for_them():
    """The size is refused before memory is taken for it."""
    data = tiff_file(noise(3, np.uint16), is_apart=True)
    with pytest.raises(ImageError, match="over the limit of 100 pixels"):
        read_header(data, pixels_max=100)
    with pytest.raises(ImageError, match="read from other bytes"):
        decode_image(data, "rgb", read_header(saved(noise(3)[:5], "TIFF"), pixels_max=LIMIT))


def test_a_tiff_that_nobody_reads_is_not_called_damaged():
    """What to do is to save it in another form, not to copy it again."""
    data = tiff_file(noise(5, np.uint16), extra=0)
    with pytest.raises(ImageError, match=r"not read .*: 5 channels of 16 bits.*save it as"):
        decoded(data)
    lossy = tiff_file(noise(3, np.uint16), is_apart=True)
    at = lossy.index(struct.pack("<HHI", 259, 3, 1)) + 8
    lossy = lossy[:at] + struct.pack("<H", 7) + lossy[at + 2 :]
    with pytest.raises(ImageError, match="compressed by method 7, is not read; save it with its"):
        decoded(lossy)


@pytest.mark.parametrize("mode", MODES)
def test_the_first_of_several_pages_is_read(mode):
    """The others are counted, as those of any TIFF are."""
    first = tiff_file(noise(2, np.uint16))
    second = tiff_file(noise(2, np.uint16)[::-1])
    count = 9
    at = struct.unpack("<I", first[4:8])[0]
    place = at + 2 + 12 * struct.unpack("<H", first[at : at + 2])[0]
    assert count <= struct.unpack("<H", first[at : at + 2])[0]
    after = len(first) + struct.unpack("<I", second[4:8])[0]
    data = first[:place] + struct.pack("<I", after) + first[place + 4 :] + second
    assert read_header(data, pixels_max=LIMIT).frame_count == 2
    assert np.array_equal(decoded(data, mode), decoded(first, mode))
