"""Reads batches from a far file server that fails now and then, and checks each of their samples.

    python scripts/soak_far.py --batches 10000
    python scripts/soak_far.py --batches 600 --every 50 --json

Nothing is kept in memory: each read goes to the server, and every nth of them fails, in turn with
EIO and ESTALE; so does every nth open. Epochs are read by the thread engine, the process engine and
a stock DataLoader in turn, shuffled. Each epoch must have every sample once, each with the pixels
that were stored. The first thing that is wrong ends the run with exit status 1. What is mounted
needs /dev/fuse, mfusepy and libfuse.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from far_mount import Far, FarMount, FarMountUnavailableError, Fault, mounted
from numpy.typing import NDArray
from torch.utils.data import DataLoader

from readers import LMDBDataset, make_loader
from readers.store.layout import shard_name
from readers.store.manifest import FormatVersion, Manifest, SourceInfo, publish_manifest
from readers.store.record import RecordLayout
from readers.store.schema import Field, Schema
from readers.store.shard import ShardWriter

SIDE = 64
SHARD_COUNT = 4
ENGINES = ("thread", "process", "stock")


class SoakError(Exception):
    """A law was broken; the text says which."""


@dataclass
class Figures:
    """What happened.

    Attributes:
        batch_count: Batches that were checked.
        sample_count: Samples in them.
        epochs: By engine.
        read_count: Reads that came to the server.
        fault_count: Calls that failed.
        seconds: In all.
    """

    batch_count: int = 0
    sample_count: int = 0
    epochs: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ENGINES, 0))
    read_count: int = 0
    fault_count: int = 0
    seconds: float = 0.0

    def summary(self) -> str:
        """In a sentence."""
        epochs = ", ".join(f"{count} by {engine}" for engine, count in self.epochs.items())
        return (
            f"{self.batch_count:,} batches, {self.sample_count:,} samples, each right, none lost, "
            f"in {sum(self.epochs.values())} epochs ({epochs}); {self.read_count:,} reads, "
            f"{self.fault_count:,} calls failed; {self.seconds:.0f} s"
        )


def write_store(folder: Path, count: int) -> NDArray[np.uint8]:
    """A store of noise, 64 x 64; the label of a sample is its number. Its pixels are returned."""
    images = np.random.default_rng(0).integers(0, 256, (count, SIDE, SIDE, 3), np.uint8)
    image = Field(name="image", kind="image", dtype="uint8", shape=(SIDE, SIDE, 3), codec="raw")
    schema = Schema((image, Field(name="label", kind="scalar", dtype="int64")))
    layout, shards = RecordLayout.of(schema), []
    for number, rows in enumerate(np.array_split(np.arange(count), SHARD_COUNT)):
        writer = ShardWriter(folder / shard_name(number), layout)
        for at in rows.tolist():
            writer.add(b"%08d" % at, {"image": images[at], "label": at})
        shards.append(writer.seal())
    manifest = Manifest(
        format=FormatVersion(),
        schema=schema,
        classes=(),
        splits={},
        sample_count=count,
        shards=tuple(shards),
        recipe={},
        source=SourceInfo(
            format="test", sha256="0" * 64, found_count=count, reject_count=0, ignored={}
        ),
        statistics={},
        versions={},
    )
    publish_manifest(folder, manifest)
    return images


def soak(
    store: Path,
    images: NDArray[np.uint8],
    mount: FarMount,
    *,
    batch_count: int,
    batch_size: int,
    every: int,
    read_ms: float,
    figures: Figures,
) -> None:
    """Read so many batches; see the module.

    Raises:
        SoakError: A sample was wrong, missing or there twice.
    """
    expected = torch.from_numpy(images).permute(0, 3, 1, 2)
    loaders = make_loaders(store, batch_size)
    match = "*/shard-*"
    # Set when the store is open, so that each way meets the same.
    faults = tuple(
        Fault(call=call, error=error, every=2 * every, after=after, match=match)
        for call in ("read", "open")
        for error, after in (("EIO", 0), ("ESTALE", every))
    )
    mount.set(Far(read_ms=read_ms, maps=False, faults=faults))
    number = 0
    while figures.batch_count < batch_count:
        engine = ENGINES[number % len(ENGINES)]
        number += 1
        seen = torch.zeros(len(images), dtype=torch.int64)
        for found, labels in loaders[engine]:
            if not torch.equal(found, expected[labels]):
                raise SoakError(f"{engine}: samples {labels.tolist()} are not as they were stored")
            seen[labels] += 1
            figures.batch_count += 1
            figures.sample_count += len(labels)
        if not (seen == 1).all():
            wrong = torch.nonzero(seen != 1).flatten().tolist()
            raise SoakError(
                f"{engine}: samples {wrong[:20]} came {seen[wrong[:20]].tolist()} times"
            )
        figures.epochs[engine] += 1
        counts = mount.counts()
        figures.read_count, figures.fault_count = counts.read_count, counts.fault_count
        if sys.stderr.isatty():
            print(figures.summary(), end="\r", file=sys.stderr)


def make_loaders(store: Path, batch_size: int) -> dict[str, Iterable[Any]]:
    """A loader for each engine."""
    dataset = LMDBDataset(store, returns=("image", "label"))
    settings: dict[str, Any] = {"train": True, "drop_last": False, "workers": 2}
    return {
        "thread": make_loader(dataset, batch_size, engine="thread", **settings),
        "process": make_loader(dataset, batch_size, engine="process", **settings),
        "stock": DataLoader(
            dataset, batch_size, shuffle=True, num_workers=2, persistent_workers=True
        ),
    }


def main() -> None:
    """Parse, soak, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--batches", type=int, default=10_000)
    parser.add_argument("--batch", type=int, default=32, help="Samples of a batch. Default: 32.")
    parser.add_argument("--samples", type=int, default=2048, help="In the store. Default: 2048.")
    parser.add_argument("--every", type=int, default=500, help="The nth call fails. Default: 500.")
    parser.add_argument("--read-ms", type=float, default=0.5, help="Of each read. Default: 0.5.")
    parser.add_argument("--json", action="store_true", help="Print the figures as JSON.")
    options = parser.parse_args()
    figures, began = Figures(), time.monotonic()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="soak-far-") as name:
        near = Path(name) / "near"
        (near / "noise.lmdb").mkdir(parents=True)
        images = write_store(near / "noise.lmdb", options.samples)
        try:
            with mounted(near, Path(name) / "mount") as mount:
                soak(
                    mount.path / "noise.lmdb",
                    images,
                    mount,
                    batch_count=options.batches,
                    batch_size=options.batch,
                    every=options.every,
                    read_ms=options.read_ms,
                    figures=figures,
                )
        except FarMountUnavailableError as error:
            sys.exit(f"no far file system can be mounted here: {error}")
        except SoakError as error:
            sys.exit(str(error))
    figures.seconds = time.monotonic() - began
    print(json.dumps(asdict(figures)) if options.json else figures.summary())


if __name__ == "__main__":
    main()
