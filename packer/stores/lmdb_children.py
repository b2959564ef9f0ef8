"""LMDB's own look-ups in a store, in processes that may die of them.

LMDB trusts its files: a crafted or damaged page sends it to read outside of its map, and a circle
of pages round and round. So a file that is being verified is given to LMDB in a child alone. That
one dies, or does not come back in time, or takes more memory than it may: each is a finding, and
the process that verifies goes on.

The other side is `readers.store.lookups`.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from readers.store.reader import StoreReader

_START = (
    "import sys; sys.path[:] = {path!r}; from readers.store.lookups import main; main({parent})"
)
"""As a build worker's (`packer.engines.local`): modules are found where the parent found them."""

_LEAST_S = 60.0
_BYTES_PER_S = 10 * 2**20
"""Time for an answer. LMDB reads every page once, at the worst over a network."""

_CHILD_BYTES = 2**28
"""A store has one more child for each so many bytes, which take as long as starting one."""


class LmdbChildren:
    """Children that look shards of one store up with LMDB, started when they are needed.

    Args:
        store: The store.
    """

    def __init__(self, store: StoreReader) -> None:
        self._store = store
        self._idle: list[_Child] = []
        self._all: list[_Child] = []
        byte_count = store.manifest.shard_bytes
        self._turn = threading.Semaphore(1 + byte_count // _CHILD_BYTES)

    def problem(self, number: int) -> str | None:
        """What LMDB finds wrong with a shard, or with itself in reading it; None when nothing."""
        info = self._store.manifest.shards[number]
        with self._turn:
            child = self._idle.pop() if self._idle else self._start()
            answer = child.ask(number, _LEAST_S + info.bytes / _BYTES_PER_S)
            if child.is_alive:
                self._idle.append(child)
                return answer
        return f"{self._store.path / info.file}: {answer}"

    def _start(self) -> _Child:
        child = _Child(self._store.folder)
        self._all.append(child)
        return child

    def stop(self) -> None:
        """End all of them, whatever they are doing."""
        for child in self._all:
            child.kill()

    def __enter__(self) -> LmdbChildren:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        for child in self._idle:
            child.stop()


class _Child:
    """One child.

    Attributes:
        is_alive: Whether it can be asked again.
    """

    def __init__(self, path: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START.format(path=sys.path, parent=os.getpid()), path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.is_alive = True

    def ask(self, number: int, limit_s: float) -> str | None:
        """Its answer about a shard; or, when it is not alive any more, how it ended."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(b"%d\n" % number)
            self._process.stdin.flush()
        line = self._line(limit_s)
        if line is not None and line.endswith(b"\n"):
            answer: str | None = json.loads(line)
            return answer
        self.is_alive = False
        status = None if line is None else self._process.wait()
        self.stop()
        if status is None:
            return f"LMDB did not come to an end with it in {limit_s:.0f} s. Do not open it."
        if status < 0:
            name = signal.Signals(-status).name
            return f"LMDB died of signal {-status} ({name}) reading it. Do not open it with LMDB."
        return f"LMDB's process left with status {status} reading it."

    def _line(self, limit_s: float) -> bytes | None:
        """What it says, up to the end of a line or of itself; None when that takes too long."""
        assert self._process.stdout is not None
        end, line = time.monotonic() + limit_s, b""
        while not line.endswith(b"\n"):
            left_s = max(0.0, end - time.monotonic())
            if not select.select([self._process.stdout], [], [], left_s)[0]:
                return None
            block = os.read(self._process.stdout.fileno(), 2**16)
            if not block:
                break
            line += block
        return line

    def kill(self) -> None:
        """End it, whatever it is doing; who waits for an answer gets none."""
        self._process.kill()

    def stop(self) -> None:
        """End it, and let go of it."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
