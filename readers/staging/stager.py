"""All shards of a store, copied by one process of the node.

NOTE [ who copies ]: every process that has a cache for a store is ready to copy it, and the one
that holds the store's lock does. So each byte crosses the network once, whatever the number of
ranks and jobs. The lock ends with its process, also when that is killed: then another one, which
has looked for it once a second, goes on with the partial file.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from readers.staging.byte_locks import ByteLocks
from readers.staging.cache_folder import CacheFolder, StagedStore, copy_key, store_key
from readers.staging.rate_limit import RateLimit
from readers.staging.room import NoRoomError, hold_to_limit, reserve
from readers.staging.settings import CacheSettings
from readers.staging.shard_copy import RecordSource, ShardDamagedError, ShardSource, copy_shard
from readers.store.errors import StoreError
from readers.store.manifest import Manifest, ShardInfo, identity_of
from readers.store.place import Place

LOOK_S = 1.0
"""Between two looks whether others have gone on, or ended."""

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

OpenSource = Callable[[Place, ShardInfo], ShardSource]


@dataclass(frozen=True, kw_only=True)
class StagingReport:
    """What became of the shards of a store.

    Attributes:
        shard_count: Shards of the store.
        staged_count: Those of which there is a copy.
        bytes: Of all shards.
        staged_bytes: Of the copies.
        copied_bytes: Of those that this process made.
        problems: Why others are missing.
        is_room_missing: Whether the limit or the disk is why.
        may_pass: Whether to try again later may help: a shard could not be read.
    """

    shard_count: int
    staged_count: int
    bytes: int
    staged_bytes: int
    copied_bytes: int
    problems: tuple[str, ...]
    is_room_missing: bool
    may_pass: bool

    @property
    def is_whole(self) -> bool:
        """Whether all shards are there."""
        return self.staged_count == self.shard_count


class Stager:
    """Copies the shards of one store into a cache.

    Args:
        path: The store's folder, or its URL.
        manifest: Its manifest.
        settings: The cache.
        open_source: Opens a shard where it lies.

    Attributes:
        order: Says which shards are needed first, by number, whenever it is asked; None: whoever
            else reads the store on this node may have said so in the cache.
    """

    def __init__(
        self,
        path: Place,
        manifest: Manifest,
        settings: CacheSettings,
        open_source: OpenSource = RecordSource.of_shard,
    ) -> None:
        self.folder = CacheFolder(settings.folder)
        self.order: Callable[[], Sequence[int]] | None = None
        self._path = path
        self._settings = settings
        self._open_source = open_source
        self._shards = manifest.shards
        self._manifest = manifest
        self._identity = identity_of(manifest).hex()
        self._digests = {info.sha256 for info in manifest.shards}
        self._problems: dict[str, str] = {}
        self._copied_bytes = 0
        self._is_room_missing = self._may_pass = False

    def run(
        self,
        stop: threading.Event,
        on_bytes: Callable[[int], None] = lambda byte_count: None,
        *,
        tries_damaged: bool = False,
    ) -> StagingReport:
        """Copy what is missing, or wait until another process has: NOTE [ who copies ].

        Args:
            stop: Ends it; what is copied stays.
            on_bytes: Called with bytes as they come to lie in the cache, whoever copies them.
            tries_damaged: Whether shards that were found damaged a short while ago are read again.

        Raises:
            StagingError: The cache cannot be used or written.
        """
        self.folder.make()
        self._problems, self._is_room_missing, self._may_pass = {}, False, False
        if tries_damaged:
            for digest in self._digests:
                self.folder.forget_damage(digest)
        staged_bytes = self.staged_bytes()
        locks = self.folder.locks(may_hold=True)
        try:
            while not stop.is_set() and staged_bytes < self._manifest.shard_bytes:
                if locks.hold(store_key(self._identity)):
                    self._copy_all(locks, stop, on_bytes)
                    break
                self._hint()
                stop.wait(LOOK_S)
                before, staged_bytes = staged_bytes, self.staged_bytes()
                on_bytes(staged_bytes - before)
        finally:
            locks.close()
        return self.report()

    def report(self) -> StagingReport:
        """What is there now."""
        whole = self.folder.whole()
        staged = [info for info in self._shards if info.sha256 in whole]
        return StagingReport(
            shard_count=len(self._shards),
            staged_count=len(staged),
            bytes=self._manifest.shard_bytes,
            staged_bytes=sum(info.bytes for info in staged),
            copied_bytes=self._copied_bytes,
            problems=tuple(self._problems.values()),
            is_room_missing=self._is_room_missing,
            may_pass=self._may_pass,
        )

    def staged_bytes(self) -> int:
        """Bytes of the shards of which there is a copy."""
        whole = self.folder.whole()
        return sum(info.bytes for info in self._shards if info.sha256 in whole)

    def _copy_all(
        self, locks: ByteLocks, stop: threading.Event, on_bytes: Callable[[int], None]
    ) -> None:
        self.folder.note_store(StagedStore.of(str(self._path), self._manifest))
        hold_to_limit(self.folder, self._settings.bytes_max)
        rate = RateLimit(self._settings.bytes_per_s_max, stop.wait)
        while not stop.is_set():
            info, others_copy = self._next(locks)
            if info is None:
                if not others_copy:
                    return
                stop.wait(LOOK_S)
                continue
            try:
                if not self._copy(info, rate, stop, on_bytes):
                    return
            finally:
                locks.release(copy_key(info.sha256))

    def _next(self, locks: ByteLocks) -> tuple[ShardInfo | None, bool]:
        """The next shard to copy, its lock held; and whether others copy some at this moment."""
        whole, others_copy = self.folder.whole(), False
        for info in self._in_order():
            if info.sha256 in whole or info.sha256 in self._problems:
                continue
            damage = self.folder.damage(info.sha256)
            if damage is not None:
                self._problems[info.sha256] = damage
            elif not locks.hold(copy_key(info.sha256)):
                others_copy = True
            elif self.folder.copy_path(info.sha256).exists():
                locks.release(copy_key(info.sha256))  # It came in this moment.
            else:
                return info, others_copy
        return None, others_copy

    def _in_order(self) -> Iterator[ShardInfo]:
        """All shards: those first that are needed next, as far as a loader said so."""
        self._hint()
        count = len(self._shards)
        hinted = [n for n in self.folder.hinted(self._identity) if 0 <= n < count]
        for number in dict.fromkeys([*hinted, *range(count)]):
            yield self._shards[number]

    def _hint(self) -> None:
        """Tell whoever copies, this process or another one, what is needed first here."""
        if self.order is None:
            return
        try:
            numbers = self.order()
        except StoreError:
            return  # It could not be found out; training will meet the reason, and tell it.
        if numbers:
            self.folder.hint(self._identity, numbers)

    def _copy(
        self,
        info: ShardInfo,
        rate: RateLimit,
        stop: threading.Event,
        on_bytes: Callable[[int], None],
    ) -> bool:
        """Copy one shard; whether to go on with others."""
        try:
            reserve(
                self.folder,
                info,
                bytes_max=self._settings.bytes_max,
                kept=self._digests,
                wait=stop.wait,
            )
            source = self._open_source(self._path, info)
            try:
                is_done = copy_shard(
                    source, info, self.folder, rate=rate, is_stopped=stop.is_set, on_bytes=on_bytes
                )
            finally:
                source.close()
            self._copied_bytes += info.bytes if is_done else 0
            return is_done
        except ShardDamagedError as error:
            self._problems[info.sha256] = f"{self._path}: {error} {self._path}"
            self.folder.note_damaged(info.sha256, self._problems[info.sha256])
            return True
        except NoRoomError as error:
            self._problems[info.sha256] = str(error)
            self._is_room_missing = True
            return False
        except StoreError as error:
            self._problems[info.sha256] = str(error)
            self._may_pass = True
            return True
        except OSError as error:
            self._problems[info.sha256] = (
                f"{self.folder.path}: {info.file} cannot be copied there: {error.strerror}. Shards "
                "that are not copied are read from where they are."
            )
            if error.errno in _NO_SPACE:
                self._is_room_missing = True
                self.folder.partial_path(info).unlink(missing_ok=True)
            return False
