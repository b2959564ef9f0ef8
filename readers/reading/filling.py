"""Indices -> batches, in memory that the caller chooses. All engines fill their batches here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset

from readers.chance.draws import split_draws
from readers.reading.batch_reader import BatchReader, Take
from readers.reading.collate import collate
from readers.reading.samples import GatheredSamples
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
        self._reader: BatchReader | None = None
        self._is_in_worker = False

    @property
    def has_ops(self) -> bool:
        """Whether images are worked on, one by one."""
        return self._ops is not None

    def __getstate__(self) -> dict[str, Any]:
        """Settings alone."""
        return {**self.__dict__, "_reader": None}

    def enter_worker(self) -> None:
        """From now on this is a loader worker, which may end when native code cannot go on."""
        self._is_in_worker = True
        self._reader = None

    def _opened(self) -> BatchReader:
        if self._reader is None:
            reader = BatchReader(self._view, self._ops)
            if self._is_in_worker and reader.images is not None:
                reader.images.allow_windows()
            self._reader = reader
        return self._reader

    def samples(self, indices: NDArray[np.int64], epoch: int, watch: Watch) -> GatheredSamples:
        """The samples of one batch, in memory of the reader: for other loaders than ours.

        Args:
            indices: They may carry draws.
            epoch: Its number.
            watch: Told where time goes.
        """
        indices, draws = split_draws(indices)
        return self._opened().read(indices, epoch, None, watch, draws)

    def fill(self, indices: NDArray[np.int64], epoch: int, take: Take, watch: Watch) -> Any:
        """One batch, its tensors in memory from `take`."""
        indices, draws = split_draws(indices)
        samples = self._opened().read(indices, epoch, take, watch, draws)
        batch = collate(samples)
        watch.lap("collate")
        return batch

    def fill_group(
        self, parts: list[NDArray[np.int64]], epoch: int, take: Take, watch: Watch
    ) -> list[Any]:
        """Several batches by one call: small ones are cheaper together."""
        if len(parts) == 1:
            return [self.fill(parts[0], epoch, take, watch)]
        indices, draws = split_draws(np.concatenate(parts))
        counts = [len(part) for part in parts]
        read = self._opened().read_parts(indices, counts, epoch, take, watch, draws)
        batches = [collate(samples) for samples in read]
        watch.lap("collate")
        return batches


class MapFiller:
    """Batches of any map-style dataset: its samples one by one, joined.

    Args:
        dataset: Yields samples by index.
        collate_fn: Joins them.
    """

    def __init__(self, dataset: Dataset[Any], collate_fn: Callable[[Any], Any] = collate) -> None:
        self._dataset = dataset
        self._collate = collate_fn

    def enter_worker(self) -> None:
        """From now on this is a loader worker."""

    def samples(self, indices: NDArray[np.int64], epoch: int, watch: Watch) -> list[Any]:
        """The samples of one batch, for other loaders than ours."""
        watch.start()
        samples = []
        for index in split_draws(indices)[0].tolist():
            watch.sample(index)
            samples.append(self._dataset[index])
        watch.lap("transform")
        return samples

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
