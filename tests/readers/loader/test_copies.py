"""A used loader can be sent and copied: settings and place go along, and workers do not."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import threading

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, RandomSampler, Subset

from readers.dataset import LMDBDataset
from readers.engines.processes import ProcessEngine
from readers.loader.make import make_loader
from readers.orders.buckets import BucketBatchSampler
from readers.prefetch import DevicePrefetcher


def sent(value):
    return pickle.loads(pickle.dumps(value))


WAYS = {"pickle": sent, "copy": copy.copy, "deepcopy": copy.deepcopy}
ENGINES = [("thread", 2), ("process", 2), ("thread", 0)]
MOMENTS = ("fresh", "after a batch", "amid an epoch", "after an epoch", "closed")


@pytest.fixture
def loader_of(shapes):
    """Makes loaders of 12 samples, all of which are closed in the end."""
    loaders = []

    def make(engine="process", workers=2, dataset=None, **settings):
        dataset = dataset or LMDBDataset(shapes.path, returns=("image", "label"))
        settings = {"batch_size": 2, "train": True, "seed": 3, **settings}
        loaders.append(make_loader(dataset, engine=engine, workers=workers, **settings))
        return loaders[-1]

    make.closes = loaders.append
    yield make
    for loader in loaders:
        loader.close()
    assert multiprocessing.active_children() == []


def values(loader):
    return [[part.tolist() for part in batch] for batch in loader]


@pytest.mark.parametrize(("engine", "workers"), ENGINES)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_copy_of_a_loader_is_at_the_same_place(loader_of, same, engine, workers, way, moment):
    """At any moment of its life: both go on as the original would, undisturbed by each other."""
    loader = loader_of(engine, workers)
    loader.set_epoch(4)
    under_way = None
    if moment == "after a batch":
        next(iter(loader))
    elif moment == "amid an epoch":
        under_way = iter(loader)
        next(under_way), next(under_way)
    elif moment != "fresh":
        list(loader)
        if moment == "closed":
            loader.close()
    twin = WAYS[way](loader)
    loader_of.closes(twin)
    assert type(twin) is type(loader)
    assert twin.state_dict() == loader.state_dict()
    assert twin.engine is not loader.engine
    if under_way is not None:
        first = next(under_way)
        assert loader.state_dict() != twin.state_dict()  # It stays where it was.
    expected = loader_of(engine, workers)
    expected.set_epoch(4 if moment == "fresh" else 5)
    wanted = values(expected), values(expected)
    assert values(twin) == wanted[0]
    if under_way is not None:
        rest = [first, *under_way]  # The copy's workers are others.
        assert len(rest) == 4
    assert values(loader) == wanted[0]
    assert values(twin) == wanted[1]
    if engine == "process":
        assert not {worker.process.pid for worker in twin.engine._workers} & {
            worker.process.pid for worker in loader.engine._workers
        }


def test_a_copy_keeps_place_in_mid_epoch_by_its_state(loader_of):
    """The state of a copy is that of the original, and goes on where it was."""
    loader = loader_of()
    whole = values(loader)
    loader.set_epoch(0)
    batches = iter(loader)
    next(batches), next(batches)
    twin = sent(loader)
    loader_of.closes(twin)
    twin.load_state_dict(twin.state_dict())
    assert values(twin) == whole[2:]


def counted(loader, answers):
    answers.put(values(loader))
    loader.close()


@pytest.mark.parametrize("engine", ["thread", "process"])
def test_a_used_loader_can_be_sent_to_a_process(loader_of, engine):
    """As launchers do that spawn one for each device."""
    loader = loader_of(engine)
    next(iter(loader))
    context = multiprocessing.get_context("spawn")
    answers = context.SimpleQueue()
    process = context.Process(target=counted, args=(loader, answers))
    process.start()
    found = answers.get()
    process.join()
    answers.close()
    process.close()
    assert found == values(loader)


@pytest.mark.parametrize("way", WAYS)
def test_loaders_of_every_kind_of_order_can_be_copied(loader_of, shapes, way):
    """Those of the user's samplers too; a plain copy goes on using the user's."""
    dataset = LMDBDataset(shapes.path, returns=("image", "label"))
    settings = [
        {"sampler": RandomSampler(range(12), generator=torch.Generator().manual_seed(1))},
        {"sampler": [3, 1, 2, 0]},
        {"batch_sampler": [[0, 1], [2]], "batch_size": None},
        {"batch_sampler": BucketBatchSampler(np.arange(12) % 2, 2, shuffle=False),
         "batch_size": None},
        {"dataset": Subset(dataset, [4, 2, 0])},
        {"train": False, "pad": True, "batch_size": 5},
    ]  # fmt: skip
    for one in settings:
        loader = loader_of("thread", 1, **one)
        next(iter(loader))
        twin = WAYS[way](loader)
        loader_of.closes(twin)
        assert len(values(twin)) == len(loader)
        if way == "copy":
            assert twin.dataset is loader.dataset
            if "sampler" in one:
                assert twin.sampler is loader.sampler


def test_a_plain_copy_shares_the_dataset(loader_of):
    """Which may be large, and need not be one that can be sent. A stock DataLoader does so too."""
    lock = threading.Lock()  # Cannot be copied.

    class Locked(Subset):
        held = lock

        def __init__(self, *arguments):
            super().__init__(*arguments)
            self.lock = lock

    dataset = Locked(range(12), range(12))
    loader = loader_of("process", 1, dataset=dataset)
    next(iter(loader))
    twin = copy.copy(loader)
    loader_of.closes(twin)
    assert twin.dataset is loader.dataset
    assert len(list(twin)) == 6


@pytest.mark.parametrize("way", WAYS)
def test_a_used_prefetcher_can_be_copied(loader_of, way):
    """With the place of the batch in use, and not that of the loader, which is ahead."""
    prefetcher = DevicePrefetcher(loader_of("thread", 1), "cpu")
    batches = iter(prefetcher)
    next(batches)
    twin = WAYS[way](prefetcher)
    loader_of.closes(twin.loader)
    assert twin.state_dict() == prefetcher.state_dict()
    assert twin.state_dict() != twin.loader.state_dict()
    batches.close()
    assert len(values(twin)) == 6


@pytest.mark.parametrize("way", WAYS)
def test_a_used_dataset_can_be_copied(shapes, same, way):
    """It opens the store again where it is used next, and its own stays open."""
    dataset = LMDBDataset(shapes.path, split="val")
    expected = [dataset[at] for at in range(4)]
    dataset.__getitems__([0, 1])
    next(iter(DataLoader(dataset, 2)))
    twin = WAYS[way](dataset)
    dataset.close()
    assert same([twin[at] for at in range(4)], expected)
    assert same([dataset[at] for at in range(4)], expected)
    assert len(pickle.dumps(dataset)) < 1500


def test_a_copy_of_an_engine_starts_workers_of_its_own(loader_of):
    """Of an engine in use: nothing of what it has open is in it."""
    loader = loader_of()
    next(iter(loader))
    twin = copy.copy(loader.engine)
    assert isinstance(twin, ProcessEngine)
    assert len(pickle.dumps(twin)) < 3000
    assert len(list(twin.batches([np.array([0])], 0))) == 1
    assert len(multiprocessing.active_children()) == 4
    twin.close()
    assert len(multiprocessing.active_children()) == 2
