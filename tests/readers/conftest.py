"""Small stores written straight through the format, and fresh interpreters to read them in."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from readers.store.codecs import OriginalImage
from readers.store.layout import shard_name
from readers.store.manifest import FormatVersion, Manifest, SourceInfo, publish_manifest
from readers.store.record import RecordLayout
from readers.store.schema import ITEM_DTYPES, Field, Schema
from readers.store.shard import ShardWriter

ROOT = Path(__file__).resolve().parents[2]

KEY = Field(name="key", kind="text")


@dataclass(frozen=True, repr=False)
class Stored:
    """A store, and what a reader must find in it: samples as dicts of numpy arrays and values."""

    path: Path
    samples: list[dict[str, Any]]

    def __repr__(self) -> str:
        return f"Stored({self.path})"


def publish(folder, schema, shards, classes=(), splits=None):
    """Publish a manifest over shards that are there."""
    manifest = Manifest(
        format=FormatVersion(),
        schema=schema,
        classes=tuple(classes),
        splits=splits or {},
        sample_count=sum(shard.sample_count for shard in shards),
        shards=tuple(shards),
        recipe={},
        source=SourceInfo(
            format="test", sha256="0" * 64, found_count=0, reject_count=0, ignored={}
        ),
        statistics={},
        versions={},
    )
    publish_manifest(folder, manifest)


def write_shards(folder, schema, samples, counts):
    """Shard files of so many samples each."""
    layout, rest, shards = RecordLayout.of(schema), iter(samples), []
    for number, count in enumerate(counts):
        writer = ShardWriter(folder / shard_name(number), layout)
        for _ in range(count):
            values = next(rest)
            key = values["key"] if "key" in values else str(writer.sample_count).encode()
            writer.add(key if isinstance(key, bytes) else key.encode(), values)
        shards.append(writer.seal())
    return shards


@pytest.fixture(scope="session")
def write_store():
    """Writes a store: write_store(folder, fields, samples, samples of each shard, ...)."""

    def write(folder, fields, samples, counts=None, classes=(), splits=None):
        folder.mkdir(parents=True)
        schema = Schema(tuple(fields))
        counts = [len(samples)] if counts is None else counts
        publish(folder, schema, write_shards(folder, schema, samples, counts), classes, splits)
        return folder

    return write


@pytest.fixture(scope="session")
def run_python():
    """Runs code in a fresh interpreter, warnings being errors; what it prints last is JSON."""

    def run(code, *arguments, timeout_s=120):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", code, *map(str, arguments)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == 0, f"exit status {done.returncode}\n{done.stderr}"
        return json.loads(done.stdout.splitlines()[-1])

    return run


@pytest.fixture
def left_in_shared_memory():
    """Gives what lies in /dev/shm since the test began, and stays.

    What other tests of this moment put there comes and goes.
    """
    folder = Path("/dev/shm")
    before = set(folder.iterdir())

    def left(wait_s=20):
        deadline = time.monotonic() + wait_s
        while (new := set(folder.iterdir()) - before) and time.monotonic() < deadline:
            time.sleep(0.05)
        return sorted(new)

    return left


@pytest.fixture(scope="session")
def same():
    """Whether two values are equal in every part: kind, element type, shape, each number."""
    return _same


def _same(a, b):
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        a, b = (value.numpy() for value in (a, b))
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return list(a) == list(b) and all(_same(a[name], b[name]) for name in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, Image.Image):
        return (a.mode, a.size, a.tobytes()) == (b.mode, b.size, b.tobytes())
    return bool(a == b) or (a != a and b != b)


SHAPES = [
    KEY,
    Field(name="image", kind="image", dtype="uint8", shape=(4, 6, 3), codec="raw"),
    Field(name="label", kind="label", dtype="int64", names=("disk", "ring", "star")),
    Field(name="split", kind="scalar", dtype="uint8", names=("train", "valid")),
    Field(name="original_size", kind="array", dtype="int32", shape=(2,)),
    Field(name="transform", kind="array", dtype="float32", shape=(2, 3)),
]


def shapes_samples(count=12, train_count=8):
    """Fixed-size samples; no two alike."""
    noise = np.random.default_rng(7)
    names = ("disk", "ring", "star")
    return [
        {
            "key": f"{('train', 'valid')[at >= train_count]}/{names[at % 3]}/{at:04d}.png",
            "image": noise.integers(0, 256, (4, 6, 3)).astype(np.uint8),
            "label": at % 3,
            "split": int(at >= train_count),
            "original_size": np.array([40 + at, 60], np.int32),
            "transform": np.array([[0.1, 0, at], [0, 0.1, -at]], np.float32),
        }
        for at in range(count)
    ]


@pytest.fixture(scope="session")
def shapes(tmp_path_factory, write_store):
    """12 samples of fixed size in shards of 5, 1 and 6: 8 of the split "train", 4 of "valid"."""
    samples = shapes_samples()
    path = write_store(
        tmp_path_factory.mktemp("stores") / "shapes.lmdb",
        SHAPES,
        samples,
        (5, 1, 6),
        ("disk", "ring", "star"),
        {"train": 8, "valid": 4},
    )
    for sample in samples:
        sample["split"] = ("train", "valid")[sample["split"]]
    return Stored(path, samples)


def png(pixels):
    """The bytes of a PNG file of (height, width, 3) uint8."""
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "png")
    return stream.getvalue()


def every_kind_fields():
    """A field of every kind and of every element type that each can have."""
    fields = [KEY]
    for dtype in ITEM_DTYPES:
        fields += [
            Field(name=f"{dtype}_scalar", kind="scalar", dtype=dtype),
            Field(name=f"{dtype}_array", kind="array", dtype=dtype, shape=(3, 2)),
            Field(name=f"{dtype}_ragged", kind="array", dtype=dtype, shape=(None, 2)),
            Field(name=f"{dtype}_image", kind="image", dtype=dtype, shape=(2, 3, 3), codec="raw"),
        ]
    return [
        *fields,
        Field(name="gray", kind="image", dtype="uint8", shape=(3, 2, 1), codec="raw"),
        Field(name="sized", kind="image", dtype="uint8", shape=(None, None, 3), codec="raw"),
        Field(name="free", kind="image", dtype=None, shape=(None, None, None), codec="raw"),
        Field(
            name="photo",
            kind="image",
            dtype="uint8",
            shape=(None, None, 3),
            codec="original",
            mode="rgb",
        ),
        Field(name="empty", kind="array", dtype="float32", shape=(0, 4)),
        Field(name="weather", kind="scalar", dtype="uint8", names=("sun", "rain")),
        Field(name="caption", kind="text"),
        Field(name="extra", kind="json"),
        Field(name="blob", kind="bytes"),
    ]


def every_kind_sample(at, noise):
    """(values to store, values to be read) of one sample."""

    def elements(dtype, *shape):
        kind = np.dtype(dtype)
        if dtype == "bool":
            return noise.integers(0, 2, shape).astype(bool)
        if kind.kind == "f":
            return noise.standard_normal(shape).astype(kind)
        limits = np.iinfo(kind)
        return noise.integers(limits.min, limits.max, shape, dtype=kind, endpoint=True)

    values: dict[str, Any] = {"key": f"{at:03d}"}
    for dtype in ITEM_DTYPES:
        scalar = elements(dtype, 1)[0].item()
        # torch makes int64 of a Python int, so no sample of a store should need more.
        values[f"{dtype}_scalar"] = scalar >> 1 if dtype == "uint64" else scalar
        values[f"{dtype}_array"] = elements(dtype, 3, 2)
        values[f"{dtype}_ragged"] = elements(dtype, at % 4, 2)
        values[f"{dtype}_image"] = elements(dtype, 2, 3, 3)
    values["gray"] = elements("uint8", 3, 2, 1)
    values["sized"] = elements("uint8", 1 + at % 3, 2 + at % 2, 3)
    values["free"] = elements(("uint8", "uint16")[at % 2], 2, 1 + at % 2, 1 + at % 3)
    values["empty"] = np.zeros((0, 4), np.float32)
    values["weather"] = ("sun", "rain")[at % 2]
    values["caption"] = "ä" * (at % 5)
    values["extra"] = [{"a": at, "b": [1.5, None]}, ["x"] * at, None, "text", at][at % 5]
    values["blob"] = bytes(range(at))
    on_disk = elements("uint8", 2 + at % 3, 5, 3)
    turn = (1, 6)[at % 2]  # As it is, or a quarter turn clockwise.
    values["photo"] = on_disk if turn == 1 else np.ascontiguousarray(np.rot90(on_disk, -1))
    photo = OriginalImage(png(on_disk), values["photo"].shape, "uint8", turn)
    stored = {**values, "photo": photo, "weather": at % 2}
    return stored, {known.name: values[known.name] for known in every_kind_fields()}


@pytest.fixture(scope="session")
def every_kind(tmp_path_factory, write_store):
    """11 samples with fields of all kinds and element types, in shards of 4, 1 and 6."""
    noise = np.random.default_rng(11)
    pairs = [every_kind_sample(at, noise) for at in range(11)]
    path = write_store(
        tmp_path_factory.mktemp("stores") / "every_kind.lmdb",
        every_kind_fields(),
        [stored for stored, _ in pairs],
        (4, 1, 6),
    )
    return Stored(path, [values for _, values in pairs])


TINY = [
    KEY,
    Field(name="image", kind="image", dtype="uint8", shape=(2, 2, 3), codec="raw"),
    Field(name="label", kind="label", dtype="int64", names=tuple("abcdefghij")),
]


@pytest.fixture(scope="session")
def million(tmp_path_factory):
    """A million samples of 2 x 2 pixels in 10 shards; the label of sample i is i % 10.

    The shards are copies of one, which takes seconds to write, so keys come back in each.
    """
    folder = tmp_path_factory.mktemp("stores") / "million.lmdb"
    folder.mkdir()
    count, schema = 100_000, Schema(tuple(TINY))
    samples = (
        {"key": b"%05d" % at, "image": np.full((2, 2, 3), at % 251, np.uint8), "label": at % 10}
        for at in range(count)
    )
    (first,) = write_shards(folder, schema, samples, [count])
    infos = [first]
    for number in range(1, 10):
        shutil.copyfile(folder / shard_name(0), folder / shard_name(number))
        infos.append(type(first)(**{**_parts(first), "file": shard_name(number)}))
    publish(folder, schema, infos, "abcdefghij")
    yield folder
    shutil.rmtree(folder)


def _parts(info):
    return {name: getattr(info, name) for name in type(info).__struct_fields__}


def tiny_samples(count):
    """Of `TINY`; each label is the sample's position modulo 10."""
    return [
        {"key": f"{at:03d}", "image": np.full((2, 2, 3), at % 251, np.uint8), "label": at % 10}
        for at in range(count)
    ]


@pytest.fixture(scope="session")
def many_shards(tmp_path_factory, write_store):
    """600 tiny samples in 300 shards."""
    path = tmp_path_factory.mktemp("stores") / "many_shards.lmdb"
    return write_store(path, TINY, tiny_samples(600), [2] * 300, "abcdefghij")


@pytest.fixture(scope="session")
def ten_shards(tmp_path_factory, write_store):
    """20 tiny samples in 10 shards of one size."""
    path = tmp_path_factory.mktemp("stores") / "ten_shards.lmdb"
    return write_store(path, TINY, tiny_samples(20), [2] * 10, "abcdefghij")


@pytest.fixture
def copy_store(tmp_path):
    """Copies a store to a folder of this test, to be damaged: copy_store(path, name)."""

    def copy(path, name="copy.lmdb"):
        return Path(shutil.copytree(path, tmp_path / name))

    return copy


@pytest.fixture(scope="session")
def contents():
    """Everything that could have changed in a folder: names, modes, sizes, times, bytes."""

    def look(folder):
        found = {}
        for path in sorted(folder.rglob("*")):
            facts = os.stat(path)
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            found[path.name] = (facts.st_mode, facts.st_size, facts.st_mtime_ns, digest)
        return found

    return look
