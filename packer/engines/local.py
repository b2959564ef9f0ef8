"""Shard tasks on this machine: as many build workers as asked for, each a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

from packer.engines.deaths import Death, Deaths
from packer.engines.engine import OnNotice, OnProgress
from packer.engines.worker import POSITION_BYTES
from packer.errors import DamagedTaskError, RejectedItemError, WorkerError
from packer.workspace.folder import Workspace

_SAID_LINES, _SAID_BYTES_MAX = 5, 2**12

_QUIET_S = 5.0
"""How long nobody is told of anything, at most."""

_STOP_S = 1.0
"""How long killed workers may take to go. One that waits for a dead file server goes later."""

_START = (
    "import sys; sys.path[:] = {path!r}; from packer.engines.worker import main; main({parent})"
)
"""A build worker finds modules where its driver does. `python -m` would look in the current folder
first, where somebody else's `readers` or `queue.py` may lie."""


_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1"}
"""The threads of numpy's linear algebra, which a build worker never uses, spin for 50 ms before
they sleep."""


def map_tasks(
    crew: Crew,
    numbers: Iterable[int],
    scratch: Path,
    worker_count: int,
    on_progress: OnProgress,
    on_notice: OnNotice,
) -> None:
    """Have shards made until all are, or one cannot be.

    A shard whose worker died is tried again at the end and on its own: where memory was short, it
    then has all there is. See `packer.engines.deaths` for what happens when that fails too.

    Args:
        crew: What makes them; it is stopped in the end.
        numbers: The shards to make; the next one is asked for when there is a worker for it.
        scratch: Folder to write them in.
        worker_count: Build workers at once; no more than there are shards are started.
        on_progress: Told (items done since the last call, number of a finished shard or None). The
            items of a worker that died are taken back.
        on_notice: Told of every worker that died, and of those that could not be started.

    Raises:
        RejectedItemError: An item was rejected, and the build stops at the first.
        OSError: A disk is full, or a limit on file sizes was reached; no worker can be started.
        DamagedTaskError: The file of a task is not as it was written.
        WorkerError: A build worker met a bug, or too many died.
    """
    waiting, again = _Waiting(numbers), deque[int]()
    deaths = Deaths(crew.workspace)

    def give(worker: _Worker, number: int) -> None:
        worker.give(scratch, number, deaths.lost_items(number))

    try:
        while crew.workers or again or waiting:
            for worker in [worker for worker in crew.workers if worker.number is None]:
                number = _next(waiting, again, crew)
                if number is None:
                    crew.dismiss(worker)
                else:
                    give(worker, number)
            while (len(crew.workers) < worker_count and waiting) or (again and not crew.workers):
                try:
                    worker = crew.start()
                except OSError as error:
                    if not crew.workers:
                        raise
                    worker_count = len(crew.workers)
                    on_notice(
                        f"no more than {worker_count} build workers could be started "
                        f"({error.strerror}); the build goes on with them"
                    )
                    break
                number = _next(waiting, again, crew)
                assert number is not None
                give(worker, number)
            ready = crew.ready()
            if not ready:
                on_progress(0, None)
            for worker in ready:
                messages = worker.messages()
                for message in messages:
                    _handle(message, worker, crew.workspace, on_progress)
                if messages:
                    continue
                death = crew.bury(worker)
                if death is not None:
                    on_notice(deaths.add(death))
                    on_progress(-worker.done, None)
                    again.append(death.number)
    finally:
        crew.stop()


class _Waiting:
    """Shards to make, of which the next is asked for no earlier than it has to be."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self._numbers = iter(numbers)
        self._next: int | None = None

    def __bool__(self) -> bool:
        if self._next is None:
            self._next = next(self._numbers, None)
        return self._next is not None

    def take(self) -> int:
        """The next one; there must be one."""
        number, self._next = self._next, None
        assert number is not None
        return number


def _next(waiting: _Waiting, again: deque[int], crew: Crew) -> int | None:
    """The shard to make next, or None when there is nothing to do for one more worker."""
    if waiting:
        return waiting.take()
    if again and all(worker.number is None for worker in crew.workers):
        return again.popleft()
    return None


def _handle(
    message: dict[str, Any],
    worker: _Worker,
    workspace: Workspace,
    on_progress: OnProgress,
) -> None:
    if "done" in message:
        on_progress(message["done"] - worker.done, None)
        worker.done = message["done"]
    elif "finished" in message:
        number = message["finished"]
        on_progress(len(workspace.read_items(number)) - worker.done, number)
        worker.number = None
    else:
        raise task_error(message)


def task_error(message: dict[str, Any]) -> Exception:
    """The error that a build worker has told of."""
    text = message["message"]
    if message["kind"] == "reject":
        return RejectedItemError(
            f"{text}\nThe build was told to stop at the first reject. Mend or remove it and begin "
            "anew with --overwrite, or leave it out with --on-error reject."
        )
    if message["kind"] == "damaged":
        return DamagedTaskError(text)
    if message["kind"] == "system":
        return OSError(message["errno"], text, message["file"] or f"shard {message['failed']}")
    return WorkerError(f"shard {message['failed']}: {text}")


class LocalEngine:
    """Shard tasks in processes of this machine: the `Engine` that needs no other library.

    Args:
        workspace: The build's workspace; it need not be there before `map`.
        worker_count: Build workers at once; no more than there are shards are started.

    Attributes:
        workspace: The same.
        worker_count: The same.
    """

    def __init__(self, workspace: Workspace, worker_count: int) -> None:
        self.workspace = workspace
        self.worker_count = worker_count
        self._crew = Crew(workspace)

    def start_ahead(self) -> None:
        """Start one build worker before it is known what there is to do."""
        self._crew.start_ahead()

    def map(
        self, numbers: Iterable[int], scratch: Path, on_progress: OnProgress, on_notice: OnNotice
    ) -> None:
        """Have shards made; see `Engine.map` and `map_tasks`."""
        map_tasks(self._crew, numbers, scratch, self.worker_count, on_progress, on_notice)

    def stop(self) -> None:
        """End all build workers, whatever they are doing."""
        self._crew.stop()

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Crew:
    """The build workers that are there. Leaving its context ends them, whatever they are doing.

    Args:
        workspace: Of the build; it need not be there before a worker is given a shard.

    Attributes:
        workspace: The build's workspace.
        workers: Those that make a shard or wait for one.
    """

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._started_count = 0
        self._selector = selectors.DefaultSelector()
        self._dismissed: list[_Worker] = []
        # Memory that outlives who wrote it, so that a death can be laid to an item; one descriptor
        # for all workers.
        self._positions = os.memfd_create("packer-positions")
        self.workers: list[_Worker] = []

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start_ahead(self) -> None:
        """Start one worker before it is known what there is to do, which takes a while to find.

        Starting takes it 0.25 s. Where it cannot be started, that is said once there is work.
        """
        with contextlib.suppress(OSError):
            self.start()

    def start(self) -> _Worker:
        """One more worker."""
        worker = _Worker(self.workspace, self._started_count, self._positions)
        self._started_count += 1
        self.workers.append(worker)
        self._selector.register(worker.output, selectors.EVENT_READ, worker)
        return worker

    def ready(self, wait_s: float = _QUIET_S) -> list[_Worker]:
        """Workers that said something, or died, as soon as there are any; none after a while."""
        if not self.workers:
            return []
        return [key.data for key, _ in self._selector.select(wait_s)]

    def dismiss(self, worker: _Worker) -> None:
        """There is no more to do for a worker: its input ends, and so does it."""
        self._remove(worker)
        self._dismissed.append(worker)
        worker.dismiss()

    def bury(self, worker: _Worker) -> Death | None:
        """Let go of a worker that died. None when it was not making a shard."""
        self._remove(worker)
        death = worker.death()
        worker.close()
        return death

    def _remove(self, worker: _Worker) -> None:
        self._selector.unregister(worker.output)
        self.workers.remove(worker)

    def stop(self) -> None:
        """End all, whatever they are doing. Nobody may be started after it."""
        everybody = [*self.workers, *self._dismissed]
        self.workers, self._dismissed = [], []
        for worker in everybody:
            worker.kill()
        deadline = time.monotonic() + _STOP_S
        for worker in everybody:
            worker.wait(max(0.0, deadline - time.monotonic()))
            worker.close()
        self._selector.close()
        if self._positions >= 0:
            os.close(self._positions)
            self._positions = -1


class _Worker:
    """One build worker, and what it is doing.

    Attributes:
        number: The shard it is making, or None when it waits.
        done: Items of that shard that are done.
    """

    def __init__(self, workspace: Workspace, turn: int, positions: int) -> None:
        self._positions, self._place = positions, turn * POSITION_BYTES
        # What decoders print about odd files goes there; its end is shown when the worker dies.
        self._log = open(os.memfd_create("packer-worker-log"), "r+b", buffering=0)  # noqa: SIM115
        try:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    _START.format(path=sys.path, parent=os.getpid()),
                    workspace.folder,
                    str(positions),
                    str(self._place),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env={**os.environ, **_ENVIRONMENT},
                pass_fds=(positions,),
            )
        except BaseException:
            self._log.close()
            raise
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input: IO[bytes] = self._process.stdin
        self.output: IO[bytes] = self._process.stdout
        self.number: int | None = None
        self.done = 0

    def give(self, scratch: Path, number: int, lost: dict[int, str]) -> None:
        """Have it make one more shard, without the items that are lost."""
        self.number, self.done = number, 0
        os.pwrite(
            self._positions, (-1).to_bytes(POSITION_BYTES, "little", signed=True), self._place
        )
        order = {
            "scratch": os.fspath(scratch),
            "number": number,
            "lost": lost,
        }
        # One that has died meanwhile says so by the end of its output.
        with contextlib.suppress(BrokenPipeError):
            self._input.write(json.dumps(order).encode() + b"\n")
            self._input.flush()

    def messages(self) -> list[dict[str, Any]]:
        """What it said since the last call; nothing means that it died."""
        text = self.output.read1(2**16)  # type: ignore[attr-defined]
        if text and not text.endswith(b"\n"):
            text += self.output.readline()
        # It may have died in the middle of a long line.
        return [json.loads(line) for line in text.splitlines(True) if line.endswith(b"\n")]

    def death(self) -> Death | None:
        """How it died over its shard; None when it had none."""
        status = self._process.wait()
        if self.number is None:
            return None
        place = os.pread(self._positions, POSITION_BYTES, self._place)
        return Death(
            number=self.number,
            position=int.from_bytes(place, "little", signed=True),
            status=status,
            said=self._said(),
        )

    def _said(self) -> list[str]:
        """The last lines that it printed."""
        start = max(0, os.fstat(self._log.fileno()).st_size - _SAID_BYTES_MAX)
        text = os.pread(self._log.fileno(), _SAID_BYTES_MAX, start).decode(errors="replace")
        return text.strip().splitlines()[-_SAID_LINES:]

    def dismiss(self) -> None:
        """Let it end when it likes."""
        self._input.close()

    def kill(self) -> None:
        """End it, whatever it is doing."""
        if self._process.poll() is None:
            self._process.kill()

    def wait(self, timeout_s: float) -> None:
        """Wait for its end, as long as that is sensible."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)

    def close(self) -> None:
        """Close the pipes to it."""
        with contextlib.suppress(BrokenPipeError):
            self._input.close()
        self.output.close()
        self._log.close()
