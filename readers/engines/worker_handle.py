"""A loader worker as the main process sees it: it is started, sent tasks, and ended."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from multiprocessing import reduction
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess

import numpy as np
from numpy.typing import NDArray

from readers.engines.loader_worker import (
    NO_SAMPLE,
    SAMPLE,
    TASK,
    UNGUARDED_STATUS,
    Origin,
    Sealed,
    work,
)
from readers.engines.slots import Slot
from readers.engines.worker_start import WorkerStartError

_STOP_S = 2.0


class WorkerDiedError(RuntimeError):
    """A loader worker ended silently: killed, out of memory, or crashed in native code."""


class WorkerHandle:
    """One loader worker, as the main process sees it.

    Attributes:
        is_started: Whether it has said so.
        task_count: Batches that it was asked for and has not answered.
    """

    def __init__(
        self, context: BaseContext, number: int, sealed: Sealed, seed: int, origin: Origin
    ) -> None:
        self._known: set[int] = set()
        self.is_started = False
        self.task_count = 0
        self.connection, theirs = context.Pipe()
        if origin.method == "fork":
            origin = origin._replace(inherited=[self.connection.fileno(), *origin.inherited])
        self.process: BaseProcess = context.Process(  # type: ignore[attr-defined]
            target=work,
            args=(theirs, sealed, seed, origin),
            name=f"loader-worker-{number}",
            daemon=True,
        )
        try:
            self._status = Slot.make()
            self._status_memory = self._status.memory(SAMPLE.size)
            SAMPLE.pack_into(self._status_memory.window(), 0, NO_SAMPLE)
            self.process.start()
            with suppress(BrokenPipeError, ConnectionResetError):  # It has died: that is told soon.
                reduction.send_handle(self.connection, self._status.descriptor, self.process.pid)
        except BaseException:
            self.kill()
            self.bury()
            raise
        finally:
            theirs.close()

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
        self.connection.send_bytes(TASK.pack(*task, slot_number, len(indices), is_new))
        if is_new:
            reduction.send_handle(self.connection, slot.descriptor, self.process.pid)

    def death(self, method: str) -> WorkerDiedError | WorkerStartError:
        """What is known of how it ended."""
        self.process.join(_STOP_S)
        status = self.process.exitcode
        if status is not None and status < 0:
            how = f"was killed by {signal.Signals(-status).name}"
        else:
            how = f"left with status {status}"
        index = SAMPLE.unpack_from(self._status_memory.window())[0]
        where = f" while it loaded sample {index}"
        if index == NO_SAMPLE:
            where = "" if self.is_started else " as it started"
            if not self.is_started and (status is None or status >= 0):
                return WorkerStartError(f"a loader worker {how}{where}. {_why(status, method)}")
        return WorkerDiedError(
            f"loader worker {self.process.pid} {how}{where}. Was it out of memory (fewer workers, "
            "smaller batches), or did native code crash? Load it in this process to see: "
            "make_loader(..., workers=0)"
        )

    def kill(self) -> None:
        """End it, whatever it is doing."""
        self.connection.close()
        if self.process.pid is not None:
            self.process.kill()

    def bury(self) -> None:
        """Take note of its end."""
        if self.process.pid is not None:
            self.process.join(_STOP_S)


def _why(status: int | None, method: str) -> str:
    """Why a worker may have left before it had started, and what to do."""
    if method == "fork":
        return "What it printed says why"
    guard = "put what the program does under `if __name__ == '__main__':`, or start_method='fork'"
    if status == UNGUARDED_STATUS:
        return (
            f"It was started by {method!r} and so imports the main module of the program, which "
            f"starts loader workers as it is imported: {guard}"
        )
    return (
        f"What it printed says why. Started by {method!r}, it imports the main module of the "
        f"program: {guard}"
    )


def stop_workers(workers: list[WorkerHandle], end: threading.Event, owner: int) -> None:
    """End all of them, in the process that has started them."""
    if os.getpid() == owner:
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.bury()
        workers.clear()  # With them their descriptors go.
        end.set()
