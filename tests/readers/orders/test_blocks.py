"""A block shuffle has all samples once, in random order, and reads in large pieces."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from readers.orders.blocks import block_shuffled


def order(count, block_size=16, window=4, lanes=1, seed=0, epoch=0):
    return block_shuffled(
        np.arange(count),
        count,
        block_size=block_size,
        window=window,
        lanes=lanes,
        seed=seed,
        epoch=epoch,
    )


@given(
    st.integers(1, 700),
    st.integers(1, 40),
    st.integers(1, 6),
    st.integers(1, 4),
    st.integers(0, 9),
)
def test_each_sample_comes_once(count, block_size, window, lanes, epoch):
    """Whatever does not make whole blocks or windows."""
    found = order(count, block_size, window, lanes, 3, epoch)
    assert found.dtype == np.int64
    assert sorted(found.tolist()) == list(range(count))
    part = block_shuffled(
        np.arange(count)[count // 3 :: 2],
        count,
        block_size=block_size,
        window=window,
        lanes=lanes,
        seed=3,
        epoch=epoch,
    )
    assert part.tolist() == found[count // 3 :: 2].tolist()


def test_it_never_changes():
    """A run that goes on with another release or machine goes on with the same samples."""
    assert order(16, 2, 2).tolist() == [0, 15, 4, 3, 6, 10, 5, 9, 13, 7, 14, 8, 1, 12, 2, 11]
    lanes = order(16, 2, 2, 2, 1, 1).tolist()
    assert lanes == [5, 14, 1, 3, 0, 15, 4, 2, 11, 13, 7, 8, 6, 12, 10, 9]


def runs_of(samples, count):
    """Into how many runs of neighbours samples fall; the last is a neighbour of the first."""
    member = np.zeros(count, bool)
    member[samples] = True
    return int((member & ~np.roll(member, 1)).sum())


def test_a_window_reads_few_blocks_and_each_of_them_once():
    """Samples of a window are whole blocks of neighbours, far from each other; only the last one
    is larger."""
    count, block_size, window = 10_000, 50, 4
    found = order(count, block_size, window, seed=2)
    for start in range(0, count - 400, 200):
        samples = found[start : start + 200]
        assert runs_of(samples, count) <= window
        assert np.abs(np.diff(samples)).mean() > 500
    assert runs_of(found[:200], count) > 1


def test_blocks_begin_elsewhere_in_each_epoch():
    """So that who is a sample's neighbour is not settled for good."""
    starts = set()
    for epoch in range(10):
        first = np.sort(order(1000, 50, 1, epoch=epoch)[:50])
        if first[-1] - first[0] == 49:  # Not one that goes on from the end to the start.
            starts.add(int(first[0]) % 50)
    assert len(starts) > 5


def test_all_of_a_few_blocks_are_mixed_together():
    """What fits a window is an exact shuffle: any sample may come first."""
    first = {int(order(12, 4, 8, epoch=epoch)[0]) for epoch in range(100)}
    assert first == set(range(12))


def test_what_is_left_over_joins_the_last_window():
    """A window of one block would be no shuffle: five blocks, four to a window, are mixed whole."""
    found = order(80, 16, 4, seed=1)
    assert runs_of(found[:64], 80) > 4
    found = order(16 * 9, 16, 4, seed=1)
    assert runs_of(found[:64], 16 * 9) <= 4
    assert runs_of(found[64:128], 16 * 9) > 4


@pytest.mark.parametrize("world_size", [2, 4])
def test_with_lanes_each_rank_reads_blocks_of_its_own(world_size):
    """Any number of ranks that divides the lanes."""
    count = 16 * 4 * 4 * 5
    found = order(count, 16, 4, 4, seed=5)
    blocks = set()
    for rank in range(world_size):
        samples = found[: 16 * 4 * 4 * 4][rank::world_size]
        assert runs_of(samples, count) <= len(samples) // 16
        blocks.add(frozenset(samples.tolist()))
    assert len(frozenset.union(*blocks)) == 16 * 4 * 4 * 4
