"""A mixture has of each group what its share says, and goes through each group evenly."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from readers.orders.mixing import counts_of, mixed

SIZES, COUNTS = np.array([5, 3, 40]), np.array([7, 6, 10])


def epoch_of(epoch, sizes=SIZES, counts=COUNTS):
    return mixed(np.arange(counts.sum()), sizes, counts, seed=2, epoch=epoch)


def groups_of(order, sizes=SIZES):
    return np.searchsorted(np.cumsum(sizes), order, side="right")


def test_an_epoch_has_of_each_group_what_it_should():
    """Exactly, in every epoch, at places that change."""
    orders = [epoch_of(epoch) for epoch in range(20)]
    for order in orders:
        assert np.bincount(groups_of(order)).tolist() == COUNTS.tolist()
    assert len({tuple(groups_of(order).tolist()) for order in orders}) == 20


def test_no_sample_comes_again_before_all_of_its_group_have():
    """From one epoch to the next: after 12 epochs of 10 from 40, each has come three times."""
    for group, (size, count) in enumerate(zip(SIZES, COUNTS, strict=True)):
        seen = np.zeros(SIZES.sum(), int)
        for epoch in range(12):
            order = epoch_of(epoch)
            seen += np.bincount(order[groups_of(order) == group], minlength=len(seen))
            own = seen[np.cumsum(SIZES)[group] - size : np.cumsum(SIZES)[group]]
            assert own.sum() == count * (epoch + 1)
            assert own.max() - own.min() <= 1
    assert own.tolist() == [3] * 40


def test_it_never_changes():
    """A run that goes on with another release or machine goes on with the same samples."""
    assert epoch_of(3).tolist() == [
        3,
        6,
        25,
        2,
        39,
        4,
        6,
        27,
        3,
        7,
        11,
        1,
        44,
        30,
        4,
        45,
        5,
        42,
        0,
        20,
        5,
        8,
        7,
    ]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=5), st.integers(0, 10), st.data())
def test_any_groups_may_be_mixed(sizes, epoch, data):
    """Empty ones among them, if nothing is asked of them; positions in any order."""
    counts = [data.draw(st.integers(0, 20)) if size else 0 for size in sizes]
    if not sum(counts):
        return
    sizes, counts = np.array(sizes), np.array(counts)
    order = epoch_of(epoch, sizes, counts)
    assert np.bincount(groups_of(order, sizes), minlength=len(sizes)).tolist() == counts.tolist()
    back = mixed(np.arange(counts.sum())[::-1], sizes, counts, seed=2, epoch=epoch)
    assert back.tolist() == order[::-1].tolist()


@given(
    st.lists(st.floats(0, 100), min_size=1, max_size=8).filter(lambda s: sum(s) > 1e-3),
    st.integers(0, 10_000),
)
def test_shares_become_whole_numbers_of_that_sum(shares, total):
    """Each within one of what is due."""
    counts = counts_of(shares, total)
    assert counts.sum() == total
    due = np.array(shares) / np.sum(shares) * total
    assert (np.abs(counts - due) < 1 + 1e-6).all()
    assert counts_of([1, 1, 1], 8).tolist() == [3, 3, 2]
