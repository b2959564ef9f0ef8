"""The manifest comes back as it was written, and any other file is refused by name."""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from readers.store.errors import (
    FormatVersionError,
    ManifestError,
    StoreError,
    StoreIncompleteError,
    StoreNotFoundError,
)
from readers.store.layout import MANIFEST_BYTES_MAX
from readers.store.manifest import (
    FormatVersion,
    Manifest,
    ShardInfo,
    SourceInfo,
    digest_problem,
    manifest_bytes,
    parse_manifest,
    publish_manifest,
    read_manifest,
    write_synced,
)
from tests.readers.store.making import VARIABLE, make_manifest, schemas

SHARDS = [
    ShardInfo(
        file=f"shard-0000{at}.lmdb",
        sample_count=10 + at,
        bytes=4096 * (at + 3),
        sha256=f"{at}" * 64,
        identity="ab" * 32,
        index=(0, 8192, 4096 * (at + 2), 100),
    )
    for at in range(3)
]

MANIFEST = make_manifest(VARIABLE, SHARDS, splits={"train": 30, "val": 3}, classes=("cat", "dog"))

names = st.binary(max_size=12).map(lambda data: data.decode("utf-8", "surrogateescape")) | st.text(
    st.characters(exclude_categories=("Cs",)), max_size=8
)


def plain() -> dict[str, Any]:
    """The manifest as a tree that a test may change."""
    return json.loads(manifest_bytes(MANIFEST))


def parsed(tree: Any) -> Manifest:
    return parse_manifest(json.dumps(tree).encode(), "out.lmdb/manifest.json")


@given(
    schemas(),
    st.lists(names, max_size=4),
    st.dictionaries(names, st.integers(1, 2**40), max_size=3),
    st.dictionaries(names, st.none() | st.integers() | st.text(max_size=3) | names, max_size=3),
)
def test_a_manifest_comes_back_as_it_was(schema, classes, splits, recipe):
    """Class names are names of folders, so they may hold bytes that are no UTF-8."""
    count = sum(splits.values()) or 5
    shard = msgspec.structs.replace(SHARDS[0], sample_count=min(count, 2**47))
    manifest = make_manifest(
        schema,
        [shard],
        classes=tuple(classes),
        splits=splits,
        recipe=recipe,
        source=SourceInfo(
            format="imagefolder",
            sha256="0" * 64,
            found_count=9,
            reject_count=2,
            ignored={"hidden": 1},
            notes=tuple(classes),
        ),
    )
    data = manifest_bytes(manifest)
    assert parse_manifest(data, "here") == manifest
    assert data.isascii()
    assert manifest_bytes(parse_manifest(data, "here")) == data


def test_equal_manifests_are_equal_bytes():
    """Builds on two machines are compared by their files."""
    assert manifest_bytes(make_manifest(VARIABLE, SHARDS)) == manifest_bytes(
        make_manifest(VARIABLE, SHARDS)
    )
    tree = plain()
    assert list(tree) == [
        "format", "schema", "classes", "splits", "sample_count", "shards", "recipe", "source",
        "statistics", "versions", "sha256",
    ]  # fmt: skip
    assert tree["format"] == {"name": "packer-store", "major": 1, "minor": 2}
    assert tree["shards"][1] == {
        "file": "shard-00001.lmdb",
        "sample_count": 11,
        "bytes": 16384,
        "sha256": "1" * 64,
        "identity": "ab" * 32,
        "index": [0, 8192, 12288, 100],
    }
    assert manifest_bytes(MANIFEST).endswith(b"}\n")


def test_where_an_index_lies_need_not_be_said():
    """Stores of version 1.1 do not."""
    tree = plain()
    for shard in tree["shards"]:
        del shard["index"]
    found = parsed(tree)
    assert [shard.index_parts for shard in found.shards] == [[]] * 3
    assert MANIFEST.shards[1].index_parts == [(0, 8192), (12288, 100)]


@pytest.mark.parametrize(
    ("index", "text"),
    [
        ([0], "1 numbers say where its index lies"),
        ([0, 1] * 65, "130 numbers say where its index lies"),
        ([-1, 10], "10 bytes of its index at -1"),
        ([0, 0], "0 bytes of its index at 0"),
        ([12288, 1], "1 bytes of its index at 12288, expected one or more inside the file's 12288"),
        ([0, 2**70], None),
        ([0, "1"], None),
    ],
)
def test_an_index_that_leaves_its_file_is_refused(index, text):
    """Memory is taken for as many bytes as the manifest names."""
    tree = plain()
    tree["shards"][0]["index"] = index
    with pytest.raises(ManifestError, match=text):
        parsed(tree)


def test_what_a_later_minor_version_adds_is_passed_over():
    """A minor version adds only what readers of this one may ignore."""
    tree = plain()
    tree["format"]["minor"] = 99
    tree["format"]["since"] = "2030"
    tree["author"] = {"name": "somebody"}
    tree["shards"][0]["crc32c"] = "ffff"
    tree["source"]["more"] = [1, 2]
    found = parsed(tree)
    assert found.format == FormatVersion(minor=99)
    assert msgspec.structs.replace(found, format=FormatVersion()) == MANIFEST


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"major": 2}, "packer-store 2.2"),
        ({"major": 0}, "packer-store 0.2"),
        ({"name": "webdataset"}, "webdataset 1.2"),
        ({"name": "other", "major": 7, "minor": 3}, "other 7.3"),
    ],
)
def test_another_format_is_refused_by_its_name_and_version(change, found):
    """Even when nothing else in the file is as we know it."""
    for tree in (plain(), {"format": plain()["format"]}):
        tree["format"] |= change
        with pytest.raises(FormatVersionError, match=r"^out.lmdb/manifest.json: format ") as caught:
            parsed(tree)
        assert f"format {found}; this release reads packer-store 1. Install" in str(caught.value)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0",
        b"null",
        b"[]",
        b'"format"',
        b"17",
        b"{}",
        b'{"format": null}',
        b'{"format": "packer-store"}',
        b'{"format": {"name": 1, "major": 1, "minor": 0}}',
        b'{"format": {"name": "packer-store", "major": "1", "minor": 0}}',
        b"\xff\xfe\x00",
        b'{"format": {"name": "packer-store", "major": 1, "minor": 0}',
        manifest_bytes(MANIFEST)[:-3],
        manifest_bytes(MANIFEST) + b"x",
        b"[" * 1_000_000,
        b'{"format":' * 1_000_000,
        b'{"format": {"name": "packer-store", "major": ' + b"9" * 10_000 + b"}}",
    ],
    ids=lambda data: repr(data[:24]),
)
def test_what_is_no_manifest_is_named(data):
    """Bytes of any kind: one kind of error, with the file and what to do."""
    with pytest.raises(ManifestError, match=r"^out.lmdb/manifest.json: not a manifest \(") as error:
        parse_manifest(data, "out.lmdb/manifest.json")
    assert "Expected JSON with a 'format'; copy the store again." in str(error.value)


def test_values_beyond_the_limit_are_refused_before_they_take_memory():
    """64 MiB of empty lists would be 1.3 GiB in memory."""
    many = b"[" + b"[]," * 2_000_001 + b"0]"
    data = manifest_bytes(MANIFEST).replace(b'"image": "raw"', b'"image": ' + many)
    with pytest.raises(ManifestError, match=r"^here: not a manifest \(over 4000000 values\)"):
        parse_manifest(data, "here")


def test_deep_nesting_where_anything_may_stand_is_no_crash():
    """A recipe is any JSON, so a crafted one is as deep as its file is long."""
    deep = b"[" * 200_000 + b"]" * 200_000
    data = manifest_bytes(MANIFEST).replace(b'"image": "raw"', b'"image": ' + deep)
    with pytest.raises(ManifestError, match="not a manifest"):
        parse_manifest(data, "here")


@pytest.mark.parametrize("key", sorted(plain().keys() - {"sha256"}))
def test_each_key_must_be_there_and_of_its_type(key):
    """What is missing or of another type is named."""
    tree = plain()
    del tree[key]
    with pytest.raises(ManifestError, match=f"^out.lmdb/manifest.json: .*{key}"):
        parsed(tree)
    for wrong in (None, True, 1.5, "text", [[]], {"a": {}}, -1):
        if key in ("recipe", "statistics") and isinstance(wrong, dict):
            continue
        with pytest.raises((ManifestError, FormatVersionError), match=r"^out.lmdb/manifest.json: "):
            parsed(plain() | {key: wrong})


@pytest.mark.parametrize("key", ["file", "sample_count", "bytes", "sha256", "identity"])
def test_each_key_of_a_shard_must_be_there_and_of_its_type(key):
    """All of them are needed before a shard is opened."""
    for change in ({}, {key: None}, {key: [1]}):
        tree = plain()
        del tree["shards"][1][key]
        tree["shards"][1] |= change
        with pytest.raises(ManifestError, match=r"^out.lmdb/manifest.json: .*shards"):
            parsed(tree)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "..",
        "../shard-00000.lmdb",
        "/shard-00000.lmdb",
        "/etc/passwd",
        "a/shard-00000.lmdb",
        "shard-../x.lmdb",
        "shard-00000.lmdb/..",
        "shard-00000.lmdb\n",
        "shard-00000.lmdb\0",
        "shard-0000\u0660.lmdb",
        "shard-.lmdb",
        "Shard-00000.lmdb",
        "shard-00000.LMDB",
        "shard-00000.lmdb.partial",
        "manifest.json",
        "shard-" + "0" * 65 + ".lmdb",
    ],
)
def test_a_shard_can_only_be_a_file_of_the_folder(name):
    """A manifest from a stranger must not lead to other files of the user."""
    tree = plain()
    tree["shards"][1]["file"] = name
    expected = f"shard file {name!r}, expected a plain name such as 'shard-00000.lmdb'"
    with pytest.raises(ManifestError, match=re.escape(expected)):
        parsed(tree)


@pytest.mark.parametrize("name", ["shard-00000.lmdb", "shard-100000.lmdb", "shard-val-7.lmdb"])
def test_shards_may_be_numbered_or_named(name):
    """Later writers may name them for what they hold."""
    tree = plain()
    tree["shards"][1]["file"] = name.replace("00000", "00009")
    assert parsed(tree).shards[1].file == tree["shards"][1]["file"]


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        (("sample_count",), 34, "34 samples, but its shards hold 33"),
        (("shards", 0, "sample_count"), 11, "33 samples, but its shards hold 34"),
        (("shards", 0, "sample_count"), 0, r"0 samples in 12288 bytes, expected both in \[1, 2"),
        (("shards", 0, "sample_count"), -10, r"-10 samples in 12288 bytes, expected both in"),
        (("shards", 0, "sample_count"), 2**48, "expected both in"),
        (("shards", 0, "bytes"), 0, "10 samples in 0 bytes, expected both in"),
        (("shards", 0, "bytes"), 2**48, "10 samples in 281474976710656 bytes, expected both in"),
        (("shards", 0, "bytes"), 2**70, "10 samples in 1180591620717411303424 bytes, expected"),
        (("shards", 0, "sha256"), "0" * 63, "digest '0{63}', expected 64 hex digits"),
        (("shards", 0, "sha256"), "0" * 64 + "\n", "expected 64 hex digits"),
        (("shards", 0, "identity"), "AB" * 32, "digest '(AB){32}', expected 64 hex digits"),
        (("shards", 2, "file"), "shard-00000.lmdb", "a shard file is listed twice"),
        (("shards",), [], "33 samples, but its shards hold 0"),
        (("splits",), {"train": 30}, "splits of 30 samples in all, expected 33"),
        (("splits",), {"train": 34, "val": -1}, "split 'val' of -1 samples"),
        (("schema", "fields"), [], "a schema has 1 to 1000 fields; found 0"),
        (("schema", "fields", 0, "name"), "K", "field 'K': a name is 1 to 64 lower-case"),
        (("schema", "fields", 1, "kind"), "video", "Invalid enum value 'video'"),
        (("schema", "fields", 0, "packed"), True, "unknown field `packed`"),
        (("schema", "version"), 2, "unknown field `version`"),
        (("classes",), ["cat", 7], "classes"),
        (("schema", "fields", 0, "kind"), "text\udcff", "surrogates not allowed"),
        (("source", "reject_count"), "none", "reject_count"),
    ],
)
def test_numbers_and_names_that_cannot_be_are_refused(path, value, reason):
    """Each is found here, by name, and not as a wrong sample or a crash later."""
    tree = plain()
    place = tree
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(ManifestError, match=f"^out.lmdb/manifest.json: .*{reason}") as caught:
        parsed(tree)
    assert str(caught.value).endswith("The manifest was changed or damaged; copy the store again.")


def test_a_store_without_samples_is_a_store():
    """All items of a small build may be rejected, if the user says so."""
    assert parse_manifest(manifest_bytes(make_manifest(VARIABLE, [])), "here").shards == ()


# The digest.


def test_the_digest_is_that_of_the_bytes_before_it():
    """Any language finds it with a few lines, without writing JSON in Python's way."""
    data = manifest_bytes(MANIFEST)
    body, _, rest = data.partition(b',\n "sha256": ')
    assert rest == f'"{hashlib.sha256(body).hexdigest()}"\n}}\n'.encode()
    assert digest_problem(data) is None


def test_every_flipped_bit_of_a_manifest_is_found():
    """Also in what merely describes the build, in spaces, and in the digest itself."""
    data = manifest_bytes(MANIFEST)
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1 << at % 8
        try:
            parse_manifest(bytes(changed), "here")
        except StoreError:
            continue
        assert digest_problem(bytes(changed)) is not None, changed[at - 20 : at + 20]


def test_a_manifest_written_anew_by_another_program_is_told_from_the_first():
    """The digest is of bytes, and what stands behind it is fixed."""
    data = manifest_bytes(MANIFEST)
    for other in (
        json.dumps(json.loads(data)).encode(),
        data + b"\n",
        data.replace(b"sha256", b"sha255"),
    ):
        assert digest_problem(other) == "it does not end with its SHA-256"
    problem = digest_problem(data.replace(b'"cat"', b'"cow"'))
    digest = hashlib.sha256(data.partition(b',\n "sha256": ')[0]).hexdigest()
    assert problem is not None
    assert problem.endswith(f", expected {digest[:16]}...")


def test_a_manifest_of_the_first_version_has_no_digest():
    """It was written before there was one; a later version without one has lost it."""
    tree = plain()
    del tree["sha256"]
    tree["format"]["minor"] = 0
    assert digest_problem(json.dumps(tree).encode()) is None
    tree["format"]["minor"] = 1
    assert digest_problem(json.dumps(tree).encode()) == "it does not end with its SHA-256"


# The file.


def test_publishing_makes_a_store_and_leaves_nothing_else(tmp_path):
    """The name of the manifest appears when the file is whole."""
    publish_manifest(tmp_path, MANIFEST)
    assert os.listdir(tmp_path) == ["manifest.json"]
    assert read_manifest(tmp_path) == MANIFEST
    assert read_manifest(str(tmp_path)) == MANIFEST
    assert (tmp_path / "manifest.json").read_bytes() == manifest_bytes(MANIFEST)


def test_a_write_that_fails_leaves_what_was_there(tmp_path):
    """A file is put in place whole, or not at all."""
    publish_manifest(tmp_path, MANIFEST)
    (tmp_path / "manifest.json.partial").mkdir()
    with pytest.raises(IsADirectoryError):
        write_synced(tmp_path / "manifest.json", b"other")
    assert read_manifest(tmp_path) == MANIFEST


def test_nothing_at_the_path_is_said_so(tmp_path):
    """With the command that would make the store."""
    path = tmp_path / "out.lmdb"
    with pytest.raises(StoreNotFoundError, match=f"^{path}: nothing there.*build RAW {path}"):
        read_manifest(path)
    path.symlink_to(tmp_path / "gone")
    with pytest.raises(StoreNotFoundError, match=f"^{path}: nothing there"):
        read_manifest(path)


def test_a_file_is_no_store(tmp_path):
    """Somebody gives the shard or the manifest instead of the folder."""
    path = tmp_path / "shard-00000.lmdb"
    path.write_bytes(b"x")
    with pytest.raises(StoreNotFoundError, match=f"^{path} is a file; a store is a folder"):
        read_manifest(path)


def test_a_folder_without_a_manifest_is_incomplete(tmp_path):
    """A copy that broke off looks like this, since the manifest is written last."""
    path = tmp_path / "out.lmdb"
    path.mkdir()
    with pytest.raises(StoreIncompleteError, match=rf"^{path}: no manifest.json in it, so"):
        read_manifest(path)


@pytest.mark.parametrize("has_folder", [False, True])
def test_a_build_that_did_not_finish_is_said_so(has_folder, tmp_path):
    """It can be finished, so the message says how."""
    path = tmp_path / "out.lmdb"
    (tmp_path / "out.lmdb.building").mkdir()
    if has_folder:
        path.mkdir()
    with pytest.raises(StoreIncompleteError, match=rf"^{path}: its build did not finish \("):
        read_manifest(path)


def test_the_folder_one_is_in_is_a_path_like_any_other(tmp_path, monkeypatch):
    """`packer info .` in a store, in a folder that is none, and in one whose build goes on."""
    inside = tmp_path / "out.lmdb"
    inside.mkdir()
    monkeypatch.chdir(inside)
    with pytest.raises(StoreIncompleteError, match=r"^\.: no manifest.json in it"):
        read_manifest(".")
    (tmp_path / "out.lmdb.building").mkdir()
    with pytest.raises(StoreIncompleteError, match=r"^\.: its build did not finish \(out.lmdb\."):
        read_manifest(".")
    publish_manifest(Path(), MANIFEST)
    assert read_manifest(".") == MANIFEST
    for root in ("/", ".."):
        with pytest.raises(StoreIncompleteError):
            read_manifest(root)


def test_a_manifest_that_may_not_be_read_is_an_error_of_the_store(tmp_path, as_nobody):
    """Permissions of a shared store are a common mistake."""
    publish_manifest(tmp_path, MANIFEST)
    (tmp_path / "manifest.json").chmod(0)
    with as_nobody, pytest.raises(StoreError, match=r"manifest.json: Permission denied"):
        read_manifest(tmp_path)


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo], ids=["folder", "pipe"])
def test_a_manifest_that_is_no_plain_file_is_refused_at_once(make, tmp_path):
    """Opening a pipe must not wait for somebody who writes to it."""
    make(tmp_path / "manifest.json")
    with pytest.raises(ManifestError, match=f"^{tmp_path}/manifest.json: "):
        read_manifest(tmp_path)


def test_a_manifest_beyond_the_limit_is_refused_unread(tmp_path):
    """It would take many times its size in memory to parse."""
    with open(tmp_path / "manifest.json", "wb") as stream:
        stream.truncate(MANIFEST_BYTES_MAX + 1)
    with pytest.raises(ManifestError, match=f"^{tmp_path}/manifest.json: over {64 * 2**20} bytes"):
        read_manifest(tmp_path)
