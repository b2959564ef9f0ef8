"""Loaders that are built from what a loader shows have the same batches."""

from __future__ import annotations

import copy
import pickle
import random

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    DistributedSampler,
    Subset,
    random_split,
)

from readers import (
    BucketBatchSampler,
    ClassBalancedSampler,
    LMDBDataset,
    MixtureSampler,
    ShuffleSampler,
    make_loader,
)
from readers.chance.draws import SampleIndex
from readers.ops import RandomFlip, RandomResizedCrop

OPS = (RandomResizedCrop(3), RandomFlip())


@pytest.fixture
def dataset(shapes):
    """12 samples."""
    return LMDBDataset(shapes.path, returns=("key", "image", "label"))


def rebuilt(loader, **settings):
    """A stock loader of the batch sampler that a loader shows."""
    return DataLoader(
        loader.dataset,
        batch_sampler=loader.batch_sampler,
        collate_fn=loader.collate_fn,
        **settings,
    )


def rebuilt_of_sampler(loader, **settings):
    """A stock loader of the sampler that a loader shows."""
    return DataLoader(
        loader.dataset,
        loader.batch_size,
        sampler=loader.sampler,
        drop_last=loader.drop_last,
        collate_fn=loader.collate_fn,
        **settings,
    )


def noisy(sample):
    """Draws from all random numbers that a transform may draw from."""
    return (*sample, torch.tensor([random.random(), np.random.random(), float(torch.rand(()))]))


class Noisy(Dataset):
    """A dataset of the user's, which draws as well."""

    kind = "noise"

    def __len__(self):
        return 12

    def __getitem__(self, index):
        return index, torch.tensor([random.random(), float(torch.rand(()))])


def epochs_of(loader, count=2):
    return [list(loader) for _ in range(count)]


SETTINGS = {
    "training": {"train": True},
    "with operations": {"train": True, "ops": OPS},
    "padded": {"train": False, "pad": True, "ops": OPS},
    "of a rank": {"train": True, "rank": 1, "world_size": 2, "ops": OPS},
    "padded, of the last rank": {"train": False, "pad": True, "rank": 2, "world_size": 3},
    "evaluation": {"train": False, "rank": 1, "world_size": 5},
    "the short batch kept": {"train": True, "drop_last": False},
}


@pytest.mark.parametrize("build", [rebuilt, rebuilt_of_sampler])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("workers", [0, 2])
def test_a_stock_loader_of_what_a_loader_shows_has_its_batches(
    dataset, same, build, settings, workers
):
    """Order, operations, what is valid and epochs, whether by sampler or batch sampler."""
    ours = make_loader(dataset, 5, seed=3, workers=0, **settings)
    expected = epochs_of(ours)
    other = build(make_loader(dataset, 5, seed=3, workers=0, **settings), num_workers=workers)
    found = epochs_of(other)
    assert same(found, expected)
    assert len(other) == len(ours) == len(expected[0])


@pytest.mark.parametrize("is_foreign", [False, True])
def test_random_numbers_of_a_transform_are_the_same_in_workers(dataset, same, is_foreign):
    """They follow from seed, epoch and batch, in loader workers of ours and of torch's."""
    dataset.transform = noisy
    source = Noisy() if is_foreign else dataset
    ours = make_loader(source, 5, train=True, seed=2, workers=2)
    expected = epochs_of(ours)
    ours.close()
    loader = make_loader(source, 5, train=True, seed=2, workers=2)
    for workers, persistent in ((1, False), (2, True)):
        loader.set_epoch(0)
        other = rebuilt(loader, num_workers=workers, persistent_workers=persistent)
        assert same(epochs_of(other), expected)


@pytest.mark.parametrize("workers", [0, 2])
def test_draws_and_buckets_come_along(dataset, same, workers):
    """A sample that is drawn several times has another crop each time; buckets stay whole."""
    labels = np.array([0] * 11 + [1])

    def loader(engine_workers=0):
        sampler = ClassBalancedSampler(labels, seed=1)
        return make_loader(dataset, 6, train=True, sampler=sampler, ops=OPS, workers=engine_workers)

    expected = epochs_of(loader())
    crops = {
        image.numpy().tobytes()
        for key, images, _ in expected[0]
        for name, image in zip(key, images, strict=True)
        if name == dataset.key_of(11)
    }
    assert len(crops) > 3
    assert same(epochs_of(rebuilt(loader(), num_workers=workers)), expected)
    assert same(epochs_of(rebuilt_of_sampler(loader(), num_workers=workers)), expected)

    def bucketed():
        sampler = BucketBatchSampler(labels, 2, seed=1)
        return make_loader(dataset, train=True, batch_sampler=sampler, ops=OPS, workers=0)

    expected = epochs_of(bucketed())
    assert same(epochs_of(rebuilt(bucketed(), num_workers=workers)), expected)
    assert len(rebuilt(bucketed())) == len(expected[0]) == 7


class Told:
    """A batch sampler of the user's."""

    def __init__(self):
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return 2

    def __iter__(self):
        yield [self.epoch, -1, 3]
        yield [5, 6]


GIVEN = {
    "a sampler of torch": {"batch_size": 4, "sampler": DistributedSampler(range(12), 2, 1)},
    "a list of indices": {"batch_size": 4, "sampler": [3, -1, 5, 6, 0, 0]},
    "batches of any size": {"batch_sampler": [[1], [2, -3, 0]]},
    "a batch sampler of torch": {"batch_sampler": BatchSampler([1, 5, 2, 0, 7], 2, True)},
    "one that is told its epoch": {"batch_sampler": Told()},
}


@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
def test_samplers_of_the_user_say_their_epoch_to_operations(dataset, same, given):
    """So crops differ between epochs, as in the loader itself."""

    def loader():
        return make_loader(dataset, train=False, ops=OPS, workers=0, seed=4, **copy.deepcopy(given))

    expected = epochs_of(loader(), 3)
    assert not same(expected[0], expected[1])
    assert same(epochs_of(rebuilt(loader(), num_workers=1), 3), expected)
    later = loader()
    later.batch_sampler.set_epoch(2)
    assert same(epochs_of(rebuilt(later), 1), expected[2:])


def test_all_count_the_same_epochs(dataset, same):
    """Whoever is told an epoch, or begins one, tells it to the loader and all built of it."""
    expected = epochs_of(make_loader(dataset, 5, train=True, workers=0, ops=OPS), 6)
    loader = make_loader(dataset, 5, train=True, workers=0, ops=OPS)
    other = rebuilt(loader)
    assert same([list(loader), list(other), list(loader)], expected[:3])
    for one in (loader, loader.batch_sampler, loader.sampler, loader.batch_sampler.sampler):
        one.set_epoch(4)
        assert one is loader or one.epoch == 4
        assert same(list(other), expected[4])
        one.set_epoch(1)
        assert same(list(loader), expected[1])
    loader.batch_sampler.load_state_dict({**loader.batch_sampler.state_dict(), "epoch": 3})
    assert same(list(loader), expected[3])


def test_what_a_loader_shows_passes_for_what_it_was_given(dataset, same):
    """For isinstance, attributes, length, single samples, pickles and copies."""
    plain = make_loader(dataset, 4, train=True, workers=0)
    assert plain.dataset is dataset
    loader = make_loader(dataset, 4, train=True, workers=0, ops=OPS)
    assert isinstance(loader.dataset, LMDBDataset)
    assert isinstance(loader.sampler, ShuffleSampler)
    assert isinstance(loader.sampler, DistributedSampler)
    assert isinstance(loader.batch_sampler, BatchSampler)
    assert (loader.batch_size, loader.drop_last) == (4, True)
    assert (loader.sampler.seed, loader.sampler.size, loader.sampler.num_replicas) == (0, 12, 1)
    assert loader.dataset.classes == dataset.classes
    assert len(loader.dataset) == len(dataset)
    assert same(loader.dataset[2], dataset[2])
    assert repr(loader.dataset) == repr(dataset)
    assert same(
        next(iter(make_loader(loader.dataset, 4, train=False, workers=0)))[0],
        [dataset.key_of(at) for at in range(4)],
    )
    expected = list(loader)
    for again in (
        pickle.loads(pickle.dumps((loader.dataset, loader.batch_sampler))),
        copy.deepcopy((loader.dataset, loader.batch_sampler)),
    ):
        again[1].set_epoch(0)
        other = DataLoader(again[0], batch_sampler=again[1], collate_fn=loader.collate_fn)
        assert same(list(other), expected)
    foreign = make_loader(Noisy(), 4, train=True, workers=0).dataset
    assert isinstance(foreign, Noisy)
    assert foreign.kind == "noise"
    foreign.kind = "other"
    assert foreign.kind == "other"


def test_what_cannot_be_given_is_an_error_that_says_what_to_do(dataset):
    """Plain indices do not say what operations need; other collate functions drop `valid`."""
    loader = make_loader(dataset, 4, train=True, workers=0, ops=OPS)
    with pytest.raises(ValueError, match=r"has ops: .*batch_sampler=loader.batch_sampler"):
        list(DataLoader(loader.dataset, 4, shuffle=True))
    padded = make_loader(dataset, 5, train=False, workers=0, pad=True)
    with pytest.raises(ValueError, match=r"has pad: .*batch_sampler=loader.batch_sampler"):
        list(DataLoader(padded.dataset, 4))
    for collate_fn in (None, list, lambda samples: samples[0]):
        with pytest.raises(TypeError, match=r"Take collate_fn=loader.collate_fn"):
            list(
                DataLoader(
                    padded.dataset, batch_sampler=padded.batch_sampler, collate_fn=collate_fn
                )
            )
    with pytest.raises(TypeError, match=r"Build a loader with dataset=loader.dataset"):
        list(DataLoader(dataset, batch_sampler=padded.batch_sampler, collate_fn=padded.collate_fn))
    short = make_loader(dataset.select(range(3)), 2, train=False, workers=0, ops=OPS)
    with pytest.raises(IndexError, match=r"yields 11 for .*expected \[0, 3\)"):
        short.dataset.__getitems__([SampleIndex(11, 0, 0, 0)])
    with pytest.raises(ValueError, match=r"samples of several epochs: \[0, 1\]"):
        short.dataset.__getitems__([SampleIndex(1, 0, 0, 0), SampleIndex(1, 1, 0, 0)])


@pytest.mark.parametrize("settings", [{}, {"pad": True, "train": False}])
def test_a_collate_function_of_the_user_is_shown_as_well(dataset, same, settings):
    """What is built of the loader joins samples in the user's way."""

    def keys(samples):
        return [[sample[0] for sample in samples]]

    given = {"train": True, "collate_fn": keys, "workers": 0, **settings}
    expected = epochs_of(make_loader(dataset, 5, **given))
    assert same(epochs_of(rebuilt(make_loader(dataset, 5, **given))), expected)


def test_one_who_makes_another_loader_of_its_attributes_gets_its_batches(dataset, same):
    """As Ignite and Lightning do, with a batch sampler around the loader's."""

    class Around(BatchSampler):
        def __init__(self, batch_sampler):
            self.batch_sampler = batch_sampler

        def __iter__(self):
            return iter(list(self.batch_sampler))

        def __len__(self):
            return len(self.batch_sampler)

    def loader():
        return make_loader(dataset, 5, train=False, pad=True, workers=0, ops=OPS)

    expected = epochs_of(loader())
    first = loader()
    names = [name for name in vars(first) if not name.startswith("_")]
    own = ("batch_size", "sampler", "batch_sampler", "drop_last")
    settings = {name: getattr(first, name) for name in names if name not in own}
    again = type(first)(**settings, batch_sampler=Around(first.batch_sampler))
    assert same(epochs_of(again), expected)
    first.set_epoch(1)
    again = type(first)(**settings, batch_sampler=Around(first.batch_sampler))
    assert same(epochs_of(again, 1), expected[1:])
    first = loader()
    other = type(first.batch_sampler)(first.sampler, batch_size=5, drop_last=False)
    assert same(epochs_of(type(first)(**settings, batch_sampler=other)), expected)
    with pytest.raises(ValueError, match=r"num_workers is 0, and cannot become 3.*workers="):
        type(first)(**{**settings, "num_workers": 3}, batch_sampler=other)


@pytest.mark.parametrize("workers", [0, 2])
def test_operations_work_on_subsets(dataset, same, workers):
    """Also nested ones and those of random_split: as on the samples that they select."""
    half, _ = random_split(dataset, [8, 4], torch.Generator().manual_seed(0))
    nested = Subset(half, [3, -1, 0, 3])
    for part, chosen in (
        (half, half.indices),
        (nested, [half.indices[at] for at in nested.indices]),
    ):
        settings = {"train": True, "ops": OPS, "seed": 5, "workers": workers}
        found, expected = (
            make_loader(one, 3, **settings) for one in (part, dataset.select(list(chosen)))
        )
        assert same(epochs_of(found), epochs_of(expected))
        assert same(epochs_of(rebuilt(make_loader(part, 3, **settings))), epochs_of_again(expected))
        found.close()
        expected.close()


def epochs_of_again(loader):
    loader.set_epoch(0)
    return epochs_of(loader)


@pytest.mark.parametrize("workers", [0, 2])
def test_operations_work_on_several_stores_at_once(dataset, shapes, same, workers):
    """Each sample as its own store gives it, with chances of its own; also parts of both."""
    other = LMDBDataset(shapes.path, split="valid", returns=("key", "image", "label"))
    both = ConcatDataset([dataset, other])
    settings = {"train": False, "ops": OPS, "seed": 5, "workers": workers}
    found = make_loader(both, 8, **settings)
    batches = list(found)
    found.close()
    assert [key for batch in batches for key in batch[0]] == [one[0] for one in both]
    assert [at for batch in batches for at in batch[2].tolist()] == [one[2] for one in both]
    (first,) = make_loader(dataset, 12, **settings)
    images = torch.cat([batch[1] for batch in batches])
    assert torch.equal(images[:12], first[1])
    assert images.stride() == torch.cat([batch[1] for batch in batches]).stride()
    # The last four are in both: seen by another crop there.
    assert not torch.equal(images[8:12], images[12:])
    part, _ = random_split(both, [10, 6], torch.Generator().manual_seed(0))
    for nested in (part, ConcatDataset([part, Subset(other, [2])])):
        loader = make_loader(nested, 4, **settings)
        assert [key for batch in loader for key in batch[0]] == [one[0] for one in nested]
        expected = epochs_of_again(loader)
        loader.set_epoch(0)
        assert same(epochs_of(rebuilt(loader)), expected)
        loader.close()
    mixed = make_loader(
        both, 4, train=True, ops=OPS, workers=0, sampler=MixtureSampler(both, counts=[4, 8])
    )
    keys = [key for batch in mixed for key in batch[0]]
    assert len(keys) == 12


def test_stores_that_make_no_batch_together_are_an_error(dataset, shapes, every_kind):
    """With what differs."""

    def refused(other, message):
        with pytest.raises(ValueError, match=message):
            make_loader(ConcatDataset([dataset, other]), 4, train=True, workers=0, ops=OPS)

    refused(LMDBDataset(shapes.path, returns=("image", "label")), "fields differ")
    refused(LMDBDataset(shapes.path, fields=("key", "image", "label")), "returns differ")
    refused(
        LMDBDataset(shapes.path, returns=("key", "image", "label"), image_as="numpy"),
        "image_as differ.*'tensor'.*'numpy'",
    )
    refused(LMDBDataset(shapes.path, transform=noisy), "got one with a transform")
    refused(range(3), "got ConcatDataset of LMDBDataset, range")
    refused(LMDBDataset(every_kind.path, fields=["gray"]), "fields differ")
