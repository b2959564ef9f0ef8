"""Detection: a store of pictures with boxes trains torchvision's Faster R-CNN.

    packer build street street.lmdb --size 128 --fit letterbox
    python examples/detection.py street.lmdb --drawn boxes.png

Boxes follow the picture's crops and flips by themselves. `detection_targets` makes of a batch what
torchvision's models take; `first_label=1`, since for them class 0 is the background.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torchvision.models.detection import FasterRCNN
from torchvision.models.detection.rpn import AnchorGenerator
from torchvision.ops import MultiScaleRoIAlign
from torchvision.transforms.v2.functional import to_pil_image
from torchvision.utils import draw_bounding_boxes

from readers import LMDBDataset, detection_targets, make_loader, ops


def small_detector(classes: int) -> FasterRCNN:
    """Faster R-CNN over a small backbone that a CPU can train; take a pretrained one for work."""
    backbone = torch.nn.Sequential(
        *(torch.nn.Conv2d(3, 32, 3, 2, 1), torch.nn.BatchNorm2d(32), torch.nn.ReLU()),
        *(torch.nn.Conv2d(32, 64, 3, 2, 1), torch.nn.BatchNorm2d(64), torch.nn.ReLU()),
        *(torch.nn.Conv2d(64, 64, 3, 2, 1), torch.nn.BatchNorm2d(64), torch.nn.ReLU()),
    )
    backbone.out_channels = 64  # type: ignore[assignment]
    return FasterRCNN(
        backbone,
        num_classes=classes + 1,
        min_size=128,
        max_size=128,
        rpn_anchor_generator=AnchorGenerator(((16, 32, 64),), ((0.5, 1.0, 2.0),)),
        rpn_pre_nms_top_n_train=100,
        rpn_post_nms_top_n_train=40,
        box_roi_pool=MultiScaleRoIAlign(["0"], 5, 2),
    )


def main() -> None:
    """Train, print the loss of each epoch, draw the boxes of some pictures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("store", type=Path)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--drawn", type=Path, help="write a picture with the boxes found here")
    options = parser.parse_args()
    torch.manual_seed(0)
    dataset = LMDBDataset(options.store)
    loader = make_loader(dataset, 4, train=True, ops=[ops.RandomFlip()])
    model = small_detector(len(dataset.classes))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(options.epochs):
        total = 0.0
        for batch in loader:
            losses = model(*detection_targets(batch, first_label=1))
            loss = sum(losses.values(), torch.zeros(()))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += float(loss)
        print(f"epoch {epoch}: loss {total / len(loader):.3f}", flush=True)
    if options.drawn:
        sample = dataset[0]
        model.eval()
        with torch.no_grad():
            (found,) = model([sample["image"] / 255])
        best = found["scores"] > 0.3
        names = [dataset.classes[label - 1] for label in found["labels"][best].tolist()]
        drawn = draw_bounding_boxes(sample["image"], found["boxes"][best], names, colors="yellow")
        drawn = draw_bounding_boxes(drawn, torch.as_tensor(sample["boxes"]), colors="lime")
        to_pil_image(drawn).save(options.drawn)


if __name__ == "__main__":
    main()
