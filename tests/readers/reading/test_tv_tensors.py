"""Samples as tv_tensors: torchvision's v2 transforms move all of them, as a loader's ops do."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch.utils.data import DataLoader

from readers import DevicePrefetcher, LMDBDataset, collate, make_loader, ops
from tests.readers.with_objects import COUNTS, FIELDS, SIZES, samples
from tests.vision import need_torchvision

need_torchvision()

from torchvision import tv_tensors  # noqa: E402
from torchvision.transforms import v2  # noqa: E402

KINDS = {
    "image": tv_tensors.Image,
    "boxes": tv_tensors.BoundingBoxes,
    "mask": tv_tensors.Mask,
    "masks": tv_tensors.Mask,
    "keypoints": tv_tensors.KeyPoints,
    "corners": tv_tensors.KeyPoints,
}


@pytest.fixture(scope="module")
def path(tmp_path_factory, write_store):
    folder = tmp_path_factory.mktemp("stores") / "objects.lmdb"
    return write_store(folder, FIELDS, samples(), classes=("a", "b"))


def plain(value):
    return value.as_subclass(torch.Tensor)


def test_all_that_lies_on_an_image_says_what_it_is(path):
    """Kinds, sizes and numbers; what is not on the image stays as it is."""
    dataset, tensors = LMDBDataset(path, image_as="tv_tensor"), LMDBDataset(path)
    for at, (size, count) in enumerate(zip(SIZES, COUNTS, strict=True)):
        sample, expected = dataset[at], tensors[at]
        assert {name: type(sample[name]) for name in KINDS} == KINDS
        for name in ("boxes", "keypoints", "corners"):
            assert sample[name].canvas_size == size
        assert sample["boxes"].format == tv_tensors.BoundingBoxFormat.XYXY
        assert sample["masks"].shape == (count, *size)
        assert torch.equal(plain(sample["masks"]), torch.from_numpy(expected["masks"].to_masks()))
        for name in ("image", "boxes", "mask", "corners"):
            assert torch.equal(plain(sample[name]), expected[name])
        assert torch.equal(plain(sample["keypoints"]), expected["keypoints"][..., :2])
        assert torch.equal(sample["visibility"], expected["keypoints"][..., 2])
        assert type(sample["labels"]) is torch.Tensor
    assert type(pickle.loads(pickle.dumps(dataset))[0]["boxes"]) is tv_tensors.BoundingBoxes


@pytest.mark.parametrize(
    ("transform", "op"),
    [
        (v2.RandomHorizontalFlip(1.0), [ops.RandomFlip(1.0)]),
        (v2.RandomVerticalFlip(1.0), [ops.RandomVerticalFlip(1.0)]),
        (v2.Pad((3, 2, 1, 4)), [ops.Pad((3, 2, 1, 4))]),
        (v2.CenterCrop(24), [ops.CenterCrop(24)]),
    ],
)
def test_transforms_move_what_ops_move(path, transform, op):
    """Image, boxes, masks and points end where a loader's ops take them."""
    names = ("image", "boxes", "labels", "mask", "masks", "corners")
    first = [0, 2]  # Of one size, as an op without a size of its own needs.
    sizes = [] if isinstance(op[0], ops.CenterCrop) else [ops.CenterCrop(SIZES[0])]
    dataset = LMDBDataset(path, fields=names, image_as="tv_tensor")
    dataset.transform = v2.Compose([transform, v2.SanitizeBoundingBoxes(labels_getter=None)])
    tensors = LMDBDataset(path, fields=names).select(first)
    (batch,) = make_loader(tensors, 2, train=False, workers=0, ops=[*sizes, *op])
    for row, at in enumerate(first):
        sample = dataset[at]
        assert torch.equal(plain(sample["image"]), batch["image"][row])
        assert torch.equal(plain(sample["mask"]), batch["mask"][row])
        assert torch.allclose(plain(sample["boxes"]), batch["boxes"][row], atol=1e-4)
        if "Crop" not in type(transform).__name__:  # v2 drops boxes that are gone, and no masks.
            masks = torch.from_numpy(batch["masks"][row].to_masks())
            assert torch.equal(plain(sample["masks"]), masks)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("engine", ["thread", "process"])
def test_loaders_hand_them_on(path, engine, workers):
    """Through threads and processes; images of one size are one, objects stay lists."""
    dataset = LMDBDataset(path, image_as="tv_tensor").select([0, 2])
    with_sizes = make_loader(dataset, 2, train=False, workers=workers, engine=engine)
    for batch in with_sizes:
        assert type(batch["image"]) is tv_tensors.Image
        assert batch["image"].shape == (2, 3, 32, 40)
        assert type(batch["mask"]) is tv_tensors.Mask
        for name in ("boxes", "keypoints", "masks"):
            assert [type(value) for value in batch[name]] == [KINDS[name]] * 2
        assert [value.canvas_size for value in batch["boxes"]] == [(32, 40)] * 2
        assert torch.equal(plain(batch["boxes"][0]), plain(dataset[0]["boxes"]))
    with_sizes.close()


def test_other_loaders_hand_them_on(path):
    """torch's own, and a prefetcher."""
    dataset = LMDBDataset(path, fields=("image", "boxes"), image_as="tv_tensor")
    (batch,) = DataLoader(dataset, batch_size=3, collate_fn=collate)
    assert [type(value) for value in batch["boxes"]] == [tv_tensors.BoundingBoxes] * 3
    assert [tuple(value.shape[1:]) for value in batch["image"]] == SIZES
    loader = make_loader(dataset, 3, train=False, workers=0)
    (moved,) = DevicePrefetcher(loader, "cpu")
    assert torch.equal(plain(moved["boxes"][1]), plain(batch["boxes"][1]))


def test_what_cannot_be_one_is_told_when_the_dataset_is_made(path):
    """Not with the first sample."""
    settings = {"image_as": "tv_tensor"}
    with pytest.raises(ValueError, match=r"needs one image among the fields.*got \[\]"):
        LMDBDataset(path, fields=("boxes",), **settings)
    with pytest.raises(ValueError, match=r"'keypoints' has a visibility.*Leave returns out"):
        LMDBDataset(path, returns=("image", "keypoints"), **settings)
    image, corners = LMDBDataset(path, returns=("image", "corners"), **settings)[0]
    assert (type(image), type(corners)) == (tv_tensors.Image, tv_tensors.KeyPoints)
    dataset = LMDBDataset(path, **settings)
    with pytest.raises(ValueError, match="ops make tensors; take image_as='tensor'"):
        make_loader(dataset, 2, train=False, ops=[ops.CenterCrop(8)])


@pytest.mark.parametrize(
    "transform",
    [
        v2.RandomHorizontalFlip(),
        v2.Compose([v2.ColorJitter(0.5), v2.RandomApply([v2.Resize((8, 8))])]),
    ],
)
@pytest.mark.parametrize("field", [None, "image"])
def test_a_transform_that_leaves_boxes_behind_is_refused(path, transform, field):
    """On plain tensors the image moves and the boxes stay, without an error of torchvision's."""
    message = "would move the image and leave boxes, masks, keypoints, corners, mask where they"
    with pytest.raises(ValueError, match=message):
        LMDBDataset(path, transform=transform, transform_field=field)
    dataset = LMDBDataset(path, transform_field=field)
    with pytest.raises(ValueError, match=message):
        dataset.transform = transform
    # Where there is nothing to leave behind, or nothing is moved, all is well.
    LMDBDataset(path, fields=("image", "labels"), transform=transform, transform_field=field)
    dataset.transform = v2.ColorJitter(0.5)
    LMDBDataset(path, image_as="tv_tensor", transform=transform)
