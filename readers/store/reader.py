"""An opened store: its manifest, and its shards, each opened and checked on first use.

NOTE [ one handle per shard and process ]: all users of a store in a process share one
`StoreReader` for each way of reading, found by the identity of its manifest file, whatever path
leads to it (at a URL: by the digest of its manifest). It is gone, and the shards are unmapped, with
its last user. There is little in it that a fork could break: read-only maps, or descriptors that
are read at given offsets, or what a child makes anew: connections and locks.
"""

from __future__ import annotations

import hashlib
import os
import threading
import weakref
from bisect import bisect_right
from collections.abc import Hashable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from readers.store.codecs import little
from readers.store.copies import ShardCache
from readers.store.errors import ShardError, StoreError
from readers.store.layout import MANIFEST_NAME
from readers.store.manifest import (
    Manifest,
    ShardInfo,
    parse_manifest,
    read_manifest,
    read_manifest_bytes,
)
from readers.store.mapped_bytes import MappedBytes
from readers.store.numbered_locks import NumberedLocks
from readers.store.place import Place, Url, place_of
from readers.store.read_bytes import ReadBytes
from readers.store.read_policy import ReadPolicy, tried
from readers.store.read_threads import for_each, read_threads
from readers.store.record import RecordLayout
from readers.store.record_bytes import NO_DESCRIPTOR, FileBytes, RecordBytes, Wanted
from readers.store.remote import files_of
from readers.store.remote_shards import REMOTE_POLICY, RemoteShards
from readers.store.shard_files import Listing, check_shard_files
from readers.store.shard_reader import ShardReader, check_size, open_and_look, open_shard_file

Access = Literal["map", "read"]
"""How the bytes of shards come: out of mapped files, or by reads at known offsets."""

_UNKNOWN = -(2**62)
"""Place of an array that was not asked for yet."""


class Located:
    """Samples of a store whose shards are known and opened.

    Made by `StoreReader.located`.
    """

    def __init__(
        self, store: StoreReader, numbers: NDArray[np.int64], positions: NDArray[np.int64]
    ) -> None:
        self._store = store
        self._numbers = numbers
        self._positions = positions
        self._offsets: NDArray[np.int64] | None = None

    def records(self) -> Wanted:
        """Each record whole, as it is asked for at the door to the store's bytes."""
        return self.within(0, self.lengths())

    def within(
        self,
        first: NDArray[np.int64] | int,
        lengths: NDArray[np.int64] | int,
        out: NDArray[np.uint8] | None = None,
    ) -> Wanted:
        """A part of each record, as it is asked for: a field of fixed size, rows of pixels.

        Args:
            first: Where it begins in the record, in bytes.
            lengths: Its bytes.
            out: See `Wanted`.
        """
        if self._offsets is None:
            offsets = self._store.taken("offset", "uint64", self._numbers, self._positions)
            self._offsets = offsets.view(np.int64)  # They lie in a file.
        offsets = self._offsets + first
        return Wanted(shards=self._numbers, offsets=offsets, lengths=lengths, out=out)

    def lengths(self) -> NDArray[np.int64]:
        """Bytes of each record."""
        layout = self._store.layout
        if not layout.variable_fields:
            # Checked when the shard was opened: all are as long.
            return np.full(len(self._positions), layout.variable_start, np.int64)
        found = self._store.taken("length", "uint32", self._numbers, self._positions)
        return found.astype(np.int64)

    def column(self, name: str) -> NDArray[Any]:
        """One number of each, out of the index: a scalar field, or the extent of an image.

        Raises:
            KeyError: There is no such column.
        """
        dtype = self._store.column_dtypes[name]
        return self._store.taken(name, dtype, self._numbers, self._positions)


class StoreReader:
    """A store, by position of its samples.

    Args:
        path: Folder of the store, or its URL.
        manifest: Its manifest.
        access: How its shards are read. Those at a URL cannot be mapped.
        policy: How stubbornly, and how many at once, where they are not mapped.
        cache: Where copies of them may lie, which are read instead.

    Attributes:
        path: As given.
        manifest: As given.
        access: As given.
        policy: As given, or the usual one; None where shards are mapped.
        layout: Where everything lies in a record.
        column_dtypes: Element type of each array of numbers in the index, by name.
        first_samples: Position in the store of each shard's first sample, and the count of all.
        bytes: The door to the bytes of its shards.
    """

    def __init__(
        self,
        path: Place,
        manifest: Manifest,
        access: Access = "map",
        policy: ReadPolicy | None = None,
        cache: ShardCache | None = None,
    ) -> None:
        self.path = path
        self.manifest = manifest
        self.access = access
        usual = REMOTE_POLICY if isinstance(path, Url) else ReadPolicy()
        self.policy = (policy or usual) if access == "read" else None
        self.layout = RecordLayout.of(manifest.schema)
        counts = [shard.sample_count for shard in manifest.shards]
        self.first_samples: NDArray[np.int64] = np.cumsum([0, *counts], dtype=np.int64)
        self._first_samples = self.first_samples.tolist()
        far = self._reserve(manifest)
        self._copied = None if cache is None else cache.around(far, manifest.shards)
        self.bytes: RecordBytes = far if self._copied is None else self._copied
        self._shards: list[ShardReader | None] = [None] * len(counts)
        self._reads_ahead = False
        # Kept, so that they stay for the next shards.
        self._threads: ThreadPoolExecutor | None = None
        self._is_open = np.zeros(len(counts), bool)
        self.column_dtypes = {item.name: item.dtype for item in self.layout.columns}
        # Where each shard's array begins, by name: in the memory of the mapped files; or, from
        # _UNKNOWN + 1 on, among the copies.
        self._places: dict[str, NDArray[np.int64]] = {}
        self._copies: dict[str, NDArray[Any]] = {}
        self._copied_counts: dict[str, int] = {}

    def _reserve(self, manifest: Manifest) -> RecordBytes:
        """A place for the bytes of all shards."""
        if isinstance(self.path, Url):
            shards = RemoteShards(files_of(self.path))
            return ReadBytes(len(manifest.shards), self.policy, shards)
        if self.access == "read":
            return ReadBytes(len(manifest.shards), self.policy)
        folder = self.path
        try:
            return MappedBytes([shard.bytes for shard in manifest.shards])
        except MemoryError:
            # A manifest may claim any size; it is believed when the files have it.
            for info in manifest.shards:
                os.close(open_shard_file(folder / info.file, info))
            raise

    @property
    def folder(self) -> Path:
        """Its folder, for what needs the files themselves.

        Raises:
            StoreError: It lies at a URL.
        """
        if isinstance(self.path, Url):
            raise StoreError(f"{self.path}: this needs the store in a folder; copy it here first.")
        return self.path

    def shard(self, number: int) -> ShardReader:
        """One shard, opened and checked when this process first asks for it.

        Raises:
            ShardError: The file is missing, truncated, damaged, crafted or another shard's.
        """
        shard = self._shards[number]
        if shard is None:
            # One thread at a time: to map a file again where others read it ends the process.
            with _opening.of(self, number):
                shard = self._shards[number]
                if shard is None:
                    shard = self._shards[number] = self._open(number)
                    self._is_open[number] = True
        return shard

    def _open(self, number: int) -> ShardReader:
        info = self.manifest.shards[number]
        path = self.path / info.file
        file = None if self._copied is None else self._copied.add_copy(number, path)
        if self._copied is not None and file is not None:
            try:
                return self._checked(number, path, file, is_mapped=True)
            except ShardError:
                self._copied.drop_copy(number)
        file = self._taken_in(number, path, info)
        return self._checked(number, path, file, is_mapped=self.access == "map")

    def _checked(
        self, number: int, path: Place, file: FileBytes, *, is_mapped: bool
    ) -> ShardReader:
        """A shard that was taken in.

        Of a mapped file, checking goes through the index from end to end, with the kernel reading
        ahead. Where files are read, the index comes by two reads: what lies behind them would come
        along.
        """
        is_random = not self._reads_ahead
        if is_random and not is_mapped:
            self.bytes.expect(number, in_order=False)
        shard = ShardReader(path, file, self.manifest.shards[number], self.layout)
        if is_random and is_mapped:
            self.bytes.expect(number, in_order=False)
        return shard

    def _taken_in(self, number: int, path: Place, info: ShardInfo) -> FileBytes:
        if isinstance(path, Url):
            file = self.bytes.add(number, path, NO_DESCRIPTOR)
            check_size(path, len(file), info)
            return file
        descriptor, found = open_and_look(path, info, self.policy)
        try:
            return self.bytes.add(number, path, descriptor, found)
        finally:
            os.close(descriptor)

    def read_ahead(self) -> None:
        """From now on, have the kernel read on behind each page that is asked for.

        For passes in the order of the store; all users of the store in this process share it.
        """
        self._reads_ahead = True
        for number in np.flatnonzero(self._is_open).tolist():
            self.bytes.expect(number, in_order=True)

    def shards(self) -> Iterable[ShardReader]:
        """All shards, in order."""
        if self.access == "read":
            with suppress(StoreError):  # It is met again where that shard comes.
                self._open_all(np.arange(len(self._shards)))
        return (self.shard(number) for number in range(len(self._shards)))

    def _open_all(self, numbers: NDArray[np.int64]) -> None:
        """Open shards: where they are read many at once, as each takes several round trips."""
        closed = numbers[~self._is_open[numbers]]
        if self.access == "read" and len(closed) > 1:
            self._threads = self._threads or read_threads()
            for_each(self._threads, self._opened, closed.tolist())
        else:
            for number in closed.tolist():
                self.shard(number)

    def _opened(self, number: int) -> None:
        self.shard(number)

    def locate(self, index: int) -> tuple[ShardReader, int]:
        """The shard of the sample at `index` in [0, sample_count), and its position there."""
        number = bisect_right(self._first_samples, index) - 1
        return self.shard(number), index - self._first_samples[number]

    def located(self, indices: NDArray[np.int64]) -> Located:
        """Many samples, found once for all that is asked about them. Their shards are opened."""
        numbers = self.shard_numbers(indices)
        return Located(self, numbers, indices - self.first_samples[numbers])

    def shard_numbers(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """The shard of each sample. All of them are opened."""
        if len(self._shards) == 1:
            numbers = np.zeros(len(indices), np.int64)
        else:
            numbers = np.searchsorted(self.first_samples, indices, side="right") - 1
        if not self._is_open[numbers].all():
            self._open_all(np.array(_distinct(numbers)))
        return numbers

    def taken(
        self,
        name: str,
        dtype: str,
        numbers: NDArray[np.int64],
        positions: NDArray[np.int64],
    ) -> NDArray[Any]:
        """Elements of an index array of several shards.

        Where files are mapped, the arrays lie in one range: one look-up serves all shards, and
        processes share them. A short array has no aligned place there; such ones are copied, end to
        end, as are all where files are read.
        """
        places = self._places.get(name)
        if places is None:
            places = self._places[name] = np.full(len(self._shards), _UNKNOWN, np.int64)
        known = places[numbers]
        if (known == _UNKNOWN).any():
            for number in _distinct(numbers[known == _UNKNOWN]):
                self._find_place(name, number, dtype)
            known = places[numbers]
        is_copied = known < 0
        if not len(positions):
            return np.empty(0, dtype)
        if is_copied.all():
            taken: NDArray[Any] = self._copies[name][known - _UNKNOWN - 1 + positions]
            return taken
        item_bytes, memory = np.dtype(dtype).itemsize, self.bytes.memory
        whole = memory[: len(memory) // item_bytes * item_bytes]
        mapped = whole.view(little(dtype))
        if not is_copied.any():
            taken = mapped[known + positions]
            return taken
        taken = np.empty(len(positions), dtype)
        rows = ~is_copied
        taken[rows] = mapped[known[rows] + positions[rows]]
        rows = is_copied
        taken[rows] = self._copies[name][known[rows] - _UNKNOWN - 1 + positions[rows]]
        return taken

    def _find_place(self, name: str, number: int, dtype: str) -> None:
        """Note where a shard's array begins, in elements: in the memory, or among the copies."""
        array = self._index_array(number, name)
        memory = self.bytes.memory
        start = int(array.ctypes.data) - int(memory.ctypes.data)
        item_bytes = array.dtype.itemsize
        if 0 <= start < len(memory) and start % item_bytes == 0:
            self._places[name][number] = start // item_bytes
            return
        with _placing:
            copies = self._copies.get(name, np.empty(0, little(dtype)))
            start = self._copied_counts.get(name, 0)
            end = start + len(array)
            if end > len(copies):
                # Twice as many, so that those of a thousand shards are not copied a thousand times.
                larger = np.empty(max(end, 2 * len(copies)), little(dtype))
                larger[:start] = copies[:start]
                self._copies[name] = copies = larger
            # The copies first: another thread may look a place up as soon as it stands there.
            copies[start:end] = array
            self._copied_counts[name] = end
            self._places[name][number] = _UNKNOWN + 1 + start

    def _index_array(self, number: int, name: str) -> NDArray[Any]:
        shard = self.shard(number)
        if name == "offset":
            return shard.offsets
        return shard.lengths if name == "length" else shard.columns[name]

    def find(self, key: bytes) -> int | None:
        """Position in the store of the sample with this text key, or None."""
        for number, shard in enumerate(self.shards()):
            position = shard.find(key)
            if position is not None:
                return int(self.first_samples[number]) + position
        return None


def _distinct(numbers: NDArray[np.int64]) -> list[int]:
    """Each number once, in order."""
    # np.unique would load numpy.ma, in each loader worker before its first batch: 10 ms.
    return sorted(set(numbers.tolist()))


def _make_lock() -> None:
    """A forked child has none of the threads that might hold its parent's lock."""
    global _placing
    _placing = threading.Lock()


_opening = NumberedLocks()
_placing = threading.Lock()
os.register_at_fork(after_in_child=_make_lock)

_open_stores: weakref.WeakValueDictionary[Hashable, StoreReader] = weakref.WeakValueDictionary()


def open_store(
    path: str | Place,
    *,
    checks_files: bool = True,
    access: Access = "map",
    policy: ReadPolicy | None = None,
    cache: ShardCache | None = None,
) -> StoreReader:
    """The store at `path`: the one that this process has open already, or a new one.

    Args:
        path: Folder of the store, or its URL.
        checks_files: See by one stat a shard that all are there, so that a store which is copied in
            part is an error here and not at one of its samples. Where shards are read, one listing
            of the folder says which are there, and their sizes are seen as they are opened.
        access: How its shards are read; for a store at a URL it says nothing.
        policy: How stubbornly, and how many at once, where they are not mapped.
        cache: Where copies of them may lie.

    Raises:
        ShardError: `checks_files` found shards missing or of another size.
        StoreError: See `read_manifest`.
    """
    place = place_of(path)
    listed = None
    if isinstance(place, Url):
        store = _at_url(place, policy, cache)
    else:
        policy = (policy or ReadPolicy()) if access == "read" else None
        if checks_files and policy is not None:
            listed = Listing(place, policy)
        store = _in_folder(place, access, policy, cache)
    if checks_files:
        names = None if listed is None else listed.names()
        check_shard_files(store.path, store.manifest.shards, names)
    return store


def _in_folder(
    path: Path, access: Access, policy: ReadPolicy | None, cache: ShardCache | None
) -> StoreReader:
    manifest = found = None
    with suppress(OSError):
        found = tried(partial(os.stat, path / MANIFEST_NAME), policy)
    if found is None:
        manifest = read_manifest(path)  # Raises with the reason, which is not to follow another.
        found = os.stat(path / MANIFEST_NAME)
    key = (found.st_dev, found.st_ino, found.st_mtime_ns, access, policy, cache)
    store = _open_stores.get(key)
    if store is None:
        # The path must go on meaning the same folder when the process changes its own, or when a
        # link is set to a newer store.
        folder = Path(os.path.realpath(path))
        manifest = manifest or read_manifest(folder, policy)
        store = StoreReader(folder, manifest, access, policy, cache)
        _open_stores[key] = store
    return store


def _at_url(url: Url, policy: ReadPolicy | None, cache: ShardCache | None) -> StoreReader:
    files = files_of(url)  # Kept, so that the manifest and the shards come by one connection.
    data = read_manifest_bytes(url)
    key = (files, hashlib.sha256(data).digest(), policy, cache)
    store = _open_stores.get(key)
    if store is None:
        manifest = parse_manifest(data, url / MANIFEST_NAME)
        store = StoreReader(url, manifest, "read", policy, cache)
        _open_stores[key] = store
    return store
