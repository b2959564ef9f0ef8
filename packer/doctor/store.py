"""Facts about a store, finished or not, for `packer.doctor.store_checks`."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from packer.doctor import page_cache
from packer.doctor.need import Need
from packer.doctor.page_cache import Residency
from packer.doctor.records import StoredRecords
from packer.doctor.storage import StorageTimes, measure_storage
from packer.wording import count_text
from packer.workspace.folder import Workspace
from packer.workspace.lock import holder_of
from readers.machine import Mount, mount_of
from readers.store.errors import StoreError
from readers.store.layout import BUILDING_SUFFIX, MANIFEST_NAME, shard_name
from readers.store.manifest import Manifest, read_manifest
from readers.store.reader import Access, StoreReader
from readers.store.record import RecordReader
from readers.store.schema import ITEM_DTYPES, Field, Schema, field_bytes
from readers.store.shard_reader import ShardReader, open_shard_file

_T = TypeVar("_T")

_SHARD_COUNT_MAX = 1000
"""Shards whose sizes are looked at; opening a file of a network mount takes about a millisecond."""

_OPENED_COUNT_MAX = 4
"""Shards that samples are taken from; opening one checks its whole index."""

_COLD_COUNT = 5
_RANDOM_COUNT = 200
_COLD_TIMEOUT_S = 0.4
_RANDOM_TIMEOUT_S = 0.6
_CACHE_TIMEOUT_S = 0.3


@dataclass(frozen=True, kw_only=True)
class SampleTimes:
    """What reading single samples took, decoding included, in seconds.

    Attributes:
        cold_s: Median over some samples whose pages were dropped from the page cache before.
        is_cold: Whether those pages did leave it; pages that somebody has mapped do not.
        warm_s: Median over the same samples, read once more.
        random_count: Samples read at random.
        random_s: What they took together.
        random_bytes: Bytes of their records.
        slowest_s: What the slowest of them took.
    """

    cold_s: float
    is_cold: bool
    warm_s: float
    random_count: int
    random_s: float
    random_bytes: int
    slowest_s: float


@dataclass(frozen=True, kw_only=True)
class StoreFacts:
    """What was found at the path of a store.

    Attributes:
        path: The store.
        mount: Where it lies.
        sample_count: Samples that its manifest says it has.
        shard_count: Shards likewise.
        total_bytes: Bytes of all shards, likewise.
        seen_count: Shards whose size was held against the manifest.
        problem: What is wrong; None when nothing is.
        remedy: What to do about it.
        sample_bytes: Bytes of a decoded sample, on the average; None when it is not known.
        fixed_count: See `Need`.
        variable_count: See `Need`.
        can_map: Whether its files can be mapped there.
        holds_pixels: Whether it has images that are stored as pixels.
        times: What reading single samples took; None when nothing could be read.
        storage: What its disk or server gave; None likewise.
        residency: How much is in the page cache; None when it is not known.
    """

    path: Path
    mount: Mount
    sample_count: int = 0
    shard_count: int = 0
    total_bytes: int = 0
    seen_count: int = 0
    problem: str | None = None
    remedy: str = ""
    sample_bytes: int | None = None
    fixed_count: int = 0
    variable_count: int = 0
    can_map: bool = True
    holds_pixels: bool = False
    times: SampleTimes | None = None
    storage: StorageTimes | None = None
    residency: Residency | None = None

    def need(self, need: Need) -> Need:
        """A job's need with the sizes of this store."""
        if self.sample_bytes is None:
            return need
        return replace(
            need,
            sample_bytes=self.sample_bytes,
            sample_is_assumed=False,
            fixed_count=self.fixed_count,
            variable_count=self.variable_count,
        )


def is_store(path: Path) -> bool:
    """Whether a path is a store, or was to become one: unfinished builds and cut copies count."""
    return (
        (path / MANIFEST_NAME).exists()
        or Workspace.of(path).folder.is_dir()
        or path.name.endswith(BUILDING_SUFFIX)
        or (path / shard_name(0)).exists()
    )


def gather_store(path: Path) -> StoreFacts:
    """Look at a store for about a second: manifest, sizes, some samples, page cache."""
    if path.name.endswith(BUILDING_SUFFIX) and path.is_dir():
        path = path.with_name(path.name.removesuffix(BUILDING_SUFFIX))
    try:
        manifest = read_manifest(path)
    except (StoreError, OSError) as error:
        problem, remedy = _why_no_manifest(path, error)
        return StoreFacts(path=path, mount=mount_of(path), problem=problem, remedy=remedy)
    facts = StoreFacts(
        path=path,
        mount=mount_of(path),
        sample_count=manifest.sample_count,
        shard_count=len(manifest.shards),
        total_bytes=manifest.shard_bytes,
    )
    try:
        paths = _check_sizes(path, manifest)
        facts = replace(facts, seen_count=len(paths))
        if not paths:
            return facts
        facts = replace(facts, can_map=page_cache.can_map(paths[0]))
        # Before any sample is read, which would put it there.
        residency = page_cache.residency(paths, timeout_s=_CACHE_TIMEOUT_S)
        is_read = facts.mount.is_network or not facts.can_map
        looked = _look_at_records(path, manifest, "read" if is_read else "map")
    except (StoreError, OSError) as error:
        remedy = f"copy the store again; see every problem with: packer verify {path}"
        return replace(facts, problem=str(error), remedy=remedy)
    tensors = [field for field in manifest.schema.fields if field.kind not in _NO_TENSORS]
    fixed_count = sum(field.is_fixed for field in tensors)
    return replace(
        facts,
        sample_bytes=looked.sample_bytes,
        fixed_count=fixed_count,
        variable_count=len(tensors) - fixed_count,
        holds_pixels=any(field.codec in ("raw", "mixed") for field in tensors),
        times=looked.times,
        storage=looked.storage,
        residency=residency,
    )


_NO_TENSORS = ("text", "json", "bytes")


def _why_no_manifest(path: Path, error: Exception) -> tuple[str, str]:
    """What keeps a path from being a store, and what to do about it."""
    workspace = Workspace.of(path)
    again = f"run the same command again, it goes on where it stopped: packer build RAW {path}"
    if not workspace.folder.is_dir():
        return str(error), f"copy the store again, or build it: packer build RAW {path}"
    try:
        finished, planned = workspace.counts()
    except OSError:  # Somebody else's folder, perhaps.
        finished, planned = 0, 0
    state = f"{finished} of {count_text(planned, 'shard')} finished"
    holder = holder_of(workspace)
    if holder.is_alive:
        return f"{path}: a build is at work (pid {holder.pid}), {state}", "wait for it to finish"
    # A process of another host may be alive or not.
    elsewhere = holder.host and not holder.is_here
    hint = f", or is at work still (host {holder.host}, pid {holder.pid})" if elsewhere else ""
    return f"{path}: its build did not finish{hint}, {state}", again


def _check_sizes(path: Path, manifest: Manifest) -> list[Path]:
    """Hold the sizes of shards, evenly spread, against the manifest; which were looked at.

    Raises:
        ShardError: One is missing or of another size.
    """
    chosen = _spread(manifest.shards, _SHARD_COUNT_MAX)
    for info in chosen:
        os.close(open_shard_file(path / info.file, info))
    return [path / info.file for info in chosen]


def _spread(values: Sequence[_T], count_max: int) -> list[_T]:
    """At most so many of some values, evenly spread."""
    places = np.linspace(0, len(values) - 1, min(len(values), count_max)).astype(int)
    return [values[place] for place in places]


class _Looked(NamedTuple):
    """What was found by reading records; see `StoreFacts`."""

    times: SampleTimes
    storage: StorageTimes
    sample_bytes: int


def _look_at_records(path: Path, manifest: Manifest, access: Access) -> _Looked:
    """What reading takes, and the mean bytes of a decoded sample."""
    store = StoreReader(path, manifest, access)
    layout = store.layout
    chosen = _spread(range(len(manifest.shards)), _OPENED_COUNT_MAX)
    shards = [store.shard(number) for number in chosen]
    places = [
        (path / manifest.shards[number].file, shard.offsets.copy(), shard.lengths.copy())
        for number, shard in zip(chosen, shards, strict=True)
    ]
    sample_bytes = mean_sample_bytes(manifest.schema, shards)
    del store, shards  # Unmaps them.
    with StoredRecords(places, RecordReader(layout)) as records:
        return _Looked(_measure(records), measure_storage(records), sample_bytes)


def mean_sample_bytes(schema: Schema, shards: list[ShardReader]) -> int:
    """Mean bytes of a sample's tensors, decoded. Text, JSON and bytes become none."""
    return round(sum(_mean_bytes(field, shards) for field in schema.fields))


def _mean_bytes(field: Field, shards: list[ShardReader]) -> float:
    if field.kind in _NO_TENSORS:
        return 0.0
    if field.is_fixed:
        return float(field_bytes(field))
    names = ("height", "width", "channel") if field.kind == "image" else None
    total = count = 0.0
    for shard in shards:
        elements = np.ones(len(shard.lengths))
        for axis, side in enumerate(field.shape):
            item = names[axis] if names else str(axis)
            elements *= shard.columns[f"{field.name}.{item}"] if side is None else side
        if field.dtype is None:
            sizes = np.array([np.dtype(dtype).itemsize for dtype in ITEM_DTYPES])
            elements *= sizes[shard.columns[f"{field.name}.dtype"]]
        else:
            elements *= np.dtype(field.dtype).itemsize
        total += float(elements.sum())
        count += len(elements)
    return total / count


def _measure(records: StoredRecords) -> SampleTimes:
    """Read single samples cold and warm, then many at random: the same ones in every run."""
    count = _COLD_COUNT + _RANDOM_COUNT
    picked = np.random.default_rng(0).integers(0, len(records), count).tolist()
    records.read(picked[0])  # The first one loads what decodes it.
    cold, warm, is_cold = [], [], True
    until = time.monotonic() + _COLD_TIMEOUT_S
    for index in picked[:_COLD_COUNT]:
        is_cold &= records.forget(index)
        cold.append(records.read(index)[0])
        warm.append(records.read(index)[0])
        if time.monotonic() > until:
            break
    until = time.monotonic() + _RANDOM_TIMEOUT_S
    times, byte_count = [], 0
    for index in picked[_COLD_COUNT:]:
        seconds, length = records.read(index)
        times.append(seconds)
        byte_count += length
        if time.monotonic() > until:
            break
    return SampleTimes(
        cold_s=float(np.median(cold)),
        is_cold=is_cold,
        warm_s=float(np.median(warm)),
        random_count=len(times),
        random_s=sum(times),
        random_bytes=byte_count,
        slowest_s=max(times),
    )
