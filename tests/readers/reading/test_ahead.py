"""The batches to come are read while this one is worked on, by every engine, within limits."""

from __future__ import annotations

import os
import threading
import time

import numpy as np
import pytest
from torch.utils.data import ConcatDataset

from readers import ReadPolicy, make_loader
from readers.dataset import LMDBDataset
from readers.ops import CenterCrop, RandomFlip, RandomResizedCrop
from readers.reading.ahead import COUNT, Ahead
from readers.store.errors import ShardError
from readers.store.read_bytes import ReadBytes
from readers.store.schema import Field

SIDE = 40
WAIT_S = 30
FIELDS = [
    Field(name="image", kind="image", dtype="uint8", shape=(SIDE, SIDE, 3), codec="raw"),
    Field(name="label", kind="scalar", dtype="int64"),
]


@pytest.fixture
def folder(tmp_path, write_store):
    """60 samples in two shards; pixels of sample i are i."""
    samples = [{"image": np.full((SIDE, SIDE, 3), at, np.uint8), "label": at} for at in range(60)]
    return write_store(tmp_path / "s", FIELDS, samples, (21, 39))


def eventually(is_so):
    end = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.fixture
def loader_of(folder):
    """Makes loaders of the store as it is read; all are closed."""
    made = []

    def loader_of(dataset=None, **settings):
        settings = {"train": True, "workers": 0, "seed": 3, "batch_size": 5, **settings}
        made.append(make_loader(dataset or LMDBDataset(folder, io="read"), **settings))
        return made[-1]

    yield loader_of
    for loader in made:
        loader.close()


def ahead_bytes(loader):
    return loader.contents.dataset.view.store.bytes.ahead_bytes()


def test_while_the_loop_works_the_next_batches_are_read(loader_of):
    """As many as it is good to know of, and no more; at the end nothing is kept."""
    loader = loader_of()
    batches = iter(loader)
    next(batches)
    batch_bytes = 5 * SIDE * SIDE * 3
    eventually(lambda: ahead_bytes(loader) == COUNT * batch_bytes)
    assert len(list(batches)) == 11
    assert ahead_bytes(loader) == 0
    reads = loader.stats()["reads"]
    assert reads["ahead_count"] >= COUNT
    assert reads["byte_count"] >= 60 * SIDE * SIDE * 3
    # The one that is being handed over may still count when the next is announced.
    assert reads["ahead_bytes"] in (COUNT * batch_bytes, (COUNT + 1) * batch_bytes)


@pytest.mark.parametrize("settings", [{}, {"engine": "thread", "workers": 2}])
def test_an_epoch_that_is_broken_off_keeps_nothing(loader_of, settings):
    """Neither memory nor reads to come; the next epoch is whole."""
    loader = loader_of(**settings)
    for _ in loader:
        eventually(lambda: ahead_bytes(loader) > 0)
        break
    eventually(lambda: ahead_bytes(loader) == 0)
    assert sum(len(batch["label"]) for batch in loader) == 60


@pytest.mark.parametrize("ops", [(), (RandomResizedCrop(8),)])
@pytest.mark.parametrize(
    "settings",
    [
        {"workers": 0},
        {"engine": "thread", "workers": 2},
        {"engine": "process", "workers": 2},
    ],
)
def test_each_engine_reads_ahead_and_gives_the_right_batches(
    loader_of, folder, same, settings, ops
):
    """The same as out of mapped files, epoch after epoch; the figures say how they came."""
    loader = loader_of(ops=ops, **settings)
    mapped = loader_of(LMDBDataset(folder, io="map"), ops=ops)
    for _ in range(2):
        assert same(list(loader), list(mapped))
    reads = loader.stats()["reads"]
    assert reads["read_count"] > 0
    assert reads["ahead_count"] > 0
    assert mapped.stats()["reads"]["read_count"] == 0


def test_several_stores_are_read_ahead_together(folder, loader_of, same, tmp_path, write_store):
    """Each reads its share of a batch."""
    samples = [{"image": np.full((SIDE, SIDE, 3), at, np.uint8), "label": at} for at in range(9)]
    other = write_store(tmp_path / "other", FIELDS, samples)

    def batches(io):
        dataset = ConcatDataset([LMDBDataset(folder, io=io), LMDBDataset(other, io=io)])
        loader = loader_of(dataset, ops=(RandomResizedCrop(8),))
        return list(loader), loader.stats()["reads"]["ahead_count"]

    (read, count), (mapped, none) = batches("read"), batches("map")
    assert same(read, mapped)
    assert count > 0
    assert none == 0


def test_what_was_read_ahead_was_read_once(loader_of, monkeypatch):
    """An epoch asks for each byte of its records once."""
    loader = loader_of()
    list(loader)  # Shards are open.
    sizes, preadv = [], os.preadv

    def counting(descriptor, into, offset):
        sizes.append(sum(len(piece) for piece in into))
        return preadv(descriptor, into, offset)

    monkeypatch.setattr(os, "preadv", counting)
    before = loader.stats()["reads"]["byte_count"]
    list(loader)
    assert sum(sizes) == loader.stats()["reads"]["byte_count"] - before
    assert len(sizes) <= 60


def test_a_shard_that_is_gone_is_the_error_of_its_batch(loader_of, folder):
    """Those before it come; the error is the one of the store, with its path."""
    loader = loader_of(train=False)
    (folder / "shard-00001.lmdb").unlink()
    labels = []

    def go_through():
        for batch in loader:
            labels.extend(batch["label"].tolist())

    with pytest.raises(ShardError, match=r"shard-00001.*No such file"):
        go_through()
    assert labels == list(range(20))


class Requests:
    """What is prepared, where it matters how much room there is for it."""

    def __init__(self):
        self.room = 2
        self.begun = []
        self.go_on = threading.Event()
        self.go_on.set()

    def prepare(self, indices, epoch):
        assert self.go_on.wait(WAIT_S)
        self.begun.append((indices.tolist(), epoch))
        return Prepared(self)


class Prepared:
    """A batch, and its request."""

    def __init__(self, requests):
        self.requests = requests
        self.request = self
        self.is_announced = False

    def announce(self, record_bytes):
        self.is_announced = self.requests.room > 0
        self.requests.room -= self.is_announced
        return self.is_announced

    def fetch(self, record_bytes):
        self.requests.room += 1


def numbers(*values):
    return np.array(values, np.int64)


def test_where_there_is_no_room_it_waits_until_a_batch_was_taken():
    """In the order in which they were expected; each is prepared once."""
    requests = Requests()
    ahead = Ahead(requests.prepare, ReadBytes(0))
    for at in range(5):
        ahead.expect(numbers(at, at), 7)
    eventually(lambda: len(requests.begun) == 3)
    time.sleep(0.02)
    assert requests.begun == [([0, 0], 7), ([1, 1], 7), ([2, 2], 7)]
    assert ahead.take(numbers(0, 0), 7) is not None
    eventually(lambda: len(requests.begun) == 4)
    assert ahead.take(numbers(1, 1), 8) is None
    for at in range(1, 5):
        eventually(lambda at=at: ([at, at], 7) in requests.begun)
        assert ahead.take(numbers(at, at), 7) is not None
    assert len(requests.begun) == 5
    assert ahead.take(numbers(4, 4), 7) is None


def test_what_is_not_begun_is_left_to_who_takes_it():
    """It would only wait for what is before it."""
    requests = Requests()
    requests.go_on.clear()
    ahead = Ahead(requests.prepare, ReadBytes(0))
    ahead.expect(numbers(0), 0)
    ahead.expect(numbers(1), 0)
    assert ahead.take(numbers(1), 0) is None
    requests.go_on.set()
    eventually(lambda: requests.begun)
    ahead.drop()
    assert ahead.take(numbers(0), 0) is None


def brightness(sample):
    """A transform: Python has a hand in each sample."""
    return float(sample["image"].float().mean()), sample["label"]


@pytest.mark.parametrize(
    "settings", [{"workers": 0}, {"engine": "thread", "workers": 2}, {"workers": 2}]
)
def test_samples_of_a_transform_are_read_ahead_as_well(loader_of, folder, same, settings):
    """By each engine, and as they are out of mapped files."""
    read = loader_of(LMDBDataset(folder, io="read", transform=brightness), **settings)
    mapped = loader_of(LMDBDataset(folder, io="map", transform=brightness))
    for _ in range(20):  # Of a busy machine the thread that reads ahead may miss a whole epoch.
        assert same(list(read), list(mapped))
        reads = read.stats()["reads"]
        if reads["ahead_count"]:
            break
    assert reads["ahead_count"] > 0
    assert reads["byte_count"] >= 60 * SIDE * SIDE * 3


@pytest.mark.parametrize(("op", "rows"), [(CenterCrop(8), 8), (RandomFlip(), SIDE)])
@pytest.mark.parametrize(
    "settings", [{"workers": 0}, {"engine": "thread", "workers": 1}, {"workers": 1}]
)
def test_of_pixels_the_rows_of_their_window_alone_are_read(loader_of, folder, settings, op, rows):
    """By one read for each sample, whoever fills the batch; without a crop that is all of them."""
    policy = ReadPolicy(gap_bytes_max=0)
    dataset = LMDBDataset(folder, io="read", read_policy=policy)
    loader = loader_of(dataset, ops=(op,), **settings)
    for _ in range(2):
        list(loader)
    reads = loader.stats()["reads"]
    assert reads["read_count"] == 2 * 60
    assert reads["byte_count"] == 2 * 60 * rows * SIDE * 3
