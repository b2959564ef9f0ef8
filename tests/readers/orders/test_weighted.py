"""Draws follow their weights."""

from __future__ import annotations

import numpy as np
import pytest

from readers.chance.random_state import uniforms
from readers.orders.weighted import checked_weights, drawn, drawn_once

WEIGHTS = np.array([0.0, 1.0, 3.0, 0.0, 6.0, 0.0])
SHARES = WEIGHTS / WEIGHTS.sum()


def within_3_sigma(counts, shares, total):
    sigma = np.sqrt(total * shares * (1 - shares))
    return (np.abs(counts - total * shares) <= 3 * sigma).all()


def test_each_draw_is_in_proportion_to_the_weights():
    """Within three sigma over an epoch, over epochs at one position, and never one of weight 0."""
    cumulative = np.cumsum(WEIGHTS)
    found = drawn(cumulative, np.arange(30_000), seed=1, epoch=0)
    assert found.dtype == np.int64
    assert within_3_sigma(np.bincount(found, minlength=6), SHARES, 30_000)
    at = [int(drawn(cumulative, np.array([77]), seed=1, epoch=e)[0]) for e in range(3000)]
    assert within_3_sigma(np.bincount(at, minlength=6), SHARES, 3000)
    pairs = np.zeros((6, 6))
    np.add.at(pairs, (found[:-1], found[1:]), 1)
    assert (np.abs(pairs - 30_000 * np.outer(SHARES, SHARES)) < 400).all()


def test_a_draw_follows_from_its_position():
    """Whatever else is drawn; other seeds and epochs draw otherwise."""
    cumulative = np.cumsum(np.ones(1000))
    whole = drawn(cumulative, np.arange(100), seed=1, epoch=2)
    assert drawn(cumulative, np.arange(100)[::-3], seed=1, epoch=2).tolist() == (
        whole[::-3].tolist()
    )
    for seed, epoch in ((2, 2), (1, 3)):
        other = drawn(cumulative, np.arange(100), seed=seed, epoch=epoch)
        assert (other == whole).mean() < 0.05
    assert whole[:8].tolist() == [477, 663, 335, 865, 948, 534, 71, 351]


def test_draws_are_not_the_chances_of_operations():
    """An operation on sample i uses the numbers of the seed at i: a draw at i must not."""
    found = drawn(np.cumsum(np.ones(1000)), np.arange(2000), seed=1, epoch=0)
    chances = uniforms(1, 0, np.arange(2000), 1)[:, 0]
    assert abs(np.corrcoef(found, chances)[0, 1]) < 0.08


def test_the_largest_number_draws_the_last_sample_that_can_be():
    """Sums of weights are rounded, so a draw may reach the sum itself."""
    tiny = np.cumsum(np.array([1.0, 5e-324, 0.0]))
    assert set(drawn(tiny, np.arange(1000), seed=0, epoch=0).tolist()) == {0}
    # Half of these draws are rounded to 0, where the first sample ends, half to the sum.
    tiniest = np.cumsum(np.array([0.0, 5e-324, 0.0]))
    assert set(drawn(tiniest, np.arange(100), seed=0, epoch=0).tolist()) == {1}


def test_without_replacement_each_comes_once_and_the_heavy_sooner():
    """The first draw is in proportion to the weights, the next among those that are left."""
    orders = np.stack([drawn_once(WEIGHTS, 3, seed=4, epoch=epoch) for epoch in range(6000)])
    assert (np.sort(orders, axis=1) == [1, 2, 4]).all()
    assert within_3_sigma(np.bincount(orders[:, 0], minlength=6), SHARES, 6000)
    after_4 = orders[orders[:, 0] == 4][:, 1]
    shares = np.array([0, 0.25, 0.75, 0, 0, 0])
    assert within_3_sigma(np.bincount(after_4, minlength=6), shares, len(after_4))


def test_a_short_epoch_is_the_start_of_a_long_one():
    """Which samples come does not depend on how many are asked for."""
    weights = np.random.default_rng(0).random(200)
    whole = drawn_once(weights, 200, seed=1, epoch=1)
    assert sorted(whole.tolist()) == list(range(200))
    for count in (1, 7, 199):
        assert drawn_once(weights, count, seed=1, epoch=1).tolist() == whole[:count].tolist()


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, -0.5], "sample 1 has -0.5"),
        ([float("nan"), 1], "sample 0 has nan"),
        ([1, float("inf")], "sample 1 has inf"),
        ([0, 0], "are all 0"),
        ([], r"one number for each sample; got shape \(0,\)"),
        ([[1.0]], r"got shape \(1, 1\)"),
    ],
)
def test_weights_that_say_nothing_are_an_error(weights, message):
    """With the sample that has it."""
    with pytest.raises(ValueError, match=message):
        checked_weights(weights)
