"""The moment at which a store has its name."""

from __future__ import annotations

import errno
import os

import pytest

import packer.workspace.publish
from packer.errors import TargetExistsError
from packer.workspace.publish import check_target, publish_folder


def folder_with(path, name):
    path.mkdir()
    (path / name).write_text(name)
    return path


def names(path):
    return [entry.name for entry in path.iterdir()]


def test_a_folder_is_renamed_to_nothing_and_to_an_empty_folder(tmp_path):
    """Nothing of it stays under its old name."""
    for number in range(2):
        finished = folder_with(tmp_path / f"finished{number}", "new")
        target = tmp_path / f"target{number}"
        if number:
            target.mkdir()
        publish_folder(finished, target)
        assert names(target) == ["new"]
        assert not finished.exists()


def test_folders_are_swapped_in_one_step(tmp_path):
    """The one that stood there is in the place of the finished one afterwards."""
    finished = folder_with(tmp_path / "finished", "new")
    target = folder_with(tmp_path / "target", "old")
    publish_folder(finished, target)
    assert (names(target), names(finished)) == (["new"], ["old"])
    assert sorted(names(tmp_path)) == ["finished", "target"]


def test_folders_are_swapped_where_the_file_system_cannot(tmp_path, monkeypatch):
    """NFS has no exchange of names; then three renames do, and the result is the same."""

    class Libc:
        @staticmethod
        def renameat2(*arguments):
            packer.workspace.publish.ctypes.set_errno(errno.EINVAL)
            return -1

    monkeypatch.setattr(packer.workspace.publish.ctypes, "CDLL", lambda *arguments, **options: Libc)
    finished = folder_with(tmp_path / "finished", "new")
    target = folder_with(tmp_path / "target", "old")
    publish_folder(finished, target)
    assert (names(target), names(finished)) == (["new"], ["old"])
    assert sorted(names(tmp_path)) == ["finished", "target"]


def test_a_name_that_cannot_be_given_is_an_error(tmp_path):
    """A file in the way is neither replaced nor removed."""
    finished = folder_with(tmp_path / "finished", "new")
    (tmp_path / "target").write_text("mine")
    with pytest.raises(NotADirectoryError):
        publish_folder(finished, tmp_path / "target")
    assert (tmp_path / "target").read_text() == "mine"
    assert names(finished) == ["new"]


def test_a_lost_link_is_in_the_way(tmp_path):
    """A link to a disk that is not mounted just now must not be replaced by a folder."""
    (tmp_path / "out.lmdb").symlink_to(tmp_path / "not mounted")
    with pytest.raises(TargetExistsError, match="is not a store"):
        check_target(tmp_path / "out.lmdb", overwrite=True)


def test_lock_files_of_other_clients_do_not_hinder_replacing_a_store(tmp_path, store):
    """py-lmdb leaves them beside a shard when it is opened with its defaults."""
    out = tmp_path / "out.lmdb"
    out.mkdir()
    for entry in store.iterdir():
        os.link(entry, out / entry.name)
    (out / "shard-00000.lmdb-lock").touch()
    check_target(out, overwrite=True)
    (out / "notes").mkdir()
    with pytest.raises(TargetExistsError, match="'notes'"):
        check_target(out, overwrite=True)
