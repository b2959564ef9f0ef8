"""How shards are read where they are not mapped: how large, how many, how far ahead, how often.

NOTE [ a read that fails ]: network file systems fail for a while: a server is started again, a
path is switched over. Then the file is opened anew, seen to be the same, and read again, after
longer and longer waits. What is no such fault is an error at once.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

_PASSING_FAULTS = frozenset(
    {
        *(errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN, errno.EREMOTEIO),
        *(errno.ENOTCONN, errno.ECONNRESET, errno.ECONNABORTED, errno.ECONNREFUSED),
        *(errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETUNREACH),
        errno.EBADF,
    }
)
"""Errors of a server or the way to it, which may be gone when it is tried again. EBADF is what NFS
4 says of an open file that the server knows no more, after it was started again: opened anew, it
is there, or is seen to be another."""


@dataclass(frozen=True, kw_only=True)
class ReadPolicy:
    """How shards are read where they are not mapped.

    Attributes:
        gap_bytes_max: Parts with no more bytes between them are read together: 64 KiB take 0.6 ms
            at 100 MB/s, which is less than another round trip.
        read_bytes_max: Bytes of one read: in the order of the store, 15 records of 270 kB come by
            one.
        in_flight_max: Reads under way at once, of one store in one process. How many of them there
            are finds itself: more until throughput stops rising.
        ahead_bytes_max: Bytes that are kept of batches to come, of one store in one process. One
            batch is read ahead however large it is.
        retry_count: How often a read that failed is tried again.
        first_wait_s: Wait before the first of them; each other takes `wait_factor` as long.
        wait_factor: See `first_wait_s`. By default the last is 34 s after the first.
    """

    gap_bytes_max: int = 64 * 2**10
    read_bytes_max: int = 4 * 2**20
    in_flight_max: int = 64
    ahead_bytes_max: int = 256 * 2**20
    retry_count: int = 5
    first_wait_s: float = 0.1
    wait_factor: float = 4.0

    def __post_init__(self) -> None:
        least = {"read_bytes_max": 1, "in_flight_max": 1, "wait_factor": 1.0}
        for name, value in vars(self).items():
            if not value >= least.get(name, 0):
                raise ValueError(f"{name} must be at least {least.get(name, 0)}; got {value!r}")

    def wait_s(self, failure_count: int) -> float:
        """How long to wait after so many failures in a row."""
        return self.first_wait_s * self.wait_factor ** (failure_count - 1)


def may_pass(error: OSError) -> bool:
    """Whether a fault may be gone when it is tried again."""
    return error.errno in _PASSING_FAULTS


def tried(act: Callable[[], T], policy: ReadPolicy | None) -> T:
    """What a function returns that asks a disk or server: NOTE [ a read that fails ].

    Args:
        act: Asks it; it may be called several times.
        policy: How often. None: once.

    Raises:
        OSError: The last one, which went on, or the first that does not pass.
    """
    failure_count = 0
    while True:
        try:
            return act()
        except OSError as error:
            failure_count += 1
            if policy is None or failure_count > policy.retry_count or not may_pass(error):
                raise
        time.sleep(policy.wait_s(failure_count))
