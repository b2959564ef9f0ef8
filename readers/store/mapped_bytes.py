"""Record bytes out of mapped files: nothing is copied, and the page cache is all the memory.

NOTE [ cold records are announced ]: a copy out of a mapped file that is not cached faults page by
page, one small read after the other: 127 images/s of 264 KB from a cold local disk, against 1,800
when the kernel is told of whole records first, and all of a batch at once. Telling it costs 5 to
10 us a record, too much when all is warm. So some records of a batch are touched first; if that
needed the disk, the kernel is told of all.

(mincore(2) would say what is cached, but not of files that belong to another user.)

NOTE [ cached records are left alone ]: `bring_in` asks for less still. After so many batches in a
row that needed no disk it probes nothing in advance, and looks only at how many faults the thread
has had since its batch before. Where they grew, something was not cached: it probes again.

NOTE [ pages of a batch are looked up together ]: a copy of records here and there waits at each of
them until its page is found and its first bytes are there. Where a byte of each is asked for
first, those waits overlap: 512 records of 3 KB take 180 us in place of 216, the asking included.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from resource import RUSAGE_THREAD, getrusage
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from readers.store.errors import ShardError
from readers.store.mapping import FileRange
from readers.store.place import Place
from readers.store.record_bytes import NO_PICKLE, NOT_ADDED, FileBytes, Pieces, Wanted, check_within

_PROBE_COUNT = 4

_WARM_COUNT = 32
"""Batches in a row without the disk, after which the store counts as cached."""

_LOOKED_UP_BYTES_LEAST = 1024
"""Of shorter records the processor copies several at a time as it is."""

_LOOKED_UP_COUNT_MAX = 1024
"""Pages of more records are forgotten before they are copied (512 gain most, 4096 nothing)."""


class MappedBytes:
    """All shards of a store in one range of addresses.

    Args:
        sizes: Bytes of each shard's file.

    Attributes:
        memory: The range. To read where no shard was added ends the process.

    Raises:
        MemoryError: The process may not reserve that many addresses.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self._range = FileRange(sizes)
        self._sizes = tuple(sizes)
        self._open_sizes: NDArray[np.int64] = np.full(len(sizes), NOT_ADDED, np.int64)
        self._paths: list[Place | None] = [None] * len(sizes)
        self._is_closed = False
        self._warm_count = 0
        self._faults = threading.local()
        self.memory = self._range.data

    def __reduce__(self) -> NoReturn:
        raise TypeError(NO_PICKLE)

    def add(
        self, number: int, path: Place, descriptor: int, found: os.stat_result | None = None
    ) -> FileBytes:
        """See `RecordBytes.add`. The map holds the file; it costs no descriptor.

        A file is mapped once: where others read it, to map it again would end the process.
        """
        if self._is_closed:
            raise ValueError(f"{path}: these record bytes are closed")
        try:
            self._range.map_file(number, descriptor)
        except OSError as error:
            raise ShardError.at(path, f"cannot be mapped: {error.strerror}") from error
        self._paths[number] = path
        self._open_sizes[number] = self._sizes[number]
        return memoryview(self._range.file(number))  # type: ignore[arg-type]

    def expect(self, number: int, *, in_order: bool) -> None:
        """See `RecordBytes.expect`."""
        self._range.expect_random_reads(number, are_random=not in_order)

    def fetch(self, wanted: Sequence[Wanted]) -> list[Pieces]:
        """See `RecordBytes.fetch`. The pieces lie in the files."""
        places = []
        for part in wanted:
            check_within(part, self._open_sizes, self._paths)
            places.append(self._range.starts[part.shards] + part.offsets)
        waited = self._announce_cold(wanted, places)
        return [Pieces(self.memory, starts, False, waited) for starts in places]

    def start_of(self, number: int) -> int:
        """Where the file of a shard begins in the memory."""
        return int(self._range.starts[number])

    def bring_in(self, starts: NDArray[np.int64], first: int, byte_count: int) -> bool:
        """Have parts of some records read that are not cached, before they are copied.

        Args:
            starts: (record,) int64, where each begins in the memory: in files that were added.
            first: Where the part begins in its record, in bytes.
            byte_count: Bytes of each part, at least 1.

        Returns:
            Whether the kernel was told to read them: NOTE [ cached records are left alone ].
        """
        before = getrusage(RUSAGE_THREAD).ru_majflt
        if getattr(self._faults, "count", before) != before:
            self._warm_count = 0
        self._faults.count = before
        if not len(starts):
            return False
        if self._warm_count >= _WARM_COUNT:
            # NOTE [ pages of a batch are looked up together ]
            if byte_count >= _LOOKED_UP_BYTES_LEAST and len(starts) <= _LOOKED_UP_COUNT_MAX:
                self.memory.take(starts + first)
            return False
        step = max(1, len(starts) // _PROBE_COUNT)
        self.memory[starts[::step] + (first + byte_count // 2)].sum()
        self._faults.count = _disk_fault_count()
        if self._faults.count == before:
            self._warm_count += 1
            return False
        self._warm_count = 0
        for start in starts.tolist():
            self._range.will_need(start + first, byte_count)
        return True

    def announce(self, wanted: Sequence[Wanted]) -> None:
        """See `RecordBytes.announce`. Records that are cached cost their call alone.

        The page cache keeps what is read.
        """
        for part in wanted:
            check_within(part, self._open_sizes, self._paths)
            self._tell(part, self._range.starts[part.shards] + part.offsets)

    def _announce_cold(self, wanted: Sequence[Wanted], places: list[NDArray[np.int64]]) -> bool:
        """NOTE [ cold records are announced ]; whether the kernel was told to read them."""
        if not wanted:
            return False
        # The largest parts tell best: small ones of the same records lie beside them.
        most = 0
        if len(wanted) > 1:
            most = max(range(len(wanted)), key=lambda at: wanted[at].byte_count)
        starts, lengths = places[most], wanted[most].lengths
        step = max(1, len(starts) // _PROBE_COUNT)
        probes = starts[::step]
        if not isinstance(lengths, int):
            lengths = lengths[::step]
            # One without bytes may stand at the end of the last file that is mapped.
            probes, lengths = probes[lengths > 0], lengths[lengths > 0]
        elif not lengths:
            return False
        if not len(probes):
            return False
        probes = probes + lengths // 2
        before = _disk_fault_count()
        self.memory[probes].sum()
        if _disk_fault_count() == before:
            return False
        for part, starts in zip(wanted, places, strict=True):
            self._tell(part, starts)
        return True

    def _tell(self, part: Wanted, starts: NDArray[np.int64]) -> None:
        lengths = np.broadcast_to(part.lengths, len(starts))
        for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
            self._range.will_need(start, length)

    def close(self) -> None:
        """See `RecordBytes.close`. What is mapped stays until nobody looks at it any more."""
        self._is_closed = True
        self._open_sizes[:] = NOT_ADDED


def _disk_fault_count() -> int:
    """Page faults of this thread that had to wait for a disk or server: getrusage(2)."""
    return getrusage(RUSAGE_THREAD).ru_majflt
