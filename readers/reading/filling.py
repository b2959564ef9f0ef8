"""Indices -> batches, in memory that the caller chooses. All engines fill their batches here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset

from readers.chance.draws import split_draws
from readers.reading.ahead import COUNT, Ahead
from readers.reading.batch_reader import BatchReader, PreparedBatch, Take
from readers.reading.collate import collate
from readers.reading.samples import GatheredSamples
from readers.reading.together import SamplesTogether
from readers.reading.view import StoreView
from readers.reading.worked_images import ImageOps
from readers.stats import Watch


class StoreFiller:
    """Batches of a store, for the engines.

    Args:
        view: Which samples and fields.
        ops: Operations on its images.
    """

    def __init__(self, view: StoreView, ops: ImageOps | None = None) -> None:
        self._view = view
        self._ops = ops
        self._is_in_worker = False
        self._forget()

    def _forget(self) -> None:
        self._reader: BatchReader | None = None
        self._ahead: Ahead[PreparedBatch] | None = None

    @property
    def has_ops(self) -> bool:
        """Whether images are worked on, one by one."""
        return self._ops is not None

    def __getstate__(self) -> dict[str, Any]:
        """Settings alone."""
        return {**self.__dict__, "_reader": None, "_ahead": None}

    def enter_worker(self) -> None:
        """From now on this is a loader worker, which may end when native code cannot go on."""
        self._is_in_worker = True
        self._forget()

    def _opened(self) -> BatchReader:
        if self._reader is None:
            reader = BatchReader(self._view, self._ops)
            if self._is_in_worker and reader.images is not None:
                reader.images.allow_windows()
            self._reader = reader
        return self._reader

    @property
    def ahead_count(self) -> int:
        """Batches that it is good to know of before they are asked for; see `expect`."""
        return COUNT if self._view.store.access == "read" else 0

    def expect(self, parts: list[NDArray[np.int64]], epoch: int) -> None:
        """These batches will be filled together, after all that were expected before.

        Where the store is read, their bytes are read from now on.
        """
        if not self.ahead_count:
            return
        if self._ahead is None:
            self._ahead = Ahead(self._prepare, self._view.store.bytes)
        self._ahead.expect(np.concatenate(parts), epoch)

    def drop_expected(self) -> None:
        """Nothing that was expected will be asked for."""
        if self._ahead is not None:
            self._ahead.drop()

    def _taken(self, indices: NDArray[np.int64], epoch: int) -> PreparedBatch | None:
        """What was expected, if it was."""
        return None if self._ahead is None else self._ahead.take(indices, epoch)

    def _prepare(self, indices: NDArray[np.int64], epoch: int) -> PreparedBatch:
        indices, draws = split_draws(indices)
        return self._opened().prepare(indices, epoch, draws)

    def samples(self, indices: NDArray[np.int64], epoch: int, watch: Watch) -> GatheredSamples:
        """The samples of one batch, in memory of the reader: for other loaders than ours.

        Args:
            indices: They may carry draws.
            epoch: Its number.
            watch: Told where time goes.
        """
        watch.start()
        prepared = self._taken(indices, epoch)
        indices, draws = split_draws(indices)
        return self._opened().read(indices, epoch, None, watch, draws, prepared)

    def fill(self, indices: NDArray[np.int64], epoch: int, take: Take, watch: Watch) -> Any:
        """One batch, its tensors in memory from `take`."""
        return self.fill_group([indices], epoch, take, watch)[0]

    def fill_group(
        self, parts: list[NDArray[np.int64]], epoch: int, take: Take, watch: Watch
    ) -> list[Any]:
        """Several batches by one call: small ones are cheaper together."""
        watch.start()
        together = parts[0] if len(parts) == 1 else np.concatenate(parts)
        prepared = None if self._ahead is None else self._ahead.take(together, epoch)
        indices, draws = split_draws(together)
        counts, reader = [*map(len, parts)], self._reader or self._opened()
        if reader.is_fixed and prepared is None:
            return reader.batches(indices, counts, take, watch)
        read = reader.read_parts(indices, counts, epoch, take, watch, draws, prepared)
        batches = [collate(samples) for samples in read]
        watch.lap("collate")
        return batches


class MapFiller:
    """Batches of any map-style dataset: its samples one by one, joined.

    Those of an `LMDBDataset` with a transform come out of records that are fetched together, and
    read ahead as those of a `StoreFiller`.

    Args:
        dataset: Yields samples by index.
        collate_fn: Joins them.
    """

    def __init__(self, dataset: Dataset[Any], collate_fn: Callable[[Any], Any] = collate) -> None:
        self._dataset = dataset
        self._collate = collate_fn
        self._ahead: Ahead[SamplesTogether] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Settings alone."""
        return {**self.__dict__, "_ahead": None}

    def enter_worker(self) -> None:
        """From now on this is a loader worker."""
        self._ahead = None

    @property
    def ahead_count(self) -> int:
        """Batches that it is good to know of before they are asked for; see `expect`."""
        view = self._view()
        return COUNT if view is not None and view.store.access == "read" else 0

    def _view(self) -> StoreView | None:
        """That of a dataset of a store, by its class: others pass on what they are asked for."""
        dataset: Any = self._dataset
        is_of_store = hasattr(type(dataset), "together") and not dataset.is_overridden
        return dataset.view if is_of_store else None

    def _together(self, indices: NDArray[np.int64], epoch: int = 0) -> SamplesTogether:
        """The samples of a batch of a store, found but not read."""
        dataset: Any = self._dataset
        found: SamplesTogether = dataset.together(split_draws(indices)[0])
        return found

    def expect(self, parts: list[NDArray[np.int64]], epoch: int) -> None:
        """These batches will be asked for; see `StoreFiller.expect`."""
        view = self._view()
        if view is None or not self.ahead_count:
            return
        if self._ahead is None:
            self._ahead = Ahead(self._together, view.store.bytes)
        for indices in parts:
            self._ahead.expect(indices, epoch)

    def drop_expected(self) -> None:
        """Nothing that was expected will be asked for."""
        if self._ahead is not None:
            self._ahead.drop()

    def samples(self, indices: NDArray[np.int64], epoch: int, watch: Watch) -> list[Any]:
        """The samples of one batch, for other loaders than ours."""
        watch.start()
        view, together = self._view(), None
        if self._ahead is not None:
            together = self._ahead.take(indices, epoch)
        if together is None and view is not None:
            together = self._together(indices)
        indices = split_draws(indices)[0]
        samples: Iterator[Any]
        if together is None or view is None:
            samples = (self._dataset[index] for index in indices.tolist())
        else:
            together.fetch(view.store.bytes)
            watch.reads += together.request.reads
            watch.storage_batch_count += together.request.waited
            watch.lap("read")
            samples = iter(together)
        found = []
        for index in indices.tolist():
            watch.sample(index)
            found.append(next(samples))
        watch.lap("transform")
        return found

    def fill(self, indices: NDArray[np.int64], epoch: int, take: Take, watch: Watch) -> Any:
        """One batch. What is not in memory from `take` is copied there where that is needed."""
        batch = self._collate(self.samples(indices, epoch, watch))
        watch.lap("collate")
        return batch

    def fill_group(
        self, parts: list[NDArray[np.int64]], epoch: int, take: Take, watch: Watch
    ) -> list[Any]:
        """Several batches."""
        return [self.fill(indices, epoch, take, watch) for indices in parts]
