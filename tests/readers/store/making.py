"""Fields, samples, shards and stores that the tests of `readers.store` are made of."""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import lmdb
import numpy as np
from hypothesis import strategies as st
from PIL import Image

from readers.store.codecs import OriginalImage
from readers.store.layout import shard_name
from readers.store.manifest import (
    FormatVersion,
    Manifest,
    ShardInfo,
    SourceInfo,
    publish_manifest,
)
from readers.store.pictures.orientation import turn_upright, upright_size
from readers.store.record import RecordLayout
from readers.store.schema import ITEM_DTYPES, Field, Kind, Schema
from readers.store.shapes.polygons import Polygons, Runs
from readers.store.shard import ShardWriter
from readers.store.shard_reader import ShardReader

Sample = tuple[bytes, dict[str, Any]]
"""The text key of a sample and its values."""

NUMBERS = Schema(
    (
        Field(name="label", kind="label", dtype="int64", names=("cat", "dog")),
        Field(name="weight", kind="scalar", dtype="float32"),
    )
)
"""Numbers alone: a record is its header."""

FIXED = Schema(
    (
        Field(name="image", kind="image", dtype="uint8", shape=(4, 5, 3), codec="raw"),
        Field(name="label", kind="label", dtype="int64", names=("cat", "dog")),
    )
)
"""Every record has the same length."""

VARIABLE = Schema(
    (
        Field(name="key", kind="text"),
        Field(name="image", kind="image", shape=(None, None, 3), codec="raw"),
        Field(name="label", kind="label", dtype="int64", names=("cat", "dog")),
        Field(name="boxes", kind="array", dtype="float32", shape=(None, 4)),
    )
)
"""Pixels and boxes of any size, and an element type for each sample."""

ORIGINAL = Schema(
    (
        Field(
            name="image",
            kind="image",
            dtype="uint8",
            shape=(None, None, 3),
            codec="original",
            mode="rgb",
        ),
        Field(name="label", kind="label", dtype="int64", names=("cat", "dog")),
    )
)
"""Pictures as their files' bytes."""


def pixels(height: int, width: int, channel_count: int = 3, *, seed: int = 0) -> np.ndarray:
    """(height, width, channel) uint8 of noise, the same for the same seed."""
    shape = (height, width, channel_count)
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def png(array: np.ndarray) -> bytes:
    """A picture (height, width, 3) uint8 as a PNG file."""
    stream = io.BytesIO()
    Image.fromarray(array).save(stream, "PNG")
    return stream.getvalue()


def original(height: int, width: int, orientation: int, *, seed: int = 0) -> OriginalImage:
    """A PNG of noise that a reader has to turn."""
    size = (*upright_size(height, width, orientation), 3)
    return OriginalImage(png(pixels(height, width, seed=seed)), size, "uint8", orientation)


def sample_of(schema: Schema, number: int) -> Sample:
    """The sample `number` of one of the schemas above, small and unlike the others."""
    rng = np.random.default_rng(number)
    values: dict[str, Any] = {"label": number % 2, "weight": number / 4, "key": f"é/{number}.jpg"}
    if schema is FIXED:
        values["image"] = pixels(4, 5, seed=number)
    elif schema is ORIGINAL:
        values["image"] = original(2 + number % 3, 3 + number % 5, 1 + number % 8, seed=number)
    elif schema is VARIABLE:
        dtype = ("uint8", "uint16")[number % 2]
        values["image"] = pixels(1 + number % 40, 3 + number % 7, seed=number).astype(dtype)
        values["boxes"] = rng.random((number % 4, 4), np.float32)
    return f"raw/{number:06d}.jpg".encode(), {name: values[name] for name in schema.names}


def samples_of(schema: Schema, numbers: Iterable[int]) -> list[Sample]:
    """Several samples of one of the schemas above."""
    return [sample_of(schema, number) for number in numbers]


def write_shard(path: Path, schema: Schema, samples: Iterable[Sample]) -> ShardInfo:
    """A sealed shard with these samples."""
    writer = ShardWriter(path, RecordLayout.of(schema))
    for key, values in samples:
        writer.add(key, values)
    return writer.seal()


def open_shard(path: Path, info: ShardInfo, schema: Schema) -> ShardReader:
    """A reader over a copy of the file in memory, which a test may keep or throw away."""
    return ShardReader(path, memoryview(path.read_bytes()), info, RecordLayout.of(schema))


def make_manifest(schema: Schema, shards: Sequence[ShardInfo], **changes: Any) -> Manifest:
    """A manifest of these shards."""
    settings: dict[str, Any] = {
        "format": FormatVersion(),
        "schema": schema,
        "classes": ("cat", "dog"),
        "splits": {},
        "sample_count": sum(shard.sample_count for shard in shards),
        "shards": tuple(shards),
        "recipe": {"image": "raw"},
        "source": SourceInfo(
            format="imagefolder", sha256="0" * 64, found_count=9, reject_count=0, ignored={}
        ),
        "statistics": {},
        "versions": {"lmdb": "0.9"},
    }
    return Manifest(**(settings | changes))


def write_store(folder: Path, schema: Schema, counts: Sequence[int], **changes: Any) -> Path:
    """A store whose shards hold `counts` samples of one of the schemas above."""
    folder.mkdir(parents=True)
    first, shards = 0, []
    for number, count in enumerate(counts):
        samples = samples_of(schema, range(first, first + count))
        shards.append(write_shard(folder / shard_name(number), schema, samples))
        first += count
    publish_manifest(folder, make_manifest(schema, shards, **changes))
    return folder


def open_plain(path: Path, **options: Any) -> lmdb.Environment:
    """A file as any LMDB client opens it."""
    return lmdb.open(os.fspath(path), subdir=False, lock=False, max_dbs=8, **options)


def change_database(
    path: Path, info: ShardInfo, database: bytes, changes: Mapping[bytes, bytes | None]
) -> ShardInfo:
    """Put other values into a shard, or take some out (None), and its entry of the manifest.

    This is what a crafted store looks like: made by LMDB, and at one with its manifest.
    """
    with open_plain(path, map_size=2**24) as env:
        handle = env.open_db(database)
        with env.begin(write=True, db=handle) as transaction:
            for key, value in changes.items():
                if value is None:
                    transaction.delete(key)
                else:
                    transaction.put(key, value)
    return ShardInfo(
        file=info.file,
        sample_count=info.sample_count,
        bytes=path.stat().st_size,
        sha256=info.sha256,
        identity=info.identity,
    )


# Random schemas and samples.

_SINGLE_DTYPES = {
    name: (int(np.iinfo(name).min), int(np.iinfo(name).max))
    for name in ITEM_DTYPES
    if np.dtype(name).kind in "iu"
}
_FLOAT_CODES = {"float16": "<e", "float32": "<f", "float64": "<d"}

_sides = st.one_of(st.none(), st.integers(0, 4))
_pixel_sides = st.one_of(st.none(), st.integers(1, 4))
_dtypes = st.sampled_from(ITEM_DTYPES)


@st.composite
def _fields(draw: st.DrawFn, name: str) -> Field:
    kind = draw(st.sampled_from(get_args(Kind)))
    if kind in ("label", "scalar"):
        shape = draw(st.sampled_from(((), (None,)))) if kind == "label" else ()
        return Field(name=name, kind=kind, dtype=draw(_dtypes), shape=shape)
    if kind == "mask":
        codec = draw(st.sampled_from((None, "png")))
        sides = _sides if codec is None else _pixel_sides  # A PNG of nothing is none.
        shape, dtype = draw(st.tuples(sides, sides)), draw(st.sampled_from(("uint8", "int32")))
        return Field(name=name, kind=kind, dtype=dtype, shape=shape, codec=codec)
    if kind == "boxes":
        return Field(name=name, kind=kind, dtype="float32", shape=(None, 4))
    if kind == "keypoints":
        shape = (None, *draw(st.tuples(st.integers(0, 3), st.integers(2, 3))))
        return Field(name=name, kind=kind, dtype="float32", shape=shape)
    if kind == "array":
        shape = tuple(draw(st.lists(_sides, min_size=1, max_size=4)))
        return Field(name=name, kind=kind, dtype=draw(_dtypes), shape=shape)
    if kind == "image":
        codec = draw(st.sampled_from(("raw", "original", "mixed")))
        if codec != "raw":
            return Field(
                name=name,
                kind=kind,
                dtype="uint8",
                shape=(None, None, 3),
                codec=codec,
                mode="rgb",
            )
        shape = tuple(draw(st.tuples(_sides, _sides, _sides)))
        dtype = draw(st.none() | _dtypes)
        return Field(name=name, kind=kind, dtype=dtype, shape=shape, codec="raw")
    return Field(name=name, kind=kind)


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    """Any schema of up to six fields of any kinds."""
    name = st.from_regex(r"[a-z][a-z0-9_]{0,5}", fullmatch=True)
    names = draw(st.lists(name, min_size=1, max_size=6, unique=True))
    return Schema(tuple(draw(_fields(name)) for name in names))


_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=("Cs",)), max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=("Cs",)), max_size=3), inner)
    ),
    max_leaves=6,
)


def _array(draw: st.DrawFn, field: Field) -> np.ndarray:
    shape = tuple(draw(st.integers(0, 4)) if side is None else side for side in field.shape)
    dtype = np.dtype(field.dtype or draw(_dtypes))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    # Any bits are an element, NaNs of all kinds among them; but of a bool there are only two.
    array = np.frombuffer(rng.bytes(int(np.prod(shape)) * dtype.itemsize), np.uint8)
    array = (array & 1).view(bool) if dtype.kind == "b" else array.view(dtype)
    array = array.reshape(shape)
    guise = draw(st.sampled_from(("plain", "big-endian", "strided")))
    if guise == "big-endian":
        return array.astype(dtype.newbyteorder(">"))
    if guise == "strided":
        return np.repeat(array, 2, axis=0)[::2]
    return array


def single_values(dtype: str) -> st.SearchStrategy[Any]:
    """Python numbers that an element type holds exactly, its extremes among them."""
    if dtype == "bool":
        return st.booleans()
    if dtype in _SINGLE_DTYPES:
        low, high = _SINGLE_DTYPES[dtype]
        return st.integers(low, high) | st.sampled_from((low, high))
    code = _FLOAT_CODES[dtype]
    return st.binary(min_size=struct.calcsize(code), max_size=struct.calcsize(code)).map(
        lambda data: struct.unpack(code, data)[0]
    )


@st.composite
def outlines(draw: st.DrawFn) -> Polygons:
    """Outlines of up to three objects, of each kind."""
    height, width = draw(st.integers(0, 5)), draw(st.integers(0, 5))
    numbers = st.floats(allow_nan=False)
    point = st.tuples(numbers, numbers)
    part = st.lists(point, max_size=4).map(lambda p: np.array(p, np.float64).reshape(-1, 2))

    def runs(cuts: list[int]) -> Runs:
        ends = np.array([0, *sorted(cuts), height * width])
        return Runs(np.diff(ends).astype(np.uint32))

    cuts = st.lists(st.integers(0, height * width), max_size=4)
    outline = st.lists(part, max_size=3).map(tuple) | cuts.map(runs)
    return Polygons(draw(st.lists(outline, max_size=3)), height, width)


@st.composite
def values_of(draw: st.DrawFn, field: Field) -> Any:
    """Any value of a field."""
    if field.is_scalar:
        return draw(single_values(field.dtype or ""))
    if field.codec == "original" or (field.codec == "mixed" and draw(st.booleans())):
        height, width = draw(st.integers(1, 4)), draw(st.integers(1, 4))
        return original(height, width, draw(st.integers(1, 8)), seed=height * width)
    if field.codec == "png":
        sides = [draw(st.integers(1, 4)) if side is None else side for side in field.shape]
        seed, limit = draw(st.integers(0, 2**32 - 1)), 256 if field.dtype == "uint8" else 2**24
        return np.random.default_rng(seed).integers(0, limit, sides).astype(field.dtype)
    if field.is_array:
        return _array(draw, field)
    if field.kind == "polygons":
        return draw(outlines())
    if field.kind == "json":
        return draw(_json)
    data = draw(st.binary(max_size=9))
    if field.kind == "text":
        # Bytes are text's own form; `str` is what most give.
        return draw(st.sampled_from((data, data.decode("utf-8", "surrogateescape"))))
    return draw(st.sampled_from((data, bytearray(data), memoryview(data))))


@st.composite
def samples(draw: st.DrawFn, schema: Schema) -> dict[str, Any]:
    """A value for every field."""
    return {field.name: draw(values_of(field)) for field in schema.fields}


def assert_same_value(field: Field, found: Any, given: Any) -> None:
    """What was read is what was given: content, shape and element type, bit by bit."""
    if field.is_scalar:
        assert type(found) is type(given)
        assert found == given or (found != found and given != given)
    elif isinstance(given, OriginalImage):
        upright = turn_upright(np.asarray(Image.open(io.BytesIO(given.data))), given.orientation)
        assert found.dtype == np.uint8
        assert found.shape == given.size
        assert np.array_equal(found, upright)
    elif field.is_array:
        assert found.dtype == given.dtype.newbyteorder("<")
        assert found.shape == given.shape
        assert found.tobytes() == given.astype(found.dtype).tobytes()
        assert found.flags.owndata or field.codec == "png"
        assert found.flags.writeable
    elif field.kind == "polygons":
        assert (found.height, found.width, len(found)) == (given.height, given.width, len(given))
        for one, other in zip(found, given, strict=True):
            assert isinstance(one, Runs) is isinstance(other, Runs)
            parts = (one.counts,) if isinstance(one, Runs) else one
            expected = (other.counts,) if isinstance(other, Runs) else other
            assert len(parts) == len(expected)
            for part, wanted in zip(parts, expected, strict=True):
                assert part.dtype == wanted.dtype
                assert part.shape == wanted.shape
                assert part.tobytes() == wanted.tobytes()
    elif field.kind == "text":
        assert type(found) is str
        data = given if isinstance(given, bytes) else given.encode("utf-8", "surrogateescape")
        assert found.encode("utf-8", "surrogateescape") == data
    elif field.kind == "bytes":
        assert type(found) is bytes
        assert found == bytes(given)
    else:
        assert found == given
        assert repr(found) == repr(given)  # 1, 1.0 and True are three things.
