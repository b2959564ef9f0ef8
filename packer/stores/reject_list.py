"""Reading the reject list of a store, which may be a stranger's."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from readers.store.errors import StoreError
from readers.store.layout import REJECTS_NAME

_LINE_BYTES_MAX = 2**20


def reject_lines(folder: Path) -> Iterator[bytes]:
    """The lines of a store's reject list, each without its end.

    Raises:
        StoreError: It is missing, no plain file (a link would lead out of the store, a pipe make us
            wait), or has a line of over 1 MiB.
    """
    path = folder / REJECTS_NAME
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}; copy the store again.") from error
    with open(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise StoreError(f"{path}: it is no plain file; copy the store again.")
        while line := stream.readline(_LINE_BYTES_MAX + 1):
            if len(line) > _LINE_BYTES_MAX:
                raise StoreError(f"{path}: a line of over {_LINE_BYTES_MAX} bytes; copy it again.")
            yield line.rstrip(b"\n")
