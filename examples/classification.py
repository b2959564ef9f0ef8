"""Classification from scratch: the same training from a folder and from a store.

    packer build photos photos.lmdb --size 32 --fit stretch
    python examples/classification.py photos photos.lmdb

`photos` has `train/CLASS/*.png` and `val/CLASS/*.png`. For three seeds a small network is trained
from the folder, by a stock DataLoader, and from the store; both see the same images, so they must
come to the same accuracy, within what another seed changes.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from readers import LMDBDataset, make_loader

Batches = Iterable[tuple[torch.Tensor, torch.Tensor]]


class Folder(Dataset[tuple[torch.Tensor, int]]):
    """Images of class folders, decoded one by one, as tutorials write it."""

    def __init__(self, root: Path) -> None:
        self.paths = sorted(root.glob("*/*"))
        names = sorted({path.parent.name for path in self.paths})
        self.labels = [names.index(path.parent.name) for path in self.paths]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = np.asarray(Image.open(self.paths[index]).convert("RGB").resize((32, 32)))
        return torch.from_numpy(image.transpose(2, 0, 1).copy()), self.labels[index]


def train(batches: Batches, validation: Batches, classes: int, epochs: int) -> tuple[float, float]:
    """Accuracy in [0, 1] on the validation images, and the seconds that the epochs took."""
    model = torch.nn.Sequential(
        *(torch.nn.Conv2d(3, 32, 3, 2, 1), torch.nn.BatchNorm2d(32), torch.nn.ReLU()),
        *(torch.nn.Conv2d(32, 64, 3, 2, 1), torch.nn.BatchNorm2d(64), torch.nn.ReLU()),
        *(torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(1024, classes)),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    began = time.perf_counter()
    for _ in range(epochs):
        for images, labels in batches:
            loss = torch.nn.functional.cross_entropy(model(images.float() / 255), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    seconds = time.perf_counter() - began
    model.eval()
    right = count = 0
    with torch.no_grad():
        for images, labels in validation:
            right += int((model(images.float() / 255).argmax(1) == labels).sum())
            count += len(labels)
    return right / count, seconds


def main() -> None:
    """Train from both, three seeds each, and print what came of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("store", type=Path)
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    files = {split: Folder(options.folder / split) for split in ("train", "val")}
    stored = {
        split: LMDBDataset(options.store, split=split, returns=("image", "label"))
        for split in ("train", "val")
    }
    print("| read from | accuracy of three seeds | mean | seconds of one |\n|---|---|---|---|")
    for name in ("folder", "store"):
        results = []
        for seed in range(3):
            torch.manual_seed(seed)
            if name == "folder":
                pair = (
                    DataLoader(files["train"], 64, shuffle=True, drop_last=True, num_workers=2),
                    DataLoader(files["val"], 64, num_workers=2),
                )
            else:
                pair = (
                    make_loader(stored["train"], 64, train=True, seed=seed),
                    make_loader(stored["val"], 64, train=False),
                )
            results.append(train(*pair, len(stored["train"].classes), options.epochs))
        found = [accuracy for accuracy, _ in results]
        each = ", ".join(f"{accuracy:.3f}" for accuracy in found)
        seconds = statistics.median(seconds for _, seconds in results)
        print(f"| {name} | {each} | {statistics.mean(found):.3f} | {seconds:.1f} |", flush=True)


if __name__ == "__main__":
    main()
