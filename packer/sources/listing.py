"""What lies in folders: names, kinds and sizes, asked for by threads where the server is slow."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from typing import AnyStr, NamedTuple, TypeVar

from packer.slow_storage import THREAD_COUNT, Pace

_AHEAD_MAX = 4 * THREAD_COUNT
"""Folders that are listed ahead at most."""

_AHEAD_NAMES_MAX = 2**17
"""No further folders are listed ahead while so much is held of those that are."""

_ASKED_AHEAD_MAX = 64
"""Files of a folder that its own thread asks about. More are shared out once it is needed."""

_TIMED_COUNT = 8

_BLOCK_ENTRIES = 256
"""About as many come with one call to the system."""

_TOGETHER = 1024
"""Wanted names of a folder that are handed to threads at a time."""

_SHARE_MAX = 16

Entries = list["os.DirEntry[bytes]"]
Status = os.stat_result | OSError

_Job = TypeVar("_Job")


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


class Listed(NamedTuple):
    """What lies in a folder, each part sorted by the bytes of its names.

    Attributes:
        names: Of what is to be asked for its status, whatever it is. Of many files, names alone
            take a quarter of what entries do.
        entries: All else.
        asked: The status of the first names, as far as it was asked for ahead.
    """

    names: list[bytes]
    entries: Entries
    asked: list[Status]


class FolderLister:
    """Lists folders, one after the other; close it, or leave its context, when all are listed.

    Each folder costs one listing, each of the wanted names one stat, and an entry at most one call,
    where the listing does not say whether it is a folder. Once the server was seen to be slow,
    many calls wait at once.

    Args:
        root: Folder that all paths are relative to.
        wants_status: Whether the status of what has a name will be asked for. None wants no status
            of anything, folders included.
    """

    def __init__(self, root: bytes, *, wants_status: Callable[[bytes], bool] | None = None) -> None:
        self._root = root
        self._wants_status = wants_status
        self._pace = Pace()
        self._pool: ThreadPoolExecutor | None = None
        self._coming: dict[bytes, Future[Listed]] = {}

    def __enter__(self) -> FolderLister:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the threads. Those that wait for a server that is gone are not waited for."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def listed(self, path: bytes) -> Listed:
        """What lies in a folder.

        Its entries answer `is_dir`, and where they are folders or links `stat`, without another
        round trip, once the server was seen to be slow.

        Raises:
            OSError: It cannot be listed.
        """
        coming = self._coming.pop(path, None)
        if self._pool is not None:
            found = coming.result() if coming else self._listed(path)
            asked_count = min(len(found.entries), _ASKED_AHEAD_MAX) if coming else 0
            self._ask_all(found.entries[asked_count:])
            return found
        started = time.monotonic()
        found = self._listed(path)
        count = len(found.names) + len(found.entries)
        self._pace.add((time.monotonic() - started) / (1 + count // _BLOCK_ENTRIES))
        for entry in found.entries[:_TIMED_COUNT]:
            started = time.monotonic()
            self._ask(entry)
            self._pace.add(time.monotonic() - started)
        self._start_if_slow()
        self._ask_all(found.entries[_TIMED_COUNT:])
        return found

    def entries(self, path: bytes) -> Entries:
        """What lies in a folder, where no status is wanted.

        Raises:
            OSError: It cannot be listed.
        """
        return self.listed(path).entries

    def statuses(self, path: bytes, listed: Listed) -> Iterator[list[Status]]:
        """The status of each of the wanted names of a folder, links followed, many at a time.

        Args:
            path: The folder.
            listed: What lies in it.

        Yields:
            The status of the next names, or the error that there is in place of it.
        """
        names, first = listed.names, len(listed.asked)
        yield listed.asked
        folder = os.path.join(self._root, path, b"")
        if self._pool is None:
            timed = []
            for name in names[first : first + _TIMED_COUNT]:
                started = time.monotonic()
                timed += self._statuses([folder + name])
                self._pace.add(time.monotonic() - started)
            yield timed
            first += _TIMED_COUNT
            self._start_if_slow()
        # Some at a time: the statuses of all files of a folder would take a kilobyte each.
        for at in range(first, len(names), _TOGETHER):
            together = [folder + name for name in names[at : at + _TOGETHER]]
            if self._pool is None:
                yield self._statuses(together)
            else:
                yield from self._pool.map(self._statuses, _shares(together))

    def ahead(self, paths: Iterable[bytes]) -> None:
        """Have folders listed that will be asked for next, where the server is slow."""
        if self._pool is None:
            return
        room = _AHEAD_NAMES_MAX - sum(map(_held_count, self._coming.values()))
        for path in islice(paths, _AHEAD_MAX if room > 0 else 0):
            if path not in self._coming and len(self._coming) < _AHEAD_MAX:
                self._coming[path] = self._pool.submit(self._listed_and_asked, path)

    def _start_if_slow(self) -> None:
        if self._pool is None and self._pace.is_slow:
            self._pool = ThreadPoolExecutor(THREAD_COUNT, thread_name_prefix="list-ahead")

    def _ask_all(self, entries: Entries) -> None:
        if self._pool is not None:
            for _ in self._pool.map(self._ask_share, _shares(entries)):
                pass

    def _listed(self, path: bytes) -> Listed:
        # Sorted, since the order of a directory differs between machines.
        wants_status = self._wants_status
        names: list[bytes] = []
        with os.scandir(os.path.join(self._root, path)) as listing:
            if wants_status is None:
                entries = list(listing)
            else:
                entries = []
                for entry in listing:
                    if wants_status(entry.name):
                        names.append(entry.name)
                    else:
                        entries.append(entry)
        names.sort()
        entries.sort(key=_entry_name)
        return Listed(names, entries, [])

    def _listed_and_asked(self, path: bytes) -> Listed:
        found = self._listed(path)
        for entry in found.entries[:_ASKED_AHEAD_MAX]:
            self._ask(entry)
        folder = os.path.join(self._root, path, b"")
        names = found.names[: max(0, _ASKED_AHEAD_MAX - len(found.entries))]
        found.asked.extend(self._statuses([folder + name for name in names]))
        return found

    def _ask_share(self, entries: Sequence[os.DirEntry[bytes]]) -> None:
        for entry in entries:
            self._ask(entry)

    def _ask(self, entry: os.DirEntry[bytes]) -> None:
        """Ask what will be asked of an entry; it keeps the answer."""
        with suppress(OSError):  # Which is not kept: whoever asks again is told the reason.
            if entry.is_dir() and self._wants_status is not None:
                entry.stat()

    def _statuses(self, paths: Sequence[bytes]) -> list[Status]:
        # One loop, and no call but the one to the system: a scan spends a third of its time here.
        found: list[Status] = []
        add, ask = found.append, os.stat
        for path in paths:
            try:
                add(ask(path))
            except OSError as error:
                add(error)
        return found


def _shares(jobs: Sequence[_Job]) -> Iterator[Sequence[_Job]]:
    """What is handed to a thread at a time: of many little jobs, several.

    Handing one over takes more of a processor than asking for the status of a file.
    """
    size = min(_SHARE_MAX, 1 + len(jobs) // (2 * THREAD_COUNT))
    return (jobs[at : at + size] for at in range(0, len(jobs), size))


def _held_count(coming: Future[Listed]) -> int:
    """How much of a folder that was listed ahead is held."""
    if not coming.done() or coming.cancelled() or coming.exception() is not None:
        return 0
    return len(coming.result().names) + len(coming.result().entries)


def _entry_name(entry: os.DirEntry[bytes]) -> bytes:
    return entry.name
