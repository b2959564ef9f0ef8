"""Which engine fills a loader's batches, and how it is set up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

from torch.utils.data import Dataset

from readers.dataset import LMDBDataset
from readers.engines.processes import ProcessEngine
from readers.engines.threads import DirectEngine, ThreadEngine
from readers.loader.loader import Engine
from readers.machine import batches_ahead
from readers.ops.operations import ImageOp
from readers.reading.even_sizes import likely_bytes, likely_shape
from readers.reading.filling import MapFiller, StoreFiller
from readers.reading.joined import JoinedFiller
from readers.stats import LoaderStats
from readers.store.schema import Field, field_bytes

EngineName = Literal["auto", "thread", "process"]

_GROUP_BYTES = 12 * 2**20
"""Batches are filled together up to this size: past it a call's own cost no longer shows, and the
buffers no longer fit the cache (best of 3 to 50 MiB for 512 images of 3 KB)."""

_GROUP_COUNT_MAX = 32

_DIRECT_GROUP_BYTES = 2**20
"""The same of a loop without workers, which fills them itself, and waits for all of a group."""

_COPIED_BYTES_LEAST = 2**16
"""From this size on, copying a sample's fixed fields takes longer than the Python for a few small
ones beside them (640 x 640 images with boxes: threads 7,200 a second, processes 4,200)."""


def choose_engine(
    engine: EngineName,
    dataset: Dataset[Any],
    filler: StoreFiller | JoinedFiller | MapFiller,
    ops: Sequence[ImageOp],
) -> tuple[Literal["thread", "process"], str]:
    """The engine, and why that one."""
    if engine not in get_args(EngineName):
        raise ValueError(f"engine must be one of {', '.join(get_args(EngineName))}; got {engine!r}")
    if engine == "thread" or engine == "process":  # mypy narrows by ==.
        return engine, "as asked for"
    if isinstance(filler, MapFiller):
        return "process", "samples go through Python one by one"
    if ops or not isinstance(dataset, LMDBDataset):
        return "process", "operations on images, one by one"
    schema, names = dataset.schema, dataset.view.fields
    sizes = _known_sizes(dataset)
    if len(sizes) == len(names):
        return "thread", "all fields have a fixed size, so a batch is one copy"
    ragged = [schema[name] for name in names if name not in sizes]
    is_small = all(field.kind != "image" for field in ragged)
    if is_small and sum(sizes.values()) >= _COPIED_BYTES_LEAST:
        differing = ", ".join(field.name for field in ragged)
        return "thread", f"copying takes longer than {differing}, which differ in size"
    encoded = [field.name for field in ragged if _is_encoded(field)]
    if encoded:
        return "process", f"{', '.join(encoded)} are decoded, one by one"
    # An image of one size may still have no place that is known.
    store = dataset.view.store
    differing = ", ".join(f.name for f in ragged if likely_shape(store, f) is None)
    if not differing:
        return "process", "what lies behind the images of a record differs in size"
    return "process", f"{differing} differ in size between samples"


def _is_encoded(field: Field) -> bool:
    return field.kind in ("image", "mask") and not field.holds_elements


def _known_sizes(dataset: LMDBDataset) -> dict[str, int]:
    """Bytes of each field that has as many in all samples, as far as can be seen at once."""
    sizes = {}
    for name in dataset.view.fields:
        field = dataset.schema[name]
        found = field_bytes(field) if field.is_fixed else likely_bytes(dataset.view.store, field)
        if found is not None:
            sizes[name] = found
    return sizes


def make_engine(
    name: Literal["thread", "process"],
    filler: StoreFiller | JoinedFiller | MapFiller,
    dataset: Dataset[Any],
    *,
    workers: int,
    prefetch_factor: int | None,
    is_pinned: bool,
    stats: LoaderStats,
    batch_size: int | None,
    batch_count: int,
    seed: int,
    start_method: str | None,
) -> Engine:
    """An engine of this name; without workers, the loop fills its batches itself.

    Args:
        name: As chosen.
        filler: Makes batches.
        dataset: What they are made of.
        workers: Threads or processes.
        prefetch_factor: Batches that each of them is ahead.
        is_pinned: Whether batches lie in pinned memory.
        stats: Told where the time goes.
        batch_size: Samples of a batch, when they are all of one size.
        batch_count: Batches of an epoch.
        seed: Of the global random numbers of processes.
        start_method: How processes start.
    """
    if workers == 0:
        # Where batches are read ahead of need, the first of a group is not to wait for the last.
        together = 1
        if not filler.ahead_count:
            together = _group_count(filler, dataset, batch_size, _DIRECT_GROUP_BYTES)
        return DirectEngine(filler, stats=stats, group_count=together)
    if name == "process":
        return ProcessEngine(
            filler,
            workers,
            batches_ahead(workers, prefetch_factor or 1),
            stats=stats,
            seed=seed,
            start_method=start_method,
            is_pinned=is_pinned,
        )
    group_count = _group_count(filler, dataset, batch_size, _GROUP_BYTES)
    # Each thread gets several groups in an epoch, so that none ends it alone.
    group_count = max(1, min(group_count, batch_count // (4 * workers)))
    return ThreadEngine(
        filler, workers, workers + 1, stats=stats, group_count=group_count, is_pinned=is_pinned
    )


def _group_count(
    filler: StoreFiller | JoinedFiller | MapFiller,
    dataset: Dataset[Any],
    batch_size: int | None,
    byte_count_max: int,
) -> int:
    """How many batches are filled by one call: as many as have so many bytes, at least one."""
    if not isinstance(dataset, LMDBDataset) or not isinstance(filler, StoreFiller):
        return 1
    if batch_size is None or filler.has_ops:
        return 1
    sizes = _known_sizes(dataset)
    # Images of no fixed size, like operations, take long enough to be filled batch by batch.
    has_pictures = any(
        dataset.schema[name].kind in ("image", "mask") and name not in sizes
        for name in dataset.view.fields
    )
    if has_pictures:
        return 1
    batch_bytes = batch_size * sum(sizes.values())
    return max(1, min(_GROUP_COUNT_MAX, byte_count_max // max(1, batch_bytes)))
