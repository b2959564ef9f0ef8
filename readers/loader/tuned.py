"""Settings that `packer bench` found best for a store on a machine, in a file of their own.

`make_loader(tuned=FILE)` takes them. Which samples a batch has never depends on them: they say who
fills batches, and how far ahead.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any, Literal

import msgspec
from torch.utils.data import ConcatDataset, Dataset, Subset

from readers.dataset import LMDBDataset
from readers.machine import core_count, local_rank_count, nvidia_driver, physical_core_count
from readers.store.manifest import write_synced

_log = logging.getLogger("readers.loader")


class MachineFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What of a machine and job the best settings depend on.

    Attributes:
        core_count: Cores' worth of time that the job may use.
        physical_core_count: The same, threads of one core counted once.
        local_rank_count: Training processes of the job on this machine.
        nvidia_driver: Version of the NVIDIA kernel driver, or None.
    """

    core_count: int
    physical_core_count: int
    local_rank_count: int
    nvidia_driver: str | None

    @classmethod
    def read(cls) -> MachineFacts:
        """Those of this machine and job."""
        return cls(
            core_count=core_count(),
            physical_core_count=physical_core_count(),
            local_rank_count=local_rank_count(),
            nvidia_driver=nvidia_driver(),
        )


class Tuned(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The best settings, and what they were found with.

    Attributes:
        store: Digest of the store, in hex, wherever it lies.
        store_path: Where it lay.
        machine: Where they were found.
        batch_size: With batches of how many samples.
        has_work: Whether operations or a transform worked on the samples.
        engine: "thread" or "process".
        workers: Threads or processes that fill batches; 0 fills them in the loop itself.
        prefetch_factor: Batches that each of them is ahead.
        images_per_s: What they gave.
        format: Of this file.
    """

    store: str
    store_path: str
    machine: MachineFacts
    batch_size: int
    has_work: bool
    engine: Literal["thread", "process"]
    workers: int
    prefetch_factor: int
    images_per_s: float
    format: Literal["lmdb-packer tuned 1"] = "lmdb-packer tuned 1"

    def __post_init__(self) -> None:
        if self.workers < 0 or self.prefetch_factor < 1:
            raise ValueError(
                f"workers {self.workers} and prefetch_factor {self.prefetch_factor}, expected at "
                "least 0 and 1"
            )

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file, which is there whole or not at all."""
        write_synced(Path(path), msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n")


def read_tuned(path: str | os.PathLike[str]) -> Tuned:
    """What a file of `packer bench -o` says.

    Raises:
        OSError: It cannot be read.
        ValueError: It is not such a file.
    """
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=Tuned)
    except msgspec.DecodeError as error:
        raise ValueError(
            f"{os.fspath(path)} is not a file of tuned settings: {error}. "
            "`packer bench STORE -o FILE` writes one"
        ) from error


def tuned_for(path: str | os.PathLike[str], dataset: Dataset[Any], *, has_ops: bool) -> Tuned:
    """The settings of a file, for a loader of this dataset.

    What may make others better here is logged as a warning.

    Args:
        path: Of the file.
        dataset: Of one store, or torch's Subset or ConcatDataset of such.
        has_ops: Whether the loader has operations on images.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is not one of tuned settings, or was made for another store.
    """
    tuned = read_tuned(path)
    stores = _stores(dataset)
    for store in stores or (None,):
        if store is None or store.view.identity.hex() != tuned.store:
            found = "a dataset of no store" if store is None else f"one of {store.view.path}"
            raise ValueError(
                f"{os.fspath(path)}: these settings were found for another store, "
                f"{tuned.store_path}; got {found}. Tune for this one: packer bench "
                f"{store.view.path if store else 'STORE'} -o FILE; or leave tuned= out"
            )
    has_work = has_ops or not all(store.is_plain for store in stores)
    different = _differences(tuned.machine, MachineFacts.read())
    if has_work != tuned.has_work:
        words = {True: "with operations on samples", False: "without operations on samples"}
        different.append(f"found {words[tuned.has_work]}, used {words[has_work]}")
    if different:
        _log.warning(
            "%s: these settings were found under other conditions, and may not be the best here: "
            "%s. Run packer bench here, or leave tuned= out.",
            os.fspath(path),
            "; ".join(different),
        )
    return tuned


def _stores(dataset: Any) -> list[LMDBDataset[Any]]:
    """The datasets of stores that all samples come from; none where some come from elsewhere."""
    if isinstance(dataset, LMDBDataset):
        return [dataset]
    if isinstance(dataset, Subset):
        return _stores(dataset.dataset)
    if isinstance(dataset, ConcatDataset):
        parts = [_stores(part) for part in dataset.datasets]
        return [store for part in parts for store in part] if all(parts) else []
    return []


def _differences(then: MachineFacts, now: MachineFacts) -> list[str]:
    names = then.__struct_fields__
    pairs = [(name, getattr(then, name), getattr(now, name)) for name in names]
    return [f"{name} {old} then, {new} now" for name, old, new in pairs if old != new]
