"""What is announced is read ahead of need: within limits, and for whoever comes for it."""

from __future__ import annotations

import errno
import gc
import os
import threading
import time

import numpy as np
import pytest

from readers.store import open_files
from readers.store.errors import ShardError
from readers.store.read_bytes import ReadBytes
from readers.store.read_policy import ReadPolicy
from readers.store.record_bytes import Wanted

SIZE = 100_000
CONTENT = np.random.default_rng(5).integers(0, 256, SIZE, np.uint8).tobytes()
WAIT_S = 30


class Preadv:
    """Stands for `os` in the module that reads: counts, waits where it is told to, and fails."""

    def __init__(self):
        self.offsets = []
        self.faults = []
        self.go_on = threading.Event()
        self.go_on.set()
        self.begun = threading.Semaphore(0)

    def __getattr__(self, name):
        return getattr(os, name)

    def preadv(self, descriptor, into, offset):
        self.offsets.append(offset)
        self.begun.release()
        assert self.go_on.wait(WAIT_S)
        if self.faults:
            raise OSError(self.faults.pop(), "a fault")
        return os.preadv(descriptor, into, offset)


@pytest.fixture
def calls(monkeypatch):
    calls = Preadv()
    monkeypatch.setattr(open_files, "os", calls)
    yield calls
    calls.go_on.set()


@pytest.fixture
def open_with(tmp_path):
    """Makes the bytes of one shard; all are closed in the end."""
    path = tmp_path / "shard-0"
    path.write_bytes(CONTENT)
    opened = []

    def open_with(**settings):
        settings = {"gap_bytes_max": 0, "first_wait_s": 0.001, **settings}
        found = ReadBytes(1, ReadPolicy(**settings))
        descriptor = os.open(path, os.O_RDONLY)
        found.add(0, path, descriptor)
        os.close(descriptor)
        opened.append(found)
        return found

    yield open_with
    for found in opened:
        found.close()


def wanted(offsets, length=100):
    offsets = np.array(offsets, np.int64)
    return [Wanted(shards=np.zeros(len(offsets), np.int64), offsets=offsets, lengths=length)]


def assert_right(pieces, offsets, length=100):
    for start, offset in zip(pieces.starts.tolist(), offsets, strict=True):
        assert pieces.memory[start : start + length].tobytes() == CONTENT[offset : offset + length]


def test_who_comes_for_it_reads_nothing(calls, open_with):
    """Each part is read once, in the background; the figures tell how, and that it was ahead."""
    offsets = [5, 70_000, 900]
    announced = open_with().announce(wanted(offsets))
    for _ in offsets:
        assert calls.begun.acquire(timeout=WAIT_S)
    (pieces,) = announced.fetch()
    assert_right(pieces, offsets)
    assert sorted(calls.offsets) == sorted(offsets)
    reads = pieces.reads
    assert (reads.read_count, reads.byte_count, reads.ahead_count) == (3, 300, 1)
    assert reads.seconds > 0
    assert reads.in_flight >= 1


def test_who_comes_early_helps_and_waits(calls, open_with):
    """Before any of it is there: all is read, once."""
    calls.go_on.clear()
    offsets = list(range(0, 90_000, 1000))
    announced = open_with().announce(wanted(offsets))
    assert calls.begun.acquire(timeout=WAIT_S)
    threading.Timer(0.05, calls.go_on.set).start()
    (pieces,) = announced.fetch()
    assert_right(pieces, offsets)
    assert sorted(calls.offsets) == offsets


def test_no_more_is_kept_than_the_policy_says(open_with):
    """One request always; what has no room is fetched as ever; what is let go of makes room."""
    record_bytes = open_with(ahead_bytes_max=1000)
    first = record_bytes.announce(wanted([0], 5000))
    assert record_bytes.ahead_bytes() == 5000
    assert record_bytes.announce(wanted([5])) is None
    assert_right(first.fetch()[0], [0], 5000)
    assert record_bytes.ahead_bytes() == 0
    kept = [record_bytes.announce(wanted([at], 400)) for at in range(4)]
    assert [one is None for one in kept] == [False, False, True, True]
    assert record_bytes.ahead_bytes() == 800
    del kept
    gc.collect()
    assert record_bytes.ahead_bytes() == 0
    assert record_bytes.announce(wanted([5], 900)) is not None


def test_of_what_is_let_go_of_no_other_read_begins(calls, open_with):
    """Those under way end; the rest of a long epoch that was broken off costs nothing."""
    calls.go_on.clear()
    record_bytes = open_with(in_flight_max=2)
    announced = record_bytes.announce(wanted(range(0, 90_000, 500)))
    for _ in range(2):
        assert calls.begun.acquire(timeout=WAIT_S)
    del announced
    gc.collect()
    calls.go_on.set()
    record_bytes.close()
    assert len(calls.offsets) == 2


def test_what_somebody_waits_for_comes_first(calls, open_with):
    """A request of now does not stand behind those of later."""
    calls.go_on.clear()
    record_bytes = open_with(in_flight_max=1)
    later = record_bytes.announce(wanted(range(0, 50_000, 1000)))
    assert calls.begun.acquire(timeout=WAIT_S)
    calls.go_on.set()
    record_bytes.fetch(wanted([60_001, 70_001]))
    done = calls.offsets[:]
    assert {60_001, 70_001} <= set(done)
    later.fetch()
    assert sorted(calls.offsets) == sorted([60_001, 70_001, *range(0, 50_000, 1000)])


@pytest.mark.parametrize("fault", [errno.EIO, errno.EINVAL])
def test_a_fault_ahead_of_need_is_nobodys_error(calls, open_with, fault):
    """Whoever comes for it reads it again, and has the bytes if the fault has passed."""
    calls.faults = [fault, fault]
    offsets = [5, 70_000, 900]
    announced = open_with().announce(wanted(offsets))
    end = time.monotonic() + WAIT_S
    while len(announced.reading.failed) < 2 and time.monotonic() < end:
        time.sleep(0.001)
    (pieces,) = announced.fetch()
    assert_right(pieces, offsets)
    assert pieces.reads.read_count == 5


def test_a_fault_that_stays_is_told_to_who_comes_for_it(calls, open_with):
    """With shard and offset, after the attempts of the policy."""
    calls.faults = [errno.EIO] * 50
    announced = open_with(retry_count=2).announce(wanted([700]))
    with pytest.raises(ShardError, match=r"shard-0: 100 bytes at offset 700: .*\(3 attempts\)"):
        announced.fetch()


def test_a_forked_child_reads_for_itself(calls, open_with):
    """It has none of the threads, whatever they were at."""
    calls.go_on.clear()
    record_bytes = open_with()
    offsets = list(range(0, 50_000, 1000))
    announced = record_bytes.announce(wanted(offsets))
    assert calls.begun.acquire(timeout=WAIT_S)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            calls.go_on.set()
            assert_right(announced.fetch()[0], offsets)
            assert_right(record_bytes.announce(wanted([7, 9000])).fetch()[0], [7, 9000])
            status = 17
        finally:
            os._exit(status)
    calls.go_on.set()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 17
    assert_right(announced.fetch()[0], offsets)


ENDING = """
import atexit, os, sys, time
import numpy as np
from readers.store import read_bytes
from readers.store.read_policy import ReadPolicy
from readers.store.record_bytes import Wanted

class Slow:
    count = 0
    def __getattr__(self, name):
        return getattr(os, name)
    def preadv(self, descriptor, into, offset):
        Slow.count += 1
        time.sleep(0.02)
        return os.preadv(descriptor, into, offset)

read_bytes.os = Slow()
record_bytes = read_bytes.ReadBytes(1, ReadPolicy(gap_bytes_max=0))
descriptor = os.open(sys.argv[1], os.O_RDONLY)
record_bytes.add(0, sys.argv[1], descriptor)
os.close(descriptor)
offsets = np.arange(0, 90_000, 100)
announced = record_bytes.announce(
    [Wanted(shards=np.zeros(len(offsets), np.int64), offsets=offsets, lengths=50)]
)
atexit.register(lambda: print(Slow.count))  # When all threads have ended.
"""


def test_a_program_that_ends_does_not_wait_for_what_was_to_be_read(tmp_path, run_python):
    """Of 900 reads those under way end, and no other begins."""
    path = tmp_path / "shard-0"
    path.write_bytes(CONTENT)
    assert run_python(ENDING, path) < 300
