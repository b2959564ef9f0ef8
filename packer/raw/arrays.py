"""Bare pixels in files of arrays: IDX, CIFAR, and those that lie in a file as they are."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from packer.files.bare_pixels import PixelShape
from packer.files.cifar import (
    BINARY,
    PICKLE_BYTES_MAX,
    SIDE,
    pixel_rows,
    planes_to_pixels,
    read_python_batch,
)
from packer.files.gzip_stream import GzipDamageError, GzipStream
from packer.files.idx import IMAGES_HEADER_BYTES, open_idx, read_images_header
from packer.items.raw_item import RawItem
from packer.raw.container import check_unchanged, open_file, read_at
from readers.store.errors import ImageError


class IdxContainer:
    """Gray images of an IDX file, compressed with gzip or not; `member.position` is their number.

    Args:
        path: The file.

    Raises:
        ImageError: It cannot be read, or is not of images.
    """

    def __init__(self, path: Path) -> None:
        self._file = open_file(path)
        try:
            stream = open_idx(self._file)
            self._header = read_images_header(stream)
        except (ValueError, OSError, EOFError, zlib.error) as error:
            self._file.close()
            raise ImageError(f"not an IDX file of images: {error}") from error
        self._unpacked = GzipStream(self._file) if stream is not self._file else None

    def read(self, item: RawItem) -> NDArray[np.uint8]:
        """Pixels (height, width, 1)."""
        check_unchanged(self._file, item)
        assert item.member is not None
        height, width = self._header.height, self._header.width
        position = IMAGES_HEADER_BYTES + item.member.position * height * width
        try:
            if self._unpacked is not None:
                data = self._unpacked.read(position, height * width)
            else:
                self._file.seek(position)
                data = self._file.read(height * width)
        except (OSError, ValueError, GzipDamageError) as error:
            raise ImageError(f"the IDX file is damaged: {error}") from error
        if len(data) < height * width:
            raise ImageError(f"the IDX file ends before image {item.member.position}")
        return np.frombuffer(data, np.uint8).reshape(height, width, 1)

    def close(self) -> None:
        """Close the file."""
        if self._unpacked is not None:
            self._unpacked.close()
        self._file.close()


class CifarContainer:
    """Colour images of a CIFAR batch of either version, which `member.name` says.

    Args:
        path: The file.

    Raises:
        ImageError: It cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._file = open_file(path)
        self._rows: list[NDArray[np.uint8]] | None = None

    def read(self, item: RawItem) -> NDArray[np.uint8]:
        """Pixels (height, width, 3), RGB."""
        check_unchanged(self._file, item)
        assert item.member is not None
        position = item.member.position
        if item.member.name == BINARY:
            data = read_at(self._file, position, item.byte_count)
            return planes_to_pixels(np.frombuffer(data, np.uint8), SIDE, SIDE)
        if self._rows is None:
            try:
                self._rows = pixel_rows(read_python_batch(self._file.read(PICKLE_BYTES_MAX)))
            except (ValueError, OSError) as error:
                raise ImageError(f"the CIFAR batch cannot be read: {error}") from error
        if not 0 <= position < len(self._rows):
            raise ImageError(f"image {position} of a batch of {len(self._rows)}")
        return self._rows[position]

    def close(self) -> None:
        """Close the file and let go of its pixels."""
        self._file.close()
        self._rows = None


class PixelsContainer:
    """Bare pixels from `member.position` on, of the size and order that `member.name` says.

    Args:
        path: The file.

    Raises:
        RawFileError: It cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._file = open_file(path)

    def read(self, item: RawItem) -> NDArray[np.uint8]:
        """Pixels (height, width, channel)."""
        check_unchanged(self._file, item)
        assert item.member is not None
        shape = PixelShape.from_text(item.member.name)
        return shape.pixels(read_at(self._file, item.member.position, shape.byte_count))

    def close(self) -> None:
        """Close the file."""
        self._file.close()
