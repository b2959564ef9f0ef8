"""A selection is a row of positions, kept as runs of neighbours."""

from __future__ import annotations

import pickle

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from readers.reading.selection import Selection

# Small steps make runs; large ones break them.
positions_lists = st.one_of(
    st.lists(st.integers(0, 9), max_size=30),
    st.lists(st.integers(0, 2**40), max_size=10),
    st.lists(st.booleans(), max_size=60).map(lambda mask: np.flatnonzero(mask).tolist()),
)


@given(positions_lists)
def test_a_selection_gives_its_positions_back(positions):
    """All at once, one by one, or some of them: each is where it was put."""
    selection = Selection.of(np.array(positions, np.int64))
    assert len(selection) == len(positions)
    assert selection.all_positions().tolist() == positions
    assert [selection.position(at) for at in range(len(positions))] == positions
    backwards = np.arange(len(positions), dtype=np.int64)[::-1]
    assert selection.positions(backwards).tolist() == positions[::-1]
    assert all(type(selection.position(at)) is int for at in range(len(positions)))


@given(positions_lists, st.integers(0, 2**40))
def test_each_position_is_found_where_it_first_stands(positions, other):
    """Two of the same are both there; the first answers. What is not there is None."""
    selection = Selection.of(np.array(positions, np.int64))
    for position in {*positions, other}:
        expected = positions.index(position) if position in positions else None
        assert selection.index_of(position) == expected


@given(st.integers(0, 50))
def test_the_whole_of_a_store_is_itself(count):
    """Without a choice an index is a position."""
    selection = Selection.of_all(count)
    assert len(selection) == count
    assert selection.all_positions().tolist() == list(range(count))
    assert selection.index_of(count) is None
    assert selection.index_of(-1) is None


def test_a_run_of_neighbours_stays_small_however_long():
    """A split in path order of a hundred million samples crosses to a worker as some bytes."""
    half = Selection.of(np.arange(10**6, 2 * 10**6, dtype=np.int64))
    assert len(pickle.dumps(half)) < 700
    scattered = Selection.of(np.arange(0, 20_000, 2, dtype=np.int64))
    assert scattered.positions(np.array([3, 9_999])).tolist() == [6, 19_998]
    assert len(pickle.dumps(scattered)) < 10_000 * 24 + 1000


def test_few_runs_of_very_many_samples_are_searched():
    """Their positions one by one would take memory that runs are there to save."""
    starts = np.array([0, 2**31, 2**30], np.int64)
    selection = Selection(starts, starts + 2**28)
    found = selection.positions(np.array([0, 2**28, 2**29 + 5, 2**28 - 1], np.int64))
    assert found.tolist() == [0, 2**31, 2**30 + 5, 2**28 - 1]
    assert selection._table is None
