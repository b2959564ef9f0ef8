"""Boxes, points, outlines and masks go where the operations of a loader take their image."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from readers.dataset import LMDBDataset
from readers.loader.make import make_loader
from readers.ops import CenterCrop, Letterbox, RandomFlip, RandomResizedCrop, Resize
from readers.store.schema import Field
from readers.store.shapes.affine import invert, map_boxes
from readers.store.shapes.polygons import Polygons, Runs
from readers.store.shapes.rle import mask_runs

OBJECTS = [
    Field(name="boxes", kind="boxes", dtype="float32", shape=(None, 4)),
    Field(name="labels", kind="label", dtype="int64", shape=(None,), names=("ant", "bee", "cat")),
    Field(name="area", kind="array", dtype="float32", shape=(None,)),
    Field(name="iscrowd", kind="array", dtype="bool", shape=(None,)),
    Field(name="masks", kind="polygons"),
    Field(name="keypoints", kind="keypoints", dtype="float32", shape=(None, 2, 3)),
    Field(name="attributes", kind="json"),
    Field(name="mask", kind="mask", dtype="uint8", shape=(None, None), ignore=255),
    Field(name="transform", kind="array", dtype="float32", shape=(2, 3)),
]
FIELDS = [
    Field(name="key", kind="text"),
    Field(name="image", kind="image", dtype="uint8", shape=(None, None, 3), codec="raw"),
    *OBJECTS,
]

OPS = [
    (RandomResizedCrop(32, scale=(0.2, 0.9)), RandomFlip()),
    (Letterbox((40, 56)), RandomFlip(1.0)),
    (CenterCrop(24),),
    (Resize((30, 90)),),
]


def drawn(at: int) -> dict[str, Any]:
    """A sample of three rectangles, each of a value of its own in the image and in the mask."""
    noise = np.random.default_rng(at)
    height, width = 40 + 3 * at, 70 - 5 * at
    image = np.zeros((height, width, 3), np.uint8)
    ids = np.zeros((height, width), np.uint8)
    boxes, outlines, points = [], [], []
    for number in range(at % 4):
        # In a column of its own, so that none covers another.
        x0 = number * (width // 3) + int(noise.integers(0, 4))
        y0 = int(noise.integers(0, height // 2))
        x1, y1 = x0 + int(noise.integers(6, width // 3 - 4)), y0 + int(noise.integers(6, 18))
        boxes.append([x0, y0, x1, y1])
        image[y0:y1, x0:x1] = 80 * (number + 1)
        ids[y0:y1, x0:x1] = number + 1
        corners = np.array([[x0, y0], [x1, y0], [x1, y1], [x0, y1]], np.float64)
        whole = np.zeros((height, width), np.uint8)
        whole[y0:y1, x0:x1] = 1
        outlines.append(Runs(mask_runs(whole)) if number == 1 else (corners,))
        points.append([[x0, y0, 2], [0, 0, 0]])
    count = len(boxes)
    box_array = np.array(boxes, np.float32).reshape(-1, 4)
    return {
        "key": f"{at}.png",
        "image": image,
        "boxes": box_array,
        "labels": np.arange(count),
        "area": np.prod(box_array[:, 2:] - box_array[:, :2], axis=1),
        "iscrowd": np.array([number == 1 for number in range(count)], bool),
        "masks": Polygons(outlines, height, width),
        "keypoints": np.array(points, np.float32).reshape(-1, 2, 3),
        "attributes": [{"number": number} for number in range(count)],
        "mask": ids,
        "transform": np.array([[0.5, 0, at], [0, 2, -at]], np.float32),
    }


SAMPLES = [drawn(at) for at in range(9)]


@pytest.fixture(scope="module")
def path(tmp_path_factory, write_store):
    return write_store(tmp_path_factory.mktemp("stores") / "objects.lmdb", FIELDS, SAMPLES, (4, 5))


def batch_of(path, ops, **settings) -> dict[str, Any]:
    settings = {"workers": 0, "train": False, "seed": 5, **settings}
    fields = settings.pop("fields", None)
    dataset = LMDBDataset(path, fields=fields)
    (batch,) = make_loader(dataset, len(SAMPLES), ops=ops, **settings)
    return batch


@pytest.mark.parametrize("ops", OPS)
def test_objects_lie_on_their_pixels(path, ops):
    """A box is where its rectangle is drawn in the result, as far as any of it is left."""
    batch = batch_of(path, ops)
    size = tuple(batch["image"].shape[2:])
    kept_count = 0
    for at, sample in enumerate(SAMPLES):
        image = batch["image"][at, 0].numpy()
        labels = batch["labels"][at].tolist()
        for row, label in enumerate(labels):
            x0, y0, x1, y1 = batch["boxes"][at][row].tolist()
            assert 0 <= x0 < x1 <= size[1]
            assert 0 <= y0 < y1 <= size[0]
            inner = image[int(y0) + 2 : int(y1) - 2, int(x0) + 2 : int(x1) - 2]
            assert (inner == 80 * (label + 1)).all()
            # Nowhere else, but where the smoothed edge of another rectangle has its value.
            near = image == 80 * (label + 1)
            near[max(0, int(y0) - 1) : int(y1) + 2, max(0, int(x0) - 1) : int(x1) + 2] = False
            assert near.sum() <= sum(size)
            kept_count += 1
        gone = set(range(len(sample["labels"]))) - set(labels)
        for label in gone:
            # Of what is gone there is no pixel but for a smoothed edge.
            assert (image == 80 * (label + 1)).sum() <= max(size)
    assert kept_count >= 6


@pytest.mark.parametrize("ops", OPS)
def test_all_fields_of_objects_agree(path, ops):
    """The same objects in the same order in each, also those that are gone."""
    batch = batch_of(path, ops)
    for at, sample in enumerate(SAMPLES):
        labels = batch["labels"][at]
        assert labels.dtype == torch.int64
        assert batch["boxes"][at].shape == (len(labels), 4)
        assert batch["boxes"][at].dtype == torch.float32
        assert batch["attributes"][at] == [{"number": label} for label in labels.tolist()]
        assert batch["iscrowd"][at].tolist() == [label == 1 for label in labels.tolist()]
        assert batch["keypoints"][at].shape == (len(labels), 2, 3)
        masks = batch["masks"][at].to_masks()
        assert masks.shape == (len(labels), *batch["image"].shape[2:])
        boxes = batch["boxes"][at].numpy()
        areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
        assert batch["area"][at].tolist() == pytest.approx(areas.tolist(), rel=1e-4)
        for mask, box, area in zip(masks, boxes, areas, strict=True):
            # Pixels of an outline, against its box: to within the pixels of the border.
            border = 2 * (box[2] - box[0] + box[3] - box[1]) + 4
            assert abs(int(mask.sum()) - area) <= border
        whole = map_boxes(sample["boxes"], _affine_of(batch, at))
        starts = whole[labels.numpy()]
        for point, box in zip(batch["keypoints"][at].numpy(), starts, strict=True):
            assert point[0, 0] == pytest.approx(box[0], abs=1e-3) or point[0, 0] == pytest.approx(
                box[2], abs=1e-3
            )
            assert point[0, 1] == pytest.approx(box[1], abs=1e-3)
            assert point[1].tolist() == [0, 0, 0]


def _affine_of(batch: dict[str, Any], at: int) -> np.ndarray:
    """From the stored image to the result, out of the two transforms."""
    stored = SAMPLES[at]["transform"].astype(np.float64)
    result = batch["transform"][at].numpy().astype(np.float64)
    undone = invert(stored)
    linear = result[:, :2] @ undone[:, :2]
    return np.column_stack([linear, result[:, :2] @ undone[:, 2] + result[:, 2]])


@pytest.mark.parametrize("ops", OPS)
def test_a_transform_leads_back_to_raw_pixels(path, ops):
    """From the result, over the stored image, to where the raw file has the box."""
    batch = batch_of(path, ops)
    for at, sample in enumerate(SAMPLES):
        raw = map_boxes(sample["boxes"], invert(sample["transform"]))
        there = map_boxes(raw, batch["transform"][at].numpy())
        labels = batch["labels"][at].tolist()
        size = batch["image"].shape[2:]
        inside = np.clip(there, 0, [size[1], size[0], size[1], size[0]])
        assert np.abs(inside[labels] - batch["boxes"][at].numpy()).max(initial=0) < 0.01


@pytest.mark.parametrize("ops", OPS)
def test_a_mask_is_never_smoothed_and_lies_on_the_image(path, ops):
    """Ids as stored; beside the image the id that counts for nothing."""
    batch = batch_of(path, ops)
    masks = batch["mask"]
    assert masks.dtype == torch.uint8
    assert masks.shape == (len(SAMPLES), *batch["image"].shape[2:])
    assert set(masks.unique().tolist()) <= {0, 1, 2, 3, 255}
    exact = batch["image"][:, 0] == 80 * masks
    for inside in (masks == 0, (masks != 0) & (masks != 255)):
        assert exact[inside].float().mean() > 0.7  # All but smoothed edges.
    if isinstance(ops[0], Letterbox):
        assert (masks == 255).any()
    else:
        assert not (masks == 255).any()


def test_labels_alone_follow_too(path):
    """Without the boxes among the fields, they are read to see which objects are left."""
    ops = (RandomResizedCrop(32, scale=(0.2, 0.4)),)
    whole = batch_of(path, ops)
    alone = batch_of(path, ops, fields=["image", "labels"])
    assert list(alone) == ["image", "labels"]
    assert [x.tolist() for x in alone["labels"]] == [x.tolist() for x in whole["labels"]]
    assert any(len(x) < at % 4 for at, x in enumerate(alone["labels"]))


@pytest.mark.parametrize("engine", ["thread", "process"])
def test_engines_agree(path, engine, same):
    """Whoever fills the batch, in whatever process: the same values."""
    ops = OPS[0]
    fields = [field.name for field in FIELDS if field.kind != "polygons"]
    found = batch_of(path, ops, engine=engine, workers=2, fields=fields)
    expected = batch_of(path, ops, fields=fields)
    assert same(found, expected)


def test_without_operations_fields_are_as_they_are_stored(path):
    """Nothing is moved, and nothing is dropped."""
    dataset = LMDBDataset(path)
    (batch,) = make_loader(dataset, len(SAMPLES), train=False, workers=0)
    for at, sample in enumerate(SAMPLES):
        assert batch["boxes"][at].tolist() == sample["boxes"].tolist()
        assert batch["mask"][at].tolist() == sample["mask"].tolist()
        assert len(batch["masks"][at]) == len(sample["labels"])
