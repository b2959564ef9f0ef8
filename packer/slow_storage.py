"""When storage counts as slow, and how many threads wait for it at once.

On a file server each open, stat and read is a round trip, and one thread spends its time waiting.
Several wait at the same time. Where calls return at once (a local disk, the page cache), handing
them over would cost more than it saves, so threads start when calls are seen to be slow.
"""

from __future__ import annotations

THREAD_COUNT = 16
"""Calls at once. At 10 ms a call they read 107 files a second, where one reader gets 13."""

_SLOW_S = 0.001
"""The mean time from which threads pay: handing one call over takes 0.05 ms."""

_WEIGHT = 0.2
_COUNTED_S_MAX = 0.8 * _SLOW_S / _WEIGHT
"""Of the newest call in that mean, and what it counts at most, so that one slow call among quick
ones starts no threads: on a busy machine any call may lose the processor for tens of
milliseconds."""


class Pace:
    """The mean time of calls, the latest counting most."""

    def __init__(self) -> None:
        self._mean_s = 0.0

    def add(self, seconds: float) -> None:
        """Count one more call."""
        self._mean_s += _WEIGHT * (min(seconds, _COUNTED_S_MAX) - self._mean_s)

    @property
    def is_slow(self) -> bool:
        """Whether threads would pay."""
        return self._mean_s > _SLOW_S
