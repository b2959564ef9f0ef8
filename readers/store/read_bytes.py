"""Record bytes by reads at known offsets: for files that cannot or should not be mapped.

No page is faulted in, so a file that is cut short or a server that is gone is an exception, never
SIGBUS; and a file that was read leaves no mapped pages that the page cache would have to keep.

    all parts of a request -> reads, merged when near (`read_plan.py`) -> many at once
    (`read_queue.py`), each into the memory where its parts are wanted

What is announced is read the same way, into memory of its own, which the request takes over.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Sequence
from typing import NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from readers.store.errors import ShardError
from readers.store.kept_memory import KeptMemory
from readers.store.open_files import OpenFiles
from readers.store.place import Place
from readers.store.read_plan import GAP, Read, plan_reads
from readers.store.read_policy import ReadPolicy, may_pass
from readers.store.read_queue import Reading, ReadQueue
from readers.store.record_bytes import (
    NO_PICKLE,
    NOT_ADDED,
    FileBytes,
    Pieces,
    ReadFigures,
    Wanted,
    check_within,
)


class ShardFiles(Protocol):
    """Where `ReadBytes` reads: files by number. Any thread may ask, and a forked child goes on.

    In a folder they are `OpenFiles`, at a URL `RemoteShards`.
    """

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""

    def add(
        self, number: int, path: Place, descriptor: int, found: os.stat_result | None = None
    ) -> int:
        """Take a file in; see `RecordBytes.add`. Its size is returned."""

    def read_into(self, number: int, into: list[memoryview], offset: int) -> int:
        """Read once: how many bytes came, which may be fewer than there is room for.

        Raises:
            OSError: It failed; the number says whether it may pass.
            ShardError: It is another file by now, or no waiting helps.
        """

    def renew(self, number: int) -> None:
        """Open a file anew that has failed. Raises as `read_into` does."""

    def size_now(self, number: int) -> int:
        """Bytes that the file has now. Raises as `read_into` does."""

    def advise(self, number: int, advice: int) -> None:
        """How the file will be read from now on: posix_fadvise(2)."""

    def close(self) -> None:
        """Let go of all files."""


class ReadBytes:
    """Shards of a store by reads: all that a request needs at once, in the order of the files.

    Args:
        count: How many shards there are.
        policy: How they are read.
        files: Where they lie. None: in a folder, which may be on a network mount.

    Attributes:
        memory: Empty: each request has memory of its own.
    """

    def __init__(
        self, count: int, policy: ReadPolicy | None = None, files: ShardFiles | None = None
    ) -> None:
        self.memory: NDArray[np.uint8] = np.empty(0, np.uint8)
        self._policy = policy or ReadPolicy()
        self._sizes: NDArray[np.int64] = np.full(count, NOT_ADDED, np.int64)
        self._paths: list[Place | None] = [None] * count
        self._files: ShardFiles = OpenFiles() if files is None else files
        self._queue = ReadQueue(self._policy.in_flight_max)
        # Bytes of each request that was announced, by the identity of what stands for it.
        self._ahead: dict[int, int] = {}
        self._memory = KeptMemory()
        # Where bytes go that nobody wants: all threads may write there.
        self._waste = memoryview(bytearray(self._policy.gap_bytes_max))

    def __reduce__(self) -> NoReturn:
        raise TypeError(NO_PICKLE)

    def add(
        self, number: int, path: Place, descriptor: int, found: os.stat_result | None = None
    ) -> FileBytes:
        """See `RecordBytes.add`. It may keep a descriptor of its own until `close`."""
        if self._files.is_closed:
            raise ValueError(f"{path}: these record bytes are closed")
        size = self._files.add(number, path, descriptor, found)
        self._paths[number] = path
        self._sizes[number] = size
        return _ReadFile(self, number, size)

    def expect(self, number: int, *, in_order: bool) -> None:
        """See `RecordBytes.expect`."""
        advice = os.POSIX_FADV_SEQUENTIAL if in_order else os.POSIX_FADV_RANDOM
        self._files.advise(number, advice)

    def fetch(self, wanted: Sequence[Wanted]) -> list[Pieces]:
        """See `RecordBytes.fetch`. Whether a server was waited for is not known."""
        found, reading = self._reading(wanted, is_urgent=True)
        if len(reading.waiting) > 1:  # One is done by this thread alone.
            self._queue.begin(reading)
        return self._finished(found, reading)

    def announce(self, wanted: Sequence[Wanted]) -> _AnnouncedReads | None:
        """See `RecordBytes.announce`."""
        byte_count = sum(part.byte_count for part in wanted)
        kept = sum(list(self._ahead.values()))
        if not byte_count or (kept and kept + byte_count > self._policy.ahead_bytes_max):
            for part in wanted:
                check_within(part, self._sizes, self._paths)
            return None
        # It is not known yet where they are wanted.
        wanted = [
            Wanted(shards=part.shards, offsets=part.offsets, lengths=part.lengths)
            for part in wanted
        ]
        found, reading = self._reading(wanted, is_urgent=False)
        announced = _AnnouncedReads(self, wanted, found, reading)
        self._ahead[id(announced)] = byte_count
        weakref.finalize(announced, _let_go, self._ahead, id(announced), self._queue, reading)
        self._queue.begin(reading)
        return announced

    def ahead_bytes(self) -> int:
        """Bytes that are kept, or on their way, of requests that were announced."""
        return sum(list(self._ahead.values()))

    def take_over(self, announced: _AnnouncedReads) -> list[Pieces]:
        """The bytes of a request that was announced."""
        kept = self.ahead_bytes()
        self._ahead.pop(id(announced), None)
        if announced.owner != os.getpid():  # A forked child has not the threads that read it.
            return self.fetch(announced.wanted)
        found = self._finished(announced.found, announced.reading)
        figures = found[0].reads + ReadFigures(ahead_count=1, ahead_bytes=kept)
        return [found[0]._replace(reads=figures), *found[1:]]

    def _finished(self, found: list[Pieces], reading: Reading) -> list[Pieces]:
        if reading.waiting or reading.figures.read_count or reading.thread_count:
            self._queue.finish(reading)
        if not found:
            return found
        figures = reading.figures + ReadFigures(in_flight=self._queue.in_flight.limit)
        return [found[0]._replace(reads=figures), *found[1:]]

    def _reading(
        self, wanted: Sequence[Wanted], *, is_urgent: bool
    ) -> tuple[list[Pieces], Reading]:
        """Memory for all that is wanted, and the reads that will fill it."""
        for part in wanted:
            check_within(part, self._sizes, self._paths)
        found: list[Pieces] = []
        places: list[memoryview] = []
        all_lengths = []
        for part in wanted:
            lengths = np.broadcast_to(np.asarray(part.lengths, np.int64), len(part))
            pieces = self._pieces(part, lengths)
            view = memoryview(pieces.memory)  # type: ignore[arg-type]
            ends = (pieces.starts + lengths).tolist()
            places += [
                view[start:end] for start, end in zip(pieces.starts.tolist(), ends, strict=True)
            ]
            found.append(pieces)
            all_lengths.append(lengths)
        reads: list[Read] = []
        if places:
            reads = plan_reads(
                np.concatenate([part.shards for part in wanted]),
                np.concatenate([part.offsets for part in wanted]),
                np.concatenate(all_lengths),
                gap_bytes_max=self._policy.gap_bytes_max,
                read_bytes_max=self._policy.read_bytes_max,
            )

        def one(at: int, is_urgent: bool) -> int:
            read = reads[at]
            into = [
                self._waste[:count] if part == GAP else places[part][first : first + count]
                for part, first, count in read.pieces
            ]
            self._read(read.shard, read.offset, into, is_urgent=is_urgent)
            return read.byte_count

        return found, Reading(len(reads), one, is_urgent=is_urgent)

    def _pieces(self, part: Wanted, lengths: NDArray[np.int64]) -> Pieces:
        """Memory for the parts of a request, which are yet to be read."""
        ends = np.cumsum(lengths, dtype=np.int64)
        byte_count = int(ends[-1]) if len(ends) else 0
        if part.out is None:
            return Pieces(self._memory.take(byte_count), ends - lengths, False, False)
        if part.out.nbytes != byte_count:
            raise ValueError(f"out has {part.out.nbytes} bytes, expected {byte_count}")
        return Pieces(part.out.reshape(-1), ends - lengths, True, False)

    def read(self, number: int, offset: int, into: memoryview) -> None:
        """Fill a piece of memory from a file. Raises as `fetch` does."""
        most = self._policy.read_bytes_max
        for first in range(0, len(into), most):
            self._read(number, offset + first, [into[first : first + most]])

    def _read(
        self, number: int, offset: int, into: list[memoryview], *, is_urgent: bool = True
    ) -> None:
        """NOTE [ a read that fails ]. What nobody waits for yet is tried once."""
        path = self._paths[number]
        if path is None or self._files.is_closed:
            raise ValueError(f"shard {number} is not open, so its byte {offset} cannot be read")
        policy, failure_count = self._policy, 0
        while into:
            cause: OSError | None = None
            try:
                if failure_count:
                    self._files.renew(number)
                count = self._files.read_into(number, into, offset)
                if count:
                    into, offset, failure_count = _rest(into, count), offset + count, 0
                    continue
                if self._files.size_now(number) <= offset:
                    raise ShardError.at(
                        path,
                        f"the file ends at offset {offset}, where {_total(into)} bytes were "
                        "expected. It was cut short after it was opened; copy the store again.",
                    )
                problem = "nothing came, though the file goes on there"
            except OSError as error:
                cause, problem = error, error.strerror or str(error)
            failure_count += 1
            is_passing = is_urgent and (cause is None or may_pass(cause))
            if not is_passing or failure_count > policy.retry_count:
                raise ShardError.at(
                    path,
                    f"{_total(into)} bytes at offset {offset}: {problem} ({failure_count} "
                    "attempts). See whether the disk or server is well and the file can be read "
                    "there.",
                ) from cause
            time.sleep(policy.wait_s(failure_count))

    def close(self) -> None:
        """See `RecordBytes.close`."""
        self._sizes[:] = NOT_ADDED
        self._queue.close()
        self._files.close()


class _AnnouncedReads:
    """See `Announced`.

    Args:
        record_bytes: Who reads.
        wanted: The request.
        found: Memory for it.
        reading: The reads.
    """

    def __init__(
        self, record_bytes: ReadBytes, wanted: list[Wanted], found: list[Pieces], reading: Reading
    ) -> None:
        self.wanted = wanted
        self.found = found
        self.reading = reading
        self.owner = os.getpid()
        self._bytes = record_bytes

    def fetch(self) -> list[Pieces]:
        """See `Announced.fetch`."""
        return self._bytes.take_over(self)


def _let_go(ahead: dict[int, int], identity: int, queue: ReadQueue, reading: Reading) -> None:
    """Nobody will fetch it any more, or it was fetched."""
    ahead.pop(identity, None)
    queue.drop(reading)


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
