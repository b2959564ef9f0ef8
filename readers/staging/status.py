"""What lies in a cache: copies, those in the making, and who uses them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from readers.staging.cache_folder import (
    CacheFolder,
    StagedStore,
    StagingError,
    copy_key,
    store_key,
    use_key,
)
from readers.staging.room import free_bytes


@dataclass(frozen=True, kw_only=True)
class StoreStatus:
    """How far a store is staged.

    Attributes:
        path: Where it lies.
        shard_count: Its shards.
        staged_count: Those of which there is a copy.
        used_count: Copies that some process reads.
        bytes: Of all shards.
        staged_bytes: Of the copies.
        partial_bytes: Of copies in the making.
        is_being_copied: Whether a process of this node copies it now.
    """

    path: str
    shard_count: int
    staged_count: int
    used_count: int
    bytes: int
    staged_bytes: int
    partial_bytes: int
    is_being_copied: bool


@dataclass(frozen=True, kw_only=True)
class CacheStatus:
    """What lies in a cache.

    Attributes:
        folder: As the user named it.
        copy_count: Whole copies, of any store.
        used_count: Those that some process reads.
        partial_count: Copies in the making, or left by a process that was killed.
        bytes: Of all of them.
        free_bytes: What copies may still take of the disk.
        stores: Those that were asked for, or all that were staged.
    """

    folder: str
    copy_count: int
    used_count: int
    partial_count: int
    bytes: int
    free_bytes: int
    stores: tuple[StoreStatus, ...]


def cache_status(folder: CacheFolder, stores: Sequence[StagedStore] | None = None) -> CacheStatus:
    """What lies in a cache now.

    Args:
        folder: The cache.
        stores: About which more is wanted. None: all that were staged.

    Raises:
        StagingError: There is no cache, or it cannot be read.
    """
    folder.check()
    try:
        locks = folder.locks(may_hold=False)
    except OSError as error:
        raise StagingError(
            f"{folder.path}: {error.strerror}; expected a cache that packer stage, or a dataset "
            "with cache_dir, has filled."
        ) from error
    try:
        entries = folder.entries()
        whole = {entry.sha256: entry for entry in entries if entry.is_whole}
        partial = {entry.sha256: entry for entry in entries if not entry.is_whole}
        used = {digest for digest in whole if locks.is_taken(use_key(digest))}
        found = []
        for store in folder.stores() if stores is None else stores:
            sizes = dict(store.shards)
            copies, making = sizes.keys() & whole.keys(), sizes.keys() & partial.keys()
            found.append(
                StoreStatus(
                    path=store.path,
                    shard_count=len(store.shards),
                    staged_count=len(copies),
                    used_count=len(copies & used),
                    bytes=sum(sizes.values()),
                    staged_bytes=sum(sizes[digest] for digest in copies),
                    partial_bytes=sum(partial[digest].written_bytes for digest in making),
                    is_being_copied=locks.is_taken(store_key(store.identity))
                    or any(locks.is_taken(copy_key(digest)) for digest in making),
                )
            )
    finally:
        locks.close()
    return CacheStatus(
        folder=str(folder.path.parent),
        copy_count=len(whole),
        used_count=len(used),
        partial_count=len(partial),
        bytes=sum(entry.written_bytes for entry in entries),
        free_bytes=max(0, free_bytes(folder)),
        stores=tuple(found),
    )
