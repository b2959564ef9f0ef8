"""What a loader shows of its order: samplers from which a framework can build a loader of its own.

    DataLoader(loader.dataset, batch_sampler=loader.batch_sampler, collate_fn=loader.collate_fn)
    DataLoader(loader.dataset, loader.batch_size, sampler=loader.sampler, ...)

have the loader's batches: the indices say of which epoch and draw they are (`SampleIndex`), and
`loader.dataset` works from that. All of them and the loader count the same epochs: whoever is told
one, or begins one, does so for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch.utils.data import BatchSampler, DistributedSampler, Sampler

from readers.chance.draws import SampleIndex, said
from readers.loader.cuts import Asking, who_asks
from readers.orders.batching import Batches, GivenBatches, OrderBatches
from readers.orders.buckets import BucketBatchSampler
from readers.orders.order_sampler import OrderSampler
from readers.orders.place import Place, Run


class LoaderSampler(DistributedSampler[int]):
    """An order of ours as a loader hands it out: with draws, and padded where the loader pads.

    It passes for the order that it is made of, of which it has all attributes. To Lightning and
    Ignite it is a DistributedSampler, which they leave as it is; where accelerate cuts it over
    ranks, it gives the order of all ranks: NOTE [ who is asking ].

    Args:
        given: The order.
        batch_size: Samples of a batch on this rank.
        pad: Whether the last batches are filled up.
        tells_draws: Whether a sample that may come repeatedly is another each time.
    """

    def __init__(
        self,
        given: OrderSampler | BucketBatchSampler,
        batch_size: int,
        *,
        pad: bool = False,
        tells_draws: bool = False,
    ) -> None:
        self.given = given
        self.loader_batch_size = batch_size
        self.pad = pad
        self.tells_draws = tells_draws

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """That of the order, if it is a sampler of single indices."""
        given = vars(self).get("given")
        return type(given) if isinstance(given, OrderSampler) else LoaderSampler

    def __getattr__(self, name: str) -> Any:
        if name == "given" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.given, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return object.__new__, (LoaderSampler,), dict(vars(self))

    @property
    def rank(self) -> int:  # type: ignore[override]
        """Number of this process."""
        return self._view(Asking())[0].ranks()[0]

    @property
    def num_replicas(self) -> int:  # type: ignore[override]
        """How many processes share an epoch."""
        return self._view(Asking())[0].ranks()[1]

    @property
    def epoch(self) -> int:  # type: ignore[override]
        """The epoch of the next iteration."""
        return self.given.epoch

    def set_epoch(self, epoch: int) -> None:
        """Have the next iteration be the epoch of this number. Without it, they count up."""
        self.given.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """The place in the order; see `OrderSampler.state_dict`."""
        return self.given.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Have the next iteration go on where a state was taken.

        Raises:
            ValueError: The state is of another order or seed.
        """
        self.given.load_state_dict(state_dict)

    def _view(self, asking: Asking) -> list[OrderBatches] | list[BucketBatchSampler]:
        """The batches as the one who asks is to have them; where there are several, by turns."""
        given, count = self.given, asking.rank_count
        if count is not None and given.world_size_given not in (None, 1):
            raise ValueError(
                f"accelerate deals this loader's batches out to {count} processes, and the loader "
                f"is of one rank of {given.world_size_given} already: each would get a part of a "
                "part. Leave rank and world_size out when a loader goes to accelerate.prepare"
            )
        if isinstance(given, BucketBatchSampler):
            if count is None:
                return [given]
            if asking.splits:
                return [given.of_rank(0, 1)]
            return [given.of_rank(rank, count) for rank in range(count)]
        return [
            OrderBatches(
                given if count is None else given.of_rank(0, 1),
                self.loader_batch_size,
                drop_last=False,
                pads=self.pad,
                tells_draws=self.tells_draws,
                multiple=1 if count is None or asking.splits else count,
            )
        ]

    def __len__(self) -> int:
        views = self._view(who_asks(self))
        if isinstance(views[0], OrderBatches) and not self.pad:
            return views[0].sample_count()
        return sum(len(view) for view in views) * self.loader_batch_size

    def __iter__(self) -> Iterator[SampleIndex]:
        end = self._view(Asking())[0].end
        assert end is not None
        return self._handed_out(self.given.place.begin_at_end(end))

    def _handed_out(self, run: Run | None) -> Iterator[SampleIndex]:
        asking = who_asks(self)
        views = self._view(asking)
        if run is None:
            if asking.epoch is not None:
                self.set_epoch(asking.epoch)
            run = self.given.place.begin()
        view, start, size = views[0], run.position, self.loader_batch_size
        end = view.end
        assert end is not None
        rank, world_size = view.ranks()
        first = start // view.step * world_size + (rank if len(views) == 1 else 0)
        each = view.step // size if len(views) == 1 else 1
        steps = zip(*(one.parts(run.epoch, start) for one in views), strict=True)
        for turn, parts in enumerate(steps):
            at = start + turn * view.step
            valid = None
            if self.pad and isinstance(view, OrderBatches):
                valid = view.valid(at).tolist()
            for other, part in enumerate(parts):
                number = first + turn * world_size + other
                for index in said(part, run.epoch, number, valid, is_sent=asking.sends):
                    run.position = min(at + other * size + (index.turn + 1) * each, end)
                    yield index

    def __repr__(self) -> str:
        return repr(self.given)


class LoaderBatchSampler(BatchSampler):
    """The batches of a loader, as lists of indices that say of which draw they are.

    Args:
        sampler: Of the loader: a `LoaderSampler`, or one of the user's.
        batch_size: Samples of a batch on this rank.
        drop_last: Whether the last short batch is dropped.
    """

    def __init__(self, sampler: Any, batch_size: int, drop_last: bool) -> None:
        super().__init__(sampler, batch_size, drop_last)
        self._given: tuple[Any, GivenBatches] | None = None

    @property
    def batches(self) -> GivenBatches:
        """Those of a sampler of the user's."""
        # accelerate puts another sampler in the place of torch's own.
        if self._given is None or self._given[0] is not self.sampler:
            batch_sampler = BatchSampler(self.sampler, self.batch_size, self.drop_last)
            batches = GivenBatches(batch_sampler, self.sampler)
            if self._given is not None:
                batches.place = self._given[1].place
            self._given = self.sampler, batches
        return self._given[1]

    @property
    def place(self) -> Place:
        """Where the next epoch begins."""
        if type(self.sampler) is LoaderSampler:
            return self.sampler.given.place
        return self.batches.place

    @property
    def epoch(self) -> int:
        """The epoch of the next iteration."""
        return self.place.next_epoch

    def __iter__(self) -> Iterator[list[int]]:
        if type(self.sampler) is LoaderSampler:
            return self._chunked(iter(self.sampler))
        return _said_batches(self, self.batches)

    def __repr__(self) -> str:
        tail = ", the last short one dropped" if self.drop_last else ""
        return f"batches of {self.batch_size}{tail}, of {self.sampler!r}"

    def _chunked(self, indices: Iterator[int]) -> Iterator[list[int]]:
        while batch := list(islice(indices, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def set_epoch(self, epoch: int) -> None:
        """Have the next iteration be the epoch of this number. Without it, they count up."""
        self.place.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """The place in the order; see `OrderSampler.state_dict`."""
        if type(self.sampler) is LoaderSampler:
            return self.sampler.state_dict()
        return self.batches.place.state_dict(self.batches.identity())

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Have the next iteration go on where a state was taken.

        Raises:
            ValueError: The state is of another order.
        """
        if type(self.sampler) is LoaderSampler:
            self.sampler.load_state_dict(state_dict)
        else:
            self.batches.place.load_state_dict(state_dict, self.batches.identity())


class GivenBatchSampler(Sampler[list[int]]):
    """A batch sampler of the user's whose indices say of which epoch they are, for operations.

    It has all attributes of the one that it is made of.

    Args:
        batch_sampler: Yields the indices of each batch.
    """

    def __init__(self, batch_sampler: Iterable[Sequence[int]]) -> None:
        self.given = batch_sampler
        self.batches = GivenBatches(batch_sampler)
        self.place = self.batches.place

    def __getattr__(self, name: str) -> Any:
        if name == "given" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.given, name)

    @property
    def epoch(self) -> int:
        """The epoch of the next iteration."""
        return self.place.next_epoch

    def set_epoch(self, epoch: int) -> None:
        """Have the next iteration be the epoch of this number. Without it, they count up."""
        self.place.set_epoch(epoch)

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[list[int]]:
        return _said_batches(self, self.batches)


def _said_batches(asked: object, batches: GivenBatches) -> Iterator[list[int]]:
    """The batches of a user's sampler, with epoch and number on each index."""
    asking = who_asks(asked)
    if asking.epoch is not None:
        batches.place.set_epoch(asking.epoch)
    run = batches.begin()
    rank, world_size = batches.ranks()
    for part in batches.parts(run.epoch, run.position):
        number = run.position * world_size + rank
        run.position += 1
        yield [*said(part, run.epoch, number, is_sent=asking.sends)]


def is_exposed(batch_sampler: object) -> bool:
    """Whether a batch sampler is one of these, or of a framework around one."""
    waiting, seen = [batch_sampler], set()
    while waiting:
        one = waiting.pop()
        if type(one) in (LoaderSampler, LoaderBatchSampler, GivenBatchSampler):
            return True
        if one is not None and not isinstance(one, torch.Tensor) and id(one) not in seen:
            seen.add(id(one))
            names = ("batch_sampler", "_batch_sampler", "sampler")
            waiting += [getattr(one, name, None) for name in names]
    return False


class OrderShown(NamedTuple):
    """What a loader shows of its order, and what it takes its batches from itself.

    Attributes:
        batches: The loader's own.
        sampler: None where it is not known.
        batch_sampler: Yields the indices of each batch.
        batch_size: None where the batch sampler alone says it.
        drop_last: Whether the last short batch is dropped.
        total: Samples of an epoch over all ranks; None where that is not known.
    """

    batches: Batches
    sampler: Any
    batch_sampler: Any
    batch_size: int | None
    drop_last: bool
    total: int | None = None


def order_shown(
    sampler: Any,
    batch_sampler: Any,
    batch_size: int | None,
    drop_last: bool,
    *,
    pad: bool,
    has_ops: bool,
) -> OrderShown:
    """What a loader shows that is made with these; they may be another loader's.

    Args:
        sampler: Yields indices.
        batch_sampler: Or: yields the indices of each batch.
        batch_size: Samples of a batch on this rank.
        drop_last: Whether the last short batch is dropped.
        pad: Whether the last batches are filled up.
        has_ops: Whether there are operations, which need to know epoch and draw.
    """
    if type(batch_sampler) is LoaderBatchSampler:
        sampler, batch_size = batch_sampler.sampler, batch_sampler.batch_size
        drop_last, batch_sampler = batch_sampler.drop_last, None
    if isinstance(batch_sampler, BucketBatchSampler):
        shown = LoaderSampler(batch_sampler, batch_sampler.batch_size)
        batches = LoaderBatchSampler(shown, batch_sampler.batch_size, drop_last=False)
        return OrderShown(batch_sampler, shown, batches, None, False)
    if batch_sampler is not None and has_ops and not is_exposed(batch_sampler):
        given = GivenBatchSampler(batch_sampler)
        return OrderShown(given.batches, None, given, None, False)
    if batch_sampler is not None:
        # One that Lightning or Ignite has put around ours has its sampler, too.
        sampler = getattr(batch_sampler, "sampler", None) if is_exposed(batch_sampler) else None
        own = GivenBatches(batch_sampler, tells_valid=pad)
        return OrderShown(own, sampler, batch_sampler, None, False)
    assert batch_size is not None
    order = sampler.given if type(sampler) is LoaderSampler else sampler
    if isinstance(order, BucketBatchSampler):
        batches = LoaderBatchSampler(sampler, batch_size, drop_last)
        return OrderShown(order, sampler, batches, batch_size, drop_last)
    if isinstance(order, OrderSampler):
        parts = OrderBatches(order, batch_size, drop_last=drop_last, pads=pad, tells_draws=has_ops)
        if type(sampler) is not LoaderSampler or sampler.loader_batch_size != batch_size:
            sampler = LoaderSampler(order, batch_size, pad=pad, tells_draws=has_ops)
        batches = LoaderBatchSampler(sampler, batch_size, drop_last)
        return OrderShown(parts, sampler, batches, batch_size, drop_last, order.count)
    batches = LoaderBatchSampler(sampler, batch_size, drop_last)
    return OrderShown(batches.batches, sampler, batches, batch_size, drop_last)
