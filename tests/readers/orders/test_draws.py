"""A sample that is drawn several times in an epoch is seen otherwise each time."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from readers.chance.draws import INDEX_BITS, split_draws, with_draws
from readers.dataset import LMDBDataset
from readers.loader.make import make_loader
from readers.ops import RandomFlip, RandomResizedCrop
from readers.orders.samplers import (
    ClassBalancedSampler,
    MixtureSampler,
    ShuffleSampler,
    WeightedSampler,
)
from readers.store.schema import Field

COUNT, DRAWN, BATCH = 12, 240, 8
OPS = [RandomResizedCrop((20, 24)), RandomFlip()]
WAYS = [("thread", 0), ("thread", 2), ("process", 2)]


@pytest.fixture(scope="module")
def store(tmp_path_factory, write_store):
    """Twelve smooth pictures that are unlike each other and themselves mirrored; two classes."""
    fields = [
        Field(name="image", kind="image", dtype="uint8", shape=(40, 50, 3), codec="raw"),
        Field(name="label", kind="label", dtype="int64", names=("rare", "common")),
        Field(name="number", kind="scalar", dtype="int64"),
    ]
    samples = []
    for at in range(COUNT):
        small = np.random.default_rng(at).integers(0, 256, (6, 7, 3)).astype(np.uint8)
        pixels = cv2.resize(small, (50, 40), interpolation=cv2.INTER_CUBIC)
        samples.append({"image": pixels, "label": int(at > 0), "number": at})
    return write_store(tmp_path_factory.mktemp("draws") / "store", fields, samples, (5, 7))


def seen(store, sampler, engine="thread", workers=0, epoch=0, batch_size=BATCH):
    """(number, image) of each sample of an epoch, in order."""
    dataset = LMDBDataset(store, returns=("image", "number"))
    loader = make_loader(
        dataset,
        batch_size,
        train=True,
        sampler=sampler,
        ops=OPS,
        engine=engine,
        workers=workers,
        seed=3,
    )
    loader.set_epoch(epoch)
    found = [
        (number, image)
        for images, numbers in loader
        for image, number in zip(images.clone(), numbers.tolist(), strict=True)
    ]
    loader.close()
    return found


def views(found):
    """How many different images there are of each sample, and how many times it was drawn."""
    by_number = {}
    for number, image in found:
        by_number.setdefault(number, []).append(image.numpy().tobytes())
    return {number: (len(set(images)), len(images)) for number, images in by_number.items()}


@pytest.mark.parametrize(
    "make",
    [
        lambda: WeightedSampler([1.0] * COUNT, DRAWN),
        lambda: ClassBalancedSampler([0] + [1] * (COUNT - 1), DRAWN),
        lambda: ClassBalancedSampler([0] + [1] * (COUNT - 1), DRAWN, replacement=True),
        lambda: MixtureSampler([1, COUNT - 1], counts=[100, 140]),
    ],
    ids=["weighted", "balanced", "balanced with replacement", "mixture"],
)
def test_each_draw_has_chances_of_its_own(store, make):
    """The one sample of the rare class, half of an epoch, is not one crop a hundred times."""
    found = views(seen(store, make()))
    assert sum(count for _, count in found.values()) == DRAWN
    assert max(count for _, count in found.values()) > 15
    for different, count in found.values():
        assert different == count
    assert make().may_repeat


@pytest.mark.parametrize(("engine", "workers"), WAYS)
def test_they_are_the_same_however_the_batches_are_made(store, engine, workers):
    """Engine, workers and batch size change nothing; another epoch has others."""
    sampler = [0.5, *[0.1] * (COUNT - 1)]
    expected = seen(store, WeightedSampler(sampler, DRAWN, seed=1), epoch=2)
    again = seen(store, WeightedSampler(sampler, DRAWN, seed=1), engine, workers, 2, 12)
    assert [number for number, _ in again] == [number for number, _ in expected]
    for (_, one), (_, other) in zip(again, expected, strict=True):
        assert torch.equal(one, other)
    later = seen(store, WeightedSampler(sampler, DRAWN, seed=1), epoch=3)
    assert not {i.numpy().tobytes() for _, i in later} & {i.numpy().tobytes() for _, i in expected}


def test_ranks_share_the_draws_of_one(store):
    """Two ranks together see what one sees alone, each draw with its own crop."""

    def of_rank(rank, world_size):
        sampler = WeightedSampler([1.0] * COUNT, DRAWN, seed=1, rank=rank, world_size=world_size)
        return seen(store, sampler, batch_size=BATCH // world_size)

    alone, both = of_rank(0, 1), [of_rank(0, 2), of_rank(1, 2)]
    for at, (number, image) in enumerate(alone):
        other_number, other = both[at % 2][at // 2]
        assert number == other_number
        assert torch.equal(image, other)


def test_where_each_sample_comes_once_its_crop_follows_the_sample(store):
    """In whatever order: that of another seed, or one that is given."""
    first = dict(seen(store, ShuffleSampler(COUNT, seed=1), batch_size=4))
    second = dict(seen(store, ShuffleSampler(COUNT, seed=2), batch_size=4))
    given = dict(seen(store, list(range(COUNT)), batch_size=4))
    assert not ShuffleSampler(COUNT).may_repeat
    assert len(first) == COUNT
    for number, image in first.items():
        assert torch.equal(image, second[number])
        assert torch.equal(image, given[number])


class Numbers(Dataset):
    """Each index is its own sample."""

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        assert 0 <= index < COUNT
        return index


def test_other_datasets_are_asked_for_plain_indices(store):
    """Of any kind, and those of stores that have a transform."""
    sampler = WeightedSampler([1.0] * COUNT, 48, seed=1)
    order = list(WeightedSampler([1.0] * COUNT, 48, seed=1))
    loader = make_loader(Numbers(), 8, train=True, sampler=sampler, workers=0)
    assert torch.cat(list(loader)).tolist() == order
    dataset = LMDBDataset(store, returns=("number",), transform=lambda sample: sample[0])
    sampler = WeightedSampler([1.0] * COUNT, 48, seed=1)
    loader = make_loader(dataset, 8, train=True, sampler=sampler, workers=0)
    assert torch.cat(list(loader)).tolist() == order


def test_an_index_and_its_draw_come_apart_again():
    """Whatever the position; and what carries no draw stays as it is, negative ones too."""
    indices = np.array([0, 5, 2**INDEX_BITS - 1], np.int64)
    positions = np.array([0, 2**22 - 2, 2**50], np.int64)
    found, draws = split_draws(with_draws(indices, positions))
    assert found.tolist() == indices.tolist()
    assert draws.min() >= 1
    assert draws.max() < 2**22
    plain = np.array([-3, 0, 7], np.int64)
    assert split_draws(plain) == (plain, None)
    assert split_draws(np.array([], np.int64))[1] is None
