"""Batches from worker processes, through a ring of shared slots.

    main process                                   loader worker (one of several)
    indices of a batch, number of a slot  ──────▶  fills the slot
    places of tensors in the slot         ◀──────  says what is where in it

Pixels never cross: both sides map the slot. A slot is free again when the last tensor over it is
gone (NOTE [ a kept batch is never overwritten ] in buffers.py), so a user who keeps batches makes
the ring longer. A slot takes a descriptor in each process, so the ring has an end: batches beyond
it are copied into memory of the main process alone.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import selectors
import signal
import struct
import traceback
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from multiprocessing import reduction
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from readers.buffers import Memory
from readers.slots import Place, Slot, SlotWriter, tensor_at
from readers.stats import LoaderStats, Watch
from readers.thread_engine import ENDED

# Run, turn, epoch, number, slot, how many indices, whether the slot's descriptor follows.
_TASK = struct.Struct("<QQQQQQ?")
_SAMPLE = struct.Struct("<q")
_NO_SAMPLE = -1
_PARENT_CHECK_S = 5.0
_STOP_S = 2.0
_KEPT_COUNT_MAX = 32
"""Slots that a user may hold before batches are copied: with 16 workers there are then 64 of them,
in a main process that may have as few as 128 files open."""


class Filler(Protocol):
    """Makes batches. It pickles small; what it opens, it opens when it is first used."""

    def enter_worker(self) -> None:
        """From now on this is a loader worker."""

    def fill(self, indices: NDArray[np.int64], epoch: int, take: Any, watch: Watch) -> Any:
        """The batch of samples `indices`, its tensors in memory from `take(byte_count)`."""


class WorkerDiedError(RuntimeError):
    """A loader worker ended without a word: killed, out of memory, or crashed in native code."""


class RemoteError(Exception):
    """Where an exception was raised in a loader worker, as text. It is that exception's cause."""

    def __init__(self, text: str) -> None:
        super().__init__(f"in a loader worker:\n{text}")


class ProcessEngine:
    """Loader workers of one loader; they live until it ends, over all its epochs.

    Args:
        filler: Makes the batches, in the workers.
        worker_count: Processes, at least 1.
        depth: Batches that are being filled or wait to be handed out.
        stats: Told where the workers' time goes.
        seed: Of the workers' global random numbers.
        start_method: "fork", "spawn" or "forkserver". None: the platform's.
        is_pinned: Whether slots are pinned in this process.
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
        self._filler = filler
        self._worker_count = worker_count
        self._depth = depth
        self._stats = stats or LoaderStats("process", worker_count)
        self._seed = seed
        self._context: BaseContext = multiprocessing.get_context(start_method)
        self._is_pinned = is_pinned
        self._run = 0
        self._owner = -1

    def _start(self) -> None:
        """Start the workers: once, and again in a forked child, which cannot use its parent's."""
        if self._owner == os.getpid():
            return
        self._owner = os.getpid()
        self._slots: list[Slot] = []
        self._free: deque[int] = deque()
        self._held: set[int] = set()
        self._workers: list[_Worker] = []
        self._selector = selectors.DefaultSelector()
        self._finalizer = weakref.finalize(self, _stop, self._workers, self._owner)
        with _without_threads_of_opencv():
            for number in range(self._worker_count):
                others = [worker.connection.fileno() for worker in self._workers]
                worker = _Worker(self._context, number, self._filler, self._seed, others)
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
            WorkerDiedError: A worker died; the message says on which sample.
            Exception: What a worker raised, as soon as it is known, with `RemoteError` as its
                cause.
        """
        self._start()
        self._run += 1  # What an earlier, abandoned run still has on its way is dropped.
        run = self._run
        waiting = iter(parts)
        numbers = count() if numbers is None else numbers
        ready: dict[int, tuple[int, int, Any]] = {}
        free = self._free
        sent = handed = 0
        is_exhausted = False
        try:
            while True:
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
                # What answers there are from now on belong to another run, or another process.
                if self._run != run or self._owner != os.getpid():
                    raise RuntimeError(ENDED)
        finally:
            free.extend(number for number, _, _ in ready.values())

    def _send(
        self, run: int, turn: int, epoch: int, number: int, indices: NDArray[np.int64]
    ) -> None:
        worker = min(self._workers, key=lambda worker: worker.task_count)
        if not self._free:
            self._slots.append(Slot.make(is_pinned=self._is_pinned))
            self._free.append(len(self._slots) - 1)
        slot_number = self._free.pop()
        try:
            worker.send((run, turn, epoch, number), slot_number, self._slots[slot_number], indices)
        except (BrokenPipeError, ConnectionResetError):
            raise self._death(worker) from None

    def _receive(
        self, run: int, ready: dict[int, tuple[int, int, Any]], timeout_s: float | None = None
    ) -> None:
        """Put the answers of this run that are there into `ready`, waiting for the first."""
        for key, _ in self._selector.select(timeout_s):
            worker = key.data
            if key.fileobj is not worker.connection and not worker.connection.poll():
                raise self._death(worker)
            try:
                its_run, turn, number, measured, answer = worker.connection.recv()
            except (EOFError, OSError):  # The latter when it ended in the middle of an answer.
                raise self._death(worker) from None
            byte_count, layout, error = reduction.ForkingPickler.loads(answer)
            worker.task_count -= 1
            self._stats.add_watch(*measured)
            if its_run != run:
                self._free.append(number)
            elif error is not None:
                self._free.append(number)
                raise _rebuilt(*error)
            else:
                ready[turn] = number, byte_count, layout

    def _batch(self, number: int, byte_count: int, layout: Any) -> Any:
        memory = self._slots[number].memory(byte_count)
        free, held, owner = self._free, self._held, self._owner
        kept_count = self._depth + 2
        if len(held) >= _KEPT_COUNT_MAX:
            own = Memory(byte_count, is_pinned=self._is_pinned)
            own.tensor()[:byte_count].copy_(memory.tensor()[:byte_count])
            free.append(number)
            return _resolve(layout, own.tensor())
        held.add(number)

        def release() -> None:
            # Slots beyond what a run needs (the user kept batches) give their pages back, and are
            # the last to be used again. Methods of deque and set are atomic: see BufferPool.
            if os.getpid() != owner:
                return  # A forked child's copy is gone: the parent's may be in use.
            held.discard(number)
            if len(free) < kept_count:
                free.append(number)
            else:
                memory.discard()
                free.appendleft(number)

        return _resolve(layout, memory.tensor(release))

    def _death(self, worker: _Worker) -> WorkerDiedError:
        text = worker.describe_death()
        self.close()
        return WorkerDiedError(text)

    def close(self) -> None:
        """End the workers. The next run starts new ones."""
        if self._owner == os.getpid():
            self._finalizer()
            self._selector.close()
            self._slots.clear()  # Batches that the user holds keep theirs mapped.
            self._run += 1
        self._owner = -1


class _Worker:
    """One loader worker, as the main process sees it."""

    def __init__(
        self, context: BaseContext, number: int, filler: Filler, seed: int, others: list[int]
    ) -> None:
        self.connection, theirs = context.Pipe()
        self._status = Slot.make()
        self._status_memory = self._status.memory(_SAMPLE.size)
        self._known: set[int] = set()
        self.task_count = 0
        # A forked child holds copies of our ends, which would keep its siblings from noticing that
        # we are gone.
        inherited = [self.connection.fileno(), *others]
        if context.get_start_method() != "fork":
            inherited = []
        self.process: BaseProcess = context.Process(  # type: ignore[attr-defined]
            target=_work,
            args=(theirs, filler, seed, inherited),
            name=f"loader-worker-{number}",
            daemon=True,
        )
        self.process.start()
        theirs.close()
        reduction.send_handle(self.connection, self._status.descriptor, self.process.pid)

    def send(
        self,
        task: tuple[int, int, int, int],
        slot_number: int,
        slot: Slot,
        indices: NDArray[np.int64],
    ) -> None:
        """Have it fill a slot; a task is run, turn, epoch and number of a batch."""
        is_new = slot_number not in self._known
        self._known.add(slot_number)
        self.task_count += 1
        # The indices go through the slot: a message that fits into the pipe for sure never waits
        # for a worker that waits for its own answer to be read.
        os.pwrite(slot.descriptor, indices.tobytes(), 0)
        self.connection.send_bytes(_TASK.pack(*task, slot_number, len(indices), is_new))
        if is_new:
            reduction.send_handle(self.connection, slot.descriptor, self.process.pid)

    def describe_death(self) -> str:
        """What is known of how it ended."""
        self.process.join(_STOP_S)
        status = self.process.exitcode
        if status is not None and status < 0:
            how = f"was killed by {signal.Signals(-status).name}"
        else:
            how = f"left with status {status}"
        index = _SAMPLE.unpack_from(self._status_memory.window())[0]
        where = "" if index == _NO_SAMPLE else f" while it loaded sample {index}"
        return (
            f"loader worker {self.process.pid} {how}{where}. Was it out of memory (fewer workers, "
            "smaller batches), or did native code crash? Load it in this process to see: "
            "make_loader(..., workers=0)"
        )

    def stop(self) -> None:
        """End it, whatever it is doing."""
        self.connection.close()
        self.process.kill()
        self.process.join(_STOP_S)


def _stop(workers: list[_Worker], owner: int) -> None:
    if os.getpid() == owner:
        for worker in workers:
            worker.stop()


class _SharedWatch(Watch):
    """A watch whose sample the main process can see, even when this one is gone."""

    def __init__(self, status: Any) -> None:
        super().__init__()
        self._status = status

    def sample(self, index: int) -> None:
        """The sample at `index` is worked on from now on."""
        _SAMPLE.pack_into(self._status, 0, index)


def _work(connection: Connection, filler: Filler, seed: int, inherited: list[int]) -> None:
    """What a loader worker runs."""
    for descriptor in inherited:
        os.close(descriptor)
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # A Ctrl-C reaches the main process, which decides.
    _use_one_thread()
    parent = os.getppid()
    try:
        status = Slot(reduction.recv_handle(connection)).memory(_SAMPLE.size).window()
    except (EOFError, OSError):
        return
    slots: dict[int, Slot] = {}

    filler.enter_worker()
    _SAMPLE.pack_into(status, 0, _NO_SAMPLE)
    while True:
        try:
            while not connection.poll(_PARENT_CHECK_S):
                if os.getppid() != parent:
                    return
            message = connection.recv_bytes()
            run, turn, epoch, number, slot_number, index_count, is_new = _TASK.unpack(message)
            if is_new:
                slots[slot_number] = Slot(reduction.recv_handle(connection))
        except (EOFError, OSError):
            return
        slot = slots[slot_number]
        indices = np.frombuffer(os.pread(slot.descriptor, index_count * 8, 0), np.int64)
        _seed(seed, epoch, number)
        watch = _SharedWatch(status)
        answer = _answer(filler, indices, epoch, slot, watch)
        measured = (watch.stages, watch.storage_batch_count)
        # Before the answer: who has it may ask what this worker died of.
        _SAMPLE.pack_into(status, 0, _NO_SAMPLE)
        try:
            connection.send((run, turn, slot_number, measured, answer))
        except (BrokenPipeError, ConnectionResetError):
            return


def _answer(
    filler: Filler, indices: NDArray[np.int64], epoch: int, slot: Slot, watch: Watch
) -> bytes:
    """Fill a slot; (its bytes in use, what is where in it, the error if there was one), pickled."""
    writer = SlotWriter(slot)
    try:
        layout = _described(filler.fill(indices, epoch, writer.take, watch), writer)
        # Here, as what a user put into a batch may be nothing that can be sent.
        return bytes(reduction.ForkingPickler.dumps((writer.byte_count, layout, None)))
    except Exception as error:  # The edge of the process: handed on whole.
        return bytes(reduction.ForkingPickler.dumps((0, None, _crossing(error))))


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


def _use_one_thread() -> None:
    """The cores are shared out between processes already."""
    import cv2

    torch.set_num_threads(1)
    cv2.setNumThreads(1)


def _seed(seed: int, epoch: int, number: int) -> None:
    """Give the global random numbers a state of their own for each batch, whoever fills it.

    Which worker that is depends on who is free first, and must not show in the samples.
    """
    state = np.random.SeedSequence([seed, epoch, number]).generate_state(4)
    random.seed(int(state[0]))
    np.random.seed(state[1:3])
    torch.default_generator.manual_seed(int(state[3]))  # Of the CPU alone: 5 times as quick.


def _described(value: Any, writer: SlotWriter) -> Any:
    """A batch with its tensors and arrays replaced by their places in the slot."""
    if type(value) is torch.Tensor and value.layout is torch.strided:
        if value.device.type != "cpu":
            raise ValueError(
                f"a sample holds a tensor on {value.device}; loader workers hand out CPU tensors. "
                "Move batches in the training loop: DevicePrefetcher(loader, device)"
            )
        return writer.place(value)
    if type(value) is np.ndarray and _has_tensor_type(value.dtype):
        return writer.place(value)
    return _mapped(value, lambda part: _described(part, writer))


def _has_tensor_type(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "biuf" and dtype.itemsize <= 8 and dtype.isnative


def _resolve(layout: Any, data: torch.Tensor) -> Any:
    """The batch again, over the bytes of its slot."""
    if isinstance(layout, Place):
        return tensor_at(data, layout)
    return _mapped(layout, lambda part: _resolve(part, data))


def _mapped(value: Any, function: Any) -> Any:
    """A dict, list or tuple with a function applied to its parts; anything else as it is."""
    if type(value) is dict:
        return {name: function(part) for name, part in value.items()}
    if type(value) is list:
        return [function(part) for part in value]
    if isinstance(value, tuple):
        parts = [function(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def _crossing(error: Exception) -> tuple[Exception, Exception | None, str]:
    """An exception, its cause and its traceback, in a form that can be sent."""
    text = "".join(traceback.format_exception(error))
    cause = error.__cause__ if isinstance(error.__cause__, Exception) else None
    return _sendable(error), None if cause is None else _sendable(cause), text


def _sendable(error: Exception) -> Exception:
    try:
        copy = reduction.ForkingPickler.loads(reduction.ForkingPickler.dumps(error))
        if isinstance(copy, Exception):
            return error
    except Exception:
        pass
    return RuntimeError(f"{type(error).__name__}: {error}")


def _rebuilt(error: Exception, cause: Exception | None, text: str) -> Exception:
    """The exception as it was raised, with its cause, and the traceback of the worker behind."""
    remote = RemoteError(text)
    if cause is None:
        error.__cause__ = remote
    else:
        cause.__cause__ = remote
        error.__cause__ = cause
    return error
