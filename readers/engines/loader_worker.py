"""What a loader worker runs: it fills slots, as it is told, until nobody tells it any more."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import struct
from collections import deque
from multiprocessing import forkserver, reduction
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from readers.chance.global_seeds import seed_globals
from readers.engines.crossing import crossing, described
from readers.engines.slots import Slot, SlotWriter
from readers.stats import Watch
from readers.store.child_process import end_with_parent, leave_signals_to_parent

# Run, turn, epoch, number, slot, how many indices, whether the slot's descriptor follows.
TASK = struct.Struct("<QQQQQQ?")
SAMPLE = struct.Struct("<q")
NO_SAMPLE = -1

STARTED = 0
"""In place of a run: this message says that the worker has started, or why it could not."""

UNGUARDED_STATUS = 79
"""Left with by a worker whose main module starts loader workers as it is imported."""


class Filler(Protocol):
    """Makes batches. It pickles small; what it opens, it opens when it is first used."""

    def enter_worker(self) -> None:
        """From now on this is a loader worker."""

    def expect(self, parts: list[NDArray[np.int64]], epoch: int) -> None:
        """These batches will be asked for."""

    def fill(self, indices: NDArray[np.int64], epoch: int, take: Any, watch: Watch) -> Any:
        """The batch of samples `indices`, its tensors in memory from `take(byte_count)`."""


class Sealed:
    """A filler on its way to a worker, which opens it itself.

    Else multiprocessing would, before any code of ours runs: and all that the main process got to
    know of an error there (a function that the new process does not find) was an exit status.

    Args:
        filler: What is sent.
    """

    def __init__(self, filler: Filler | bytes) -> None:
        self._filler = filler

    def __reduce__(self) -> tuple[Any, ...]:
        # While multiprocessing pickles the process, as locks and queues can be sent only then.
        return Sealed, (bytes(reduction.ForkingPickler.dumps(self._filler)),)

    def opened(self) -> Filler:
        """The filler."""
        if isinstance(self._filler, bytes):
            filler: Filler = reduction.ForkingPickler.loads(self._filler)
            return filler
        return self._filler


class Origin(NamedTuple):
    """How a worker was started.

    Attributes:
        parent: The main process.
        method: "fork", "spawn" or "forkserver".
        mask: Signals that were blocked in the main process. None: those of this one are right.
        inherited: Descriptors of the main process that a fork has copied, to be closed.
    """

    parent: int
    method: str
    mask: frozenset[int] | None
    inherited: list[int]


class _SharedWatch(Watch):
    """A watch whose sample the main process can see, even when this one is gone."""

    def __init__(self, status: Any) -> None:
        super().__init__()
        self._status = status

    def sample(self, index: int) -> None:
        """The sample at `index` is worked on from now on."""
        SAMPLE.pack_into(self._status, 0, index)


def work(connection: Connection, sealed: Sealed, seed: int, origin: Origin) -> None:
    """Work until there is no more to do."""
    leave_signals_to_parent()
    # A collection marks every object that it looks at, and so would copy all that a forked worker
    # shares with its parent: 37 MB of Python's and torch's own.
    gc.freeze()
    if origin.mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, origin.mask)
    end_with_parent(origin.parent, by_kernel=True, is_child=origin.method != "forkserver")
    if origin.method == "forkserver":
        _let_fork_server_end()
    for descriptor in origin.inherited:
        os.close(descriptor)
    try:
        status = Slot(reduction.recv_handle(connection)).memory(SAMPLE.size).window()
        filler, problem = _opened(sealed)
        connection.send((STARTED, 0, 0, None, problem))
        if filler is not None:
            _serve(connection, filler, seed, status)
    except (EOFError, OSError):  # The main process is gone, or has no use for this one.
        return


def _let_fork_server_end() -> None:
    """Let go of the fork server, which lives as long as anybody could ask it for a process.

    A worker asks for none. So the server ends with the main process, and this one with the server,
    even inside of native code that does not let the thread run which waits for the main process.
    """
    server: Any = forkserver._forkserver
    descriptor = getattr(server, "_forkserver_alive_fd", None)
    if descriptor is not None:
        server._forkserver_alive_fd = None
        os.close(descriptor)


def _opened(sealed: Sealed) -> tuple[Filler | None, bytes | None]:
    """The filler, ready to work; or else the error, pickled."""
    try:
        _use_one_thread()
        filler = sealed.opened()
        filler.enter_worker()
    except Exception as error:  # The edge of the process: handed on whole.
        return None, _pickled(crossing(error))
    return filler, None


def _serve(connection: Connection, filler: Filler, seed: int, status: Any) -> None:
    """Fill slots.

    Raises:
        EOFError: The main process is gone; so does OSError say.
    """
    slots: dict[int, Slot] = {}
    tasks: deque[_Task] = deque()
    while True:
        # All that is asked for already: its bytes may be read while the first is worked on.
        while not tasks or connection.poll():
            tasks.append(_received(connection, slots))
            _expect(filler, tasks[-1])
        task = tasks.popleft()
        seed_globals(seed, task.epoch, task.number)
        watch = _SharedWatch(status)
        answer = _answer(filler, task.indices, task.epoch, slots[task.slot_number], watch)
        # Before the answer: who has it may ask what this worker died of.
        SAMPLE.pack_into(status, 0, NO_SAMPLE)
        connection.send((task.run, task.turn, task.slot_number, watch.measured(), answer))


class _Task(NamedTuple):
    """A batch that is asked for."""

    run: int
    turn: int
    epoch: int
    number: int
    slot_number: int
    indices: NDArray[np.int64]


def _received(connection: Connection, slots: dict[int, Slot]) -> _Task:
    """The next task."""
    message = connection.recv_bytes()
    run, turn, epoch, number, slot_number, index_count, is_new = TASK.unpack(message)
    if is_new:
        slots[slot_number] = Slot(reduction.recv_handle(connection))
    # Out of the slot, before it is filled.
    data = os.pread(slots[slot_number].descriptor, index_count * 8, 0)
    return _Task(run, turn, epoch, number, slot_number, np.frombuffer(data, np.int64))


def _expect(filler: Filler, task: _Task) -> None:
    """Have the bytes of a batch read. What is wrong is met again where it is filled."""
    with contextlib.suppress(Exception):
        filler.expect([task.indices], task.epoch)


def _answer(
    filler: Filler, indices: NDArray[np.int64], epoch: int, slot: Slot, watch: Watch
) -> bytes:
    """Fill a slot; (its bytes in use, what is where in it, the error if there was one), pickled."""
    writer = SlotWriter(slot)
    try:
        layout = described(filler.fill(indices, epoch, writer.take, watch), writer)
        # Here, as what a user put into a batch may be nothing that can be sent.
        return _pickled((writer.byte_count, layout, None))
    except Exception as error:  # The edge of the process: handed on whole.
        return _pickled((0, None, crossing(error)))


def _pickled(value: Any) -> bytes:
    return bytes(reduction.ForkingPickler.dumps(value))


def _use_one_thread() -> None:
    """The cores are shared out between processes already."""
    import cv2

    torch.set_num_threads(1)
    cv2.setNumThreads(1)
