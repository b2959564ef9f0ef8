"""What a loader's settings are worth: the figures of docs/tuning.md, measured on this machine.

    python scripts/bench_tuning.py                 all tables, some minutes
    python scripts/bench_tuning.py --only workers,pinning

Photos are drawn, so that any machine has the same: 2,000 of 320 x 240, as JPEG files in class
folders, as a store of pixels and as a store of JPEG. Settings of one table are interleaved, A B C,
C B A; each figure is the median of the rounds, with the least and the most. Stock loaders are
torch's `DataLoader`.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from packer import build
from readers import LMDBDataset, collate, make_loader, ops

_BATCH = 64

Run = Callable[[], float]
"""Images a second of one epoch."""


def main() -> None:
    """Parse the command line, draw, measure, print."""
    tables = {
        "workers": workers_table,
        "threads": threads_table,
        "start": start_table,
        "collate": collate_table,
        "memory": memory_table,
        "prefetch": prefetch_table,
        "pinning": pinning_table,
    }
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default=",".join(tables), help="tables, by name")
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        data = Data(Path(name), options.images)
        for each in options.only.split(","):
            tables[each](data, options.rounds)


class Folder(Dataset[tuple[torch.Tensor, int]]):
    """A folder of JPEG files, as a tutorial writes it: decoded, cropped, uint8."""

    def __init__(self, paths: list[str], threads: int = 0) -> None:
        self.paths = paths
        self.threads = threads

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        cv2.setNumThreads(self.threads)
        image = cv2.imread(self.paths[index], cv2.IMREAD_COLOR)
        if image is None:
            raise FileNotFoundError(self.paths[index])
        image = cv2.resize(image[:224, :224], (224, 224))
        return torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1))), index % 10


class Data:
    """The photos, as files and as stores.

    Args:
        folder: Where to draw them.
        count: How many.
    """

    def __init__(self, folder: Path, count: int) -> None:
        generator = np.random.default_rng(0)
        raw = folder / "raw"
        for number in range(count):
            path = raw / f"class{number % 10}" / f"{number:05d}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            coarse = generator.integers(0, 256, (24, 32, 3), dtype=np.uint8)
            Image.fromarray(coarse).resize((320, 240), Image.Resampling.BICUBIC).save(path)
        self.paths = sorted(str(path) for path in raw.rglob("*.jpg"))
        self.pixels, self.jpegs = folder / "pixels.lmdb", folder / "jpegs.lmdb"
        build(raw, self.pixels, size=240, fit="crop", workers=2)
        build(raw, self.jpegs, size=240, fit="crop", image="jpeg", workers=2)

    def stock(self, **settings: Any) -> Run:
        """A stock loader over the folder."""
        threads = settings.pop("threads", 0)
        return epoch_of(lambda: DataLoader(Folder(self.paths, threads), _BATCH, **settings))

    def ours(self, store: Path, **settings: Any) -> Run:
        """Our loader over a store, with random crops."""
        crops = (ops.RandomResizedCrop(224), ops.RandomFlip())
        dataset = LMDBDataset(store, returns=("image", "label"))
        return epoch_of(lambda: make_loader(dataset, _BATCH, train=True, ops=crops, **settings))


def epoch_of(make: Callable[[], Iterable[Any]]) -> Run:
    """Times the second of two epochs, so that workers are there and pages are in memory."""

    def run() -> float:
        loader = make()
        for _ in loader:
            pass
        began, count = time.perf_counter(), 0
        for batch in loader:
            count += len(batch[0])
        return count / (time.perf_counter() - began)

    return run


def print_table(title: str, runs: dict[str, Run], rounds: int) -> None:
    """Measure the runs of a table, interleaved, and print them against its first."""
    found: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(rounds):
        for name in list(runs) if turn % 2 == 0 else reversed(runs):
            found[name].append(runs[name]())
    first = statistics.median(next(iter(found.values())))
    print(
        f"\n### {title}\n\n| setting | images/s | from | to | to the first |\n|---|---|---|---|---|"
    )
    for name, rates in found.items():
        middle = statistics.median(rates)
        print(
            f"| {name} | {middle:,.0f} | {min(rates):,.0f} | {max(rates):,.0f}"
            f" | {middle / first:.2f} |",
            flush=True,
        )


def workers_table(data: Data, rounds: int) -> None:
    """Workers against cores."""
    cores = torch.multiprocessing.cpu_count()
    counts = sorted({1, cores, 2 * cores, 4 * cores})
    runs = {f"folder, {n} workers": data.stock(num_workers=n) for n in counts}
    runs |= {f"JPEG store, {n} workers": data.ours(data.jpegs, workers=n) for n in counts}
    print_table(f"Workers, on {cores} cores", runs, rounds)


def threads_table(data: Data, rounds: int) -> None:
    """OpenCV's own threads, in each worker."""
    runs = {
        f"cv2 with {n} threads a worker": data.stock(num_workers=2, threads=n) for n in (0, 2, 8)
    }
    print_table("OpenCV's threads (0: none of its own)", runs, rounds)


def start_table(data: Data, rounds: int) -> None:
    """Workers that are kept, and how they start: here the first epoch counts too."""

    def two_epochs(**settings: Any) -> Run:
        def run() -> float:
            began = time.perf_counter()
            loader = DataLoader(Folder(data.paths), _BATCH, num_workers=2, **settings)
            for _ in range(2):
                for _ in loader:
                    pass
            return 2 * len(data.paths) / (time.perf_counter() - began)

        return run

    runs = {
        "fork, kept": two_epochs(persistent_workers=True, multiprocessing_context="fork"),
        "fork, anew each epoch": two_epochs(multiprocessing_context="fork"),
        "spawn, kept": two_epochs(persistent_workers=True, multiprocessing_context="spawn"),
        "spawn, anew each epoch": two_epochs(multiprocessing_context="spawn"),
    }
    print_table("Two short epochs, workers' start included", runs, rounds)


def collate_table(data: Data, rounds: int) -> None:
    """What a batch passes through on its way to the program."""
    dataset = LMDBDataset(data.pixels, returns=("image", "label"))
    runs = {
        "stock DataLoader, 2 workers": epoch_of(
            lambda: DataLoader(dataset, _BATCH, shuffle=True, num_workers=2, collate_fn=collate)
        ),
        "stock DataLoader, no workers": epoch_of(
            lambda: DataLoader(dataset, _BATCH, shuffle=True, collate_fn=collate)
        ),
        "make_loader": epoch_of(lambda: make_loader(dataset, _BATCH, train=True)),
    }
    print_table("The way of a batch of pixels, no crop", runs, rounds)


def memory_table(data: Data, rounds: int) -> None:
    """A batch in fresh memory, and in memory that is used again."""
    del data
    source = [torch.zeros(3, 224, 224, dtype=torch.uint8) for _ in range(256)]
    kept = torch.empty(256, 3, 224, 224, dtype=torch.uint8)

    def rate(step: Callable[[], object]) -> Run:
        def run() -> float:
            began = time.perf_counter()
            for _ in range(20):
                step()
            return 20 * 256 / (time.perf_counter() - began)

        return run

    runs = {
        "torch.stack into fresh memory": rate(lambda: torch.stack(source)),
        "torch.stack into kept memory": rate(lambda: torch.stack(source, out=kept)),
    }
    print_table("One copy of a batch of 256 images", runs, rounds)


def prefetch_table(data: Data, rounds: int) -> None:
    """Batches ahead: what they hide is unevenness, not slowness."""
    runs = {f"prefetch_factor={n}": data.stock(num_workers=2, prefetch_factor=n) for n in (1, 2, 8)}
    print_table("Batches ahead of a stock loader", runs, rounds)


def pinning_table(data: Data, rounds: int) -> None:
    """Pinned memory and non_blocking: only where there is a device."""
    if not torch.cuda.is_available():
        print("\n### Pinned memory\n\nNo CUDA device here: not measured.")
        return
    host = torch.zeros(256, 3, 224, 224, dtype=torch.uint8)
    pinned = host.pin_memory()

    def rate(tensor: torch.Tensor, non_blocking: bool) -> Run:
        def run() -> float:
            torch.cuda.synchronize()
            began = time.perf_counter()
            for _ in range(20):
                tensor.to("cuda", non_blocking=non_blocking)
            torch.cuda.synchronize()
            return 20 * 256 / (time.perf_counter() - began)

        return run

    runs = {
        "pageable": rate(host, False),
        "pageable, non_blocking": rate(host, True),
        "pinned": rate(pinned, False),
        "pinned, non_blocking": rate(pinned, True),
    }
    print_table("To the device", runs, rounds)


if __name__ == "__main__":
    main()
