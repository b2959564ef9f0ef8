"""Files that hold many images: gives a shard task the bytes or pixels of one after the other."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from packer.files.cifar import PYTHON
from packer.files.gzip_stream import is_compressed
from packer.files.sizes import picture_bytes_max, size_problem
from packer.items.raw_item import Member, RawItem
from packer.raw.archives import GzipContainer, range_container, zip_container
from packer.raw.arrays import CifarContainer, IdxContainer, PixelsContainer
from packer.raw.container import Container
from packer.raw.spool import SpoolContainer
from packer.raw.tables import arrow_container, parquet_container
from readers.store.errors import ImageError

__all__ = ["CONTAINERS", "Container", "Containers", "is_forward_only"]

CONTAINERS: dict[str, Callable[[Path], Container]] = {
    "range": range_container,
    "tgz": GzipContainer,
    "zip": zip_container,
    "arrow": arrow_container,
    "parquet": parquet_container,
    "idx": IdxContainer,
    "cifar": CifarContainer,
    "pixels": PixelsContainer,
    "spool": SpoolContainer,
}
"""How each kind of file is opened, by the name that `Member.container` has."""


def is_forward_only(path: Path, member: Member) -> bool:
    """Whether an image of a file costs reading others, unless the file is read in its own order.

    Args:
        path: The file.
        member: Any image of it.
    """
    if member.container == "idx":
        return is_compressed(path)
    if member.container == "cifar":
        return member.name == PYTHON
    return member.container in ("tgz", "parquet")


class Containers:
    """Reads the images of items whose files hold many; the last file stays open.

    One is enough, since items of a file stand next to each other. It may stay open from one shard
    to the next, which goes on where the other ended.

    Args:
        root: Folder that the items' paths are relative to.
        bytes_max: An image that is larger is not read; see `packer.files.sizes`.
    """

    def __init__(self, root: bytes, bytes_max: int | None = None) -> None:
        self._root = root
        self._bytes_max = picture_bytes_max() if bytes_max is None else bytes_max
        self._path, self._kind = b"", ""
        self._identity: tuple[int, ...] = ()
        self._open: Container | None = None

    def read(self, item: RawItem) -> bytes | NDArray[np.uint8]:
        """The bytes of an image file, or the pixels (height, width, channel) of a bare image.

        Raises:
            ImageError: The image is damaged, or the file is not the one that the scan saw. The text
                is the reason alone.
            RawFileError: The file cannot be read.
        """
        assert item.member is not None
        # A size of Parquet is a mean, and only reading the image tells more.
        self._check_size(item.byte_count)
        kind = item.member.container
        if self._open is None or (item.path, kind) != (self._path, self._kind):
            self.close()
            self._path, self._kind = item.path, kind
            path = self._full_path()
            self._identity = _identity(path)
            self._open = CONTAINERS[kind](path)
        found = self._open.read(item)
        if isinstance(found, bytes):
            self._check_size(len(found))
        return found

    def _check_size(self, byte_count: int) -> None:
        problem = size_problem(byte_count, self._bytes_max)
        if problem is not None:
            raise ImageError(problem)

    def close_if_changed(self) -> None:
        """Close the open file where its path leads to another one by now, or to none."""
        if self._open is not None and _identity(self._full_path()) != self._identity:
            self.close()

    def close(self) -> None:
        """Close the file that is open."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def _full_path(self) -> Path:
        return Path(os.fsdecode(os.path.join(self._root, self._path)))


def _identity(path: Path) -> tuple[int, ...]:
    """What tells a file, as it is now, from any other; empty when there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
