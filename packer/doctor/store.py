"""Facts about a store, finished or not, and checks of them."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from packer.doctor import page_cache
from packer.doctor.check import Check
from packer.doctor.need import Need
from packer.doctor.page_cache import Residency
from packer.wording import count_text, size_text, time_text
from packer.workspace.folder import Workspace
from packer.workspace.lock import holder_of
from readers.machine import Memory
from readers.store.errors import CodecError, ImageError, ShardError, StoreError
from readers.store.layout import BUILDING_SUFFIX, MANIFEST_NAME, shard_name
from readers.store.manifest import Manifest, read_manifest
from readers.store.read_bytes import ReadBytes
from readers.store.read_policy import ReadPolicy
from readers.store.reader import StoreReader
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

_SAMPLE_S_MAX = 0.1
"""A loader worker that waits this long for one sample starves a GPU whatever the batch size."""

_RANDOM_S_MAX = 0.01
"""At 10 ms a sample a loader worker gives fewer than 100 samples a second."""


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
        sample_count: Samples that its manifest says it has.
        shard_count: Shards likewise.
        total_bytes: Bytes of all shards, likewise.
        seen_count: Shards whose size was held against the manifest.
        problem: What is wrong; None when nothing is.
        remedy: What to do about it.
        sample_bytes: Bytes of a decoded sample, on the average; None when it is not known.
        fixed_count: See `Need`.
        variable_count: See `Need`.
        times: What reading took; None when nothing could be read.
        residency: How much is in the page cache; None when it is not known.
    """

    path: Path
    sample_count: int = 0
    shard_count: int = 0
    total_bytes: int = 0
    seen_count: int = 0
    problem: str | None = None
    remedy: str = ""
    sample_bytes: int | None = None
    fixed_count: int = 0
    variable_count: int = 0
    times: SampleTimes | None = None
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
        return StoreFacts(path=path, problem=problem, remedy=remedy)
    facts = StoreFacts(
        path=path,
        sample_count=manifest.sample_count,
        shard_count=len(manifest.shards),
        total_bytes=manifest.shard_bytes,
    )
    try:
        paths = _check_sizes(path, manifest)
        facts = replace(facts, seen_count=len(paths))
        if not paths:
            return facts
        # Before any sample is read, which would put it there.
        residency = page_cache.residency(paths, timeout_s=_CACHE_TIMEOUT_S)
        times, sample_bytes = _look_at_records(path, manifest)
    except (StoreError, OSError) as error:
        remedy = f"copy the store again; see every problem with: packer verify {path}"
        return replace(facts, problem=str(error), remedy=remedy)
    tensors = [field for field in manifest.schema.fields if field.kind not in _NO_TENSORS]
    fixed_count = sum(field.is_fixed for field in tensors)
    return replace(
        facts,
        sample_bytes=sample_bytes,
        fixed_count=fixed_count,
        variable_count=len(tensors) - fixed_count,
        times=times,
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


class _Records:
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

    def __enter__(self) -> _Records:
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

    def forget(self, index: int) -> bool:
        """Drop a record from the page cache; whether it is gone, as far as one may know."""
        number, offset, length = self._place(index)
        descriptor = self._descriptors[number]
        page_cache.forget(descriptor, offset, length)
        if not page_cache.may_ask(descriptor):
            return True
        start = offset - offset % mmap.PAGESIZE
        there = page_cache.resident_bytes(descriptor, start, offset + length - start)
        return 2 * there <= length

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


def _look_at_records(path: Path, manifest: Manifest) -> tuple[SampleTimes, int]:
    """What reading takes, and the mean bytes of a decoded sample."""
    store = StoreReader(path, manifest)
    layout = store.layout
    chosen = _spread(range(len(manifest.shards)), _OPENED_COUNT_MAX)
    shards = [store.shard(number) for number in chosen]
    places = [
        (path / manifest.shards[number].file, shard.offsets.copy(), shard.lengths.copy())
        for number, shard in zip(chosen, shards, strict=True)
    ]
    sample_bytes = mean_sample_bytes(manifest.schema, shards)
    del store, shards  # Unmaps them.
    with _Records(places, RecordReader(layout)) as records:
        return _measure(records), sample_bytes


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


def _measure(records: _Records) -> SampleTimes:
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


def check_store(facts: StoreFacts) -> Check:
    """Whether the store can be opened, and its shards are as long as they should be."""
    name = "store"
    if facts.problem is not None:
        why = "Nothing can be trained from it as it is."
        return Check(name, "fail", facts.problem, why, facts.remedy)
    sizes = (
        "their sizes match"
        if facts.seen_count == facts.shard_count
        else f"{facts.seen_count:,} of them looked at, their sizes match"
    )
    figure = (
        f"{facts.path}: {count_text(facts.sample_count, 'sample')}, {size_text(facts.total_bytes)} "
        f"in {count_text(facts.shard_count, 'shard')}, {sizes}"
    )
    if not facts.sample_count:
        why = "A loader over no samples is an error when it is made."
        return Check(name, "warn", figure, why, "build it from a folder with images in it")
    why = f"A quick look. Every byte is checked by: packer verify {facts.path}"
    return Check(name, "pass", figure, why)


def check_single_sample(times: SampleTimes) -> Check:
    """What one sample takes, from the disk and from memory."""
    name = "single_sample"
    cold = "cold" if times.is_cold else "first read (its pages would not leave the page cache)"
    figure = f"{cold} {time_text(times.cold_s)}, warm {time_text(times.warm_s)}; limit 100 ms"
    if times.warm_s >= _SAMPLE_S_MAX:
        why = "Even from memory a sample takes so long: it is decoding that takes the time."
        remedy = "packer build with --image raw (pixels, decoded once) or a smaller --size"
        return Check(name, "warn", figure, why, remedy)
    if times.cold_s >= _SAMPLE_S_MAX:
        why = "The disk or server takes so long: the first epoch, or every one if RAM is too small."
        remedy = "copy the store to a local disk first: cp -r STORE /local/disk/"
        return Check(name, "warn", figure, why, remedy)
    why = "Time to read and decode, in one thread; medians of some samples."
    return Check(name, "pass", figure, why)


def check_random_samples(times: SampleTimes) -> Check:
    """What random access gives, with the page cache as it is."""
    name, mean = "random_samples", times.random_s / times.random_count
    rate, byte_rate = 1 / mean, times.random_bytes / times.random_s
    figure = (
        f"{count_text(times.random_count, 'random sample')}: {rate:,.0f}/s, "
        f"{byte_rate / 1e6:,.0f} MB/s, slowest {time_text(times.slowest_s)}"
    )
    if mean > _RANDOM_S_MAX:
        why = "A loader worker gives fewer than 100 samples a second, in shuffled order."
        remedy = (
            "read the store once in order, if it fits into RAM: cat STORE/*.lmdb > /dev/null; or "
            "copy it to a local disk; or build smaller samples (--size)"
        )
        return Check(name, "warn", figure, why, remedy)
    why = "One thread, one sample at a time, with the page cache as it is now; batches are quicker."
    return Check(name, "pass", figure, why)


def check_page_cache(facts: StoreFacts, memory: Memory) -> Check:
    """How much of the store is in memory, and whether all of it can be."""
    name, found = "page_cache", facts.residency
    usable = memory.usable_bytes
    fits = facts.total_bytes <= usable
    size = f"the store takes {size_text(facts.total_bytes)}, {size_text(usable)} are free"
    if found is None:
        figure = f"{size}; what is cached is told to the owner of the files only"
    else:
        share = found.resident_bytes / max(1, found.seen_bytes)
        figure = f"{share:.0%} cached; {size}"
        if found.seen_bytes < found.total_bytes:
            figure += f" (looked at {size_text(found.seen_bytes)})"
        # What is cached counts as free memory, since it can be given up.
        fits = fits or share > 0.999
    if not fits:
        why = "The store does not fit into memory: in every epoch, shuffled reads go to the disk."
        remedy = (
            "use a local disk, more memory (sbatch --mem=..., docker run --memory=...), or a "
            "smaller --size; blocks read in order are quicker than single samples"
        )
        return Check(name, "warn", figure, why, remedy)
    if found is None:
        why = "A store that fits is read from the disk in the first epoch only."
        return Check(name, "skip", figure, why)
    why = "What is cached is read at memory's speed; a store that fits is cached after one epoch."
    return Check(name, "pass", figure, why)


def store_checks(facts: StoreFacts, memory: Memory) -> list[Check]:
    """All of them, in the order of the checklist."""
    checks = [check_store(facts)]
    if facts.times is not None:
        checks += [check_single_sample(facts.times), check_random_samples(facts.times)]
        checks.append(check_page_cache(facts, memory))
    return checks
