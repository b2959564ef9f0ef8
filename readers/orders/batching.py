"""An epoch cut into the batches of this rank, from any place in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import RandomSampler, SubsetRandomSampler, WeightedRandomSampler

from readers.chance.draws import SampleIndex, unsaid, with_draws
from readers.orders.order_sampler import OrderSampler
from readers.orders.place import Place, Run
from readers.orders.ranks import ranks

_CHUNK = 2**14
"""Indices worked out together: the numpy calls for one batch would cost as much as the batch."""


_RANDOM = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)
"""Torch's samplers whose order follows from how often a generator was asked before."""


class Batches(Protocol):
    """What a loader's batches are made of.

    Attributes:
        place: Where the next epoch begins.
    """

    place: Place

    @property
    def step(self) -> int:
        """How far a batch takes the position of all ranks."""

    @property
    def end(self) -> int | None:
        """Position at the end of an epoch; None where only the end itself tells."""

    def begin(self) -> Run:
        """A new iteration begins."""

    def parts(self, epoch: int, position: int) -> Iterator[NDArray[np.int64]]:
        """The indices of each batch of this rank, from a position on."""

    def ranks(self) -> tuple[int, int]:
        """Rank and world size."""

    def identity(self) -> dict[str, Any]:
        """What a state must agree with."""

    def __len__(self) -> int:
        """Batches of an epoch of this rank."""


class OrderBatches:
    """Batches of an order of ours.

    Args:
        sampler: The order.
        batch_size: Samples of a batch on each rank.
        drop_last: Whether a last batch that is not full is left out.
        pads: Whether all ranks have equally many batches, all full: what is missing in the last
            ones is samples from the start of the order.
        tells_draws: Whether indices carry their draw, where the order may draw one repeatedly; see
            `readers.chance.draws`.
        multiple: Padded, there are a multiple of so many batches, for one who deals them out.
    """

    def __init__(
        self,
        sampler: OrderSampler,
        batch_size: int,
        *,
        drop_last: bool,
        pads: bool,
        tells_draws: bool = False,
        multiple: int = 1,
    ) -> None:
        self._sampler = sampler
        self._multiple = multiple
        self._tells_draws = tells_draws and sampler.may_repeat
        self._batch_size = batch_size
        self._drop_last = drop_last
        self._pads = pads
        self.end: int | None = sampler.count
        self.place = sampler.place
        self.begin = sampler.place.begin

    @property
    def step(self) -> int:
        """Samples of a batch over all ranks."""
        return self._batch_size * self._sampler.num_replicas

    def ranks(self) -> tuple[int, int]:
        """Rank and world size."""
        return self._sampler.rank, self._sampler.num_replicas

    def identity(self) -> dict[str, Any]:
        """The order, as the sampler says."""
        return self._sampler.identity()

    def __len__(self) -> int:
        return self.batch_count()

    def sample_count(self) -> int:
        """Samples of this rank in an epoch, with those of a last batch that is not full."""
        return self._sampler.share(self._sampler.count)

    def batch_count(self, position: int = 0) -> int:
        """Batches of this rank, from a position on."""
        count = self._sampler.count - position
        if self._pads:
            return -(-count // (self.step * self._multiple)) * self._multiple
        share = self._sampler.share(count)
        return share // self._batch_size if self._drop_last else -(-share // self._batch_size)

    def parts(self, epoch: int, position: int) -> Iterator[NDArray[np.int64]]:
        """The indices of each batch of this rank, from a position on."""
        size = self._batch_size
        turns = self.batch_count(position) * size
        if not self._pads:
            turns = min(turns, self._sampler.share(self._sampler.count - position))
        chunk = max(1, _CHUNK // size) * size
        for first in range(0, turns, chunk):
            stop = min(first + chunk, turns)
            indices = self._sampler.taken(epoch, position, first, stop)
            if self._tells_draws:
                indices = with_draws(indices, self._sampler.positions(position, first, stop))
            for start in range(0, len(indices), size):
                yield indices[start : start + size]

    @property
    def keeps_neighbours(self) -> bool:
        """See `OrderSampler.keeps_neighbours`."""
        return self._sampler.keeps_neighbours

    def coming(self, epoch: int, position: int, count_max: int) -> NDArray[np.int64]:
        """What all ranks take from a position on: no more than so many samples, evenly apart."""
        rest = self._sampler.count - position
        places = position + np.arange(min(rest, count_max), dtype=np.int64) * rest // max(
            1, min(rest, count_max)
        )
        return self._sampler.indices(epoch, places)

    def valid(self, position: int) -> torch.Tensor:
        """For each sample of a padded batch, whether it belongs there: (sample,) bool.

        Args:
            position: Of the batch, over all ranks.
        """
        rank, world_size = self.ranks()
        turns = torch.arange(self._batch_size)
        return position + rank + world_size * turns < self._sampler.count


class GivenBatches:
    """Batches as a sampler of the user's yields them, on each rank as it likes.

    Positions count batches, and going on in mid-epoch passes over those that were had.

    Args:
        batch_sampler: Yields the indices of each batch.
        sampler: What it draws from, if anything: told which epoch it is, if it can be.
        tells_valid: Whether indices that say whether they count are asked; see `valid`.
    """

    step = 1
    end: int | None = None

    def __init__(
        self,
        batch_sampler: Iterable[Sequence[int]],
        sampler: object = None,
        *,
        tells_valid: bool = False,
    ) -> None:
        self.batch_sampler = batch_sampler
        self.place = Place()
        self._told: Any = _told_of(batch_sampler, sampler)
        # A sampler of ours counts epochs itself, and may have been told one already.
        is_ours = isinstance(getattr(self._told, "place", None), Place)
        self._epoch_told = None if is_ours else getattr(self._told, "epoch", None)
        source = batch_sampler if sampler is None else sampler
        self._kind = type(source).__name__
        self._is_random = isinstance(source, _RANDOM)
        self._tells_valid = tells_valid
        self._valid: dict[int, torch.Tensor] = {}

    def ranks(self) -> tuple[int, int]:
        """Rank and world size."""
        return ranks(None, None)

    def identity(self) -> dict[str, Any]:
        """What is known of a user's sampler: its kind, and how many batches it has."""
        try:
            count = f"{len(self.batch_sampler)} batches"  # type: ignore[arg-type]
        except TypeError:
            count = "batches"
        return {"order": f"{self._kind} of {count}"}

    def __len__(self) -> int:
        return len(self.batch_sampler)  # type: ignore[arg-type]

    def begin(self) -> Run:
        """A new iteration begins: of the epoch that the sampler was told of by others, if any."""
        epoch = getattr(self._told, "epoch", None)
        if epoch is not None and epoch != self._epoch_told:
            self.place.set_epoch(epoch)
        return self.place.begin()

    def parts(self, epoch: int, position: int) -> Iterator[NDArray[np.int64]]:
        """The indices of each batch, from a position on.

        Raises:
            ValueError: It is to go on in mid-epoch in an order that cannot be had again.
        """
        if position and self._is_random:
            raise ValueError(
                f"a {self._kind} draws another order each time, so there is no going on in the "
                "middle of it. Use ShuffleSampler or WeightedSampler of readers"
            )
        if self._told is not None:
            self._told.set_epoch(epoch)
            self._epoch_told = getattr(self._told, "epoch", None)
        batches = islice(iter(self.batch_sampler), position, None)
        self._valid.clear()
        return (self._part(at, indices) for at, indices in enumerate(batches, position))

    def _part(self, position: int, indices: Sequence[int]) -> NDArray[np.int64]:
        if self._tells_valid:
            counts = [index.is_valid if type(index) is SampleIndex else True for index in indices]
            self._valid[position] = torch.tensor(counts, dtype=torch.bool)
        return unsaid(indices)

    def valid(self, position: int) -> torch.Tensor:
        """For each sample of a batch that was handed out, whether it counts; to be asked once."""
        return self._valid.pop(position)


def _told_of(*samplers: object) -> Any:
    """The first of these, or of those that they draw from, that can be told its epoch."""
    waiting, seen = list(samplers), set()
    while waiting:
        one = waiting.pop(0)
        if one is None or id(one) in seen:
            continue
        if hasattr(one, "set_epoch"):
            return one
        seen.add(id(one))
        # The names under which frameworks keep what they wrap.
        names = ("batch_sampler", "_batch_sampler", "sampler")
        waiting += [getattr(one, name, None) for name in names]
    return None
