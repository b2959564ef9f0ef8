"""Reads bring each wanted byte once, and few reads do."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from readers.store.read_plan import GAP, plan_reads


def planned(places: list[tuple[int, int, int]], gap: int = 0, most: int = 100) -> list:
    columns = np.array(places, np.int64).reshape(-1, 3).T.copy()
    return plan_reads(*columns, gap_bytes_max=gap, read_bytes_max=most)


PLACES = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 300), st.integers(0, 120)), max_size=20
)


@given(PLACES, st.integers(0, 40), st.integers(1, 90))
def test_each_byte_of_each_part_comes_once_from_its_place(places, gap, most):
    """Whatever the limits: none is read from elsewhere, and no read is larger than allowed."""
    seen = [np.zeros(length, int) for _, _, length in places]
    for read in planned(places, gap, most):
        at = read.offset
        assert 0 < read.byte_count <= most
        assert read.pieces[0].part != GAP
        assert read.pieces[-1].part != GAP
        for part, first, count in read.pieces:
            if part == GAP:
                assert 0 < count <= gap
            else:
                assert (read.shard, at) == (places[part][0], places[part][1] + first)
                seen[part][first : first + count] += 1
            at += count
        assert at == read.offset + read.byte_count
    assert all((counts == 1).all() for counts in seen)


def test_neighbours_are_read_together_and_others_are_not():
    """In order one read serves many; far apart each part has its own; shards are kept apart."""
    in_order = [(0, at * 10, 8) for at in range(10)]
    assert [read.byte_count for read in planned(in_order[::-1], gap=2)] == [98]
    assert len(planned(in_order, gap=1)) == 10
    assert len(planned([(0, 0, 5), (1, 5, 5)], gap=50)) == 2
    assert [read.byte_count for read in planned([(0, 0, 250)])] == [100, 100, 50]
    assert planned([(0, 5, 0)]) == []


def test_a_read_has_no_more_pieces_than_the_system_takes():
    """IOV_MAX is 1024."""
    reads = planned([(0, at * 2, 1) for at in range(5000)], gap=1, most=10**6)
    assert max(len(read.pieces) for read in reads) <= 1024
    assert len(reads) < 12
