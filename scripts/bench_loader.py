#!/usr/bin/env python
"""Images per second of make_loader, beside what else could be used.

    scripts/bench_loader.py [--images 2000] [--workers 2] [--epochs 3] [--busy 1] [STORE]
    scripts/bench_loader.py --small [--shards 1,100]

Without a STORE it makes two in a temporary folder: 32 x 32 images of one size (a batch is one
copy), and photos with a short side of 256 (cropped, resized and flipped on the CPU), as pixels and
as JPEG. Epochs of all ways are interleaved, so that what else the machine does meets all alike; the
first epoch of each, with the start of its workers and the first touch of its memory, stands apart,
and the second does not count: memory that forked workers of others share is copied there as it is
written. Ratios are of epochs of one round, with their range over rounds, and hold on a shared
machine; absolute figures do not. With --busy, other programs take so many cores for the whole run.

FFCV comes along where it is installed (`pip install ffcv`, which needs a compiler, OpenCV and
libturbojpeg for building). --small measures what a few small samples cost; see `small_reads.py`.
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
from loader_peers import BareGather, busy, ffcv_loader, has_ffcv
from peers_adapter import write
from small_reads import small_reads

from packer import Recipe, build
from readers import LMDBDataset, make_loader
from readers.bench.raw_folder import stock_loader
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
    """Time epochs of all loaders in turn, and print a table; ratios are to the first of them."""
    rates: dict[str, list[float]] = {name: [] for name in loaders}
    first: dict[str, float] = {}
    sizes: dict[str, int] = {}
    for _ in range(epoch_count + 2):
        for name, loader in loaders.items():
            started, sample_count = time.perf_counter(), 0
            for batch in loader:
                if name not in first:
                    first[name] = time.perf_counter() - started
                    sizes[name] = batch[0][0].nbytes
                sample_count += len(batch[0])
            rates[name].append(sample_count / (time.perf_counter() - started))
    copied, base = copy_rate(), next(iter(rates.values()))
    columns = f"{'ratio':>8}{'over rounds':>14}{'first':>11}{'to first':>10}{'of a copy':>11}"
    print(f"{'':34}{'images/s':>11}{columns}")
    for name, found in rates.items():
        rate = statistics.median(found[2:])
        ratios = [one / other for one, other in zip(found[2:], base[2:], strict=True)]
        spread = f"{min(ratios):.2f}..{max(ratios):.2f}"
        print(
            f"{name:34}{rate:11,.0f}{statistics.median(ratios):8.2f}{spread:>14}{found[0]:11,.0f}"
            f"{first[name]:9.2f}s{rate * sizes[name] / copied:11.2f}"
        )
    print(f"one thread copies {copied / 1e9:.1f} GB/s\n")


def small_images(folder: Path, workers: int, epochs: int) -> None:
    """One copy a batch."""
    raw, count, batch_size = folder / "w2", 50_000, 512
    raw.mkdir()
    generator = np.random.default_rng(1)
    np.save(raw / "images.npy", generator.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8))
    np.save(raw / "labels.npy", np.arange(count) % 10)
    write(str(folder), str(folder), "w2", "raw", workers)
    dataset = LMDBDataset(folder / "store.lmdb", returns=("image", "label"))
    ways: dict[str, Any] = {
        "bare gather, one thread": BareGather(dataset, "image", batch_size),
        f"bare gather, {workers} threads": BareGather(dataset, "image", batch_size, workers),
        "make_loader, workers=0": make_loader(dataset, batch_size, train=True, workers=0),
        "make_loader": make_loader(dataset, batch_size, train=True, workers=workers),
    }
    if has_ffcv():
        ways["FFCV"] = ffcv_loader(raw, folder / "images.beton", batch_size, workers)
    ways["stock DataLoader"] = stock_loader(dataset, batch_size, workers)
    print(f"{count:,} images of 32 x 32, batches of {batch_size}")
    run(ways, epochs)


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
                "stock DataLoader, transform": stock_loader(stock, 64, workers),
                "make_loader, process engine": make_loader(
                    dataset, 64, engine="process", **settings
                ),
                "make_loader, thread engine": make_loader(dataset, 64, engine="thread", **settings),
            },
            epochs,
        )


def main() -> None:
    """Parse, make what is needed, measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("store", nargs="?", type=Path, help="a store of images with labels")
    parser.add_argument("--images", type=int, default=2000, help="photos to draw; 0: none")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3, help="timed epochs, after two")
    parser.add_argument("--busy", type=int, default=0, help="cores that other programs take")
    parser.add_argument("--small", action="store_true", help="what a few small samples cost")
    parser.add_argument("--shards", default="1,100", help="of the stores of --small")
    options = parser.parse_args()
    torch.set_num_threads(1)  # What a loop without workers copies, one thread copies.
    with busy(options.busy), tempfile.TemporaryDirectory() as name:
        if options.small:
            small_reads(Path(name), [int(count) for count in options.shards.split(",")])
        elif options.store is not None:
            photos({str(options.store): options.store}, options.workers, options.epochs)
        else:
            small_images(Path(name), options.workers, options.epochs)
            if options.images:
                all_photos(Path(name), options.images, options.workers, options.epochs)


def all_photos(folder: Path, count: int, workers: int, epochs: int) -> None:
    """Photos of all forms."""
    raw = folder / "photos"
    raw.mkdir()
    draw_photos(raw, count)
    recipes = {"pixels of short side 256": Recipe(size=256), "JPEG": Recipe(image="original")}
    stores = {}
    for number, (name, recipe) in enumerate(recipes.items()):
        stores[name] = folder / f"photos-{number}.lmdb"
        build(raw, stores[name], recipe, worker_count=workers)
    photos(stores, workers, epochs)


if __name__ == "__main__":
    main()
