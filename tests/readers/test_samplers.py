"""An order is a pure function of what it is asked for."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from readers.samplers import batches_of, epoch_order


@given(st.integers(0, 500), st.integers(0, 2**63), st.integers(0, 10_000))
def test_an_epoch_visits_each_sample_once(count, seed, epoch):
    """Shuffled or not, nothing is left out, nothing comes twice, and it can be had again."""
    order = epoch_order(count, shuffles=True, seed=seed, epoch=epoch)
    assert order.dtype == np.int64
    assert sorted(order.tolist()) == list(range(count))
    again = epoch_order(count, shuffles=True, seed=seed, epoch=epoch)
    assert order.tolist() == again.tolist()
    plain = epoch_order(count, shuffles=False, seed=seed, epoch=epoch)
    assert plain.dtype == np.int64
    assert plain.tolist() == list(range(count))


def test_the_order_of_an_epoch_never_changes():
    """A run that goes on with another release or machine goes on with the same samples."""
    known = {
        (0, 0): [4, 6, 2, 7, 3, 5, 9, 0, 8, 1],
        (0, 1): [9, 1, 3, 8, 7, 6, 0, 4, 2, 5],
        (7, 3): [3, 5, 4, 7, 8, 0, 9, 2, 1, 6],
    }
    for (seed, epoch), expected in known.items():
        assert epoch_order(10, shuffles=True, seed=seed, epoch=epoch).tolist() == expected


def test_orders_of_other_epochs_and_seeds_are_others():
    """Also when a seed and an epoch change places."""
    orders = {
        tuple(epoch_order(50, shuffles=True, seed=seed, epoch=epoch).tolist())
        for seed in range(5)
        for epoch in range(5)
    }
    assert len(orders) == 25


def test_a_global_state_neither_matters_nor_changes():
    """numpy's own random numbers are the user's."""
    np.random.seed(1)
    first = epoch_order(20, shuffles=True, seed=0, epoch=0).tolist()
    drawn = np.random.rand()
    np.random.seed(1)
    assert drawn == np.random.rand()
    assert first == epoch_order(20, shuffles=True, seed=0, epoch=0).tolist()


@given(st.integers(0, 100), st.integers(1, 30), st.booleans())
def test_batches_are_the_order_cut_in_pieces(count, batch_size, drop_last):
    """All of one size but the last, which is short or dropped."""
    order = np.arange(count)[::-1].copy()
    parts = [part.tolist() for part in batches_of(order, batch_size, drop_last=drop_last)]
    whole, short = divmod(count, batch_size)
    sizes = [batch_size] * whole + ([short] if short and not drop_last else [])
    assert [len(part) for part in parts] == sizes
    assert [index for part in parts for index in part] == order.tolist()[: sum(sizes)]
