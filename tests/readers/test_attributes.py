"""What is set on a dataset or a loader after it was made is honoured, or an error."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, random_split

from readers import LMDBDataset, make_loader
from readers.dataset import TransformError
from readers.ops import RandomResizedCrop
from readers.reading.collate import collate


@pytest.fixture
def dataset(shapes):
    """12 samples."""
    return LMDBDataset(shapes.path, returns=("image", "label"))


def labelled(sample):
    return sample[1] + 100


def relabelled(sample):
    return sample[1] + 200


def labels_of(loader):
    return [label for batch in loader for label in batch.tolist()]


@pytest.mark.parametrize("engine", ["thread", "process"])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_transform_may_be_set_at_any_time(dataset, engine, workers):
    """Loaders made later and earlier take it, also running ones with their next iteration."""
    plain = [sample[1] for sample in dataset]
    settings = {"train": False, "engine": engine, "workers": workers}
    early = make_loader(dataset, 4, **settings)
    assert next(iter(early))[0].shape == (4, 3, 4, 6)
    for transform, add in ((labelled, 100), (relabelled, 200)):
        dataset.transform = transform
        assert dataset.transform is transform
        assert dataset[3] == plain[3] + add
        assert dataset.__getitems__([0, 3]) == [plain[0] + add, plain[3] + add]
        late = make_loader(dataset, 4, **settings)
        stock = DataLoader(dataset, 4, collate_fn=collate)
        for loader in (early, late, stock):
            assert labels_of(loader) == [label + add for label in plain]
        late.close()
    dataset.transform = None
    assert next(iter(early))[0].shape == (4, 3, 4, 6)
    assert early.stats()["engine"] == engine
    early.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_transform_reaches_subsets_and_what_they_are_part_of(dataset, workers):
    """As `train.dataset.transform = ...` after random_split."""
    part, rest = random_split(dataset, [8, 4], torch.Generator().manual_seed(0))
    plain = [sample[1] for sample in ConcatDataset([part, Subset(rest, [0, 1])])]
    both = make_loader(ConcatDataset([part, Subset(rest, [0, 1])]), 4, train=False, workers=workers)
    one = make_loader(part, 4, train=False, workers=workers)
    for loader, count in ((both, 10), (one, 8)):
        labels = torch.cat([batch[1] for batch in loader]).tolist()
        assert labels == plain[:count]
    part.dataset.transform = labelled
    assert labels_of(both) == [label + 100 for label in plain]
    assert labels_of(one) == [label + 100 for label in plain[:8]]
    loader = make_loader(dataset.select([1, 2]), 2, train=False, workers=0)
    assert labels_of(loader) == [dataset[1], dataset[2]]
    both.close()
    one.close()


class Around(Dataset):
    """A dataset of the user's around one of ours, with a transform of its own."""

    def __init__(self, inside):
        self.inside = inside
        self.transform = None

    def __len__(self):
        return len(self.inside)

    def __getitem__(self, index):
        sample = self.inside[index]
        return sample if self.transform is None else self.transform(sample)


def test_loader_workers_of_a_dataset_around_it_take_its_transform(dataset):
    """Workers that run would keep the old one."""
    around = Around(Subset(dataset, [3, 1]))
    plain = [dataset[3][1], dataset[1][1]]
    loader = make_loader(around, 2, train=False, workers=1)
    ((_, labels),) = loader
    assert labels.tolist() == plain
    around.transform = labelled
    assert labels_of(loader) == [label + 100 for label in plain]
    around.transform = None
    dataset.transform = relabelled
    assert labels_of(loader) == [label + 200 for label in plain]
    loader.close()


def test_a_selection_has_a_transform_of_its_own(dataset):
    """It begins with that of the dataset; pickles and copies keep it."""
    dataset.transform = labelled
    part = dataset.select([2, 1])
    part.transform = relabelled
    assert part[0] == dataset[2] + 100
    for again in (pickle.loads(pickle.dumps(part)), copy.deepcopy(part), copy.copy(part)):
        assert again[0] == part[0]
        assert again.transform is relabelled


def test_operations_and_a_transform_set_later_are_an_error(dataset):
    """With what to do: nothing is left out in silence."""
    loader = make_loader(dataset, 4, train=True, workers=0, ops=[RandomResizedCrop(3)])
    list(loader)
    dataset.transform = labelled
    for one in (loader, DataLoader(loader.dataset, batch_sampler=loader.batch_sampler)):
        with pytest.raises(ValueError, match=r"with a transform.*dataset.transform = None"):
            list(one)
    loader.dataset.transform = None
    assert dataset.transform is None
    assert len(list(loader)) == 3


def upside_down(image):
    assert image.size == (6, 4)
    return image.rotate(180)


def test_a_transform_may_be_for_one_field(shapes):
    """So transforms of torchvision's kind, which take a picture, are set as they are."""
    settings = {"image_as": "pil", "transform_field": "image"}
    pairs = LMDBDataset(shapes.path, returns=("label", "image"), **settings)
    dicts = LMDBDataset(shapes.path, fields=("label", "image"), **settings)
    before = pairs[4][1]
    pairs.transform = dicts.transform = upside_down
    assert pairs[4][0] == dicts[4]["label"]
    assert pairs[4][1].rotate(180) == dicts[4]["image"].rotate(180) == before
    again = pickle.loads(pickle.dumps(dicts.select([4])))
    assert again[0]["image"] == dicts[4]["image"]
    with pytest.raises(Exception, match=r"no field of its samples 'picture'; it has label, image"):
        LMDBDataset(shapes.path, returns=("label", "image"), transform_field="picture")


def timm_loader(dataset, transform, **settings):
    """What timm's create_loader does: it sets the transform, and joins arrays and numbers."""

    def fast_collate(samples):
        assert isinstance(samples[0], tuple)
        images = torch.stack([torch.from_numpy(image) for image, _ in samples])
        return images, torch.tensor([label for _, label in samples])

    dataset.transform = transform
    return DataLoader(dataset, 4, collate_fn=fast_collate, **settings)


def as_array(image):
    return np.asarray(image.resize((5, 7))).transpose(2, 0, 1).copy()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_of_timm_gets_its_transform(shapes, workers):
    """It gives pictures alone to its transform, of a dataset that was made without one."""
    dataset = LMDBDataset(
        shapes.path, returns=("image", "label"), image_as="pil", transform_field="image"
    )
    batches = list(timm_loader(dataset, as_array, num_workers=workers))
    assert [tuple(images.shape) for images, _ in batches] == [(4, 3, 7, 5)] * 3
    dataset.transform = None
    assert torch.equal(batches[2][0][3], torch.from_numpy(as_array(dataset[11][0])))
    assert torch.cat([labels for _, labels in batches]).tolist() == [one[1] for one in dataset]


def test_a_transform_that_takes_pictures_is_told_of(dataset):
    """Who sets one of timm or torchvision reads how it gets the picture alone."""
    dataset.transform = lambda image: image.convert("RGB")
    with pytest.raises(TransformError, match=r"a tuple of image, label.*transform_field='image'"):
        dataset[0]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tranform", r"no attribute 'tranform'.*Did you mean 'transform'\?"),
        ("transforms", r"Did you mean 'transform'\?"),
        ("target_transform", "dataset.transform = function"),
        ("returns", r"LMDBDataset\(path, returns=...\)"),
        ("image_as", r"LMDBDataset\(path, image_as=...\)"),
        ("classes", "classes is the dataset's own"),
        ("seed", "make a subclass"),
    ],
)
def test_other_attributes_of_a_dataset_are_an_error(dataset, name, message):
    """What would change nothing says so; also on selections, and on what a loader shows."""
    loader = make_loader(dataset, 4, train=True, workers=0, ops=[RandomResizedCrop(3)])
    for one in (dataset, dataset.select([1]), Subset(dataset, [1]).dataset, loader.dataset):
        with pytest.raises(AttributeError, match=message):
            setattr(one, name, ())
    with pytest.raises(TypeError, match="a transform is called with each sample, or None; got 3"):
        dataset.transform = 3


class Mine(LMDBDataset):
    """A dataset of the user's, with attributes and samples of its own."""

    def __init__(self, path):
        super().__init__(path, returns=("image", "label"))
        self.offset = 1000

    def __getitem__(self, index):
        return super().__getitem__(index)[1] + self.offset


def test_a_subclass_has_what_it_likes(shapes):
    """Its attributes travel, and its samples are its own, however they are asked for."""
    mine = Mine(shapes.path)
    mine.offset = 3000
    expected = [mine[at] for at in range(12)]
    assert expected[0] >= 3000
    for one in (mine, pickle.loads(pickle.dumps(mine)), mine.select(range(12))):
        for workers in (0, 2):
            stock = DataLoader(one, 4, num_workers=workers, collate_fn=collate)
            ours = make_loader(one, 4, train=False, workers=workers)
            assert labels_of(stock) == labels_of(ours) == expected
            ours.close()
    with pytest.raises(ValueError, match="got Mine"):
        make_loader(mine, 4, train=True, workers=0, ops=[RandomResizedCrop(3)])


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("collate_fn", list, "Make another one with collate_fn="),
        ("num_workers", 7, "with workers="),
        ("worker_init_fn", print, "seed, epoch and batch already"),
        ("generator", torch.Generator(), "with seed="),
        ("pin_memory", "yes", "is settled when it is made: pin_memory"),
        ("batch_size", 3, "batch_size"),
    ],
)
def test_settings_of_a_loader_are_settled(dataset, name, value, message):
    """A loader of torch would take them with its next iteration; setting what is there is fine."""
    loader = make_loader(dataset, 4, train=True, workers=0)
    loader.pin_memory = bool(loader.pin_memory)
    with pytest.raises(ValueError, match=message):
        setattr(loader, name, value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("transform", "dataset.transform = function"),
        ("ops", r"make_loader\(..., ops=...\)"),
        ("collate", r"Did you mean 'collate_fn'\?"),
        ("colour", "setting it would change nothing"),
    ],
)
def test_other_attributes_of_a_loader_are_an_error(dataset, name, message):
    """Names that a framework keeps for itself begin with an underscore, and are its own."""
    loader = make_loader(dataset, 4, train=True, workers=0)
    loader._note = 1
    assert loader._note == 1
    with pytest.raises(AttributeError, match=message):
        setattr(loader, name, None)
