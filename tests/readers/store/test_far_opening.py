"""A store on a slow mount is opened by few calls, many at once, and whatever faults pass."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections import Counter

import msgspec
import numpy as np
import pytest

from readers.store import open_files, reader, shard_reader
from readers.store.errors import ManifestError, ShardError
from readers.store.manifest import read_manifest
from readers.store.open_files import OpenFiles
from readers.store.read_policy import ReadPolicy
from readers.store.reader import open_store
from readers.store.schema import Field

QUICK = ReadPolicy(retry_count=3, first_wait_s=0.001)
WAIT_S = 30
FIELDS = [
    Field(name="key", kind="text"),
    Field(name="label", kind="scalar", dtype="int64"),
    Field(name="score", kind="scalar", dtype="float32"),
]


@pytest.fixture
def folder(tmp_path, write_store):
    """40 samples in 20 shards."""
    samples = [{"key": str(at), "label": at, "score": at / 2} for at in range(40)]
    return write_store(tmp_path / "s", FIELDS, samples, [2] * 20)


@pytest.fixture
def calls(monkeypatch):
    """Counts what the server is asked of files, by name of call and file."""
    counts = Counter()

    def counted(name):
        real = getattr(os, name)

        def call(what, *arguments, **settings):
            where = os.readlink(f"/proc/self/fd/{what}") if type(what) is int else os.fspath(what)
            counts[name, os.path.basename(where)] += 1
            return real(what, *arguments, **settings)

        monkeypatch.setattr(os, name, call)

    for name in ("open", "stat", "lstat", "fstat", "listdir", "preadv"):
        counted(name)
    return counts


def of_shards(calls, *names):
    """Calls of these names for each shard that there were any for."""
    found = Counter()
    for (name, file), count in calls.items():
        if file.startswith("shard-") and name in names:
            found[file] += count
    return found


def test_the_first_sample_needs_its_own_shard_alone(folder, calls):
    """One listing tells that all are there; no other is looked at, opened or read."""
    store = open_store(folder, access="read")
    store.located(np.array([7])).column("label")
    assert of_shards(calls, "open", "stat", "lstat", "fstat", "preadv").keys() == {
        "shard-00003.lmdb"
    }
    assert sum(count for (name, _), count in calls.items() if name == "listdir") == 1


def test_the_folder_is_listed_while_the_manifest_is_read(folder, monkeypatch):
    """Neither waits for the other."""
    both = threading.Barrier(2)

    def together(name):
        real = getattr(os, name)

        def call(what, *arguments, **settings):
            if name == "listdir" or os.fspath(what).endswith("manifest.json"):
                both.wait(WAIT_S)
            return real(what, *arguments, **settings)

        monkeypatch.setattr(os, name, call)

    together("listdir")
    together("open")
    open_store(folder, access="read")
    assert not both.broken


def test_an_epoch_asks_twice_of_each_shard(folder, calls):
    """One open and one look at its size, whatever the number of samples; its index is two reads."""
    store = open_store(folder, access="read")
    order = np.random.default_rng(0).permutation(40)
    for first in range(0, 40, 8):
        store.bytes.fetch([store.located(order[first : first + 8]).records()])
    metadata = of_shards(calls, "open", "stat", "lstat", "fstat")
    assert len(metadata) == 20
    assert max(metadata.values()) == 2
    assert max(of_shards(calls, "open").values()) == 1
    reads = of_shards(calls, "preadv")
    assert sum(reads.values()) <= 2 * 20 + 40


def test_shards_of_a_batch_are_opened_many_at_once(folder, monkeypatch):
    """Each takes several round trips."""
    both = threading.Barrier(4)
    opened = shard_reader._opened

    def together(path):
        both.wait(WAIT_S)
        return opened(path)

    monkeypatch.setattr(shard_reader, "_opened", together)
    store = open_store(folder, access="read")
    assert store.located(np.array([0, 10, 20, 30])).column("label").tolist() == [0, 10, 20, 30]
    del store


def test_all_shards_are_opened_many_at_once_for_a_column(folder, monkeypatch):
    """As for a split, or weights of classes."""
    both = threading.Barrier(4)
    opened = shard_reader._opened

    def together(path):
        both.wait(WAIT_S)
        return opened(path)

    monkeypatch.setattr(shard_reader, "_opened", together)
    store = open_store(folder, access="read")
    labels = np.concatenate([shard.columns["label"] for shard in store.shards()])
    assert labels.tolist() == list(range(40))


def test_columns_of_many_shards_are_right_in_any_order_of_opening(folder):
    """They are copied end to end as shards are opened."""
    store = open_store(folder, access="read")
    rng = np.random.default_rng(0)
    for _ in range(30):
        indices = rng.integers(0, 40, 3)
        assert store.located(indices).column("label").tolist() == indices.tolist()
        assert store.located(indices).column("score").tolist() == (indices / 2).tolist()


class Faults:
    """Calls of a function fail a few times each, by the path they are about."""

    def __init__(self, real, fault, count):
        self.real = real
        self.fault = fault
        self.left = Counter()
        self.count = count

    def __call__(self, path, *arguments, **settings):
        self.left[os.fspath(path)] += 1
        if self.left[os.fspath(path)] <= self.count:
            raise OSError(self.fault, os.strerror(self.fault))
        return self.real(path, *arguments, **settings)


@pytest.mark.parametrize("fault", [errno.EIO, errno.ESTALE, errno.ETIMEDOUT])
def test_faults_that_pass_are_not_seen(folder, monkeypatch, fault):
    """Of the manifest, the listing and the shards that are opened for the first time."""
    for name in ("stat", "open", "listdir"):
        monkeypatch.setattr(os, name, Faults(getattr(os, name), fault, 2))
    store = open_store(folder, access="read", policy=QUICK)
    assert store.located(np.array([0, 39])).column("label").tolist() == [0, 39]


def test_faults_that_stay_are_errors_that_name_the_file(folder, monkeypatch):
    """With what the server says."""
    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", Faults(os.stat, errno.EIO, 10**6))
        patch.setattr(os, "open", Faults(os.open, errno.EIO, 10**6))
        with pytest.raises(ManifestError, match=r"manifest.json: Input/output error"):
            open_store(folder, access="read", policy=QUICK)
    store = open_store(folder, access="read", policy=QUICK)
    monkeypatch.setattr(os, "open", Faults(os.open, errno.EIO, 10**6))
    with pytest.raises(ShardError, match=r"shard-00001.lmdb: Input/output error"):
        store.located(np.array([3]))


def test_what_no_waiting_mends_is_an_error_at_once(folder, monkeypatch):
    """Nothing is tried again, in either way of reading, nor anything where files are mapped."""
    (folder / "shard-00001.lmdb").unlink()
    with pytest.raises(ShardError, match=r"1 of 20 shards .*shard-00001.lmdb: missing"):
        open_store(folder, access="read")
    opens = Faults(os.open, errno.EIO, 10**6)
    store = open_store(folder, access="map", checks_files=False)
    monkeypatch.setattr(os, "open", opens)
    with pytest.raises(ShardError, match=r"shard-00002.lmdb: Input/output error"):
        store.shard(2)
    assert opens.left == {os.fspath(folder / "shard-00002.lmdb"): 1}


def test_a_file_that_takes_long_to_open_holds_up_no_other(tmp_path, monkeypatch):
    """Others are read and opened meanwhile; two who want the same open it once."""
    paths = [tmp_path / str(number) for number in range(3)]
    files = OpenFiles(1)
    for number, path in enumerate(paths):
        path.write_bytes(bytes([number] * 10))
        descriptor = os.open(path, os.O_RDONLY)
        files.add(number, path, descriptor)
        os.close(descriptor)
    go_on, asked = threading.Event(), threading.Semaphore(0)
    opened, opens = open_files._open, []

    def slowly(file):
        opens.append(file.path.name)
        if file.path == paths[0]:
            asked.release()
            assert go_on.wait(WAIT_S)
        return opened(file)

    monkeypatch.setattr(open_files, "_open", slowly)
    found = []

    def read():
        with files.borrow(0) as descriptor:
            found.append(os.pread(descriptor, 2, 0))

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert asked.acquire(timeout=WAIT_S)
    for number in (1, 2, 1):
        with files.borrow(number) as descriptor:
            assert os.pread(descriptor, 2, 0) == bytes([number] * 2)
    assert not found
    go_on.set()
    for thread in threads:
        thread.join(WAIT_S)
    assert found == [b"\0\0"] * 2
    assert opens.count("0") == 1
    files.close()


def test_locks_are_made_anew_in_a_forked_child(folder):
    """A thread of the parent may hold one as it forks."""
    store = open_store(folder, access="read")
    with reader._opening.of(store, 3):
        child = os.fork()
        if child == 0:
            os._exit(17 if store.shard(3).columns["label"].tolist() == [6, 7] else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 17


def test_an_index_is_read_without_its_neighbours(folder, monkeypatch):
    """The kernel is told before the first read that none of what lies behind it is wanted."""
    told, advise, preadv = [], os.posix_fadvise, os.preadv

    def advising(descriptor, offset, length, advice):
        told.append(advice)
        advise(descriptor, offset, length, advice)

    def reading(descriptor, into, offset):
        told.append("read")
        return preadv(descriptor, into, offset)

    monkeypatch.setattr(os, "posix_fadvise", advising)
    monkeypatch.setattr(os, "preadv", reading)
    open_store(folder, access="read").shard(4)
    assert told[0] == os.POSIX_FADV_RANDOM
    assert told.count("read") <= 2


class Gate:
    """Reads of which none is answered before so many are under way."""

    def __init__(self, count):
        self.real = os.preadv
        self.together = threading.Barrier(count)
        self.places = []

    def __call__(self, descriptor, into, offset):
        self.places.append((offset, sum(map(len, into))))
        self.together.wait(WAIT_S)
        return self.real(descriptor, into, offset)


@pytest.fixture
def scattered(tmp_path, write_store):
    """A shard whose index lies here and there, as LMDB puts it into pages that became free."""
    samples = [{"key": str(at), "data": bytes(2**16), "label": at} for at in range(120)]
    fields = [Field(name="key", kind="text"), Field(name="data", kind="bytes"), FIELDS[1]]
    return write_store(tmp_path / "s", fields, samples, [120])


def test_an_index_comes_in_one_round_trip_wherever_it_lies(scattered, monkeypatch):
    """By the places that the manifest names, all of them at once, and nothing else is read."""
    store = open_store(scattered, access="read")
    parts = store.manifest.shards[0].index_parts
    assert len(parts) >= 2
    gate = Gate(len(parts))
    monkeypatch.setattr(os, "preadv", gate)
    assert store.shard(0).columns["label"].tolist() == list(range(120))
    assert sorted(gate.places) == parts
    assert sum(count for _, count in parts) < 2**16


def test_an_index_is_found_without_the_manifest_or_in_spite_of_it(scattered):
    """That of an older store, and one whose manifest names other places."""
    manifest = read_manifest(scattered)
    (info,) = manifest.shards
    for index in ((), (4096, 10), (0, info.bytes)):
        changed = msgspec.structs.replace(info, index=index)
        other = msgspec.structs.replace(manifest, shards=(changed,))
        store = reader.StoreReader(scattered, other, "read")
        assert store.shard(0).columns["label"].tolist() == list(range(120))
        assert store.find(b"77") == 77


def test_samples_are_found_without_loading_what_takes_long(folder):
    """Each loader worker does it before its first batch: numpy.ma would take it 10 ms."""
    code = f"""
import sys
import numpy as np
before = "numpy.ma" in sys.modules  # As in numpy 1.
from readers.store.reader import open_store
store = open_store({str(folder)!r}, access="read")
assert store.located(np.array([39, 0, 7])).column("label").tolist() == [39, 0, 7]
assert before or "numpy.ma" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
