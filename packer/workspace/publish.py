"""The moment at which a store appears under its name, whole."""

from __future__ import annotations

import ctypes
import errno
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from packer.errors import TargetExistsError
from packer.wording import names_text
from packer.workspace.folder import Workspace
from packer.workspace.step import OnStep, Step, untold
from packer.workspace.upload import check_url, is_at_url, publish_at_url
from readers.store.layout import MANIFEST_NAME, REJECTS_NAME, UPDATE_CACHE_NAME
from readers.store.manifest import (
    Manifest,
    manifest_bytes,
    publish_manifest,
    says_store,
    sync_folder,
    write_synced,
)
from readers.store.place import Place, Url

# Other LMDB clients leave lock files beside the shards.
_STORE_FILE = re.compile(
    "|".join((*map(re.escape, (MANIFEST_NAME, REJECTS_NAME, UPDATE_CACHE_NAME)), "shard-.*"))
)

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2  # renameat2(2)


def is_taken(target: Place) -> bool:
    """Whether something is at the target. Raises RemoteError."""
    return is_at_url(target) if isinstance(target, Url) else os.path.lexists(target)


def check_target(target: Place, *, overwrite: bool, raw: Path | None = None) -> None:
    """See that a store may be published at `target`.

    Args:
        target: Where the store is to be.
        overwrite: Whether it may take the place of another.
        raw: What it is to be made of; None where that is stores.

    Raises:
        TargetExistsError: Something is there that may not be replaced.
        BuildError: Nothing can be uploaded to the URL.
        RemoteError: Its server refuses, fails or does not answer.
    """
    if isinstance(target, Url):
        check_url(target, overwrite=overwrite)
        return
    if not os.path.lexists(target):
        return
    if target.is_dir() and not any(target.iterdir()):
        return
    if not _is_store(target):
        raise TargetExistsError(
            f"{target}: it exists and is not a store, so it is left alone.{_swapped_text(raw)} "
            "Build to another path."
        )
    if not overwrite:
        raise TargetExistsError(
            f"{target}: a store is there already. Build to another path, or replace it with "
            "--overwrite."
        )
    others = sorted(e.name for e in target.iterdir() if not _STORE_FILE.fullmatch(e.name))
    if others:
        raise TargetExistsError(
            f"{target}: beside a store it holds {names_text(others)}, which --overwrite would "
            "remove. Move that away, or build to another path."
        )


def _swapped_text(raw: Path | None) -> str:
    """A question where the raw data is what only a target can be: a store, or nothing yet."""
    if raw is None or (raw.exists() and not _is_store(raw)):
        return ""
    found = "is a store" if raw.exists() else "is not there"
    return f" RAW, {raw}, {found}: are RAW and OUT swapped?"


def _is_store(target: Path) -> bool:
    """Whether its manifest says so, in any version: other programs have a manifest.json as well."""
    try:
        return says_store((target / MANIFEST_NAME).read_bytes())
    except OSError:
        return False


def publish(
    workspace: Workspace,
    out: Place,
    manifest: Manifest,
    files: Mapping[str, bytes | Iterable[bytes]],
    on_step: OnStep = untold,
    shows_progress: bool = False,
) -> None:
    """Make a store of the finished shards of a workspace, and remove the workspace.

    In this order, so that a call that dies between two steps is recognised by the next one: what
    lies beside the shards, the manifest in the workspace (`is_published` compares it), the manifest
    beside the shards, the name of the store.

    Args:
        workspace: Of the store at `out`, with all shards in place.
        out: The target; what `check_target` allows may be there.
        manifest: The store's manifest.
        files: What else lies in the store, by name, whole or in parts: the reject list, the update
            cache.
        on_step: Told of each step as it is done.
        shows_progress: Draw a progress bar of an upload.
    """
    if isinstance(out, Url):
        publish_at_url(workspace, out, manifest, files, on_step, shows_progress)
        return
    workspace.keep_only({shard.file for shard in manifest.shards})
    for name, data in files.items():
        write_synced(workspace.store / name, data)
    write_synced(workspace.folder / MANIFEST_NAME, manifest_bytes(manifest))
    publish_manifest(workspace.store, manifest)
    on_step(Step.MANIFEST_WRITTEN)
    publish_folder(workspace.store, out)
    on_step(Step.PUBLISHED)
    workspace.remove()
    on_step(Step.CLEANED)


def publish_folder(finished: Path, target: Path) -> None:
    """Give a finished store its name, in one step.

    A store that stood there before is in the place of `finished` afterwards. Whoever has it open
    goes on reading what is mapped.
    """
    try:
        os.rename(finished, target)  # Nothing there, or an empty folder.
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        _exchange(finished, target)
    sync_folder(target.parent)
    sync_folder(finished.parent)


def _exchange(a: Path, b: Path) -> None:
    """Swap two folders: atomically where the file system can, else with a moment without `b`."""
    libc = ctypes.CDLL(None, use_errno=True)
    if hasattr(libc, "renameat2"):
        paths = os.fsencode(a), os.fsencode(b)
        if libc.renameat2(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE) == 0:
            return
        code = ctypes.get_errno()
        # What NFS and some FUSE file systems answer.
        if code not in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
            raise OSError(code, os.strerror(code), str(b))
    aside = a.with_name(a.name + ".replaced")
    os.rename(b, aside)
    os.rename(a, b)
    os.rename(aside, a)
