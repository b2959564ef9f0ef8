"""How many reads are under way at once: it finds itself.

A server answers many reads in the time of one, up to some number that depends on it, on the way to
it and on this machine; past it, more reads only wait longer, and cost threads and memory. So the
number climbs: it is changed by a step, and throughput (bytes a second, while there was more to read
than could be begun) says whether the step was right.

    16 reads -> 32: faster, go on.  64: no faster, and no faster again. Go back to 32, try 21: that
    is slower. Stay at 32 for some time; then see what 48 and 21 do now.

A round trip of 2 ms and one of 10 ms need no setting: the number is right when one read more brings
no more bytes, whatever the time of each.
"""

from __future__ import annotations

import os

_FIRST_A_CORE, _FIRST_MAX = 16, 32
"""Reads under way to begin with. One takes about 0.4 ms of a core, so that a core has enough to do
with 16 of a server that answers within 6 ms."""

_LEAST = 4
_FIRST_FACTOR, _FACTOR = 2.0, 1.5

_WINDOW_S = 0.2
"""Time of busy reading that is one measurement, at least; and this many rounds of reads, so that
each read under way has been answered several times."""

_WINDOW_ROUNDS = 4

_RISE = 1.05
"""Throughput that counts as risen. On a busy machine a measurement may be too low by far more, so
that one which says that a step was wrong is repeated."""

_HOLD_WINDOWS = 20
"""Measurements for which a number that was found to be right stays."""


class InFlight:
    """The number of reads under way of one store. Whoever calls holds the lock of its queue.

    Args:
        most: Its limit.

    Attributes:
        limit: The number now.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._least = min(_LEAST, most)
        first = min(_FIRST_MAX, _FIRST_A_CORE * len(os.sched_getaffinity(0)))
        self.limit = min(first, most)
        # Of the measurement under way.
        self._busy_s = 0.0
        self._byte_count = 0
        self._read_count = 0
        self._last: float | None = None
        # The best so far, and the most throughput; where a step leads; wrong ones in a row.
        self._best = self.limit
        self._peak = 0.0
        self._factor = _FIRST_FACTOR
        self._is_rising = True
        self._doubted = 0.0
        self._wrong_count = 0
        self._hold_count = 0

    def done(self, byte_count: int, now: float, *, is_busy: bool) -> None:
        """A read has ended.

        Args:
            byte_count: What it brought.
            now: Of `time.perf_counter`.
            is_busy: Whether more reads wait to be begun. If not, throughput says nothing of us.
        """
        if not is_busy:
            self._last = None
            return
        if self._last is not None:
            self._busy_s += now - self._last
            self._byte_count += byte_count
            self._read_count += 1
        self._last = now
        if self._busy_s >= _WINDOW_S and self._read_count >= _WINDOW_ROUNDS * self.limit:
            rate = self._byte_count / self._busy_s
            self._busy_s, self._byte_count, self._read_count = 0.0, 0, 0
            self._last = None  # Reads that were begun under another limit are answered first.
            self._measured(rate)

    def _measured(self, rate: float) -> None:
        """Take a step, or stay."""
        if self._hold_count:
            # What was the most may be so no more: servers have other guests.
            self._peak += (rate - self._peak) / 4
            self._hold_count -= 1
            if not self._hold_count:
                self._wrong_count = 0
                self._step()
            return
        needed = self._peak * (_RISE if self._is_rising else 1 / _RISE)
        rate, is_first = max(rate, self._doubted), not self._doubted
        if self._peak and rate <= needed and is_first:
            self._doubted = rate
            return
        self._doubted = 0.0
        if self._peak and rate <= needed:
            self._wrong()
        else:
            # More that bring more, or fewer that bring as much: they cost less.
            self._best, self._peak, self._wrong_count = self.limit, max(rate, self._peak), 0
            self._step()

    def _step(self) -> None:
        limit = round(self._best * self._factor if self._is_rising else self._best / _FACTOR)
        limit = max(self._least, min(self._most, limit))
        if limit == self._best:
            self._wrong()
        else:
            self.limit = limit

    def _wrong(self) -> None:
        """Go back to the best, and try the other way, or stay if that was tried as well."""
        self.limit, self._factor = self._best, _FACTOR
        self._is_rising = not self._is_rising
        self._wrong_count += 1
        if self._wrong_count < 2:
            self._step()
        else:
            self._hold_count = _HOLD_WINDOWS
            self._is_rising = True
