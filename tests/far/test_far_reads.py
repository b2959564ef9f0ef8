"""Reading a store from a server that is far away: the samples, the calls, the faults."""

from __future__ import annotations

import re
import shutil
import threading
import time

import numpy as np
import pytest
from torch.utils.data import DataLoader

from readers import make_loader
from readers.dataset import LMDBDataset
from readers.ops import RandomResizedCrop
from readers.orders.samplers import SequentialSampler
from readers.store.errors import ShardError
from scripts.far_mount import Far, Fault, mounted
from tests.far.conftest import SHARD_COUNT

STORES = ("large", "small", "jpegs")
NAMES = ("image", "label")


@pytest.fixture
def opened():
    """Opens datasets, which are let go of when the test ends: opened(path, io=...)."""
    datasets = []

    def open_one(path, **settings):
        datasets.append(LMDBDataset(path, returns=NAMES, **settings))
        return datasets[-1]

    yield open_one
    for dataset in datasets:
        dataset.close()


def check_epoch(store, batches, count):
    """Each sample of the store once, or the first `count`; each as it was stored."""
    labels = []
    for images, found in batches:
        store.check(images, found)
        labels += found.tolist()
    assert sorted(labels) == list(range(count))


def loader_of(dataset, engine, batch_size=16, workers=2, **settings):
    """A loader of each kind, in shuffled order."""
    if engine == "stock":
        return DataLoader(dataset, batch_size, shuffle=True, num_workers=workers, **settings)
    return make_loader(
        dataset, batch_size, train=True, engine=engine, workers=workers, drop_last=False, **settings
    )


# --- Samples --------------------------------------------------------------------------------------


@pytest.mark.parametrize("io", ["auto", "map", "read", "read-ahead"])
@pytest.mark.parametrize("name", STORES)
def test_samples_are_right_whichever_way_they_come(far, request, opened, name, io):
    """One by one, in a list, and at the ends of shards; auto reads, since the mount is FUSE."""
    store = request.getfixturevalue(name)
    far.set(Far.of_delay(0.5))
    dataset = opened(store.far, io=io)
    count = len(store.images)
    some = [0, count - 1, count // 2, count // SHARD_COUNT - 1, count // SHARD_COUNT, 5, 5]
    assert dataset.view.store.access == ("map" if io == "map" else "read")
    store.check(*zip(*[dataset[at] for at in some], strict=True))
    store.check(*zip(*dataset.__getitems__(some), strict=True))


@pytest.mark.parametrize("engine", ["thread", "process", "stock"])
@pytest.mark.parametrize("name", ["large", "jpegs"])
def test_every_loader_gives_every_sample_once(far, request, opened, name, engine):
    """Shuffled, over 2 ms a call; sizes that differ go through a stock DataLoader one by one."""
    store = request.getfixturevalue(name)
    far.set(Far.of_delay(2))
    batch_size = 1 if name == "jpegs" and engine == "stock" else 16
    loader = loader_of(opened(store.far), engine, batch_size)
    check_epoch(store, loader, len(store.images))


@pytest.mark.parametrize("io", ["auto", "read", "read-ahead"])
def test_a_mount_that_refuses_to_map_is_read(far, large, opened, io):
    """As some file systems of clusters do; nothing is to be set for it."""
    far.set(maps=False)
    check_epoch(large, loader_of(opened(large.far, io=io), "thread"), 64)


# --- Calls ----------------------------------------------------------------------------------------


def read_all(dataset, order, batch_size=16):
    """Ask for samples in an order, batch by batch."""
    for first in range(0, len(order), batch_size):
        dataset.__getitems__(order[first : first + batch_size].tolist())


def test_a_shuffled_sample_costs_no_more_than_its_bytes(far, large, opened):
    """One request each where it fits into one, at most one more where it begins inside a page."""
    dataset = opened(large.far)
    read_all(dataset, np.arange(0, 64, 16))  # Opens the shards, which is counted elsewhere.
    far.reset()
    order = np.random.default_rng(0).permutation(60)[:40]
    read_all(dataset, order)
    counts = far.counts()
    assert counts.read_count <= 40
    assert counts.read_bytes <= 1.2 * 40 * 124_800
    assert counts.open_count + counts.stat_count <= 2 * SHARD_COUNT


def test_samples_in_order_come_by_large_requests(far, small, opened):
    """A tenth of a call each, at most."""
    dataset = opened(small.far)
    loader = make_loader(
        dataset, 64, train=True, sampler=SequentialSampler(dataset), drop_last=False
    )
    far.reset()
    check_epoch(small, loader, 1600)
    counts = far.counts()
    assert counts.read_count <= 160
    assert counts.read_bytes <= 1.5 * 1600 * 3072


def test_many_reads_are_under_way_at_once(far, large, opened):
    """A batch is one round trip or a few, not one for each sample."""
    dataset = opened(large.far)
    read_all(dataset, np.arange(0, 64, 16))
    far.set(Far.of_delay(50))
    far.reset()
    dataset.__getitems__(list(range(1, 64, 4)))
    assert far.counts().in_flight_max >= 8


def test_an_epoch_asks_for_few_names(far, small, opened):
    """Two calls a shard at most, whatever the samples; a folder of files takes two a sample."""
    loader = loader_of(opened(small.far), "thread", 100)
    check_epoch(small, loader, 1600)
    far.reset()
    check_epoch(small, loader, 1600)
    counts = far.counts()
    assert counts.open_count + counts.stat_count <= 2 * SHARD_COUNT


def test_shards_that_are_not_needed_are_not_touched(far, large, opened):
    """A look at each for its size, when the store is opened; no open, no read."""
    dataset = opened(large.far)
    large.check(*zip(*dataset.__getitems__([17, 20]), strict=True))
    paths = far.counts().paths
    for number in (0, 2, 3):
        name = f"/large.lmdb/shard-{number:05d}.lmdb"
        assert not paths["read"].get(name, 0)
        assert not paths["open"].get(name, 0)


def test_a_crop_reads_its_rows_alone(far, large, opened):
    """Of pixels of one size, what lies above and below the window is not asked for."""
    ops = (RandomResizedCrop(64, scale=(0.05, 0.1), ratio=(1, 1)),)
    dataset = opened(large.far)
    read_all(dataset, np.arange(0, 64, 16))
    far.reset()
    loader = loader_of(dataset, "thread", ops=ops)
    assert sum(len(images) for images, _ in loader) == 64
    assert far.counts().read_bytes <= 0.7 * 64 * 124_800


# --- Faults ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", ["EIO", "ESTALE"])
@pytest.mark.parametrize("engine", ["thread", "process", "stock"])
def test_a_fault_now_and_then_is_not_seen(far, large, opened, engine, error):
    """Every seventh read fails, and every fifth open; each sample comes once, and right."""
    dataset = opened(large.far)
    read_all(dataset, np.arange(0, 64, 16))
    far.set(
        read_ms=1,
        faults=(
            Fault(call="read", error=error, every=7, match="*/shard-*"),
            Fault(call="open", error=error, every=5, match="*/shard-*"),
        ),
    )
    check_epoch(large, loader_of(dataset, engine), 64)
    assert far.counts().fault_count >= 5


@pytest.mark.parametrize("engine", ["thread", "process", "stock"])
def test_a_fault_that_stays_names_shard_and_offset(far, large, opened, engine):
    """After the retries; nobody is left waiting for a batch that cannot come."""
    dataset = opened(large.far)
    read_all(dataset, np.arange(0, 64, 16))
    # Denied at once: a fault that no waiting mends, so that the test has not to wait either.
    far.set(faults=(Fault(call="read", error="EACCES", match="*/shard-00002.lmdb"),))
    # A stock DataLoader takes five seconds a worker to end after any error.
    loader = loader_of(dataset, engine, workers=0 if engine == "stock" else 2)
    with pytest.raises(ShardError, match=r"shard-00002\.lmdb.* at offset \d+.*Permission denied"):
        for _ in loader:
            pass


@pytest.mark.parametrize("away", ["silent", "ETIMEDOUT"])
def test_a_server_may_be_away_for_a_while(far, large, opened, away):
    """Calls that wait for it and calls that fail: the epoch goes on when it is back."""
    dataset = opened(large.far)
    loader = loader_of(dataset, "thread")
    batches = iter(loader)
    first = next(batches)
    far.set(away=away)
    back = threading.Timer(1.5, lambda: far.set(away=""))
    back.start()
    try:
        started = time.monotonic()
        rest = list(batches)
    finally:
        back.join()
    check_epoch(large, [first, *rest], 64)
    assert time.monotonic() - started > 1


def test_a_file_that_was_replaced_is_an_error(far, large, opened, tmp_path):
    """Never its bytes: they would be taken for samples of the store that was opened."""
    near = tmp_path / "near"
    shutil.copytree(large.near, near / "large.lmdb")
    # Of what the kernel believes from before, nobody could tell the new file.
    with mounted(near, tmp_path / "mount", cache_s=0) as mount:
        dataset = opened(mount.path / "large.lmdb")
        dataset.__getitems__([0, 16])
        shard = near / "large.lmdb" / "shard-00001.lmdb"
        content = bytearray(shard.read_bytes())
        content[-100_000:] = bytes(100_000)
        other = near / "other"
        other.write_bytes(content)
        other.replace(shard)
        with pytest.raises(ShardError, match=r"shard-00001\.lmdb: is another file than the one"):
            dataset.__getitems__(list(range(20, 32)))
        dataset.close()


def test_the_verdict_says_that_storage_is_waited_for(far, large, opened):
    """Which of all things holds training up."""
    far.set(Far.of_delay(20))
    loader = loader_of(opened(large.far), "thread")
    assert sum(len(images) for images, _ in loader) == 64
    assert re.search(r"waits for storage: .* MB/s, .* ms a read", loader.stats()["verdict"])


def test_a_store_near_by_does_not_wait_for_one_far_away(far, large, small, opened):
    """Its shards are opened and read while the other's server does not answer."""
    gone, near = opened(large.far), opened(small.near)
    gone.__getitems__([0])
    far.set(away="silent")
    waiting = threading.Thread(target=gone.__getitems__, args=([20, 40],))
    waiting.start()
    back = threading.Timer(10, lambda: far.set(away=""))
    back.start()
    try:
        read_all(near, np.arange(0, 1600, 7))
        assert waiting.is_alive()
    finally:
        far.set(away="")
        back.cancel()
        waiting.join()
        back.join()
