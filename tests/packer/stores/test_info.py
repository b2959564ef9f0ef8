"""What a store says of itself, for people and for programs."""

from __future__ import annotations

import json
import pickle
import shutil

import pytest

from packer.report import content_sha256
from packer.stores.info import describe, info
from readers import LMDBDataset
from readers.store.errors import ShardError, StoreNotFoundError
from readers.store.manifest import read_manifest


def test_info_is_the_manifest_with_size_and_digest(shards):
    """Every key of the manifest as JSON can hold it, and three that follow from it."""
    found = json.loads(json.dumps(info(shards)))
    manifest = json.loads((shards / "manifest.json").read_bytes())
    manifest.pop("sha256")  # Of the file, not of what it says.
    assert {name: found[name] for name in manifest} == manifest
    assert set(found) - set(manifest) == {"path", "bytes", "content_sha256"}
    assert found["path"] == str(shards)
    assert found["bytes"] == sum(path.stat().st_size for path in shards.glob("shard-*"))
    assert found["content_sha256"] == content_sha256(read_manifest(shards))


def test_the_digest_follows_the_content(shards, store):
    """Other shards, another digest."""
    assert info(shards)["content_sha256"] != info(store)["content_sha256"]


def test_a_description_says_what_a_person_asks_first(shards):
    """How much of what, made of what and how, which fields, which classes."""
    lines = describe(shards).splitlines()
    size = sum(path.stat().st_size for path in shards.glob("shard-*"))
    assert lines[0] == f"{shards}: 12 samples, {size:,} bytes in 4 shards, format 1.2"
    assert lines[1] == "source: imagefolder, found 12, rejected 0, ignored 0"
    assert lines[2].startswith("recipe: size=320, fit=stretch, scaling=fast, image=raw, mode=rgb, ")
    assert lines[3:9] == [
        "fields:",
        "  key             text",
        "  image           image (320, 320, 3) uint8 raw",
        "  label           label int64",
        "  original_size   array (2) int32",
        "  transform       array (2, 3) float32",
    ]
    assert lines[9] == "3 classes: ant 4, bee 4, cat 4"
    assert lines[10].startswith("made with lmdb ")
    assert lines[11] == f"content {info(shards)['content_sha256']}"


def test_missing_shards_are_told_unless_the_manifest_alone_is_asked_for(shards, tmp_path, packer):
    """A store that was copied in part is not a store yet: exit status 1, and which shards lack."""
    copy = tmp_path / "copy.lmdb"
    shutil.copytree(shards, copy)
    (copy / "shard-00002.lmdb").unlink()
    found = packer("info", copy)
    assert found.returncode == 1
    assert "1 of 4 shards are not there as the manifest says" in found.stderr
    assert f"{copy}/shard-00002.lmdb: missing." in found.stderr
    assert packer("info", copy, "--json").returncode == 1
    assert packer("info", copy, "--manifest-only").returncode == 0
    with pytest.raises(ShardError, match="1 of 4 shards"):
        LMDBDataset(copy)
    dataset = LMDBDataset(copy, checks_files=False)
    assert pickle.loads(pickle.dumps(dataset))[0]["key"] == dataset[0]["key"]
    report = packer("verify", copy)
    assert report.returncode == 1
    assert "shard-00002.lmdb: No such file" in report.stdout + report.stderr


def test_what_is_no_store_is_an_error(tmp_path):
    """For both."""
    for function in (info, describe):
        with pytest.raises(StoreNotFoundError, match="nothing there"):
            function(tmp_path / "none")
