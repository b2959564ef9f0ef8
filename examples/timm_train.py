"""timm: its models and its mixup over our loader.

    packer build photos photos.lmdb --size 72 --fit crop
    python examples/timm_train.py photos.lmdb --model resnet10t

timm's own `create_loader` works as well: give it `LMDBDataset(..., image_as="pil",
transform_field="image")`, whose transform it sets. Our loader leaves decoding and copying out.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import timm
import timm.data
import torch

from readers import DevicePrefetcher, LMDBDataset, augment, make_loader, ops


def main() -> None:
    """Train for some epochs and print the loss of each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("store", type=Path)
    parser.add_argument("--model", default="resnet10t")
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dataset = LMDBDataset(options.store, split="train", returns=("image", "label"))
    classes = len(dataset.classes)
    model = timm.create_model(options.model, num_classes=classes).to(device)
    mixup = timm.data.Mixup(mixup_alpha=0.2, cutmix_alpha=1.0, num_classes=classes)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    crops = [ops.RandomResizedCrop(64), ops.RandomFlip()]
    loader = make_loader(dataset, 16, train=True, ops=crops)
    normalize = augment.Augment(
        normalize=augment.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    )
    for epoch in range(options.epochs):
        total = 0.0
        for images, labels in DevicePrefetcher(loader, device, transform={0: normalize}):
            mixed, targets = mixup(images, labels)
            loss = torch.nn.functional.cross_entropy(model(mixed), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += float(loss)
        print(f"epoch {epoch}: loss {total / len(loader):.3f}", flush=True)


if __name__ == "__main__":
    main()
