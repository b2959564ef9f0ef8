"""Where records begin, and numbers of samples, side by side for all shards of a mapped store.

    shard 0         shard 1    shard 2
    starts, label | not open | starts, label      one look-up for a batch, whatever it touches

The index of each shard has the same, shard by shard: finding a batch there means finding the shard
of each sample first, and then its place among the shard's arrays. Both are the same in every batch,
so they are worked out once, when a shard is first asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from readers.store.mapped_bytes import MappedBytes
from readers.store.reader import StoreReader

SAMPLES_MAX = 2**23
"""Samples that a store may have: 64 MiB of starts. The index of each shard, which processes share,
serves beyond."""


class SampleTable:
    """Copies of a store's index for all samples whose shards were asked for.

    Any thread may ask. The copies belong to this process.

    Args:
        store: A store that `fits`.
        names: The numbers wanted: scalar fields.

    Attributes:
        columns: Those of each sample, by name, once `starts` was asked for it.
        each: What `starts` gives for each sample, once it was asked for it; else 0.
    """

    def __init__(self, store: StoreReader, names: Sequence[str]) -> None:
        assert isinstance(store.bytes, MappedBytes)
        self._store = store
        self._bytes = store.bytes
        count = store.manifest.sample_count
        # Zeros are not touched, so they take no memory. No record begins at 0: a file's own
        # description is there.
        self._starts = np.zeros(count, np.int64)
        # A number of it is there in half the time that numpy takes.
        self.each = memoryview(self._starts)  # type: ignore[arg-type]
        dtypes = store.column_dtypes
        self.columns: dict[str, NDArray[Any]] = {n: np.zeros(count, dtypes[n]) for n in names}
        self._taken_in: set[int] = set()
        # One without samples is never asked for.
        self._shard_count = int(np.count_nonzero(np.diff(store.first_samples)))
        self._is_whole = False

    @staticmethod
    def fits(store: StoreReader) -> bool:
        """Whether a store can have such a table: it is mapped, and not of too many samples."""
        count = store.manifest.sample_count
        return isinstance(store.bytes, MappedBytes) and 0 < count <= SAMPLES_MAX

    def starts(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where the records at some positions begin in the memory of the store's bytes.

        Raises:
            ShardError: One of their shards is missing or damaged.
        """
        # Asked before the numbers are read: another thread may write the last of them meanwhile.
        is_whole = self._is_whole
        # take() goes to the same numbers in half the time of an index.
        found: NDArray[np.int64] = self._starts.take(positions)
        if not is_whole and not found.all():
            for number in np.unique(self._store.shard_numbers(positions)).tolist():
                if number not in self._taken_in:
                    self._take_in(number)
            found = self._starts.take(positions)
        return found

    def start(self, position: int) -> int:
        """Where the record at a position begins: see `starts`."""
        return int(self.starts(np.array([position]))[0])

    def _take_in(self, number: int) -> None:
        """Copy a shard's index. Where two threads do so at once, they write the same numbers."""
        shard, first = self._store.shard(number), int(self._store.first_samples[number])
        rows = slice(first, first + len(shard.offsets))
        for name, values in self.columns.items():
            values[rows] = shard.columns[name]
        # These last: where another thread finds them, the numbers are there.
        self._starts[rows] = shard.offsets.astype(np.int64) + self._bytes.start_of(number)
        # And this only then: one who finds a shard here may count on all of it.
        self._taken_in.add(number)
        if len(self._taken_in) == self._shard_count:
            self._is_whole = True
