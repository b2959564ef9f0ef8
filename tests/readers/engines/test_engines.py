"""What a batch holds depends on the dataset, the seed and the epoch, and on nothing else."""

from __future__ import annotations

import io

import cv2
import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import ConcatDataset, Dataset, Subset

from readers.dataset import LMDBDataset
from readers.loader.make import make_loader
from readers.ops import RandomFlip, RandomResizedCrop
from readers.reading.collate import collate
from readers.store.codecs import OriginalImage
from readers.store.errors import ChecksumError
from readers.store.schema import Field

COUNT = 67
WAYS = [("thread", 0), ("thread", 1), ("thread", 3), ("process", 1), ("process", 2)]
OPS = [RandomResizedCrop((20, 24)), RandomFlip()]


def picture(at):
    """(height, width, 3) uint8 of a size of its own, smooth and with an edge."""
    height, width = 30 + at % 7 * 5, 33 + at % 5 * 8
    small = np.random.default_rng(at).integers(0, 256, (6, 7, 3)).astype(np.uint8)
    pixels = cv2.resize(small, (width, height))
    pixels[height // 2 :, width // 3 :] ^= 255
    return pixels


def encoded(at):
    """The picture as a file's bytes: JPEGs of many kinds, and a few PNGs; and how it is to turn."""
    stream, pixels = io.BytesIO(), Image.fromarray(picture(at))
    if at % 8 == 5:
        pixels.save(stream, "png")
    elif at % 8 == 6:
        pixels.convert("L").save(stream, "jpeg", quality=90)
    else:
        pixels.save(
            stream, "jpeg", quality=90, subsampling=at % 3, progressive=at % 8 == 3, optimize=True
        )
    return stream.getvalue(), {7: 6, 15: 3}.get(at % 16, 1)


def original(at):
    data, orientation = encoded(at)
    height, width = picture(at).shape[:2]
    size = (width, height, 3) if orientation == 6 else (height, width, 3)
    return OriginalImage(data, size, "uint8", orientation)


@pytest.fixture(scope="module")
def stores(tmp_path_factory, write_store):
    """The same pictures: of one size, each of its own, as their files' bytes, and some of both."""
    folder = tmp_path_factory.mktemp("engines")

    def image(codec, *sides, **settings):
        return Field(
            name="image", kind="image", dtype="uint8", shape=(*sides, 3), codec=codec, **settings
        )

    kinds = {
        "fixed": (image("raw", 40, 50), lambda at: cv2.resize(picture(at), (50, 40))),
        "sized": (image("raw", None, None), picture),
        "original": (image("original", None, None, mode="rgb"), original),
        "mixed": (
            image("mixed", None, None, mode="rgb"),
            lambda at: picture(at) if at % 3 == 0 else original(at),
        ),
    }
    label = Field(name="label", kind="scalar", dtype="int64")
    paths = {}
    for name, (field, make) in kinds.items():
        samples = [{"image": make(at), "label": at} for at in range(COUNT)]
        paths[name] = write_store(folder / name, [field, label], samples, (20, 30, 17))
    return paths


def epoch_of(dataset, epoch=3, batch_size=7, engine="thread", workers=0, **settings):
    """(label, image) of all samples of an epoch, in the order in which they came."""
    loader = make_loader(
        dataset,
        batch_size,
        train=True,
        drop_last=False,
        engine=engine,
        workers=workers,
        **{"ops": OPS, "seed": 5, **settings},
    )
    loader.set_epoch(epoch)
    try:  # An error that is looked at keeps the loader, and its workers.
        return [
            (int(label), image.contiguous().numpy().tobytes())
            for batch in loader
            for label, image in zip(batch["label"], batch["image"], strict=True)
        ]
    finally:
        loader.close()


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("kind", ["fixed", "sized", "original", "mixed"])
def test_pixels_follow_from_seed_epoch_and_sample(stores, kind):
    """Not from the engine, the workers or the size of a batch; a worker that decodes windows of
    JPEGs has the same pixels as the loop itself, which decodes them whole."""
    dataset = LMDBDataset(stores[kind])
    expected = epoch_of(dataset)
    assert sorted(label for label, _ in expected) == list(range(COUNT))
    assert len({image for _, image in expected}) == COUNT
    for engine, workers in WAYS[1:]:
        assert epoch_of(dataset, engine=engine, workers=workers) == expected
    for batch_size in (1, 32):
        assert epoch_of(dataset, batch_size=batch_size) == expected
        assert epoch_of(dataset, batch_size=batch_size, engine="process", workers=2) == expected
    for other in (epoch_of(dataset, epoch=4), epoch_of(dataset, seed=6)):
        assert [label for label, _ in other] != [label for label, _ in expected]
        assert not set(other) & set(expected)
    # A sample is worked on alike, wherever it stands in a choice.
    chosen = epoch_of(dataset.select([3, 60, 11]))
    assert set(chosen) <= set(expected)


def test_the_image_is_the_windows_of_the_plan(stores, same):
    """The loader's images are those of the plan, carried out on whole images one by one."""
    from readers.ops.image_plan import compile_ops

    dataset = LMDBDataset(stores["original"])
    whole = LMDBDataset(stores["original"], image_as="numpy")
    plan = compile_ops(OPS)
    sizes = np.array([whole[at]["image"].shape[:2] for at in range(COUNT)])
    params = plan.draw(sizes[:, 0], sizes[:, 1], 5, 2, np.arange(COUNT))
    found = dict(epoch_of(dataset, epoch=2, engine="process", workers=2))
    for at in range(COUNT):
        out = np.empty(plan.shape, np.uint8)
        plan.apply(whole[at]["image"], params, at, out)
        assert found[at] == torch.from_numpy(out).permute(2, 0, 1).contiguous().numpy().tobytes()


@pytest.mark.parametrize(("engine", "workers"), [("thread", 0), ("process", 1), ("process", 2)])
def test_a_damaged_record_is_an_error_and_not_a_crash(stores, copy_store, engine, workers):
    """Its checksum is looked at before native code gets to see it, and the error names it."""
    path = copy_store(stores["original"])
    data, _ = encoded(16)
    shard = path / "shard-00000.lmdb"
    content = shard.read_bytes()
    at = content.index(data[:400])
    broken = bytearray(content)
    broken[at + 2 : at + 300] = b"\xff" * 298  # What begins as a JPEG, and is none.
    shard.write_bytes(broken)
    dataset = LMDBDataset(path)
    with pytest.raises(Exception, match=r"shard-00000.lmdb, sample 16 of the shard") as caught:
        epoch_of(dataset, engine=engine, workers=workers)
    if workers:
        assert type(caught.value) is ChecksumError
    else:
        assert "The record is damaged" in str(caught.value)


class Listed(Dataset):
    """A dataset of a user's own, without anything of ours."""

    def __len__(self):
        return 23

    def __getitem__(self, index):
        return {"number": index, "row": torch.full((3,), index), "text": str(index) * index}


def shown(sample):
    return {**sample, "image": sample["image"].float() / 2, "twice": 2 * sample["label"]}


def datasets(stores):
    """Datasets of every kind that training may hand to a loader."""
    fixed, sized = stores["fixed"], stores["sized"]
    return {
        "fixed": LMDBDataset(fixed),
        "tuples": LMDBDataset(fixed, returns=("label", "image")),
        "arrays": LMDBDataset(fixed, image_as="numpy"),
        "pictures": LMDBDataset(fixed, image_as="pil"),
        "chosen": LMDBDataset(fixed).select([9, 8, 60, 3, 3, 41]),
        "ragged": LMDBDataset(sized),
        "ragged arrays": LMDBDataset(sized, image_as="numpy"),
        "ragged pictures": LMDBDataset(sized, image_as="pil"),
        "original": LMDBDataset(stores["original"]),
        "transformed": LMDBDataset(sized, transform=shown),
        "subset": Subset(LMDBDataset(fixed), [5, 50, 2, 2]),
        "joined": ConcatDataset([LMDBDataset(fixed), LMDBDataset(fixed)]),
        "listed": Listed(),
    }


KINDS = [
    "fixed",
    "tuples",
    "arrays",
    "pictures",
    "chosen",
    "ragged",
    "ragged arrays",
    "ragged pictures",
    "original",
    "transformed",
    "subset",
    "joined",
    "listed",
]


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("kind", KINDS)
def test_every_engine_gives_the_samples_of_the_dataset_joined(stores, same, kind):
    """In their order, with whatever engine: the same values, types and shapes."""
    dataset = datasets(stores)[kind]
    count = len(dataset)
    expected = [
        collate([dataset[at] for at in range(start, min(start + 4, count))])
        for start in range(0, count, 4)
    ]
    for engine, workers in WAYS:
        loader = make_loader(dataset, 4, train=False, engine=engine, workers=workers)
        found = list(loader)
        assert len(found) == len(expected)
        for batch, wanted in zip(found, expected, strict=True):
            assert same(batch, wanted), (engine, workers)
        loader.close()
