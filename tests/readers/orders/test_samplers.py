"""An order is the same for any number of ranks, and goes on where it was left."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import ConcatDataset, DistributedSampler, Subset

from readers.dataset import LMDBDataset
from readers.orders.order_sampler import OrderSampler
from readers.orders.samplers import (
    BlockShuffleSampler,
    ClassBalancedSampler,
    MixtureSampler,
    SequentialSampler,
    ShuffleSampler,
    WeightedSampler,
    labels_of,
)
from readers.store.errors import SchemaMismatchError

WEIGHTS = np.arange(50) % 7
LABELS = np.array([0] * 40 + [1] * 7 + [5] * 3)

SAMPLERS = {
    "sequential": lambda **s: SequentialSampler(50, **s),
    "shuffle": lambda **s: ShuffleSampler(50, **s),
    "short shuffle": lambda **s: ShuffleSampler(50, num_samples=20, **s),
    "long shuffle": lambda **s: ShuffleSampler(50, num_samples=120, **s),
    "blocks": lambda **s: BlockShuffleSampler(50, block_size=4, window=3, **s),
    "weighted": lambda **s: WeightedSampler(WEIGHTS, **s),
    "weighted, once": lambda **s: WeightedSampler(WEIGHTS, 30, False, **s),
    "balanced": lambda **s: ClassBalancedSampler(LABELS, **s),
    "balanced, replaced": lambda **s: ClassBalancedSampler(LABELS, 60, True, **s),
    "mixture": lambda **s: MixtureSampler([20, 30], proportions=[3, 1], **s),
}
every_kind = pytest.mark.parametrize("make", SAMPLERS.values(), ids=SAMPLERS)


@every_kind
def test_each_iteration_is_the_next_epoch(make):
    """Without a call of anybody; and the same again for the same seed. It is cut already, to all
    who ask whether it is torch's DistributedSampler."""
    sampler, again = make(seed=3), make(seed=3)
    assert isinstance(sampler, DistributedSampler)
    epochs = [list(sampler) for _ in range(3)]
    assert [len(epoch) for epoch in epochs] == [len(sampler)] * 3
    assert epochs == [list(again) for _ in range(3)]
    assert all(0 <= index < 50 and type(index) is int for epoch in epochs for index in epoch)
    is_plain = isinstance(sampler, SequentialSampler)
    assert len({tuple(epoch) for epoch in [*epochs, list(make(seed=4))]}) == (1 if is_plain else 4)
    again.set_epoch(1)
    assert again.epoch == 1
    assert list(again) == epochs[1]
    assert list(again) == epochs[2]
    with pytest.raises(ValueError, match="epoch must be at least 0; got -1"):
        again.set_epoch(-1)


@every_kind
@pytest.mark.parametrize("world_size", [2, 3, 4, 7])
def test_ranks_take_turns_in_one_order(make, world_size):
    """What they have together is the order of a single one: none lost, none twice."""
    sampler = make(seed=1)
    whole = list(sampler)
    ranks = [make(seed=1, rank=r, world_size=world_size) for r in range(world_size)]
    kept = [
        make(seed=1, rank=r, world_size=world_size, remainder="keep") for r in range(world_size)
    ]
    dropped = [
        make(seed=1, rank=r, world_size=world_size, remainder="drop") for r in range(world_size)
    ]
    for rank in range(world_size):
        turns = whole[rank::world_size]
        assert list(kept[rank]) == turns
        assert len(kept[rank]) == len(turns)
        assert list(dropped[rank]) == turns[: len(whole) // world_size]
        padded = list(ranks[rank])
        assert padded == (whole + whole)[rank::world_size][: -(-len(whole) // world_size)]
        assert len(ranks[rank]) == len(padded) == ranks[0].num_samples
        assert (ranks[rank].rank, ranks[rank].num_replicas) == (rank, world_size)


@every_kind
def test_it_goes_on_where_it_was_left(make):
    """At every step, on any number of ranks: a few numbers and a name, the same on all ranks."""
    whole = list(make(seed=2))
    count = make().count
    for done in range(0, count // 2):
        states = []
        for rank in range(2):
            sampler = make(seed=2, rank=rank, world_size=2)
            iterator = iter(sampler)
            for _ in range(done):
                next(iterator)
            states.append(sampler.state_dict())
        assert states[0] == states[1]
        assert (states[0]["epoch"], states[0]["position"]) == (0, 2 * done)
        if done % 7:
            continue
        rest = []
        for rank in range(3):
            sampler = make(seed=2, rank=rank, world_size=3, remainder="keep")
            sampler.load_state_dict(states[0])
            assert sampler.state_dict() == states[0]
            rest.append(list(sampler))
        for rank in range(3):
            assert rest[rank] == whole[2 * done :][rank::3]
        follower = make(seed=2)
        follower.load_state_dict(states[0])
        list(follower)
        next_epoch = make(seed=2)
        next_epoch.set_epoch(1)
        assert list(follower) == list(next_epoch)


def test_a_state_of_the_last_sample_goes_on_with_nothing():
    """And then with the next epoch; on two ranks and padded too."""
    for rank in range(2):
        sampler = ShuffleSampler(5, rank=rank, world_size=2)
        first = list(sampler)
        assert len(first) == 3
        resumed = ShuffleSampler(5, rank=rank, world_size=2)
        resumed.load_state_dict(sampler.state_dict())
        assert list(resumed) == []
        assert list(resumed) == list(sampler) != first


@every_kind
def test_a_state_of_another_order_is_refused(make):
    """With what it was taken with and what is here: of its place nothing could be said."""
    state = make(seed=2).state_dict()
    with pytest.raises(ValueError, match="taken with seed 2; here it is 3, so its place means"):
        make(seed=3).load_state_dict(state)
    for other in SAMPLERS.values():
        if other is not make:
            with pytest.raises(ValueError, match=r"taken with order '.*'; here it is '"):
                other(seed=2).load_state_dict(state)


def test_other_settings_make_another_order():
    """Each of them; also weights that are as many but others."""
    pairs = [
        (ShuffleSampler(50), ShuffleSampler(51)),
        (ShuffleSampler(50), ShuffleSampler(50, num_samples=49)),
        (BlockShuffleSampler(50, lanes=2), BlockShuffleSampler(50)),
        (BlockShuffleSampler(50, window=2), BlockShuffleSampler(50)),
        (BlockShuffleSampler(50, block_size=2), BlockShuffleSampler(50)),
        (WeightedSampler(WEIGHTS), WeightedSampler(WEIGHTS + 1)),
        (WeightedSampler(WEIGHTS + 1), WeightedSampler(WEIGHTS + 1, replacement=False)),
        (ClassBalancedSampler(LABELS), ClassBalancedSampler(LABELS[::-1])),
        (ClassBalancedSampler(LABELS), ClassBalancedSampler(LABELS, replacement=True)),
        (MixtureSampler([20, 30], counts=[1, 2]), MixtureSampler([20, 30], counts=[2, 1])),
        (MixtureSampler([20, 30], counts=[1, 2]), MixtureSampler([30, 20], counts=[1, 2])),
    ]
    for one, other in pairs:
        with pytest.raises(ValueError, match="taken with order"):
            other.load_state_dict(one.state_dict())
    with pytest.raises(ValueError, match="the state has no 'position': it has 'version', 'epoch'"):
        ShuffleSampler(5).load_state_dict({"version": 1, "epoch": 2})
    with pytest.raises(ValueError, match="taken with version 2; here it is 1"):
        ShuffleSampler(5).load_state_dict({**ShuffleSampler(5).state_dict(), "version": 2})


@given(st.integers(1, 60), st.integers(1, 9))
def test_samplers_of_any_size_visit_each_sample_once(size, world_size):
    """Over all ranks, if none is padded or dropped."""
    for kind in (SequentialSampler, ShuffleSampler, BlockShuffleSampler):
        samplers = [
            kind(size, rank=rank, world_size=world_size, remainder="keep")
            for rank in range(world_size)
        ]
        parts = [list(sampler) for sampler in samplers]
        assert [len(part) for part in parts] == [len(sampler) for sampler in samplers]
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
        assert sorted(index for part in parts for index in part) == list(range(size))


def test_ten_samples_on_four_ranks():
    """Three, three, two and two; or three each, the first two again."""

    def parts(remainder):
        return [
            list(SequentialSampler(10, rank=rank, world_size=4, remainder=remainder))
            for rank in range(4)
        ]

    assert parts("keep") == [[0, 4, 8], [1, 5, 9], [2, 6], [3, 7]]
    assert parts("pad") == [[0, 4, 8], [1, 5, 9], [2, 6, 0], [3, 7, 1]]
    assert parts("drop") == [[0, 4], [1, 5], [2, 6], [3, 7]]


def test_a_thousand_million_samples_are_ready_at_once():
    """No table is made: the first indices are there without the others."""
    iterator = iter(ShuffleSampler(10**9, rank=5, world_size=8))
    first = [next(iterator) for _ in range(1000)]
    assert len(set(first)) == 1000
    assert len(pickle.dumps(ShuffleSampler(10**9))) < 2000


def test_the_user_s_own_order_is_elastic_and_resumable_too():
    """It gives one function of epoch and positions."""

    class Backwards(OrderSampler):
        def indices(self, epoch, positions):
            return self.size - 1 - positions

    assert list(Backwards(5)) == [4, 3, 2, 1, 0]
    assert list(Backwards(5, rank=1, world_size=2, remainder="keep")) == [3, 1]
    sampler = Backwards(5)
    sampler.load_state_dict({**Backwards(5).state_dict(), "position": 3})
    assert list(sampler) == [1, 0]
    with pytest.raises(NotImplementedError, match="OrderSampler has no method indices"):
        list(OrderSampler(3))


def test_a_short_shuffle_goes_through_everything_over_epochs():
    """20 of 50 at a time: after five epochs each was there twice."""
    sampler = ShuffleSampler(50, num_samples=20)
    seen = np.bincount([index for _ in range(5) for index in sampler], minlength=50)
    assert seen.tolist() == [2] * 50


def test_weighted_samples_come_by_weight():
    """Within three sigma over epochs, whichever rank they go to; weight 0 never."""
    parts = [WeightedSampler(WEIGHTS, 10_000, rank=r, world_size=2, seed=5) for r in range(2)]
    shares = WEIGHTS / WEIGHTS.sum()
    for part in parts:
        counts = np.bincount([index for _ in range(2) for index in part], minlength=50)
        sigma = np.sqrt(10_000 * shares * (1 - shares))
        # One in 370 is further off than three: none of 50 past four, two of them past three.
        assert (np.abs(counts - 10_000 * shares) <= 4 * sigma).all()
        assert (np.abs(counts - 10_000 * shares) > 3 * sigma).sum() <= 2
        assert (counts[WEIGHTS == 0] == 0).all()


def test_weighted_without_replacement_takes_each_once():
    """All with a weight above 0, or the number asked for."""
    whole = WeightedSampler(WEIGHTS, replacement=False)
    assert sorted(whole) == np.flatnonzero(WEIGHTS).tolist()
    assert sorted(whole) == np.flatnonzero(WEIGHTS).tolist()
    assert len(set(WeightedSampler(WEIGHTS, 10, False))) == 10
    with pytest.raises(ValueError, match="num_samples is 50, but only 42 samples have a weight"):
        WeightedSampler(WEIGHTS, 50, False)


def test_classes_are_balanced_to_the_sample():
    """As many of each; and each of its samples as often as any other of its class, to within one,
    over epochs."""
    sampler = ClassBalancedSampler(LABELS, 60)
    seen = np.zeros(50, int)
    for _ in range(7):
        order = np.array(list(sampler))
        assert np.bincount(LABELS[order], minlength=6).tolist() == [20, 20, 0, 0, 0, 20]
        seen += np.bincount(order, minlength=50)
    for label in (0, 1, 5):
        assert np.ptp(seen[label == LABELS]) <= 1
    drawn = np.array(list(ClassBalancedSampler(LABELS, 30_000, True)))
    sigma = np.sqrt(30_000 * (1 / 3) * (2 / 3))
    counts = np.bincount(LABELS[drawn], minlength=6)[[0, 1, 5]]
    assert (np.abs(counts - 10_000) < 3 * sigma).all()


def test_labels_come_from_the_index(shapes):
    """Of a store, a selection, a subset, several of them; or as they are given."""
    dataset = LMDBDataset(shapes.path, split="train")
    labels = [sample["label"] for sample in shapes.samples if sample["split"] == "train"]
    some = dataset.select([5, 1])
    assert labels_of(dataset).tolist() == labels
    assert labels_of(some).tolist() == [labels[5], labels[1]]
    assert labels_of(Subset(dataset, [2, 7])).tolist() == [labels[2], labels[7]]
    both = ConcatDataset([some, dataset])
    assert labels_of(both).tolist() == [labels[5], labels[1], *labels]
    assert labels_of(torch.tensor([3, 1])).tolist() == [3, 1]
    assert labels_of(["b", "a"]).tolist() == ["b", "a"]
    assert len(list(ClassBalancedSampler(both))) == 10
    with pytest.raises(SchemaMismatchError, match=r"no column 'lable'.*Did you mean 'label'"):
        labels_of(dataset, "lable")
    with pytest.raises(ValueError, match="one for each sample, or a dataset with a column 'label'"):
        labels_of([[1, 2], [3, 4]])
    with pytest.raises(ValueError, match="there are no labels"):
        ClassBalancedSampler([])


def stores_of(sampler):
    return np.bincount(np.array(list(sampler)) >= 20, minlength=2).tolist()


def test_stores_are_mixed_by_proportion_count_or_repeat(shapes):
    """An epoch has exactly what was asked for."""
    assert stores_of(MixtureSampler([20, 30], proportions=[0.7, 0.3])) == [35, 15]
    assert stores_of(MixtureSampler([20, 30], proportions=[1, 2], num_samples=10)) == [3, 7]
    assert stores_of(MixtureSampler([20, 30], counts=[50, 0])) == [50, 0]
    assert stores_of(MixtureSampler([20, 30], repeats=[2.5, 1])) == [50, 30]
    repeated = list(MixtureSampler([20, 30], repeats=[2, 1]))
    assert np.bincount(repeated).tolist() == [2] * 20 + [1] * 30
    dataset = LMDBDataset(shapes.path)
    both = ConcatDataset([dataset, dataset.select([3, 4])])
    assert sorted(MixtureSampler(both, repeats=[1, 1])) == list(range(14))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ShuffleSampler(-1), "size and num_samples must be at least 0; got -1 and -1"),
        (lambda: ShuffleSampler(5, num_samples=-2), "at least 0; got 5 and -2"),
        (
            lambda: ShuffleSampler(5, seed=-1),
            r"seed must be in \[0, 18446744073709551616\); got -1",
        ),
        (lambda: ShuffleSampler(5, rank=1), "go together; got rank=1, world_size=None"),
        (lambda: ShuffleSampler(5, rank=2, world_size=2), r"rank must be in \[0, 2\); got 2"),
        (lambda: ShuffleSampler(5, remainder="wrap"), "one of pad, drop, keep; got 'wrap'"),
        (lambda: BlockShuffleSampler(5, window=0), "at least 1; got 256, 0 and 1"),
        (lambda: MixtureSampler([1, 2]), "one of proportions, counts and repeats; got none"),
        (
            lambda: MixtureSampler([1, 2], counts=[1, 1], repeats=[1, 1]),
            "got counts and repeats",
        ),
        (lambda: MixtureSampler([1, 2], counts=[1]), r"counts must be 2 numbers.*got \[1\]"),
        (lambda: MixtureSampler([1, 2], counts=[1, -1]), r"counts must be 2 numbers"),
        (lambda: MixtureSampler([1, 2], repeats=[0, 0]), "repeats are all 0"),
        (lambda: MixtureSampler([1, 0], counts=[1, 1]), "dataset 1 has no sample to draw"),
        (
            lambda: MixtureSampler([1, 2], counts=[1, 1], num_samples=3),
            "num_samples goes with proportions; counts says how many",
        ),
    ],
)
def test_what_makes_no_order_is_an_error(make, message):
    """At once, with the argument and what was given."""
    with pytest.raises(ValueError, match=message):
        make()


def test_a_global_state_neither_matters_nor_changes():
    """numpy's and torch's own random numbers are the user's."""
    np.random.seed(1)
    torch.manual_seed(1)
    first = [list(make(seed=0)) for make in SAMPLERS.values()]
    drawn = np.random.rand(), torch.rand(1).item()
    np.random.seed(1)
    torch.manual_seed(1)
    assert drawn == (np.random.rand(), torch.rand(1).item())
    assert first == [list(make(seed=0)) for make in SAMPLERS.values()]
