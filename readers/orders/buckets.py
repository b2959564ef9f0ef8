"""Batches of samples of one kind, such as images of about the same size."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch.utils.data import Sampler

from readers.arguments import check_arguments
from readers.chance.permutation import permuted, permuted_in_groups
from readers.chance.streams import Purpose
from readers.dataset import LMDBDataset
from readers.orders.arguments import RULES
from readers.orders.place import Place, Run
from readers.orders.ranks import check_ranks, ranks

_CHUNK = 2**12
"""Indices worked out together."""


class BucketBatchSampler(Sampler[list[int]]):
    """Batches whose samples are all of one bucket, the same bucket on all ranks at each step.

    A step's samples, over all ranks, depend on seed, epoch and its number alone. Each iteration is
    one epoch; what a bucket has beyond whole batches differs from epoch to epoch.

    Args:
        buckets: The bucket of each sample, whole numbers; see `size_buckets`.
        batch_size: Samples of a batch on each rank.
        shuffle: Whether samples and batches come in random order, anew in each epoch; else both
            come in the order of the dataset, bucket by bucket.
        drop_last: Whether a bucket's last batch that is not full is left out, on all ranks. Else it
            is filled up with samples of its bucket that have come before, so that all ranks have
            equally many batches, all full.
        seed: Of the order, in [0, 2**64).
        rank: Number of this process. None asks torch.distributed, each time it is needed.
        world_size: How many processes share an epoch. None asks in the same way.

    Raises:
        ValueError: An argument is out of its range.

    Example:
        >>> sampler = BucketBatchSampler([0, 1, 0, 1, 1, 0], 2, shuffle=False)
        >>> list(sampler)
        [[0, 2], [5, 0], [1, 3], [4, 1]]
    """

    def __init__(
        self,
        buckets: ArrayLike,
        batch_size: int,
        *,
        shuffle: bool = True,
        drop_last: bool = False,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        check_arguments(type(self).__name__, RULES, locals())
        array = np.asarray(buckets)
        if array.ndim != 1 or array.dtype.kind not in "iu" or not len(array):
            raise ValueError(
                f"buckets must be one whole number for each sample; got {array.dtype} {array.shape}"
            )
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1; got {batch_size!r}")
        if not 0 <= seed < 2**64:
            raise ValueError(f"seed must be in [0, {2**64}); got {seed!r}")
        check_ranks(rank, world_size)
        self.size = len(array)
        self.batch_size, self.shuffle, self.drop_last = batch_size, shuffle, drop_last
        self.seed = seed
        self.place = Place()
        self._ranks: tuple[int | None, int | None] = (rank, world_size)
        self._by_bucket = np.argsort(array, kind="stable")
        _, self._counts = np.unique(array, return_counts=True)
        self._starts = np.cumsum(self._counts) - self._counts
        self._digest = blake2b(array.astype(np.int64).tobytes(), digest_size=8).hexdigest()

    def ranks(self) -> tuple[int, int]:
        """Rank and world size."""
        return ranks(*self._ranks)

    @property
    def world_size_given(self) -> int | None:
        """How many processes share an epoch, as it was given; None where torch is asked."""
        return self._ranks[1]

    def of_rank(self, rank: int, world_size: int) -> BucketBatchSampler:
        """The same order, for a rank that is given; it counts the same epochs."""
        order = copy.copy(self)
        order._ranks = (rank, world_size)
        return order

    @property
    def epoch(self) -> int:
        """The epoch of the next iteration."""
        return self.place.next_epoch

    @property
    def step(self) -> int:
        """Samples of a batch over all ranks."""
        return self.batch_size * self.ranks()[1]

    def _batch_counts(self) -> NDArray[np.int64]:
        """Batches of each bucket."""
        counts = self._counts if self.drop_last else self._counts + self.step - 1
        whole: NDArray[np.int64] = counts // self.step
        return whole

    @property
    def end(self) -> int:
        """Position at the end of an epoch: full batches, over all ranks."""
        return len(self) * self.step

    def __len__(self) -> int:
        return int(self._batch_counts().sum())

    def begin(self) -> Run:
        """A new iteration begins."""
        return self.place.begin()

    def parts(self, epoch: int, position: int) -> Iterator[NDArray[np.int64]]:
        """The indices of each batch of this rank, from a position on."""
        chunk = max(1, _CHUNK // self.batch_size)
        for first in range(position // self.step, len(self), chunk):
            yield from self._batches(epoch, np.arange(first, min(first + chunk, len(self))))

    def _batches(self, epoch: int, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Some batches of this rank by their numbers, (batch, sample)."""
        rank, world_size = self.ranks()
        if self.shuffle:
            numbers = permuted(
                numbers, len(self), seed=self.seed, epoch=epoch, purpose=Purpose.BUCKET_BATCHES
            )
        batch_counts = self._batch_counts()
        ends = np.cumsum(batch_counts)
        bucket = np.searchsorted(ends, numbers, side="right")
        start = (numbers - (ends - batch_counts)[bucket]) * self.step + rank
        turns = np.arange(self.batch_size) * world_size
        # Past the end of a bucket its first samples come again.
        members = ((start[:, None] + turns) % self._counts[bucket][:, None]).reshape(-1)
        bucket = np.repeat(bucket, self.batch_size)
        if self.shuffle:
            members = permuted_in_groups(
                members,
                self._counts[bucket],
                bucket,
                seed=self.seed,
                epoch=epoch,
                purpose=Purpose.BUCKET_MEMBERS,
            )
        indices = self._by_bucket[self._starts[bucket] + members]
        return indices.reshape(len(numbers), self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        return self._handed_out(self.place.begin_at_end(self.end))

    def _handed_out(self, run: Run | None) -> Iterator[list[int]]:
        run = run or self.place.begin()
        for indices in self.parts(run.epoch, run.position):
            run.position += self.step
            yield indices.tolist()

    def set_epoch(self, epoch: int) -> None:
        """Have the next iteration be the epoch of this number. Without it, they count up."""
        self.place.set_epoch(epoch)

    def identity(self) -> dict[str, Any]:
        """What a state must agree with to be of this order."""
        how = "shuffled" if self.shuffle else "in order"
        last = "dropped" if self.drop_last else "filled"
        order = f"{type(self).__name__} of {self.size}, {how}, last {last}, {self._digest}"
        return {"seed": self.seed, "order": f"{order}, {self.step} a step"}

    def state_dict(self) -> dict[str, Any]:
        """The place in the order; see `OrderSampler.state_dict`."""
        return self.place.state_dict(self.identity())

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Have the next iteration go on where a state was taken.

        Raises:
            ValueError: The state is of another order, seed or batch size over all ranks.
        """
        self.place.load_state_dict(state_dict, self.identity())


def size_buckets(
    dataset: LMDBDataset,
    *,
    ratios: Sequence[float] | None = (1.0,),
    areas: Sequence[float] | None = None,
    field: str = "image",
) -> NDArray[np.int64]:
    """The bucket of each image by its aspect ratio and area, from the index: no image is read.

    Args:
        dataset: With an image field.
        ratios: Limits between buckets of width / height, increasing; (1.0,) parts upright images
            from wide ones. None: no limits, but a bucket for each size that there is.
        areas: Limits between buckets of width x height in pixels, increasing. None: any area.
        field: Name of the image field.

    Returns:
        (sample,) int64, for `BucketBatchSampler`.

    Raises:
        ValueError: Limits do not increase, or areas are given where each size is a bucket.
        SchemaMismatchError: There is no such field.
    """
    for name, limits in (("ratios", ratios), ("areas", areas)):
        if limits is not None and any(np.diff(limits) <= 0):
            raise ValueError(f"{name} must increase; got {limits!r}")
    height, width = (_side(dataset, field, place) for place in (0, 1))
    if ratios is None:
        if areas is not None:
            raise ValueError("areas go with ratios; without, each size is a bucket")
        sizes = np.stack([height, width], axis=1)
        return np.unique(sizes, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
    buckets = np.searchsorted(ratios, width / height, side="right")
    if areas is not None:
        buckets = buckets * (len(areas) + 1) + np.searchsorted(areas, width * height, side="right")
    return buckets.astype(np.int64)


def _side(dataset: LMDBDataset, field: str, place: int) -> NDArray[np.int64]:
    """Height (0) or width (1) of each image."""
    if field in dataset.schema:
        side = dataset.schema[field].shape[place]
        if side is not None:  # The index has no column of what is the same for all.
            return np.full(len(dataset), side, np.int64)
    name = ("height", "width")[place]
    return dataset.columns[f"{field}.{name}"].astype(np.int64)
