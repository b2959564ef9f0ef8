"""What of a store can stay when its raw data changed: the shards whose items are all the same.

A build leaves `update-cache` in its store: for each shard the keys of its items, what the source
said of them, the digest of their files, and when these were last changed. The next `--update`
holds the raw data against it. Items keep their shards, and new ones join the shard of the item
before them; so few shards are rebuilt, and the samples are those of a fresh build in their order.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, groupby
from pathlib import Path
from typing import Any

import msgspec

from packer.files.sizes import picture_bytes_max
from packer.items.raw_item import RawFile, RawItem
from packer.plan.cuts import cut_items
from packer.plan.shards import BuildPlan
from packer.raw.read_ahead import DIGEST_BYTES, content_digest, files_of, image_file, read_files
from packer.wording import count_text
from packer.workspace.folder import TaskReport, Workspace
from packer.workspace.unfinished import facts_that_differ
from readers.store.layout import UPDATE_CACHE_NAME, shard_name, shard_number

_CACHE_VERSION = 1
_NOT_READ = bytes(DIGEST_BYTES)
_GROWTH_MAX = 2
"""A shard that grows past so many times the usual size is cut."""


class ShardSources(msgspec.Struct, array_like=True):
    """What one shard was made of; of each item in order, those that were rejected among them.

    Attributes:
        keys: Their keys.
        facts: Digests of what the source said of each: values, annotations, place in its file.
        sizes: Bytes of each one's files.
        times: When they were last changed, in nanoseconds.
        report: What became of them; its `contents` are the digests of their files.
    """

    keys: list[bytes]
    facts: bytes
    sizes: list[int]
    times: list[int]
    report: TaskReport


class UpdateCache(msgspec.Struct):
    """What a store was made of.

    Attributes:
        version: Of this file's form.
        facts: Settings that every shard depends on.
        shards: In the order of the store.
    """

    version: int
    facts: dict[str, Any]
    shards: list[ShardSources]


@dataclass
class Update:
    """How a store is brought up to date.

    Attributes:
        plan: With the shards that there will be.
        kept: Reports of the shards that stay, by their place in the plan.
        notice: What changed, in one line.
        is_needed: Whether anything is to be done.
    """

    plan: BuildPlan
    kept: dict[int, TaskReport] = field(default_factory=dict)
    notice: str = ""
    is_needed: bool = True


def plan_update(
    plan: BuildPlan, out: Path, *, retries_rejects: bool = False, rehashes: bool = False
) -> Update:
    """Which shards of the store at `out` can stay under a new plan.

    Args:
        plan: Of a fresh build of the raw data as it is now.
        out: The store, of any age.
        retries_rejects: Whether items that were rejected are tried again, though unchanged.
        rehashes: Whether to read every file, rather than only those whose time of change is
            another. It takes what a look at the time misses: content changed, time put back.
    """
    cache = _read_cache(out)
    if cache is None:
        return Update(plan, notice="all shards are rebuilt: the store has no update-cache")
    differences = facts_that_differ(_settings(plan), cache.facts)
    if differences:
        return Update(plan, notice=f"all shards are rebuilt: {'; '.join(differences)}")
    homes = _homes(plan.scan.items, cache)
    if homes is None:
        return Update(plan, notice="all shards are rebuilt: the items have another order")
    compare = _Comparison(plan, cache, rehashes=rehashes)
    cuts: list[tuple[int, int]] = []
    names: list[str] = []
    kept: dict[int, TaskReport] = {}
    new_names = _new_names(cache)
    first = 0
    for home, group in groupby(homes):
        end = first + len(list(group))
        sources = cache.shards[home]
        is_same = compare.are_same(first, end, sources)
        report = sources.report
        if is_same and not report.may_pass and not (retries_rejects and report.rejects):
            kept[len(cuts)] = report
            names.append(report.shard.file if report.shard is not None else next(new_names))
            cuts.append((first, end))
        else:
            for cut in _cuts_of(plan, first, end):
                names.append(next(new_names))
                cuts.append(cut)
        first = end
    removed = sum(len(sources.keys) for sources in cache.shards) - compare.known_count
    is_needed = bool(len(kept) < len(cuts) or removed or compare.touched_count)
    made = len(cuts) - len(kept)
    notice = (
        f"update: {compare.added_count:,} added, {compare.changed_count:,} changed, {removed:,} "
        f"removed; {count_text(made, 'shard')} rebuilt, {len(kept):,} kept"
    )
    new_bytes = sum(
        int(plan.record_bytes[first:end].sum())
        for number, (first, end) in enumerate(cuts)
        if number not in kept
    )
    updated = replace(plan, cuts=tuple(cuts), names=tuple(names), byte_count=new_bytes)
    return Update(updated, kept, notice, is_needed)


def seed_workspace(
    workspace: Workspace, out: Path, kept: dict[int, TaskReport], plan_id: str
) -> None:
    """Put the shards that stay into a build that has just begun, as finished ones.

    They are the same files under a second name, or copies where the file system has no links.
    """
    for number, report in kept.items():
        if report.shard is not None:
            source, target = out / report.shard.file, workspace.store / report.shard.file
            try:
                os.link(source, target)
            except OSError:
                shutil.copyfile(source, target)
        workspace.write_report(number, report, plan_id=plan_id)


def update_cache_parts(plan: BuildPlan, reports: Sequence[TaskReport]) -> Iterator[bytes]:
    """What the next update needs, as a store keeps it beside its shards: an `UpdateCache`.

    One shard after the other. The whole, of a hundred million items, takes 10 GB.
    """
    encode = msgspec.msgpack.Encoder().encode
    empty = encode(UpdateCache(_CACHE_VERSION, _settings(plan), []))
    no_shards = encode([])
    assert empty.endswith(no_shards)
    yield empty.removesuffix(no_shards) + array_start(len(plan.cuts))
    for (first, end), report in zip(plan.cuts, reports, strict=True):
        items = plan.scan.items[first:end]
        yield encode(
            ShardSources(
                keys=[item.key for item in items],
                facts=b"".join(map(_facts_of, items)),
                sizes=list(map(_size_of, items)),
                times=list(map(_time_of, items)),
                report=report,
            )
        )


def array_start(count: int) -> bytes:
    """How MessagePack begins an array."""
    if count < 16:
        return bytes([0x90 + count])
    if count < 2**16:
        return b"\xdc" + count.to_bytes(2, "big")
    return b"\xdd" + count.to_bytes(4, "big")


def _read_cache(out: Path) -> UpdateCache | None:
    try:
        data = (out / UPDATE_CACHE_NAME).read_bytes()
        cache = msgspec.msgpack.decode(data, type=UpdateCache)
    except (OSError, msgspec.DecodeError):
        return None
    return cache if cache.version == _CACHE_VERSION else None


def _settings(plan: BuildPlan) -> dict[str, Any]:
    """What all shards depend on."""
    facts = plan.facts()
    kept = ("recipe", "format", "schema", "library versions")
    return {name: facts[name] for name in kept} | {
        "mask colours": [list(color) for color in plan.scan.mask_colors]
    }


def _homes(items: Sequence[RawItem], cache: UpdateCache) -> list[int] | None:
    """The old shard that each item belongs to; None when known items stand in another order."""
    places = {
        key: (shard, at)
        for shard, sources in enumerate(cache.shards)
        for at, key in enumerate(sources.keys)
    }
    homes: list[int] = []
    last = (0, -1)
    for item in items:
        place = places.get(item.key)
        if place is not None:
            if place <= last:
                return None
            last = place
        homes.append(last[0])
    return homes


def _cuts_of(plan: BuildPlan, first: int, end: int) -> list[tuple[int, int]]:
    """One shard for a run of items, or several where it has grown."""
    sizes = plan.record_bytes[first:end]
    if sizes.sum() <= _GROWTH_MAX * plan.shard_bytes:
        return [(first, end)]
    return [(first + a, first + b) for a, b in cut_items(sizes, plan.shard_bytes)]


def _new_names(cache: UpdateCache) -> Iterator[str]:
    """File names that no shard of the old store has, one after the other."""
    used = [s.report.shard.file for s in cache.shards if s.report.shard is not None]
    yield from map(shard_name, count(max(map(shard_number, used), default=-1) + 1))


class _Comparison:
    """Holds items against what their shards were made of, and counts what differs."""

    def __init__(self, plan: BuildPlan, cache: UpdateCache, *, rehashes: bool) -> None:
        self._items = plan.scan.items
        self._root = os.fsencode(os.path.abspath(plan.scan.root))
        self._bytes_max = picture_bytes_max(plan.recipe.pixels_max)
        self._rehashes = rehashes
        self._known = {key for sources in cache.shards for key in sources.keys}
        self.known_count = 0
        self.added_count = 0
        self.changed_count = 0
        self.touched_count = 0

    def are_same(self, first: int, end: int, sources: ShardSources) -> bool:
        """Whether a run of items is what a shard was made of."""
        places = {key: at for at, key in enumerate(sources.keys)}
        is_same = end - first == len(sources.keys)
        for item in self._items[first:end]:
            at = places.get(item.key)
            if at is None:
                self.added_count += 1
                is_same = False
                continue
            self.known_count += 1
            if not self._is_same(item, sources, at):
                self.changed_count += 1
                is_same = False
        return is_same

    def _is_same(self, item: RawItem, sources: ShardSources, at: int) -> bool:
        part = slice(at * DIGEST_BYTES, (at + 1) * DIGEST_BYTES)
        if _facts_of(item) != sources.facts[part] or _size_of(item) != sources.sizes[at]:
            return False
        is_touched = _time_of(item) != sources.times[at]
        self.touched_count += is_touched
        if not is_touched and not self._rehashes:
            return True
        content = sources.report.contents[part]
        if content == _NOT_READ or item.member is not None:
            # Nothing to compare with. Of an archive only the whole could be read.
            return not is_touched
        return content_digest(read_files(self._root, item, self._bytes_max)) == content


def _facts_of(item: RawItem) -> bytes:
    place = (item.member.container, item.member.position, item.member.name) if item.member else ()
    facts = msgspec.msgpack.encode((item.key, item.values, item.annotations, place))
    return hashlib.sha256(facts).digest()[:DIGEST_BYTES]


def _looked_at(item: RawItem) -> Iterable[RawFile]:
    """The files whose size and time say whether an item changed; of an archive, the archive."""
    if item.member is None:
        return files_of(item)
    return (image_file(item), *item.masks.values())


def _size_of(item: RawItem) -> int:
    return sum(file.byte_count for file in _looked_at(item))


def _time_of(item: RawItem) -> int:
    """When an item's files were last changed; one number, which is another if any of them is."""
    times = [file.mtime_ns for file in _looked_at(item)]
    if len(times) == 1:
        return times[0]
    digest = hashlib.sha256(msgspec.msgpack.encode(times)).digest()
    return int.from_bytes(digest[:7], "little")
