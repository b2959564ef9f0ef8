"""Jobs in threads: results in order, and an end when they are not wanted."""

from __future__ import annotations

import threading

import pytest

from packer.threads import map_threads


def test_results_come_in_the_order_of_the_jobs():
    """However long each takes; several are done at once."""
    both = threading.Barrier(2, timeout=30)

    def work(number):
        if number < 2:
            both.wait()
        return number * 10

    assert list(map_threads(work, range(9), 2)) == [number * 10 for number in range(9)]


def test_after_an_error_jobs_that_run_are_told_and_others_never_begin():
    """The first error is the one that is raised."""
    stopped, begun = threading.Event(), []

    def work(number):
        begun.append(number)
        if number == 0:
            raise ValueError("the first")
        assert stopped.wait(30)

    with pytest.raises(ValueError, match="the first"):
        list(map_threads(work, range(1000), 2, stopped.set))
    assert len(begun) <= 3


def test_a_caller_that_leaves_stops_them_too():
    """As Ctrl-C does in the middle of a loop over the results."""
    stopped = threading.Event()

    def work(number):
        return number if number == 0 else stopped.wait(30)

    results = map_threads(work, range(1000), 2, stopped.set)
    assert next(results) == 0
    results.close()
    assert stopped.is_set()
