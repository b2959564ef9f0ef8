"""Batches of one bucket, the same bucket on all ranks, each sample in its turn."""

from __future__ import annotations

import numpy as np
import pytest
from torch.utils.data import DataLoader

from readers.dataset import LMDBDataset
from readers.orders.buckets import BucketBatchSampler, size_buckets
from readers.store.errors import SchemaMismatchError
from readers.store.schema import Field

BUCKETS = np.array([0] * 13 + [7] * 5 + [2] * 24)[np.random.default_rng(0).permutation(42)]


def steps_of(batch_size, world_size, **settings):
    """The batches of each step: for each a list over ranks."""
    ranks = [
        list(BucketBatchSampler(BUCKETS, batch_size, rank=r, world_size=world_size, **settings))
        for r in range(world_size)
    ]
    return list(zip(*ranks, strict=True))


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize(("batch_size", "world_size"), [(12, 1), (6, 2), (4, 3), (3, 4)])
def test_a_step_is_the_same_on_any_number_of_ranks(batch_size, world_size, drop_last):
    """All of one bucket, all full; what does not fill a batch is dropped, or filled up with samples
    of its bucket."""
    steps = steps_of(batch_size, world_size, seed=3, drop_last=drop_last)
    assert len(steps) == (1 + 0 + 2 if drop_last else 2 + 1 + 2)
    alone = steps_of(12, 1, seed=3, drop_last=drop_last)
    seen = []
    for step, (whole,) in zip(steps, alone, strict=True):
        assert [len(batch) for batch in step] == [batch_size] * world_size
        together = [index for turn in zip(*step, strict=True) for index in turn]
        assert together == whole
        assert len(set(BUCKETS[together])) == 1
        seen += together
    if drop_last:
        assert len(set(seen)) == len(seen)
    else:
        assert set(seen) == set(range(42))


def test_each_iteration_is_the_next_epoch():
    """Other samples together, other batches first, and others dropped."""
    sampler = BucketBatchSampler(BUCKETS, 4, drop_last=True)
    assert len(sampler) == 3 + 1 + 6
    epochs = [list(sampler) for _ in range(3)]
    assert len({str(epoch) for epoch in epochs}) == 3
    assert len({tuple(BUCKETS[[batch[0] for batch in epoch]]) for epoch in epochs}) == 3
    dropped = [set(range(42)) - {at for batch in epoch for at in batch} for epoch in epochs]
    assert len({frozenset(each) for each in dropped}) == 3
    sampler.set_epoch(1)
    assert sampler.epoch == 1
    assert list(sampler) == epochs[1]


def test_without_shuffle_all_comes_in_order():
    """Bucket by bucket, in the order of the dataset."""
    sampler = BucketBatchSampler([1, 0, 1, 0, 1, 0, 0], 2, shuffle=False)
    assert list(sampler) == [[1, 3], [5, 6], [0, 2], [4, 0]]
    assert list(sampler) == [[1, 3], [5, 6], [0, 2], [4, 0]]


def test_it_goes_on_where_it_was_left():
    """At every batch, on another number of ranks with the same batch over all of them."""
    whole = steps_of(6, 2, seed=1)
    for done in range(len(whole) + 1):
        sampler = BucketBatchSampler(BUCKETS, 12, seed=1, rank=0, world_size=1)
        iterator = iter(sampler)
        for _ in range(done):
            next(iterator)
        state = sampler.state_dict()
        assert (state["epoch"], state["position"]) == (0, 12 * done)
        for rank in range(2):
            resumed = BucketBatchSampler(BUCKETS, 6, seed=1, rank=rank, world_size=2)
            resumed.load_state_dict(state)
            assert list(resumed) == [step[rank] for step in whole[done:]]
            resumed_next = list(resumed)
            other = BucketBatchSampler(BUCKETS, 6, seed=1, rank=rank, world_size=2)
            other.set_epoch(1)
            assert resumed_next == list(other)
    for other in (
        BucketBatchSampler(BUCKETS, 5, seed=1),
        BucketBatchSampler(BUCKETS, 12, seed=1, drop_last=True),
        BucketBatchSampler(BUCKETS, 12, seed=1, shuffle=False),
        BucketBatchSampler(BUCKETS[::-1], 12, seed=1),
        BucketBatchSampler(BUCKETS, 12, seed=2),
    ):
        with pytest.raises(ValueError, match=r"the state was taken with (order|seed)"):
            other.load_state_dict(state)


@pytest.fixture(scope="module")
def sized(tmp_path_factory, write_store):
    """Images of (height, width) (2, 4), (4, 2), (4, 4), (8, 2), (2, 4), (3, 4)."""
    field = Field(name="image", kind="image", dtype="uint8", shape=(None, None, 3), codec="raw")
    sizes = [(2, 4), (4, 2), (4, 4), (8, 2), (2, 4), (3, 4)]
    samples = [{"image": np.full((*size, 3), at, np.uint8)} for at, size in enumerate(sizes)]
    path = tmp_path_factory.mktemp("stores") / "sized.lmdb"
    return LMDBDataset(write_store(path, [field], samples))


def test_buckets_follow_from_the_sizes_in_the_index(sized, shapes):
    """By the aspect ratio, the area too, or a bucket for each size."""
    assert size_buckets(sized).tolist() == [1, 0, 1, 0, 1, 1]
    assert size_buckets(sized, ratios=(0.3, 1.1)).tolist() == [2, 1, 1, 0, 2, 2]
    assert size_buckets(sized, areas=(9, 16)).tolist() == [3, 0, 5, 2, 3, 4]
    exact = size_buckets(sized, ratios=None)
    assert exact.dtype == np.int64
    assert exact[0] == exact[4]
    assert len(set(exact.tolist())) == 5
    assert size_buckets(LMDBDataset(shapes.path)).tolist() == [1] * 12
    with pytest.raises(ValueError, match=r"ratios must increase; got \(2, 1\)"):
        size_buckets(sized, ratios=(2, 1))
    with pytest.raises(ValueError, match="areas go with ratios"):
        size_buckets(sized, ratios=None, areas=(5,))
    with pytest.raises(SchemaMismatchError, match=r"no column 'photo.height'"):
        size_buckets(sized, field="photo")


def test_a_stock_dataloader_stacks_images_of_one_size(sized):
    """Which it cannot when sizes differ within a batch."""
    sampler = BucketBatchSampler(size_buckets(sized, ratios=None), 2, drop_last=True)
    (batch,) = list(DataLoader(sized, batch_sampler=sampler))
    assert batch["image"].shape == (2, 3, 2, 4)
    assert sorted(batch["image"][:, 0, 0, 0].tolist()) == [0, 4]


@pytest.mark.parametrize(
    ("buckets", "settings", "message"),
    [
        ([0.5, 1], {}, "one whole number for each sample; got float64"),
        ([], {}, "one whole number for each sample"),
        ([1], {"batch_size": 0}, "batch_size must be at least 1; got 0"),
        ([1], {"seed": -1}, "seed must be in"),
        ([1], {"rank": 3, "world_size": 2}, r"rank must be in \[0, 2\); got 3"),
    ],
)
def test_what_makes_no_batches_is_an_error(buckets, settings, message):
    """At once, with the argument and what was given."""
    with pytest.raises(ValueError, match=message):
        BucketBatchSampler(buckets, **{"batch_size": 1, **settings})
