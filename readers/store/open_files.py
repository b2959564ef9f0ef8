"""Open files of shards: few at a time, opened anew when they are needed again or have failed.

A file that is opened anew must be the one that was opened at first: of the same size, and the same
inode or at least the same time of change (some network file systems number inodes as they please).

While one is opened, which may take as long as a server is away, others are read and opened: the
lock of all is held for nothing that asks a server.

NOTE [ a descriptor changes under its readers ]: a file that failed is put in the place of the old
one by dup2(2), which is atomic. So whoever reads by its number goes on with the new one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import stat
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from readers.store.errors import ShardError
from readers.store.numbered_locks import NumberedLocks
from readers.store.place import Place

_SHARE = 4
_COUNT_MAX = 1024
_OPEN_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(kw_only=True, slots=True)
class _File:
    """One file; its descriptor is None while it is closed."""

    path: Place
    size: int
    inode: tuple[int, int]
    changed_ns: int
    descriptor: int | None
    advice: int = os.POSIX_FADV_NORMAL
    user_count: int = 0


class OpenFiles:
    """Files by number. Any thread may borrow; a forked child goes on with its parent's.

    Args:
        limit: Descriptors kept open, as far as nobody is using them. None: a fourth of what the
            process may have (`ulimit -n`), at most 1024.
    """

    def __init__(self, limit: int | None = None) -> None:
        if limit is None:
            most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            limit = _COUNT_MAX if most < 0 else max(1, min(_COUNT_MAX, most // _SHARE))
        self._limit = limit
        # Those that are open, the one that was used last at the end.
        self._open: OrderedDict[int, _File] = OrderedDict()
        self._files: dict[int, _File] = {}
        self._closed = weakref.finalize(self, _close_all, self._files)

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return not self._closed.alive

    def add(
        self, number: int, path: Place, descriptor: int, found: os.stat_result | None = None
    ) -> int:
        """Take a file in, by a descriptor of our own. Its size is returned."""
        found = os.fstat(descriptor) if found is None else found
        own = os.dup(descriptor)
        file = _File(
            path=path,
            size=found.st_size,
            inode=(found.st_dev, found.st_ino),
            changed_ns=found.st_mtime_ns,
            descriptor=own,
        )
        with _lock:
            self._files[number] = self._open[number] = file
            idle = self._idle()
        for one in idle:
            _close(one)
        return found.st_size

    @contextmanager
    def borrow(self, number: int) -> Iterator[int]:
        """A descriptor that stays open inside of the context.

        Raises:
            KeyError: There is no such file.
            OSError: It cannot be opened now.
            ShardError: It is another file by now.
        """
        file = self._files[number]
        descriptor = self._used(number, file)
        if descriptor is None:
            with _opening.of(self, number):
                descriptor = self._used(number, file)
                if descriptor is None:
                    new = _open(file)
                    with _lock:
                        self._open[number] = file
                        file.descriptor = descriptor = new
                        file.user_count += 1
        try:
            yield descriptor
        finally:
            with _lock:
                file.user_count -= 1
                idle = self._idle()
            for one in idle:
                _close(one)

    def _used(self, number: int, file: _File) -> int | None:
        """The descriptor of a file, which from now on is used; None if it is closed."""
        with _lock:
            if file.descriptor is not None:
                self._open.move_to_end(number)
                file.user_count += 1
            return file.descriptor

    def read_into(self, number: int, into: list[memoryview], offset: int) -> int:
        """Read once: preadv(2). Raises as `borrow` does."""
        with self.borrow(number) as descriptor:
            return os.preadv(descriptor, into, offset)

    def size_now(self, number: int) -> int:
        """Bytes that the file has now. Raises as `borrow` does."""
        with self.borrow(number) as descriptor:
            return os.fstat(descriptor).st_size

    def renew(self, number: int) -> None:
        """Open a file anew that has failed. Raises as `borrow` does."""
        file = self._files[number]
        with _opening.of(self, number):
            if file.descriptor is None:
                return
            new = _open(file)
            with _lock:
                if file.descriptor is not None:
                    # NOTE [ a descriptor changes under its readers ].
                    os.dup2(new, file.descriptor, inheritable=False)
            _close(new)

    def advise(self, number: int, advice: int) -> None:
        """How the file will be read from now on: posix_fadvise(2)."""
        with self.borrow(number) as descriptor:
            self._files[number].advice = advice
            os.posix_fadvise(descriptor, 0, 0, advice)

    def _idle(self) -> list[int]:
        """Descriptors to be closed: of those that were not used for longest, down to the limit."""
        if len(self._open) <= self._limit:
            return []
        idle = [number for number, file in self._open.items() if not file.user_count]
        descriptors = []
        for number in idle[: len(self._open) - self._limit]:
            file = self._open.pop(number)
            if file.descriptor is not None:
                descriptors.append(file.descriptor)
                file.descriptor = None
        return descriptors

    def close(self) -> None:
        """Close them all; nobody may be reading."""
        self._closed()
        self._open.clear()


def _open(file: _File) -> int:
    """A descriptor of a file that was open before, and is the same."""
    try:
        descriptor = os.open(str(file.path), _OPEN_FLAGS)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise ShardError.at(
                file.path, f"{error.strerror}; raise the limit of open files: ulimit -n"
            ) from error
        raise
    try:
        found = os.fstat(descriptor)
        is_same = stat.S_ISREG(found.st_mode) and found.st_size == file.size
        is_same &= (
            found.st_dev,
            found.st_ino,
        ) == file.inode or found.st_mtime_ns == file.changed_ns
        if not is_same:
            raise ShardError.at(
                file.path,
                f"is another file than the one that was opened at first: {found.st_size} bytes, "
                f"expected {file.size}, inode {found.st_ino}, expected {file.inode[1]}. It was cut "
                "short or replaced; open the store again, or copy it again.",
            )
        os.posix_fadvise(descriptor, 0, 0, file.advice)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _close_all(files: dict[int, _File]) -> None:
    while files:
        descriptor = files.popitem()[1].descriptor
        if descriptor is not None:
            _close(descriptor)


def _close(descriptor: int) -> None:
    """Let go of a file. Of one that was only read, a server that is gone is no matter by now."""
    with contextlib.suppress(OSError):
        os.close(descriptor)


def _make_lock() -> None:
    """A forked child has none of the threads that might hold its parent's lock."""
    global _lock
    _lock = threading.Lock()


_opening = NumberedLocks()
_lock = threading.Lock()
os.register_at_fork(after_in_child=_make_lock)
