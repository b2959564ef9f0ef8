"""A store into a bucket: built here, uploaded shard by shard, its manifest last.

    LOCAL/photos.lmdb-0f3a.building/      the unfinished build, as beside a folder
      store/                              finished shards; they stay until all are uploaded
      uploaded/shard-00000.lmdb           says what was uploaded, and as what it was found there

The store exists once its manifest does. While one is replaced, its manifest is gone, since its
shards have the names of the new ones: then there is no store, rather than parts of two.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

import msgspec

from packer.errors import BuildError, TargetExistsError
from packer.progress import Progress
from packer.threads import map_threads
from packer.workspace.folder import Workspace
from packer.workspace.step import OnStep, Step
from readers.store.errors import RemoteError, StoreError
from readers.store.layout import MANIFEST_BYTES_MAX, MANIFEST_NAME
from readers.store.manifest import (
    Manifest,
    ShardInfo,
    manifest_bytes,
    says_store,
    write_synced,
)
from readers.store.place import Place, Url
from readers.store.remote import RemoteFile, RemoteFiles, files_of

_PROBE_NAME = ".packer-probe"
_AT_ONCE = 4
"""Shards on their way at once. A large one goes in parts, ten of them at once."""


def workspace_of(out: Place, scratch: str | Path | None) -> Workspace:
    """The workspace of a build: beside its target, or for one at a URL in a folder here.

    Args:
        out: The target.
        scratch: Folder that the user gave. None: the system's temporary folder.

    Raises:
        BuildError: `scratch` is not a folder.
    """
    if not isinstance(out, Url):
        return Workspace.of(out)
    base = Path(tempfile.gettempdir() if scratch is None else scratch).absolute()
    if not base.is_dir():
        raise BuildError(f"--scratch {base}: no such folder. Give one on a local disk.")
    digest = hashlib.sha256(out.text.encode()).hexdigest()[:8]
    return Workspace.of(base / f"{out.name}-{digest}")


@contextlib.contextmanager
def connected(out: Place) -> Iterator[None]:
    """Keep the connection to the server of a target, for all that is asked in the context."""
    kept = files_of(out, writes=True) if isinstance(out, Url) else None
    try:
        yield
    finally:
        del kept


def is_at_url(url: Url) -> bool:
    """Whether there is a store, or another program's manifest.

    Raises:
        RemoteError: The server refuses, fails or does not answer.
    """
    return _manifest_at(files_of(url, writes=True)) is not None


def _manifest_at(files: RemoteFiles) -> bytes | None:
    try:
        return files.read(MANIFEST_NAME, MANIFEST_BYTES_MAX)
    except RemoteError as error:
        if error.is_missing:
            return None
        raise


def check_url(url: Url, *, overwrite: bool) -> None:
    """See that a store may be put at a URL, and that the server takes one, before hours of work.

    Raises:
        TargetExistsError: A store is there, and may not be replaced; or something else is.
        BuildError: Nothing can be uploaded there.
        RemoteError: The server refuses, fails or does not answer.
    """
    files = files_of(url, writes=True)
    if files.is_web:
        raise BuildError(
            f"{url}: a web server takes no uploads. Build to a folder, and copy it to the server."
        )
    found = _manifest_at(files)
    if found is not None and not says_store(found):
        raise TargetExistsError(
            f"{url}: its {MANIFEST_NAME} is not one of a store, so it is left alone. Build to "
            "another URL."
        )
    if found is not None and not overwrite:
        raise TargetExistsError(
            f"{url}: a store is there already. Build to another URL, or replace it with "
            "--overwrite."
        )
    files.put_bytes(b"a file that a build has put here to see that it may\n", _PROBE_NAME)
    with contextlib.suppress(RemoteError):  # Some keys may write and not remove.
        files.remove(_PROBE_NAME)


def publish_at_url(
    workspace: Workspace,
    url: Url,
    manifest: Manifest,
    files: Mapping[str, bytes | Iterable[bytes]],
    on_step: OnStep,
    shows_progress: bool,
) -> None:
    """Upload the finished shards of a workspace, then their manifest; and remove the workspace.

    A call that dies on the way leaves all shards here; the next one uploads those that are not
    there yet.

    Args:
        workspace: With all shards in place.
        url: The target; what `check_url` allows may be there.
        manifest: The store's manifest.
        files: What else lies in the store, by name, whole or in parts.
        on_step: Told of each step as it is done.
        shows_progress: Draw a progress bar.

    Raises:
        RemoteError: The server refuses, fails or does not answer.
    """
    remote = files_of(url, writes=True)
    workspace.keep_only({shard.file for shard in manifest.shards})
    data = manifest_bytes(manifest)
    # What `is_published` compares, should this process die behind the last upload.
    write_synced(workspace.folder / MANIFEST_NAME, data)
    try:
        _upload_all(workspace, remote, manifest, files, shows_progress)
        remote.put_bytes(data, MANIFEST_NAME)
    except RemoteError as error:
        raise RemoteError(
            f"{error} Finished shards are kept here: run the same command once that is mended."
        ) from error
    on_step(Step.MANIFEST_WRITTEN)
    on_step(Step.PUBLISHED)
    workspace.remove()
    on_step(Step.CLEANED)


def _upload_all(
    workspace: Workspace,
    remote: RemoteFiles,
    manifest: Manifest,
    files: Mapping[str, bytes | Iterable[bytes]],
    shows_progress: bool,
) -> None:
    """Have all files of a store there, but for its manifest."""
    surplus = _withdrawn(remote) - {shard.file for shard in manifest.shards}
    there = remote.listing() or {}
    count = len(manifest.shards)
    with Progress(total=count, shows=shows_progress, unit="shards uploaded") as bar:
        upload = partial(_upload, workspace, remote, there)
        for _ in map_threads(upload, manifest.shards, _AT_ONCE):
            bar.add(1)
    for name, content in files.items():
        remote.put_bytes(content if isinstance(content, bytes) else b"".join(content), name)
    for name in sorted(surplus):
        remote.remove(name)


def _withdrawn(remote: RemoteFiles) -> set[str]:
    """Have there be no store any more; the names of its shards."""
    data = _manifest_at(remote)
    if data is None:
        return set()
    remote.remove(MANIFEST_NAME)
    try:
        shards = json.loads(data)["shards"]
        return {msgspec.convert(shard, ShardInfo).file for shard in shards}
    except (ValueError, KeyError, TypeError, StoreError):
        return set()  # Of another version, or damaged: what is not replaced stays beside.


def _upload(
    workspace: Workspace, remote: RemoteFiles, there: Mapping[str, RemoteFile], info: ShardInfo
) -> None:
    """Upload a shard, unless it was by a call that died."""
    note = workspace.folder / "uploaded" / info.file
    found = there.get(info.file)
    if found is not None and _read_note(note) == _note(info, found):
        return
    placed = remote.put(workspace.store / info.file, info.file)
    if placed.size != info.bytes:
        raise RemoteError(
            f"{remote.url / info.file}: {placed.size} bytes are there, expected {info.bytes}. Run "
            "the same command again: finished shards are kept."
        )
    note.parent.mkdir(exist_ok=True)
    write_synced(note, _note(info, placed))


def _note(info: ShardInfo, file: RemoteFile) -> bytes:
    """What was uploaded, and as what it was found at the URL."""
    return json.dumps([info.sha256, file.size, file.version]).encode()


def _read_note(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
