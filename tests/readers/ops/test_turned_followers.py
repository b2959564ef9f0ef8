"""Every kind of field of objects goes where turns, shears and borders take its image."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from readers.dataset import LMDBDataset
from readers.loader.make import make_loader
from readers.ops import (
    CenterCrop,
    ColorJitter,
    Letterbox,
    Pad,
    RandomAffine,
    RandomFlip,
    RandomResizedCrop,
    RandomRotation90,
    RandomVerticalFlip,
    Resize,
)
from readers.store.schema import Field
from readers.store.shapes.affine import map_points
from readers.store.shapes.polygons import Polygons, Runs
from readers.store.shapes.rle import mask_runs

HEIGHT, WIDTH, COUNT = 64, 64, 8
NAMES = ("ant", "bee", "cat")
FIELDS = [
    Field(name="image", kind="image", dtype="uint8", shape=(HEIGHT, WIDTH, 1), codec="raw"),
    Field(name="boxes", kind="boxes", dtype="float32", shape=(None, 4)),
    Field(name="labels", kind="label", dtype="int64", shape=(None,), names=NAMES),
    Field(name="area", kind="array", dtype="float32", shape=(None,)),
    Field(name="masks", kind="polygons"),
    Field(name="corners", kind="keypoints", dtype="float32", shape=(None, 4, 2)),
    Field(name="keypoints", kind="keypoints", dtype="float32", shape=(None, 2, 3)),
    Field(name="attributes", kind="json"),
    Field(name="mask", kind="mask", dtype="uint8", shape=(None, None), ignore=255),
    Field(name="transform", kind="array", dtype="float32", shape=(2, 3)),
]
ANY = RandomAffine(180, (0.2, 0.2), (0.7, 1.4), (-15, 15, -10, 20))
OPS = {
    "flip down": (RandomVerticalFlip(0.7),),
    "quarters": (RandomRotation90(),),
    "pad": (Pad((3, 9, 20, 14)), RandomRotation90()),
    "turn": (RandomAffine((30, 60)),),
    "all": (RandomFlip(), ANY, RandomRotation90(), Pad(5), ColorJitter(0), RandomVerticalFlip()),
    "cropped, all": (RandomResizedCrop(50, scale=(0.3, 1)), RandomRotation90(), ANY, Pad(4)),
    "letterboxed": (Letterbox((60, 80), pad=0), RandomFlip(), ANY),
    "cut": (CenterCrop(40), RandomVerticalFlip(), ANY),
    "enlarged": (Resize(150), Pad(7), ANY),
}


def drawn(at: int) -> dict[str, Any]:
    """Rectangles in columns of their own, some over the border; each a value of its own."""
    rng = np.random.default_rng(at)
    image = np.zeros((HEIGHT, WIDTH, 1), np.uint8)
    ids = np.zeros((HEIGHT, WIDTH), np.uint8)
    boxes, outlines, corners, points = [], [], [], []
    for number in range(at % 4):
        x0 = number * 21 + int(rng.integers(0, 4))
        y0 = int(rng.integers(-6, 40))
        x1, y1 = x0 + int(rng.integers(8, 16)), y0 + int(rng.integers(10, 30))
        top, bottom = max(0, y0), min(HEIGHT, y1)
        image[top:bottom, x0:x1] = 80 * (number + 1)
        ids[top:bottom, x0:x1] = number + 1
        one = np.array([[x0, y0], [x1, y0], [x1, y1], [x0, y1]], np.float64)
        boxes.append([x0, y0, x1, y1])
        corners.append(one)
        outlines.append(Runs(mask_runs(ids == number + 1)) if number == 1 else (one,))
        points.append([[x0, y0, 2], [0, 0, 0]])
    array = np.array(boxes, np.float32).reshape(-1, 4)
    return {
        "image": image,
        "boxes": array,
        "labels": np.arange(len(boxes)),
        "area": np.prod(array[:, 2:] - array[:, :2], axis=1),
        "masks": Polygons(outlines, HEIGHT, WIDTH),
        "corners": np.array(corners, np.float32).reshape(-1, 4, 2),
        "keypoints": np.array(points, np.float32).reshape(-1, 2, 3),
        "attributes": [{"number": number} for number in range(len(boxes))],
        "mask": ids,
        # From a raw file of half the size, which a transform is to lead from.
        "transform": np.array([[2, 0, 0], [0, 2, 0]], np.float32),
    }


SAMPLES = [drawn(at) for at in range(COUNT)]


@pytest.fixture(scope="module")
def path(tmp_path_factory, write_store):
    return write_store(tmp_path_factory.mktemp("stores") / "turned.lmdb", FIELDS, SAMPLES, (5, 3))


def batch_of(path, ops, **settings) -> dict[str, Any]:
    settings = {"workers": 0, "train": False, "seed": 3, **settings}
    dataset = LMDBDataset(path, fields=settings.pop("fields", None))
    (batch,) = make_loader(dataset, COUNT, ops=ops, **settings)
    return batch


def affine_of(batch, at) -> np.ndarray:
    """From the stored image to the result: `transform` without the half that it began with."""
    whole = batch["transform"][at].numpy().astype(np.float64)
    return np.column_stack([whole[:, :2] / 2, whole[:, 2]])


def hull(points) -> np.ndarray:
    return np.concatenate([points.min(axis=-2), points.max(axis=-2)], axis=-1)


@pytest.mark.parametrize("ops", OPS.values(), ids=OPS)
def test_corners_and_points_go_with_the_transform(path, ops):
    """Each by the affine that leads from the raw file to the result; unmarked points stay 0."""
    batch = batch_of(path, ops)
    moved_count = 0
    for at, sample in enumerate(SAMPLES):
        labels = batch["labels"][at].numpy()
        expected = map_points(sample["corners"][labels], affine_of(batch, at))
        assert np.abs(batch["corners"][at].numpy() - expected).max(initial=0) < 1e-2
        expected = map_points(sample["keypoints"][labels, 0, :2], affine_of(batch, at))
        assert np.abs(batch["keypoints"][at].numpy()[:, 0, :2] - expected).max(initial=0) < 1e-2
        assert (batch["keypoints"][at][:, 0, 2] == 2).all()
        assert (batch["keypoints"][at][:, 1] == 0).all()
        for row, label in enumerate(labels.tolist()):
            outline = batch["masks"][at][row]
            if label != 1:
                corners = batch["corners"][at][row].numpy()
                assert np.abs(outline[0] - corners).max() < 1e-2
        moved_count += len(labels)
    assert moved_count >= 6


@pytest.mark.parametrize("ops", OPS.values(), ids=OPS)
def test_boxes_lie_around_what_is_seen(path, ops):
    """Upright, around the turned box, cut where the image is; what is not seen has no box."""
    batch = batch_of(path, ops)
    height, width = batch["image"].shape[2:]
    for at, sample in enumerate(SAMPLES):
        image = batch["mask"][at].numpy()
        labels = batch["labels"][at].tolist()
        whole = hull(map_points(sample["corners"], affine_of(batch, at)))
        for row, label in enumerate(labels):
            x0, y0, x1, y1 = box = batch["boxes"][at][row].numpy()
            assert 0 <= x0 < x1 <= width
            assert 0 <= y0 < y1 <= height
            # Within the upright box around the whole of it, and around all that is seen of it.
            assert (box[:2] >= whole[label, :2] - 0.01).all()
            assert (box[2:] <= whole[label, 2:] + 0.01).all()
            y, x = np.nonzero(image == label + 1)
            if len(x):
                seen = [x.min(), y.min(), x.max() + 1, y.max() + 1]
                assert (box[:2] <= np.array(seen[:2]) + 1).all()
                assert (box[2:] >= np.array(seen[2:]) - 1).all()
            if ops == OPS["turn"] and (sample["boxes"][label] >= 0).all():
                limits = np.array([width, height, width, height])
                assert np.abs(box - np.clip(whole[label], 0, limits)).max() < 0.01
        for label in set(range(len(sample["labels"]))) - set(labels):
            assert (image == label + 1).sum() <= 2


@pytest.mark.parametrize("ops", OPS.values(), ids=OPS)
def test_outlines_runs_and_masks_cover_the_same_pixels(path, ops):
    """Those of the image, too: but for pixels of their borders, which are mixed or rounded."""
    batch = batch_of(path, ops)
    covered_count = 0
    for at in range(COUNT):
        ids = batch["mask"][at].numpy()
        assert set(np.unique(ids)) <= {0, 1, 2, 3, 255}
        masks = batch["masks"][at].to_masks()
        assert masks.shape == (len(batch["labels"][at]), *batch["image"].shape[2:])
        for mask, label in zip(masks, batch["labels"][at].tolist(), strict=True):
            of_mask = ids == label + 1
            border = 3 * np.sqrt(max(mask.sum(), of_mask.sum())) + 6
            # An outline goes on where the image was cut off.
            assert (of_mask & (mask == 0)).sum() <= border
            assert ((mask == 1) & (ids != 255) & ~of_mask).sum() <= border
            covered_count += int(of_mask.sum())
        is_inside = ids != 255
        assert (np.abs(batch["image"][at, 0].numpy().astype(int) - 80 * ids) <= 2)[
            is_inside
        ].mean() > 0.75
    assert covered_count > 400


@pytest.mark.parametrize("ops", OPS.values(), ids=OPS)
def test_fields_of_objects_stay_together(path, ops):
    """The same objects in the same order; areas by the affine, never above that of the box."""
    batch = batch_of(path, ops)
    for at, sample in enumerate(SAMPLES):
        labels = batch["labels"][at]
        count = len(labels)
        assert batch["attributes"][at] == [{"number": label} for label in labels.tolist()]
        for name in ("boxes", "area", "corners", "keypoints", "masks"):
            assert len(batch[name][at]) == count
        for name in ("boxes", "area", "corners", "keypoints"):
            assert batch[name][at].dtype == torch.float32
        factor = abs(np.linalg.det(affine_of(batch, at)[:, :2]))
        scaled = sample["area"][labels.numpy()] * factor
        assert (batch["area"][at].numpy() <= scaled * 1.001).all()
        if ops in (OPS["quarters"], OPS["turn"]):
            height, width = batch["image"].shape[2:]
            whole = hull(batch["corners"][at].numpy())
            is_inside = (whole >= 0).all(axis=1) & (whole[:, 2:] <= [width, height]).all(axis=1)
            assert np.allclose(batch["area"][at].numpy()[is_inside], scaled[is_inside], rtol=1e-4)
        boxes = batch["boxes"][at].numpy()
        sides = boxes[:, 2:] - boxes[:, :2]
        assert (batch["area"][at].numpy() <= sides.prod(axis=1) * 1.001).all()


def test_a_box_is_cut_at_each_canvas_on_the_way(path):
    """What a crop cuts off does not come back as the upright box around a turn of the whole."""
    crop = CenterCrop((64, 20))
    for degrees in (0, 45):
        batch = batch_of(path, (crop, Pad((22, 0)), RandomAffine((degrees, degrees))))
        for at in range(COUNT):
            for box, corners in zip(batch["boxes"][at], batch["corners"][at], strict=True):
                whole = hull(corners.numpy())
                assert (box[2:] - box[:2]).prod() <= (whole[2:] - whole[:2]).prod() * 1.001
                if not degrees:
                    assert box[0] >= 22
                    assert box[2] <= 42


@pytest.mark.parametrize("image_as", ["tensor", "numpy"])
@pytest.mark.parametrize("engine", ["thread", "process"])
def test_engines_agree(path, engine, image_as, same):
    """Whoever fills the batches, and however many there are: the same values."""
    fields = [field.name for field in FIELDS if field.kind != "polygons"]
    dataset = LMDBDataset(path, fields=fields, image_as=image_as)
    settings = {"train": False, "seed": 3, "ops": OPS["all"]}
    expected = list(make_loader(dataset, 3, workers=0, **settings))
    found = list(make_loader(dataset, 3, workers=2, engine=engine, **settings))
    assert same(found, expected)
    (whole,) = make_loader(dataset, COUNT, workers=0, **settings)
    assert torch.equal(torch.cat([batch["image"] for batch in found]), whole["image"])


def test_epochs_and_draws_turn_anew(path):
    """Another epoch, seed or draw has other turns; the same ones have the same."""
    dataset = LMDBDataset(path, fields=["image", "transform"])
    loader = make_loader(dataset, COUNT, train=False, seed=3, ops=OPS["all"], workers=0)
    epochs = [next(iter(loader))["transform"].clone() for _ in range(2)]
    again = make_loader(dataset, COUNT, train=False, seed=3, ops=OPS["all"], workers=0)
    assert torch.equal(next(iter(again))["transform"], epochs[0])
    assert not (epochs[0] == epochs[1]).all(dim=(1, 2)).any()
    other = make_loader(dataset, COUNT, train=False, seed=4, ops=OPS["all"], workers=0)
    assert not (next(iter(other))["transform"] == epochs[0]).all(dim=(1, 2)).any()
