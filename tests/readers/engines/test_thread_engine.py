"""Threads hand over what the loop itself would have made, in its order."""

from __future__ import annotations

import threading
import time

import cv2
import numpy as np
import pytest
import torch

from readers.engines.threads import DirectEngine, ThreadEngine
from readers.stats import LoaderStats
from tests.readers.engines.engine_conformance import parts_of


class Numbers:
    """A group filler whose batches hold their indices, in memory that it asked for."""

    def __init__(self, act=lambda index: None, size=20_000, ahead_count=0):
        self.act = act
        self.size = size
        self.groups = []
        self.ahead_count = ahead_count
        self.expected = []

    def expect(self, parts, epoch):
        self.expected.append([*map(list, parts)])

    def drop_expected(self):
        self.expected.append("dropped")

    def fill_group(self, parts, epoch, take, watch):
        watch.start()
        self.groups.append(len(parts))
        batches = []
        for indices in parts:
            self.act(int(indices[0]))
            batch = take(len(indices) * self.size * 8).view(torch.int64).view(-1, self.size)
            batch.copy_(torch.from_numpy(indices)[:, None] + 1000 * epoch)
            batches.append(batch)
        watch.lap("read")
        return batches


@pytest.fixture
def engine_of():
    """Makes engines, which are closed in the end; no thread is left."""
    engines = []

    def make(filler, threads=2, depth=3, **settings):
        engines.append(ThreadEngine(filler, threads, depth, is_pinned=False, **settings))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()
    deadline = time.monotonic() + 5
    while any(thread.name.startswith("loader") for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def firsts(batches):
    return [int(batch[0, 0]) for batch in batches]


@pytest.mark.parametrize("group_count", [1, 2, 5, 100])
@pytest.mark.parametrize("threads", [1, 3])
def test_batches_come_in_order_and_whole(engine_of, threads, group_count):
    """However many are filled by one call, and whichever thread is quicker."""
    filler = Numbers(lambda index: time.sleep(0.01 if index % 4 == 0 else 0))
    engine = engine_of(filler, threads, group_count=group_count)
    for epoch in range(2):
        batches = list(engine.batches(parts_of(32, 3), epoch))
        found = [row.unique().tolist() for batch in batches for row in batch]
        assert found == [[index + 1000 * epoch] for index in range(32)]
    assert sum(filler.groups) == 22
    assert max(filler.groups) == min(group_count, 11)


def test_a_loop_that_lets_go_uses_the_same_memory_again(engine_of):
    """Over any number of batches, as many buffers as are on their way at once."""
    engine = engine_of(Numbers(), depth=3)
    addresses = {batch.data_ptr() for _ in range(3) for batch in engine.batches(parts_of(100), 0)}
    assert len(addresses) <= 6
    (pool,) = engine._pools.values()
    assert pool.made_count == len(addresses)


def test_batches_of_ever_other_sizes_do_not_pile_up(engine_of):
    """Memory is kept for a few sizes; the rest is given back."""
    engine = engine_of(Numbers())
    parts = [np.full(size, size) for size in range(1, 60)]
    assert firsts(engine.batches(parts, 0)) == list(range(1, 60))
    assert len(engine._pools) <= 8 + 1  # Two threads may add one at once.


def fail_at(wrong, slow=()):
    def act(index):
        if index in slow:
            time.sleep(0.3)
        if index == wrong:
            raise KeyError("no such thing")

    return act


def test_an_error_does_not_wait_for_its_turn(engine_of):
    """It is raised when it is known, though there are batches to hand out before."""
    engine = engine_of(Numbers(fail_at(2, slow=[0])), threads=2, depth=3)
    batches = engine.batches(parts_of(20), 0)
    assert int(next(batches)[0, 0]) == 0
    with pytest.raises(KeyError):
        next(batches)


def test_a_loop_may_be_left_and_begun_again(engine_of):
    """Two loops may also go on side by side: each has its own order."""
    engine = engine_of(Numbers(), group_count=2)
    for count in range(5):
        batches = engine.batches(parts_of(30), 0)
        for _ in range(count):
            next(batches)
        del batches
    one, two = engine.batches(parts_of(9), 0), engine.batches(parts_of(9), 1)
    pairs = [(int(a[0, 0]), int(b[0, 0])) for a, b in zip(one, two, strict=True)]
    assert pairs == [(index, 1000 + index) for index in range(9)]


def test_closing_ends_threads_and_what_is_iterated(engine_of):
    """The next loop starts new ones."""
    engine = engine_of(Numbers())
    batches = engine.batches(parts_of(30), 0)
    next(batches)
    engine.close()
    engine.close()
    with pytest.raises(RuntimeError, match="this iteration is over"):
        next(batches)
    assert firsts(engine.batches(parts_of(4), 0)) == [0, 1, 2, 3]


def test_threads_share_out_the_cores(engine_of):
    """Inside each native call there is one; the number of the main thread stays its own."""
    before, opencv = torch.get_num_threads(), cv2.getNumThreads()
    torch.set_num_threads(3)
    found = set()
    try:
        engine = engine_of(Numbers(lambda index: found.add(torch.get_num_threads())))
        list(engine.batches(parts_of(6), 0))
        assert found == {1}
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
        cv2.setNumThreads(opencv)


def test_no_thread_is_left_of_a_program(run_python):
    """A program that leaves in the middle of a loop ends at once, silently."""
    code = """
import json, sys
import numpy as np
from tests.readers.engines.test_thread_engine import Numbers, parts_of
from readers.engines.threads import ThreadEngine
batches = ThreadEngine(Numbers(), 2, 3, is_pinned=False).batches(parts_of(100), 0)
next(batches)
print(json.dumps(True))
"""
    assert run_python(code, timeout_s=30)


def test_totals_of_a_run_add_up(engine_of):
    """Each group's time arrives; what is ready in a group counts as ready."""
    stats = LoaderStats("thread", 2)
    filler = Numbers(lambda index: time.sleep(0.01))
    engine = engine_of(filler, stats=stats, group_count=4)
    for _ in engine.batches(parts_of(8), 0):
        time.sleep(0.03)
    assert 0.08 <= stats.stages_s["read"] < 2
    assert stats.ready_count >= 2 * (3 + 2 + 1)


def test_without_an_engine_each_batch_is_made_when_it_is_asked_for():
    """In fresh memory, one at a time, errors in their place."""
    stats, filler = LoaderStats("process", 0), Numbers(fail_at(3))
    engine = DirectEngine(filler, stats=stats)
    batches = engine.batches(parts_of(9), 2)
    found = [next(batches) for _ in range(3)]
    assert filler.groups == [1, 1, 1]
    assert firsts(found) == [2000, 2001, 2002]
    with pytest.raises(KeyError):
        next(batches)
    assert stats.stages_s["read"] > 0
    engine.close()


def test_without_an_engine_an_error_in_a_group_keeps_its_place():
    """What comes before it is handed out, though it was to be filled by the same call."""
    filler = Numbers(fail_at(6))
    engine = DirectEngine(filler, stats=LoaderStats("thread", 0), group_count=4)
    batches = engine.batches(parts_of(9), 0)
    assert firsts(next(batches) for _ in range(6)) == [0, 1, 2, 3, 4, 5]
    with pytest.raises(KeyError):
        next(batches)
    assert filler.groups == [4, 4, 1, 1, 1]


@pytest.mark.parametrize("ahead_count", [0, 1, 3])
def test_a_filler_gets_to_know_of_groups_before_their_turn(engine_of, ahead_count):
    """As many as it says, each once, in order; at the end, and when it is broken off, that too."""
    fillers = [Numbers(ahead_count=ahead_count) for _ in range(2)]
    engines = [
        engine_of(fillers[0], threads=1, depth=1, group_count=2),
        DirectEngine(fillers[1], stats=LoaderStats("thread", 0)),
    ]
    groups = [[[0], [1]], [[2], [3]], [[4], [5]], [[6]]], [[[at]] for at in range(7)]
    for filler, engine, expected in zip(fillers, engines, groups, strict=True):
        batches = engine.batches(parts_of(7), 0)
        next(batches)
        count = ahead_count + 1 if ahead_count else 0
        assert filler.expected == expected[:count]
        batches.close()
        assert filler.expected == expected[:count] + ["dropped"] * bool(ahead_count)
        filler.expected.clear()
        assert len(list(engine.batches(parts_of(7), 0))) == 7
        assert filler.expected == ([*expected, "dropped"] if ahead_count else [])
