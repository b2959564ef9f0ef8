"""Room in a cache: its limit, the disk's free space, and which copies go when there is too little.

The copies that were used least recently go first, partial ones that nobody works on before them. A
copy that some process reads stays, and so do the shards of the store that room is made for: to
remove one of those would be to copy it again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from readers.machine import space_at
from readers.staging.byte_locks import ByteLocks
from readers.staging.cache_folder import (
    ROOM_KEY,
    CacheFolder,
    Entry,
    StagingError,
    copy_key,
    use_key,
)
from readers.store.manifest import ShardInfo


class NoRoomError(StagingError):
    """A cache has no room for a shard, and too little that may go."""


_FREE_SHARE = 20
_FREE_BYTES_MOST = 4 * 2**30
_WAIT_S = 0.05


@dataclass(frozen=True, kw_only=True)
class Evicted:
    """What was removed from a cache.

    Attributes:
        count: Copies, whole or partial.
        bytes: Of their files.
        used_count: Copies that stayed, because they are used or made at this moment.
        copied_paths: Stores that some job copies now: it will copy again what was removed.
    """

    count: int
    bytes: int
    used_count: int
    copied_paths: tuple[str, ...] = ()


def free_bytes(folder: CacheFolder) -> int:
    """What copies may still take of the disk: a twentieth of it, at most 4 GiB, stays free."""
    space = space_at(folder.path)
    return space.free_bytes - min(_FREE_BYTES_MOST, space.total_bytes // _FREE_SHARE)


def reserve(
    folder: CacheFolder,
    info: ShardInfo,
    *,
    bytes_max: int | None,
    kept: Collection[str],
    wait: Callable[[float], object],
) -> None:
    """Make room for a copy, and take it: from now on its partial file counts with its whole size.

    The caller holds the lock of the copy.

    Args:
        folder: The cache.
        info: The shard.
        bytes_max: Limit of all copies.
        kept: Digests of copies that are not to be removed.
        wait: Waits so many seconds: another process may be making room.

    Raises:
        NoRoomError: There is no room, and not enough to remove.
    """
    locks = folder.locks(may_hold=True)
    try:
        while not locks.hold(ROOM_KEY):
            wait(_WAIT_S)
        entries = [entry for entry in folder.entries() if entry.path != folder.partial_path(info)]
        missing = _missing(folder, entries, info, bytes_max)
        if missing > 0:
            others = [entry for entry in entries if entry.sha256 not in kept]
            missing -= _remove(others, missing, locks)
        if missing > 0:
            limit = "" if bytes_max is None else f"; the limit is {bytes_max:,} bytes"
            raise NoRoomError(
                f"{folder.path}: no room for {info.file} of {info.bytes:,} bytes: {missing:,} are "
                f"missing, {max(0, free_bytes(folder)):,} may still be written{limit}. The shards "
                "that are not copied are read from where they are. Raise the limit, free space, or "
                "remove copies that nobody uses: packer stage --evict"
            )
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        os.close(os.open(folder.partial_path(info), flags, 0o666))
    finally:
        locks.close()


def hold_to_limit(folder: CacheFolder, bytes_max: int | None) -> Evicted:
    """Remove what is over a limit that was higher before, as far as nobody uses it."""
    entries = folder.entries()
    over = 0 if bytes_max is None else sum(entry.bytes for entry in entries) - bytes_max
    if over <= 0:
        return Evicted(count=0, bytes=0, used_count=0)
    return _evicted(folder, entries, over)


def evict(folder: CacheFolder, digests: Collection[str] | None = None) -> Evicted:
    """Remove copies that nobody uses: of these shards, or all."""
    entries = [entry for entry in folder.entries() if digests is None or entry.sha256 in digests]
    return _evicted(folder, entries, None)


def _missing(
    folder: CacheFolder, entries: Iterable[Entry], info: ShardInfo, bytes_max: int | None
) -> int:
    """Bytes that must go before there is room."""
    taken = yet_to_write = 0
    for entry in entries:
        taken += entry.bytes
        yet_to_write += entry.bytes - entry.written_bytes
    try:
        written = folder.partial_path(info).stat().st_size
    except FileNotFoundError:
        written = 0
    over_disk = info.bytes - written + yet_to_write - free_bytes(folder)
    over_limit = -1 if bytes_max is None else taken + info.bytes - bytes_max
    return max(over_disk, over_limit)


def _evicted(folder: CacheFolder, entries: list[Entry], byte_count: int | None) -> Evicted:
    locks = folder.locks(may_hold=True)
    try:
        before = sum(entry.bytes for entry in entries)
        freed = _remove(
            entries, before if byte_count is None else byte_count, locks, all_or_none=False
        )
        left = [entry for entry in entries if entry.path.exists()]
    finally:
        locks.close()
    return Evicted(count=len(entries) - len(left), bytes=freed, used_count=len(left))


def _remove(
    entries: Iterable[Entry], byte_count: int, locks: ByteLocks, *, all_or_none: bool = True
) -> int:
    """Remove copies, the one that was used least recently first, until so many bytes are free.

    Args:
        entries: Those that may go.
        byte_count: How much is needed.
        locks: NOTE [ who uses a copy ]; they are to be closed afterwards.
        all_or_none: Remove nothing where all that nobody uses is not enough.

    Returns:
        Bytes that were freed.
    """
    chosen, found_bytes = [], 0
    for entry in sorted(entries, key=lambda entry: (entry.is_whole, entry.used_ns)):
        if found_bytes >= byte_count:
            break
        if locks.hold(use_key(entry.sha256) if entry.is_whole else copy_key(entry.sha256)):
            chosen.append(entry)
            found_bytes += entry.bytes
    if all_or_none and found_bytes < byte_count:
        return 0
    for entry in chosen:
        entry.path.unlink(missing_ok=True)
    return found_bytes
