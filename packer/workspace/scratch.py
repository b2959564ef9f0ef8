"""Folders that a build needs while it runs, and leaves nothing of.

They are named after the target, so that a second run finds and clears what a killed one left.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from packer.errors import BuildError
from packer.workspace.folder import Workspace
from readers.machine import mount_of


@contextlib.contextmanager
def scratch_folder(workspace: Workspace, scratch: str | Path | None) -> Iterator[Path]:
    """The folder in which shards are written: it must carry a live LMDB file.

    Args:
        workspace: The build's workspace.
        scratch: Folder that the user gave for it. None takes the workspace's own, or the system's
            temporary folder when that is on a network file system.

    Raises:
        BuildError: `scratch` is not a folder.
    """
    if scratch is None and not mount_of(workspace.folder).is_network:
        yield workspace.scratch
        return
    with _cleared(_base(scratch) / f"packer-{_digest(workspace)}") as folder:
        yield folder


@contextlib.contextmanager
def node_scratch_folder(workspace: Workspace, scratch: str | Path | None) -> Iterator[Path]:
    """The folder in which one of several processes writes shards; see `scratch_folder`.

    Each has its own, and a lock in it for as long as it lives: what a killed one has left on this
    node is removed by the next.
    """
    if scratch is None and not mount_of(workspace.folder).is_network:
        base = workspace.scratch
    else:
        base = _base(scratch)
    prefix = f"packer-{_digest(workspace)}-node-"
    for entry in base.glob(f"{prefix}*"):
        with contextlib.suppress(OSError), open(entry / _HELD, "rb") as left:
            fcntl.flock(left, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(entry, ignore_errors=True)
    folder, held = _held_folder(base, prefix)
    with held:
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _held_folder(base: Path, prefix: str) -> tuple[Path, IO[bytes]]:
    """A new folder, and the open file whose lock says that it is in use."""
    while True:
        folder = base / f"{prefix}{secrets.token_hex(8)}"
        folder.mkdir()
        held = open(folder / _HELD, "wb")  # noqa: SIM115
        fcntl.flock(held, fcntl.LOCK_EX)
        try:
            if os.path.samestat(os.fstat(held.fileno()), os.stat(folder / _HELD)):
                return folder, held
        except FileNotFoundError:
            pass
        held.close()  # Another process took it for one that was left, before it was locked.


_HELD = "held"


@contextlib.contextmanager
def spool_folder(workspace: Workspace, scratch: str | Path | None) -> Iterator[Path]:
    """The folder of images that have no file of their own; see `scratch_folder`."""
    base = spool_base(workspace, scratch)
    with _cleared(base / f".packer-{_digest(workspace)}.spool") as folder:
        yield folder


@contextlib.contextmanager
def member_spool_folder(workspace: Workspace, scratch: str | Path | None) -> Iterator[Path]:
    """The folder of images copied out of files that hold many; see `packer.building.spooling`.

    Most builds need none, so it is not made.
    """
    base = spool_base(workspace, scratch)
    with _cleared(base / f".packer-{_digest(workspace)}.members", makes=False) as folder:
        yield folder


def spool_base(workspace: Workspace, scratch: str | Path | None) -> Path:
    """The folder on a local disk that a spool is made in."""
    beside = workspace.folder.parent
    if scratch is None and beside.is_dir() and not mount_of(beside).is_network:
        return beside
    return _base(scratch)


def _base(scratch: str | Path | None) -> Path:
    if scratch is None:
        return Path(tempfile.gettempdir())
    base = Path(scratch)
    if not base.is_dir():
        raise BuildError(f"--scratch {base}: no such folder. Give one on a local disk.")
    return base


def _digest(workspace: Workspace) -> str:
    return hashlib.sha256(os.fsencode(workspace.folder)).hexdigest()[:16]


@contextlib.contextmanager
def _cleared(folder: Path, *, makes: bool = True) -> Iterator[Path]:
    shutil.rmtree(folder, ignore_errors=True)
    if makes:
        folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
