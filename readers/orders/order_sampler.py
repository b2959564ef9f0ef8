"""What all orders have in common: epochs, ranks, and going on in mid-epoch.

An order is a pure function of (seed, epoch, position), so it is the same for any number of workers
and ranks, and going on in mid-epoch takes a few integers. Ranks take turns:

    position   0  1  2 | 3  4  5 | 6 ...      batches of one, three ranks
    rank       0  1  2 | 0  1  2 | 0 ...

so the batches of a step have, over all ranks, the samples that one rank with a batch of that size
would have.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sized
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import DistributedSampler

from readers.arguments import check_arguments
from readers.orders.arguments import RULES
from readers.orders.place import Place, Run
from readers.orders.ranks import check_ranks, ranks

if TYPE_CHECKING:
    from typing_extensions import Self

Remainder = Literal["pad", "drop", "keep"]

_CHUNK = 2**12
"""Indices worked out together; numpy's calls for a few of them take as long as for this many."""

SEED_END = 2**64


class OrderSampler(DistributedSampler[int]):
    """A sampler whose order is computed, by a rule that a subclass gives: `indices`.

    Each iteration is one epoch, and the next one has the next number; `set_epoch` is accepted, not
    needed. It goes into `make_loader`, a stock DataLoader or torchdata's StatefulDataLoader. To
    Lightning it is a DistributedSampler, so that it is not cut over ranks a second time.

    Args:
        size: Samples of the dataset, or the dataset.
        num_samples: Samples of an epoch, over all ranks. None: `size`.
        seed: Of the order, in [0, 2**64).
        rank: Number of this process among those that share an epoch. None asks torch.distributed
            each time it is needed; without a process group it is the only one.
        world_size: How many such processes there are. None asks in the same way.
        remainder: When the ranks cannot have equally many samples: "pad" gives some of them a
            sample that has come before, "drop" leaves the last samples of the epoch out, "keep"
            lets ranks differ by one, so that each sample comes once.

    Raises:
        TypeError: `size` is neither a number nor a dataset.
        ValueError: An argument is out of its range.
    """

    def __init__(
        self,
        size: int | Sized,
        *,
        num_samples: int | None = None,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        remainder: Remainder = "pad",
    ) -> None:
        check_arguments(type(self).__name__, RULES, locals())
        # Not DistributedSampler's own: it would settle rank and world size now, before Lightning
        # and others have made their processes.
        self.size = len(size) if isinstance(size, Sized) else int(size)
        self.count = self.size if num_samples is None else int(num_samples)
        if self.size < 0 or self.count < 0:
            raise ValueError(
                f"size and num_samples must be at least 0; got {self.size} and {self.count}"
            )
        if not 0 <= seed < SEED_END:
            raise ValueError(f"seed must be in [0, {SEED_END}); got {seed!r}")
        if remainder not in get_args(Remainder):
            raise ValueError(
                f"remainder must be one of {', '.join(get_args(Remainder))}; got {remainder!r}"
            )
        check_ranks(rank, world_size)
        self.seed = seed
        self.remainder: Remainder = remainder
        self.place = Place()
        self._ranks: tuple[int | None, int | None] = (rank, world_size)

    def indices(self, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The samples at some positions of an epoch: a pure function, which a subclass gives.

        Args:
            epoch: At least 0.
            positions: In [0, self.count).
        """
        raise NotImplementedError(f"{type(self).__name__} has no method indices()")

    @property
    def may_repeat(self) -> bool:
        """Whether a sample may come several times in an epoch, each time to be seen otherwise."""
        return False

    @property
    def keeps_neighbours(self) -> bool:
        """Whether samples that lie together in the store come within a part of the epoch.

        Then it pays to have first what that part needs.
        """
        return False

    def settings(self) -> str:
        """What the order follows from, besides the seed. A state is refused by another."""
        return f"{type(self).__name__} of {self.count} from {self.size}"

    @property
    def rank(self) -> int:  # type: ignore[override]
        """Number of this process."""
        return ranks(*self._ranks)[0]

    @property
    def num_replicas(self) -> int:  # type: ignore[override]
        """How many processes share an epoch: torch's name for the world size."""
        return ranks(*self._ranks)[1]

    @property
    def world_size_given(self) -> int | None:
        """How many processes share an epoch, as it was given; None where torch is asked."""
        return self._ranks[1]

    def of_rank(self, rank: int, world_size: int) -> Self:
        """The same order, for a rank that is given; it counts the same epochs."""
        order = copy.copy(self)
        order._ranks = (rank, world_size)
        return order

    @property
    def epoch(self) -> int:  # type: ignore[override]
        """The epoch of the next iteration."""
        return self.place.next_epoch

    @property
    def num_samples(self) -> int:  # type: ignore[override]
        """Samples of an epoch on this rank."""
        return self.share(self.count)

    def share(self, count: int) -> int:
        """How many of so many samples this rank gets."""
        rank, world_size = ranks(*self._ranks)
        if self.remainder == "drop":
            return count // world_size
        if self.remainder == "pad":
            return -(-count // world_size)
        return max(0, -(-(count - rank) // world_size))

    def taken(self, epoch: int, start: int, first: int, stop: int) -> NDArray[np.int64]:
        """The samples that this rank takes by turns; past the end those of the start come again.

        Args:
            epoch: Its number.
            start: Position from which on all ranks take turns.
            first: Number of the first turn asked for.
            stop: End of the turns asked for.
        """
        return self.indices(epoch, self.positions(start, first, stop) % self.count)

    def positions(self, start: int, first: int, stop: int) -> NDArray[np.int64]:
        """Where in the order of all ranks this rank takes its turns; see `taken`."""
        rank, world_size = ranks(*self._ranks)
        return start + rank + world_size * np.arange(first, stop, dtype=np.int64)

    def __len__(self) -> int:
        return self.num_samples

    def __iter__(self) -> Iterator[int]:
        return self._handed_out(self.place.begin_at_end(self.count))

    def _handed_out(self, run: Run | None) -> Iterator[int]:
        run = run or self.place.begin()
        start, world_size = run.position, self.num_replicas
        turns = self.share(self.count - start)
        for first in range(0, turns, _CHUNK):
            stop = min(first + _CHUNK, turns)
            indices = self.taken(run.epoch, start, first, stop).tolist()
            for turn, index in enumerate(indices, first):
                run.position = min(start + (turn + 1) * world_size, self.count)
                yield index

    def set_epoch(self, epoch: int) -> None:
        """Have the next iteration be the epoch of this number. Without it, they count up."""
        self.place.set_epoch(epoch)

    def identity(self) -> dict[str, Any]:
        """What a state must agree with to be of this order."""
        return {"seed": self.seed, "order": self.settings()}

    def state_dict(self) -> dict[str, Any]:
        """The place in the order: a few integers, the same on all ranks.

        It counts what this sampler handed out. A stock DataLoader with workers asks ahead of the
        loop; make_loader and StatefulDataLoader know what the loop got.
        """
        return self.place.state_dict(self.identity())

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Have the next iteration go on where a state was taken, on any number of ranks.

        Raises:
            ValueError: The state is of another order or seed.
        """
        self.place.load_state_dict(state_dict, self.identity())

    def __repr__(self) -> str:
        return f"{self.settings()}, seed {self.seed}"
