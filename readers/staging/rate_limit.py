"""A limit on bytes a second."""

from __future__ import annotations

import time
from collections.abc import Callable

_PIECES_PER_S = 4
_PIECE_BYTES_LEAST = 64 * 2**10


class RateLimit:
    """Has whoever copies wait, so that no more than so many bytes a second are copied.

    Args:
        bytes_per_s: The limit; None: no limit.
        wait: Waits so many seconds, or until there is no more to wait for.
    """

    def __init__(self, bytes_per_s: int | None, wait: Callable[[float], object]) -> None:
        self._bytes_per_s = bytes_per_s
        self._wait = wait
        self._free_at = time.monotonic()

    def piece_bytes(self, most: int) -> int:
        """Bytes to copy at a time: at a low rate no more than a part of a second's."""
        if self._bytes_per_s is None:
            return most
        return max(min(most, self._bytes_per_s // _PIECES_PER_S), _PIECE_BYTES_LEAST)

    def spent(self, byte_count: int) -> None:
        """So many were copied. Time that was not used is not made up for later."""
        if self._bytes_per_s is None:
            return
        now = time.monotonic()
        self._free_at = max(self._free_at, now - 1 / _PIECES_PER_S) + byte_count / self._bytes_per_s
        if self._free_at > now:
            self._wait(self._free_at - now)
