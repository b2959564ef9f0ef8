"""Samples are the same whichever way the store is read, and network mounts are read by reads."""

from __future__ import annotations

import errno
import mmap
import os
import pickle
from pathlib import Path

import pytest
import torch

from readers import ReadPolicy, make_loader
from readers.dataset import LMDBDataset
from readers.machine import Mount
from readers.ops import RandomFlip, RandomResizedCrop
from readers.reading import view as view_module
from readers.store.errors import StoreNotFoundError
from readers.store.reader import open_store


@pytest.fixture
def on_network(monkeypatch):
    """Every folder lies on a network mount."""
    nfs = Mount(Path("/"), "nfs4", ())
    monkeypatch.setattr(view_module, "mount_of", lambda _: nfs)


def is_mapped(path):
    return str(path) in Path("/proc/self/maps").read_text()


def test_every_field_of_every_kind_is_the_same(every_kind, copy_store, same):
    """One by one, many at once, shuffled and in order, by keys and by their numbers."""
    path = copy_store(every_kind.path)
    read, mapped = LMDBDataset(path, io="read"), LMDBDataset(every_kind.path, io="map")
    expected = [mapped[at] for at in range(11)]
    assert same([read[at] for at in range(11)], expected)
    assert same(list(read.__getitems__(list(range(11)))), expected)
    assert same(list(read.__getitems__([3, 0, 10, 7, 3])), [expected[a] for a in (3, 0, 10, 7, 3)])
    for at, sample in enumerate(expected):
        assert read.key_of(at) == sample["key"]
        assert read.index_of(sample["key"]) == at
    for name, column in mapped.columns.items():
        assert (read.columns[name] == column).all()
    assert not is_mapped(path)


@pytest.mark.usefixtures("on_network")
def test_auto_reads_on_network_mounts_alone(shapes, copy_store):
    """No file is mapped there, in either of the automatic ways, unless it is asked for."""
    path = copy_store(shapes.path)
    for io in ("auto", "read-ahead", "read"):
        dataset = LMDBDataset(path, io=io)
        assert dataset[3]["key"] == shapes.samples[3]["key"]
        assert dataset.view.store.access == "read"
    assert not is_mapped(path)
    dataset = LMDBDataset(path, io="map")
    assert dataset[0]["key"] == shapes.samples[0]["key"]
    assert is_mapped(path)


def test_elsewhere_auto_maps(shapes):
    """As ever."""
    assert LMDBDataset(shapes.path).view.store.access == "map"
    assert LMDBDataset(shapes.path, io="read-ahead").view.store.access == "map"


def test_each_way_has_a_store_of_its_own(shapes):
    """Datasets of one way share it, also through a pickle, which stays small; repr tells."""
    read, mapped = LMDBDataset(shapes.path, io="read"), LMDBDataset(shapes.path, io="map")
    assert read.view.store is not mapped.view.store
    assert read.view.store is open_store(shapes.path, access="read")
    assert read[0]["key"] == mapped[0]["key"]
    text = pickle.dumps(read)
    assert len(text) < 2000
    assert pickle.loads(text).view.store is read.view.store
    assert "io='read'" in repr(read)
    assert "io" not in repr(LMDBDataset(shapes.path)).partition("lmdb'")[2]


@pytest.mark.parametrize("picture", ["photo", "sized", "gray"])
@pytest.mark.parametrize("settings", [{"workers": 0}, {"engine": "thread"}, {"engine": "process"}])
def test_engines_give_the_same_batches(every_kind, same, picture, settings):
    """With crops, of which rows alone are read, and with fields that need whole records."""
    settings = {"workers": 2, "train": True, "drop_last": False, "seed": 3, **settings}

    def batches(io):
        dataset = LMDBDataset(every_kind.path, fields=[picture, "key", "int16_array"], io=io)
        loader = make_loader(dataset, 4, ops=(RandomResizedCrop(5), RandomFlip()), **settings)
        found = list(loader)
        loader.close()
        return found

    assert same(batches("read"), batches("map"))


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_stock_loader_gives_the_same_batches(shapes, same, start):
    """By workers forked after the parent has read, and by those that are given a pickle."""

    def batches(io):
        dataset = LMDBDataset(shapes.path, fields=["image", "label"], io=io)
        list(dataset.__getitems__([5, 0, 9]))
        return list(
            torch.utils.data.DataLoader(
                dataset, 4, num_workers=2, multiprocessing_context=start, shuffle=False
            )
        )

    assert same(batches("read"), batches("map"))


def test_a_shard_is_opened_by_few_reads(shapes, copy_store, monkeypatch):
    """Two round trips, whatever the index holds; and a record afterwards is one, of its bytes."""
    sizes, preadv = [], os.preadv

    def counting(descriptor, into, offset):
        sizes.append(sum(len(piece) for piece in into))
        return preadv(descriptor, into, offset)

    monkeypatch.setattr(os, "preadv", counting)
    shard = open_store(copy_store(shapes.path), access="read").shard(0)
    assert len(sizes) <= 2
    del sizes[:]
    assert len(shard.record(0)) == shard.lengths[0]
    assert sizes == [shard.lengths[0]]


def test_one_read_a_record_shuffled_and_few_in_order(shapes, copy_store, monkeypatch):
    """Whatever number of fields: those of one record lie side by side."""
    dataset = LMDBDataset(copy_store(shapes.path), io="read")
    dataset.__getitems__([0, len(dataset) - 1])
    calls, preadv = [], os.preadv

    def counting(descriptor, into, offset):
        calls.append(offset)
        return preadv(descriptor, into, offset)

    monkeypatch.setattr(os, "preadv", counting)
    dataset.__getitems__([len(dataset) // 2])
    assert len(calls) <= 3  # Its shard may have to be opened.
    dataset.__getitems__(list(range(len(dataset))))
    del calls[:]
    dataset.__getitems__(list(range(len(dataset))))
    assert len(calls) <= len(dataset.manifest.shards)


@pytest.mark.parametrize("fields", [None, ["int16_array", "bool_scalar"]])
@pytest.mark.parametrize("io", ["read", "map"])
def test_samples_of_a_transform_come_out_of_records_read_together(
    every_kind, copy_store, same, monkeypatch, fields, io
):
    """One request for all of a batch, whether records are needed whole or in part."""
    dataset = LMDBDataset(copy_store(every_kind.path), fields=fields, io=io)
    order = [3, 0, 10, 7, 3, -1]
    expected = [(dataset[at], at % 11) for at in order]
    fetches, kind = [], type(dataset.view.store.bytes)
    fetch = kind.fetch

    def counting(record_bytes, wanted):
        fetches.append(len(wanted))
        return fetch(record_bytes, wanted)

    monkeypatch.setattr(kind, "fetch", counting)
    seen = iter(order)
    dataset.transform = lambda sample: (sample, next(seen) % 11)
    assert same(dataset.__getitems__(order), expected)
    assert fetches == [1]


def test_an_index_that_is_not_there_is_an_error_before_anything_is_read(shapes):
    """Also where a transform would see samples one by one."""
    dataset = LMDBDataset(shapes.path, io="read", transform=lambda sample: sample)
    with pytest.raises(IndexError, match="sample 99999 of"):
        dataset.__getitems__([0, 99_999])


def test_a_policy_of_reading_goes_where_the_dataset_goes(shapes, copy_store):
    """Through pickles and choices of samples; a store with another one is another."""
    path = copy_store(shapes.path)
    policy = ReadPolicy(retry_count=1, ahead_bytes_max=10)
    dataset = LMDBDataset(path, io="read", read_policy=policy)
    for one in (dataset, pickle.loads(pickle.dumps(dataset)), dataset.select([0, 1])):
        one.close()
        assert one.view.store.policy == policy
    assert LMDBDataset(path, io="read").view.store.policy == ReadPolicy()
    assert LMDBDataset(path, io="map", read_policy=policy).view.store.policy is None
    with pytest.raises(TypeError, match=r"read_policy is a ReadPolicy, .*, or None; got 5"):
        LMDBDataset(path, read_policy=5)


def test_where_files_cannot_be_mapped_auto_reads(shapes, copy_store, monkeypatch):
    """Some cluster file systems refuse it, though nothing in their name says so."""

    class Refused:
        def __getattr__(self, name):
            return getattr(mmap, name)

        def mmap(self, *arguments):
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))

    monkeypatch.setattr(view_module, "mmap", Refused())
    dataset = LMDBDataset(copy_store(shapes.path))
    assert dataset[3]["key"] == shapes.samples[3]["key"]
    assert dataset.view.store.access == "read"
    with pytest.raises(StoreNotFoundError):
        LMDBDataset(shapes.path.parent / "nothing")


def test_a_dataset_finds_its_store_once(shapes, copy_store, monkeypatch):
    """On a slow mount it takes ten round trips; a copy of it in another process looks anew."""
    path = copy_store(shapes.path)
    looks, stat = [], os.stat

    def looking(path, *arguments, **settings):
        looks.append(os.fspath(path))
        return stat(path, *arguments, **settings)

    monkeypatch.setattr(os, "stat", looking)
    dataset = LMDBDataset(path, io="read")
    dataset[0]
    dataset.__getitems__([1, 2])
    assert sum(look.endswith("manifest.json") for look in looks) == 1
    assert pickle.loads(pickle.dumps(dataset))[0]["key"] == shapes.samples[0]["key"]
    assert sum(look.endswith("manifest.json") for look in looks) == 2
