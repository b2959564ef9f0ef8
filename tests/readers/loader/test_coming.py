"""Which shards an epoch needs next is known to whoever copies them."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from readers import BlockShuffleSampler, SequentialSampler, ShuffleSampler, make_loader
from readers.dataset import LMDBDataset
from readers.staging import stager as stager_module
from readers.staging.cache_folder import CacheFolder, store_key
from readers.staging.settings import CacheSettings
from readers.staging.stager import Stager
from readers.store.manifest import identity_of, read_manifest


@pytest.fixture
def held(shapes, tmp_path, monkeypatch):
    """Gives a cache for a store that another process copies: here it is only said what is needed.

    With it comes what this process would copy next, by their numbers.
    """
    monkeypatch.setattr(stager_module, "LOOK_S", 0.01)
    cache, manifest = CacheFolder(tmp_path / "local"), read_manifest(shapes.path)
    cache.make()
    identity = identity_of(manifest).hex()
    locks = cache.locks(may_hold=True)
    assert locks.hold(store_key(identity))
    yield cache, lambda: cache.hinted(identity)
    locks.close()


def becomes(value, get):
    deadline = time.monotonic() + 30
    while get() != value:
        assert time.monotonic() < deadline, f"{get()}, expected {value}"
        time.sleep(0.01)


def shards_of(order):
    """Of the store of 5, 1 and 6 samples."""
    return list(dict.fromkeys((np.searchsorted([0, 5, 6], order, side="right") - 1).tolist()))


def order_of(sampler):
    return [int(index) for index in sampler.indices(0, np.arange(sampler.count))]


@pytest.mark.parametrize("rank", [0, 1])
def test_shards_are_named_in_the_order_of_need(shapes, held, rank):
    """Those of all ranks, from where the loop is, as it goes on."""
    cache, hinted = held
    dataset = LMDBDataset(shapes.path, cache_dir=cache.path.parent, fields=["label"])
    sampler = BlockShuffleSampler(12, block_size=1, window=2, seed=5, rank=rank, world_size=2)
    order = order_of(sampler)
    loader = make_loader(dataset, 1, train=True, sampler=sampler, workers=0)
    assert len(loader) == 6
    batches = iter(loader)
    for turn in range(1, 6):
        next(batches)
        becomes(shards_of(order[2 * turn :]), hinted)
    loader.close()
    dataset.close()


def test_a_split_is_looked_up_in_the_index(shapes, held):
    """Its samples have numbers of their own."""
    cache, hinted = held
    dataset = LMDBDataset(shapes.path, cache_dir=cache.path.parent, split="valid")
    loader = make_loader(dataset, 1, train=False, workers=0)
    next(iter(loader))
    becomes([2], hinted)
    dataset.close()


def test_in_an_exact_shuffle_nothing_is_said(shapes, held):
    """All shards are needed at once; to look would be a waste."""
    assert not ShuffleSampler(12).keeps_neighbours
    cache, hinted = held
    dataset = LMDBDataset(shapes.path, cache_dir=cache.path.parent)
    for train in (True, False):  # In the order of the store it is.
        loader = make_loader(dataset, 1, train=train, workers=0)
        assert isinstance(loader.sampler, ShuffleSampler if train else SequentialSampler)
        batches = iter(loader)
        next(batches)
        time.sleep(0.1)
        assert hinted() == ([] if train else [0, 1, 2])
    dataset.close()


def test_they_are_copied_in_that_order(shapes, held):
    """By another process or this one."""
    cache, _ = held
    other = CacheSettings(folder=str(cache.path.parent / "other"))
    stager = Stager(shapes.path, read_manifest(shapes.path), other)
    stager.order = lambda: [1, 2]
    copied = []

    def note(byte_count):
        done = stager.folder.whole()
        copied.extend(d for d in sorted(done) if d not in copied)

    stager.run(threading.Event(), note)
    copied += [d for d in stager.folder.whole() if d not in copied]
    digests = [info.sha256 for info in read_manifest(shapes.path).shards]
    assert copied == [digests[number] for number in (1, 2, 0)]
