"""Room on disks: what is missing before a build begins, and what a full disk means within one."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from packer.errors import NO_SPACE_ERRNOS, DiskError, NoSpaceError
from readers.store.place import Place

_NOT_WRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS)


def missing_room(
    place: Path, need_bytes: int, *, folder: Path, what: str, remedy: Callable[[int], str]
) -> str | None:
    """Why there is no room for something, and what would help; None when there is.

    Args:
        place: What the message is about.
        need_bytes: How much is to be written.
        folder: A folder on the disk that is to take it.
        what: What takes it, with its size: the middle of the message.
        remedy: Given the bytes that are free, what to do.
    """
    free = shutil.disk_usage(folder).free
    if need_bytes <= free:
        return None
    return f"{place}: {what}, and its disk has {free:,} free. {remedy(free)}"


@contextlib.contextmanager
def disk_named(
    out: Place, has_finished: Callable[[], bool], byte_count: int | None = None
) -> Iterator[None]:
    """Say of which store a disk had no room for, or could not be read or written.

    Args:
        out: The store.
        has_finished: Whether the same command again finds shards that are finished.
        byte_count: Its size, about, where it is known.

    Raises:
        NoSpaceError: A disk, a quota or a limit on file sizes was full.
        DiskError: A disk or a file server failed otherwise, or may not be written to.
    """
    try:
        yield
    except OSError as error:
        place = os.fsdecode(error.filename2 or error.filename or "a file")
        where = f"{out}: {place}: {error.strerror or error}"
        kept = ": finished shards are kept" if has_finished() else ""
        if error.errno in NO_SPACE_ERRNOS:
            size = f"The store takes about {byte_count:,} bytes. " if byte_count is not None else ""
            raise NoSpaceError(
                f"{where}. {size}Free some, raise the limit on file sizes (ulimit -f), or write "
                f"the shards elsewhere with --scratch; then run the same command{kept}."
            ) from error
        if error.errno in _NOT_WRITABLE:
            raise DiskError(
                f"{where}. Build to a path where you may write, or have that allowed for "
                f"{os.path.dirname(place) or place}; then run the same command{kept}."
            ) from error
        raise DiskError(f"{where}. Once that is mended, run the same command{kept}.") from error
