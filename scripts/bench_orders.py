"""What orders cost, and how well they shuffle.

    scripts/bench_orders.py [--images 6000] [--rate] [--cold] [--quality] [STORE]

Rate: indices of an exact shuffle of a thousand million samples, which has no table, beside
numpy's, which has one of 8 bytes a sample. Cold: an epoch of a store that is not in memory, in
several orders: its time, and what came from the disk. Without a STORE, one of --images pictures of
128 x 128 is made in a temporary folder. Quality: a store keeps samples in the order of their paths,
so neighbours are often of one class. How many classes meet in a batch, how much more often
neighbours meet than in an exact shuffle, and how many reads it takes if neighbours are read at
once.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path

import cv2
import numpy as np

from packer import Recipe, build
from readers import LMDBDataset, make_loader
from readers.chance.permutation import permuted
from readers.orders.order_sampler import OrderSampler
from readers.orders.samplers import (
    BlockShuffleSampler,
    SequentialSampler,
    ShuffleSampler,
    WeightedSampler,
)
from readers.reading.view import Io

_PART = 2**22


def rate() -> None:
    """Indices a second, on one core."""
    positions = np.arange(_PART)
    for count in (10**5, 10**7, 10**9):
        best = min(
            _seconds(partial(permuted, positions % count, count, seed=0, epoch=1)) for _ in range(5)
        )
        print(f"permuted, of {count:>13,}: {_PART / best / 1e6:6.1f} million indices/s, no table")
    generator = np.random.default_rng(0)
    for count in (10**5, 10**7):
        best = min(_seconds(partial(generator.permutation, count)) for _ in range(3))
        table = f"{count * 8 / 1e6:,.0f} MB"
        print(f"numpy,    of {count:>13,}: {count / best / 1e6:6.1f} million indices/s, {table}")
    weights = np.random.default_rng(0).random(10**6)
    samplers: dict[str, OrderSampler] = {
        "block shuffle": BlockShuffleSampler(10**9),
        "weighted, of a million": WeightedSampler(weights),
    }
    for name, sampler in samplers.items():
        best = min(_seconds(partial(sampler.indices, 0, positions)) for _ in range(3))
        print(f"{name:24}: {_PART / best / 1e6:6.1f} million indices/s")
    once = WeightedSampler(weights, replacement=False)
    seconds = _seconds(lambda: once.indices(0, positions[:1]))
    print(f"weighted without replacement, of a million: {seconds:.2f} s before an epoch\n")


def cold(path: Path, epochs: int) -> None:
    """An epoch from the disk."""
    count = len(LMDBDataset(path))
    byte_count = sum(shard.stat().st_size for shard in path.glob("*.lmdb"))
    print(f"{count:,} samples, {byte_count / 1e6:,.0f} MB, not in memory; batches of 64")
    orders: dict[str, tuple[OrderSampler, bool]] = {
        "sequential": (SequentialSampler(count), False),
        "sequential, read-ahead": (SequentialSampler(count), True),
        "blocks of 256, window 8": (BlockShuffleSampler(count, window=8), False),
        "blocks of 32, window 64": (BlockShuffleSampler(count, block_size=32), False),
        "exact shuffle": (ShuffleSampler(count), False),
        "exact shuffle, read-ahead": (ShuffleSampler(count), True),
    }
    found: dict[str, list[tuple[float, int]]] = {name: [] for name in orders}
    for _ in range(epochs):
        for name, (sampler, reads_ahead) in orders.items():
            forget(path)
            found[name].append(epoch(path, sampler, "read-ahead" if reads_ahead else "auto"))
    for name, runs in found.items():
        seconds, read = sorted(runs)[len(runs) // 2]
        print(
            f"  {name:28}{count / seconds:9,.0f} samples/s{byte_count / seconds / 1e6:8,.0f} MB/s,"
            f" read {read / byte_count:5.2f} times its size"
        )
    print()


def epoch(path: Path, sampler: OrderSampler, io: Io) -> tuple[float, int]:
    """Seconds of an epoch, and bytes that came from the disk; nothing stays mapped."""
    dataset = LMDBDataset(path, fields=["image"], io=io)
    loader = make_loader(dataset, 64, train=False, sampler=sampler, engine="thread")
    before = read_bytes()
    seconds = _seconds(partial(deque, loader, 0))
    loader.close()
    dataset.close()
    return seconds, read_bytes() - before


def forget(path: Path) -> None:
    """Have the kernel drop a store from its memory. Nothing may have it mapped."""
    for file in path.iterdir():
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def read_bytes() -> int:
    """Bytes that this process had read from disks so far."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes"))


def quality() -> None:
    """How well batches of 256 are mixed, of 1000 classes of 1000 neighbours each."""
    count, batch_size = 10**6, 256
    orders: dict[str, OrderSampler] = {"exact shuffle": ShuffleSampler(count)}
    for block_size, window in ((1024, 16), (256, 64), (64, 256), (16, 1024), (256, 256)):
        name = f"blocks of {block_size}, window {window}"
        orders[name] = BlockShuffleSampler(count, block_size=block_size, window=window)
    print(f"{count:,} samples in 1000 classes, batches of {batch_size}")
    print(f"{'':26}{'classes in a batch':>20}{'neighbours in a batch':>23}{'reads per 16,384':>18}")
    for name, sampler in orders.items():
        order = sampler.indices(0, np.arange(count))
        batches = order[: count - count % batch_size].reshape(-1, batch_size)
        classes = np.mean([len(np.unique(batch // 1000)) for batch in batches])
        # Pairs of samples within 256 of each other in the store that meet in a batch, beside how
        # many do in an exact shuffle.
        ordered = np.sort(batches, axis=1)
        near = sum(
            int((ordered[:, apart:] - ordered[:, :-apart] < 256).sum()) for apart in range(1, 64)
        )
        due = len(batches) * batch_size * (batch_size - 1) * 255 / count
        # Pieces of neighbours that 64 batches consist of: what could be read at once.
        windows = np.sort(order[: count - count % 16384].reshape(-1, 16384), axis=1)
        pieces = 1 + (np.diff(windows, axis=1) > 1).sum(axis=1).mean()
        print(f"{name:26}{classes:20.1f}{near / due:22.1f}x{pieces:18,.0f}")


def _seconds(function: Callable[[], object]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def draw(folder: Path, count: int) -> None:
    """Noise, 128 x 128: it is stored as pixels, 48 KiB each."""
    generator = np.random.default_rng(0)
    for number in range(count):
        path = folder / f"class-{number * 10 // count}" / f"{number:06d}.png"
        path.parent.mkdir(exist_ok=True, parents=True)
        pixels = generator.integers(0, 256, (128, 128, 3), dtype=np.uint8)
        cv2.imwrite(str(path), pixels, [cv2.IMWRITE_PNG_COMPRESSION, 0])


def main() -> None:
    """Parse, make what is needed, measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("store", nargs="?", type=Path, help="a store with a field 'image'")
    parser.add_argument("--images", type=int, default=6000, help="pictures to draw")
    parser.add_argument("--epochs", type=int, default=3, help="cold epochs of each order")
    for part in ("rate", "cold", "quality"):
        parser.add_argument(f"--{part}", action="store_true", help=f"only this: {part}")
    options = parser.parse_args()
    is_all = not (options.rate or options.cold or options.quality)
    if options.rate or is_all:
        rate()
    if options.cold or is_all:
        if options.store is not None:
            cold(options.store, options.epochs)
        else:
            with tempfile.TemporaryDirectory() as name:
                draw(Path(name) / "raw", options.images)
                build(Path(name) / "raw", Path(name) / "noise.lmdb", Recipe(), worker_count=2)
                cold(Path(name) / "noise.lmdb", options.epochs)
    if options.quality or is_all:
        quality()


if __name__ == "__main__":
    main()
