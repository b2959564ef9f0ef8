"""Mixup and CutMix of whole batches, beside what the loader does to each image.

    packer build photos photos.lmdb --size 64 --fit crop
    python examples/mixup_cutmix.py photos.lmdb

Both mix the images of a batch with one another, so they come after the loader; on a device, after
`DevicePrefetcher`. torchvision's `v2.MixUp` and `v2.CutMix` take the same batches.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from readers import LMDBDataset, make_loader, ops


def mixup(
    images: torch.Tensor, targets: torch.Tensor, alpha: float = 0.2
) -> tuple[torch.Tensor, ...]:
    """Images (batch, channel, height, width) and targets (batch, classes), with neighbours'."""
    share = float(torch.distributions.Beta(alpha, alpha).sample())
    return (
        share * images + (1 - share) * images.roll(1, 0),
        share * targets + (1 - share) * targets.roll(1, 0),
    )


def cutmix(images: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """One rectangle of each image is its neighbour's; targets by the area that is left."""
    height, width = images.shape[-2:]
    side = float(torch.rand(()).sqrt())
    h, w = int(height * side), int(width * side)
    top = int(torch.randint(height - h + 1, ()))
    left = int(torch.randint(width - w + 1, ()))
    mixed = images.clone()
    mixed[..., top : top + h, left : left + w] = images.roll(1, 0)[
        ..., top : top + h, left : left + w
    ]
    share = 1 - h * w / (height * width)
    return mixed, share * targets + (1 - share) * targets.roll(1, 0)


def main() -> None:
    """Train a linear model for some epochs and print the loss of each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("store", type=Path)
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    torch.manual_seed(0)
    dataset = LMDBDataset(options.store, returns=("image", "label"))
    crops = [ops.RandomResizedCrop(48), ops.RandomFlip()]
    loader = make_loader(dataset, 16, train=True, ops=crops)
    model = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(3 * 48 * 48, len(dataset.classes))
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(options.epochs):
        total = 0.0
        for step, (images, labels) in enumerate(loader):
            targets = torch.nn.functional.one_hot(labels, len(dataset.classes)).float()
            mixed = (mixup, cutmix)[step % 2](images / 255, targets)
            loss = torch.nn.functional.cross_entropy(model(mixed[0]), mixed[1])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += float(loss)
        print(f"epoch {epoch}: loss {total / len(loader):.3f}", flush=True)


if __name__ == "__main__":
    main()
