"""make_loader: a DataLoader that fills its batches ahead, with settings for this machine."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

import torch
from torch.utils.data import Dataset, Sampler

from readers.arguments import check_arguments
from readers.engines.worker_start import check_start_method
from readers.loader.arguments import RULES, Settings
from readers.loader.contents import Contents
from readers.loader.engine_choice import EngineName, choose_engine, make_engine
from readers.loader.loader import Engine, Loader
from readers.loader.served import inner
from readers.loader.stock_arguments import (
    Machine,
    StockArguments,
    check_known,
    machine_of,
    without_train,
)
from readers.loader.tuned import tuned_for
from readers.machine import PREFETCH_FACTOR, loader_worker_count
from readers.ops.operations import ImageOp
from readers.orders.order_sampler import SEED_END, OrderSampler, Remainder
from readers.orders.samplers import SequentialSampler, ShuffleSampler
from readers.reading.collate import collate
from readers.stats import LoaderStats

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from readers.loader.loader import BatchT

_log = logging.getLogger("readers.loader")


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
    def tuned(
        cls,
        workers: int | None = None,
        pin_memory: bool | None = None,
        prefetch_factor: int | None = None,
    ) -> LoaderConfig:
        """The settings for this machine and job; see `loader_worker_count`.

        Args:
            workers: As asked for. None chooses.
            pin_memory: As asked for, where there is a GPU. None: wherever there is one.
            prefetch_factor: As asked for, where there are workers. None is 2.

        Raises:
            ValueError: `workers` is negative.
        """
        if workers is None:
            workers = loader_worker_count()
        elif workers < 0:
            raise ValueError(f"workers must be at least 0; got {workers!r}")
        return cls(
            workers=workers,
            prefetch_factor=(prefetch_factor or PREFETCH_FACTOR) if workers else None,
            pin_memory=pin_memory is not False and torch.cuda.is_available(),
            persistent_workers=workers > 0,
        )


@dataclass(frozen=True, kw_only=True)
class EngineMaker:
    """Makes a loader's engine: once, and again when what it is to fill batches from was changed.

    Attributes:
        engine: As asked for.
        config: Settings of the machine.
        stats: Told where the time goes.
        batch_size: Samples of a batch, when they are all of one size.
        batch_count: Batches of an epoch.
        start_method: How processes start.
    """

    engine: EngineName
    config: LoaderConfig
    stats: LoaderStats
    batch_size: int | None
    batch_count: int
    start_method: str | None

    def __call__(self, contents: Contents) -> tuple[Engine, str]:
        """The engine, and why it is of its kind.

        Raises:
            ValueError: The operations cannot be carried out.
        """
        filler, dataset = contents.filler_and_dataset()
        chosen, why = choose_engine(self.engine, dataset, filler, contents.ops)
        self.stats.engine = chosen
        engine = make_engine(
            chosen,
            filler,
            dataset,
            workers=self.config.workers,
            prefetch_factor=self.config.prefetch_factor,
            is_pinned=self.config.pin_memory,
            stats=self.stats,
            batch_size=self.batch_size,
            batch_count=self.batch_count,
            seed=contents.seed,
            start_method=self.start_method,
        )
        return engine, why


# What a batch is to a type checker: a dict or tuple as the samples are, whose values are joined; or
# what a collate_fn makes of them. Of another's dataset whose samples are typed value by value that
# says too much: an int becomes a tensor. An overload for those would make all batches Any.
@overload
def make_loader(
    dataset: Dataset[BatchT],
    batch_size: int | None = None,
    *,
    train: bool,
    **settings: Unpack[Settings],
) -> Loader[BatchT]: ...
@overload
def make_loader(
    dataset: Dataset[Any],
    batch_size: int | None = None,
    *,
    train: bool,
    collate_fn: Callable[[Any], BatchT],
    **settings: Unpack[Settings],
) -> Loader[BatchT]: ...
@overload
def make_loader(
    dataset: Dataset[Any],
    batch_size: int | None = None,
    *,
    train: bool,
    pad: bool,
    collate_fn: Callable[[Any], Any] = collate,
    **settings: Unpack[Settings],
) -> Loader[Any]: ...
def make_loader(
    dataset: Dataset[Any],
    batch_size: int | None = None,
    *,
    train: bool | None = None,  # The overloads ask for it, and so does the text of its error.
    engine: EngineName = "auto",
    workers: int | None = None,
    seed: int = 0,
    rank: int | None = None,
    world_size: int | None = None,
    drop_last: bool | None = None,
    pad: bool = False,
    ops: Sequence[ImageOp] = (),
    sampler: Sampler[int] | None = None,
    batch_sampler: Iterable[Sequence[int]] | None = None,
    collate_fn: Callable[[Any], Any] = collate,
    start_method: str | None = None,
    tuned: str | os.PathLike[str] | None = None,
    **stock: Unpack[StockArguments],
) -> Loader[Any]:
    """A DataLoader over a dataset, with settings that fit this machine.

    Its first log line (logger `readers.loader`, level INFO) says how many batches of what size
    there are, which engine fills them, and why that one. A batch is the caller's to keep and to
    write to; but a child that is forked while one is held shares its memory with this process,
    where the memory is used again once the batch is let go of: clone it first.

    Several processes (ranks) share an epoch: in training all of them get equally many batches; in
    evaluation each sample comes exactly once over all ranks, which may differ by one batch. The
    samples of a step, over all ranks, are the same for any number of ranks that divides
    batch_size x world_size.

    Args:
        dataset: Of samples; usually an `LMDBDataset`.
        batch_size: Samples of a batch on this rank. Left out with a `batch_sampler`.
        train: Training shuffles, anew each epoch, and drops the last short batch. Evaluation does
            neither.
        engine: "thread" fills batches in threads of this process, "process" in processes of their
            own; "auto" takes threads where a batch is one native call.
        workers: How many of them; 0 fills batches in the loop itself. None fits the machine.
        seed: Of the order of samples, of `ops`, and of the workers' random numbers.
        rank: Number of this process among those that share an epoch. None asks torch.distributed
            when it is needed; without a process group it is the only one. Leave it out as well
            for accelerate.prepare, which cuts the loader over ranks itself.
        world_size: How many such processes there are.
        drop_last: Whether to drop the last short batch. None means `train`, unless `pad`. Without,
            ranks that lack a sample in training get one that has come before.
        pad: Whether to fill up the last batches, so that all ranks have equally many, all full:
            then each batch has a last field `valid`, (sample,) bool, false for what only fills up.
        ops: Operations on the images (`readers.ops`) of an `LMDBDataset`, or of a torch Subset or
            ConcatDataset of such. The result is written once, into the batch; boxes, points,
            outlines and masks follow. Their chances depend on seed, epoch and sample alone; and on
            the draw, in an order of `readers` that may draw a sample several times.
        sampler: Yields indices in place of the order that `train` says: one of `readers`, which
            has its own seed and ranks, or any other.
        batch_sampler: Yields the indices of each batch, in place of all of that.
        collate_fn: Joins samples, in place of ours.
        start_method: How processes start: "fork", "spawn", "forkserver". None: as the program has
            chosen by the first epoch; but workers of a process that was spawned are spawned too.
        tuned: File of the settings that `packer bench STORE -o FILE` found best: engine, workers
            and prefetch_factor, where these are not given. Batches stay the same. Where machine or
            job are others than then, a warning is logged.
        **stock: In torch's words: `num_workers` is `workers`; `prefetch_factor` and `pin_memory`
            are torch's (by themselves 2, and wherever there is a GPU); `shuffle` may repeat what
            `train` says, and `persistent_workers` that they are.

    Raises:
        TypeError: An argument is of another kind, such as the path of a store for a dataset.
        ValueError: There is no batch to load, an argument is out of its range, or `tuned` is of
            another store.
        OSError: `tuned` cannot be read.
    """
    given = {name: value for name, value in locals().items() if name != "stock"}
    check_known(stock, given)
    if train is None:
        raise TypeError(without_train(stock.get("shuffle")))
    check_arguments("make_loader", RULES, {**given, **stock})
    check_start_method(start_method)
    if not 0 <= seed < SEED_END:
        raise ValueError(f"seed must be in [0, {SEED_END}); got {seed!r}")
    # torch takes no whole numbers but Python's.
    batch_size, seed = None if batch_size is None else int(batch_size), int(seed)
    dataset = inner(dataset)
    has_order = sampler is not None or batch_sampler is not None
    machine = machine_of(stock, workers=workers, train=train, has_order=has_order)
    if batch_sampler is not None:
        _check_alone(batch_size, sampler, drop_last, pad, rank, world_size)
        drop_last = False
    else:
        if batch_size is None or batch_size < 1:
            raise ValueError(f"batch_size must be at least 1; got {batch_size!r}")
        if pad and drop_last:
            raise ValueError("pad fills the last batch up, and drop_last drops it; take one")
        drop_last = (train and not pad) if drop_last is None else drop_last
        if sampler is None:
            sampler = _order(dataset, train, drop_last, seed, rank, world_size)
        else:
            _check_sampler(dataset, sampler, pad, rank, world_size)
    if tuned is not None:
        engine, machine = _tuned(tuned, dataset, engine, machine, has_ops=bool(ops))
    config = LoaderConfig.tuned(*machine)
    contents = Contents(dataset=dataset, ops=tuple(ops), seed=seed, collate_fn=collate_fn, pad=pad)
    stats = LoaderStats("process", config.workers)
    batch_count, rest = _batch_count(dataset, batch_size, drop_last, pad, sampler, batch_sampler)
    maker = EngineMaker(
        engine=engine,
        config=config,
        stats=stats,
        batch_size=batch_size,
        batch_count=batch_count,
        start_method=start_method,
    )
    made, why = maker(contents)
    loader = Loader(
        dataset,
        batch_size,
        sampler=sampler,
        batch_sampler=batch_sampler,
        drop_last=drop_last,
        pad=pad,
        config=config,
        contents=contents,
        engine=made,
        maker=maker,
        totals=stats,
    )
    _log.log(
        logging.INFO if batch_count else logging.WARNING,
        "%s ready: %d batches of %s%s; %d %s%s (%s)",
        "training" if train else "evaluation",
        batch_count,
        batch_size or "the batch sampler's sizes",
        rest,
        config.workers,
        "loader threads" if stats.engine == "thread" else "loader workers",
        ", pinned memory" if config.pin_memory else "",
        why,
    )
    return loader


def _tuned(
    path: str | os.PathLike[str],
    dataset: Dataset[Any],
    engine: EngineName,
    machine: Machine,
    *,
    has_ops: bool,
) -> tuple[EngineName, Machine]:
    """Engine and settings with those of a file in place of what is not asked for."""
    best = tuned_for(path, dataset, has_ops=has_ops)
    workers, pin_memory, prefetch_factor = machine
    return (
        best.engine if engine == "auto" else engine,
        Machine(
            best.workers if workers is None else workers,
            pin_memory,
            prefetch_factor or best.prefetch_factor,
        ),
    )


def _check_alone(
    batch_size: int | None,
    sampler: object,
    drop_last: bool | None,
    pad: bool,
    rank: int | None,
    world_size: int | None,
) -> None:
    """A batch_sampler says all of this itself; what is given beside it would not hold."""
    given = {
        "batch_size": batch_size is not None,
        "sampler": sampler is not None,
        "drop_last": drop_last is not None,
        "pad": pad,
        "rank": rank is not None,
        "world_size": world_size is not None,
    }
    names = [name for name, is_given in given.items() if is_given]
    if names:
        raise ValueError(
            "a batch_sampler takes the place of batch_size and sampler, and says itself what "
            f"becomes of short batches and ranks; got {' and '.join(names)} beside it"
        )


def _order(
    dataset: Dataset[Any],
    train: bool,
    drop_last: bool,
    seed: int,
    rank: int | None,
    world_size: int | None,
) -> OrderSampler:
    """The order that training or evaluation has unless another is asked for."""
    size = len(dataset)  # type: ignore[arg-type]
    remainder: Remainder = "drop" if drop_last else "pad" if train else "keep"
    kind = ShuffleSampler if train else SequentialSampler
    return kind(size, seed=seed, rank=rank, world_size=world_size, remainder=remainder)


def _check_sampler(
    dataset: Dataset[Any],
    sampler: Sampler[int],
    pad: bool,
    rank: int | None,
    world_size: int | None,
) -> None:
    """A sampler cuts an epoch over ranks itself, and is of this dataset."""
    if rank is not None or world_size is not None:
        raise ValueError("rank and world_size go to the sampler, which cuts its order over ranks")
    if isinstance(sampler, OrderSampler):
        size = len(dataset)  # type: ignore[arg-type]
        if sampler.size != size:
            raise ValueError(
                f"the sampler is of {sampler.size} samples, and the dataset has {size}: "
                f"{sampler!r}; {dataset!r}. Make the sampler of this dataset"
            )
        if pad and sampler.remainder == "drop":
            raise ValueError("pad fills the last batch up, and remainder='drop' drops it; take one")
    elif pad:
        raise ValueError(
            f"pad needs to know the order: a sampler of readers; got {type(sampler).__name__}"
        )


def _batch_count(
    dataset: Dataset[Any],
    batch_size: int | None,
    drop_last: bool,
    pad: bool,
    sampler: Sampler[int] | None,
    batch_sampler: Iterable[Sequence[int]] | None,
) -> tuple[int, str]:
    """Batches of an epoch, and what becomes of the samples that make no whole one."""
    if batch_sampler is not None:
        return len(batch_sampler), ""  # type: ignore[arg-type]
    assert sampler is not None
    assert batch_size is not None
    all_count = sampler.count if isinstance(sampler, OrderSampler) else len(sampler)  # type: ignore[arg-type]
    if all_count == 0:
        raise ValueError(f"{dataset!r}: there is no sample to load")
    count, where = len(sampler), ""  # type: ignore[arg-type]
    if isinstance(sampler, OrderSampler) and sampler.num_replicas > 1:
        where = f" on rank {sampler.rank} of {sampler.num_replicas}"
    short = count % batch_size
    if pad:
        return -(-count // batch_size), where
    if not drop_last:
        return -(-count // batch_size), where + (f", the last of {short}" if short else "")
    if count < batch_size:
        raise ValueError(
            f"{dataset!r}: {count} samples{where} are fewer than one batch of {batch_size}, and "
            "the last short batch is dropped, so there would be no batch. Lower batch_size, or "
            "pass drop_last=False."
        )
    dropped = f", the last {short} samples of an epoch dropped" if short else ""
    return count // batch_size, where + dropped
