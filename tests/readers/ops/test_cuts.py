"""Who asks for an order is told from the callers, where accelerate is loaded."""

from __future__ import annotations

import sys
import types

import pytest

from readers import LMDBDataset, make_loader
from readers.loader.cuts import who_asks

SOURCE = """
class BatchSamplerShard:
    def __init__(self, batch_sampler, num_processes, split_batches=False):
        self.batch_sampler, self.num_processes = batch_sampler, num_processes
        self.split_batches = split_batches
    def __iter__(self):
        yield from self.batch_sampler
    def __len__(self):
        return len(self.batch_sampler)

class DataLoaderShard:
    def __init__(self, batch_sampler, iteration=0):
        self.batch_sampler, self.iteration = batch_sampler, iteration
    def __iter__(self):
        yield from self.batch_sampler

class DataLoaderDispatcher(DataLoaderShard):
    pass
"""


@pytest.fixture
def stand_in(monkeypatch):
    """A module that does what accelerate's does to samplers, without the rest of it."""
    module = types.ModuleType("accelerate.data_loader")
    exec(SOURCE, vars(module))
    monkeypatch.setitem(sys.modules, "accelerate.data_loader", module)
    return module


@pytest.fixture
def loader(shapes):
    """12 samples for one rank of those that torch.distributed knows of: one."""
    return make_loader(LMDBDataset(shapes.path), 4, train=True, workers=0)


def test_nobody_known_asks(loader):
    """Without accelerate nothing is looked for, and the order is that of the loader."""
    assert who_asks(loader.sampler) == (None, False, None, False)


def test_an_epoch_reaches_an_order_that_is_hidden_in_other_samplers(stand_in, loader):
    """As where batches are passed over in what was dealt out to two ranks."""
    epochs = [list(loader.batch_sampler) for _ in range(3)]
    shard = stand_in.BatchSamplerShard(loader.batch_sampler, 2)
    assert list(stand_in.DataLoaderShard(shard, iteration=2)) == epochs[2]
    assert list(stand_in.DataLoaderShard(loader.batch_sampler, iteration=1)) == epochs[1]


@pytest.mark.parametrize(("splits", "count"), [(False, 4), (True, 3)])
def test_padded_batches_come_out_even_for_all_who_get_some(stand_in, shapes, splits, count):
    """Whole batches: a multiple of the ranks. Parts of batches: as many as there are."""
    loader = make_loader(LMDBDataset(shapes.path), 4, train=False, workers=0, pad=True)
    shard = stand_in.BatchSamplerShard(loader.batch_sampler, 2 if splits else 4, splits)
    batches = list(shard)
    assert len(batches) == len(shard) == count
    assert {len(batch) for batch in batches} == {4}
    assert [index.is_valid for batch in batches for index in batch] == [True] * 12 + [False] * (
        4 * count - 12
    )


def test_others_in_the_same_module_are_not_heard(stand_in, loader, shapes):
    """Only who asks this very sampler cuts it: not one that is at work on another."""
    other = make_loader(LMDBDataset(shapes.path), 4, train=True, workers=0, rank=1, world_size=2)

    class Asks:
        def __iter__(self):
            yield from loader.batch_sampler

    assert len(list(stand_in.BatchSamplerShard(Asks(), 2))) == 3
    with pytest.raises(ValueError, match="2 processes, and the loader is of one rank of 2 already"):
        list(stand_in.BatchSamplerShard(other.batch_sampler, 2))
    with pytest.raises(ValueError, match="Leave rank and world_size out"):
        len(stand_in.BatchSamplerShard(other.batch_sampler, 2))
    assert len(list(stand_in.BatchSamplerShard(other.batch_sampler, 1))) == 1
