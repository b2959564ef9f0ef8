"""What lies in a cache, under which names.

    /local/packer-shards/
      SHA256.lmdb            a whole copy of a shard, named by its digest
      SHA256.SIZE.partial    one that is being made, or whose maker was killed
      SHA256.damaged         why no copy was made: the shard is not what its manifest says
      STORE.json             path and shards of a store that was staged, by its identity
      STORE.next             numbers of shards, those first that are needed first
      locks                  see `byte_locks.py`

Copies are named by what they hold, so that a store which was built again at the same path is not
taken for the one before, and shards that it kept need no other copy.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from readers.machine import mount_of
from readers.staging.byte_locks import ByteLocks
from readers.store.errors import StoreError
from readers.store.manifest import Manifest, ShardInfo, identity_of

FOLDER_NAME = "packer-shards"

_COPY = re.compile(r"([0-9a-f]{64})\.lmdb")
_PARTIAL = re.compile(r"([0-9a-f]{64})\.([0-9]{1,15})\.partial")
_STORE = re.compile(r"([0-9a-f]{32})\.json")

_LOCAL_FUSE = frozenset({"fuse.fuse-overlayfs", "fuseblk"})
"""Of what FUSE mounts: the root of a container without root, and local disks such as NTFS."""

_KEY_DIGITS = 15
_STORE_KEYS = 2**62

ROOM_KEY = _STORE_KEYS + 2**61
"""Held by whoever makes room."""

_DAMAGE_HOLDS_S = 3600.0
"""A shard that was found damaged is not read again before, by whoever copies next."""


class StagingError(StoreError):
    """Shards cannot be copied to a cache, or not all. Training can go on without."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A file of a cache.

    Attributes:
        sha256: Digest of the shard.
        path: The file.
        bytes: Of the shard, as it is or will be.
        written_bytes: Of the file.
        used_ns: When it was last used; of a partial one, written.
        is_whole: Whether it is a copy, not one in the making.
    """

    sha256: str
    path: Path
    bytes: int
    written_bytes: int
    used_ns: int
    is_whole: bool


@dataclass(frozen=True, kw_only=True)
class StagedStore:
    """A store of which copies were made.

    Attributes:
        identity: Of the store, in hex.
        path: Where it lay.
        shards: Digests of its shards, and their bytes, in order.
    """

    identity: str
    path: str
    shards: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, path: str | Path, manifest: Manifest) -> StagedStore:
        """A store, by its manifest."""
        shards = tuple((info.sha256, info.bytes) for info in manifest.shards)
        return cls(identity=identity_of(manifest).hex(), path=str(path), shards=shards)


def use_key(sha256: str) -> int:
    """The lock that readers of a copy share; see `byte_locks.py`."""
    return 2 * int(sha256[:_KEY_DIGITS], 16)


def copy_key(sha256: str) -> int:
    """The lock that the maker of a copy holds."""
    return use_key(sha256) + 1


def store_key(identity: str) -> int:
    """The lock of the one who copies a store."""
    return _STORE_KEYS + int(identity[:_KEY_DIGITS], 16)


class CacheFolder:
    """The part of a local disk where copies lie.

    Args:
        folder: As the user named it: the copies are in a folder of ours in it.

    Attributes:
        path: That folder.
    """

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder) / FOLDER_NAME

    def check(self) -> None:
        """See that copies there can be used.

        Raises:
            StagingError: It is on a network mount, or somebody else's.
        """
        mount = mount_of(self.path)
        if mount.is_network and mount.type not in _LOCAL_FUSE:
            raise StagingError(
                f"{self.path.parent}: a cache on the network mount {mount.folder} ({mount.type}) "
                "would be as far away as the store; expected a folder on a local disk of this node."
            )
        try:
            owner, above = os.stat(self.path), os.stat(self.path.parent)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StagingError(f"{self.path}: {error.strerror}; expected a folder.") from error
        if not stat.S_ISDIR(owner.st_mode):
            raise StagingError(f"{self.path}: is a file; expected a folder.")
        # In a folder such as /tmp anybody may have been there first, and change what we map.
        if owner.st_uid not in (os.geteuid(), 0, above.st_uid):
            raise StagingError(
                f"{self.path}: belongs to user {owner.st_uid}, not to this one ({os.geteuid()}); "
                "expected a cache of one's own, such as "
                f"{self.path.parent / str(os.geteuid())}."
            )

    def make(self) -> None:
        """Make it, if it is not there, and see that this process can write there.

        Raises:
            StagingError: It cannot; or see `check`.
        """
        self.check()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.locks(may_hold=True).close()
            if not os.access(self.path, os.W_OK | os.X_OK, effective_ids=True):
                raise PermissionError(0, "not writable")
        except OSError as error:
            raise StagingError(
                f"{self.path}: {error.strerror}; expected a folder that this process can write to. "
                "Choose another folder for the cache."
            ) from error

    def locks(self, *, may_hold: bool) -> ByteLocks:
        """The locks of this cache, for one owner. Raises OSError where there are none."""
        return ByteLocks(self.path / "locks", may_hold=may_hold)

    def copy_path(self, sha256: str) -> Path:
        """Of a whole copy."""
        return self.path / f"{sha256}.lmdb"

    def partial_path(self, info: ShardInfo) -> Path:
        """Of one in the making."""
        return self.path / f"{info.sha256}.{info.bytes}.partial"

    def names(self) -> list[str]:
        """Names of all files; none where there is no cache yet."""
        try:
            return os.listdir(self.path)
        except FileNotFoundError:
            return []

    def whole(self) -> set[str]:
        """Digests of all whole copies, by one look at the folder."""
        return {found[1] for name in self.names() if (found := _COPY.fullmatch(name))}

    def entries(self) -> list[Entry]:
        """All copies and those in the making."""
        entries = []
        for name in self.names():
            whole, partial = _COPY.fullmatch(name), _PARTIAL.fullmatch(name)
            named = whole or partial
            if named is None:
                continue
            try:
                found = os.lstat(self.path / name)
            except FileNotFoundError:
                continue  # Removed, or renamed, while we look.
            entries.append(
                Entry(
                    sha256=named[1],
                    path=self.path / name,
                    bytes=int(partial[2]) if partial else found.st_size,
                    written_bytes=found.st_size,
                    used_ns=found.st_mtime_ns,
                    is_whole=partial is None,
                )
            )
        return entries

    def note_used(self, sha256: str) -> None:
        """Take down that a copy is used now, as far as this process may."""
        with contextlib.suppress(OSError):
            os.utime(self.copy_path(sha256))

    def note_damaged(self, sha256: str, reason: str) -> None:
        """Have nobody try again soon."""
        self._write(f"{sha256}.damaged", reason)

    def damage(self, sha256: str) -> str | None:
        """Why no copy was made a short while ago, or None."""
        path = self.path / f"{sha256}.damaged"
        try:
            age_s = time.time() - path.stat().st_mtime
            return path.read_text() if 0 <= age_s < _DAMAGE_HOLDS_S else None
        except OSError:
            return None

    def forget_damage(self, sha256: str) -> None:
        """Have it be tried again."""
        (self.path / f"{sha256}.damaged").unlink(missing_ok=True)

    def note_store(self, store: StagedStore) -> None:
        """Take down which shards a store has, for whoever asks what is in the cache."""
        text = json.dumps({"path": store.path, "shards": store.shards})
        self._write(f"{store.identity}.json", text)

    def stores(self) -> list[StagedStore]:
        """All stores of which copies were made."""
        stores = []
        for name in sorted(self.names()):
            if named := _STORE.fullmatch(name):
                try:
                    facts = json.loads((self.path / name).read_text())
                    shards = tuple((str(digest), int(size)) for digest, size in facts["shards"])
                    store = StagedStore(identity=named[1], path=str(facts["path"]), shards=shards)
                except (OSError, ValueError, KeyError, TypeError):
                    continue  # It says where copies came from, no more.
                stores.append(store)
        return stores

    def forget_store(self, identity: str) -> None:
        """Of a store without copies nothing needs to be known."""
        for suffix in ("json", "next"):
            (self.path / f"{identity}.{suffix}").unlink(missing_ok=True)

    def hint(self, identity: str, numbers: Sequence[int]) -> None:
        """Say which shards of a store are needed first. As far as this process may."""
        with contextlib.suppress(OSError):
            self._write(f"{identity}.next", json.dumps(list(numbers)))

    def hinted(self, identity: str) -> list[int]:
        """Shards of a store in the order in which they are needed, as far as it was said."""
        try:
            numbers = json.loads((self.path / f"{identity}.next").read_text())
        except (OSError, ValueError):
            return []
        is_list = isinstance(numbers, list) and all(type(number) is int for number in numbers)
        return numbers if is_list else []

    def _write(self, name: str, text: str) -> None:
        """Put a small file in place whole; it need not last through a power cut."""
        aside = self.path / f".{name}.{os.getpid()}"
        try:
            aside.write_text(text)
            os.replace(aside, self.path / name)
        finally:
            aside.unlink(missing_ok=True)
