"""Samples by position, without torch, are what the records hold."""

from __future__ import annotations

import shutil
import subprocess
import sys

import numpy as np
import pytest

from readers.store import sample_table
from readers.store.errors import ShardError
from readers.store.layout import shard_name
from readers.store.manifest import publish_manifest
from readers.store.reader import open_store
from readers.store.record import RecordReader
from readers.store.samples import Samples
from readers.store.schema import Field, Schema
from tests.readers.store.making import FIXED, VARIABLE, make_manifest, write_shard, write_store

MIXED = Schema(
    (
        Field(name="text", kind="text"),
        Field(name="a", kind="scalar", dtype="uint8"),
        Field(name="wide", kind="array", dtype="int16", shape=(2, 3)),
        Field(name="b", kind="label", dtype="int64"),
        Field(name="bytes", kind="array", dtype="uint8", shape=(5,)),
        Field(name="c", kind="scalar", dtype="float32"),
    )
)
"""Scalars between which others stand, beside fields of fixed and of variable size."""


def mixed(at: int) -> dict[str, object]:
    return {
        "text": "x" * at,
        "a": at,
        "wide": np.arange(6, dtype=np.int16).reshape(2, 3) - at,
        "b": -at,
        "bytes": np.full(5, at, np.uint8),
        "c": at / 2,
    }


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("samples") / "store.lmdb"
    folder.mkdir()
    shards = []
    for number, rows in enumerate((range(3), range(3, 7))):
        samples = [(b"%d" % at, mixed(at)) for at in rows]
        shards.append(write_shard(folder / shard_name(number), MIXED, samples))
    publish_manifest(folder, make_manifest(MIXED, shards))
    return folder


NAMES = [
    None,
    ["b"],
    ["c", "a"],
    ["bytes", "c", "wide", "b", "a"],
    ["a", "b", "c", "wide", "bytes"],
    ["wide"],
    ["text", "a"],
    [],
]


@pytest.mark.parametrize("names", NAMES)
def test_samples_are_those_of_the_records(names, path):
    """Any choice of fields in any order, over the border of shards, from either end."""
    samples = Samples(path, names)
    wanted = MIXED.names if names is None else names
    assert len(samples) == 7
    for at in (*range(7), -1, -7, np.int64(4)):
        found, expected = samples[at], mixed(int(at) % 7)
        assert list(found) == list(wanted)
        for name in wanted:
            value, other = found[name], expected[name]
            assert type(value) is type(other)
            if isinstance(value, np.ndarray):
                assert (value.dtype, value.shape) == (other.dtype, other.shape)
                assert value.tolist() == other.tolist()
                assert value.flags.owndata or value.base.flags.owndata
                value[:] = 0  # The caller's own.
            else:
                assert value == other
    assert [sample["a"] for sample in Samples(path, ["a"])] == list(range(7))
    assert [sample["a"] for sample in Samples(path, ["a"])[1:6:2]] == [1, 3, 5]


def test_stores_of_other_schemas_are_read_alike(tmp_path):
    """With the same values as a RecordReader gives, raw images among them."""
    for number, schema in enumerate((FIXED, VARIABLE)):
        store = open_store(write_store(tmp_path / str(number), schema, (2, 3)))
        reader, samples = RecordReader(store.layout), Samples(store)
        for at in range(5):
            shard, place = store.locate(at)
            expected = reader.unpack(shard.record(place))
            for name, value in samples[at].items():
                assert np.array_equal(value, expected[name])


@pytest.mark.parametrize("way", ["rows", "many", "read", "variable"])
def test_tuples_have_the_values_of_the_dicts_in_the_order_asked_for(way, path, monkeypatch):
    """However samples are got at: rows of a mapped store, too many for that, reads, sizes vary."""
    if way == "many":
        monkeypatch.setattr(sample_table, "SAMPLES_MAX", 6)
    store = open_store(str(path), access="read" if way == "read" else "map")
    names = ("c", "wide", "b", "bytes", *(("text",) if way == "variable" else ()))
    shows = {"b": lambda value: f"<{value}>", "wide": lambda value: value.tolist()}
    samples = Samples(store, names, shows=shows)
    for asked in (names, ("b",), ("bytes", "c"), ("wide", "b", "bytes"), ()):
        of = samples.tuples(asked)
        for at in range(len(samples)):
            shown = mixed(at) | {"b": f"<{-at}>", "wide": mixed(at)["wide"].tolist()}
            for found in (of(at), tuple(samples[at][name] for name in asked)):
                np.testing.assert_equal(found, tuple(shown[name] for name in asked))
            assert list(samples[at]) == list(names)


def test_arrays_are_the_callers_own(path):
    """Of any element type they are aligned, and may be written to without changing the store."""
    samples = Samples(str(path), ["wide", "bytes"])
    for at in range(len(samples)):
        for array in samples[at].values():
            assert array.flags.owndata
            assert array.flags.aligned
            assert array.flags.writeable
            array[:] = 0
    np.testing.assert_equal(samples[3]["wide"], mixed(3)["wide"])


@pytest.mark.parametrize("at", [7, -8, 10**12])
def test_a_position_that_is_not_there_is_an_index_error(at, path):
    """So that iteration ends, and nothing beyond is read."""
    with pytest.raises(IndexError, match=r"expected \[0, 7\)"):
        Samples(path)[at]


def test_a_missing_shard_is_named(path, tmp_path):
    """When the store is opened; or, on request, when a sample of it is asked for."""
    copy = tmp_path / "copy.lmdb"
    shutil.copytree(path, copy)
    (copy / "shard-00001.lmdb").unlink()
    with pytest.raises(ShardError, match=r"1 of 2 shards .*shard-00001\.lmdb: missing\."):
        Samples(copy, ["a"])
    samples = Samples(copy, ["a"], checks_files=False)
    assert samples[2]["a"] == 2
    with pytest.raises(ShardError, match=r"shard-00001\.lmdb"):
        samples[3]


def test_torch_is_not_loaded(path):
    """A tool that only looks into a store starts in milliseconds."""
    code = (
        "import sys; from readers.store.samples import Samples; "
        f"assert Samples({str(path)!r})[6]['a'] == 6; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
