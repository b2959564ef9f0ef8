"""This release reads the stores of every version, value by value, and writes the current one."""

from __future__ import annotations

import json
import mmap
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from readers.store.layout import FORMAT_MAJOR, FORMAT_MINOR, REJECTS_NAME
from readers.store.pages import PageFile
from readers.store.reader import open_store
from readers.store.record import RecordReader
from readers.store.shard import check_against_lmdb, file_sha256
from scripts.make_golden import described, make_golden

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
VERSIONS = sorted(path.name for path in GOLDEN.glob("v*"))
CURRENT = f"v{FORMAT_MAJOR}.{FORMAT_MINOR}"


def expected_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "expected.json").read_text(encoding="ascii"))


def test_the_current_version_has_its_golden_store():
    """A change of the format brings its store along."""
    assert CURRENT in VERSIONS


@pytest.mark.parametrize("name", VERSIONS)
def test_every_value_of_a_golden_store_is_read_as_it_was_written(name):
    """A store that was written once can be read for good, to the last bit."""
    expected = expected_of(GOLDEN / name)
    store = open_store(GOLDEN / name / "store.lmdb")
    assert store.manifest.format.major == FORMAT_MAJOR
    assert f"v{store.manifest.format.major}.{store.manifest.format.minor}" == name
    assert store.manifest.classes == tuple(expected["classes"])
    assert store.manifest.sample_count == len(expected["samples"])
    reader = RecordReader(store.layout)
    for at, sample in enumerate(expected["samples"]):
        assert store.find(bytes.fromhex(sample.pop("key_bytes"))) == at
        shard, position = store.locate(at)
        values = reader.unpack(shard.record(position))
        assert list(values) == [field.name for field in store.manifest.schema.fields]
        found = {field: described(value) for field, value in values.items()}
        # As JSON, so that 1, 1.0 and true are three things.
        assert json.dumps(found) == json.dumps({field: sample[field] for field in found})
        assert len(found) == len(sample)


@pytest.mark.parametrize("name", VERSIONS)
def test_a_golden_store_is_whole(name):
    """Its files are those that its manifest names, by digest, and LMDB reads them."""
    store = open_store(GOLDEN / name / "store.lmdb")
    for shard, info in zip(store.shards(), store.manifest.shards, strict=True):
        assert file_sha256(shard.path) == info.sha256
        check_against_lmdb(shard.path, shard)
        for position in range(info.sample_count):
            shard.check_record(position)
    names = {"manifest.json", REJECTS_NAME, *(info.file for info in store.manifest.shards)}
    assert {path.name for path in store.path.iterdir()} == names


def test_columns_of_the_golden_store_are_its_values():
    """Samplers go by the index alone; it must say what the records say."""
    store = open_store(GOLDEN / CURRENT / "store.lmdb")
    samples = expected_of(GOLDEN / CURRENT)["samples"]
    at = 0
    for shard in store.shards():
        for position in range(len(shard.offsets)):
            sample = samples[at]
            for field in store.manifest.schema.fields:
                if field.is_scalar:
                    assert shard.columns[field.name][position].item() == sample[field.name]
                elif field.kind == "image" and not field.is_fixed:
                    names = ("height", "width", "channel")[: field.shape.count(None)]
                    sides = [int(shard.columns[f"{field.name}.{side}"][position]) for side in names]
                    assert sides == sample[field.name]["shape"][: len(sides)]
            at += 1
    assert at == len(samples)


def test_this_release_writes_the_golden_store_again(tmp_path):
    """The same input gives the same bytes, in another year and on another machine too."""
    make_golden(tmp_path / CURRENT)
    made, kept = tmp_path / CURRENT, GOLDEN / CURRENT
    assert expected_of(made) == expected_of(kept)
    with open(kept / "store.lmdb" / "shard-00000.lmdb", "rb") as stream:
        page_bytes = PageFile(memoryview(stream.read())).page_bytes
    if page_bytes != mmap.PAGESIZE:
        pytest.skip(f"LMDB's pages have {mmap.PAGESIZE} bytes here, and {page_bytes} there")
    manifest = json.loads((kept / "store.lmdb" / "manifest.json").read_text())
    names = sorted(path.name for path in (kept / "store.lmdb").iterdir())
    assert sorted(path.name for path in (made / "store.lmdb").iterdir()) == names
    differing = [
        name
        for name in names
        if (made / "store.lmdb" / name).read_bytes() != (kept / "store.lmdb" / name).read_bytes()
    ]
    recorded, found = manifest["versions"]["lmdb"], version("lmdb")
    if differing and found != recorded:
        # Records and index must be the same all the same.
        ours, theirs = open_store(made / "store.lmdb"), open_store(kept / "store.lmdb")
        for a, b in zip(ours.manifest.shards, theirs.manifest.shards, strict=True):
            assert (a.identity, a.sample_count) == (b.identity, b.sample_count)
        if differing != ["manifest.json"]:
            pytest.skip(f"made by lmdb {recorded}; lmdb {found} arranges pages in its own way")
        differing = []
    assert differing == []


def test_fixed_fields_of_the_golden_store_are_where_the_layout_says():
    """A gather reads them at this place of every record, without the record's header."""
    store = open_store(GOLDEN / CURRENT / "store.lmdb")
    start = store.layout.fixed_offsets["image"]
    located = store.located(np.arange(store.manifest.sample_count))
    (pieces,) = store.bytes.fetch([located.within(start, 72)])
    for at, sample in enumerate(expected_of(GOLDEN / CURRENT)["samples"]):
        first = int(pieces.starts[at])
        image = pieces.memory[first : first + 72].reshape(6, 4, 3)
        assert described(image) == sample["image"]
