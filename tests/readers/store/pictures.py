"""Picture files that the tests of decoding are made of."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from readers.store.pictures.decode import decode_image
from readers.store.pictures.image_header import read_header

HEIGHT, WIDTH = 12, 20
LIMIT = 10**6

TURNS = {
    1: lambda a: a,
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.transpose(1, 0, 2),
    6: lambda a: a[::-1].transpose(1, 0, 2),
    7: lambda a: a[::-1, ::-1].transpose(1, 0, 2),
    8: lambda a: a[:, ::-1].transpose(1, 0, 2),
}
"""EXIF's eight orientations in numpy: where row 0 and column 0 of the file are to be seen."""


def noise(channel_count: int, dtype: type = np.uint8) -> NDArray[Any]:
    """(HEIGHT, WIDTH, channel) of every value alike, the same in every run."""
    top = int(np.iinfo(dtype).max) + 1
    return np.random.default_rng(5).integers(0, top, (HEIGHT, WIDTH, channel_count)).astype(dtype)


def smooth() -> NDArray[Any]:
    """A colour gradient (96, 128, 3) uint8 that JPEG keeps well."""
    y, x = np.mgrid[0:96, 0:128]
    return np.stack([x * 2, y * 2, 255 - x - y], axis=2).astype(np.uint8)


def saved(pixels: NDArray[Any] | Image.Image, format: str, **options: Any) -> bytes:
    if isinstance(pixels, np.ndarray):
        pixels = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    file = io.BytesIO()
    pixels.save(file, format, **options)
    return file.getvalue()


def decoded(data: bytes, mode: str = "rgb") -> NDArray[Any]:
    return decode_image(data, mode, read_header(data, pixels_max=LIMIT))


def exif(orientation: int) -> Image.Exif:
    block = Image.Exif()
    block[0x0112] = orientation
    return block


def png(pixels: NDArray[Any], color_type: int, bits: int, *chunks: tuple[bytes, bytes]) -> bytes:
    """A PNG of what Pillow cannot write; `chunks` stand before the pixels."""
    rows = pixels.astype(">u2" if bits == 16 else np.uint8).reshape(len(pixels), -1)
    if bits < 8:
        rows = np.packbits(
            np.unpackbits(rows[..., None], axis=2)[..., 8 - bits :].reshape(len(rows), -1), axis=1
        )
    lines = b"".join(b"\0" + row.tobytes() for row in rows)
    head = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], bits, color_type, 0, 0, 0)
    parts = [(b"IHDR", head), *chunks, (b"IDAT", zlib.compress(lines)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in parts
    )


def tiff(
    pixels: NDArray[Any], bits: int, orientation: int, stored: bytes | None = None, extra: int = 2
) -> bytes:
    """An uncompressed TIFF of what Pillow cannot write; `extra` 2 is alpha, 0 filler."""
    height, width, count = pixels.shape
    body = pixels.astype(f"<u{(bits + 7) // 8}").tobytes() if stored is None else stored
    tags = [
        (256, 4, 1, width),
        (257, 4, 1, height),
        (258, 3, count, bits if count == 1 else 8),
        (259, 3, 1, 1),
        (262, 3, 1, 2 if count >= 3 else 1),
        (273, 4, 1, 16),
        (274, 3, 1, orientation),
        (277, 3, 1, count),
        (278, 4, 1, height),
        (279, 4, 1, len(body)),
    ]
    if count == 4:
        tags.append((338, 3, 1, extra))
    directory = struct.pack("<H", len(tags)) + b"".join(struct.pack("<HHII", *tag) for tag in tags)
    head = b"II*\0" + struct.pack("<I", 16 + len(body)) + struct.pack("<4H", *[bits] * 4)
    return head + body + directory + struct.pack("<I", 0)


def claim(width: int, height: int) -> bytes:
    """A small PNG whose header promises width x height pixels."""
    data = png(np.zeros((1, 1, 1)), 0, 8)
    body = struct.pack(">II", width, height) + data[24:29]
    return data[:16] + body + struct.pack(">I", zlib.crc32(b"IHDR" + body)) + data[33:]
