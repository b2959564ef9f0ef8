"""Copies of a store's shards on the local disk of a node: made, told of, removed."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packer.progress import Progress, is_wanted
from packer.wording import Summarized, count_text, size_text, time_text
from readers.staging.cache_folder import CacheFolder, StagedStore
from readers.staging.room import Evicted, evict
from readers.staging.settings import CacheSettings, check_apart
from readers.staging.stager import Stager, StagingReport
from readers.staging.status import CacheStatus, StoreStatus, cache_status
from readers.store.manifest import read_manifest
from readers.store.place import Place, Url, place_of

_MIB = 2**20


@dataclass(frozen=True, kw_only=True)
class StageReport(Summarized):
    """What `stage` did.

    Attributes:
        folder: The cache.
        paths: The stores.
        reports: What became of each.
        seconds: How long it took.
        limit_bytes: As it was asked for.
    """

    folder: str
    paths: tuple[str, ...]
    reports: tuple[StagingReport, ...]
    seconds: float
    limit_bytes: int | None

    @property
    def is_good(self) -> bool:
        """Whether all shards are there, or as many as the limit allows."""
        return all(
            report.is_whole
            or (report.is_room_missing and self.limit_bytes is not None and not report.may_pass)
            for report in self.reports
        )

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        stores = [
            {"path": path, "is_whole": report.is_whole, **dataclasses.asdict(report)}
            for path, report in zip(self.paths, self.reports, strict=True)
        ]
        return {"folder": self.folder, "seconds": self.seconds, "stores": stores}

    def summary(self) -> str:
        """For a person."""
        lines = []
        for path, report in zip(self.paths, self.reports, strict=True):
            lines += [
                f"{path}: {report.staged_count:,} of {count_text(report.shard_count, 'shard')} are "
                f"in {self.folder}, {size_text(report.staged_bytes)} of {size_text(report.bytes)}",
                *(f"  {problem}" for problem in report.problems),
            ]
        copied = sum(report.copied_bytes for report in self.reports)
        rate = size_text(copied / max(self.seconds, 1e-3))
        lines.append(f"copied {size_text(copied)} in {time_text(self.seconds)}, {rate}/s")
        return "\n".join(lines)


def stage(
    stores: Sequence[str | Place],
    folder: str | Path,
    *,
    limit_bytes: int | None = None,
    rate_bytes: int | None = None,
    progress: bool | None = None,
    on_bytes: Callable[[int], None] = lambda byte_count: None,
) -> StageReport:
    """Copy the shards of stores into a cache, and return when they are there.

    What another process copies is waited for. Interrupted, the next call goes on.

    Args:
        stores: Folders of stores, or their URLs.
        folder: On a local disk.
        limit_bytes: What all copies in the cache may take. None: what the disk has.
        rate_bytes: Bytes a second to copy at most. None: no limit.
        progress: Say on stderr how far the work is: a bar on a terminal or in a notebook, else a
            line every 30 s. None does so in a notebook alone.
        on_bytes: Called with bytes as they come to lie in the cache.

    Raises:
        StoreError: A store cannot be opened, or the cache cannot be used or written.
        ValueError: The cache is in a store, or a limit is no number of bytes.
    """
    settings = CacheSettings(
        folder=os.path.abspath(folder), bytes_max=limit_bytes, bytes_per_s_max=rate_bytes
    )
    begun = time.monotonic()
    stagers = []
    for path in stores:
        place = place_of(path)
        check_apart(place, folder)
        if not isinstance(place, Url):
            place = Path(os.path.abspath(place))
        stagers.append(Stager(place, read_manifest(place), settings))
    stop = threading.Event()
    with _told(stores, folder, on_bytes, progress) as told:
        reports = [stager.run(stop, told, tries_damaged=True) for stager in stagers]
    return StageReport(
        folder=str(folder),
        paths=tuple(map(str, stores)),
        reports=tuple(reports),
        seconds=time.monotonic() - begun,
        limit_bytes=limit_bytes,
    )


@contextlib.contextmanager
def _told(
    stores: Sequence[str | Place],
    folder: str | Path,
    on_bytes: Callable[[int], None],
    progress: bool | None,
) -> Iterator[Callable[[int], None]]:
    """What is to be told of bytes: the caller's function, and a bar that counts MiB."""
    if not is_wanted(progress):
        yield on_bytes
        return
    done = shown = 0
    total = missing_bytes(stores, folder) // _MIB
    with Progress(total=total, shows=True, unit="MiB") as bar:

        def tell(byte_count: int) -> None:
            nonlocal done, shown
            on_bytes(byte_count)
            done += byte_count
            bar.add(done // _MIB - shown)
            shown = done // _MIB

        yield tell


def missing_bytes(stores: Sequence[str | Place], folder: str | Path) -> int:
    """Bytes of stores that are not in a cache yet. Raises StoreError."""
    whole = CacheFolder(folder).whole()
    return sum(
        info.bytes
        for path in stores
        for info in read_manifest(path).shards
        if info.sha256 not in whole
    )


def stage_status(stores: Sequence[str | Place], folder: str | Path) -> CacheStatus:
    """What is in a cache: of these stores, or of all that were staged.

    Raises:
        StoreError: There is no such store, or no cache.
    """
    found = [StagedStore.of(str(path), read_manifest(path)) for path in stores]
    return cache_status(CacheFolder(folder), found or None)


def describe_status(status: CacheStatus) -> str:
    """The same for a person."""
    lines = [
        f"{status.folder}: {_copies(status.copy_count)} of {size_text(status.bytes)}, "
        f"{status.used_count:,} in use; {size_text(status.free_bytes)} may still be written"
    ]
    if status.partial_count:
        lines.append(f"  {_copies(status.partial_count)} not whole yet")
    return "\n".join([*lines, *map(_describe_store, status.stores)])


def _copies(count: int) -> str:
    return f"{count:,} {'copy' if count == 1 else 'copies'}"


def _describe_store(store: StoreStatus) -> str:
    whole = "all staged" if store.staged_count == store.shard_count else "staged in part"
    doing = f"{size_text(store.partial_bytes)} more are " if store.partial_bytes else ""
    if store.is_being_copied:
        doing = f"; {doing}being copied now"
    elif doing:
        doing = f"; {doing}copied of others, by nobody at this moment"
    return (
        f"  {store.path}: {whole}, {store.staged_count:,} of "
        f"{count_text(store.shard_count, 'shard')}, {size_text(store.staged_bytes)} of "
        f"{size_text(store.bytes)}, {store.used_count:,} in use{doing}"
    )


def stage_evict(stores: Sequence[str | Place], folder: str | Path) -> Evicted:
    """Remove copies that no process uses: of these stores, or all.

    Raises:
        StoreError: There is no such store, or no cache.
    """
    cache = CacheFolder(folder)
    known = cache.stores()
    states = cache_status(cache, known).stores
    chosen = [StagedStore.of(str(path), read_manifest(path)) for path in stores]
    digests = {digest for store in chosen for digest, _ in store.shards}
    evicted = evict(cache, digests if stores else None)
    left = {entry.sha256 for entry in cache.entries()}
    copied = []
    for store, state in zip(known, states, strict=True):
        if state.is_being_copied:
            copied += [store.path] if not stores or digests & dict(store.shards).keys() else []
        elif not left & dict(store.shards).keys():
            cache.forget_store(store.identity)
    return dataclasses.replace(evicted, copied_paths=tuple(copied))


def describe_evicted(evicted: Evicted) -> str:
    """What was removed, for a person."""
    used = f"; {_copies(evicted.used_count)} in use, and kept" if evicted.used_count else ""
    lines = [f"removed {_copies(evicted.count)} of {size_text(evicted.bytes)}{used}"]
    lines += [
        f"  {path} is being copied now, by a job that will copy it again: end that, or have it run "
        "without cache_dir"
        for path in evicted.copied_paths
    ]
    return "\n".join(lines)
