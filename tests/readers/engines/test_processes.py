"""A dataset may be forked, spawned, pickled and read by many at once, whenever that happens."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from readers.dataset import LMDBDataset
from readers.reading.collate import collate
from tests.processes import in_fork

METHODS = ("fork", "spawn", "forkserver")


def check_all(dataset, indices):
    """Each sample of `many_shards` is the one that its index says."""
    for at in indices:
        key, label, image = dataset[at]
        assert (key, label, int(image[0, 1, 1])) == (f"{at:03d}", at % 10, at % 251)


@pytest.fixture
def dataset(many_shards):
    """600 samples in 300 shards."""
    return LMDBDataset(many_shards, returns=("key", "label", "image"))


@pytest.mark.parametrize("method", METHODS)
def test_workers_read_the_same_however_they_are_started(dataset, same, method):
    """The parent has read before, reads on in between and afterwards; nobody disturbs another."""
    check_all(dataset, range(0, 600, 7))
    dataset.__getitems__([5, 300])
    loader = DataLoader(
        dataset,
        50,
        num_workers=2,
        collate_fn=collate,
        multiprocessing_context=method,
        persistent_workers=True,
    )
    for _ in range(2):
        for number, batch in enumerate(loader):
            indices = range(number * 50, number * 50 + 50)
            assert same(batch, collate([dataset[at] for at in indices]))
    del loader
    check_all(dataset, range(600))


@pytest.mark.parametrize("method", METHODS[:2])
def test_torchs_own_collation_gets_the_same(shapes, same, method):
    """A stock DataLoader with nothing of ours but the dataset, never read before it is sent."""
    dataset = LMDBDataset(shapes.path, split="val")
    (batch,) = DataLoader(dataset, 4, num_workers=1, multiprocessing_context=method)
    assert same(batch["key"], [sample["key"] for sample in shapes.samples[8:]])
    expected = torch.from_numpy(np.stack([sample["image"] for sample in shapes.samples[8:]]))
    assert same(batch["image"].permute(0, 2, 3, 1), expected)


def test_children_of_children_read_on(dataset):
    """Each process opens what it lacks, and keeps what its parent had opened."""
    check_all(dataset, range(0, 100))

    def child():
        check_all(dataset, range(50, 300))
        in_fork(grandchild)
        check_all(dataset, range(600))

    def grandchild():
        check_all(dataset, range(250, 600))
        dataset.close()
        check_all(dataset, range(0, 600, 11))

    in_fork(child)
    check_all(dataset, range(600))


def test_a_fork_amid_reads_of_other_threads_is_harmless(dataset):
    """There is no lock that a child could find taken by a thread it does not have."""
    stop = threading.Event()

    def read():
        order = np.random.default_rng(0)
        while not stop.is_set():
            dataset[int(order.integers(600))]
            dataset.__getitems__(order.integers(600, size=8))

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for start in range(12):
            in_fork(lambda start=start: check_all(dataset, range(start, 600, 12)))
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)


def mapped(path):
    """How often each file of a folder is mapped in this process."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    names = [line.split(maxsplit=5)[5] for line in lines if str(path) in line]
    return {Path(name).name: names.count(name) for name in names}


def test_datasets_of_one_store_share_its_handles(shapes, copy_store, tmp_path, same):
    """Through whatever path: a file is mapped once, and stays so until its last user is gone."""
    path = copy_store(shapes.path)
    link = tmp_path / "link"
    link.symlink_to(path)
    first, second = LMDBDataset(path), LMDBDataset(link)
    split = LMDBDataset(link, split="val")
    expected = LMDBDataset(shapes.path)
    assert same([first[at] for at in range(12)], [expected[at] for at in range(12)])
    assert same([second[at] for at in range(12)], [expected[at] for at in range(12)])
    assert split.key_of(0) == expected.key_of(8)
    once = {f"shard-{number:05d}.lmdb": 1 for number in range(3)}
    assert mapped(path) == once
    del first, split
    assert mapped(path) == once
    assert same([second[at] for at in range(12)], [expected[at] for at in range(12)])
    second.close()
    assert mapped(path) == {}
    assert same(second[11], expected[11])


def test_shards_are_opened_when_they_are_asked_for(shapes, copy_store):
    """A dataset of ten thousand shards is made at once, and reads of one leave the others."""
    path = copy_store(shapes.path)
    dataset = LMDBDataset(path)
    assert len(dataset) == 12
    assert mapped(path) == {}
    dataset[5]
    assert mapped(path) == {"shard-00001.lmdb": 1}
    dataset.__getitems__([0, 1])
    assert set(mapped(path)) == {"shard-00000.lmdb", "shard-00001.lmdb"}


def test_hundreds_of_processes_may_read_one_store(shapes, run_python):
    """More than LMDB's own table of readers has room for: 140 that all have it open at once."""
    code = """
import json, os, sys
from readers.store.reader import open_store
from readers.store.record import RecordReader

def read(ready, go):
    store = open_store(sys.argv[1])
    unpack = RecordReader(store.layout).unpack
    shard, place = store.locate(11)
    unpack(shard.record(place))
    os.write(ready, b"x")
    os.read(go, 1)  # Until all of them are here.
    for at in range(12):
        shard, place = store.locate(at)
        assert unpack(shard.record(place))["key"].endswith(f"{at:04d}.png")
        shard.check_record(place)

ready, set_ready = os.pipe()
go, set_go = os.pipe()
children = []
for number in range(140):
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(set_go)
            read(set_ready, go)
            status = 0
        finally:
            os._exit(status)
    children.append(child)
os.close(set_ready)
count = 0
while count < 140:
    some = os.read(ready, 140)
    assert some, "a child died"
    count += len(some)
os.close(set_go)
print(json.dumps([os.waitpid(child, 0)[1] for child in children]))
"""
    assert run_python(code, shapes.path) == [0] * 140
