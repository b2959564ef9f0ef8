"""A disk or server that fails for a while is asked again; one that goes on failing is an error."""

from __future__ import annotations

import errno
import gc
import os
import shutil
import threading
import time

import numpy as np
import pytest

from readers.store import open_files, read_bytes, read_threads
from readers.store.errors import ShardError
from readers.store.open_files import OpenFiles
from readers.store.read_bytes import ReadBytes
from readers.store.read_policy import ReadPolicy
from readers.store.record_bytes import Wanted

SIZE = 100_000
QUICK = ReadPolicy(retry_count=3, first_wait_s=0.001)


@pytest.fixture
def paths(tmp_path):
    noise = np.random.default_rng(5)
    paths = [tmp_path / f"shard-{number}" for number in range(4)]
    for path in paths:
        path.write_bytes(noise.integers(0, 256, SIZE, np.uint8).tobytes())
    return paths


def opened(paths, policy=QUICK):
    found = ReadBytes(len(paths), policy)
    for number, path in enumerate(paths):
        descriptor = os.open(path, os.O_RDONLY)
        found.add(number, path, descriptor)
        os.close(descriptor)
    return found


def wanted(offsets, length=100, shard=0):
    offsets = np.array(offsets, np.int64)
    return Wanted(shards=np.full(len(offsets), shard), offsets=offsets, lengths=length)


def assert_right(record_bytes, paths, offsets, length=100):
    (pieces,) = record_bytes.fetch([wanted(offsets, length)])
    content = paths[0].read_bytes()
    for start, offset in zip(pieces.starts.tolist(), offsets, strict=True):
        assert pieces.memory[start : start + length].tobytes() == content[offset : offset + length]


class Faulty:
    """Stands for `os` in the module that reads: some calls fail, or give less."""

    def __init__(self, faults):
        self.faults = list(faults)
        self.calls = 0

    def __getattr__(self, name):
        return getattr(os, name)

    def preadv(self, descriptor, into, offset):
        self.calls += 1
        fault = self.faults.pop(0) if self.faults else None
        if fault == "nothing":
            return 0
        if fault == "less":
            return os.preadv(descriptor, [into[0][:7]], offset)
        if fault is not None:
            raise OSError(fault, os.strerror(fault))
        return os.preadv(descriptor, into, offset)


@pytest.mark.parametrize(
    "fault", [errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EBADF, "nothing", "less"]
)
def test_a_fault_that_passes_is_not_seen(monkeypatch, paths, fault):
    """Each of them, several times in a row, and with the rest of a read that gave too little."""
    record_bytes = opened(paths)
    fake = Faulty([fault, "less", fault, fault, fault])
    monkeypatch.setattr(open_files, "os", fake)
    assert_right(record_bytes, paths, [5, 50_000, 60, 99_900])
    assert fake.calls > 5


@pytest.mark.parametrize(
    ("fault", "calls"), [(errno.EIO, 4), ("nothing", 4), (errno.EBADF, 4), (errno.EINVAL, 1)]
)
def test_a_fault_that_stays_names_shard_and_offset(monkeypatch, paths, fault, calls):
    """After as many attempts as the policy says; what no waiting mends is an error at once."""
    record_bytes = opened(paths)
    fake = Faulty([fault] * 50)
    monkeypatch.setattr(open_files, "os", fake)
    text = rf"shard-0: 100 bytes at offset 700: .*\({calls} attempts\).*See whether the disk"
    with pytest.raises(ShardError, match=text):
        record_bytes.fetch([wanted([700])])
    assert fake.calls == calls


def test_a_file_that_was_replaced_is_never_read(monkeypatch, paths):
    """It is opened anew after a fault, and then is another: no bytes of it are given out."""
    record_bytes = opened(paths)
    other = paths[0].with_suffix(".new")
    other.write_bytes(bytes(SIZE))
    os.utime(other, ns=(1, 1))
    os.replace(other, paths[0])
    monkeypatch.setattr(open_files, "os", Faulty([errno.ESTALE]))
    with pytest.raises(ShardError, match="shard-0: is another file than the one"):
        record_bytes.fetch([wanted([700])])


def test_a_copy_with_its_times_goes_on(monkeypatch, paths):
    """A server may number its inodes anew."""
    record_bytes = opened(paths)
    shutil.copy2(paths[0], paths[0].with_suffix(".new"))
    os.replace(paths[0].with_suffix(".new"), paths[0])
    monkeypatch.setattr(open_files, "os", Faulty([errno.ESTALE]))
    assert_right(record_bytes, paths, [700])


def test_a_file_that_is_gone_is_an_error(monkeypatch, paths):
    """With the reason that the system gives."""
    record_bytes = opened(paths)
    paths[0].unlink()
    monkeypatch.setattr(open_files, "os", Faulty([errno.ESTALE]))
    with pytest.raises(ShardError, match=r"shard-0.*offset 700: No such file"):
        record_bytes.fetch([wanted([700])])


def test_reads_are_many_at_once_and_no_more_than_the_limit(monkeypatch, paths):
    """Whatever number of threads asks: those who ask, and the threads that read for all."""
    in_flight, most, lock = 0, 0, threading.Lock()

    class Counting(Faulty):
        def preadv(self, descriptor, into, offset):
            nonlocal in_flight, most
            with lock:
                in_flight += 1
                most = max(most, in_flight)
            time.sleep(0.005)
            with lock:
                in_flight -= 1
            return os.preadv(descriptor, into, offset)

    record_bytes = opened(paths, ReadPolicy(gap_bytes_max=0))
    monkeypatch.setattr(open_files, "os", Counting([]))
    offsets = list(range(0, 99_000, 500))
    askers = [
        threading.Thread(target=assert_right, args=(record_bytes, paths, offsets)) for _ in range(3)
    ]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    assert 8 < most <= read_threads.THREAD_COUNT + 3


def test_after_an_error_nobody_writes_into_the_memory(monkeypatch, paths):
    """The caller takes it back: all reads that were under way have ended."""
    running = set()

    class Failing(Faulty):
        def preadv(self, descriptor, into, offset):
            running.add(offset)
            time.sleep(0.02)
            running.discard(offset)
            if not offset:
                raise OSError(errno.EINVAL, "no")
            return os.preadv(descriptor, into, offset)

    record_bytes = opened(paths, ReadPolicy(gap_bytes_max=0))
    monkeypatch.setattr(open_files, "os", Failing([]))
    with pytest.raises(ShardError, match="offset 0"):
        record_bytes.fetch([wanted(range(0, 99_000, 500))])
    assert not running


def test_threads_end_with_the_last_store_that_reads(paths):
    """And a forked child starts its own."""
    offsets = list(range(0, 99_000, 500))
    far = ReadPolicy(gap_bytes_max=0)
    record_bytes = opened(paths, far)
    assert_right(record_bytes, paths, offsets)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            assert_right(record_bytes, paths, offsets)
            names = [thread.name for thread in threading.enumerate()]
            status = 17 if any(name.startswith("read_") for name in names) else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 17
    readers = [thread for thread in threading.enumerate() if thread.name.startswith("read_")]
    assert readers
    record_bytes.close()
    gc.collect()  # Errors of other tests may keep their stores.
    for thread in readers:
        thread.join(10)
        assert not thread.is_alive()


def test_few_files_are_open_at_a_time(monkeypatch, paths):
    """Those that are needed again are opened again, if they are the same."""
    monkeypatch.setattr(read_bytes, "OpenFiles", lambda: OpenFiles(2))
    before = len(os.listdir("/proc/self/fd"))
    record_bytes = opened(paths)
    for number in (0, 3, 1, 2, 0, 2):
        (pieces,) = record_bytes.fetch([wanted([9], shard=number)])
        assert pieces.memory.tobytes() == paths[number].read_bytes()[9:109]
        assert len(os.listdir("/proc/self/fd")) <= before + 2
    os.truncate(paths[1], 50)
    with pytest.raises(ShardError, match=r"shard-1: is another file .*: 50 bytes, expected 100000"):
        record_bytes.fetch([wanted([9], shard=1)])
    record_bytes.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_limit_of_open_files_fits_the_process(monkeypatch):
    """A fourth of what it may have; never none."""
    for most, limit in ((1024, 256), (2, 1), (10**6, 1024), (-1, 1024)):
        monkeypatch.setattr(open_files.resource, "getrlimit", lambda _, most=most: (most, most))
        assert OpenFiles()._limit == limit


@pytest.mark.parametrize(
    "settings", [{"gap_bytes_max": -1}, {"read_bytes_max": 0}, {"retry_count": -1}]
)
def test_a_policy_that_cannot_be_is_refused(settings):
    """By its name and value."""
    (name,) = settings
    with pytest.raises(ValueError, match=name):
        ReadPolicy(**settings)


def test_a_server_that_is_gone_does_not_hinder_closing(paths, monkeypatch):
    """What was read is read: the end of a program is no place for an error of that."""
    found = opened(paths)
    assert_right(found, paths, [0, 500])
    close, calls = os.close, []

    def gone(descriptor):
        calls.append(descriptor)
        close(descriptor)
        raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))

    monkeypatch.setattr(open_files.os, "close", gone)
    found.close()
    assert calls
