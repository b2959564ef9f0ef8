"""What lies in folders: names, kinds and sizes, asked for by threads where the server is slow."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from typing import AnyStr

from packer.slow_storage import THREAD_COUNT, Pace

_AHEAD_MAX = 4 * THREAD_COUNT
"""Folders that are listed ahead at most."""

_ASKED_AHEAD_MAX = 64
"""Entries of a folder that its own thread asks about. More are shared out once it is needed."""

_TIMED_COUNT = 8

_BLOCK_ENTRIES = 256
"""About as many come with one call to the system."""

Entries = list["os.DirEntry[bytes]"]


def is_folder(entry: os.DirEntry[AnyStr]) -> bool:
    """Whether an entry is a folder, or a link to one. False for a link that leads in a circle."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def is_regular_file(entry: os.DirEntry[AnyStr]) -> bool:
    """Whether an entry is a file, or a link to one. False for a link that leads in a circle."""
    try:
        return entry.is_file()
    except OSError:
        return False


def is_special(entry: os.DirEntry[AnyStr]) -> bool:
    """Whether an entry is a pipe, a socket or a device, or a link to one.

    To open a pipe that nobody writes to takes for ever.
    """
    if is_regular_file(entry) or is_folder(entry):
        return False
    try:
        mode = os.stat(entry.path).st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


class FolderLister:
    """Lists folders, one after the other; close it, or leave its context, when all are listed.

    The entries that it gives answer `is_dir`, and `stat` where that was asked for, without another
    round trip, once the server was seen to be slow.

    Args:
        root: Folder that all paths are relative to.
        wants_stat: Whether `stat` will be asked of entries that are no folders.
    """

    def __init__(self, root: bytes, *, wants_stat: bool) -> None:
        self._root = root
        self._wants_stat = wants_stat
        self._pace = Pace()
        self._pool: ThreadPoolExecutor | None = None
        self._coming: dict[bytes, Future[Entries]] = {}

    def __enter__(self) -> FolderLister:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the threads. Those that wait for a server that is gone are not waited for."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def entries(self, path: bytes) -> Entries:
        """What lies in a folder, sorted by the bytes of its names.

        Raises:
            OSError: It cannot be listed.
        """
        coming = self._coming.pop(path, None)
        if self._pool is not None:
            entries = coming.result() if coming else self._listed(path)
            asked_count = min(len(entries), _ASKED_AHEAD_MAX) if coming else 0
            for _ in self._pool.map(self._ask, entries[asked_count:]):
                pass
            return entries
        started = time.monotonic()
        entries = self._listed(path)
        self._pace.add((time.monotonic() - started) / (1 + len(entries) // _BLOCK_ENTRIES))
        for entry in entries[:_TIMED_COUNT]:
            started = time.monotonic()
            self._ask(entry)
            self._pace.add(time.monotonic() - started)
        if self._pace.is_slow:
            self._pool = ThreadPoolExecutor(THREAD_COUNT, thread_name_prefix="list-ahead")
            for _ in self._pool.map(self._ask, entries[_TIMED_COUNT:]):
                pass
        return entries

    def ahead(self, paths: Iterable[bytes]) -> None:
        """Have folders listed that will be asked for next, where the server is slow."""
        if self._pool is None:
            return
        for path in islice(paths, _AHEAD_MAX):
            if path not in self._coming and len(self._coming) < _AHEAD_MAX:
                self._coming[path] = self._pool.submit(self._listed_and_asked, path)

    def _listed(self, path: bytes) -> Entries:
        # Sorted, since the order of a directory differs between machines.
        with os.scandir(os.path.join(self._root, path)) as listing:
            return sorted(listing, key=_entry_name)

    def _listed_and_asked(self, path: bytes) -> Entries:
        entries = self._listed(path)
        for entry in entries[:_ASKED_AHEAD_MAX]:
            self._ask(entry)
        return entries

    def _ask(self, entry: os.DirEntry[bytes]) -> None:
        """Ask what will be asked of an entry; it keeps the answer."""
        with suppress(OSError):  # Which is not kept: whoever asks again is told the reason.
            if not entry.is_dir() and self._wants_stat:
                entry.stat()


def _entry_name(entry: os.DirEntry[bytes]) -> bytes:
    return entry.name
