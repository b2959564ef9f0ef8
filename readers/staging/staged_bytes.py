"""Record bytes of shards that are copied meanwhile: from far, or out of the copy once it is there.

    request -> which shards have a copy?
                 all    out of the mapped copies, as of any store on a local disk
                 none   the far way, as if there were no cache
                 some   both, joined in memory of the request's own

A copy that has appeared is seen within a second, in each process by itself, and from then on its
shard is read there: the bytes are the same, so it does not matter when. The index of a shard that
was opened before stays where it was read.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
import weakref
from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from readers.staging.byte_locks import ByteLocks
from readers.staging.cache_folder import CacheFolder, use_key
from readers.store.errors import ShardError
from readers.store.manifest import ShardInfo
from readers.store.mapped_bytes import MappedBytes
from readers.store.place import Place
from readers.store.record_bytes import NO_PICKLE, Announced, FileBytes, Pieces, RecordBytes, Wanted
from readers.store.shard_reader import open_shard_file

_log = logging.getLogger("readers.staging")

_LOOK_S = 1.0
"""Between two looks for new copies: a listing of a thousand names takes 0.3 ms."""


class StagedBytes:
    """Shards of one store, each from its copy in a cache as soon as there is one.

    Args:
        far: How shards without a copy are read.
        shards: Of the store.
        folder: The cache.

    Attributes:
        memory: Of the mapped copies.

    Raises:
        MemoryError: The process may not reserve as many addresses as the store has bytes.
    """

    def __init__(self, far: RecordBytes, shards: Sequence[ShardInfo], folder: CacheFolder) -> None:
        self._far = far
        self._near = MappedBytes([info.bytes for info in shards])
        self._shards = shards
        self._folder = folder
        self._is_near = np.zeros(len(shards), bool)
        self._files: dict[int, FileBytes] = {}
        # Those that were opened from far, by digest: number and path.
        self._waiting: dict[str, tuple[int, Place]] = {}
        self._in_order: dict[int, bool] = {}
        self._dropped: set[int] = set()
        # What was used least recently goes first: that counts from the end of its use.
        self._used: set[str] = set()
        weakref.finalize(self, _note_used, self._folder, self._used)
        self._locks: ByteLocks | None = None
        self._looking = threading.Lock()
        self._pid = os.getpid()
        self._next_look = 0.0
        self._is_closed = False
        self.memory: NDArray[np.uint8] = self._near.memory

    def __reduce__(self) -> NoReturn:
        raise TypeError(NO_PICKLE)

    @property
    def near_count(self) -> int:
        """Shards that are read from their copy."""
        return int(self._is_near.sum())

    def add(
        self, number: int, path: Place, descriptor: int, found: os.stat_result | None = None
    ) -> FileBytes:
        """See `RecordBytes.add`."""
        far = self._far.add(number, path, descriptor, found)
        if number not in self._dropped:
            self._waiting[self._shards[number].sha256] = number, path
        return _SwitchedFile(self._files, number, far)

    def add_copy(self, number: int, path: Place) -> FileBytes | None:
        """Take a shard in from its copy, so that it need not be opened where the store lies.

        Args:
            number: The shard's number.
            path: Of its file in the store, for messages.

        Returns:
            All its bytes; None where there is no copy, or it cannot be read.
        """
        info = self._shards[number]
        if number in self._dropped:
            return None
        try:
            with _making:
                if self._locks is None:
                    self._locks = self._folder.locks(may_hold=False)
            # NOTE [ who uses a copy ]: for as long as it is mapped. Then it is opened: whoever had
            # the lock may have removed it.
            if self._is_closed or not self._locks.share(use_key(info.sha256)):
                return None
            descriptor = open_shard_file(self._folder.copy_path(info.sha256), info)
        except (OSError, ShardError):
            return None
        try:
            file = self._near.add(number, path, descriptor)
        except ShardError:
            return None
        finally:
            os.close(descriptor)
        self._folder.note_used(info.sha256)
        self._used.add(info.sha256)
        self._files[number] = file
        self._is_near[number] = True
        return file

    def drop_copy(self, number: int) -> None:
        """See `CopiedBytes.drop_copy`. The copy is removed, as far as this process may.

        It stays mapped, and so it is not to be taken again: a file is mapped once.
        """
        self._is_near[number] = False
        self._files.pop(number, None)
        self._dropped.add(number)
        path = self._folder.copy_path(self._shards[number].sha256)
        _log.warning("%s: this copy is damaged; the shard is read where the store is.", path)
        with contextlib.suppress(OSError):
            path.unlink()

    def expect(self, number: int, *, in_order: bool) -> None:
        """See `RecordBytes.expect`."""
        self._in_order[number] = in_order
        way = self._near if self._is_near[number] else self._far
        way.expect(number, in_order=in_order)

    def fetch(self, wanted: Sequence[Wanted]) -> list[Pieces]:
        """See `RecordBytes.fetch`."""
        self._look()
        if len(self._files) == len(self._shards):
            return self._near.fetch(wanted)
        near, far = self._parted(wanted)
        if not far.count:
            return self._near.fetch(wanted)
        if not near.count:
            return self._far.fetch(wanted)
        far_pieces, near_pieces = self._far.fetch(far.wanted), self._near.fetch(near.wanted)
        return _all_joined(wanted, near, near_pieces, far_pieces)

    def announce(self, wanted: Sequence[Wanted]) -> Announced | None:
        """See `RecordBytes.announce`."""
        self._look()
        near, far = self._parted(wanted)
        if not near.count:
            return self._far.announce(wanted)
        if not far.count:
            self._near.announce(wanted)
            return None
        self._near.announce(near.wanted)
        announced = self._far.announce(far.wanted)
        return None if announced is None else _AnnouncedBoth(self._near, wanted, near, announced)

    def close(self) -> None:
        """See `RecordBytes.close`."""
        self._is_closed = True
        self._waiting.clear()
        self._far.close()
        self._near.close()
        if self._locks is not None:
            self._locks.close()

    def _parted(self, wanted: Sequence[Wanted]) -> tuple[_Side, _Side]:
        """What is asked of the copies, and of the far way."""
        is_near = self._is_near
        rows = [is_near[part.shards] for part in wanted]
        return _Side(wanted, rows), _Side(wanted, [~row for row in rows])

    def _look(self) -> None:
        """See once in a while which shards have a copy by now, and go over to those."""
        if not self._waiting or time.monotonic() < self._next_look:
            return
        if os.getpid() != self._pid:
            # A forked child has none of the threads that might hold its parent's lock.
            self._looking, self._pid = threading.Lock(), os.getpid()
        if not self._looking.acquire(blocking=False):
            return
        try:
            for digest in self._folder.whole() & self._waiting.keys():
                number, path = self._waiting[digest]
                if self.add_copy(number, path) is None:
                    continue
                del self._waiting[digest]
                if number in self._in_order:
                    self._near.expect(number, in_order=self._in_order[number])
            self._next_look = time.monotonic() + _LOOK_S
        finally:
            self._looking.release()


class _Side:
    """The parts of a request that go one way.

    Args:
        wanted: The request.
        rows: For each of it, which of its parts: (part,) bool.
    """

    def __init__(self, wanted: Sequence[Wanted], rows: list[NDArray[np.bool_]]) -> None:
        self.rows = rows
        self.count = sum(int(row.sum()) for row in rows)
        self._wanted = wanted

    @property
    def wanted(self) -> list[Wanted]:
        """The request, without the other parts."""
        pairs = zip(self._wanted, self.rows, strict=True)
        return [
            replace(
                part,
                shards=part.shards[row],
                offsets=part.offsets[row],
                lengths=part.lengths if isinstance(part.lengths, int) else part.lengths[row],
                out=None,
            )
            for part, row in pairs
        ]


class _AnnouncedBoth:
    """See `Announced`. What had a copy when it was announced comes from there.

    Args:
        record_bytes: The copies.
        wanted: The request.
        near: Its part that has copies.
        far: The other one, on its way.
    """

    def __init__(
        self, record_bytes: RecordBytes, wanted: Sequence[Wanted], near: _Side, far: Announced
    ) -> None:
        # It is not known yet where they are wanted.
        self._wanted = [replace(part, out=None) for part in wanted]
        self._bytes = record_bytes
        self._near = near
        self._far = far

    def fetch(self) -> list[Pieces]:
        """See `Announced.fetch`."""
        far_pieces = self._far.fetch()
        near_pieces = self._bytes.fetch(self._near.wanted)
        return _all_joined(self._wanted, self._near, near_pieces, far_pieces)


def _all_joined(
    wanted: Sequence[Wanted], near: _Side, near_pieces: list[Pieces], far_pieces: list[Pieces]
) -> list[Pieces]:
    parts = zip(wanted, near.rows, near_pieces, far_pieces, strict=True)
    return [_joined(*part) for part in parts]


def _joined(wanted: Wanted, is_near: NDArray[np.bool_], near: Pieces, far: Pieces) -> Pieces:
    """What came both ways, in one memory."""
    lengths = np.broadcast_to(np.asarray(wanted.lengths, np.int64), len(wanted))
    ends = np.cumsum(lengths)
    starts = ends - lengths
    byte_count = int(ends[-1]) if len(ends) else 0
    if wanted.out is not None and wanted.out.nbytes != byte_count:
        raise ValueError(f"out has {wanted.out.nbytes} bytes, expected {byte_count}")
    memory = np.empty(byte_count, np.uint8) if wanted.out is None else wanted.out.reshape(-1)
    for rows, pieces in ((is_near, near), (~is_near, far)):
        places = zip(
            starts[rows].tolist(), lengths[rows].tolist(), pieces.starts.tolist(), strict=True
        )
        for start, length, begin in places:
            memory[start : start + length] = pieces.memory[begin : begin + length]
    waited = near.waited or far.waited
    in_out = wanted.out is not None
    return far._replace(memory=memory, starts=starts, in_out=in_out, waited=waited)


class _SwitchedFile:
    """The bytes of one file: its copy's, once there is one."""

    def __init__(self, copies: dict[int, FileBytes], number: int, far: FileBytes) -> None:
        self._copies = copies
        self._number = number
        self._far = far

    def __len__(self) -> int:
        return len(self._far)

    def __getitem__(self, part: slice, /) -> memoryview:
        return self._copies.get(self._number, self._far)[part]


def _note_used(folder: CacheFolder, digests: set[str]) -> None:
    for digest in digests:
        folder.note_used(digest)


def _make_lock() -> None:
    """A forked child has none of the threads that might hold its parent's lock."""
    global _making
    _making = threading.Lock()


_making = threading.Lock()
os.register_at_fork(after_in_child=_make_lock)
