"""Threads that carry out tasks in order, and are woken only when they had run out of them.

An executor hands each task over by some locks and a call of Python for each: for a task that copies
a megabyte, a tenth of its time. These threads go from one task to the next by themselves, so that
is paid only where they wait for more.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Generic, TypeVar

from readers.engines.worker_start import WorkerStartError, limit_text

T = TypeVar("T")


class Task(Generic[T]):
    """Something to do, and what came of it.

    Args:
        work: Does it.

    Attributes:
        is_done: Whether it was done, or failed.
    """

    __slots__ = ("_error", "_going_on", "_result", "_work", "is_done")

    def __init__(self, work: Callable[[], T]) -> None:
        self._work: Callable[[], T] | None = work
        self._result: T | None = None
        self._error: BaseException | None = None
        self.is_done = False
        # Let go of when it is done.
        self._going_on = threading.Lock()
        self._going_on.acquire()

    def run(self) -> None:
        """Do it, in a thread of a crew."""
        assert self._work is not None
        try:
            self._result = self._work()
        except BaseException as error:
            self._error = error
        self._end()

    def drop(self, error: Exception) -> None:
        """It will not be done: whoever waits for it gets this error."""
        self._error = error
        self._end()

    def _end(self) -> None:
        self._work = None
        self.is_done = True
        self._going_on.release()

    def result(self) -> T:
        """What came of it, once it is there; to be asked for once.

        Raises:
            BaseException: What it raised.
        """
        self._going_on.acquire()
        self.check()
        result, self._result = self._result, None
        return result  # type: ignore[return-value]

    def check(self) -> None:
        """Raise what it raised, if it did by now."""
        error = self._error
        if error is not None:
            try:
                raise error
            finally:
                # The error has this frame, which is not to have the error.
                del error


class Crew:
    """Some threads, and the tasks that wait for them.

    Args:
        count: Threads, at least 1.
        begin: What each of them does first.

    Raises:
        WorkerStartError: One of them could not be started; none is left.
    """

    def __init__(self, count: int, begin: Callable[[], None]) -> None:
        self._executor = _started_threads(count, begin)
        # A deque's append and popleft are atomic.
        self._waiting: deque[Task[Any]] = deque()
        self._lock = threading.Lock()
        self._idle_count = count

    def give(self, task: Task[Any]) -> None:
        """Have a task be done, after those that were given before.

        Raises:
            RuntimeError: The crew was dismissed.
        """
        self._waiting.append(task)
        # NOTE [ no task is left ]: here a task is added before one looks who is idle, and a thread
        # that finds none looks once more before it is idle. Both under the lock: one sees it.
        with self._lock:
            wakes_one = self._idle_count > 0
            self._idle_count -= wakes_one
        if wakes_one:
            self._executor.submit(self._work)

    def _work(self) -> None:
        while True:
            try:
                task = self._waiting.popleft()
            except IndexError:
                with self._lock:  # NOTE [ no task is left ].
                    if self._waiting:
                        continue
                    self._idle_count += 1
                    return
            task.run()

    def forget(self, tasks: Iterable[Task[Any]]) -> None:
        """Do not do these, unless they were begun."""
        for task in tasks:
            with suppress(ValueError):  # Somebody is at it.
                self._waiting.remove(task)

    def dismiss(self, error: Exception) -> None:
        """Do no more: threads end with the task that they are at, and others fail with an error."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        with suppress(IndexError):
            while True:
                self._waiting.popleft().drop(error)


def _started_threads(count: int, begin: Callable[[], None]) -> ThreadPoolExecutor:
    """An executor all of whose threads are there.

    By itself it starts them as it needs them, and might find in mid-run that it cannot.
    """
    executor = ThreadPoolExecutor(count, "loader", initializer=begin)
    go_on, started_count = threading.Event(), 0
    try:
        while started_count < count:
            executor.submit(go_on.wait)
            started_count += 1
    except BaseException as error:
        executor.shutdown(wait=False, cancel_futures=True)
        limit = limit_text(error, "thread") if isinstance(error, Exception) else None
        if limit is None:
            raise
        raise WorkerStartError(
            f"loader thread {started_count + 1} of {count} could not be started: {error}. "
            f"Cause: {limit}"
        ) from error
    finally:
        go_on.set()
    return executor
