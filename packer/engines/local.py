"""Shard tasks on this machine: as many build workers as asked for, each a process of its own."""

from __future__ import annotations

import contextlib
import json
import selectors
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from packer.errors import RejectedItemError, WorkerError
from packer.workspace import Workspace

_STOP_S = 5.0

_START = "import sys; sys.path[:] = {path!r}; from packer.engines.worker import main; main()"
"""A build worker finds modules where its driver does. `python -m` would look in the current folder
first, where somebody else's `readers` or `queue.py` may lie."""


def map_tasks(
    workspace: Workspace,
    numbers: Sequence[int],
    scratch: Path,
    worker_count: int,
    on_progress: Callable[[int, int | None], None],
) -> None:
    """Have shards made until all are, or one cannot be.

    Args:
        workspace: Of the build.
        numbers: The shards to make.
        scratch: Folder to write them in.
        worker_count: Build workers at once; no more than there are shards are started.
        on_progress: Told (items done since the last call, number of a finished shard or None).

    Raises:
        RejectedItemError: An item was rejected, and the build stops at the first.
        OSError: A disk is full, or a limit on file sizes was reached.
        WorkerError: A build worker died, or met a bug.
    """
    waiting = deque(numbers)
    workers = [_Worker(workspace, scratch, turn) for turn in range(min(worker_count, len(numbers)))]
    try:
        with selectors.DefaultSelector() as selector:
            for worker in workers:
                selector.register(worker.output, selectors.EVENT_READ, worker)
                worker.give(waiting.popleft())
            while selector.get_map():
                for key, _ in selector.select():
                    worker = key.data
                    for message in worker.messages():
                        _handle(message, worker, workspace, on_progress)
                    if worker.number is not None:
                        continue
                    if waiting:
                        worker.give(waiting.popleft())
                    else:
                        selector.unregister(worker.output)
                        worker.dismiss()
    finally:
        for worker in workers:
            worker.stop()


def _handle(
    message: dict[str, Any],
    worker: _Worker,
    workspace: Workspace,
    on_progress: Callable[[int, int | None], None],
) -> None:
    if "done" in message:
        on_progress(message["done"] - worker.done, None)
        worker.done = message["done"]
    elif "finished" in message:
        number = message["finished"]
        on_progress(len(workspace.read_items(number)) - worker.done, number)
        worker.number = None
    else:
        raise _error(message)


def _error(message: dict[str, Any]) -> Exception:
    text = message["message"]
    if message["kind"] == "reject":
        return RejectedItemError(
            f"{text}\nThe build was told to stop at the first reject. Mend or remove it and begin "
            "anew with --overwrite, or leave it out with --on-error reject."
        )
    if message["kind"] == "space":
        return OSError(message["errno"], text, message["file"])
    return WorkerError(f"shard {message['failed']}: {text}")


class _Worker:
    """One build worker, and what it is doing.

    Attributes:
        number: The shard it is making, or None when it waits.
        done: Items of that shard that are done.
    """

    def __init__(self, workspace: Workspace, scratch: Path, turn: int) -> None:
        self._log = workspace.folder / f"worker-{turn}.log"
        with open(self._log, "wb") as log:
            # What decoders print about odd files goes to the log; it is shown when the worker dies.
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START.format(path=sys.path), workspace.folder, scratch],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input: IO[bytes] = self._process.stdin
        self.output: IO[bytes] = self._process.stdout
        self.number: int | None = None
        self.done = 0

    def give(self, number: int) -> None:
        """Have it make one more shard."""
        self.number, self.done = number, 0
        try:
            self._input.write(b"%d\n" % number)
            self._input.flush()
        except BrokenPipeError:
            raise self._death() from None

    def messages(self) -> list[dict[str, Any]]:
        """What it said since the last call. Raises WorkerError when it died."""
        text = self.output.read1(2**16)  # type: ignore[attr-defined]
        if not text:
            raise self._death()
        if not text.endswith(b"\n"):
            text += self.output.readline()
        return [json.loads(line) for line in text.splitlines()]

    def _death(self) -> WorkerError:
        status = self._process.wait()
        last = self._log.read_text(errors="replace").strip().splitlines()[-5:]
        how = f"was killed by signal {-status}" if status < 0 else f"left with status {status}"
        said = "".join(f"\n  {line}" for line in last)
        return WorkerError(
            f"the build worker of shard {self.number} {how}. Was it out of memory? Try fewer "
            f"--workers; run the same command: finished shards are kept.{said}"
        )

    def dismiss(self) -> None:
        """There is no more to do: its input ends, and so does it."""
        self._input.close()

    def stop(self) -> None:
        """End it, whatever it is doing."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(_STOP_S)
        with contextlib.suppress(BrokenPipeError):
            self._input.close()
        self.output.close()
