"""A DataLoader that fills its batches ahead, in kept memory, with settings for this machine."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset, Sampler

from readers.collate import collate
from readers.dataset import LMDBDataset
from readers.filling import ImageOps, MapFiller, StoreFiller
from readers.machine import loader_worker_count
from readers.ops import ImageOp
from readers.process_engine import ProcessEngine
from readers.samplers import batches_of, epoch_order
from readers.stats import LoaderStats
from readers.store.schema import Schema, field_bytes
from readers.thread_engine import DirectEngine, ThreadEngine

_log = logging.getLogger(__name__)

EngineName = Literal["auto", "thread", "process"]

_GROUP_BYTES = 12 * 2**20
"""Batches are filled together up to this size: past it a call's own cost no longer shows, and the
buffers no longer fit the cache (best of 3 to 50 MiB for 512 images of 3 KB)."""

_GROUP_COUNT_MAX = 32

_COPIED_BYTES_LEAST = 2**16
"""From this size on, copying a sample's fixed fields takes longer than the Python for a few small
ones beside them (640 x 640 images with boxes: threads 7,200 a second, processes 4,200)."""

_END = object()


class Engine(Protocol):
    """Makes batches ahead of the loop that takes them."""

    def batches(self, parts: Iterable[NDArray[np.int64]], epoch: int) -> Iterator[Any]:
        """The batches of an epoch, in order."""

    def close(self) -> None:
        """End threads and processes. The next run starts new ones."""


@dataclass(frozen=True, kw_only=True)
class LoaderConfig:
    """Settings of a loader that depend on the machine.

    Attributes:
        workers: Threads or processes that fill batches; 0 fills them in the loop itself.
        prefetch_factor: Batches that each of them is ahead. None without workers.
        pin_memory: Whether batches lie in pinned memory, for the way to a GPU.
        persistent_workers: Whether they live on between epochs.
    """

    workers: int
    prefetch_factor: int | None
    pin_memory: bool
    persistent_workers: bool

    @classmethod
    def tuned(cls, workers: int | None = None) -> LoaderConfig:
        """The settings for this machine and job; see `loader_worker_count`.

        Args:
            workers: As asked for. None chooses.

        Raises:
            ValueError: `workers` is negative.
        """
        if workers is None:
            workers = loader_worker_count()
        elif workers < 0:
            raise ValueError(f"workers must be at least 0; got {workers!r}")
        return cls(
            workers=workers,
            prefetch_factor=2 if workers else None,
            pin_memory=torch.cuda.is_available(),
            persistent_workers=workers > 0,
        )


class Loader(DataLoader[Any]):
    """What `make_loader` returns: a torch DataLoader whose batches come from an engine of ours.

    Each iteration is one epoch, and the next one has the next number. The order of samples is a
    function of seed and epoch alone.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        batch_size: int | None,
        *,
        shuffles: bool,
        drop_last: bool,
        seed: int,
        config: LoaderConfig,
        engine: Engine,
        stats: LoaderStats,
        sampler: Sampler[int] | None,
        batch_sampler: Iterable[Sequence[int]] | None,
    ) -> None:
        settings: dict[str, Any] = {"batch_size": batch_size, "drop_last": drop_last}
        if batch_sampler is not None:
            settings = {"batch_sampler": batch_sampler}
        elif sampler is not None:
            settings["sampler"] = sampler
        else:
            settings["shuffle"] = shuffles
        super().__init__(
            dataset,
            num_workers=config.workers,
            prefetch_factor=config.prefetch_factor,
            persistent_workers=config.persistent_workers,
            pin_memory=config.pin_memory,
            collate_fn=collate,
            generator=torch.Generator().manual_seed(seed),
            **settings,
        )
        self._orders_itself = sampler is None and batch_sampler is None
        self._shuffles = shuffles
        self._seed = seed
        self._epoch = 0
        self._stats = stats
        self.engine = engine

    def set_epoch(self, epoch: int) -> None:
        """Have the next iteration be the epoch of this number. Without it, they count up."""
        if epoch < 0:
            raise ValueError(f"epoch must be at least 0; got {epoch!r}")
        self._epoch = epoch

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        epoch = self._epoch
        self._epoch += 1
        return self._timed(self.engine.batches(self._parts(epoch), epoch))

    def _parts(self, epoch: int) -> Iterator[NDArray[np.int64]]:
        """The indices of each batch."""
        if self._orders_itself:
            order = epoch_order(
                len(self.dataset),  # type: ignore[arg-type]
                shuffles=self._shuffles,
                seed=self._seed,
                epoch=epoch,
            )
            return batches_of(order, self.batch_size or 1, drop_last=self.drop_last)
        assert self.batch_sampler is not None
        return (self._checked(np.asarray(indices, np.int64)) for indices in self.batch_sampler)

    def _checked(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """What a sampler says, as indices in [0, len) of a store: it is not looked at again."""
        if not isinstance(self.dataset, LMDBDataset):
            return indices
        count = len(self.dataset)
        wrong = (indices < -count) | (indices >= count)
        if wrong.any():
            raise IndexError(
                f"the sampler yields {indices[wrong.argmax()]} for {self.dataset!r}, "
                f"expected [0, {count})"
            )
        return np.where(indices < 0, indices + count, indices)

    def _timed(self, batches: Iterator[Any]) -> Iterator[Any]:
        """The same batches, with the time on both sides of each taken down."""
        stats = self._stats
        while True:
            asked = time.perf_counter()
            batch = next(batches, _END)
            if batch is _END:  # None may be a batch, to a collate_fn that drops samples.
                return
            given = time.perf_counter()
            stats.waiting_s += given - asked
            stats.batch_count += 1
            sample_count, byte_count = _measure(batch)
            stats.sample_count += sample_count
            stats.byte_count += byte_count
            yield batch
            del batch  # Its memory is free as soon as the loop lets go of it.
            stats.consuming_s += time.perf_counter() - given

    def stats(self) -> dict[str, Any]:
        """Where time went since the loader was made; see `LoaderStats`."""
        return self._stats.as_dict()

    def __str__(self) -> str:
        facts = self._stats.as_dict()
        return (
            f"{facts['sample_count']:,} samples in {facts['batch_count']:,} batches by the "
            f"{facts['engine']} engine: {facts['samples_per_s']:,.0f} samples/s, "
            f"{facts['bytes_per_s'] / 1e9:.2f} GB/s, {facts['queue_depth']:.1f} batches ready; "
            f"{facts['verdict']}"
        )

    def close(self) -> None:
        """End threads and processes. Batches stay valid; the next iteration starts new ones."""
        self.engine.close()


def _measure(batch: Any) -> tuple[int, int]:
    """Samples of a batch, and bytes of the tensors that stand in it directly."""
    values = batch.values() if isinstance(batch, dict) else batch
    if isinstance(values, torch.Tensor):
        return (len(values) if values.ndim else 1), values.nbytes
    byte_count, sample_count = 0, 0
    if isinstance(values, Iterator):  # Looking at it would use it up.
        return sample_count, byte_count
    try:
        for value in values:
            sample_count = max(sample_count, len(value))
            byte_count += value.nbytes if isinstance(value, torch.Tensor) else 0
    except TypeError:  # A batch of the user's own making.
        pass
    return sample_count, byte_count


def make_loader(
    dataset: Dataset[Any],
    batch_size: int | None = None,
    *,
    train: bool,
    engine: EngineName = "auto",
    workers: int | None = None,
    seed: int = 0,
    drop_last: bool | None = None,
    ops: Sequence[ImageOp] = (),
    sampler: Sampler[int] | None = None,
    batch_sampler: Iterable[Sequence[int]] | None = None,
    collate_fn: Callable[[Any], Any] = collate,
    start_method: str | None = None,
) -> Loader:
    """A DataLoader over a dataset, with settings that fit this machine.

    Its first log line (logger `readers.loader`, level INFO) says how many batches of what size
    there are, which engine fills them, and why that one. A batch is the caller's to keep and to
    write to; but a child that is forked while one is held shares its memory with this process,
    where the memory is used again once the batch is let go of: clone it first.

    Args:
        dataset: Of samples; usually an `LMDBDataset`.
        batch_size: Samples of a batch. Left out with a `batch_sampler`.
        train: Training shuffles, anew each epoch, and drops the last short batch. Evaluation does
            neither.
        engine: "thread" fills batches in threads of this process, "process" in processes of their
            own; "auto" takes threads where a batch is one native call.
        workers: How many of them; 0 fills batches in the loop itself. None fits the machine.
        seed: Of the order of samples, of `ops`, and of the workers' random numbers.
        drop_last: Whether to drop the last short batch. None means `train`.
        ops: Operations on the dataset's images (`readers.ops`), of which the result is written
            once, into the batch. Their chances depend on seed, epoch and sample alone.
        sampler: Yields indices in place of the order that `train` says.
        batch_sampler: Yields the indices of each batch, in place of all of that.
        collate_fn: Joins samples, in place of ours.
        start_method: How processes start: "fork", "spawn", "forkserver". None: the platform's.

    Raises:
        ValueError: There is no batch to load, or an argument is out of its range.
    """
    drop_last = train if drop_last is None else drop_last
    batch_count, rest = _batch_count(dataset, batch_size, drop_last, sampler, batch_sampler)
    config = LoaderConfig.tuned(workers)
    filler: StoreFiller | MapFiller
    if isinstance(dataset, LMDBDataset) and not dataset.has_transform and collate_fn is collate:
        filler = StoreFiller(dataset.view, _image_ops(dataset, ops, seed))
    elif ops:
        raise ValueError(
            "ops work on an LMDBDataset without a transform and with our collate; "
            f"got {type(dataset).__name__}. Put them into the transform, or leave it out"
        )
    else:
        filler = MapFiller(dataset, collate_fn)
    chosen, why = _choose_engine(engine, dataset, filler, ops)
    stats = LoaderStats(chosen, config.workers)
    loader = Loader(
        dataset,
        batch_size,
        shuffles=train,
        drop_last=drop_last,
        seed=seed,
        config=config,
        engine=_make_engine(
            chosen, filler, config, stats, dataset, batch_size, batch_count, seed, start_method
        ),
        stats=stats,
        sampler=sampler,
        batch_sampler=batch_sampler,
    )
    _log.info(
        "%s ready: %d batches of %s%s; %d %s%s (%s)",
        "training" if train else "evaluation",
        batch_count,
        batch_size or "the batch sampler's sizes",
        rest,
        config.workers,
        "loader threads" if chosen == "thread" else "loader workers",
        ", pinned memory" if config.pin_memory else "",
        why,
    )
    return loader


def _batch_count(
    dataset: Dataset[Any],
    batch_size: int | None,
    drop_last: bool,
    sampler: Sampler[int] | None,
    batch_sampler: Iterable[Sequence[int]] | None,
) -> tuple[int, str]:
    """Batches of an epoch, and what becomes of the samples that make no whole one."""
    if batch_sampler is not None:
        if batch_size is not None or sampler is not None:
            raise ValueError("a batch_sampler takes the place of batch_size and sampler")
        return len(batch_sampler), ""  # type: ignore[arg-type]
    if batch_size is None or batch_size < 1:
        raise ValueError(f"batch_size must be at least 1; got {batch_size!r}")
    count = len(dataset) if sampler is None else len(sampler)  # type: ignore[arg-type]
    if count == 0:
        raise ValueError(f"{dataset!r}: there is no sample to load")
    short = count % batch_size
    if not drop_last:
        return -(-count // batch_size), f", the last of {short}" if short else ""
    if count < batch_size:
        raise ValueError(
            f"{dataset!r}: {count} samples are fewer than one batch of {batch_size}, and the last "
            "short batch is dropped, so there would be no batch. Lower batch_size, or pass "
            "drop_last=False."
        )
    dropped = f", the last {short} samples of an epoch dropped" if short else ""
    return count // batch_size, dropped


def _image_ops(dataset: LMDBDataset, ops: Sequence[ImageOp], seed: int) -> ImageOps | None:
    """The operations, worked out for the dataset's images."""
    if not ops:
        return None
    from readers.image_plan import compile_ops  # Loads OpenCV.

    view = dataset.view
    images = [f for f in dataset.schema.fields if f.kind == "image" and f.name in view.fields]
    if len(images) != 1:
        names = [field.name for field in images]
        raise ValueError(f"ops need one image among the fields; got {names!r}. Choose with fields=")
    field = images[0]
    if field.dtype is None or field.shape[2] is None:
        raise ValueError(
            f"ops need images of one kind, and each sample of {field.name!r} has its own channels "
            "and element type. Build the store with --mode rgb"
        )
    if view.image_as == "pil":
        raise ValueError("ops make tensors; take image_as='tensor' or 'numpy'")
    return ImageOps(field.name, compile_ops(ops, field.shape[2], field.dtype), seed)


def _choose_engine(
    engine: EngineName,
    dataset: Dataset[Any],
    filler: StoreFiller | MapFiller,
    ops: Sequence[ImageOp],
) -> tuple[Literal["thread", "process"], str]:
    """The engine, and why that one."""
    if engine not in get_args(EngineName):
        raise ValueError(f"engine must be one of {', '.join(get_args(EngineName))}; got {engine!r}")
    if engine == "thread" or engine == "process":  # mypy narrows by ==.
        return engine, "as asked for"
    if isinstance(filler, MapFiller) or not isinstance(dataset, LMDBDataset):
        return "process", "samples go through Python one by one"
    if ops:
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


def _make_engine(
    name: Literal["thread", "process"],
    filler: StoreFiller | MapFiller,
    config: LoaderConfig,
    stats: LoaderStats,
    dataset: Dataset[Any],
    batch_size: int | None,
    batch_count: int,
    seed: int,
    start_method: str | None,
) -> Engine:
    if config.workers == 0:
        return DirectEngine(filler, stats=stats)
    depth = config.workers * (config.prefetch_factor or 1)
    if name == "process":
        return ProcessEngine(
            filler,
            config.workers,
            depth,
            stats=stats,
            seed=seed,
            start_method=start_method,
            is_pinned=config.pin_memory,
        )
    group_count = 1
    if isinstance(dataset, LMDBDataset) and batch_size is not None:
        batch_bytes = batch_size * _fixed_bytes(dataset.schema, dataset.view.fields)
        fitting = _GROUP_BYTES // max(1, batch_bytes)
        # Each thread gets several groups in an epoch, so that none ends it alone.
        shared = batch_count // (4 * config.workers)
        group_count = max(1, min(_GROUP_COUNT_MAX, fitting, shared))
    return ThreadEngine(
        filler,
        config.workers,
        config.workers + 1,
        stats=stats,
        group_count=group_count,
        is_pinned=config.pin_memory,
    )


def _fixed_bytes(schema: Schema, names: Iterable[str]) -> int:
    """Bytes of the fields of fixed size of one sample."""
    fields = (schema[name] for name in names)
    return sum(field_bytes(field) for field in fields if field.is_fixed)
