"""Batches in the forms that detectors take."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from readers.store.shapes.polygons import Polygons
from readers.targets import detection_targets, pack_objects, pad_images
from tests.vision import need_torchvision

SQUARE = np.array([[1.0, 1], [3, 1], [3, 2], [1, 2]])


@pytest.fixture
def batch():
    """Two images of two sizes: the first with two objects, the second with none."""
    return {
        "image": [torch.arange(60).reshape(3, 4, 5).byte(), torch.ones(3, 2, 7).byte()],
        "boxes": [torch.tensor([[1.0, 1, 3, 2], [0, 0, 2, 2]]), torch.zeros(0, 4)],
        "labels": [torch.tensor([1, 0]), torch.zeros(0, dtype=torch.int64)],
        "iscrowd": [torch.tensor([False, True]), torch.zeros(0, dtype=torch.bool)],
        "masks": [Polygons([(SQUARE,), ()], 4, 5), Polygons([], 2, 7)],
        "attributes": [[{"a": 1}, {}], []],
        "image_id": torch.tensor([17, 4]),
        "mask": [torch.full((4, 5), 3).byte(), torch.full((2, 7), 255).byte()],
        "key": ["a", "b"],
    }


def test_targets_are_those_of_torchvision(batch):
    """Lists of images and of dicts; outlines become pixels, flags numbers."""
    images, targets = detection_targets(batch, first_label=0, dtype=None)
    assert [image.shape for image in images] == [(3, 4, 5), (3, 2, 7)]
    assert list(targets[0]) == ["boxes", "labels", "iscrowd", "masks", "image_id"]
    assert targets[0]["boxes"].tolist() == [[1, 1, 3, 2], [0, 0, 2, 2]]
    assert targets[0]["labels"].tolist() == [1, 0]
    assert targets[0]["iscrowd"].tolist() == [0, 1]
    assert targets[0]["iscrowd"].dtype == torch.int64
    assert targets[0]["masks"].dtype == torch.uint8
    assert targets[0]["masks"].tolist()[0][1] == [0, 1, 1, 0, 0]
    assert targets[0]["masks"].sum(dim=(1, 2)).tolist() == [2, 0]
    assert targets[1]["boxes"].shape == (0, 4)
    assert targets[1]["masks"].shape == (0, 2, 7)
    assert int(targets[1]["image_id"]) == 4
    del batch["labels"]
    with pytest.raises(KeyError, match="no 'labels', which detectors need"):
        detection_targets(batch, first_label=1)


def test_labels_begin_where_the_model_says(batch):
    """The caller says whether 0 is the background; there is no default, and no label is shared."""
    _, targets = detection_targets(batch, first_label=1)
    assert targets[0]["labels"].tolist() == [2, 1]
    assert targets[0]["labels"].dtype == torch.int64
    assert batch["labels"][0].tolist() == [1, 0]
    with pytest.raises(TypeError, match="first_label"):
        detection_targets(batch)
    with pytest.raises(TypeError, match=r"first_label is 1 for .* background.*; got True"):
        detection_targets(batch, first_label=True)
    with pytest.raises(ValueError, match="first_label must be at least 0; got -1"):
        detection_targets(batch, first_label=-1)


def test_images_become_numbers_up_to_one_where_a_model_wants_those(batch):
    """uint8 and uint16 by their largest values; what is floating already stays as it is."""
    batch["image"] = [torch.full((3, 4, 5), 255).byte(), torch.full((3, 2, 7), 0.25)]
    images, _ = detection_targets(batch, first_label=0)
    assert [image.dtype for image in images] == [torch.float32] * 2
    assert [image.unique().tolist() for image in images] == [[1.0], [0.25]]
    batch["image"][0] = torch.full((3, 4, 5), 65535, dtype=torch.uint16)
    images, _ = detection_targets(batch, first_label=0, dtype=torch.float16)
    assert images[0].dtype == torch.float16
    assert images[0].unique().tolist() == [1.0]


def test_keypoints_without_visibility_get_one(batch):
    """A model looks at the third number; 0 0 is a point that is not marked."""
    points = torch.tensor([[[1.0, 2], [0, 0]], [[0, 3], [4, 0]]])
    batch["keypoints"] = [points, torch.zeros(0, 2, 2)]
    _, targets = detection_targets(batch, first_label=0)
    assert targets[0]["keypoints"][:, :, 2].tolist() == [[2, 0], [2, 2]]
    assert torch.equal(targets[0]["keypoints"][:, :, :2], points)
    assert targets[1]["keypoints"].shape == (0, 2, 3)


def test_what_is_no_batch_of_dicts_and_tensors_is_told(batch):
    """Tuples have no names, and pictures of (height, width, channel) would be read wrongly."""
    with pytest.raises(TypeError, match=r"a dict of fields; got a tuple\. Leave returns= out"):
        detection_targets(tuple(batch.values()), first_label=0)
    batch["image"] = torch.zeros(2, 8, 9, 3, dtype=torch.uint8)
    with pytest.raises(ValueError, match=r"got \(8, 9, 3\). Make .* image_as='tensor'"):
        detection_targets(batch, first_label=0)


def test_targets_are_tv_tensors_when_asked_for(batch):
    """torchvision's v2 transforms tell boxes from masks by their types."""
    need_torchvision()
    from torchvision import tv_tensors

    images, targets = detection_targets(batch, first_label=0, as_tv_tensors=True)
    assert isinstance(images[0], tv_tensors.Image)
    assert isinstance(targets[0]["boxes"], tv_tensors.BoundingBoxes)
    assert targets[0]["boxes"].canvas_size == (4, 5)
    assert isinstance(targets[0]["masks"], tv_tensors.Mask)


def test_objects_are_packed_with_whose_they_are(batch):
    """One tensor a field; images and keys stay."""
    packed = pack_objects(batch)
    assert packed["boxes"].shape == (2, 4)
    assert packed["labels"].tolist() == [1, 0]
    assert packed["batch_index"].tolist() == [0, 0]
    assert packed["attributes"] == [{"a": 1}, {}]
    assert len(packed["masks"]) == 2
    assert packed["key"] == ["a", "b"]
    assert len(batch["boxes"]) == 2  # The caller's batch is as it was.
    swapped = {name: values[::-1] for name, values in batch.items() if name in ("boxes", "labels")}
    assert pack_objects(swapped)["batch_index"].tolist() == [1, 1]
    assert pack_objects({"image": batch["image"]}) == {"image": batch["image"]}


def test_images_are_padded_at_the_right_and_below(batch):
    """To the largest side, or a multiple; masks with them, and the true sizes are said."""
    padded = pad_images(batch, fill=9, multiple_of=4)
    images = padded["image"]
    assert images.shape == (2, 3, 4, 8)
    assert images.dtype == torch.uint8
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(images[0, :, :, :5], batch["image"][0])
    assert (images[0, :, :, 5:] == 9).all()
    assert (images[1, :, 2:] == 9).all()
    assert padded["sizes"].tolist() == [[4, 5], [2, 7]]
    assert padded["mask"].shape == (2, 4, 8)
    assert padded["mask"][1].sum() == 255 * 14
    assert padded["boxes"] is batch["boxes"]
    assert pad_images({"image": []})["sizes"].shape == (0, 2)


def test_images_of_several_kinds_are_not_padded(batch):
    """Nor to nonsense."""
    batch["image"][1] = batch["image"][1][:1]
    with pytest.raises(ValueError, match="must be of one kind"):
        pad_images(batch)
    with pytest.raises(ValueError, match="multiple_of must be at least 1; got 0"):
        pad_images(batch, multiple_of=0)
