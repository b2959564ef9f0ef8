"""An export that was interrupted goes on, and nothing that is there is ever overwritten."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import packer
from packer.errors import BuildError, BuildMismatchError, TargetBusyError, TargetExistsError
from packer.stores.export import parts
from packer.stores.export.run import ABOUT_NAME, describe_kept
from packer.workspace.folder import Workspace
from packer.workspace.lock import TargetLock
from readers.store.errors import ChecksumError
from readers.store.reader import open_store

_DIES = """
import os, sys
sys.path[:] = {path!r}
import packer
from packer.stores.export import parts
parts._FILE_BYTES = 2**25
left = {left}
def count(done):
    global left
    left -= done
    if left < 0:
        os._exit(9)
packer.export({store!r}, {out!r}, as_={as_!r}, workers=1, shard_bytes_max=2000,
              on_progress=count)
"""


def files_of(folder: Path) -> dict[str, bytes]:
    """All files below a folder but the account of the export, which has the time that it took."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ABOUT_NAME
    }


@pytest.mark.parametrize("as_", ["folder", "tar", "parquet"])
def test_a_killed_export_is_none_and_goes_on(as_, store, tmp_path, monkeypatch):
    """Nothing is at the target; the same call does not write again what was whole."""
    monkeypatch.setattr(parts, "_FILE_BYTES", 2**25)  # Two pictures a part.
    out, whole = tmp_path / "out", tmp_path / "whole"
    code = _DIES.format(path=sys.path, left=7, store=str(store), out=str(out), as_=as_)
    died = subprocess.run([sys.executable, "-c", code], timeout=120, check=False)
    assert died.returncode == 9
    assert not out.exists()
    workspace = Workspace.of(out)
    times = {p: p.stat().st_mtime_ns for p in workspace.store.rglob("*") if p.is_file()}
    finished = len(list((workspace.folder / "reports").iterdir()))
    assert finished >= 2
    packer.export(store, out, as_=as_, workers=1, shard_bytes_max=2000)
    again = {out / p.relative_to(workspace.store): time for p, time in times.items()}
    kept = [p for p, time in again.items() if p.stat().st_mtime_ns == time]
    assert len(kept) >= finished
    assert not workspace.folder.exists()
    packer.export(store, whole, as_=as_, workers=2, shard_bytes_max=2000)
    assert files_of(out) == files_of(whole)


def test_a_file_that_a_power_cut_emptied_is_written_again(store, tmp_path, monkeypatch):
    """A part counts as done when its files have the sizes that they were written with."""
    monkeypatch.setattr(parts, "_FILE_BYTES", 2**26)  # One picture a part.
    out, done = tmp_path / "out", []

    def stop(count: int) -> None:
        done.append(count)
        if len(done) > 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        packer.export(store, out, as_="folder", workers=1, on_progress=stop)
    picture = next(Workspace.of(out).store.rglob("*.png"))
    picture.write_bytes(b"")
    packer.export(store, out, as_="folder")
    packer.export(store, tmp_path / "whole", as_="folder")
    assert files_of(out) == files_of(tmp_path / "whole")


def test_an_export_that_died_before_it_tidied_up_is_finished(store, tmp_path):
    """It has its name already: the call that follows removes what is left, and reports it."""
    out = tmp_path / "out"
    first = packer.export(store, out, as_="folder")
    workspace = Workspace.of(out)
    workspace.folder.mkdir()
    about = msgspec.json.decode((out / ABOUT_NAME).read_bytes())
    (workspace.folder / "plan.json").write_bytes(msgspec.json.encode(about["facts"]))
    before = files_of(out)
    report = packer.export(store, out, as_="folder")
    assert report.sample_count == first.sample_count == 12
    assert files_of(out) == before
    assert not workspace.folder.exists()


def test_what_is_there_is_left_alone(store, tmp_path):
    """A finished export, other files, another unfinished export, one that runs, and the store."""
    out = tmp_path / "out"
    packer.export(store, out, as_="folder")
    before = files_of(out)
    with pytest.raises(TargetExistsError, match="a finished export is there already"):
        packer.export(store, out, as_="folder")
    assert files_of(out) == before
    other = tmp_path / "other"
    other.mkdir()
    (other / "x").write_text("mine")
    with pytest.raises(TargetExistsError, match="it exists, so it is left alone"):
        packer.export(store, other, as_="folder")
    assert (other / "x").read_text() == "mine"
    with pytest.raises(BuildError, match="which it is to be made of"):
        packer.export(store, store / "inside", as_="folder")

    def stop(count: int) -> None:
        raise KeyboardInterrupt

    begun = tmp_path / "begun"
    with pytest.raises(KeyboardInterrupt):
        packer.export(store, begun, as_="folder", on_progress=stop)
    with pytest.raises(BuildMismatchError, match="the layout changed"):
        packer.export(store, begun, as_="tar")
    with TargetLock(Workspace.of(begun), begun), pytest.raises(TargetBusyError):
        packer.export(store, begun, as_="folder")
    packer.export(store, begun, as_="folder")
    assert files_of(begun) == before


def test_what_appears_meanwhile_is_not_replaced(store, tmp_path):
    """Somebody else's folder gets the name first: theirs stays, and ours waits for another call."""
    out = tmp_path / "out"

    def take_name(count: int) -> None:
        out.mkdir(exist_ok=True)
        (out / "x").write_text("theirs")

    with pytest.raises(TargetExistsError):
        packer.export(store, out, as_="folder", on_progress=take_name)
    assert [p.name for p in out.iterdir()] == ["x"]
    os.rename(out, tmp_path / "aside")
    assert packer.export(store, out, as_="folder").sample_count == 12


def test_damage_is_not_handed_on(store, tmp_path):
    """A sample whose bytes changed is named, and there is no export with it."""
    copy = shutil.copytree(store, tmp_path / "copy")
    offset = int(open_store(copy).shard(0).offsets[1])
    with open(copy / "shard-00000.lmdb", "r+b") as stream:
        stream.seek(offset + 500)
        stream.write(b"\xff\x00\xff")
    with pytest.raises(ChecksumError, match="sample 1 of the shard: checksum"):
        packer.export(copy, tmp_path / "out", as_="folder")
    assert not (tmp_path / "out").exists()


def test_a_stopped_export_says_what_it_leaves(store, tmp_path):
    """Before it has begun, on its way, and when it is whole."""
    out = tmp_path / "out"
    assert describe_kept(out).startswith("Nothing was begun")

    def stop(count: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        packer.export(store, out, as_="folder", on_progress=stop)
    assert describe_kept(out) == (
        f"There is no {out} yet; what was finished is kept: run the same command to go on."
    )
    packer.export(store, out, as_="folder")
    assert describe_kept(out) == f"{out} is whole."
