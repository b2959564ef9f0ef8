"""What a container is: a file that holds many images, open while its items are packed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray

from packer.items.raw_item import RawItem
from packer.raw.files import RawFileError
from readers.store.errors import ImageError

CHANGED = "the file changed while the build ran; run the build again when it is at rest"


class Container(Protocol):
    """One file of many images.

    Items come in the order in which they lie in the file, or from a spool
    (`packer.building.spooling`), so that a container that cannot jump reads forward once. It goes
    back by starting over. What it gives for an item does not depend on the items before.
    """

    def read(self, item: RawItem) -> bytes | NDArray[np.uint8]:
        """The bytes of an image file, or the pixels (height, width, channel) of a bare image.

        Raises:
            ImageError: The image is damaged, or the file is not the one that the scan saw. The
                text is the reason alone.
            RawFileError: The file cannot be read.
        """
        ...

    def close(self) -> None:
        """Give back the file."""
        ...


def open_file(path: Path) -> BinaryIO:
    """Open the file of a container.

    Raises:
        RawFileError: It cannot be opened.
    """
    try:
        return open(path, "rb")
    except OSError as error:
        raise RawFileError(f"cannot be read: {error.strerror}") from error


def check_unchanged(file: BinaryIO | Path, item: RawItem) -> None:
    """Make sure that a file, open or by its path, is the one that the scan saw.

    Raises:
        ImageError: Its size or the time of its last change is another.
        RawFileError: It is not there.
    """
    assert item.member is not None
    try:
        status = os.stat(file if isinstance(file, Path) else file.fileno())
    except OSError as error:
        raise RawFileError(f"cannot be read: {error.strerror}") from error
    if (status.st_size, status.st_mtime_ns) != (item.member.file_byte_count, item.mtime_ns):
        raise ImageError(CHANGED)


def read_at(file: BinaryIO, position: int, byte_count: int) -> bytes:
    """Bytes from a place of a file.

    Raises:
        ImageError: The file ends before.
        RawFileError: It cannot be read.
    """
    data = b""
    try:
        # What a file says is there may not be: no more is asked for than it has.
        end = min(position + byte_count, os.fstat(file.fileno()).st_size)
        while len(data) < byte_count and position + len(data) < end:
            more = os.pread(file.fileno(), end - position - len(data), position + len(data))
            if not more:
                break
            data = data + more if data else more
    except OverflowError as error:
        raise ImageError(f"cannot be read: {error}") from error
    except OSError as error:
        raise RawFileError(f"cannot be read: {error.strerror}") from error
    if len(data) < byte_count:
        raise ImageError(
            f"the file ends {len(data):,} bytes after byte {position:,}, where {byte_count:,} "
            "bytes of this image should be"
        )
    return data
