"""Batches of a loader go into torchvision's detectors by one call, and these learn from them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from readers import LMDBDataset, detection_targets, make_loader
from readers.store.schema import Field
from readers.store.shapes.polygons import Polygons
from tests.vision import need_torchvision

need_torchvision()

from torchvision.models.detection import (  # noqa: E402
    FasterRCNN,
    KeypointRCNN,
    MaskRCNN,
    RetinaNet,
)
from torchvision.models.detection.rpn import AnchorGenerator  # noqa: E402
from torchvision.ops import MultiScaleRoIAlign  # noqa: E402

SIDE = 48

FIELDS = [
    Field(name="image", kind="image", dtype="uint8", shape=(SIDE, SIDE, 3), codec="raw"),
    Field(name="boxes", kind="boxes", dtype="float32", shape=(None, 4)),
    Field(name="labels", kind="label", dtype="int64", shape=(None,), names=("square",)),
    Field(name="masks", kind="polygons"),
    Field(name="keypoints", kind="keypoints", dtype="float32", shape=(None, 2, 2)),
]


@pytest.fixture(scope="module")
def squares(tmp_path_factory, write_store):
    """Four pictures of a bright square of the one class there is, the last one without any."""
    samples = []
    for number in range(4):
        image = np.full((SIDE, SIDE, 3), 40, np.uint8)
        start, count = 6 + 5 * number, 0 if number == 3 else 1
        end = start + 16 + number
        image[start:end, start:end] = 220 if count else 40
        corners = np.array([[start, start], [end, start], [end, end], [start, end]], np.float64)
        samples.append(
            {
                "key": f"{number}",
                "image": image,
                "boxes": np.array([[start, start, end, end]], np.float32)[:count],
                "labels": np.zeros(count, np.int64),
                "masks": Polygons([(corners,)] * count, SIDE, SIDE),
                "keypoints": corners[None, ::2].astype(np.float32)[:count],
            }
        )
    folder = tmp_path_factory.mktemp("stores") / "squares.lmdb"
    return write_store(folder, FIELDS, samples, classes=("square",))


@pytest.fixture
def loader(squares):
    return make_loader(LMDBDataset(squares), 2, train=False, workers=0)


@pytest.fixture(autouse=True)
def one_thread():
    """Such small sums are slower on several cores, and far slower on busy ones."""
    count = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(count)


def backbone():
    torch.manual_seed(0)
    conv, relu = torch.nn.Conv2d, torch.nn.ReLU
    layers = torch.nn.Sequential(conv(3, 16, 3, 2, 1), relu(), conv(16, 16, 3, 2, 1), relu())
    layers.out_channels = 16
    return layers


def of_regions(kind, class_count, **settings):
    """A detector with a background class, as small as it goes."""
    return kind(
        backbone(),
        num_classes=class_count,
        min_size=SIDE,
        max_size=SIDE,
        rpn_anchor_generator=AnchorGenerator(((12, 24),), ((1.0,),)),
        rpn_pre_nms_top_n_train=40,
        rpn_post_nms_top_n_train=20,
        box_roi_pool=MultiScaleRoIAlign(["0"], 4, 1),
        **settings,
    ).train()


def losses_of(model, loader, first_label, epochs=1):
    """The losses of each epoch, while the model learns."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    found = []
    for _ in range(epochs):
        sums = {}
        for batch in loader:
            losses = model(*detection_targets(batch, first_label=first_label))
            optimizer.zero_grad()
            sum(losses.values()).backward()
            # Steps of a few objects jump else.
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            for name, loss in losses.items():
                sums[name] = sums.get(name, 0) + loss.item()
        found.append(sums)
    return found


def test_a_detector_learns_from_the_batches_of_a_loader(loader):
    """One call makes images and targets of a batch, and the sum of the losses falls."""
    found = losses_of(of_regions(FasterRCNN, 2), loader, 1, epochs=16)
    totals = [sum(losses.values()) for losses in found]
    assert totals[-1] < 0.5 * totals[0]
    assert found[0]["loss_box_reg"] > 0


def test_the_wrong_count_of_classes_teaches_nothing(loader):
    """Why first_label has no default: as the background, the one class has no boxes to learn."""
    (losses,) = losses_of(of_regions(FasterRCNN, 2), loader, 0)
    assert losses["loss_box_reg"] == 0


def test_masks_and_keypoints_are_as_their_models_want_them(loader):
    """Outlines as pixels, points with a visibility."""
    mask_pool = MultiScaleRoIAlign(["0"], 4, 1)
    (losses,) = losses_of(of_regions(MaskRCNN, 2, mask_roi_pool=mask_pool), loader, 1)
    assert losses["loss_mask"] > 0
    settings = {"keypoint_roi_pool": mask_pool, "num_keypoints": 2}
    (losses,) = losses_of(of_regions(KeypointRCNN, 2, **settings), loader, 1)
    assert losses["loss_keypoint"] > 0


def test_a_detector_without_a_background_counts_from_0(loader):
    """RetinaNet has as many classes as the dataset."""
    anchors = AnchorGenerator(((12, 24),), ((1.0,),))
    model = RetinaNet(backbone(), 1, min_size=SIDE, max_size=SIDE, anchor_generator=anchors)
    (losses,) = losses_of(model.train(), loader, 0)
    assert all(loss > 0 for loss in losses.values())
