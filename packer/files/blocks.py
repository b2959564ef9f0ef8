"""A large file of which small pieces are read, near each other most often."""

from __future__ import annotations

import os
from pathlib import Path

_BLOCK_BYTES = 2**14
"""Read at once around what is asked for: its neighbours are wanted next."""


class FileBlocks:
    """The bytes of a file, by slices; the last block is kept. What `PageFile` reads by.

    Args:
        path: The file.

    Raises:
        OSError: It cannot be opened; or, of a slice, it cannot be read or has become shorter.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._size = os.fstat(self._descriptor).st_size
        self._first, self._block = 0, memoryview(b"")

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice, /) -> memoryview:
        start, stop, _ = part.indices(self._size)
        if stop <= start:
            return memoryview(b"")
        if not (self._first <= start and stop <= self._first + len(self._block)):
            first = start - start % _BLOCK_BYTES
            end = min(max(stop, first + _BLOCK_BYTES), self._size)
            self._first, self._block = first, memoryview(self._read(first, end - first))
        return self._block[start - self._first : stop - self._first]

    def _read(self, first: int, byte_count: int) -> bytes:
        data = b""
        while len(data) < byte_count:
            more = os.pread(self._descriptor, byte_count - len(data), first + len(data))
            if not more:
                raise OSError(0, f"it became shorter than {first + byte_count:,} bytes")
            data = data + more if data else more
        return data

    def state(self) -> tuple[int, int]:
        """What changes when somebody writes to the file."""
        status = os.fstat(self._descriptor)
        return status.st_size, status.st_mtime_ns

    def close(self) -> None:
        """Close the file; more than once does no harm."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
