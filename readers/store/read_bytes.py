"""Record bytes by reads at known offsets: for files that cannot or should not be mapped.

No page is faulted in, so a file that is cut short or a server that is gone is an exception, never
SIGBUS; and a file that was read leaves no mapped pages that the page cache would have to keep.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from readers.store.errors import ShardError
from readers.store.record_bytes import NO_PICKLE, NOT_ADDED, FileBytes, Pieces, Wanted, check_within


class ReadBytes:
    """Shards of a store by `preadv`, one part after the other, in the order of their files.

    Args:
        count: How many shards there are.

    Attributes:
        memory: Empty: each request has memory of its own.
    """

    def __init__(self, count: int) -> None:
        self.memory: NDArray[np.uint8] = np.empty(0, np.uint8)
        self._sizes: NDArray[np.int64] = np.full(count, NOT_ADDED, np.int64)
        self._paths: list[Path | None] = [None] * count
        self._descriptors: dict[int, int] = {}
        self._closed = weakref.finalize(self, _close_all, self._descriptors)

    def __reduce__(self) -> NoReturn:
        raise TypeError(NO_PICKLE)

    def add(self, number: int, path: Path, descriptor: int) -> FileBytes:
        """See `RecordBytes.add`. It takes a descriptor of its own until `close`."""
        if not self._closed.alive:
            raise ValueError(f"{path}: these record bytes are closed")
        own = os.dup(descriptor)
        self._descriptors[number] = own
        self._paths[number] = path
        self._sizes[number] = os.fstat(own).st_size
        return _ReadFile(self, number, int(self._sizes[number]))

    def expect(self, number: int, *, in_order: bool) -> None:
        """See `RecordBytes.expect`."""
        advice = os.POSIX_FADV_SEQUENTIAL if in_order else os.POSIX_FADV_RANDOM
        os.posix_fadvise(self._descriptors[number], 0, 0, advice)

    def fetch(self, wanted: Sequence[Wanted]) -> list[Pieces]:
        """See `RecordBytes.fetch`. Whether a server was waited for is not known."""
        for part in wanted:
            check_within(part, self._sizes, self._paths)
        return [self._fetch(part) for part in wanted]

    def _fetch(self, part: Wanted) -> Pieces:
        lengths = np.broadcast_to(part.lengths, len(part))
        ends = np.cumsum(lengths, dtype=np.int64)
        starts = ends - lengths
        in_out = part.out is not None
        if part.out is None:
            memory = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
        elif part.out.nbytes != int(lengths.sum()):
            raise ValueError(f"out has {part.out.nbytes} bytes, expected {lengths.sum()}")
        else:
            memory = part.out.reshape(-1)
        view = memoryview(memory)  # type: ignore[arg-type]
        for at in np.lexsort((part.offsets, part.shards)).tolist():
            start, end = int(starts[at]), int(ends[at])
            self.read(int(part.shards[at]), int(part.offsets[at]), view[start:end])
        return Pieces(memory, starts, in_out, False)

    def read(self, number: int, offset: int, into: memoryview) -> None:
        """Fill a piece of memory from a file. Raises as `fetch` does."""
        path, descriptor = self._paths[number], self._descriptors.get(number)
        if path is None or descriptor is None:
            raise ValueError(f"shard {number} is not open, so its byte {offset} cannot be read")
        while len(into):
            try:
                count = os.preadv(descriptor, [into], offset)
            except OSError as error:
                raise ShardError.at(
                    path, f"{len(into)} bytes at offset {offset}: {error.strerror}"
                ) from error
            if not count:
                raise ShardError.at(
                    path,
                    f"the file ends at offset {offset}, where {len(into)} bytes were expected. It "
                    "was cut short after it was opened; copy the store again.",
                )
            into, offset = into[count:], offset + count

    def announce(self, wanted: Sequence[Wanted]) -> None:
        """See `RecordBytes.announce`."""
        for part in wanted:
            check_within(part, self._sizes, self._paths)
            lengths = np.broadcast_to(part.lengths, len(part))
            places = zip(part.shards.tolist(), part.offsets.tolist(), lengths.tolist(), strict=True)
            for number, offset, length in places:
                descriptor = self._descriptors[number]
                os.posix_fadvise(descriptor, offset, length, os.POSIX_FADV_WILLNEED)

    def close(self) -> None:
        """See `RecordBytes.close`."""
        self._sizes[:] = NOT_ADDED
        self._closed()


class _ReadFile:
    """The bytes of one file, read slice by slice."""

    def __init__(self, bytes_: ReadBytes, number: int, size: int) -> None:
        self._bytes = bytes_
        self._number = number
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice, /) -> memoryview:
        start, stop, _ = part.indices(self._size)
        memory = np.empty(max(0, stop - start), np.uint8)
        self._bytes.read(self._number, start, memoryview(memory))  # type: ignore[arg-type]
        return memoryview(memory)  # type: ignore[arg-type]


def _close_all(descriptors: dict[int, int]) -> None:
    while descriptors:
        os.close(descriptors.popitem()[1])
