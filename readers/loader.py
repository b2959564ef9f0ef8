"""A DataLoader with settings that fit this machine."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, RandomSampler, Sampler

from readers.collate import collate
from readers.machine import local_rank_count, physical_core_count

_log = logging.getLogger(__name__)

_WORKER_COUNT_MAX = 16
_CORE_SHARE = 0.75


@dataclass(frozen=True, kw_only=True)
class LoaderConfig:
    """Settings of a DataLoader that depend on the machine.

    Attributes:
        workers: Loader workers; 0 loads in this process.
        prefetch_factor: Batches that each of them is ahead. None without workers.
        pin_memory: Whether batches are copied to pinned memory for the way to a GPU.
        persistent_workers: Whether they live on between epochs.
    """

    workers: int
    prefetch_factor: int | None
    pin_memory: bool
    persistent_workers: bool

    @classmethod
    def tuned(cls, workers: int | None = None) -> LoaderConfig:
        """The settings for this machine and job.

        Three quarters of the physical cores that this job may use, shared between its training
        processes here, at most 16: past that a loader waits for memory, not for cores.

        Args:
            workers: Loader workers, as asked for. None chooses.

        Raises:
            ValueError: `workers` is negative.
        """
        if workers is None:
            cores = physical_core_count() / local_rank_count()
            workers = max(0, min(_WORKER_COUNT_MAX, round(cores * _CORE_SHARE)))
        elif workers < 0:
            raise ValueError(f"workers must be at least 0; got {workers!r}")
        return cls(
            workers=workers,
            prefetch_factor=2 if workers else None,
            pin_memory=torch.cuda.is_available(),
            persistent_workers=workers > 0,
        )


def make_loader(
    dataset: Dataset[Any],
    batch_size: int,
    *,
    train: bool,
    workers: int | None = None,
    seed: int = 0,
    drop_last: bool | None = None,
    sampler: Sampler[int] | None = None,
) -> DataLoader[Any]:
    """A torch DataLoader over a dataset, with settings that fit this machine.

    Its first log line (logger `readers.loader`, level INFO) says how many batches of what size
    there are.

    Args:
        dataset: Of samples; usually an `LMDBDataset`.
        batch_size: Samples of a batch.
        train: Training shuffles, anew each epoch, and drops the last short batch. Evaluation does
            neither.
        workers: Loader workers; 0 loads in this process. None fits the machine.
        seed: Of the order of samples, and of the workers' random numbers.
        drop_last: Whether to drop the last short batch. None means `train`.
        sampler: Yields indices in place of the order that `train` says.

    Raises:
        ValueError: There is no batch to load, or an argument is out of its range.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1; got {batch_size!r}")
    drop_last = train if drop_last is None else drop_last
    count = len(dataset) if sampler is None else len(sampler)  # type: ignore[arg-type]
    if count == 0:
        raise ValueError(f"{dataset!r}: there is no sample to load")
    if drop_last and count < batch_size:
        raise ValueError(
            f"{dataset!r}: {count} samples are fewer than one batch of {batch_size}, and the last "
            "short batch is dropped, so there would be no batch. Lower batch_size, or pass "
            "drop_last=False."
        )
    config = LoaderConfig.tuned(workers)
    if sampler is None and train:
        # Its own generator: the loader draws from the one it is given as often as it starts
        # workers, and the order would come to depend on how many there are.
        sampler = RandomSampler(dataset, generator=torch.Generator().manual_seed(seed))  # type: ignore[arg-type]
    loader = DataLoader(
        dataset,
        batch_size,
        sampler=sampler,
        drop_last=drop_last,
        num_workers=config.workers,
        prefetch_factor=config.prefetch_factor,
        pin_memory=config.pin_memory,
        persistent_workers=config.persistent_workers,
        collate_fn=collate,
        worker_init_fn=_start_worker,
        generator=torch.Generator().manual_seed(seed),
    )
    short = count % batch_size
    if short and drop_last:
        rest = f", the last {short} samples of an epoch dropped"
    elif short:
        rest = f", the last of {short}"
    else:
        rest = ""
    _log.info(
        "%s ready: %d batches of %d%s; %d loader workers%s",
        "training" if train else "evaluation",
        len(loader),
        batch_size,
        rest,
        config.workers,
        ", pinned memory" if config.pin_memory else "",
    )
    return loader


def _start_worker(number: int) -> None:
    """The cores are shared out between workers already. torch has seen to its own threads."""
    import cv2

    cv2.setNumThreads(1)
