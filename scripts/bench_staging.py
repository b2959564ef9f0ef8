"""What copies on the local disk give where a store is far away.

    scripts/bench_staging.py [--images 1000] [--delay 10] [--epochs 3]

One store of pixels, each call to its server taking so long, is read by `make_loader` in epochs, in
processes of their own:

    far           without a cache: every epoch over the network
    staging       with an empty cache: copied in the background while the first epochs are read
    staged        copied before by `packer stage`

An epoch's images a second count from asking for it to its last batch, so that the first one has the
opening of the store and the start of the workers in it. Before each epoch this machine forgets what
it has read from afar, as if the store were larger than its memory; copies, just written, may be in
memory. Calls are those that came to the server. Between the tables stands the copying alone, beside
a plain copy of the same files.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import cv2
import torch
from bench_loader import draw_photos
from far_mount import Far, FarMount, FarMountUnavailableError, mounted

from packer import Recipe, build
from packer.stores.stage import stage
from readers import LMDBDataset, make_loader
from readers.ops import RandomFlip, RandomResizedCrop
from readers.store.manifest import read_manifest

SHARD_BYTES = 16 * 2**20


class Epoch(NamedTuple):
    """One epoch as it was read.

    Attributes:
        first_s: From asking for it to its first batch.
        images_per_s: From asking for it to its last batch.
        staged_count: Shards that had a copy by its end.
    """

    first_s: float
    images_per_s: float
    staged_count: int


def _read(parent: Connection, store: Path, cache: Path | None, epoch_count: int) -> None:
    """Read epochs, each when the parent says so, and tell of it."""
    parent.recv()
    started = time.perf_counter()
    dataset = LMDBDataset(store, returns=("image", "label"), cache_dir=cache)
    ops = (RandomResizedCrop(224), RandomFlip())
    loader = make_loader(dataset, 32, train=True, workers=2, ops=ops)
    for number in range(epoch_count):
        loader.set_epoch(number)
        first_s, sample_count = 0.0, 0
        for images, _ in loader:
            first_s = first_s or time.perf_counter() - started
            sample_count += len(images)
        report = dataset.staging()
        seconds = time.perf_counter() - started
        staged_count = report.staged_count if report is not None else 0
        parent.send(Epoch(first_s, sample_count / seconds, staged_count))
        if number < epoch_count - 1:
            parent.recv()
        started = time.perf_counter()


def forget(store: Path) -> None:
    """Have this machine forget what it has read of a far store: as on NFS, by opening its files."""
    for path in store.iterdir():
        os.close(os.open(path, os.O_RDONLY))


def show_epochs(name: str, mount: FarMount, cache: Path | None, epoch_count: int) -> None:
    """Read epochs in a process of its own; a line for each."""
    store = mount.path / "store.lmdb"
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(
        target=_read, args=(theirs, store, cache, epoch_count)
    )
    child.start()
    theirs.close()
    try:
        for number in range(epoch_count):
            forget(store)
            mount.reset()
            ours.send("go")
            epoch: Epoch = ours.recv()
            counts = mount.counts()
            print(
                f"{name:9}{number + 1:6}{epoch.images_per_s:10,.0f}{epoch.first_s * 1000:11,.0f} ms"
                f"{counts.read_count:9,}{counts.open_count + counts.stat_count:9,}"
                f"{counts.read_bytes / 1e6:9,.0f}{epoch.staged_count:9}",
                flush=True,
            )
    finally:
        child.join()


def show_copy(name: str, mount: FarMount, copy: Callable[[], object]) -> None:
    """Copy the store once; a line."""
    mount.reset()
    started = time.perf_counter()
    copy()
    seconds = time.perf_counter() - started
    counts = mount.counts()
    print(
        f"{name:15}{counts.read_bytes / seconds / 1e6:10,.0f} MB/s"
        f"{counts.read_count:18,} reads, {counts.open_count + counts.stat_count:,} names"
    )


def main() -> None:
    """Parse, build a store, mount it, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=1000, help="photos to draw")
    parser.add_argument("--delay", type=float, default=10.0, help="ms a call")
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    cv2.setNumThreads(0)  # Runs are forked; threads of OpenCV that they miss would be waited for.
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        raw, near = folder / "raw", folder / "near"
        raw.mkdir()
        near.mkdir()
        draw_photos(raw, options.images)
        recipe = Recipe(size=256, shard_bytes_max=SHARD_BYTES)
        build(raw, near / "store.lmdb", recipe, worker_count=2)
        manifest = read_manifest(near / "store.lmdb")
        print(
            f"{options.images:,} images in {len(manifest.shards)} shards, "
            f"{manifest.shard_bytes / 1e6:,.0f} MB; {options.delay:g} ms a call"
        )
        print(
            f"{'':9}{'epoch':>6}{'images/s':>10}{'first batch':>14}{'reads':>9}{'names':>9}"
            f"{'MB':>9}{'staged':>9}"
        )
        try:
            with mounted(near, folder / "mount", Far.of_delay(options.delay)) as mount:
                far = mount.path / "store.lmdb"
                show_epochs("far", mount, None, options.epochs)
                show_epochs("staging", mount, folder / "cache", options.epochs)
                copied = folder / "copied"
                show_copy("packer stage", mount, lambda: stage([far], copied))
                show_copy("plain copy", mount, lambda: shutil.copytree(far, folder / "plain"))
                show_epochs("staged", mount, copied, options.epochs)
        except FarMountUnavailableError as error:
            parser.error(f"no far file system can be mounted here: {error}")


if __name__ == "__main__":
    main()
