"""How fast batches come out of a store, beside what this machine can copy.

    scripts/bench_loader.py [--images 2000] [--workers 2] [--epochs 3] [STORE]

Without a STORE it makes two in a temporary folder: 32 x 32 images of one size (a batch is one
copy), and photos with a short side of 256 (cropped, resized and flipped on the CPU), as pixels and
as JPEG. Epochs of all ways are interleaved, so that what else the machine does meets all alike; the
first epoch of each, with the start of its workers and the first touch of its memory, stands apart.
Ratios hold on a shared machine; absolute figures do not.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from torch.utils.data import DataLoader

from packer import Recipe, build
from readers import LMDBDataset, make_loader
from readers.ops import RandomFlip, RandomResizedCrop

OPS = (RandomResizedCrop(224), RandomFlip())


class StockTransform:
    """What the process engine does, as a transform in a stock DataLoader."""

    def __call__(self, sample: tuple[Any, int]) -> tuple[torch.Tensor, int]:
        """A random part, resized, and flipped half of the time."""
        pixels, label = sample
        height, width = pixels.shape[:2]
        top, left = np.random.randint(height // 3), np.random.randint(width // 3)
        crop = pixels[top : top + height // 2, left : left + width // 2]
        out = cv2.resize(crop, (224, 224))
        if np.random.random() < 0.5:
            out = cv2.flip(out, 1)
        return torch.from_numpy(out).permute(2, 0, 1), label


def draw_photos(folder: Path, count: int) -> None:
    """Smooth noise with grain, 500 x 375, in ten class folders: about 90 kB each as JPEG."""
    generator = np.random.default_rng(0)
    for number in range(count):
        small = generator.integers(0, 256, (12, 16, 3), dtype=np.uint8)
        photo = cv2.resize(small, (500, 375), interpolation=cv2.INTER_CUBIC).astype(np.float32)
        photo += generator.normal(0, 14, photo.shape[:2])[..., None]
        path = folder / f"class-{number % 10}" / f"{number:06d}.jpg"
        path.parent.mkdir(exist_ok=True)
        cv2.imwrite(str(path), np.clip(photo, 0, 255).astype(np.uint8))


def copy_rate() -> float:
    """Bytes a second that one thread copies between two kept buffers of 48 MB."""
    source, target = torch.ones(48 * 2**20, dtype=torch.uint8), torch.ones(48 * 2**20).byte()
    torch.set_num_threads(1)
    best = min(_seconds(lambda: target.copy_(source)) for _ in range(10))
    return len(source) / best


def _seconds(function: Callable[[], object]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def run(loaders: dict[str, Any], epoch_count: int) -> None:
    """Time epochs of all loaders in turn, and print a table."""
    rates: dict[str, list[float]] = {name: [] for name in loaders}
    first: dict[str, float] = {}
    sizes: dict[str, int] = {}
    for _ in range(epoch_count + 1):
        for name, loader in loaders.items():
            started, sample_count = time.perf_counter(), 0
            for batch in loader:
                first.setdefault(name, time.perf_counter() - started)
                images = batch[0]
                sample_count += len(images)
                sizes[name] = images[0].nbytes
            rates[name].append(sample_count / (time.perf_counter() - started))
    copied = copy_rate()
    base = None
    print(f"{'':34}{'images/s':>10}{'ratio':>8}{'first':>10}{'to first':>10}{'of a copy':>11}")
    for name, found in rates.items():
        rate = statistics.median(found[1:])
        base = base or rate
        share = rate * sizes[name] / copied
        print(
            f"{name:34}{rate:10,.0f}{rate / base:8.2f}{found[0]:10,.0f}{first[name]:9.2f}s"
            f"{share:11.2f}"
        )
    print(f"one thread copies {copied / 1e9:.1f} GB/s\n")


def small_images(folder: Path, workers: int, epochs: int) -> None:
    """One copy a batch."""
    raw = folder / "small"
    generator = np.random.default_rng(1)
    for number in range(4000):
        path = raw / f"class-{number % 10}" / f"{number:06d}.png"
        path.parent.mkdir(exist_ok=True, parents=True)
        cv2.imwrite(str(path), generator.integers(0, 256, (32, 32, 3), dtype=np.uint8))
    build(raw, folder / "small.lmdb", Recipe(size=32, fit="stretch"), worker_count=workers)
    dataset = LMDBDataset(folder / "small.lmdb", returns=("image", "label"))
    # Ten times over, so that an epoch is more than its start.
    dataset = dataset.select(np.tile(np.arange(4000), 10))
    print("40,000 images of 32 x 32, batches of 512")
    run(
        {
            "stock DataLoader": _stock(dataset, 512, workers),
            "make_loader": make_loader(dataset, 512, train=True, workers=workers),
        },
        epochs,
    )


def photos(stores: dict[str, Path], workers: int, epochs: int) -> None:
    """Crop, resize and flip on the CPU."""
    for name, path in stores.items():
        names = ("image", "label")
        dataset = LMDBDataset(path, returns=names)
        stock = LMDBDataset(path, returns=names, image_as="numpy", transform=StockTransform())
        settings: dict[str, Any] = {"train": True, "workers": workers, "ops": OPS}
        print(f"{len(dataset):,} photos, {name}, crop to 224 and flip, batches of 64")
        run(
            {
                "stock DataLoader, transform": _stock(stock, 64, workers),
                "make_loader, process engine": make_loader(
                    dataset, 64, engine="process", **settings
                ),
                "make_loader, thread engine": make_loader(dataset, 64, engine="thread", **settings),
            },
            epochs,
        )


def _stock(dataset: LMDBDataset, batch_size: int, workers: int) -> DataLoader[Any]:
    return DataLoader(
        dataset,
        batch_size,
        shuffle=True,
        num_workers=workers,
        drop_last=True,
        persistent_workers=workers > 0,
    )


def main() -> None:
    """Parse, make what is needed, measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("store", nargs="?", type=Path, help="a store of images with labels")
    parser.add_argument("--images", type=int, default=2000, help="photos to draw")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3, help="timed epochs, after the first")
    options = parser.parse_args()
    if options.store is not None:
        photos({str(options.store): options.store}, options.workers, options.epochs)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        small_images(folder, options.workers, options.epochs)
        raw = folder / "photos"
        raw.mkdir()
        draw_photos(raw, options.images)
        recipes = {"pixels of short side 256": Recipe(size=256), "JPEG": Recipe(image="original")}
        stores = {}
        for number, (name, recipe) in enumerate(recipes.items()):
            stores[name] = folder / f"photos-{number}.lmdb"
            build(raw, stores[name], recipe, worker_count=options.workers)
        photos(stores, options.workers, options.epochs)


if __name__ == "__main__":
    main()
