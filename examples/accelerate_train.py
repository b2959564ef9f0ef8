"""Accelerate: `prepare` takes the loader as it is, on any number of processes.

    packer build photos photos.lmdb --size 64 --fit crop
    accelerate launch --cpu --num_processes 2 examples/accelerate_train.py photos.lmdb

Accelerate deals batches out to processes, so the loader is made without `rank` and `world_size`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from accelerate import Accelerator

from readers import LMDBDataset, make_loader, ops


def main() -> None:
    """Train for two epochs, then count what is right over all processes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("store", type=Path)
    store = parser.parse_args().store
    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    fields = ("image", "label")
    train = LMDBDataset(store, split="train", returns=fields)
    crops = [ops.RandomResizedCrop(48), ops.RandomFlip()]
    model = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(3 * 48 * 48, len(train.classes))
    )
    model, optimizer, loader, validation = accelerator.prepare(
        model,
        torch.optim.SGD(model.parameters(), lr=0.01),
        make_loader(train, 16, train=True, ops=crops),
        make_loader(
            LMDBDataset(store, split="val", returns=fields),
            16,
            train=False,
            ops=[ops.CenterCrop(48)],
        ),
    )
    for epoch in range(2):
        for images, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(images.float() / 255), labels)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
        accelerator.print(f"epoch {epoch}: loss {float(loss):.3f}")
    right = count = 0
    with torch.no_grad():
        for images, labels in validation:
            found = model(images.float() / 255).argmax(1)
            found, known = accelerator.gather_for_metrics((found, labels))
            right, count = right + int((found == known).sum()), count + len(known)
    accelerator.print(f"right: {right} of {count}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
