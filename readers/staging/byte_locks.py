"""Locks by number, on one file, that end with the process which has them.

NOTE [ who uses a copy ]: each shard has two numbers. Whoever reads its copy shares the one, whoever
makes the copy holds the other. The kernel keeps such a lock for an open file description (fcntl(2),
F_OFD_SETLK): one descriptor has any number of them, a forked child has its parent's until both have
let go, and a process that is killed has none.

NOTE [ who makes a copy ]: its thread runs in one process, which may fork loader workers at any
moment. So locks that nobody shares are let go of by name, and a child closes what it got of them:
should its parent be killed, others are to go on at once.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import weakref
from pathlib import Path

_FLOCK = struct.Struct("@hhqqi4x")
"""struct flock: type, whence, start, length, process."""

_BUSY = frozenset({errno.EAGAIN, errno.EACCES})


class ByteLocks:
    """Locks on the bytes of a file, by their numbers.

    Two objects are two owners, in one process too. Nothing here waits.

    Args:
        path: The file.
        may_hold: Whether locks that nobody shares are asked for: then the file is made when it is
            not there, and must be writable.

    Raises:
        OSError: It cannot be opened.
    """

    def __init__(self, path: Path, *, may_hold: bool) -> None:
        flags = os.O_RDWR | os.O_CREAT if may_hold else os.O_RDONLY
        self._descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        self._closed = weakref.finalize(self, os.close, self._descriptor)
        self._held: set[int] = set()
        if may_hold:
            _holders.add(self)

    def share(self, number: int) -> bool:
        """Have others not hold it. False: one does."""
        return self._set(fcntl.F_RDLCK, number)

    def hold(self, number: int) -> bool:
        """Have it alone. False: others share or hold it."""
        is_held = self._set(fcntl.F_WRLCK, number)
        if is_held:
            self._held.add(number)
        return is_held

    def release(self, number: int) -> None:
        """Let go of one."""
        self._set(fcntl.F_UNLCK, number)
        self._held.discard(number)

    def is_taken(self, number: int) -> bool:
        """Whether others share or hold it."""
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, number, 1, 0)
        found = fcntl.fcntl(self._descriptor, fcntl.F_OFD_GETLK, asked)
        return bool(_FLOCK.unpack(found)[0] != fcntl.F_UNLCK)

    def _set(self, kind: int, number: int) -> bool:
        asked = _FLOCK.pack(kind, os.SEEK_SET, number, 1, 0)
        try:
            fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLK, asked)
        except OSError as error:
            if error.errno in _BUSY:
                return False
            raise
        return True

    def close(self) -> None:
        """Let go of all; of those that are shared, as far as no forked child has them too."""
        if self._closed.alive:
            for number in list(self._held):
                self.release(number)
        self.forget()

    def forget(self) -> None:
        """Close them in a forked child, without letting go of them for its parent."""
        self._closed()
        self._descriptor = -1


def _forget_held() -> None:
    """NOTE [ who makes a copy ]."""
    for locks in list(_holders):
        locks.forget()
    _holders.clear()


_holders: weakref.WeakSet[ByteLocks] = weakref.WeakSet()
os.register_at_fork(after_in_child=_forget_held)
