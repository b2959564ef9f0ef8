"""Counts of values, over samples and parts of a store."""

from __future__ import annotations

import numpy as np

from packer.counts import count_values, summed_counts


def test_values_are_counted_one_by_one_or_many_at_a_time():
    """A label is one number, the labels of boxes are an array, which may be empty."""
    counts = {}
    for values in (3, np.int64(1), np.array([3, 3]), np.array([], np.int64)):
        count_values(counts, values)
    assert counts == {3: 3, 1: 1}
    assert all(type(value) is int for value in counts)


def test_counts_of_parts_add_up():
    """In the order in which names first come; a count of none stays one."""
    total = summed_counts([{"b": 0}, {"a": 2, "b": 1}, {}, {"c": 0, "a": 5}])
    assert list(total.items()) == [("b", 1), ("a", 7), ("c", 0)]
