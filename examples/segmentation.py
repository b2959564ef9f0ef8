"""Segmentation: a store of pictures with masks trains a small network of two scales.

    packer build camvid camvid.lmdb --size 96 --fit crop
    python examples/segmentation.py camvid.lmdb

Masks follow the picture: the same crop, the same flip, by the nearest pixel. Where nothing is to be
learned, beside the picture or where the data says so, a mask has `ignore`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from readers import LMDBDataset, make_loader, ops


class SmallUNet(torch.nn.Module):
    """Two scales with a link between them; (batch, 3, height, width) -> (batch, classes, ...)."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.fine = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3, 1, 1), torch.nn.ReLU())
        self.coarse = torch.nn.Sequential(
            *(torch.nn.MaxPool2d(2), torch.nn.Conv2d(16, 32, 3, 1, 1), torch.nn.ReLU()),
            torch.nn.Upsample(scale_factor=2, mode="bilinear"),
        )
        self.head = torch.nn.Conv2d(48, classes, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Scores of each class for each pixel."""
        fine = self.fine(images)
        return self.head(torch.cat([fine, self.coarse(fine)], 1))


def main() -> None:
    """Train, and print loss and share of right pixels of each epoch."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("store", type=Path)
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args()
    torch.manual_seed(0)
    dataset = LMDBDataset(options.store, returns=("image", "mask"))
    (field,) = (field for field in dataset.schema.fields if field.name == "mask")
    ignore = -100 if field.ignore is None else field.ignore
    classes = 1 + max(
        int(mask[mask != ignore].max(initial=0))
        for mask in (dataset[at][1].numpy() for at in range(min(100, len(dataset))))
    )
    crops = [ops.RandomResizedCrop(64, scale=(0.5, 1.0)), ops.RandomFlip()]
    loader = make_loader(dataset, 8, train=True, ops=crops)
    model = SmallUNet(classes)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(options.epochs):
        total, right, count = 0.0, 0, 0
        for images, masks in loader:
            scores = model(images / 255)
            known = masks.long()
            loss = torch.nn.functional.cross_entropy(scores, known, ignore_index=ignore)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += float(loss)
            right += int((scores.argmax(1) == known).sum())
            count += int((known != ignore).sum())
        print(
            f"epoch {epoch}: loss {total / len(loader):.3f}, right {right / count:.3f}", flush=True
        )


if __name__ == "__main__":
    main()
