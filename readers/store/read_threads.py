"""Threads that read beside the one that asks: one set for all stores of a process.

They are started when they are first needed, anew in a forked child, and end with the last store
that reads by them. `os.preadv` lets go of the interpreter lock, so that their reads overlap.

Why threads: over a file system of 2 ms a call, on a machine that other work shared, records of
270 kB came 910 to 1,015 a second by 32 of these, and 514 to 937 by 32 threads in C, which no lock
holds up. A read took 340 to 600 us of a core here and 240 to 260 there, most of them for copying.
Reads without threads (io_uring, libaio) were not tried: more of them at once brought no more.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor

THREAD_COUNT = 64
"""Most reads in flight; how many of them there are is found by `in_flight.py`."""


def read_threads() -> ThreadPoolExecutor:
    """The threads of this process. Whoever reads by them keeps what is returned."""
    global _threads
    with _lock:
        threads = None if _threads is None else _threads()
        if threads is None:
            threads = ThreadPoolExecutor(THREAD_COUNT, thread_name_prefix="read")
            _threads = weakref.ref(threads)
        return threads


def for_each(
    threads: ThreadPoolExecutor, function: Callable[[int], None], numbers: Iterable[int]
) -> None:
    """Call a function with each number, in the threads and in this one, until all are done.

    After an error no other call begins; it is raised when those under way have ended, so that
    nobody writes any more into memory that the caller takes back.
    """
    waiting = list(numbers)[::-1]
    errors: list[BaseException] = []

    def work() -> None:
        while not errors:
            try:
                number = waiting.pop()
            except IndexError:
                return
            try:
                function(number)
            except BaseException as error:
                errors.append(error)

    helpers: list[Future[None]] = []
    try:
        for _ in range(min(len(waiting) - 1, THREAD_COUNT)):
            try:
                helpers.append(threads.submit(work))
            except RuntimeError:  # The process is ending: this thread does it all.
                break
        work()
    finally:
        waiting.clear()
        for helper in helpers:
            if not helper.cancel():
                helper.exception()
    if errors:
        try:
            raise errors[0]
        finally:
            errors.clear()  # It knows this frame, which would know it.


def _forget() -> None:
    """A forked child has none of its parent's threads, nor who might hold the lock."""
    global _threads, _lock
    _threads, _lock = None, threading.Lock()


_threads: weakref.ref[ThreadPoolExecutor] | None = None
_lock = threading.Lock()
os.register_at_fork(after_in_child=_forget)
