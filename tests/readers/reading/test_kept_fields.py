"""A small field that is kept, saved or sent takes nothing else of its batch along."""

from __future__ import annotations

import io
import pickle

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from readers.dataset import LMDBDataset
from readers.loader.make import make_loader
from readers.ops import CenterCrop
from readers.prefetch import DevicePrefetcher
from readers.reading.collate import collate
from readers.store.schema import Field
from readers.targets import detection_targets, pack_objects

FIELDS = [
    Field(name="image", kind="image", dtype="uint8", shape=(96, 80, 3), codec="raw"),
    Field(name="mask", kind="mask", dtype="uint8", shape=(None, None)),
    Field(name="boxes", kind="boxes", dtype="float32", shape=(None, 4)),
    Field(name="labels", kind="label", dtype="int64", shape=(None,), names=("ant", "bee")),
    Field(name="original_size", kind="array", dtype="int32", shape=(2,)),
    Field(name="transform", kind="array", dtype="float32", shape=(2, 3)),
    Field(name="label", kind="label", dtype="int64", names=("a", "b", "c")),
    Field(name="image_id", kind="scalar", dtype="int64"),
]
COUNT = 48


def drawn(at, box_count):
    """One sample; every image has another number of boxes, or all have as many."""
    boxes = np.tile(np.array([10, 10, 60, 60], np.float32), (box_count, 1)) + at % 7
    return {
        "image": np.full((96, 80, 3), at, np.uint8),
        "mask": np.full((96, 80), at % 5, np.uint8),
        "boxes": boxes,
        "labels": np.arange(box_count) % 2,
        "original_size": np.array([96, at], np.int32),
        "transform": np.full((2, 3), at, np.float32),
        "label": at % 3,
        "image_id": 1000 + at,
    }


@pytest.fixture(scope="module", params=["ragged", "alike"])
def store(request, tmp_path_factory, write_store):
    """48 samples in two shards; boxes of a batch become a list, or one tensor."""
    counts = [2 if request.param == "alike" else 1 + at % 4 for at in range(COUNT)]
    samples = [drawn(at, count) for at, count in enumerate(counts)]
    return write_store(tmp_path_factory.mktemp("stores") / "s.lmdb", FIELDS, samples, (20, 28))


@pytest.fixture(scope="module")
def ragged(tmp_path_factory, write_store):
    """48 samples, each of another number of boxes."""
    samples = [drawn(at, 1 + at % 4) for at in range(COUNT)]
    return write_store(tmp_path_factory.mktemp("stores") / "s.lmdb", FIELDS, samples, (20, 28))


OURS = {
    "thread engine": {"engine": "thread", "workers": 2},
    "process engine": {"engine": "process", "workers": 2},
    "no workers": {"workers": 0},
    "thread engine, ops": {"engine": "thread", "workers": 2, "ops": (CenterCrop(64),)},
    "process engine, ops": {"engine": "process", "workers": 2, "ops": (CenterCrop(64),)},
    "no workers, ops": {"workers": 0, "ops": (CenterCrop(64),)},
}


def tensors_of(value):
    """Every tensor in a batch, and whether it is one of a list."""
    for field in value.values() if isinstance(value, dict) else value:
        if isinstance(field, torch.Tensor):
            yield field
        elif isinstance(field, (list, tuple)):
            yield from (part for part in field if isinstance(part, torch.Tensor))


def saved_bytes(tensor):
    file = io.BytesIO()
    torch.save(tensor, file)
    return max(file.tell(), len(pickle.dumps(tensor)))


@pytest.mark.parametrize("returns", [None, ("image", "label"), ("label", "boxes", "image", "mask")])
@pytest.mark.parametrize("settings", OURS.values(), ids=OURS)
def test_every_tensor_of_a_batch_has_a_storage_of_its_own(store, settings, returns):
    """Of every engine: it is as long as the tensor, and so is what is saved of it."""
    dataset = LMDBDataset(store, returns=returns)
    loader = make_loader(dataset, 8, train=False, **settings)
    kept = []
    for batch in DevicePrefetcher(loader, "cpu"):
        for tensor in tensors_of(batch):
            assert tensor.untyped_storage().nbytes() == tensor.nbytes
            assert saved_bytes(tensor) < tensor.nbytes + 3000
        kept.append(batch)
    loader.close()
    storages = [t.untyped_storage().data_ptr() for batch in kept for t in tensors_of(batch)]
    assert len(set(storages)) == len(storages)


def test_batches_that_are_filled_together_share_nothing(tmp_path, write_store):
    """Small batches are filled by one call; each has its own storage all the same."""
    path = write_store(
        tmp_path / "small.lmdb",
        [FIELDS[0], *FIELDS[4:]],
        [drawn(at, 0) for at in range(64)],
    )
    dataset = LMDBDataset(path).select(np.arange(640) % 64)
    loader = make_loader(dataset, 2, train=False, engine="thread", workers=2)
    assert loader.engine._group_count > 1
    for number, batch in enumerate(loader):
        assert batch["image_id"].tolist() == [1000 + (2 * number + at) % 64 for at in (0, 1)]
        for tensor in tensors_of(batch):
            assert tensor.untyped_storage().nbytes() == tensor.nbytes


@pytest.mark.parametrize("workers", [0, 1])
def test_a_stock_dataloader_keeps_fields_apart(store, workers):
    """Joined by our collate, in a worker or not: fields that lie in lists share one piece each."""
    dataset = LMDBDataset(store)
    for batch in DataLoader(dataset, 8, num_workers=workers, collate_fn=collate):
        for name, value in batch.items():
            parts = value if isinstance(value, list) else [value]
            storages = {part.untyped_storage().data_ptr(): part for part in parts}
            held = sum(part.untyped_storage().nbytes() for part in storages.values())
            assert held <= sum(part.nbytes for part in parts) + 64 * len(parts), name


def test_fields_of_samples_read_together_do_not_hold_their_images(store):
    """What a collate function of the user's picks out of `__getitems__`."""
    samples = LMDBDataset(store).__getitems__(range(16))
    for name in ("boxes", "labels", "original_size", "transform"):
        value = samples[3][name]
        assert value.untyped_storage().nbytes() <= 16 * value.nbytes


def test_targets_hold_nothing_of_their_batch(store):
    """Predictions are held against targets at the end of an epoch: they are kept until then."""
    dataset = LMDBDataset(store)
    for batch in make_loader(dataset, 8, train=False, workers=0):
        _, targets = detection_targets(batch, first_label=1)
        for target in targets:
            for value in target.values():
                assert value.untyped_storage().nbytes() == value.nbytes
        packed = pack_objects(batch)
        for name in ("boxes", "labels", "batch_index"):
            assert packed[name].untyped_storage().nbytes() == packed[name].nbytes


KEPT = """
import json, sys
from readers import LMDBDataset, make_loader
def memory():
    lines = open("/proc/self/status").read().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("RssAnon", "RssShmem")))
returns = sys.argv[3].split(",")
dataset = LMDBDataset(sys.argv[1], returns=returns).select(list(range(48)) * 10)
settings = {"workers": 0} if sys.argv[2] == "none" else {"workers": 2, "engine": sys.argv[2]}
loader = make_loader(dataset, 16, train=False, **settings)
for _ in range(4):
    for batch in loader:
        pass
del batch
kept, facts = [], []
for at in (1, 2):
    before, parts = memory(), []
    for _ in range(4):
        for batch in loader:
            parts.append(batch[at])
    del batch
    tensors = [t for part in parts for t in (part if isinstance(part, list) else [part])]
    facts.append([sum(t.nbytes for t in tensors) / 1024, len(tensors), memory() - before])
    kept.append(parts)
print(json.dumps(facts))
"""


@pytest.mark.parametrize("returns", ["image,boxes,label", "image,mask,label"])
@pytest.mark.parametrize("engine", ["thread", "process", "none"])
def test_what_is_kept_of_an_epoch_takes_its_own_size(ragged, run_python, engine, returns):
    """Of 120 batches, 500 kB each, the field that was kept is left, twice over at most.

    Beside that there is a constant, for the 16 batches that may be under way at any time, and 1 kB
    for each tensor object.
    """
    for size, count, grown in run_python(KEPT, ragged, engine, returns):
        assert grown < 2 * size + 2 * count + 16 * 500


def test_batches_of_pictures_are_not_filled_by_the_dozen(ragged):
    """Filled together are small batches alone: 32 of photos, three times over, are a gigabyte."""
    indices = np.arange(4800) % COUNT
    for fields, ops in (
        (["mask", "label"], ()),
        (["image", "label"], (CenterCrop(90),)),
        (["image", "mask", "label"], (CenterCrop(90),)),
    ):
        dataset = LMDBDataset(ragged, fields=fields).select(indices)
        loader = make_loader(dataset, 2, train=False, engine="thread", workers=2, ops=ops)
        assert loader.engine._group_count == 1
        loader.close()
    dataset = LMDBDataset(ragged, fields=["label"]).select(indices)
    loader = make_loader(dataset, 2, train=False, engine="thread", workers=2)
    assert loader.engine._group_count > 1
