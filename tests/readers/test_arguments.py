"""Whatever is given for an argument that does not take it is refused at once, by its name."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

import readers
from readers import augment, ops
from readers.dataset import LMDBDataset
from readers.loader.arguments import Settings as LoaderSettings
from readers.loader.make import make_loader
from readers.loader.stock_arguments import StockArguments
from readers.orders.buckets import BucketBatchSampler
from readers.orders.samplers import (
    BlockShuffleSampler,
    ClassBalancedSampler,
    MixtureSampler,
    SequentialSampler,
    ShuffleSampler,
    WeightedSampler,
)
from readers.reading.arguments import Settings as DatasetSettings

KINDS = {
    "text": "train",
    "path": Path("train"),
    "number": 3,
    "flag": True,
    "float": 0.5,
    "function": len,
    "row": [1, 2, 3],
    "dict": {"train": 1},
    "class": dict,
}
"""Of each kind a value; a dataset, a loader and what else there is come in the test."""

OF_RANKS = {"seed": {"number"}, "rank": {"number"}, "world_size": {"number"}}
OF_ORDERS = {**OF_RANKS, "remainder": {"text"}, "num_samples": {"number"}}
DATASET = {"dataset"}
SIZE = {"size": {"number", "dataset", "row"}}
CALLABLES = {"function", "class"}

FITS = {
    LMDBDataset: {
        "path": {"text", "path"},
        "split": {"text"},
        "fields": set(),  # The walk has no list of names.
        "returns": set(),
        "image_as": {"text"},
        "transform": CALLABLES,
        "transform_field": {"text"},
        "io": {"text"},
        "read_policy": set(),
        "checks_files": {"flag"},
        "storage_options": {"dict"},
        "cache_dir": {"text", "path"},
        "cache_limit": {"number"},
        "cache_rate": {"number"},
    },
    make_loader: {
        "dataset": DATASET | {"row"},
        "batch_size": {"number"},
        "train": {"flag"},
        "engine": {"text"},
        "workers": {"number"},
        **OF_RANKS,
        "drop_last": {"flag"},
        "pad": {"flag"},
        "ops": {"row"},
        "sampler": {"row"},
        "batch_sampler": {"row"},
        "collate_fn": CALLABLES,
        "start_method": {"text"},
        "tuned": {"text", "path"},
        "num_workers": {"number"},
        "shuffle": {"flag"},
        "pin_memory": {"flag"},
        "prefetch_factor": {"number"},
        "persistent_workers": {"flag"},
    },
    SequentialSampler: {**SIZE, **OF_ORDERS},
    ShuffleSampler: {**SIZE, **OF_ORDERS},
    BlockShuffleSampler: {
        **SIZE,
        **OF_RANKS,
        "remainder": {"text"},
        "block_size": {"number"},
        "window": {"number"},
        "lanes": {"number"},
    },
    WeightedSampler: {**OF_ORDERS, "weights": {"row"}, "replacement": {"flag"}},
    ClassBalancedSampler: {**OF_ORDERS, "labels": {"row", "dataset"}, "replacement": {"flag"}},
    MixtureSampler: {
        **OF_ORDERS,
        "sizes": {"row"},
        "proportions": {"row"},
        "counts": {"row"},
        "repeats": {"row"},
    },
    BucketBatchSampler: {
        **OF_RANKS,
        "buckets": {"row"},
        "batch_size": {"number"},
        "shuffle": {"flag"},
        "drop_last": {"flag"},
    },
}
"""Which kinds each argument takes; a value of the kind may still be a wrong one."""


@pytest.fixture
def good(shapes):
    """Arguments that each of them works with."""
    dataset = LMDBDataset(shapes.path, returns=("image", "label"))
    return {
        LMDBDataset: {"path": shapes.path},
        make_loader: {"dataset": dataset, "batch_size": 2, "train": True, "workers": 0},
        SequentialSampler: {"size": 12},
        ShuffleSampler: {"size": 12},
        BlockShuffleSampler: {"size": 12},
        WeightedSampler: {"weights": [1, 2]},
        ClassBalancedSampler: {"labels": [0, 1]},
        MixtureSampler: {"sizes": [2, 3], "proportions": [1, 1]},
        BucketBatchSampler: {"buckets": [0, 1], "batch_size": 1},
    }


@pytest.mark.parametrize("call", FITS, ids=lambda call: call.__name__)
def test_every_argument_refuses_every_other_kind(shapes, good, call):
    """A walk over all arguments and kinds: nothing is taken for something else."""
    dataset = LMDBDataset(shapes.path)
    kinds = {**KINDS, "dataset": dataset, "loader": DataLoader(dataset), "none": None}
    defaults = {name: one.default for name, one in inspect.signature(call).parameters.items()}
    if call is make_loader:
        del defaults["stock"]
        defaults |= dict.fromkeys(StockArguments.__annotations__, ...)
        defaults |= {"shuffle": None, "prefetch_factor": None}  # As torch has them.
    assert set(defaults) == set(FITS[call])
    call(**good[call])
    for name, default in defaults.items():
        for kind, value in kinds.items():
            if kind in FITS[call][name] or (kind == "none" and default is None):
                continue
            with pytest.raises((TypeError, ValueError), match=rf"\b{name}\b"):
                call(**{**good[call], name: value})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"dataset": "photos.lmdb"}, r"Open the store first: LMDBDataset\('photos.lmdb'\)"),
        ({"dataset": Path("a")}, r"Open the store first: LMDBDataset\('a'\)"),
        ({"dataset": {"train": 1}}, r"make_loader\(datasets\['train'\]"),
        ({"dataset": 64, "batch_size": 1}, r"Swapped\? It is make_loader\(dataset, batch_size"),
        ({"batch_size": [1, 2]}, r"Swapped\?"),
        ({"train": "val"}, r"train is True or False; got 'val'.*LMDBDataset\(path, split='val'\)"),
        ({"ops": ops.RandomFlip()}, r"One alone: ops=\[RandomFlip\(p=0.5\)\]"),
        ({"ops": augment.RandomFlip()}, "readers.augment works on whole batches.*readers.ops"),
        ({"ops": [augment.RandomFlip()]}, "readers.augment.RandomFlip, which works on whole"),
        ({"ops": [ops.RandomFlip]}, r"the class RandomFlip: write RandomFlip\(...\)"),
        ({"ops": len}, r"LMDBDataset\(..., transform=function\)"),
        ({"sampler": ShuffleSampler}, r"Make one of the dataset: ShuffleSampler\(dataset\)"),
        ({"sampler": (i for i in range(3))}, "no length"),
        ({"start_method": "sprawn"}, "start_method must be one of .*spawn.*got 'sprawn'"),
        ({"seed": -1}, "seed must be in"),
        ({"seed": 2**64, "sampler": [1, 2]}, "seed must be in"),
        ({"sampler": [1, 2], "world_size": 2}, "rank and world_size go to the sampler"),
        ({"batch_size": None, "batch_sampler": [[1]], "world_size": 2}, "got world_size beside it"),
    ],
)
def test_a_loader_says_what_was_meant(good, given, message):
    """The mistakes that are usual, each with what to write instead."""
    with pytest.raises((TypeError, ValueError), match=message):
        make_loader(**{**good[make_loader], **given})


def test_what_has_no_positions_is_told_apart(shapes, good):
    """A loader, a stream of samples, and a dataset where an order is asked for."""
    dataset = LMDBDataset(shapes.path)
    with pytest.raises(TypeError, match="It is a loader already"):
        make_loader(DataLoader(dataset), 2, train=True)

    class Stream(IterableDataset):
        def __iter__(self):
            return iter(range(3))

    with pytest.raises(TypeError, match="no positions"):
        make_loader(Stream(), 2, train=True)
    with pytest.raises(TypeError, match=r"sampler is .*It is a dataset; an order of it is Shuf"):
        make_loader(dataset, 2, train=True, sampler=dataset)
    with pytest.raises(TypeError, match=r"WeightedSampler: weights is .*ClassBalancedSampler\(d"):
        WeightedSampler(dataset)
    with pytest.raises(TypeError, match=r"buckets is .*size_buckets\(dataset\)"):
        BucketBatchSampler(dataset, 2)
    with pytest.raises(TypeError, match="torch's ConcatDataset of them"):
        MixtureSampler([dataset, dataset], proportions=[1, 1])
    with pytest.raises(TypeError, match=r"size is .*LMDBDataset\('photos.lmdb'\)"):
        ShuffleSampler("photos.lmdb")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"path": ["a", "b"]}, r"ConcatDataset\(\[LMDBDataset\(path\) for path in paths\]\)"),
        ({"path": b"a"}, "As a text: 'a'"),
        ({"returns": {"image", "label"}}, "in the order that they are to come in"),
        ({"returns": "image"}, r"returns is a list of names; got 'image'. One: \['image'\]"),
        ({"transform_field": ["image"]}, "transform_field is a text"),
    ],
)
def test_a_dataset_says_what_was_meant(good, given, message):
    """As the loader does."""
    with pytest.raises((TypeError, ValueError), match=message):
        LMDBDataset(**{**good[LMDBDataset], **given})


def test_numbers_of_other_libraries_are_numbers(good):
    """What numpy gives for a count or a flag is taken; a tensor's item is a number already."""
    given = {"batch_size": np.int32(3), "train": np.True_, "seed": np.uint8(4)}
    loader = make_loader(**{**good[make_loader], **given})
    assert [len(labels) for _, labels in loader] == [3] * 4
    assert ShuffleSampler(np.int64(12)).size == 12
    assert len(ShuffleSampler(torch.arange(5))) == 5


def test_a_long_value_is_not_shown_whole(good):
    """A message stays one that can be read."""
    with pytest.raises(TypeError, match=r"\.\.\. \(dict\)") as caught:
        make_loader(**{**good[make_loader], "seed": dict.fromkeys(range(99), "x" * 99)})
    assert len(str(caught.value)) < 500


def test_type_checkers_know_every_argument():
    """What overloads leave to a TypedDict is all that the functions themselves take."""
    names = inspect.signature(LMDBDataset).parameters.keys()
    assert set(DatasetSettings.__annotations__) | {"path", "returns", "transform"} == set(names)
    own = {"dataset", "batch_size", "train", "pad", "collate_fn"}
    names = inspect.signature(make_loader).parameters.keys() - {"stock"}
    known = set(LoaderSettings.__annotations__) | set(StockArguments.__annotations__) | own
    assert known == names | set(StockArguments.__annotations__)


def test_all_public_callables_are_walked():
    """A new order or loader gets its rules, or says here why it needs none."""
    others = {
        "Albumented",  # Has tests of its own.
        "DevicePrefetcher",  # Takes what has batches, whoever made it.
        "LoaderConfig",  # Is made by make_loader.
        "ReadPolicy",  # Checks itself.
        "OrderSampler",  # Is what users' orders inherit.
        "StoreError",
        "collate",
        "detection_targets",  # Has tests of its own, as the next two.
        "pack_objects",
        "pad_images",
        "size_buckets",
    }
    assert {call.__name__ for call in FITS} == set(readers.__all__) - others
