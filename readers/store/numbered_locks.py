"""Locks for files by their number, so that who opens one does not wait for who opens another.

A forked child makes them anew: it has none of the threads that might hold its parent's.
"""

from __future__ import annotations

import os
import threading

_COUNT = 64


class NumberedLocks:
    """As many locks as are good for many more files: two of them rarely share one.

    To be made once, by the module that uses them.
    """

    def __init__(self) -> None:
        self._make()
        os.register_at_fork(after_in_child=self._make)

    def _make(self) -> None:
        self._locks = tuple(threading.Lock() for _ in range(_COUNT))

    def of(self, owner: object, number: int) -> threading.Lock:
        """The lock of a file. Nobody takes two of them at once.

        Args:
            owner: What the file belongs to.
            number: Of the file there.
        """
        return self._locks[(id(owner) // 16 + number) % _COUNT]
