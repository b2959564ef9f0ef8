"""Samples are the same whichever way the bytes of their records come."""

from __future__ import annotations

import os
import shutil
import threading

import numpy as np
import pytest
import torch

from readers import make_loader
from readers.dataset import LMDBDataset
from readers.ops import RandomFlip, RandomResizedCrop
from readers.reading.collate import collate
from readers.reading.gather import Gatherer
from readers.store.errors import ShardError
from readers.store.layout import shard_name
from readers.store.read_bytes import ReadBytes
from readers.store.reader import StoreReader
from readers.store.record_bytes import Pieces
from readers.store.samples import Samples

PICTURES = ("photo", "sized", "gray")


@pytest.fixture
def read_stores(monkeypatch, tmp_path):
    """Gives a copy of a store, which nobody has open; from then on stores are opened by reads."""

    def reserve(_, manifest):
        return ReadBytes(len(manifest.shards))

    def copy(path):
        monkeypatch.setattr(StoreReader, "_reserve", reserve)
        return shutil.copytree(path, tmp_path / f"{len(list(tmp_path.iterdir()))}.lmdb")

    return copy


def is_mapped(path):
    with open("/proc/self/maps") as maps:
        return str(path) in maps.read()


def test_fields_of_every_kind_are_read_as_they_are_mapped(every_kind, read_stores, same):
    """One by one, many at once, by their numbers, by their keys; and no file is mapped."""
    mapped = LMDBDataset(every_kind.path)
    expected = [mapped[at] for at in range(11)]
    path = read_stores(every_kind.path)
    dataset, samples = LMDBDataset(path), Samples(path)
    assert same([dataset[at] for at in range(11)], expected)
    indices = [3, 0, 10, 7, 3]
    assert same(list(dataset.__getitems__(indices)), [expected[at] for at in indices])
    for at, sample in enumerate(Samples(every_kind.path)):
        assert same(samples[at], sample)
        assert dataset.key_of(at) == sample["key"]
        assert dataset.index_of(sample["key"]) == at
    for name, column in mapped.columns.items():
        assert np.array_equal(dataset.columns[name], column)
    assert is_mapped(every_kind.path)
    assert not is_mapped(path)


@pytest.mark.parametrize("fields", [["key", "int16_array"], ["int16_array"]])
@pytest.mark.parametrize("picture", PICTURES)
@pytest.mark.parametrize("settings", [{"workers": 0}, {"engine": "thread"}, {"engine": "process"}])
def test_engines_fill_the_same_batches(every_kind, read_stores, same, picture, settings, fields):
    """With operations, on pictures of one size and of several, decoded and not."""
    settings = {"workers": 2, "train": True, "drop_last": False, "seed": 3, **settings}

    def batches(path):
        dataset = LMDBDataset(path, fields=[picture, *fields])
        loader = make_loader(dataset, 4, ops=(RandomResizedCrop(5), RandomFlip()), **settings)
        found = list(loader)
        loader.close()
        return found

    expected = batches(every_kind.path)
    assert same(batches(read_stores(every_kind.path)), expected)


def test_a_file_that_is_cut_short_is_an_error_not_the_end(every_kind, read_stores):
    """The shard is named, in batches and in single samples alike."""
    path = read_stores(every_kind.path)
    dataset = LMDBDataset(path, fields=["photo", "key"])
    assert len(dataset.__getitems__(range(11))) == 11
    os.truncate(path / shard_name(2), 4096)
    with pytest.raises(ShardError, match=shard_name(2)):
        dataset.__getitems__(range(11))
    with pytest.raises(ShardError, match=shard_name(2)):
        dataset[10]


def test_threads_gather_from_memory_of_their_own():
    """One gatherer serves all of them, and each batch that was read has another memory."""
    gather, wrong = Gatherer(), []

    def work(number):
        for _ in range(300):
            memory = np.full(1000, number, np.uint8)
            out = torch.empty((3, 10), dtype=torch.uint8)
            gather(Pieces(memory, np.array([5, 900, 5]), False, False), out)
            wrong.extend([] if (out == number).all() else [number])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_batch_that_lies_in_place_is_left_there(shapes, read_stores):
    """What was read into the memory of the batch is not copied again."""
    dataset = LMDBDataset(read_stores(shapes.path), fields=["image", "label"])
    batch = collate(dataset.__getitems__([3, 1]))
    for row, at in enumerate((3, 1)):
        assert np.array_equal(batch["image"][row].permute(1, 2, 0), shapes.samples[at]["image"])
