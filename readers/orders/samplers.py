"""The orders of an epoch, as samplers for any DataLoader: index arithmetic, no I/O."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch.utils.data import ConcatDataset, Subset

from readers.arguments import check_arguments
from readers.chance.permutation import permuted
from readers.chance.streams import Purpose
from readers.dataset import LMDBDataset
from readers.orders.arguments import RULES
from readers.orders.blocks import block_shuffled
from readers.orders.mixing import counts_of, mixed
from readers.orders.order_sampler import OrderSampler, Remainder
from readers.orders.weighted import checked_weights, drawn, drawn_once


class SequentialSampler(OrderSampler):
    """One sample after the other, in the order of the dataset.

    For evaluation on several ranks with each sample once, pass remainder="keep".
    """

    def indices(self, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The positions themselves."""
        return positions % self.size

    @property
    def keeps_neighbours(self) -> bool:
        """They come one after the other."""
        return True


class ShuffleSampler(OrderSampler):
    """All samples in random order: an exact shuffle that takes no memory.

    With `num_samples`, an epoch is that long, and begins where the one before stopped: no sample
    comes again before each has come once.

    Example:
        >>> list(ShuffleSampler(10, seed=0))
        [3, 9, 7, 6, 0, 4, 5, 2, 1, 8]
        >>> list(ShuffleSampler(10, seed=0, rank=1, world_size=2))
        [9, 6, 4, 2, 8]
    """

    def indices(self, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The samples at some positions of an epoch."""
        if self.count == self.size:
            return permuted(
                positions, self.size, seed=self.seed, epoch=epoch, purpose=Purpose.SHUFFLE
            )
        sizes, counts = np.array([self.size]), np.array([self.count])
        return mixed(positions, sizes, counts, seed=self.seed, epoch=epoch)


class BlockShuffleSampler(OrderSampler):
    """All samples, each once, in blocks of neighbours, for stores larger than memory.

    Blocks come in random order, and all samples of some blocks are mixed; see `orders.blocks`.
    What is read at a time is `window` x `lanes` blocks. It pays where each read has its price, as
    on a file server: 64 batches of 256 lie in some pieces instead of in 16,115. From a local SSD
    an exact shuffle is as fast. It mixes less where neighbours are alike. Of 1000 classes of 1000
    neighbours each, batches of 256 have (scripts/bench_orders.py):

        order                     classes   pairs of neighbours   pieces of 64 batches
        exact shuffle                 226                   1 x                 16,115
        16 x 1024 blocks              205                   3 x                  1,017
        64 x 256 blocks               152                   8 x                    261
        256 x 64 blocks, default       70                  31 x                     72
        1024 x 16 blocks               30                  54 x                     25

    Args:
        size: Samples of the dataset, or the dataset: in the order of its store.
        block_size: Neighbours that stay together.
        window: Blocks that are mixed with each other. More of them, or smaller ones, shuffle
            better.
        lanes: Windows that are open at a time. With as many as there are ranks, or a multiple,
            each rank reads blocks that no other rank does. It is part of the order: keep it when
            the number of ranks changes.
        seed: See `OrderSampler`, as for the rest.
        rank: Number of this process.
        world_size: How many processes share an epoch.
        remainder: What is done when the ranks cannot have equally many samples.

    Raises:
        ValueError: An argument is out of its range.
    """

    def __init__(
        self,
        size: int | Sized,
        *,
        block_size: int = 256,
        window: int = 64,
        lanes: int = 1,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        remainder: Remainder = "pad",
    ) -> None:
        check_arguments(type(self).__name__, RULES, locals())
        super().__init__(size, seed=seed, rank=rank, world_size=world_size, remainder=remainder)
        if min(block_size, window, lanes) < 1:
            raise ValueError(
                "block_size, window and lanes must be at least 1; "
                f"got {block_size!r}, {window!r} and {lanes!r}"
            )
        self.block_size, self.window, self.lanes = block_size, window, lanes

    def indices(self, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The samples at some positions of an epoch."""
        return block_shuffled(
            positions,
            self.size,
            block_size=self.block_size,
            window=self.window,
            lanes=self.lanes,
            seed=self.seed,
            epoch=epoch,
        )

    @property
    def keeps_neighbours(self) -> bool:
        """Blocks of them do."""
        return True

    def settings(self) -> str:
        """What the order follows from, besides the seed."""
        shape = f"blocks of {self.block_size}, window {self.window}, lanes {self.lanes}"
        return f"{super().settings()} in {shape}"


class WeightedSampler(OrderSampler):
    """Samples drawn in proportion to their weights.

    Args:
        weights: One for each sample, at least 0; they need not sum to 1.
        num_samples: Samples of an epoch. None: as many as there are weights; without replacement,
            as many as there are weights above 0.
        replacement: Whether each draw is independent of the others, so that a sample may come
            again in an epoch. Without, each comes once at most, heavier ones sooner; an epoch then
            begins with a pass over all weights.
        seed: See `OrderSampler`, as for the rest.
        rank: Number of this process.
        world_size: How many processes share an epoch.
        remainder: What is done when the ranks cannot have equally many samples.

    Raises:
        ValueError: A weight is negative or not finite, all are 0, or, without replacement, an
            epoch is longer than there are weights above 0.

    Example:
        >>> dataset = LMDBDataset("shapes.lmdb")
        >>> weights = np.where(dataset.columns["label"] == 1, 3.0, 1.0)
        >>> sampler = WeightedSampler(weights, seed=0)
    """

    def __init__(
        self,
        weights: ArrayLike,
        num_samples: int | None = None,
        replacement: bool = True,
        *,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        remainder: Remainder = "pad",
    ) -> None:
        check_arguments(type(self).__name__, RULES, locals())
        self.weights = checked_weights(weights)
        candidate_count = int(np.count_nonzero(self.weights))
        if not replacement:
            num_samples = candidate_count if num_samples is None else num_samples
            if num_samples > candidate_count:
                raise ValueError(
                    f"num_samples is {num_samples}, but only {candidate_count} samples have a "
                    "weight above 0, and without replacement each comes once at most"
                )
        super().__init__(
            len(self.weights),
            num_samples=num_samples,
            seed=seed,
            rank=rank,
            world_size=world_size,
            remainder=remainder,
        )
        self.replacement = replacement
        self._cumulative = np.cumsum(self.weights)
        self._digest = _digest(self.weights)
        self._epoch_order: tuple[int, NDArray[np.int64]] | None = None

    def indices(self, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The samples at some positions of an epoch."""
        if self.replacement:
            return drawn(self._cumulative, positions, seed=self.seed, epoch=epoch)
        if self._epoch_order is None or self._epoch_order[0] != epoch:
            order = drawn_once(self.weights, self.count, seed=self.seed, epoch=epoch)
            self._epoch_order = epoch, order
        return self._epoch_order[1][positions]

    @property
    def may_repeat(self) -> bool:
        """Whether a sample may come several times in an epoch."""
        return self.replacement

    def settings(self) -> str:
        """What the order follows from, besides the seed."""
        how = "with" if self.replacement else "without"
        return f"{super().settings()}, {how} replacement, weights {self._digest}"


class ClassBalancedSampler(OrderSampler):
    """As many samples of each class.

    Without replacement, an epoch has as many of each class to within one, and a class is gone
    through before any of its samples comes again, from one epoch to the next. With replacement,
    each draw is independent, as with weights of 1 / size of the class.

    Args:
        labels: The class of each sample; or a dataset whose index has them in a column (see
            `labels_of`), so that no image is read.
        num_samples: Samples of an epoch. None: as many as there are samples.
        replacement: Whether draws are independent.
        seed: See `OrderSampler`, as for the rest.
        rank: Number of this process.
        world_size: How many processes share an epoch.
        remainder: What is done when the ranks cannot have equally many samples.

    Raises:
        ValueError: There are no labels, or an argument is out of its range.

    Example:
        >>> dataset = LMDBDataset("shapes.lmdb")
        >>> sampler = ClassBalancedSampler(dataset, seed=0)
    """

    def __init__(
        self,
        labels: ArrayLike | Sized,
        num_samples: int | None = None,
        replacement: bool = False,
        *,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        remainder: Remainder = "pad",
    ) -> None:
        check_arguments(type(self).__name__, RULES, locals())
        values = labels_of(labels)
        super().__init__(
            len(values),
            num_samples=num_samples,
            seed=seed,
            rank=rank,
            world_size=world_size,
            remainder=remainder,
        )
        if not len(values):
            raise ValueError("there are no labels, so there is no class to draw from")
        _, class_of, self._sizes = np.unique(values, return_inverse=True, return_counts=True)
        self.replacement = replacement
        self._digest = _digest(class_of)
        self._cumulative = np.cumsum(1.0 / self._sizes[class_of])
        self._counts = counts_of(np.ones(len(self._sizes)), self.count)
        self._by_class = np.argsort(class_of, kind="stable")

    def indices(self, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The samples at some positions of an epoch."""
        if self.replacement:
            return drawn(self._cumulative, positions, seed=self.seed, epoch=epoch)
        places = mixed(positions, self._sizes, self._counts, seed=self.seed, epoch=epoch)
        return self._by_class[places]

    @property
    def may_repeat(self) -> bool:
        """Whether a sample may come several times in an epoch."""
        return True

    def settings(self) -> str:
        """What the order follows from, besides the seed."""
        how = "with" if self.replacement else "without"
        return f"{super().settings()}, {how} replacement, labels {self._digest}"


class MixtureSampler(OrderSampler):
    """Samples of several datasets, each with a share of its own: for a `ConcatDataset` of them.

    An epoch has exactly as many samples of each dataset as its share says, at random places. A
    dataset is gone through before any of its samples comes again, from one epoch to the next.

    Args:
        sizes: Samples of each dataset, or the torch `ConcatDataset` of them.
        proportions: Share of each dataset in an epoch, such as [0.7, 0.3]; they need not sum to 1.
        counts: Or: samples of each dataset in an epoch.
        repeats: Or: how often an epoch goes through each dataset, such as [1, 2.5].
        num_samples: Samples of an epoch, with `proportions`. None: as many as there are samples.
        seed: See `OrderSampler`, as for the rest.
        rank: Number of this process.
        world_size: How many processes share an epoch.
        remainder: What is done when the ranks cannot have equally many samples.

    Raises:
        ValueError: Not one of the three ways was given, or not one number for each dataset.

    Example:
        >>> dataset = LMDBDataset("shapes.lmdb")
        >>> both = ConcatDataset([dataset, dataset.select(range(10))])
        >>> sampler = MixtureSampler(both, proportions=[0.9, 0.1], num_samples=1000)
    """

    def __init__(
        self,
        sizes: Sequence[int] | ConcatDataset[Any],
        *,
        proportions: Sequence[float] | None = None,
        counts: Sequence[int] | None = None,
        repeats: Sequence[float] | None = None,
        num_samples: int | None = None,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        remainder: Remainder = "pad",
    ) -> None:
        check_arguments(type(self).__name__, RULES, locals())
        if isinstance(sizes, ConcatDataset):
            sizes = [len(part) for part in sizes.datasets]  # type: ignore[arg-type]
        self._sizes = np.array(sizes, np.int64)
        ways = {"proportions": proportions, "counts": counts, "repeats": repeats}
        given = {name: way for name, way in ways.items() if way is not None}
        if len(given) != 1:
            raise ValueError(
                "give one of proportions, counts and repeats; "
                f"got {' and '.join(given) or 'none of them'}"
            )
        ((name, way),) = given.items()
        shares = np.asarray(way, np.float64)
        if shares.shape != self._sizes.shape or not (np.isfinite(shares) & (shares >= 0)).all():
            raise ValueError(
                f"{name} must be {len(self._sizes)} numbers, one for each dataset, at least 0; "
                f"got {way!r}"
            )
        if num_samples is not None and proportions is None:
            raise ValueError(f"num_samples goes with proportions; {name} says how many there are")
        if not shares.any():
            raise ValueError(f"{name} are all 0, so there is nothing to draw")
        if proportions is not None:
            total = int(self._sizes.sum()) if num_samples is None else num_samples
            self._counts = counts_of(shares, total)
        else:
            each = shares if repeats is None else shares * self._sizes
            self._counts = np.rint(each).astype(np.int64)
        empty = (self._sizes == 0) & (self._counts > 0)
        if empty.any():
            raise ValueError(
                f"dataset {int(empty.argmax())} has no sample to draw; got {name}={way!r}"
            )
        super().__init__(
            int(self._sizes.sum()),
            num_samples=int(self._counts.sum()),
            seed=seed,
            rank=rank,
            world_size=world_size,
            remainder=remainder,
        )

    def indices(self, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The samples at some positions of an epoch, as a `ConcatDataset` numbers them."""
        return mixed(positions, self._sizes, self._counts, seed=self.seed, epoch=epoch)

    @property
    def may_repeat(self) -> bool:
        """Whether a sample may come several times in an epoch."""
        return True

    def settings(self) -> str:
        """What the order follows from, besides the seed."""
        parts = f"{self._counts.tolist()} from {self._sizes.tolist()}"
        return f"{type(self).__name__} of {parts}"


def labels_of(labels: Any, column: str = "label") -> NDArray[Any]:
    """The label of each sample, from the index of a store: no record is read.

    Args:
        labels: An LMDBDataset; a torch Subset or ConcatDataset of such; or the labels themselves.
        column: Name of the column.

    Raises:
        SchemaMismatchError: A store has no such column.
        ValueError: What is given is not one label for each sample.
    """
    if isinstance(labels, LMDBDataset):
        return labels.columns[column]
    if isinstance(labels, Subset):
        return labels_of(labels.dataset, column)[np.asarray(labels.indices, np.int64)]
    if isinstance(labels, ConcatDataset):
        return np.concatenate([labels_of(part, column) for part in labels.datasets])
    array = labels.numpy() if isinstance(labels, torch.Tensor) else np.asarray(labels)
    if array.ndim != 1 or array.dtype == object:
        raise ValueError(
            f"labels must be one for each sample, or a dataset with a column {column!r}; "
            f"got {type(labels).__name__}"
        )
    return array


def _digest(values: NDArray[Any]) -> str:
    return blake2b(np.ascontiguousarray(values).tobytes(), digest_size=8).hexdigest()
