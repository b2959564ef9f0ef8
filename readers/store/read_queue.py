"""Reads of several requests, by threads: what somebody waits for first, then what is wanted soon.

    fetch    -> Reading, urgent --> front |
                                          | of the queue -> as many threads as `InFlight` says
    announce -> Reading ----------> back  |

A read that is done ahead of need is tried once. If it fails, that is nobody's error yet: whoever
comes for it has it read again, as often as the policy says.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from readers.store.in_flight import InFlight
from readers.store.read_threads import read_threads
from readers.store.record_bytes import ReadFigures

_TURN_S = 0.02
"""After so long a thread hands over to another, which a process that ends no longer lets begin. So
what was to be read ahead does not hold its end up."""


class Reading:
    """The reads of one request.

    Args:
        count: How many.
        read: Does one, by its number; told whether it may be tried again when it fails. Returns
            its bytes.
        is_urgent: Whether somebody waits for it.

    Attributes:
        is_urgent: As given; from now on, when it is set.
        waiting: Numbers of those that were not begun.
        failed: Of those that nobody waited for when they failed.
        errors: Of the others.
        thread_count: Threads that are at one, beside the one that waits.
        figures: What those that have ended took.
    """

    def __init__(self, count: int, read: Callable[[int, bool], int], *, is_urgent: bool) -> None:
        self.is_urgent = is_urgent
        self.waiting = deque(range(count))
        self.failed: list[int] = []
        self.errors: list[BaseException] = []
        self.thread_count = 0
        self.figures = ReadFigures()
        self._read = read

    def taken(self) -> int | None:
        """The number of the next read; whoever takes it does it."""
        try:
            return self.waiting.popleft()
        except IndexError:
            return None

    def one(self, number: int) -> ReadFigures:
        """Do one read."""
        is_urgent, byte_count, begun = self.is_urgent, 0, time.perf_counter()
        try:
            byte_count = self._read(number, is_urgent)
        except BaseException as error:
            if is_urgent:
                self.errors.append(error)
                self.waiting.clear()
            else:
                self.failed.append(number)
        return ReadFigures(1, byte_count, time.perf_counter() - begun)


class ReadQueue:
    """Has the reads of a store done, in this thread and others.

    Args:
        most: Reads under way at once, at most.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.in_flight = InFlight(most)
        self._forget()

    def _forget(self) -> None:
        """Be as one that was never used."""
        self._changed = threading.Condition()
        self._readings: deque[Reading] = deque()
        self._thread_count = 0
        self._threads: ThreadPoolExecutor | None = None
        self._owner = os.getpid()

    def _own(self) -> None:
        """In a forked child, which has none of the threads, begin anew."""
        if self._owner != os.getpid():
            with _beginning:
                if self._owner != os.getpid():
                    self._forget()

    def begin(self, reading: Reading) -> None:
        """Have threads do the reads of a request."""
        self._own()
        with self._changed:
            if reading.is_urgent:
                self._readings.appendleft(reading)
            else:
                self._readings.append(reading)
            self._start_threads()

    def finish(self, reading: Reading) -> None:
        """Wait until all reads are done, and help.

        Raises:
            Exception: What one of them raised; all others have ended.
        """
        reading.is_urgent = True
        try:
            while True:
                number = self._next_of(reading)
                if number is None:
                    break
                self._ended(reading, reading.one(number))
        finally:
            # Interrupted, for example by the user: nobody may write into its memory any more.
            self.drop(reading)
            with self._changed:
                self._changed.wait_for(lambda: not reading.thread_count)
        if reading.errors:
            try:
                raise reading.errors[0]
            finally:
                reading.errors.clear()  # It knows this frame, which would know it.

    def _next_of(self, reading: Reading) -> int | None:
        """The number of a read that this thread is to do, or None when all are done."""
        with self._changed:
            while True:
                if not reading.errors:
                    reading.waiting.extend(reading.failed)
                reading.failed.clear()
                number = reading.taken()
                if number is not None or not reading.thread_count:
                    return number
                self._changed.wait()

    def drop(self, reading: Reading) -> None:
        """Begin no other read of a request. It takes no lock: it may be called at any point."""
        reading.waiting.clear()
        with contextlib.suppress(ValueError):
            self._readings.remove(reading)

    def _start_threads(self) -> None:
        """As many as there are reads to begin and the limit allows."""
        waiting_count = sum(len(reading.waiting) for reading in list(self._readings))
        count = min(self.in_flight.limit - self._thread_count, waiting_count)
        if count > 0 and self._threads is None:
            self._threads = read_threads()
        for _ in range(count):
            self._start_one()

    def _start_one(self) -> None:
        assert self._threads is not None
        try:
            self._threads.submit(self._work)
        except RuntimeError:  # The process is ending: those who wait do it all themselves.
            return
        self._thread_count += 1

    def _work(self) -> None:
        """One read after the other, for a while; then it is another thread's turn."""
        end = time.perf_counter() + _TURN_S
        while True:
            with self._changed:
                is_over = time.perf_counter() > end or self._thread_count > self.in_flight.limit
                taken = None if is_over else self._taken()
                if taken is None:
                    self._thread_count -= 1
                    self._changed.notify_all()
                    self._start_threads()
                    return
                reading, number = taken
                reading.thread_count += 1
            self._ended(reading, reading.one(number), is_thread=True)
            del reading, taken  # Its memory is gone as soon as nobody wants it any more.

    def _taken(self) -> tuple[Reading, int] | None:
        """The next read of the first request that has one."""
        for reading in list(self._readings):
            number = reading.taken()
            if number is not None:
                return reading, number
            self.drop(reading)
        return None

    def _ended(self, reading: Reading, figures: ReadFigures, *, is_thread: bool = False) -> None:
        """A read has ended."""
        with self._changed:
            reading.thread_count -= is_thread
            reading.figures += figures
            if is_thread and not reading.thread_count:
                self._changed.notify_all()
            is_busy = any(one.waiting for one in list(self._readings))
            self.in_flight.done(figures.byte_count, time.perf_counter(), is_busy=is_busy)
            if is_busy:
                self._start_threads()

    def close(self) -> None:
        """Drop all requests, and wait for the reads that are under way."""
        self._own()
        with self._changed:
            for reading in list(self._readings):
                self.drop(reading)
            self._changed.wait_for(lambda: not self._thread_count)
        self._threads = None


def _make_lock() -> None:
    """A forked child has none of the threads that might hold its parent's lock."""
    global _beginning
    _beginning = threading.Lock()


_beginning = threading.Lock()
os.register_at_fork(after_in_child=_make_lock)
