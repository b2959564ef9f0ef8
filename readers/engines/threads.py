"""Batches from threads of this process, for work that is one native call for many samples."""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from readers.engines.crew import Crew, Task
from readers.engines.remaking import remade
from readers.machine import KEPT_BATCH_COUNT
from readers.nesting import mapped
from readers.reading.batch_reader import Take
from readers.reading.buffers import BufferPool, take_pooled
from readers.stats import LoaderStats, Watch

ENDED = (
    "this iteration is over: its loader was closed or begun anew, or this is a forked child. "
    "Begin another: for batch in loader"
)

_DIRECT_KEPT_COUNT = 2
"""Buffers of a size that a loop without threads keeps: the batch before is often still in use."""


_Filled = tuple[list[Any], Watch]
"""The batches of a group, and where time went."""


class GroupFiller(Protocol):
    """Makes several batches at once; see `readers.reading.filling`."""

    @property
    def ahead_count(self) -> int:
        """Groups that it is good to know of before they are asked for."""

    def expect(self, parts: list[NDArray[np.int64]], epoch: int) -> None:
        """These batches will be asked for."""

    def drop_expected(self) -> None:
        """Nothing that was expected will be asked for."""

    def fill_group(
        self, parts: list[NDArray[np.int64]], epoch: int, take: Any, watch: Watch
    ) -> list[Any]:
        """The batches of several lists of indices."""


class Groups:
    """Groups of batches to fill, of which the filler gets to know some before their turn.

    Args:
        parts: The indices of each batch.
        count: Batches of a group.
        epoch: Their number.
        filler: Fills them.
    """

    def __init__(
        self, parts: Iterable[NDArray[np.int64]], count: int, epoch: int, filler: GroupFiller
    ) -> None:
        self._parts = iter(parts)
        self._count = count
        self._epoch = epoch
        self._filler = filler
        self._ahead_count = filler.ahead_count
        self._coming: deque[list[NDArray[np.int64]]] = deque()

    def next(self) -> list[NDArray[np.int64]]:
        """The next group; empty at the end."""
        if not self._ahead_count:
            return list(islice(self._parts, self._count))
        while len(self._coming) <= self._ahead_count:
            group = list(islice(self._parts, self._count))
            if not group:
                break
            self._filler.expect(group, self._epoch)
            self._coming.append(group)
        return self._coming.popleft() if self._coming else []

    def end(self) -> None:
        """No other will be filled."""
        if self._ahead_count:
            self._filler.drop_expected()


class ThreadEngine:
    """Threads that make batches ahead of the loop that takes them.

    They are started by its first run: all of them, or none. It may be pickled and copied at any
    time: the copy has the same settings, and starts threads of its own.

    Args:
        filler: Makes the batches.
        thread_count: Threads, at least 1.
        depth: Groups of batches that are being filled or wait to be handed out.
        stats: Told where the threads' time goes.
        group_count: Batches that are filled by one call. Small batches are cheaper together.
        is_pinned: Whether their memory is pinned. None: when CUDA is there.
    """

    def __init__(
        self,
        filler: GroupFiller,
        thread_count: int,
        depth: int,
        *,
        stats: LoaderStats | None = None,
        group_count: int = 1,
        is_pinned: bool | None = None,
    ) -> None:
        self._filler = filler
        self._thread_count = thread_count
        self._depth = depth
        self._stats = stats or LoaderStats("thread", thread_count)
        self._group_count = group_count
        self._is_pinned = torch.cuda.is_available() if is_pinned is None else is_pinned
        self._forget()

    def _forget(self) -> None:
        """Be as one that has not been started."""
        self._pools: dict[int, BufferPool] = {}
        self._crew: Crew | None = None
        self._owner = os.getpid()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return remade(self)

    def _started(self) -> Crew:
        """The threads: started once, and once more in a forked child, which has none.

        Raises:
            WorkerStartError: One of them could not be started; none is left.
        """
        if self._owner != os.getpid():
            self._forget()  # A forked child may have copied a lock that was taken.
        with self._lock:
            if self._crew is None:
                torch.get_num_threads()  # Fixes this thread's own number before theirs is set.
                self._crew = Crew(self._thread_count, _use_one_thread)
            return self._crew

    def batches(
        self, parts: Iterable[NDArray[np.int64]], epoch: int, numbers: Iterator[int] | None = None
    ) -> Iterator[Any]:
        """The batches of an epoch, in order.

        Args:
            parts: The indices of each batch.
            epoch: Its number.
            numbers: Of the batches; not used, as threads share the random numbers of the process.

        Raises:
            WorkerStartError: The threads could not be started. None is left, and the next run tries
                anew.
            Exception: What the filler raised, as soon as it is known.
        """
        crew, owner = self._started(), os.getpid()
        waiting = Groups(parts, self._group_count, epoch, self._filler)
        running: deque[Task[_Filled]] = deque()
        try:
            while True:
                self._check_goes_on(crew)
                while len(running) < self._depth:
                    group = waiting.next()
                    if not group:
                        break
                    running.append(Task(partial(self._fill, group, epoch)))
                    crew.give(running[-1])
                if not running:
                    return
                for later in running:
                    later.check()
                batches, watch = running.popleft().result()
                self._stats.add_watch(*watch.measured())
                batches.reverse()
                ready_count = sum([later.is_done for later in running])
                while batches:
                    self._check_goes_on(crew)
                    self._stats.ready_count += ready_count + len(batches) - 1
                    # Handed over, not kept: a buffer is free when the user has let go of it.
                    yield batches.pop()
        finally:
            # A forked child has no thread to give way.
            if owner == os.getpid():
                crew.forget(running)
                waiting.end()

    def _check_goes_on(self, crew: Crew) -> None:
        if self._crew is not crew or self._owner != os.getpid():
            raise RuntimeError(ENDED)

    def _fill(self, parts: list[NDArray[np.int64]], epoch: int) -> _Filled:
        watch = Watch()
        batches = self._filler.fill_group(parts, epoch, self._take, watch)
        if self._is_pinned:
            batches = [_pinned(batch) for batch in batches]
        return batches, watch

    def _take(self, byte_count: int) -> torch.Tensor:
        kept = self._depth + KEPT_BATCH_COUNT
        return take_pooled(self._pools, byte_count, kept_count=kept, is_pinned=self._is_pinned)

    def close(self) -> None:
        """End the threads. The next run starts new ones."""
        if self._owner != os.getpid():
            self._forget()
        with self._lock:
            if self._crew is not None:
                self._crew.dismiss(RuntimeError(ENDED))
            self._crew = None
            self._pools = {}


class DirectEngine:
    """No engine: batches are filled when one is asked for, in the loop itself.

    Args:
        filler: Makes the batches.
        stats: Told where the time goes.
        group_count: Batches that are filled by one call. Small batches are cheaper together.
    """

    def __init__(self, filler: GroupFiller, *, stats: LoaderStats, group_count: int = 1) -> None:
        self._filler = filler
        self._stats = stats
        self._group_count = group_count
        self._pools: dict[int, BufferPool] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return remade(self)

    def _forget(self) -> None:
        """Be as one that has not been run."""
        self._pools = {}

    def batches(
        self, parts: Iterable[NDArray[np.int64]], epoch: int, numbers: Iterator[int] | None = None
    ) -> Iterator[Any]:
        """The batches of an epoch, in order."""
        # Kept from one epoch to the next: fresh memory takes longer than to fill it.
        take = partial(take_pooled, self._pools, kept_count=_DIRECT_KEPT_COUNT, is_pinned=False)
        waiting = Groups(parts, self._group_count, epoch, self._filler)
        try:
            while group := waiting.next():
                try:
                    batches = self._filled(group, epoch, take)
                except Exception:
                    if len(group) == 1:
                        raise
                    batches = []
                if not batches:
                    # One by one: what comes before the error can be had, and it has its place.
                    for part in group:
                        yield self._filled([part], epoch, take).pop()
                batches.reverse()
                while batches:
                    self._stats.ready_count += len(batches) - 1
                    yield batches.pop()
        finally:
            waiting.end()

    def _filled(self, group: list[NDArray[np.int64]], epoch: int, take: Take) -> list[Any]:
        watch = Watch()
        batches = self._filler.fill_group(group, epoch, take, watch)
        self._stats.add_watch(*watch.measured())
        return batches

    def close(self) -> None:
        """Let go of memory that is kept for the next batches."""
        self._forget()


def _pinned(batch: Any) -> Any:
    """A batch whose tensors are pinned: small ones have memory of their own, which is not."""
    if isinstance(batch, torch.Tensor):
        return batch if batch.is_pinned() else batch.pin_memory()
    return mapped(batch, lambda part, _: _pinned(part))


def _use_one_thread() -> None:
    """The threads share out the work between themselves: one inside each native call."""
    torch.set_num_threads(1)
    if "cv2" in sys.modules:
        sys.modules["cv2"].setNumThreads(1)
