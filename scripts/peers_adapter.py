"""This project's side of a comparison with other loaders.

The comparison's driver imports this file and calls `write`, `make_loader` and `open_random`; it
brings the workloads (see `SUPPORTS`) and times everything.

What `packer build` can compile is built by it. Data that is no folder of images (arrays, boxes) is
written with the same writer, since no source reads it yet.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from packer import Recipe, build
from readers import LMDBDataset
from readers import make_loader as make_our_loader
from readers.ops import RandomFlip, RandomResizedCrop
from readers.store.layout import shard_name
from readers.store.manifest import FormatVersion, Manifest, SourceInfo, publish_manifest
from readers.store.record import RecordLayout
from readers.store.schema import Field, Schema
from readers.store.shard import ShardWriter

SUPPORTS = {"w1": ["jpg", "raw256"], "w2": ["raw"], "w3": ["raw640"], "w4": ["bytes"]}

_RECIPES = {"jpg": Recipe(image="original"), "raw256": Recipe(size=256)}
_SHARD_COUNT = 8


def write(raw: str, store: str, w: str, v: str, workers: int) -> dict[str, Any]:
    """Build the store of one workload."""
    out = f"{store}/store.lmdb"
    if w == "w1" and v in _RECIPES:
        # What the command line calls.
        build(f"{raw}/w1", out, _RECIPES[v], worker_count=workers)
    elif w == "w2":
        images, labels = np.load(f"{raw}/w2/images.npy"), np.load(f"{raw}/w2/labels.npy")
        schema = _schema(_image(32), Field(name="label", kind="label", dtype="int64"))
        _write_store(out, schema, len(images), lambda i: {"image": images[i], "label": labels[i]})
    elif w == "w4":
        payloads, labels = np.load(f"{raw}/w4/payload.npy"), np.load(f"{raw}/w4/labels.npy")
        schema = _schema(
            Field(name="payload", kind="array", dtype="uint8", shape=(64,)),
            Field(name="label", kind="label", dtype="int64"),
        )
        _write_store(
            out, schema, len(labels), lambda i: {"payload": payloads[i], "label": labels[i]}
        )
    elif w == "w3" and v == "raw640":
        # The comparison's own module, beside its driver.
        samples = importlib.import_module("common").Prep(raw, w, v)
        schema = _schema(
            _image(640),
            Field(name="boxes", kind="array", dtype="float32", shape=(None, 4)),
            Field(name="labels", kind="array", dtype="int64", shape=(None,)),
        )

        def sample(i: int) -> dict[str, Any]:
            image, boxes, labels = samples[i]
            return {"image": image, "boxes": boxes, "labels": labels}

        _write_store(out, schema, len(samples), sample)
    else:
        raise ValueError(f"{w} {v}: not supported yet; {SUPPORTS}")
    return {}


def _image(side: int) -> Field:
    return Field(name="image", kind="image", dtype="uint8", shape=(side, side, 3), codec="raw")


def _schema(*fields: Field) -> Schema:
    return Schema(fields)


def _write_store(
    out: str, schema: Schema, count: int, sample: Callable[[int], dict[str, Any]]
) -> None:
    folder = Path(out)
    folder.mkdir()
    layout, shards = RecordLayout.of(schema), []
    for number, indices in enumerate(np.array_split(np.arange(count), _SHARD_COUNT)):
        writer = ShardWriter(folder / shard_name(number), layout)
        for index in indices.tolist():
            writer.add(b"%d" % index, sample(index))
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
    path = f"{store}/store.lmdb"
    if w == "w3":
        dataset = LMDBDataset(path, returns=("image", "boxes", "labels"))
    else:
        dataset = LMDBDataset(path, returns=("image", "label"))
    ops = (RandomResizedCrop(224), RandomFlip()) if w == "w1" else ()
    loader = make_our_loader(dataset, batch, train=True, drop_last=False, workers=workers, ops=ops)
    return _Batches(loader)


def open_random(store: str, w: str, v: str) -> tuple[int, Callable[[int], Any]]:
    """How many samples there are, and what reads one."""
    dataset = LMDBDataset(f"{store}/store.lmdb", returns=("payload", "label"), image_as="numpy")
    return len(dataset), dataset.__getitem__
