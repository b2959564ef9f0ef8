"""Training begins where the store is and goes over to the copies, whoever reads and however."""

from __future__ import annotations

import gc
import logging
import os
import pickle
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from readers import make_loader
from readers.dataset import LMDBDataset
from readers.machine import Mount
from readers.staging import background, cache_folder
from readers.staging import stager as stager_module
from readers.staging.cache_folder import store_key
from readers.store.manifest import identity_of, read_manifest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def looks_often(monkeypatch):
    monkeypatch.setattr(stager_module, "LOOK_S", 0.02)


@pytest.fixture
def store(far, tmp_path):
    """A store of the test's own, to be harmed."""
    return Path(shutil.copytree(far.path, tmp_path / "out.lmdb"))


@pytest.fixture
def held(store, cache):
    """The right to copy the store: nothing is copied before it is released by calling this."""
    cache.make()
    locks, key = cache.locks(may_hold=True), store_key(identity_of(read_manifest(store)).hex())
    assert locks.hold(key)
    yield lambda: locks.release(key)  # A forked worker has the descriptor as well.
    locks.close()


def staging_threads():
    return [thread for thread in threading.enumerate() if thread.name == "staging"]


@pytest.fixture(autouse=True)
def no_thread_left():
    yield
    gc.collect()
    assert not staging_threads()


def empty(store):
    """From now on whoever reads where the store is gets an error."""
    for path in store.glob("shard-*.lmdb"):
        os.truncate(path, 0)


def loaders(dataset, kind):
    if kind == "thread":
        return make_loader(dataset, 1, train=True, workers=1, engine="thread")
    if kind.startswith("process"):
        start = kind.split()[1]
        return make_loader(dataset, 1, train=True, workers=1, engine="process", start_method=start)
    workers = 0 if kind == "stock" else 1
    start = kind.split()[1] if workers else None
    return DataLoader(dataset, 1, shuffle=True, num_workers=workers, multiprocessing_context=start)


@pytest.mark.parametrize(
    "kind",
    ["thread", "process fork", "process spawn", "stock", "stock fork", "stock spawn"],
)
def test_shards_go_over_in_the_middle_of_an_epoch(far, store, cache, held, kind, until):
    """Each sample comes once and is right; in the end nobody reads where the store is."""
    dataset = LMDBDataset(
        store, cache_dir=cache.path.parent, io="read", returns=("key", "image", "label")
    )
    loader = loaders(dataset, kind)
    batches, seen = iter(loader), []

    def take(batches, count):
        for _ in range(count):
            keys, images, labels = next(batches)
            expected = far.samples[int(keys[0])]
            assert int(labels[0]) == expected["label"]
            assert torch.equal(images[0], torch.from_numpy(expected["image"]).permute(2, 0, 1))
            seen.append(keys[0])

    take(batches, 10)
    assert not dataset.staging().is_whole
    held()
    until(lambda: dataset.staging().is_whole)
    time.sleep(1.1)  # By the next request each process looks for copies.
    empty(store)
    take(batches, 38)
    assert next(batches, None) is None
    assert sorted(seen) == [sample["key"] for sample in far.samples]
    del batches
    if hasattr(loader, "close"):
        loader.close()


def test_samples_without_a_fixed_size_come_from_copies_too(far, store, cache, until):
    """One by one and many at once, keys, columns; before and after."""
    dataset = LMDBDataset(store, cache_dir=cache.path.parent, io="read")
    captions = [sample["caption"] for sample in far.samples]
    assert [dataset[at]["caption"] for at in range(48)] == captions
    until(lambda: dataset.staging().is_whole)
    time.sleep(1.1)
    dataset.__getitems__([0])
    empty(store)
    assert [dataset[at]["caption"] for at in range(48)] == captions
    assert [sample["caption"] for sample in dataset.__getitems__(list(range(48)))] == captions
    assert dataset.index_of("013") == 13
    assert (dataset.columns["label"] == np.arange(48) % 2).all()


def test_what_is_staged_is_not_opened_where_the_store_is(far, store, cache, until):
    """A job that comes later reads the manifest there, and no more."""
    first = LMDBDataset(store, cache_dir=cache.path.parent)
    until(lambda: first.staging().is_whole)
    first.close()
    for path in store.glob("shard-*.lmdb"):
        path.unlink()
    dataset = LMDBDataset(store, cache_dir=cache.path.parent, checks_files=False)
    assert [dataset[at]["key"] for at in range(48)] == [s["key"] for s in far.samples]
    assert dataset.select([47, 3]).view.store is dataset.view.store


def test_a_copy_that_was_damaged_later_is_not_the_end(far, store, cache, caplog, until):
    """It is removed, its shard is read where the store is, and then copied again."""
    first = LMDBDataset(store, cache_dir=cache.path.parent)
    until(lambda: first.staging().is_whole)
    first.close()
    path = cache.copy_path(first.manifest.shards[2].sha256)
    first.close()
    gc.collect()
    size = path.stat().st_size
    path.chmod(0o644)
    path.write_bytes(bytes(size))
    dataset = LMDBDataset(store, cache_dir=cache.path.parent)
    assert [dataset[at]["key"] for at in range(48)] == [s["key"] for s in far.samples]
    assert f"{path}: this copy is damaged" in caplog.text
    dataset.close()
    again = LMDBDataset(store, cache_dir=cache.path.parent)
    until(lambda: again.staging().is_whole)
    assert path.read_bytes() == (store / "shard-00002.lmdb").read_bytes()
    again.close()


def test_the_end_of_use_is_what_counts(store, cache, until):
    """Of two stores, the one that was read until now is not the first to go."""
    dataset = LMDBDataset(store, cache_dir=cache.path.parent)
    until(lambda: dataset.staging().is_whole)
    dataset.close()
    assert dataset[0]["key"] == "000"
    path = cache.copy_path(dataset.manifest.shards[0].sha256)
    os.utime(path, (1, 1))
    dataset.close()
    gc.collect()
    assert path.stat().st_mtime > 1_000_000


def test_copying_ends_with_the_last_user_of_the_dataset(store, cache, held):
    """Whether it is closed or forgotten; a part of it is a user."""
    dataset = LMDBDataset(store, cache_dir=cache.path.parent)
    part = dataset.select([1, 2])
    other = LMDBDataset(store, cache_dir=cache.path.parent)
    assert len(staging_threads()) == 1
    del dataset
    other.close()
    gc.collect()
    assert len(staging_threads()) == 1
    assert part[0]["key"] == "001"
    del part
    gc.collect()
    assert staging_threads() == []
    assert other[0]["key"] == "000"
    assert len(staging_threads()) == 1  # It was opened again.
    other.close()


def test_a_dataset_that_travels_is_staged_by_who_made_it(store, cache, held):
    """Loader workers, which get it by fork or pickle, copy nothing."""
    dataset = LMDBDataset(store, cache_dir=cache.path.parent)
    data = pickle.dumps(dataset)
    assert len(data) < 1500
    child = os.fork()
    if child == 0:
        status = 1
        try:
            received = pickle.loads(data)
            samples = [dataset[3]["key"], received[3]["key"]]
            is_right = samples == ["003"] * 2 and dataset.view.stage(dataset.manifest) is not None
            status = 17 if is_right and received.staging() is None and not staging_threads() else 1
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 17
    dataset.close()


def test_forked_children_do_not_keep_the_lock_of_a_copier(store, cache, until):
    """Workers may outlive their parent for a while, and others are to go on at once."""
    cache.make()
    dataset = LMDBDataset(store, cache_dir=cache.path.parent, cache_rate=64_000)
    key = store_key(identity_of(dataset.manifest).hex())

    def is_copied():
        locks = cache.locks(may_hold=True)
        try:
            return locks.is_taken(key)
        finally:
            locks.close()

    until(is_copied)
    child = os.fork()
    if child == 0:
        opened = [os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
        os._exit(1 if str(cache.path / "locks") in opened else 17)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 17
    assert is_copied()
    dataset.close()
    assert not is_copied()


def test_a_cache_that_cannot_be_used_is_told_and_reading_goes_on(store, cache, caplog, monkeypatch):
    """Where the store is."""
    nfs = Mount(Path("/data"), "nfs4", ())
    monkeypatch.setattr(cache_folder, "mount_of", lambda _: nfs)
    dataset = LMDBDataset(store, cache_dir=cache.path.parent)
    assert "/data (nfs4)" in caplog.text
    assert str(store) in caplog.text
    assert dataset[5]["key"] == "005"
    assert dataset.staging() is None


def test_copies_of_a_cache_that_cannot_be_written_are_read(store, cache, caplog, until):
    """As one that was filled before the job, by somebody who may."""
    first = LMDBDataset(store, cache_dir=cache.path.parent)
    until(lambda: first.staging().is_whole)
    first.close()
    (cache.path / cache.copy_path(next(iter(cache.whole())))).unlink()
    (cache.path / "locks").chmod(0o444)
    with caplog.at_level(logging.WARNING):
        user = os.geteuid()
        for folder in (*store.parents, store, *store.iterdir()):
            if user == 0 and folder.stat().st_uid == 0 and str(folder).startswith("/tmp/pytest"):
                folder.chmod(folder.stat().st_mode | 0o055)
        if user == 0:
            os.seteuid(65534)
        else:
            cache.path.chmod(0o555)
        try:
            dataset = LMDBDataset(store, cache_dir=cache.path.parent, io="read")
            assert [dataset[at]["key"] for at in range(0, 48, 8)] == [
                f"{at:03d}" for at in range(0, 48, 8)
            ]
            assert dataset.view.store.bytes.near_count == 5
            until(lambda: not staging_threads())
            dataset.close()
        finally:
            os.seteuid(user)
            cache.path.chmod(0o755)
    assert "Permission denied" in caplog.text


def test_problems_are_told_once(far, store, cache, caplog, monkeypatch, until):
    """And tried again where that may help."""
    monkeypatch.setattr(background, "_RETRY_S", 0.01)
    away = (store / "shard-00001.lmdb").rename(store / "away")
    dataset = LMDBDataset(store, cache_dir=cache.path.parent, checks_files=False)
    until(lambda: dataset.staging().staged_count == 5)
    time.sleep(0.2)
    away.rename(store / "shard-00001.lmdb")
    until(lambda: dataset.staging().is_whole)
    until(lambda: not staging_threads())
    assert caplog.text.count("shard-00001.lmdb") == 1


def test_a_process_ends_in_the_middle_of_a_copy(far, cache):
    """Silently, with what it has; no exception of a thread, and no file closed under its hands."""
    code = (
        "import sys, threading\n"
        "from readers.dataset import LMDBDataset\n"
        "from readers.staging import shard_copy\n"
        "begun, real = threading.Event(), shard_copy.RecordSource.read\n"
        "def read(self, start, into):\n"
        "    begun.set()\n"
        "    real(self, start, into)\n"
        "shard_copy.RecordSource.read = read\n"
        "dataset = LMDBDataset(sys.argv[1], cache_dir=sys.argv[2], cache_rate=300_000)\n"
        "begun.wait(60)\n"
    )
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", code, far.path, cache.path.parent],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
    assert len(cache.whole()) < 6
    assert cache.entries()


def test_a_cache_within_its_store_is_a_mistake(store, tmp_path):
    """So are settings of a cache without one."""
    with pytest.raises(ValueError, match="is the store"):
        LMDBDataset(store, cache_dir=store)
    (tmp_path / "link").symlink_to(store)
    with pytest.raises(ValueError, match="is in the store"):
        LMDBDataset(store, cache_dir=tmp_path / "link" / "cache")
    with pytest.raises(ValueError, match="give cache_dir with them"):
        LMDBDataset(store, cache_limit=10)
    with pytest.raises(ValueError, match="rate of a cache must be at least 1"):
        LMDBDataset(store, cache_dir=tmp_path, cache_rate=0)
