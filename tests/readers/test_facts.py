"""What people ask a dataset or loader for, in the words that they know from elsewhere."""

from __future__ import annotations

import importlib.metadata
import pickle

import msgspec
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import readers
from readers import LMDBDataset, collate, make_loader
from readers.store.errors import ManifestError, SchemaMismatchError
from readers.store.manifest import publish_manifest, read_manifest
from readers.store.schema import Field


def test_the_package_has_a_version_and_its_collate_function():
    """As any package; and collate, for stock DataLoaders."""
    assert readers.__version__ == importlib.metadata.version("lmdb-packer")
    assert "collate" in readers.__all__
    assert {"__version__", "collate"} <= set(dir(readers))


def test_collate_joins_what_a_stock_loader_takes(every_kind):
    """Images of several sizes stay a list, where torch's own would stop."""
    dataset = LMDBDataset(every_kind.path, fields=("sized", "caption", "uint8_array"))
    (batch,) = DataLoader(dataset, batch_size=11, collate_fn=collate)
    assert isinstance(batch["sized"], list)
    assert batch["uint8_array"].shape == (11, 3, 2)


def test_classes_and_labels_have_the_usual_names(shapes, every_kind):
    """torchvision's datasets have them, and much code asks for them."""
    dataset = LMDBDataset(shapes.path, split="val")
    assert dataset.class_to_idx == {"disk": 0, "ring": 1, "star": 2}
    assert dataset.splits == {"train": 8, "valid": 4}
    assert type(dataset.targets) is np.ndarray
    assert dataset.targets.tolist() == [dataset[at]["label"] for at in range(4)]
    assert LMDBDataset(every_kind.path).class_to_idx == {}
    # Code that asks whether there are any must be able to.
    assert not hasattr(LMDBDataset(every_kind.path), "targets")
    with pytest.raises(AttributeError, match="no targets, since the store has no field 'label'"):
        LMDBDataset(every_kind.path).targets  # noqa: B018


def test_mean_and_deviation_are_the_stores(shapes, copy_store):
    """For a Normalize; a store that does not know them says so."""
    dataset = LMDBDataset(shapes.path)
    for name in ("mean", "std"):
        with pytest.raises(AttributeError, match=f"has no {name}, since .* channel_{name}"):
            getattr(dataset, name)
    path = copy_store(shapes.path)
    statistics = {"channel_mean": [0.5, 0.25, 0.75], "channel_std": [0.1, 0.2, 0.3]}
    publish_manifest(path, msgspec.structs.replace(read_manifest(path), statistics=statistics))
    dataset = LMDBDataset(path)
    assert (dataset.mean, dataset.std) == ((0.5, 0.25, 0.75), (0.1, 0.2, 0.3))


def test_a_dataset_closes_with_its_block(shapes):
    """What it gave stays valid; a read after the block opens the store again."""
    with LMDBDataset(shapes.path, returns=("label",)) as dataset:
        assert dataset[1] == (1,)
        assert dataset.view._store is not None
    assert dataset.view._store is None
    assert dataset[2] == (2,)


def test_several_splits_are_one_dataset(tmp_path, write_store):
    """In the order of the store, wherever their samples lie, in batches and after a pickle."""
    turns = [0, 1, 2, 0, 1, 2, 0]
    names = ("dev", "test", "train")
    fields = [
        Field(name="key", kind="text"),
        Field(name="split", kind="scalar", dtype="uint8", names=names),
    ]
    samples = [{"key": f"{at}", "split": turn} for at, turn in enumerate(turns)]
    splits = {"dev": 3, "test": 2, "train": 2}
    path = write_store(tmp_path / "s", fields, samples, (3, 4), splits=splits)
    dataset = LMDBDataset(path, split=["train", "val"], returns=("key",))
    assert len(dataset) == 5
    assert [key for (key,) in dataset] == ["0", "2", "3", "5", "6"]
    assert [key for (key,) in pickle.loads(pickle.dumps(dataset))] == ["0", "2", "3", "5", "6"]
    (batch,) = make_loader(dataset, 5, train=False, workers=0)
    assert batch == (["0", "2", "3", "5", "6"],)
    assert "split=('train', 'dev')" in repr(dataset)
    one = LMDBDataset(path, split=["test"])
    assert repr(one) == repr(LMDBDataset(path, split="test"))
    for wrong, error in (
        (["train", "nowhere"], SchemaMismatchError),
        (["dev", "val"], ValueError),
        ([], ValueError),
    ):
        with pytest.raises(error, match="split"):
            LMDBDataset(path, split=wrong)
    changed = {"dev": 2, "test": 2, "train": 3}
    path = write_store(tmp_path / "t", fields, samples, splits=changed)
    with pytest.raises(ManifestError, match="2 samples of split 'train', expected 3"):
        LMDBDataset(path, split="train")[0]


def test_a_dataset_says_what_its_samples_are(shapes, every_kind):
    """In one line: where, which, how many, and the shapes as they come out."""
    dataset = LMDBDataset(shapes.path, returns=("image", "label"), image_as="numpy")
    assert repr(dataset) == (
        f"LMDBDataset({str(shapes.path)!r}, image_as='numpy'): 12 samples of "
        "image (4, 6, 3) uint8, label (3 classes), as tuples"
    )
    several = LMDBDataset(every_kind.path, fields=("photo", "free", "weather"))
    assert repr(several).endswith(
        "11 samples of photo (3, height, width) uint8, free (channel, height, width) of any "
        "depth, weather"
    )


def test_a_loader_says_what_it_is_and_what_it_did(shapes):
    """Before the first batch there are no figures; after an epoch there are."""
    dataset = LMDBDataset(shapes.path, fields=("image",))
    loader = make_loader(dataset, 4, train=True, workers=0)
    what = f"Loader of {dataset!r}, batch_size=4: 3 batches an epoch by the thread engine, workers"
    assert repr(loader) == f"{what}=0"
    assert str(loader) == f"{what}=0, nothing loaded yet"
    assert sum(len(batch["image"]) for batch in loader) == 12
    assert repr(loader) == f"{what}=0"
    assert str(loader).startswith("12 samples in 3 batches by the thread engine: ")
    batches = make_loader(dataset, train=True, workers=0, batch_sampler=[[1], [2]])
    assert ": 2 batches an epoch" in repr(batches)
    assert torch.equal(next(iter(batches))["image"][0], dataset[1]["image"])
