"""A torch DataLoader whose batches come from an engine, and which knows where it is."""

from __future__ import annotations

import copy
import os
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from multiprocessing.util import Finalize
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Sampler, Subset

from readers.dataset import LMDBDataset
from readers.loader.attributes import is_same_setting, settled, unknown_setting
from readers.loader.coming import say_order
from readers.loader.contents import Contents
from readers.loader.exposed import order_shown
from readers.loader.identity import identity_of_dataset
from readers.loader.served import MarkingCollate, all_in_range, inner, marked, served
from readers.nesting import parts_of
from readers.orders.batching import Batches, GivenBatches, OrderBatches
from readers.orders.place import Run
from readers.stats import LoaderStats

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from readers.loader.make import LoaderConfig

    BatchT = TypeVar("BatchT", default=Any)
else:
    from typing import TypeVar  # Which has no default before Python 3.13.

    BatchT = TypeVar("BatchT")

_END = object()

_BEFORE_CHILDREN = 10
"""What is at least 0 comes before multiprocessing ends and joins child processes."""


class Engine(Protocol):
    """Makes batches ahead of the loop that takes them."""

    def batches(
        self, parts: Iterable[NDArray[np.int64]], epoch: int, numbers: Iterator[int] | None = None
    ) -> Iterator[Any]:
        """The batches of an epoch, in order, with their numbers over all ranks."""

    def close(self) -> None:
        """End threads and processes. The next run starts new ones."""


class Loader(DataLoader[BatchT]):
    """What `make_loader` returns: a torch DataLoader whose batches come from an engine of ours.

    Each iteration is one epoch, and the next one has the next number. The order of samples is a
    function of seed and epoch alone.

    Frameworks build loaders of their own from its attributes: `dataset`, `batch_sampler`,
    `sampler` and `collate_fn` are such that these have the same batches, with operations, epochs
    and `valid`; see `readers.loader.exposed` and `readers.loader.served`.

    Args:
        dataset: Of samples.
        batch_size: Samples of a batch on this rank.
        shuffle: Not used: there is a sampler. Lightning passes False.
        sampler: Yields indices.
        batch_sampler: Or: yields the indices of each batch.
        drop_last: Whether the last short batch is dropped.
        pad: Whether the last batches are filled up, and all say which samples are `valid`.
        config: Settings of the machine.
        contents: What batches are made of.
        engine: Makes the batches.
        maker: Makes another engine when a transform was changed.
        totals: Told where time goes.
        **settings: Those of a DataLoader that this one shows, from who makes another like it.

    Raises:
        ValueError: A setting is another than this loader has.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        batch_size: int | None = 1,
        shuffle: bool = False,
        sampler: Sampler[int] | None = None,
        batch_sampler: Iterable[Sequence[int]] | None = None,
        drop_last: bool = False,
        *,
        pad: bool = False,
        config: LoaderConfig,
        contents: Contents,
        engine: Engine,
        maker: Callable[[Contents], tuple[Engine, str]],
        totals: LoaderStats,
        **settings: Any,
    ) -> None:
        self.pad = pad
        self.config = config
        self.contents = contents
        self.engine = engine
        self.maker = maker
        self.totals = totals
        self._transforms = contents.transforms()
        self._dataset_identity: str | None = None
        self._guarded = (-1, -1)
        order = order_shown(
            sampler,
            batch_sampler,
            batch_size,
            drop_last,
            pad=pad,
            has_ops=bool(contents.ops),
        )
        self._batches: Batches = order.batches
        start_method = getattr(maker, "start_method", None)
        super().__init__(
            dataset,
            num_workers=config.workers,
            prefetch_factor=config.prefetch_factor,
            persistent_workers=config.persistent_workers,
            pin_memory=config.pin_memory,
            collate_fn=MarkingCollate(contents.collate_fn) if pad else contents.collate_fn,
            batch_sampler=order.batch_sampler,
            multiprocessing_context=start_method if config.workers else None,
        )
        # As a DataLoader of torch has them that was given a sampler and a batch size.
        vars(self).update(
            dataset=served(contents, order.total),
            batch_size=order.batch_size,
            drop_last=order.drop_last,
            sampler=self.sampler if order.sampler is None else order.sampler,
        )
        self._is_made = True
        for name, value in settings.items():
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        if not vars(self).get("_is_made") or name.startswith("_") or name == "engine":
            super().__setattr__(name, value)
        elif name not in vars(self) and name != "multiprocessing_context":
            raise AttributeError(unknown_setting(name))
        elif not is_same_setting(getattr(self, name), value):
            raise ValueError(settled(name, value, self))

    def __len__(self) -> int:
        """Batches of an epoch on this rank."""
        if isinstance(self._batches, OrderBatches):
            return self._batches.batch_count()
        return super().__len__()

    def set_epoch(self, epoch: int) -> None:
        """Have the next iteration be the epoch of this number. Without it, they count up.

        An epoch that is the one to come anyway is gone on with where `load_state_dict` said.
        """
        self._batches.place.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Where the loop is: epoch and position over all ranks, of the batches that it was given.

        The same on all ranks. It may be taken at any step: what is filled ahead does not count.
        """
        return self._batches.place.state_dict(self._identity())

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Have the next iteration go on where a state was taken.

        Workers, engine and number of ranks may be others, and the batch size too, where samples
        come in an order of ours; with a sampler of the user's, it passes over the batches before.

        Raises:
            ValueError: The state is of another order, seed or dataset.
        """
        self._batches.place.load_state_dict(state_dict, self._identity())

    def _identity(self) -> dict[str, Any]:
        if self._dataset_identity is None:
            self._dataset_identity = identity_of_dataset(self.contents.dataset)
        return {**self._batches.identity(), "dataset": self._dataset_identity}

    def __iter__(self) -> Iterator[BatchT]:  # type: ignore[override]
        # An iteration takes its epoch with its first batch: Lightning makes one, then says which.
        self._take_transforms()
        self._close_at_exit()
        batches = self._batches
        run = batches.begin()
        rank, world_size = batches.ranks()
        parts = self._checked(batches.parts(run.epoch, run.position))
        numbers = count(run.position // batches.step * world_size + rank, world_size)
        say_order(self.contents.dataset, batches, run)
        yield from self._handed_out(run, self.engine.batches(parts, run.epoch, numbers))

    def _take_transforms(self) -> None:
        """Have the engine work with the transforms that the dataset has now."""
        if not self.contents.are_same(self._transforms):
            transforms = self.contents.transforms()
            engine, _ = self.maker(self.contents)
            self.engine.close()
            self.engine, self._transforms = engine, transforms

    def _close_at_exit(self) -> None:
        """Have loader workers end first when this process does.

        A process that multiprocessing has made, such as a rank of Lightning's, asks its children to
        end by SIGTERM and waits for them. Loader workers leave that signal to others where the
        program has a handler for it, and would be waited for without end.
        """
        guarded = os.getpid(), id(self.engine)
        if self._guarded != guarded:
            self._guarded = guarded
            reference = weakref.ref(self.engine)
            Finalize(self.engine, _close, args=(reference,), exitpriority=_BEFORE_CHILDREN)

    def _checked(self, parts: Iterator[NDArray[np.int64]]) -> Iterator[NDArray[np.int64]]:
        dataset = self.contents.dataset
        if not isinstance(dataset, (LMDBDataset, Subset, ConcatDataset)):
            return parts
        return all_in_range(parts, dataset)

    def _handed_out(self, run: Run, batches: Iterator[Any]) -> Iterator[Any]:
        """The same batches, with the time on both sides of each, and the place, taken down."""
        stats, place, step = self.totals, self._batches.place, self._batches.step
        end = self._batches.end
        while True:
            asked = time.perf_counter()
            batch = next(batches, _END)
            if batch is _END:  # None may be a batch, to a collate_fn that drops samples.
                place.end(run)
                return
            given = time.perf_counter()
            stats.waiting_s += given - asked
            stats.batch_count += 1
            sample_count, byte_count = _measure(batch)
            stats.sample_count += sample_count
            stats.byte_count += byte_count
            if self.pad:
                batch = self._marked(batch, run.position)
            run.position += step
            if end is not None:
                run.position = min(run.position, end)
            yield batch
            del batch  # Its memory is free as soon as the loop lets go of it.
            stats.consuming_s += time.perf_counter() - given

    def _marked(self, batch: Any, position: int) -> Any:
        """A batch with the field `valid`."""
        assert isinstance(self._batches, (OrderBatches, GivenBatches))
        valid = self._batches.valid(position)
        return marked(batch, valid.pin_memory() if self.pin_memory else valid)

    def stats(self) -> dict[str, Any]:
        """Where time went since the loader was made; see `LoaderStats`."""
        return self.totals.as_dict()

    def __str__(self) -> str:
        facts = self.totals.as_dict()
        if not facts["batch_count"]:
            return f"{self!r}, nothing loaded yet"
        return (
            f"{facts['sample_count']:,} samples in {facts['batch_count']:,} batches by the "
            f"{facts['engine']} engine: {facts['samples_per_s']:,.0f} samples/s, "
            f"{facts['bytes_per_s'] / 1e9:.2f} GB/s, {facts['queue_depth']:.1f} batches ready; "
            f"{facts['verdict']}"
        )

    def __repr__(self) -> str:
        size = "" if self.batch_size is None else f", batch_size={self.batch_size}"
        ops = f", ops={list(self.contents.ops)}" if self.contents.ops else ""
        return (
            f"Loader of {self.contents.dataset!r}{size}{ops}: {len(self):,} batches an epoch by "
            f"the {self.totals.engine} engine, workers={self.config.workers}"
        )

    def __copy__(self) -> Loader:
        """A loader of its own, at the same place, over the same dataset."""
        shared: list[Any] = [self.dataset, inner(self.dataset)]
        if isinstance(self._batches, GivenBatches):
            shared += [self.sampler, self.batch_sampler]  # The user's, who may change them.
        return copy.deepcopy(self, {id(one): one for one in shared})

    def close(self) -> None:
        """End threads and processes. Batches stay valid; the next iteration starts new ones."""
        self.engine.close()


def _close(reference: weakref.ReferenceType[Engine]) -> None:
    engine = reference()
    if engine is not None:
        engine.close()


def _measure(batch: Any) -> tuple[int, int]:
    """Samples of a batch, and bytes of the tensors that stand in it directly."""
    byte_count, sample_count = 0, 0
    kind = type(batch)
    if kind is dict:
        values = batch.values()
    elif kind is tuple or kind is list:
        values = batch
    else:
        parts = parts_of(batch)
        values = batch if parts is None else parts.values()
        if isinstance(values, torch.Tensor):
            return (len(values) if values.ndim else 1), values.nbytes
        if isinstance(values, Iterator):  # Looking at it would use it up.
            return sample_count, byte_count
    try:
        for value in values:
            if isinstance(value, torch.Tensor) and value.ndim:  # Its len() is a call of Python.
                sample_count = max(sample_count, value.shape[0])
                byte_count += value.nbytes
            else:
                sample_count = max(sample_count, len(value))
    except TypeError:  # A batch of the user's own making.
        pass
    return sample_count, byte_count
