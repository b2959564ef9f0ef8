"""An opened store: its manifest, and its shards, each opened and checked on first use.

NOTE [ one handle per shard and process ]: all users of a store in a process share one
`StoreReader`, found by the identity of its manifest file, whatever path leads to it. It is gone,
and the shards are unmapped, with its last user. There is nothing in it that a fork could break:
read-only maps, no descriptors, no locks.
"""

from __future__ import annotations

import os
import weakref
from bisect import bisect_right
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from readers.store.errors import ShardError
from readers.store.layout import MANIFEST_NAME
from readers.store.manifest import Manifest, read_manifest
from readers.store.mapping import FileRange
from readers.store.record import RecordLayout
from readers.store.shard import ShardReader, open_shard_file


class StoreReader:
    """A store, by position of its samples.

    Args:
        path: Folder of the store.
        manifest: Its manifest.

    Attributes:
        manifest: As given.
        layout: Where everything lies in a record.
        first_samples: Position in the store of each shard's first sample, and the count of all.
        range: The mapped shards.
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest
        self.layout = RecordLayout.of(manifest.schema)
        counts = [shard.sample_count for shard in manifest.shards]
        self.first_samples: NDArray[np.int64] = np.cumsum([0, *counts], dtype=np.int64)
        self._first_samples = self.first_samples.tolist()
        self.range = FileRange([shard.bytes for shard in manifest.shards])
        self._shards: list[ShardReader | None] = [None] * len(counts)

    def shard(self, number: int) -> ShardReader:
        """One shard, opened and checked when this process first asks for it.

        Raises:
            ShardError: The file is missing, truncated, damaged, crafted or another shard's.
        """
        shard = self._shards[number]
        if shard is None:
            shard = self._shards[number] = self._open(number)
        return shard

    def _open(self, number: int) -> ShardReader:
        info = self.manifest.shards[number]
        path = self.path / info.file
        descriptor = open_shard_file(path, info)
        try:
            self.range.map_file(number, descriptor)
        except OSError as error:
            raise ShardError(path, f"cannot be mapped: {error.strerror}") from error
        finally:
            os.close(descriptor)
        return ShardReader(path, self.range.file(number), info, self.layout)

    def shards(self) -> Iterable[ShardReader]:
        """All shards, in order."""
        return (self.shard(number) for number in range(len(self._shards)))

    def locate(self, index: int) -> tuple[ShardReader, int]:
        """The shard of the sample at `index` in [0, sample_count), and its position there."""
        number = bisect_right(self._first_samples, index) - 1
        return self.shard(number), index - self._first_samples[number]

    def record_starts(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where the records of many samples begin in the mapped range, in bytes.

        Their shards are opened, so the addresses may be read.
        """
        if len(self._shards) == 1:
            return self.shard(0).offsets[indices].astype(np.int64)
        numbers = np.searchsorted(self.first_samples, indices, side="right") - 1
        starts = np.empty(len(indices), np.int64)
        for number in np.unique(numbers):
            rows = numbers == number
            positions = indices[rows] - self.first_samples[number]
            starts[rows] = self.range.starts[number] + self.shard(int(number)).offsets[
                positions
            ].astype(np.int64)
        return starts

    def find(self, key: bytes) -> int | None:
        """Position in the store of the sample with this text key, or None."""
        for number, shard in enumerate(self.shards()):
            position = shard.find(key)
            if position is not None:
                return int(self.first_samples[number]) + position
        return None


_open_stores: weakref.WeakValueDictionary[tuple[int, int, int], StoreReader] = (
    weakref.WeakValueDictionary()
)


def open_store(path: str | Path) -> StoreReader:
    """The store at `path`: the one that this process has open already, or a new one.

    Raises:
        StoreError: See `read_manifest`.
    """
    path = Path(path)
    manifest = None
    try:
        found = os.stat(path / MANIFEST_NAME)
    except OSError:
        manifest = read_manifest(path)  # Raises with the reason.
        found = os.stat(path / MANIFEST_NAME)
    key = (found.st_dev, found.st_ino, found.st_mtime_ns)
    store = _open_stores.get(key)
    if store is None:
        # A relative path must go on meaning the same folder when the process changes its own.
        store = StoreReader(Path(os.path.abspath(path)), manifest or read_manifest(path))
        _open_stores[key] = store
    return store
