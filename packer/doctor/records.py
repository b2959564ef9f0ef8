"""Records of a store, read as from a cold start, so that what the disk or server takes is seen."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from packer.doctor import page_cache
from readers.store.errors import CodecError, ImageError, ShardError
from readers.store.read_bytes import ReadBytes
from readers.store.read_policy import ReadPolicy
from readers.store.record import RecordReader
from readers.store.record_bytes import Wanted

ROUND_TRIP_BYTES = 4096


class StoredRecords:
    """Records of some shards, read one by one as from a cold start: no shard is mapped.

    Pages that are mapped would not leave the page cache.

    Args:
        shards: (path, offsets, lengths) of each.
        reader: Decodes a record.
    """

    def __init__(
        self,
        shards: Sequence[tuple[Path, NDArray[np.uint64], NDArray[np.uint32]]],
        reader: RecordReader,
    ) -> None:
        self._shards = shards
        self._reader = reader
        self._first = np.cumsum([0, *(len(offsets) for _, offsets, _ in shards)])
        self._descriptors = [os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path, _, _ in shards]
        # What a read takes is measured: one that fails is not to be tried again.
        self._bytes = ReadBytes(len(shards), ReadPolicy(retry_count=0))
        self._files = [
            self._bytes.add(number, path, self._descriptors[number])
            for number, (path, _, _) in enumerate(shards)
        ]
        for number in range(len(shards)):  # As a dataset does: no neighbours come along.
            self._bytes.expect(number, in_order=False)

    def __enter__(self) -> StoredRecords:
        return self

    def __exit__(self, *_: object) -> None:
        self._bytes.close()
        for descriptor in self._descriptors:
            os.close(descriptor)

    def __len__(self) -> int:
        return int(self._first[-1])

    def _place(self, index: int) -> tuple[int, int, int]:
        """(number of the shard, offset, bytes) of one record."""
        number = int(np.searchsorted(self._first, index, side="right")) - 1
        _, offsets, lengths = self._shards[number]
        at = index - int(self._first[number])
        return number, int(offsets[at]), int(lengths[at])

    @property
    def mean_bytes(self) -> float:
        """Bytes of a record, on the average."""
        return sum(int(lengths.sum()) for _, _, lengths in self._shards) / len(self)

    def neighbours(self, index: int, bytes_max: int) -> range:
        """A record and those behind it in its shard, of about so many bytes."""
        number = self._place(index)[0]
        room = int(self._first[number + 1]) - index
        return range(index, index + max(1, min(room, int(bytes_max / max(1.0, self.mean_bytes)))))

    def forget(self, index: int, count: int = 1) -> bool:
        """Drop a record, or some neighbours, from the page cache; whether they are gone.

        Where the kernel does not tell, they are taken to be.
        """
        number, offset, length = self._place(index)
        if count > 1:  # Those of a page may lie in any order.
            _, all_offsets, all_lengths = self._shards[number]
            at = index - int(self._first[number])
            offsets = all_offsets[at : at + count]
            offset = int(offsets.min())
            length = int((offsets + all_lengths[at : at + count]).max()) - offset
        descriptor = self._descriptors[number]
        page_cache.forget(descriptor, offset, length)
        if not page_cache.may_ask(descriptor):
            return True
        start = offset - offset % mmap.PAGESIZE
        there = page_cache.resident_bytes(descriptor, start, offset + length - start)
        return there is None or 2 * there <= length

    def round_trip(self, index: int) -> float:
        """Seconds that a read of a few bytes takes: what asking costs, whatever is asked for.

        Raises:
            ShardError: It cannot be read.
        """
        number, offset, length = self._place(index)
        count = min(length, ROUND_TRIP_BYTES)
        started = time.perf_counter()
        _ = self._files[number][offset : offset + count]
        return time.perf_counter() - started

    def fetch(self, indices: Sequence[int]) -> tuple[float, int]:
        """Seconds that it took to read some records, many at once, and their bytes.

        Raises:
            ShardError: One cannot be read.
        """
        places = np.array([self._place(index) for index in indices], np.int64)
        shards, offsets, lengths = np.ascontiguousarray(places.T)
        started = time.perf_counter()
        self._bytes.fetch([Wanted(shards=shards, offsets=offsets, lengths=lengths)])
        return time.perf_counter() - started, int(lengths.sum())

    def read(self, index: int) -> tuple[float, int]:
        """Seconds that it took to read and decode a record, and its bytes.

        Raises:
            ShardError: It cannot be read or decoded.
        """
        number, offset, length = self._place(index)
        started = time.perf_counter()
        record = self._files[number][offset : offset + length]
        try:
            self._reader.unpack(record)
        except (CodecError, ImageError) as error:
            at = index - int(self._first[number])
            raise ShardError.at(self._shards[number][0], str(error), at) from error
        return time.perf_counter() - started, length
