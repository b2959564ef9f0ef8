"""Which engine fills a loader's batches, and how it is set up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, get_args

from torch.utils.data import Dataset

from readers.dataset import LMDBDataset
from readers.engines.processes import ProcessEngine
from readers.engines.threads import DirectEngine, ThreadEngine
from readers.loader.loader import Engine
from readers.machine import batches_ahead
from readers.ops.operations import ImageOp
from readers.reading.filling import MapFiller, StoreFiller
from readers.reading.joined import JoinedFiller
from readers.stats import LoaderStats
from readers.store.schema import Schema, field_bytes

EngineName = Literal["auto", "thread", "process"]

_GROUP_BYTES = 12 * 2**20
"""Batches are filled together up to this size: past it a call's own cost no longer shows, and the
buffers no longer fit the cache (best of 3 to 50 MiB for 512 images of 3 KB)."""

_GROUP_COUNT_MAX = 32

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
    schema = dataset.schema
    ragged = [schema[name] for name in dataset.view.fields if not schema[name].is_fixed]
    if not ragged:
        return "thread", "all fields have a fixed size, so a batch is one copy"
    names = ", ".join(field.name for field in ragged)
    is_small = all(field.kind != "image" for field in ragged)
    if is_small and _fixed_bytes(schema, dataset.view.fields) >= _COPIED_BYTES_LEAST:
        return "thread", f"copying takes longer than {names}, which differ in size"
    return "process", f"{names} differ in size between samples"


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
        return DirectEngine(filler, stats=stats)
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
    group_count = 1
    if isinstance(dataset, LMDBDataset) and batch_size is not None:
        batch_bytes = batch_size * _fixed_bytes(dataset.schema, dataset.view.fields)
        # Images of no fixed size, or with operations, take long enough to be filled batch by batch.
        has_pictures = any(
            dataset.schema[name].kind in ("image", "mask") and not dataset.schema[name].is_fixed
            for name in dataset.view.fields
        )
        has_ops = isinstance(filler, StoreFiller) and filler.has_ops
        fitting = 1 if has_pictures or has_ops else _GROUP_BYTES // max(1, batch_bytes)
        # Each thread gets several groups in an epoch, so that none ends it alone.
        shared = batch_count // (4 * workers)
        group_count = max(1, min(_GROUP_COUNT_MAX, fitting, shared))
    return ThreadEngine(
        filler, workers, workers + 1, stats=stats, group_count=group_count, is_pinned=is_pinned
    )


def _fixed_bytes(schema: Schema, names: Iterable[str]) -> int:
    """Bytes of the fields of fixed size of one sample."""
    fields = (schema[name] for name in names)
    return sum(field_bytes(field) for field in fields if field.is_fixed)
