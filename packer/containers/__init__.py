"""Files that hold many images: gives a shard task the bytes or pixels of one after the other."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from packer.containers.archives import GzipContainer, RangeContainer, ZipContainer
from packer.containers.arrays import CifarContainer, IdxContainer
from packer.containers.container import Container
from packer.containers.tables import arrow_container, parquet_container
from packer.sources.items import RawItem

__all__ = ["CONTAINERS", "Container", "Containers"]

CONTAINERS: dict[str, Callable[[Path], Container]] = {
    "range": RangeContainer,
    "tgz": GzipContainer,
    "zip": ZipContainer,
    "arrow": arrow_container,
    "parquet": parquet_container,
    "idx": IdxContainer,
    "cifar": CifarContainer,
}
"""How each kind of file is opened, by the name that `Member.container` has."""


class Containers:
    """Reads the images of items whose files hold many; the last file stays open.

    One is enough, since items of a file stand next to each other.

    Args:
        root: Folder that the items' paths are relative to.
    """

    def __init__(self, root: bytes) -> None:
        self._root = root
        self._path = b""
        self._open: Container | None = None

    def read(self, item: RawItem) -> bytes | NDArray[np.uint8]:
        """The bytes of an image file, or the pixels (height, width, channel) of a bare image.

        Raises:
            ImageError: The image is damaged, or the file is not the one that the scan saw. The text
                is the reason alone.
            RawFileError: The file cannot be read.
        """
        assert item.member is not None
        if self._open is None or item.path != self._path:
            self.close()
            path = Path(os.fsdecode(os.path.join(self._root, item.path)))
            self._open, self._path = CONTAINERS[item.member.container](path), item.path
        return self._open.read(item)

    def close(self) -> None:
        """Close the file that is open."""
        if self._open is not None:
            self._open.close()
            self._open = None
