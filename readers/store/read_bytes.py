"""Record bytes by reads at known offsets: for files that cannot or should not be mapped.

No page is faulted in, so a file that is cut short or a server that is gone is an exception, never
SIGBUS; and a file that was read leaves no mapped pages that the page cache would have to keep.

    all parts of a request -> reads, merged when near (`read_plan.py`) -> many at once
    (`read_threads.py`), each into the memory where its parts are wanted

NOTE [ a read that fails ]: network file systems fail for a while: a server is started again, a path
is switched over. Then the file is opened anew, seen to be the same, and read again, after longer
and longer waits. What is no such fault is an error at once.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from readers.store.errors import ShardError
from readers.store.open_files import OpenFiles
from readers.store.read_plan import GAP, Read, plan_reads
from readers.store.read_threads import for_each, read_threads
from readers.store.record_bytes import NO_PICKLE, NOT_ADDED, FileBytes, Pieces, Wanted, check_within

_PASSING_FAULTS = frozenset(
    {
        *(errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN, errno.EREMOTEIO),
        *(errno.ENOTCONN, errno.ECONNRESET, errno.ECONNABORTED, errno.ECONNREFUSED),
        *(errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETUNREACH),
    }
)
"""Errors of a server or the way to it, which may be gone when it is tried again."""


@dataclass(frozen=True, kw_only=True)
class ReadPolicy:
    """How shards are read.

    Attributes:
        gap_bytes_max: Parts with no more bytes between them are read together: 64 KiB take 0.6 ms
            at 100 MB/s, which is less than another round trip.
        read_bytes_max: Bytes of one read. With 32 threads, 128 MiB are in flight at most; in the
            order of the store, 15 records of 270 kB come by one read.
        retry_count: How often a read that failed is tried again.
        first_wait_s: Wait before the first of them; each other takes `wait_factor` as long.
        wait_factor: See `first_wait_s`. By default the last is 34 s after the first.
    """

    gap_bytes_max: int = 64 * 2**10
    read_bytes_max: int = 4 * 2**20
    retry_count: int = 5
    first_wait_s: float = 0.1
    wait_factor: float = 4.0

    def __post_init__(self) -> None:
        if self.gap_bytes_max < 0 or self.read_bytes_max < 1 or self.retry_count < 0:
            raise ValueError(f"expected counts of 0 or more, and reads of bytes; got {self!r}")


class ReadBytes:
    """Shards of a store by `preadv`: all that a request needs at once, in the order of the files.

    Args:
        count: How many shards there are.
        policy: How they are read.

    Attributes:
        memory: Empty: each request has memory of its own.
    """

    def __init__(self, count: int, policy: ReadPolicy | None = None) -> None:
        self.memory: NDArray[np.uint8] = np.empty(0, np.uint8)
        self._policy = policy or ReadPolicy()
        self._sizes: NDArray[np.int64] = np.full(count, NOT_ADDED, np.int64)
        self._paths: list[Path | None] = [None] * count
        self._files = OpenFiles()
        # Kept, so that they stay for the next request.
        self._threads: ThreadPoolExecutor | None = None
        # Where bytes go that nobody wants: all threads may write there.
        self._waste = memoryview(bytearray(self._policy.gap_bytes_max))

    def __reduce__(self) -> NoReturn:
        raise TypeError(NO_PICKLE)

    def add(self, number: int, path: Path, descriptor: int) -> FileBytes:
        """See `RecordBytes.add`. It may keep a descriptor of its own until `close`."""
        if self._files.is_closed:
            raise ValueError(f"{path}: these record bytes are closed")
        size = self._files.add(number, path, descriptor)
        self._paths[number] = path
        self._sizes[number] = size
        return _ReadFile(self, number, size)

    def expect(self, number: int, *, in_order: bool) -> None:
        """See `RecordBytes.expect`."""
        advice = os.POSIX_FADV_SEQUENTIAL if in_order else os.POSIX_FADV_RANDOM
        self._files.advise(number, advice)

    def fetch(self, wanted: Sequence[Wanted]) -> list[Pieces]:
        """See `RecordBytes.fetch`. Whether a server was waited for is not known."""
        for part in wanted:
            check_within(part, self._sizes, self._paths)
        found: list[Pieces] = []
        places: list[memoryview] = []
        all_lengths = []
        for part in wanted:
            lengths = np.broadcast_to(np.asarray(part.lengths, np.int64), len(part))
            pieces = _pieces(part, lengths)
            view = memoryview(pieces.memory)  # type: ignore[arg-type]
            ends = (pieces.starts + lengths).tolist()
            places += [
                view[start:end] for start, end in zip(pieces.starts.tolist(), ends, strict=True)
            ]
            found.append(pieces)
            all_lengths.append(lengths)
        if places:
            self._read_all(
                plan_reads(
                    np.concatenate([part.shards for part in wanted]),
                    np.concatenate([part.offsets for part in wanted]),
                    np.concatenate(all_lengths),
                    gap_bytes_max=self._policy.gap_bytes_max,
                    read_bytes_max=self._policy.read_bytes_max,
                ),
                places,
            )
        return found

    def _read_all(self, reads: list[Read], places: list[memoryview]) -> None:
        """Do all reads, in this thread alone when there is but one."""

        def one(at: int) -> None:
            read = reads[at]
            into = [
                self._waste[:count] if part == GAP else places[part][first : first + count]
                for part, first, count in read.pieces
            ]
            self._read(read.shard, read.offset, into)

        if len(reads) == 1:
            one(0)
        elif reads:
            self._threads = threads = read_threads()
            for_each(threads, one, range(len(reads)))

    def read(self, number: int, offset: int, into: memoryview) -> None:
        """Fill a piece of memory from a file. Raises as `fetch` does."""
        most = self._policy.read_bytes_max
        for first in range(0, len(into), most):
            self._read(number, offset + first, [into[first : first + most]])

    def _read(self, number: int, offset: int, into: list[memoryview]) -> None:
        """NOTE [ a read that fails ]."""
        path = self._paths[number]
        if path is None or self._files.is_closed:
            raise ValueError(f"shard {number} is not open, so its byte {offset} cannot be read")
        policy, failure_count = self._policy, 0
        while into:
            cause: OSError | None = None
            try:
                if failure_count:
                    self._files.renew(number)
                with self._files.borrow(number) as descriptor:
                    count = os.preadv(descriptor, into, offset)
                if count:
                    into, offset, failure_count = _rest(into, count), offset + count, 0
                    continue
                if self._size_now(number) <= offset:
                    raise ShardError.at(
                        path,
                        f"the file ends at offset {offset}, where {_total(into)} bytes were "
                        "expected. It was cut short after it was opened; copy the store again.",
                    )
                problem = "nothing came, though the file goes on there"
            except OSError as error:
                cause, problem = error, error.strerror or str(error)
            failure_count += 1
            is_passing = cause is None or cause.errno in _PASSING_FAULTS
            if not is_passing or failure_count > policy.retry_count:
                raise ShardError.at(
                    path,
                    f"{_total(into)} bytes at offset {offset}: {problem} ({failure_count} "
                    "attempts). See whether the disk or server is well and the file can be read "
                    "there.",
                ) from cause
            time.sleep(policy.first_wait_s * policy.wait_factor ** (failure_count - 1))

    def _size_now(self, number: int) -> int:
        with self._files.borrow(number) as descriptor:
            return os.fstat(descriptor).st_size

    def announce(self, wanted: Sequence[Wanted]) -> None:
        """See `RecordBytes.announce`."""
        for part in wanted:
            check_within(part, self._sizes, self._paths)
            lengths = np.broadcast_to(part.lengths, len(part))
            places = zip(part.shards.tolist(), part.offsets.tolist(), lengths.tolist(), strict=True)
            for number, offset, length in places:
                with self._files.borrow(number) as descriptor:
                    os.posix_fadvise(descriptor, offset, length, os.POSIX_FADV_WILLNEED)

    def close(self) -> None:
        """See `RecordBytes.close`."""
        self._sizes[:] = NOT_ADDED
        self._files.close()
        self._threads = None


def _pieces(part: Wanted, lengths: NDArray[np.int64]) -> Pieces:
    """Memory for the parts of a request, which are yet to be read."""
    ends = np.cumsum(lengths, dtype=np.int64)
    byte_count = int(ends[-1]) if len(ends) else 0
    if part.out is None:
        return Pieces(np.empty(byte_count, np.uint8), ends - lengths, False, False)
    if part.out.nbytes != byte_count:
        raise ValueError(f"out has {part.out.nbytes} bytes, expected {byte_count}")
    return Pieces(part.out.reshape(-1), ends - lengths, True, False)


def _total(into: list[memoryview]) -> int:
    return sum(len(piece) for piece in into)


def _rest(into: list[memoryview], count: int) -> list[memoryview]:
    """What is yet to be filled when the first bytes were."""
    for at, piece in enumerate(into):
        if count < len(piece):
            return [piece[count:], *into[at + 1 :]]
        count -= len(piece)
    return []


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
