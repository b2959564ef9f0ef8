"""What is opened and is not a store is told what it is, and what to open instead."""

from __future__ import annotations

import pytest

from readers.store.errors import StoreIncompleteError, StoreNotFoundError
from readers.store.manifest import read_manifest


def message_of(path, error):
    with pytest.raises(error) as caught:
        read_manifest(path)
    return str(caught.value)


def test_raw_data_is_not_called_a_copy_that_did_not_finish(tmp_path):
    """Nor is a command given that would build into it."""
    raw = tmp_path / "photos"
    (raw / "cat").mkdir(parents=True)
    (raw / "cat" / "a.png").write_bytes(b"")
    message = message_of(raw, StoreIncompleteError)
    assert message.endswith(f"Build a store of it and open that: packer build {raw} {raw}.lmdb")
    assert "copy" not in message
    message = message_of(raw / "cat" / "a.png", StoreNotFoundError)
    assert "is a file; a store is a folder with manifest.json. It is named like a pic" in message
    assert message.endswith(f"packer build {raw / 'cat'} {raw / 'cat'}.lmdb")
    (raw / "list.csv").write_bytes(b"")
    message = message_of(raw / "list.csv", StoreNotFoundError)
    assert f"If it is raw data, build a store of it: packer build {raw / 'list.csv'}" in message


def test_a_copy_that_did_not_finish_is_called_one(shapes, copy_store):
    """It has shards, and no manifest."""
    path = copy_store(shapes.path)
    (path / "manifest.json").unlink()
    assert "so its copy did not finish" in message_of(path, StoreIncompleteError)


def test_a_store_beside_what_was_given_is_named(shapes, copy_store, tmp_path):
    """The folder above it, or a file in it."""
    path = copy_store(shapes.path, "only.lmdb")
    assert message_of(tmp_path, StoreIncompleteError).endswith(f"A store lies in it: {path}")
    copy_store(shapes.path, "other.lmdb")
    message = message_of(tmp_path, StoreIncompleteError)
    assert message.endswith(f"A store lies in it: {path} (and 1 more)")
    message = message_of(path / "shard-00000.lmdb", StoreNotFoundError)
    assert message.endswith(f"It lies in one: give its folder, {path}")


def test_an_empty_folder_is_called_empty(tmp_path, monkeypatch):
    """Whoever made it meant to copy something there."""
    assert "It is empty. Copy the store again" in message_of(tmp_path, StoreIncompleteError)
    monkeypatch.chdir(tmp_path)
    assert ".: no manifest.json in it" in message_of(".", StoreIncompleteError)
