"""Files into their places: whole and synced under the final name, or not there."""

from __future__ import annotations

import fcntl
import os
import secrets
import socket
from collections.abc import Callable
from pathlib import Path

from readers.store.manifest import sync_folder

_COPY_BYTES = 2**26
_FICLONE = 0x40049409  # <linux/fs.h>: the copy shares the blocks of the file until one is written.


def move_into_place(
    path: Path, final: Path, check_stopped: Callable[[], None] = lambda: None
) -> None:
    """Give a finished file its final name: by a rename, or from another file system by a copy.

    Args:
        path: The file, written and synced. It is gone afterwards.
        final: Where it is to be.
        check_stopped: Called while it is copied; raises to give up.
    """
    try:
        os.replace(path, final)
        sync_folder(final.parent)
    except OSError:
        with open(path, "rb") as source:
            copy_into_place(source.fileno(), final, check_stopped)
        path.unlink()


def copy_into_place(
    descriptor: int, final: Path, check_stopped: Callable[[], None] = lambda: None
) -> None:
    """Copy an open file to its final name: written aside, synced, renamed, folder synced.

    Its blocks are shared where the file system can.
    """
    aside = final.with_name(final.name + ".partial")
    with open(aside, "wb") as copy:
        try:
            fcntl.ioctl(copy.fileno(), _FICLONE, descriptor)
        except OSError:
            os.lseek(descriptor, 0, os.SEEK_SET)
            while os.sendfile(copy.fileno(), descriptor, None, _COPY_BYTES):
                check_stopped()
        os.fsync(copy.fileno())
    os.replace(aside, final)
    sync_folder(final.parent)


def fresh_name(name: str) -> str:
    """A name after another that nobody else takes, on this node or on any other."""
    return f"{name}.{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


def write_apart(path: Path, data: bytes) -> None:
    """Put a file in place as `write_synced` does, where others may write the same one meanwhile.

    The last one stays, whole.
    """
    aside = path.with_name(fresh_name(path.name))
    try:
        with open(aside, "xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)
