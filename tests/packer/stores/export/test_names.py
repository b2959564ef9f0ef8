"""Names that no file can have, or that two pictures would share, become ones that each can have."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import packer
from packer.sources.walk import skip_reason
from packer.stores.export.names import Names, safe_names, safe_part, safe_path
from readers.store.layout import shard_name
from readers.store.manifest import publish_manifest, read_manifest
from readers.store.schema import Field, Schema
from tests.packer.stores.export.making import make_store, samples
from tests.readers.store.making import make_manifest, write_shard


@given(st.lists(st.binary(min_size=1, max_size=300), max_size=6))
def test_any_key_is_a_path_inside_of_the_folder(parts):
    """Never up, absolute or hidden; text; and each part short enough for a file system."""
    path = safe_path(b"/".join(parts))
    path.decode()
    for part in path.split(b"/"):
        assert part not in (b"", b".", b"..")
        assert b"\0" not in part
        assert b"\n" not in part
        assert len(part) <= 200 or part == path
        assert skip_reason(part) is None
    inside = os.path.normpath(os.path.join(b"/out", path))
    assert inside.startswith(b"/out/")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (b"cat", b"cat"),
        ("größe ß".encode(), "größe ß".encode()),
        (b"a/b", b"a%2Fb"),
        (b"..", b"%2E%2E"),
        (b".hidden", b"%2Ehidden"),
        (b" x ", b"%20x%20"),
        (b"a\\b\n", b"a%5Cb%0A"),
        (b"\xe9t\xe9", b"%E9t%E9"),
        (b"Thumbs.db", b"%54humbs.db"),
        (b"50%", b"50%"),
    ],
)
def test_only_what_no_file_is_called_is_written_otherwise(name, expected):
    """Blanks inside and letters of any script stay as they are."""
    assert safe_part(name) == expected


def test_two_classes_never_share_a_folder():
    """Also where one is called as another is written."""
    names = ["a/b", "a%2Fb", "", ".", "%2E"]
    folders = safe_names(names)
    assert len(set(folders)) == len(names)


@given(
    st.lists(st.sampled_from([b"a", b"b", b"a-1", b"b-1", b"a-2_", b"c/a", b"c_a"]), max_size=12)
)
def test_no_two_samples_share_a_path(stems):
    """Whatever their wishes are; the first that has a wish gets it."""
    names = Names(len(stems), lambda row: ([stems[row], stems[row].replace(b"/", b"_")], b""))
    places = [names[row] or stems[row] for row in range(len(stems))]
    assert len(set(places)) == len(stems)
    for row, stem in enumerate(stems):
        if stem not in stems[:row]:
            assert places[row] == stem


def odd_store(path: Path) -> Path:
    """A store of raw pictures whose keys and classes no build would make."""
    keys = [b"../../up.png", b"/abs/x.png", b"a/./b.png", b"c.jpg", b"c.png", b"\xff/n\n.png"]
    schema = Schema(
        (
            Field(name="key", kind="text"),
            Field(name="image", kind="image", dtype="uint8", shape=(2, 3, 1), codec="raw"),
            Field(name="label", kind="label", dtype="int64", names=("a/b", "..", "a%2Fb")),
        )
    )
    path.mkdir()
    made = [
        (key, {"key": key, "image": np.full((2, 3, 1), at, np.uint8), "label": at % 3})
        for at, key in enumerate(sorted(keys))
    ]
    shard = write_shard(path / shard_name(0), schema, made)
    publish_manifest(path, make_manifest(schema, [shard], classes=("a/b", "..", "a%2Fb")))
    return path


@pytest.mark.parametrize("as_", ["folder", "tar", "parquet"])
def test_odd_keys_lead_nowhere_else(as_, tmp_path):
    """Every picture is there under a name of its own, and a list says whose it is."""
    store = odd_store(tmp_path / "a.lmdb")
    before = set(tmp_path.iterdir())
    packer.export(store, tmp_path / "files", as_=as_)
    assert set(tmp_path.iterdir()) == before | {tmp_path / "files"}
    built = make_store(tmp_path / "files", tmp_path / "again.lmdb", "raw")
    pixels = sorted(int(s["image"][0, 0, 0]) for s in samples(built))
    assert pixels == [0, 1, 2, 3, 4, 5]
    lines = (tmp_path / "files" / ".packer-keys.jsonl").read_text().splitlines()
    if as_ == "folder":
        assert len(lines) == len({json.loads(line)["path"] for line in lines}) == 6
        assert read_manifest(built).classes == tuple(sorted(["a%2Fb", "%2E%2E", "a%2Fb%"]))
