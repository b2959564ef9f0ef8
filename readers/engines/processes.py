"""Batches from worker processes, through a ring of shared slots.

    main process                                   loader worker (one of several)
    indices of a batch, number of a slot  ──────▶  fills the slot
    places of tensors in the slot         ◀──────  says what is where in it

Pixels never cross: both sides map the slot. A slot is free again when the last tensor over it is
gone (NOTE [ a kept batch is never overwritten ] in buffers.py), so a user who keeps batches makes
the ring longer. A slot takes a descriptor in each process, so the ring has an end: batches beyond
it are copied into memory of the main process alone, as small tensors always are.

The other side is `readers.engines.loader_worker`.
"""

from __future__ import annotations

import multiprocessing
import os
import selectors
import threading
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from multiprocessing import reduction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from readers.engines.crossing import RemoteError as RemoteError
from readers.engines.crossing import rebuilt, resolved
from readers.engines.loader_worker import STARTED, UNGUARDED_STATUS, Filler, Origin, Sealed
from readers.engines.remaking import remade
from readers.engines.slots import Slot, SlotReader, Window, discard_unused
from readers.engines.threads import ENDED
from readers.engines.worker_handle import WorkerDiedError as WorkerDiedError
from readers.engines.worker_handle import WorkerHandle as _Worker
from readers.engines.worker_handle import stop_workers
from readers.engines.worker_start import WorkerStartError as WorkerStartError
from readers.engines.worker_start import (
    calm_start,
    check_start_method,
    in_lasting_thread,
    is_being_imported_by_worker,
    let_go_of_failed_start,
    limit_text,
    signals_held,
    start_method_now,
    start_problem,
    unopened_problem,
)
from readers.machine import KEPT_BATCH_COUNT
from readers.stats import LoaderStats

_LOOK_S = 1.0
"""How long a wait lasts before it is seen whether another thread has closed the engine: if that was
between the last look and the wait, no descriptor is left that could end it."""

_KEPT_COUNT_MAX = 32
"""Slots that a user may hold before batches are copied: with 16 workers there are then 64 of them,
in a main process that may have as few as 128 files open."""


class ProcessEngine:
    """Loader workers of one loader; they live until it ends, over all its epochs.

    They are started by its first run: all of them, or none. It may be pickled and copied at any
    time: the copy has the same settings, and starts workers of its own.

    Args:
        filler: Makes the batches, in the workers.
        worker_count: Processes, at least 1.
        depth: Batches that are being filled or wait to be handed out.
        stats: Told where the workers' time goes.
        seed: Of the workers' global random numbers.
        start_method: "fork", "spawn" or "forkserver". None: see `start_method_now`.
        is_pinned: Whether slots are pinned in this process.

    Raises:
        ValueError: There is no such start method.
    """

    def __init__(
        self,
        filler: Filler,
        worker_count: int,
        depth: int,
        *,
        stats: LoaderStats | None = None,
        seed: int = 0,
        start_method: str | None = None,
        is_pinned: bool = False,
    ) -> None:
        check_start_method(start_method)
        self._filler = filler
        self._worker_count = worker_count
        self._depth = depth
        self._stats = stats or LoaderStats("process", worker_count)
        self._seed = seed
        self._start_method = start_method
        self._is_pinned = is_pinned
        self._forget()

    def _forget(self) -> None:
        """Be as one that has not been started."""
        self._run = 0
        self._owner = -1
        self._workers: list[_Worker] = []
        self._is_amid_message = False
        self._own_locks = _Locks()

    def __reduce__(self) -> tuple[Any, ...]:
        return remade(self)

    def _locks(self) -> _Locks:
        """The locks of this process: a forked child may have copied one that was taken."""
        if self._own_locks.owner != os.getpid():
            self._own_locks = _Locks()
        return self._own_locks

    def _start(self) -> None:
        """Start the workers: once, and again in a forked child, which cannot use its parent's.

        Raises:
            WorkerStartError: One of them could not be started; none is left.
        """
        if is_being_imported_by_worker():
            os._exit(UNGUARDED_STATUS)
        with self._locks().start:
            if self._owner == os.getpid():
                return
            self._owner = os.getpid()
            self._slots: list[Slot] = []
            self._free: deque[int] = deque()
            # Large tensors that are left of each batch that the user holds.
            self._held: dict[int, list[Window]] = {}
            self._workers = []
            self._selector = selectors.DefaultSelector()
            end = threading.Event()
            self._finalizer = weakref.finalize(self, stop_workers, self._workers, end, self._owner)
            self._method = start_method_now(self._start_method)
            try:
                in_lasting_thread(self._start_workers, end)
            except BaseException as error:
                which = f"loader worker {len(self._workers) + 1} of {self._worker_count}"
                self.close()
                let_go_of_failed_start(error)
                if not isinstance(error, Exception):
                    raise
                problem = start_problem(error, self._method, which, _given(self._filler))
                if problem is None:
                    raise
                try:
                    raise problem from error
                finally:
                    del problem  # Else it and this frame would keep each other.

    def _start_workers(self) -> None:
        context = multiprocessing.get_context(self._method)
        sealed = Sealed(self._filler)
        with _without_threads_of_opencv(), calm_start(self._method) as mask:
            for number in range(self._worker_count):
                # A forked child holds copies of our ends, which would keep its siblings from
                # noticing that we are gone.
                ours = [worker.connection.fileno() for worker in self._workers]
                inherited = ours if self._method == "fork" else []
                origin = Origin(os.getpid(), self._method, mask, inherited)
                worker = _Worker(context, number, sealed, self._seed, origin)
                self._workers.append(worker)
                self._selector.register(worker.connection, selectors.EVENT_READ, worker)
                self._selector.register(worker.process.sentinel, selectors.EVENT_READ, worker)

    def batches(
        self, parts: Iterable[NDArray[np.int64]], epoch: int, numbers: Iterator[int] | None = None
    ) -> Iterator[Any]:
        """The batches of an epoch, in order.

        Args:
            parts: The indices of each batch.
            epoch: Its number.
            numbers: Numbers of the batches in the epoch, over all ranks: a worker's global random
                numbers follow from them. None counts from 0.

        Raises:
            WorkerStartError: The workers could not be started. None is left, and the next run tries
                anew.
            WorkerDiedError: A worker died; the message says on which sample.
            RuntimeError: The engine was closed, or another run begun.
            Exception: What a worker raised, as soon as it is known, with `RemoteError` as its
                cause.
        """
        with self._turn():
            self._start()
            self._run += 1  # What an earlier, abandoned run still has on its way is dropped.
            run, free = self._run, self._free
        waiting = iter(parts)
        numbers = count() if numbers is None else numbers
        ready: dict[int, tuple[int, int, Any]] = {}
        sent = handed = 0
        is_exhausted = False
        try:
            while True:
                with self._turn():
                    # Other answers belong to another run, or another process.
                    self._check_goes_on(run)
                    while not is_exhausted and sent - handed < self._depth:
                        indices = next(waiting, None)
                        if indices is None:
                            is_exhausted = True
                            break
                        self._send(run, sent, epoch, next(numbers), indices)
                        sent += 1
                    if handed == sent:
                        return
                    self._receive(run, ready, timeout_s=0)  # An error is known before its turn.
                    while handed not in ready:
                        self._receive(run, ready)
                    batch = self._batch(*ready.pop(handed))
                    self._stats.ready_count += len(ready)
                    handed += 1
                yield batch
                del batch  # So that the slot is free as soon as the user has let go of it.
        finally:
            free.extend(number for number, _, _ in ready.values())

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """One thread at a time: two that read the answers would each lack what the other got."""
        with self._locks().turn:
            try:
                yield
            except BaseException:
                # Interrupted within a message: what follows it could not be understood.
                if self._is_amid_message:
                    self.close()
                raise

    def _check_goes_on(self, run: int) -> None:
        if self._run != run or self._owner != os.getpid():
            raise RuntimeError(ENDED)

    def _send(
        self, run: int, turn: int, epoch: int, number: int, indices: NDArray[np.int64]
    ) -> None:
        worker = min(self._workers, key=lambda worker: worker.task_count)
        try:
            if not self._free:
                self._discard_unused()
                with signals_held():
                    self._slots.append(Slot.make(is_pinned=self._is_pinned))
                self._free.append(len(self._slots) - 1)
            slot_number = self._free.pop()
            self._is_amid_message = True
            worker.send((run, turn, epoch, number), slot_number, self._slots[slot_number], indices)
            self._is_amid_message = False
        except (BrokenPipeError, ConnectionResetError):
            raise self._death(worker) from None
        except OSError as error:
            self._check_goes_on(run)
            raise self._shortage(error) from error

    def _receive(
        self, run: int, ready: dict[int, tuple[int, int, Any]], timeout_s: float | None = None
    ) -> None:
        """Put answers of this run into `ready`: those that are there, or one after a while."""
        try:
            keys = self._selector.select(_LOOK_S if timeout_s is None else timeout_s)
        except (OSError, ValueError):
            self._check_goes_on(run)  # Another thread has closed it.
            raise
        self._check_goes_on(run)
        for key, _ in keys:
            worker = key.data
            if key.fileobj is not worker.connection and not worker.connection.poll():
                raise self._death(worker)
            self._is_amid_message = True
            try:
                its_run, turn, number, measured, answer = worker.connection.recv()
            except (EOFError, OSError):  # The latter when it ended in the middle of an answer.
                self._check_goes_on(run)
                raise self._death(worker) from None
            if its_run == STARTED:
                self._is_amid_message = False
                self._take_start(worker, answer)
                continue
            worker.task_count -= 1
            byte_count, layout, error = reduction.ForkingPickler.loads(answer)
            if its_run == run and error is None:
                ready[turn] = number, byte_count, layout
            else:
                self._free.append(number)
            self._is_amid_message = False
            self._stats.add_watch(*measured)
            if its_run == run and error is not None:
                raise rebuilt(*error)

    def _take_start(self, worker: _Worker, problem: bytes | None) -> None:
        """A worker says that it has started, or why it could not."""
        worker.is_started = True
        if problem is not None:
            self.close()
            error = rebuilt(*reduction.ForkingPickler.loads(problem))
            raise unopened_problem(error, self._method) from error

    def _batch(self, number: int, byte_count: int, layout: Any) -> Any:
        try:
            memory = self._slots[number].memory(byte_count)
        except OSError as error:
            raise self._shortage(error) from error
        free, held, owner = self._free, self._held, self._owner
        kept_count = self._depth + KEPT_BATCH_COUNT
        is_full = len(held) >= _KEPT_COUNT_MAX
        if is_full:
            self._discard_unused()

        def release() -> None:
            # Slots beyond what a run needs (the user kept batches) give their pages back, and are
            # the last to be used again. Methods of deque and dict are atomic: see BufferPool.
            if os.getpid() != owner:
                return  # A forked child's copy is gone: the parent's may be in use.
            held.pop(number, None)
            if len(free) < kept_count:
                free.append(number)
            else:
                memory.discard()
                free.appendleft(number)

        reader = SlotReader(memory, release, is_pinned=self._is_pinned, copies=is_full)
        held[number] = reader.windows
        return resolved(layout, reader)

    def _discard_unused(self) -> None:
        """Give back what the user let go of in batches that he holds in part, masks for example."""
        for number, slot in enumerate(self._slots):
            windows = self._held.get(number)
            if windows:
                discard_unused(slot.memory(1), windows)

    def _death(self, worker: _Worker) -> WorkerDiedError | WorkerStartError:
        error = worker.death(self._method)
        self.close()
        return error

    def _shortage(self, error: OSError) -> OSError:
        """The error of memory that batches are to cross in and that cannot be had."""
        self.close()
        limit = limit_text(error, "process") or "see the cause"
        return OSError(error.errno, f"{error.strerror}: no memory for one more batch: {limit}")

    def close(self) -> None:
        """End the workers. The next run starts new ones."""
        with self._locks().start:
            if self._owner == os.getpid():
                self._run += 1  # First: a run in another thread wakes up when its workers end.
                self._finalizer()
                self._selector.close()
                self._slots.clear()  # Batches that the user holds keep theirs mapped.
            self._owner = -1
            self._is_amid_message = False


class _Locks:
    """Locks of an engine in one process.

    Attributes:
        owner: The process.
        turn: For a step of a run, which may wait for a batch.
        start: For starting and closing, which wait for nobody. It is taken after `turn`, if both.
    """

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.turn = threading.RLock()
        self.start = threading.RLock()


def _given(filler: Filler) -> dict[str, Any]:
    """What a filler was made of, by the names that `make_loader` has for it."""
    names = {"_collate": "collate_fn"}
    return {names.get(name, name.lstrip("_")): part for name, part in vars(filler).items()}


@contextmanager
def _without_threads_of_opencv() -> Iterator[None]:
    """Have OpenCV end the threads that it keeps, for the time of a fork.

    A forked child has none of them, and OpenCV there waits for them to end as soon as it is told to
    use one thread: for ever, where another thread got the memory of one.
    """
    import cv2

    count = cv2.getNumThreads()
    cv2.setNumThreads(1)
    try:
        yield
    finally:
        cv2.setNumThreads(count)
