"""Chosen samples of a store become a store of their own, without decoding or encoding one."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from packer.counts import summed_counts
from packer.plan.cuts import cut_items, shard_bytes_limit
from packer.progress import counting
from packer.recipe import Recipe
from packer.stores.merge import check_apart, manifest_sha256
from packer.stores.repack import Part, RepackReport, repack
from packer.stores.rewrite import Rewriter
from packer.stores.selection import check_any_left, chosen_indices
from packer.workspace.folder import TaskReport
from readers.machine import core_count
from readers.store.manifest import FormatVersion, Manifest, SourceInfo
from readers.store.reader import StoreReader, open_store

SUBSET_FORMAT = "subset"
"""What the manifest of a subset has for the name of a source."""

_SHARD_BYTES_LEAST = 16 * 2**20
"""Copying takes less time than encoding does: shards have to be larger to be worth sharing out."""


def subset(
    path: str | Path,
    out: str | Path,
    *,
    splits: Iterable[str] = (),
    classes: Iterable[str] = (),
    keys: Iterable[str] | None = None,
    every: int = 1,
    limit: int | None = None,
    overwrite: bool = False,
    scratch: str | Path | None = None,
    workers: int | None = None,
    progress: bool | None = None,
    on_progress: Callable[[int], None] = lambda count: None,
) -> RepackReport:
    """Make a store of some samples of another, in their order there.

    A sample is taken when it fits all that is asked for. Of these, every nth is kept, and of
    those the first so many. Its record is copied as it is: objects of other classes stay on their
    image, and classes and splits keep their numbers, also where none of their samples is left.

    Args:
        path: The store.
        out: Where the new one is to be.
        splits: Take samples of these splits.
        classes: Take samples of these classes, or with an object of one of them.
        keys: Take samples of these keys. None takes any.
        every: Keep the first of each so many.
        limit: Keep no more than so many. None keeps all.
        overwrite: Replace a store at `out`, in one step once the new one is whole.
        scratch: Folder on a local disk to write shards in; see `packer.workspace.scratch`.
        workers: Threads. None takes the cores of this job.
        progress: Say on stderr how far the work is: a bar on a terminal or in a notebook, else a
            line every 30 s. None does so in a notebook alone.
        on_progress: Told how many more samples are done.

    Raises:
        ValueError: An argument is out of its range.
        SchemaMismatchError: The store has no such split or class.
        UnknownKeyError: No sample has one of the keys.
        BuildError: No sample is left, or the store cannot be written; see `packer.stores.repack`.
        StoreError: The store cannot be read.
    """
    for name, value in (("every", every), ("limit", limit), ("workers", workers)):
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1; got {value!r}")
    out = Path(os.path.abspath(out))
    store = open_store(path)
    check_apart(out, [store])
    wanted = {"splits": list(splits), "classes": list(classes)}
    indices = chosen_indices(store, wanted["splits"], wanted["classes"], keys)
    indices = indices[::every][:limit]
    check_any_left(store, indices, "a store")
    asked = _asked(wanted, keys is not None, every, limit)
    facts = {
        "format": SUBSET_FORMAT,
        "store": manifest_sha256(store),
        "samples": hashlib.sha256(indices.astype("<i8").tobytes()).hexdigest(),
    }
    rewriter = Rewriter(store.layout)
    parts = [Part(store=store, rewriter=rewriter, indices=part) for part in _cut(store, indices)]
    with counting(len(indices), on_progress, progress=progress) as told:
        return repack(
            out,
            parts,
            store.manifest.schema,
            facts,
            lambda reports: _manifest(store, asked, facts, reports),
            b"",
            overwrite=overwrite,
            scratch=scratch,
            thread_count=workers or core_count(),
            on_progress=told,
        )


def _cut(store: StoreReader, indices: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """The samples of each shard: cut as a build does it, so that many threads have work."""
    sizes = store.located(indices).lengths()
    said = store.manifest.recipe.get("shard_bytes_max")
    most = said if isinstance(said, int) and said > 0 else Recipe.shard_bytes_max
    limit = shard_bytes_limit(int(sizes.sum()), most, _SHARD_BYTES_LEAST)
    return [indices[first:end] for first, end in cut_items(sizes, limit)]


def _asked(wanted: dict[str, list[str]], has_keys: bool, every: int, limit: int | None) -> str:
    parts = [f"{what} {', '.join(names)}" for what, names in wanted.items() if names]
    parts += ["listed keys"] if has_keys else []
    parts += [f"one in {every:,}"] if every > 1 else []
    parts += [f"the first {limit:,}"] if limit is not None else []
    return "; ".join(parts) or "all"


# --- the account ----------------------------------------------------------------------------------


def _manifest(
    store: StoreReader, asked: str, facts: dict[str, Any], reports: list[TaskReport]
) -> Manifest:
    manifest = store.manifest
    shards = tuple(report.shard for report in reports if report.shard is not None)
    count = sum(shard.sample_count for shard in shards)
    labels, splits = (
        summed_counts(getattr(report, name) for report in reports)
        for name in ("label_counts", "split_counts")
    )
    statistics: dict[str, Any] = {}
    if "class_counts" in manifest.statistics:
        statistics["class_counts"] = [labels.get(n, 0) for n in range(len(manifest.classes))]
    if "image_size" in manifest.statistics:
        statistics["image_size"] = manifest.statistics["image_size"]
    lost = [name for name in manifest.statistics if name not in statistics]
    left_out = manifest.sample_count - count
    objects = sum(report.object_count for report in reports)
    return Manifest(
        format=FormatVersion(),
        schema=manifest.schema,
        classes=manifest.classes,
        splits={name: splits.get(at, 0) for at, name in enumerate(manifest.splits)},
        sample_count=count,
        shards=shards,
        recipe=manifest.recipe,
        source=SourceInfo(
            format=SUBSET_FORMAT,
            sha256=hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest(),
            found_count=manifest.sample_count,
            reject_count=0,
            ignored={"not chosen": left_out} if left_out else {},
            notes=(
                f"{count:,} of {manifest.sample_count:,} samples of {store.path.name}: {asked}",
                *([f"{', '.join(lost)} were of all its samples, and are left out"] if lost else []),
                *(f"{store.path.name}: {note}" for note in manifest.source.notes),
            ),
            annotations={"found": objects, "stored": objects, "rejected": 0} if objects else {},
            choices=manifest.source.choices,
        ),
        statistics=statistics,
        versions=manifest.versions,
    )
