"""Transforms of others: torchvision's v2, albumentations, and kornia on the device.

    packer build street street.lmdb
    python examples/transforms.py street.lmdb

A plain `transform` moves the image and leaves boxes where they were. These two move both;
kornia works on whole batches, after the loader. The loader's `ops` do the same with less reading.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import albumentations
import kornia.augmentation
from torchvision.transforms import v2

from readers import Albumented, LMDBDataset, make_loader, ops


def main() -> None:
    """One batch by each way; print what became of the first image's boxes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("store", type=Path)
    path = parser.parse_args().store

    by_torchvision = LMDBDataset(
        path,
        image_as="tv_tensor",
        transform=v2.Compose([v2.RandomHorizontalFlip(1.0), v2.SanitizeBoundingBoxes()]),
    )
    by_albumentations = LMDBDataset(
        path, image_as="numpy", transform=Albumented([albumentations.HorizontalFlip(p=1.0)])
    )
    print("as stored:     ", LMDBDataset(path)[0]["boxes"].tolist())
    print("torchvision:   ", by_torchvision[0]["boxes"].tolist())
    print("albumentations:", by_albumentations[0]["boxes"].tolist())
    flipped = make_loader(LMDBDataset(path), 1, train=False, ops=[ops.RandomFlip(p=1.0)])
    print("ops:           ", next(iter(flipped))["boxes"][0].tolist())

    crops = make_loader(
        LMDBDataset(path, returns=("image",)), 4, train=False, ops=[ops.CenterCrop(64)]
    )
    on_device = kornia.augmentation.ColorJiggle(0.2, 0.2, 0.2, 0.1, p=1.0)
    (images,) = next(iter(crops))
    print("kornia:        ", tuple(on_device(images.float() / 255).shape))


if __name__ == "__main__":
    main()
