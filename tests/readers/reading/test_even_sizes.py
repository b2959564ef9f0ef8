"""Images that all have one size are read as those of a store that says so beforehand."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset

from packer import build
from readers import LMDBDataset, collate, make_loader, ops
from readers.engines.threads import ThreadEngine
from readers.reading import batch_reader
from readers.store.errors import ShardError
from readers.store.schema import Field
from readers.store.shapes.polygons import Polygons
from readers.store.shard import ShardWriter

SIZE = (6, 5)
COUNT = 8


def fields(order, height=None, width=None):
    """A schema, its pictures of a size or of any."""
    known = {
        "key": Field(name="key", kind="text"),
        "label": Field(name="label", kind="label", dtype="int64"),
        "boxes": Field(name="boxes", kind="boxes", dtype="float32", shape=(None, 4)),
        "masks": Field(name="masks", kind="polygons"),
        "image": Field(
            name="image", kind="image", dtype="uint8", shape=(height, width, 3), codec="raw"
        ),
        "mask": Field(name="mask", kind="mask", dtype="int32", shape=(height, width)),
    }
    return [known[name] for name in order]


def samples(sizes):
    noise = np.random.default_rng(3)
    return [
        {
            "key": "k" * (at + 1),
            "label": at % 3,
            "boxes": np.tile(np.array([0, 0, 2, 3], np.float32), (at % 3, 1)),
            "image": noise.integers(0, 256, (height, width, 3)).astype(np.uint8),
            "mask": noise.integers(0, 9, (height, width)).astype(np.int32),
            "masks": Polygons([()] * (at % 3), height, width),
        }
        for at, (height, width) in enumerate(sizes)
    ]


@pytest.fixture
def stores(tmp_path, write_store):
    """Of the same samples a store that leaves their size open, and one that says it."""

    def make(order):
        drawn = samples([SIZE] * COUNT)
        left_open = write_store(tmp_path / "open.lmdb", fields(order), drawn, (3, 5))
        return left_open, write_store(tmp_path / "said.lmdb", fields(order, *SIZE), drawn, (3, 5))

    return make


@pytest.fixture
def single_samples(monkeypatch):
    """Counts the samples that are taken out of their records one by one."""
    taken = []
    inner = batch_reader.RecordReader.unpack

    def unpack(reader, record):
        taken.append(reader)
        return inner(reader, record)

    monkeypatch.setattr(batch_reader.RecordReader, "unpack", unpack)
    return taken


@pytest.mark.parametrize(
    ("order", "asked"),
    [
        (("key", "image", "label"), ("image", "label")),
        (("key", "image", "mask"), ("image", "mask")),
        (("key", "image", "mask"), ("mask",)),
        (("key", "image", "boxes"), ("image",)),
        (("image", "boxes", "mask"), ("image", "mask")),
    ],
)
@pytest.mark.parametrize("io", ["map", "read"])
@pytest.mark.parametrize("image_as", ["tensor", "numpy"])
def test_batches_are_those_of_a_store_that_says_the_size(
    stores, same, single_samples, order, asked, io, image_as
):
    """Field by field, one tensor each, without a look at single records."""
    left_open, said = stores(order)
    settings = {"fields": asked, "io": io, "image_as": image_as}
    indices = [5, 0, 7, 7, 2]
    samples_read = LMDBDataset(left_open, **settings).__getitems__(indices)
    found, expected = collate(samples_read), LMDBDataset(said, **settings).__getitems__(indices)
    assert same(found, collate(expected))
    assert {name: value.stride() for name, value in found.items()} == {
        name: value.stride() for name, value in collate(expected).items()
    }
    assert not single_samples
    assert same(list(samples_read), list(expected))


@pytest.mark.parametrize("asked", [("key", "image"), ("image", "boxes"), ("mask", "key", "image")])
def test_fields_of_other_sizes_come_along(stores, same, asked):
    """Those are taken one by one, and the images are still one tensor."""
    left_open, said = stores(("key", "boxes", "image", "mask"))
    found, expected = (
        collate(LMDBDataset(path, fields=asked).__getitems__([1, 6, 3]))
        for path in (left_open, said)
    )
    assert same(found, expected)
    assert found["image"].shape == (3, 3, *SIZE)


def test_what_lies_behind_an_image_may_have_no_known_size(stores, same):
    """Outlines have none: then the image is found as it always was."""
    left_open, said = stores(("key", "image", "masks"))
    found, expected = (
        collate(LMDBDataset(path, fields=("image",)).__getitems__([1, 6]))
        for path in (left_open, said)
    )
    assert same(found, expected)


@pytest.mark.parametrize("engine", ["auto", "thread", "process"])
def test_a_loader_reads_them_like_fixed_fields_and_says_so(stores, caplog, engine):
    """By threads, several batches by one call, and nothing is said to differ that does not."""
    left_open, _ = stores(("key", "image", "label"))
    dataset = LMDBDataset(left_open, fields=("image", "label")).select(list(range(COUNT)) * 20)
    with caplog.at_level(logging.INFO, "readers.loader"):
        loader = make_loader(dataset, 4, train=False, workers=2, engine=engine)
    (record,) = caplog.records
    assert "differ in size" not in record.getMessage()
    if engine == "auto":
        assert record.getMessage().endswith(
            "(all fields have a fixed size, so a batch is one copy)"
        )
        assert type(loader.engine) is ThreadEngine
        assert loader.engine._group_count > 1
    batches = list(loader)
    assert [batch["image"].shape for batch in batches] == [(4, 3, *SIZE)] * 40
    assert torch.equal(batches[0]["image"][3], dataset[3]["image"])
    loader.close()


@pytest.mark.parametrize(
    ("order", "asked", "why"),
    [
        (("key", "image"), ("key", "image"), "key differ in size between samples"),
        (("image", "masks"), ("image",), "what lies behind the images of a record differs in size"),
        (("image", "masks"), ("image", "masks"), "masks differ in size between samples"),
    ],
)
def test_only_what_differs_is_said_to_differ(stores, caplog, order, asked, why):
    """The image is named nowhere."""
    left_open, _ = stores(order)
    with caplog.at_level(logging.INFO, "readers.loader"):
        make_loader(LMDBDataset(left_open, fields=asked), 4, train=False, workers=1)
    (record,) = caplog.records
    assert record.getMessage().endswith(f"({why})")


def test_pictures_of_several_sizes_are_read_as_before(tmp_path, write_store, caplog):
    """Where a guess by some shards is wrong, batches are right all the same."""
    sizes = [SIZE] * 5 + [(4, 4)] + [SIZE] * 4
    counts = (2, 2, 3, 1, 1, 1)  # The odd one lies in a shard that is not looked at first.
    path = write_store(tmp_path / "s", fields(("key", "image")), samples(sizes), counts)
    dataset = LMDBDataset(path, fields=("image",))
    loader = make_loader(dataset, 5, train=False, workers=0)
    even, other = [batch["image"] for batch in loader]
    assert even.shape == (5, 3, *SIZE)
    assert [tuple(image.shape[1:]) for image in other] == sizes[5:]
    assert all(torch.equal(image, dataset[5 + at]["image"]) for at, image in enumerate(other))
    with pytest.raises(ValueError, match="unless all images are of one size"):
        make_loader(dataset, 5, train=False, ops=[ops.RandomFlip(1.0)])
    part = dataset.select([*range(5), *range(6, 10)])
    assert len(list(make_loader(part, 3, train=False, workers=0, ops=[ops.RandomFlip(1.0)]))) == 3


def test_a_record_that_contradicts_its_extents_is_damaged(tmp_path, monkeypatch, write_store):
    """Extents of a crafted index lead to no bytes outside of a record."""
    order = fields(("image", "mask"))
    inner = ShardWriter.add_record

    def add(writer, key, record, header):
        # All of the image's bytes could be the record's, but not those of the mask as well.
        return inner(writer, key, record[: len(record) - 4], header)

    monkeypatch.setattr(ShardWriter, "add_record", add)
    path = write_store(tmp_path / "s", order, samples([SIZE] * 4))
    dataset = LMDBDataset(path, fields=("image",))
    with pytest.raises(ShardError, match="The record is damaged"):
        dataset.__getitems__([1, 2])


class Digits(Dataset):
    """Pictures of one size, as MNIST has them: as arrays, or as files in a folder."""

    def __init__(self, folder=None):
        self.folder = folder

    def __len__(self):
        return 12

    def __getitem__(self, at):
        pixels = np.full((8, 8, 3), at, np.uint8)
        if self.folder is None:
            return pixels, at % 3
        path = self.folder / f"{at}.png"
        Image.fromarray(pixels).save(path)
        return path, at % 3


@pytest.mark.parametrize(("has_files", "shape"), [(False, (8, 8, 3)), (True, (None, None, 3))])
def test_a_torch_dataset_of_equal_pictures_is_read_by_one_copy(
    tmp_path, caplog, single_samples, has_files, shape
):
    """Built without a size, known beforehand or not, and an op alone will do."""
    build(Digits(tmp_path if has_files else None), tmp_path / "digits.lmdb", worker_count=1)
    dataset = LMDBDataset(tmp_path / "digits.lmdb", returns=("image", "label"))
    assert dataset.schema["image"].shape == shape
    with caplog.at_level(logging.INFO, "readers.loader"):
        loader = make_loader(dataset, 4, train=True, workers=0)
    assert "so a batch is one copy" in caplog.text
    for images, labels in loader:
        assert images.shape == (4, 3, 8, 8)
        assert [int(image[0, 0, 0]) % 3 for image in images] == labels.tolist()
    assert not single_samples
    flipped = make_loader(dataset, 4, train=True, workers=0, ops=[ops.RandomFlip()])
    assert len(list(flipped)) == 3
