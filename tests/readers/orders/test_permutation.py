"""An order without a table is a permutation, a random one, and always the same."""

from __future__ import annotations

from math import factorial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from readers.chance.permutation import derived_words, permuted, permuted_in_groups


def surprise(observed):
    """How many standard deviations a chi-square of equally likely cells is above what is due."""
    expected, freedom = observed.sum() / observed.size, observed.size - 1
    return (((observed - expected) ** 2 / expected).sum() - freedom) / np.sqrt(2 * freedom)


def order(count, seed=0, epoch=0, purpose=0):
    return permuted(np.arange(count), count, seed=seed, epoch=epoch, purpose=purpose)


@given(st.integers(1, 3000), st.integers(0, 2**64 - 1), st.integers(0, 2**40))
def test_each_sample_comes_once(count, seed, epoch):
    """Of any number, any seed and any epoch; and the order can be had again."""
    found = order(count, seed, epoch)
    assert found.dtype == np.int64
    assert sorted(found.tolist()) == list(range(count))
    assert found.tolist() == order(count, seed, epoch).tolist()


@given(st.integers(1, 1000), st.data())
def test_a_position_leads_to_one_sample_whatever_else_is_asked(count, data):
    """Positions may be asked for in any order, one by one or together."""
    positions = data.draw(st.lists(st.integers(0, count - 1), max_size=20))
    whole = order(count, 5, 3)
    some = permuted(np.array(positions, np.int64), count, seed=5, epoch=3)
    assert some.tolist() == whole[positions].tolist()


def test_orders_never_change():
    """A run that goes on with another release or machine goes on with the same samples."""
    assert order(10).tolist() == [3, 9, 7, 6, 0, 4, 5, 2, 1, 8]
    assert order(10, epoch=1).tolist() == [7, 6, 3, 8, 1, 0, 9, 4, 5, 2]
    assert order(10, seed=2**64 - 1, epoch=7, purpose=9).tolist() == [1, 5, 4, 9, 7, 8, 6, 0, 2, 3]
    far = np.array([0, 123_456_789, 10**9 - 1])
    assert permuted(far, 10**9, seed=0, epoch=0).tolist() == [202566332, 880003986, 391136512]
    assert permuted(far, 2**62, seed=0, epoch=0).tolist() == [
        4300378850219493506,
        4417724574983422981,
        251300857017607877,
    ]


@pytest.mark.parametrize("count", [2**k + d for k in (8, 9, 16, 17) for d in (-1, 0, 1)])
def test_counts_around_a_power_of_two_are_permuted_whole(count):
    """There the network has a bit more or less, and hardly or most of it is walked over."""
    assert (np.sort(order(count, 1, 2)) == np.arange(count)).all()


@pytest.mark.parametrize("count", [3, 4, 5, 6])
def test_a_handful_of_samples_comes_in_all_orders_alike(count):
    """Which needs a network that is larger than they are."""
    times = 200 * factorial(count)
    positions = np.tile(np.arange(count), times)
    groups = np.repeat(np.arange(times), count)
    orders = permuted_in_groups(
        positions, np.array([count]), groups, seed=1, epoch=0, purpose=0
    ).reshape(times, count)
    _, found = np.unique(orders, axis=0, return_counts=True)
    assert len(found) == factorial(count)
    assert surprise(found) < 4


@pytest.mark.parametrize("count", [40, 64, 256])
def test_any_sample_may_come_anywhere(count):
    """Over epochs each comes equally often at each position; steps within an order, and from an
    epoch or a seed to the next, are of any size."""
    epochs = 600
    orders = np.stack([order(count, 7, epoch) for epoch in range(epochs)])
    seeds = np.stack([order(count, seed, 0) for seed in range(epochs)])
    places = np.zeros((count, count))
    np.add.at(places, (np.arange(count), orders), 1)
    assert surprise(places) < 4
    steps = np.bincount(((orders[:, 1:] - orders[:, :-1]) % count).ravel(), minlength=count)
    assert steps[0] == 0
    assert surprise(steps[1:]) < 4
    for several in (orders, seeds):
        changes = ((several[1:] - several[:-1]) % count).ravel()
        assert surprise(np.bincount(changes, minlength=count)) < 4


def test_a_thousand_million_samples_need_no_table():
    """Neighbouring positions lead everywhere, equally, and nowhere twice."""
    count = 10**9
    found = permuted(np.arange(500_000_000, 500_200_000), count, seed=3, epoch=1)
    assert len(np.unique(found)) == 200_000
    assert 0 <= found.min() < found.max() < count
    assert surprise(np.bincount(found // 10**6, minlength=1000)) < 4
    assert surprise(np.bincount(found % 1000, minlength=1000)) < 4
    assert abs(np.corrcoef(found[:-1], found[1:])[0, 1]) < 0.01


def test_groups_have_orders_of_their_own():
    """Each a permutation, whatever sizes stand side by side; one group is like `permuted`."""
    sizes = np.array([1, 2, 7, 300, 300, 1000])
    groups = np.repeat(np.arange(6), sizes)
    positions = np.concatenate([np.arange(size) for size in sizes])
    shuffled = np.random.default_rng(1).permutation(len(groups))

    def found(places):
        return permuted_in_groups(
            positions[places],
            sizes[groups[places]],
            groups[places],
            seed=4,
            epoch=5,
            purpose=6,
        )

    whole = found(np.arange(len(groups)))
    assert (found(shuffled) == whole[shuffled]).all()
    for group, size in enumerate(sizes):
        assert sorted(whole[groups == group].tolist()) == list(range(size))
    assert whole[groups == 3].tolist() != whole[groups == 4].tolist()
    assert whole[groups == 0].tolist() == [0]
    first = permuted_in_groups(
        np.arange(300), np.array([300]), np.array([0]), seed=4, epoch=5, purpose=6
    )
    assert first.tolist() == order(300, 4, 5, 6).tolist()


def test_words_differ_in_whatever_they_are_derived_from():
    """Also when numbers change places, or a large one has the words of two small ones."""
    asked = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (2**32, 0, 0), (0, 2**32, 0), (1, 1, 1)]
    words = [tuple(derived_words(*each, 2).tolist()) for each in asked]
    assert len(set(words)) == len(asked)
    assert derived_words(0, 0, 0, 2).dtype == np.uint64
    assert words[0] == (8668861027912758289, 14584187760040447831)
