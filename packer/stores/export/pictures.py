"""The picture of a stored sample as the bytes of an image file: its own, or a PNG of its pixels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from packer.pictures.forms import encoded
from packer.stores.export.job import Job
from readers.store.errors import ImageError, SchemaMismatchError
from readers.store.pictures.signatures import START_BYTES, signed_format
from readers.store.record import RecordReader

IMAGE = "image"

_EXTENSIONS: dict[str, tuple[bytes, ...]] = {
    "JPEG": (b".jpg", b".jpeg", b".jpe", b".jfif", b".mpo"),
    "PNG": (b".png",),
    "WEBP": (b".webp",),
    "TIFF": (b".tif", b".tiff"),
    "BMP": (b".bmp",),
    "GIF": (b".gif",),
    "PPM": (b".ppm", b".pgm", b".pbm", b".pnm"),
    "AVIF": (b".avif",),
    "JPEG2000": (b".jp2",),
}
"""By Pillow's name of a format, how its files may be called; the first is the usual one."""

_UNSIGNED = b".tga"
"""The one format that is read and has no signature."""


@dataclass(frozen=True)
class Picture:
    """A picture as a file.

    Attributes:
        data: The file's bytes.
        height: In pixels, upright.
        width: In pixels, upright.
        channel_count: Channels as they are read.
        is_turned: Whether the file says by its EXIF orientation how it is turned.
    """

    data: bytes
    height: int
    width: int
    channel_count: int
    is_turned: bool


class StoredPictures:
    """Takes the pictures out of records.

    Args:
        job: Of the store.

    Raises:
        SchemaMismatchError: Its samples have no image.
    """

    def __init__(self, job: Job) -> None:
        field = job.field(IMAGE)
        if field is None or field.kind != "image":
            raise SchemaMismatchError(
                f"{job.store.path}: its samples have no field {IMAGE!r} of pixels; the fields are "
                f"{', '.join(job.schema.names)}"
            )
        self._shape = field.shape
        self._reader = RecordReader(job.store.layout, [IMAGE], copies=False)
        self._is_raw = field.codec == "raw"
        self._header = job.store.layout.header
        places = {item.name: at for at, item in enumerate(job.store.layout.items)}
        names = [f"{IMAGE}.{side}" for side in ("height", "width", "channel")]
        self._places = [places.get(name) for name in names]

    def extension(self, record: memoryview, own: bytes) -> bytes:
        """How the name of a picture's file is to end.

        Args:
            record: Of the sample.
            own: How its key ends, where that is the end of a picture's name; else empty.
        """
        kind: str | None = "PNG"
        if not self._is_raw:
            data, orientation = self._reader.encoded(record)
            kind = signed_format(bytes(data[:START_BYTES])) if orientation else "PNG"
        known = _EXTENSIONS.get(kind or "")
        if known is None:
            return own or _UNSIGNED
        return own if own.lower() in known else known[0]

    def read(self, record: memoryview) -> Picture:
        """The picture of a record.

        Raises:
            CodecError: The bytes are no record of the store.
            ImageError: No image file can hold the pixels.
        """
        height, width, channel_count = self._extents(record)
        is_turned = False
        if not self._is_raw:
            file, orientation = self._reader.encoded(record)
            is_turned = orientation > 1
            if orientation:
                return Picture(bytes(file), height, width, channel_count, is_turned)
        pixels = self._reader.unpack(record)[IMAGE]
        if pixels.dtype not in (np.uint8, np.uint16):
            raise ImageError(
                f"pixels of {pixels.dtype} fit no image file that is written; expected uint8 or "
                "uint16"
            )
        data = encoded(pixels, "png", None, "unchanged")
        return Picture(data, height, width, channel_count, is_turned)

    def _extents(self, record: memoryview) -> list[int]:
        header: tuple[Any, ...] = self._header.unpack_from(record)
        return [
            side or 0 if at is None else header[at]
            for side, at in zip(self._shape, self._places, strict=True)
        ]
