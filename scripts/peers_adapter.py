"""This project's side of a comparison with other loaders.

The comparison's driver imports this file and calls `write`, `make_loader` and `open_random`; it
brings the workloads (see `SUPPORTS`) and times everything.

Each function imports what it needs, since the driver times the first call of each with its imports:
building needs no torch, and reading single samples neither torch nor the packer. What lies in files
is built as the command line does it. Arrays are written with the same writer.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from readers.store.layout import shard_name
from readers.store.manifest import FormatVersion, Manifest, SourceInfo, publish_manifest
from readers.store.record import RecordLayout
from readers.store.samples import Samples
from readers.store.schema import Field, Schema

SUPPORTS = {
    "w1": ["jpg", "raw256", "jpg256"],
    "w2": ["raw"],
    "w3": ["jpg", "raw640"],
    "w4": ["bytes"],
}

_RECIPES: dict[tuple[str, str], dict[str, Any]] = {
    ("w1", "jpg"): {"image": "original"},
    ("w1", "raw256"): {"size": 256},
    ("w1", "jpg256"): {"size": 256, "image": "jpeg"},
    ("w3", "jpg"): {"image": "original"},
    ("w3", "raw640"): {"size": 640, "fit": "letterbox"},
}
_SHARD_COUNT = 8


def write(raw: str, store: str, w: str, v: str, workers: int) -> dict[str, Any]:
    """Build the store of one workload."""
    out = f"{store}/store.lmdb"
    if (w, v) in _RECIPES:
        from packer import Recipe, build

        # What the command line calls.
        build(f"{raw}/{w}", out, Recipe(**_RECIPES[w, v]), worker_count=workers)
    elif w == "w2":
        images, labels = np.load(f"{raw}/w2/images.npy"), np.load(f"{raw}/w2/labels.npy")
        write_arrays(out, {"image": (_image(32), images), "label": (_LABEL, labels)})
    elif w == "w4":
        payloads, labels = np.load(f"{raw}/w4/payload.npy"), np.load(f"{raw}/w4/labels.npy")
        payload = Field(name="payload", kind="array", dtype="uint8", shape=(64,))
        write_arrays(out, {"payload": (payload, payloads), "label": (_LABEL, labels)})
    else:
        raise ValueError(f"{w} {v}: not supported yet; {SUPPORTS}")
    return {}


def _image(side: int) -> Field:
    return Field(name="image", kind="image", dtype="uint8", shape=(side, side, 3), codec="raw")


_LABEL = Field(name="label", kind="label", dtype="int64")


def write_arrays(
    out: str, arrays: dict[str, tuple[Field, Any]], shard_count: int = _SHARD_COUNT
) -> None:
    """Write a store of arrays, each with the field that its rows are values of."""
    from readers.store.shard import ShardWriter

    folder = Path(out)
    folder.mkdir()
    schema = Schema(tuple(field for field, _ in arrays.values()))
    layout, shards = RecordLayout.of(schema), []
    count = len(next(iter(arrays.values()))[1])
    for number, indices in enumerate(np.array_split(np.arange(count), shard_count)):
        writer = ShardWriter(folder / shard_name(number), layout)
        for index in indices.tolist():
            sample = {name: values[index] for name, (_, values) in arrays.items()}
            writer.add(b"%d" % index, sample)
        shards.append(writer.seal())
    source = SourceInfo(
        format="arrays", sha256="0" * 64, found_count=count, reject_count=0, ignored={}
    )
    manifest = Manifest(
        format=FormatVersion(),
        schema=schema,
        classes=(),
        splits={},
        sample_count=count,
        shards=tuple(shards),
        recipe={},
        source=source,
        statistics={},
        versions={},
    )
    publish_manifest(folder, manifest)


class _Batches:
    """A loader as the comparison takes it: it may start the next epoch before that is asked for."""

    def __init__(self, loader: Iterable[Any]) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[Any]:
        return iter(self._loader)


def make_loader(store: str, raw: str, w: str, v: str, batch: int, workers: int) -> _Batches:
    """A shuffled loader over a store that `write` made."""
    from readers import LMDBDataset
    from readers import make_loader as make_our_loader
    from readers.ops import Letterbox, RandomFlip, RandomResizedCrop

    path = f"{store}/store.lmdb"
    names = ["image", "boxes", "labels"] if w == "w3" else ["image", "label"]
    dataset = LMDBDataset(path, returns=names)
    ops: tuple[Any, ...] = (RandomResizedCrop(224), RandomFlip()) if w == "w1" else ()
    if (w, v) == ("w3", "jpg"):
        ops = (Letterbox(640),)
    loader = make_our_loader(dataset, batch, train=True, drop_last=False, workers=workers, ops=ops)
    return _Batches(loader)


def open_random(store: str, w: str, v: str) -> tuple[int, Callable[[int], Any]]:
    """How many samples there are, and what reads one."""
    samples = Samples(f"{store}/store.lmdb", ("payload", "label"))
    pair = operator.itemgetter("payload", "label")
    return len(samples), lambda index: pair(samples[index])
