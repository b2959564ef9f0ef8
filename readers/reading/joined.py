"""Batches out of several stores, for operations on a torch `ConcatDataset` of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from readers.chance.draws import INDEX_BITS, split_draws
from readers.reading.batch_reader import Take
from readers.reading.collate import collate
from readers.reading.filling import StoreFiller
from readers.reading.samples import GatheredSamples
from readers.stats import Watch


class JoinedFiller:
    """Batches whose samples lie in several stores.

    Args:
        fillers: One for each store; their samples have the same fields.
        counts: Samples of each.
        order: For each sample, where it is in the stores, one behind the other. None: as they are.
    """

    def __init__(
        self,
        fillers: Sequence[StoreFiller],
        counts: Sequence[int],
        order: NDArray[np.int64] | None = None,
    ) -> None:
        self._fillers = list(fillers)
        self._ends = np.cumsum(counts, dtype=np.int64)
        self._order = order

    def enter_worker(self) -> None:
        """From now on this is a loader worker, which may end when native code cannot go on."""
        for filler in self._fillers:
            filler.enter_worker()

    def samples(self, indices: NDArray[np.int64], epoch: int, watch: Watch) -> GatheredSamples:
        """The samples of one batch, in fresh memory.

        Args:
            indices: They may carry draws.
            epoch: Its number.
            watch: Told where time goes.
        """
        shares = self._shares(indices)
        pieces = [filler.samples(places, epoch, watch) for filler, _, places in shares]
        if len(pieces) == 1:
            return pieces[0]
        rows = [at for _, at, _ in shares]
        return GatheredSamples.joined(pieces, lambda values: _scattered(values, rows))

    def _shares(
        self, indices: NDArray[np.int64]
    ) -> list[tuple[StoreFiller, NDArray[np.int64], NDArray[np.int64]]]:
        """Of each store that has some of the samples: its filler, which they are, their indices."""
        at, draws = split_draws(indices)
        at = at if self._order is None else self._order[at]
        parts = np.searchsorted(self._ends, at, side="right")
        places = at - np.concatenate([[0], self._ends])[parts]
        if draws is not None:
            places = places | draws << INDEX_BITS
        rows = [(number, np.flatnonzero(parts == number)) for number in np.unique(parts).tolist()]
        return [(self._fillers[number], row, places[row]) for number, row in rows]

    @property
    def ahead_count(self) -> int:
        """Batches that it is good to know of before they are asked for; see `expect`."""
        return max(filler.ahead_count for filler in self._fillers)

    def expect(self, parts: list[NDArray[np.int64]], epoch: int) -> None:
        """These batches will be asked for; see `StoreFiller.expect`."""
        for indices in parts:
            for filler, _, places in self._shares(indices):
                filler.expect([places], epoch)

    def drop_expected(self) -> None:
        """Nothing that was expected will be asked for."""
        for filler in self._fillers:
            filler.drop_expected()

    def fill(self, indices: NDArray[np.int64], epoch: int, take: Take, watch: Watch) -> Any:
        """One batch. What is not in memory from `take` is copied there where that is needed."""
        batch = collate(self.samples(indices, epoch, watch))
        watch.lap("collate")
        return batch

    def fill_group(
        self, parts: list[NDArray[np.int64]], epoch: int, take: Take, watch: Watch
    ) -> list[Any]:
        """Several batches."""
        return [self.fill(indices, epoch, take, watch) for indices in parts]


def _scattered(values: list[Any], rows: Sequence[NDArray[np.int64]]) -> Any:
    """One field of several pieces of a batch, each row where it belongs: a tensor, or a list."""
    count, first = sum(map(len, rows)), values[0]
    if all(_is_like(one, first) for one in values):
        # Images are channels-last in memory, as they are in a batch of one store.
        strides = (first[0].numel(), *first.stride()[1:])
        out = torch.empty_strided((count, *first.shape[1:]), strides, dtype=first.dtype)
        for one, at in zip(values, rows, strict=True):
            out[torch.from_numpy(at)] = one
        return out
    joined: list[Any] = [None] * count
    for one, at in zip(values, rows, strict=True):
        for place, value in zip(at.tolist(), one, strict=True):
            joined[place] = value
    return joined


def _is_like(one: Any, other: Any) -> bool:
    if not (isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)):
        return False
    return one.dtype == other.dtype and one.shape[1:] == other.shape[1:]
