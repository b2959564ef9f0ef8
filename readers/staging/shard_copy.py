"""One shard, copied: read in large pieces, hashed, written aside, synced, given its name.

A partial file whose maker was killed is gone on with: its bytes are hashed, which is quick from a
local disk. Should the digest come out wrong, the file is begun anew before the shard is blamed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from readers.staging.cache_folder import CacheFolder, StagingError
from readers.staging.rate_limit import RateLimit
from readers.store.manifest import ShardInfo, sync_folder
from readers.store.place import Place, Url
from readers.store.read_bytes import ReadBytes
from readers.store.record_bytes import NO_DESCRIPTOR, Announced, RecordBytes, Wanted
from readers.store.remote import files_of
from readers.store.remote_shards import REMOTE_POLICY, RemoteShards
from readers.store.shard_reader import check_size, open_shard_file

PIECE_BYTES = 16 * 2**20
"""Read at a time, as several reads at once; see `ReadPolicy.read_bytes_max`."""

_SYNC_BYTES = 256 * 2**20
"""Written between two syncs, so that the disk is not kept busy for minutes at the end."""


class ShardDamagedError(StagingError):
    """A shard is not what its manifest says."""


class ShardSource(Protocol):
    """A shard file where it lies."""

    def read(self, start: int, into: memoryview) -> None:
        """Fill a piece of memory with what begins at `start`.

        Raises:
            StoreError: It cannot be read.
        """

    def close(self) -> None:
        """Let go of it."""


class RecordSource:
    """A shard through the door that training reads by: many reads at once, tried again.

    The piece behind the one that was asked for is on its way while that is hashed and written.

    Args:
        record_bytes: Of this shard alone, as number 0; closed with this.
        size: Bytes of the shard.
    """

    def __init__(self, record_bytes: RecordBytes, size: int) -> None:
        self._bytes = record_bytes
        self._size = size
        self._next: tuple[int, int, Announced] | None = None

    @classmethod
    def of_shard(cls, store: Place, info: ShardInfo) -> RecordSource:
        """A shard of a store, in its folder or at its URL.

        Raises:
            ShardError: It is not there, or of another size.
        """
        if isinstance(store, Url):
            return cls._at_url(store, info)
        path = store / info.file
        descriptor = open_shard_file(path, info)
        record_bytes = ReadBytes(1)
        try:
            record_bytes.add(0, path, descriptor)
        finally:
            os.close(descriptor)
        record_bytes.expect(0, in_order=True)
        return cls(record_bytes, info.bytes)

    @classmethod
    def _at_url(cls, store: Url, info: ShardInfo) -> RecordSource:
        record_bytes = ReadBytes(1, REMOTE_POLICY, RemoteShards(files_of(store)))
        file = record_bytes.add(0, store / info.file, NO_DESCRIPTOR)
        check_size(store / info.file, len(file), info)
        return cls(record_bytes, info.bytes)

    def read(self, start: int, into: memoryview) -> None:
        """See `ShardSource.read`."""
        ahead, self._next = self._next, None
        if ahead is not None and ahead[:2] == (start, len(into)):
            (pieces,) = ahead[2].fetch()
        else:
            out = np.frombuffer(into, np.uint8).reshape(1, -1)
            (pieces,) = self._bytes.fetch([_wanted(start, len(into), out)])
        behind = start + len(into)
        count = min(len(into), self._size - behind)
        if count > 0:
            announced = self._bytes.announce([_wanted(behind, count)])
            self._next = None if announced is None else (behind, count, announced)
        if not pieces.in_out:
            begin = int(pieces.starts[0])
            into[:] = memoryview(pieces.memory)[begin : begin + len(into)]  # type: ignore[arg-type]

    def close(self) -> None:
        """See `ShardSource.close`."""
        self._next = None
        self._bytes.close()


def _wanted(start: int, count: int, out: NDArray[np.uint8] | None = None) -> Wanted:
    """A part of shard 0."""
    offsets = np.array([start], np.int64)
    return Wanted(shards=np.zeros(1, np.int64), offsets=offsets, lengths=count, out=out)


def copy_shard(
    source: ShardSource,
    info: ShardInfo,
    folder: CacheFolder,
    *,
    rate: RateLimit,
    is_stopped: Callable[[], bool],
    on_bytes: Callable[[int], None],
) -> bool:
    """Copy a shard into a cache. The caller holds its lock, and has reserved room for it.

    Args:
        source: The shard.
        info: Its entry in the manifest.
        folder: The cache.
        rate: How fast.
        is_stopped: Asked between pieces; the partial file stays for whoever goes on.
        on_bytes: Called with the bytes of each piece.

    Returns:
        Whether it is there now. False: it was stopped.

    Raises:
        ShardDamagedError: The shard is not what the manifest says. Nothing stays of it.
        StoreError: It cannot be read now. The partial file stays.
        OSError: The cache cannot be written.
    """
    partial = folder.partial_path(info)
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(partial, flags, 0o666)
    try:
        memory = memoryview(bytearray(min(rate.piece_bytes(PIECE_BYTES), info.bytes)))
        if os.fstat(descriptor).st_size > info.bytes:
            os.ftruncate(descriptor, 0)
        while True:
            resumed_bytes = os.fstat(descriptor).st_size
            digest = hashlib.sha256()
            for start in range(0, info.bytes, len(memory)):
                if is_stopped():
                    return False
                piece = memory[: min(len(memory), info.bytes - start)]
                kept = min(len(piece), max(0, resumed_bytes - start))
                _read_back(descriptor, piece[:kept], start)
                if kept < len(piece):
                    source.read(start + kept, piece[kept:])
                    _write(descriptor, piece[kept:], start + kept)
                    if (start + len(piece)) // _SYNC_BYTES > start // _SYNC_BYTES:
                        os.fdatasync(descriptor)
                digest.update(piece)
                on_bytes(len(piece))
                rate.spent(len(piece) - kept)
            if digest.hexdigest() == info.sha256:
                break
            os.ftruncate(descriptor, 0)
            on_bytes(-info.bytes)
            if not resumed_bytes:
                partial.unlink()
                raise ShardDamagedError(
                    f"{info.file}: SHA-256 {digest.hexdigest()[:16]}..., expected "
                    f"{info.sha256[:16]}...: it changed after it was built, or on the way here. It "
                    "is not copied; find out what is damaged with: packer verify"
                )
        # Nobody writes to a copy any more: it is mapped.
        os.fchmod(descriptor, 0o444 & os.fstat(descriptor).st_mode)
        os.fsync(descriptor)
        os.rename(partial, folder.copy_path(info.sha256))
        sync_folder(folder.path)
        return True
    finally:
        os.close(descriptor)


def _write(descriptor: int, piece: memoryview, start: int) -> None:
    while piece:
        count = os.pwrite(descriptor, piece, start)
        piece, start = piece[count:], start + count


def _read_back(descriptor: int, piece: memoryview, start: int) -> None:
    """What is in the partial file already."""
    while piece:
        count = os.preadv(descriptor, [piece], start)
        if not count:
            raise StagingError(f"a partial copy was cut short at {start} while it was read")
        piece, start = piece[count:], start + count
