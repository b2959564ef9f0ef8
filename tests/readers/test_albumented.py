"""albumentations' transforms move all of a sample, as a loader's ops do."""

from __future__ import annotations

import importlib.util
import pickle

import numpy as np
import pytest
import torch

from readers import Albumented, LMDBDataset, make_loader, ops
from tests.readers.with_objects import FIELDS, samples

if importlib.util.find_spec("albumentations") is None:
    pytest.skip("needs albumentations", allow_module_level=True)


@pytest.fixture(scope="module")
def albu():
    """The library, which would else ask its server for a newer release."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_ALBUMENTATIONS_UPDATE", "1")
        import albumentations
    return albumentations


@pytest.fixture(scope="module")
def path(tmp_path_factory, write_store):
    folder = tmp_path_factory.mktemp("stores") / "objects.lmdb"
    return write_store(folder, FIELDS, samples(), classes=("a", "b"))


def dataset_with(path, transforms, **settings):
    return LMDBDataset(path, image_as="numpy", transform=Albumented(transforms), **settings)


@pytest.mark.parametrize(
    ("name", "arguments", "op"),
    [
        ("HorizontalFlip", {"p": 1.0}, [ops.CenterCrop((32, 40)), ops.RandomFlip(1.0)]),
        ("VerticalFlip", {"p": 1.0}, [ops.CenterCrop((32, 40)), ops.RandomVerticalFlip(1.0)]),
        ("CenterCrop", {"height": 24, "width": 24, "p": 1.0}, [ops.CenterCrop(24)]),
        ("CenterCrop", {"height": 12, "width": 20, "p": 1.0}, [ops.CenterCrop((12, 20))]),
    ],
)
def test_transforms_move_what_ops_move(albu, path, name, arguments, op):
    """Image, boxes, masks, points and what belongs to the objects; those that are gone go."""
    dataset = dataset_with(path, [getattr(albu, name)(**arguments)])
    plain = LMDBDataset(path, image_as="numpy").select([0, 2])
    (batch,) = make_loader(plain, 2, train=False, workers=0, ops=op)
    for row, at in enumerate((0, 2)):
        sample = dataset[at]
        assert np.array_equal(sample["image"], batch["image"][row])
        assert np.array_equal(sample["mask"], batch["mask"][row])
        assert sample["mask"].dtype == np.int32
        for field in ("boxes", "keypoints", "corners"):
            np.testing.assert_allclose(sample[field], batch[field][row], atol=1e-4)
            assert sample[field].dtype == np.float32
        np.testing.assert_allclose(sample["area"], batch["area"][row], atol=1e-2)
        assert np.array_equal(sample["labels"], batch["labels"][row])
        assert sample["attributes"] == batch["attributes"][row]
        assert np.array_equal(sample["masks"], batch["masks"][row].to_masks())
        assert "transform" not in sample
    if arguments.get("height") == 12:
        assert len(dataset[0]["boxes"]) < 3


def test_chances_follow_the_loaders_seed(albu, path):
    """Workers that are forked do not all draw the same, and an epoch can be had again."""
    dataset = dataset_with(path, [albu.HorizontalFlip(p=0.5)], fields=("image", "boxes"))
    dataset = dataset.select([0] * 32)

    def epoch(seed, workers):
        loader = make_loader(dataset, 4, train=False, workers=workers, engine="process", seed=seed)
        images = [image for batch in loader for image in batch["image"]]
        loader.close()
        return torch.stack(images)

    first = epoch(1, 2)
    assert len(first.unique(dim=0)) == 2
    assert torch.equal(first, epoch(1, 1))
    assert not torch.equal(first, epoch(2, 1))


def test_a_sample_without_objects_and_a_picture_alone(albu, path):
    """Nothing is needed but the image."""
    dataset = dataset_with(path, [albu.HorizontalFlip(p=1.0)], fields=("image", "key"))
    plain = LMDBDataset(path, image_as="numpy")
    assert np.array_equal(dataset[1]["image"], plain[1]["image"][:, ::-1])
    assert dataset[1]["key"] == "1"
    labels = dataset_with(path, [albu.HorizontalFlip(p=1.0)], fields=("image", "labels"))
    assert labels[0]["labels"].tolist() == [0, 1, 0]
    copied = pickle.loads(pickle.dumps(dataset))
    assert np.array_equal(copied[1]["image"], dataset[1]["image"])


def test_what_it_cannot_work_on_is_told(albu, path):
    """Tensors, tuples, a Compose; and a Compose that is given to a dataset itself."""
    flip = albu.HorizontalFlip()
    for settings in ({"image_as": "tensor"}, {"image_as": "numpy", "returns": ("image",)}):
        dataset = LMDBDataset(path, transform=Albumented([flip]), **settings)
        with pytest.raises(Exception, match=r"image_as='numpy'\), without returns="):
            dataset[0]
    with pytest.raises(TypeError, match=r"Of a Compose give what is in it: compose.transforms"):
        Albumented(albu.Compose([flip]))
    for transform in (flip, albu.Compose([flip])):
        with pytest.raises(ValueError, match=r"transform=Albumented\(\[...\]\)"):
            LMDBDataset(path, image_as="numpy", transform=transform)
