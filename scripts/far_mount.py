"""Starts file servers that are far away on this machine, for tests and benchmarks.

    with mounted(folder, mountpoint, Far(open_ms=2, stat_ms=2, read_ms=2)) as mount:
        ...  # Read below mountpoint.
        print(mount.counts().calls)

`far_server.py` is the server. It needs /dev/fuse, mfusepy and libfuse; a machine may lack them.
"""

from __future__ import annotations

import ctypes.util
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any

_SERVER = Path(__file__).with_name("far_server.py")
_WAIT_S = 60.0


class FarMountUnavailableError(Exception):
    """This machine cannot mount it; the text names what is missing."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Every nth call of a kind fails.

    Attributes:
        call: "read", "open", "stat" or "list".
        error: Name of its errno: EIO, ESTALE, ETIMEDOUT, ...
        every: The n.
        after: Calls that pass before it begins to count.
        times: How often at most; None without end.
        match: Pattern of the paths, as seen from the mount, with a leading "/".
    """

    call: str
    error: str
    every: int = 1
    after: int = 0
    times: int | None = None
    match: str = "*"


@dataclass(frozen=True, kw_only=True)
class Far:
    """How a far file system behaves.

    Attributes:
        open_ms: What an open takes.
        stat_ms: What each look at a name takes.
        list_ms: What listing a folder takes.
        read_ms: What each request for bytes takes.
        faults: Calls that fail.
        maps: Whether files can be mapped.
        away: The server is gone: "silent" has calls wait for it, the name of an errno has them
            fail. Empty while it is there.
    """

    open_ms: float = 0.0
    stat_ms: float = 0.0
    list_ms: float = 0.0
    read_ms: float = 0.0
    faults: tuple[Fault, ...] = ()
    maps: bool = True
    away: str = ""

    @classmethod
    def of_delay(cls, delay_ms: float) -> Far:
        """Every call takes as long."""
        return cls(open_ms=delay_ms, stat_ms=delay_ms, list_ms=delay_ms, read_ms=delay_ms)


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Calls that came to the server.

    Attributes:
        calls: How many, by kind: "open", "stat", "list", "read".
        paths: The same by kind and path.
        read_bytes: Bytes that were read.
        fault_count: Calls that failed because they were told to.
        in_flight_max: The most calls that were under way at once.
    """

    calls: dict[str, int] = field(default_factory=dict)
    paths: dict[str, dict[str, int]] = field(default_factory=dict)
    read_bytes: int = 0
    fault_count: int = 0
    in_flight_max: int = 0

    @property
    def read_count(self) -> int:
        """Requests for bytes."""
        return self.calls.get("read", 0)

    @property
    def open_count(self) -> int:
        """Files opened."""
        return self.calls.get("open", 0)

    @property
    def stat_count(self) -> int:
        """Looks at names, and listings of folders."""
        return self.calls.get("stat", 0) + self.calls.get("list", 0)


class FarMount:
    """A mounted far file system.

    Args:
        path: Where it is mounted.
        process: Its server.

    Attributes:
        path: As given.
    """

    def __init__(self, path: Path, process: subprocess.Popen[str]) -> None:
        self.path = path
        self._process = process
        self._far = Far()

    def set(self, far: Far | None = None, **changes: Any) -> None:
        """Have it behave otherwise from now on: in all, or in some ways."""
        self._far = replace(self._far if far is None else far, **changes)
        self._ask({"settings": asdict(self._far)})

    def counts(self) -> Counts:
        """What was counted since the last reset."""
        return Counts(**self._ask({"counts": True}))

    def reset(self) -> None:
        """Count from now on."""
        self._ask({"reset": True})

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        stdin, stdout = _pipes(self._process)
        stdin.write(json.dumps(request) + "\n")
        stdin.flush()
        line = stdout.readline()
        if not line:
            raise RuntimeError(f"{self.path}: the server of the far file system has ended")
        found: dict[str, Any] = json.loads(line)
        return found


def _has_library() -> bool:
    return any(ctypes.util.find_library(name) for name in ("fuse3", "fuse"))


def why_not() -> str | None:
    """What this machine lacks for a far file system, or None; libfuse is installed by root."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "no access to /dev/fuse"
    if importlib.util.find_spec("mfusepy") is None:
        return "the Python package mfusepy is not installed"
    if not _has_library():
        program = Path(__file__).with_name("debian_packages.py")
        done = subprocess.run(
            [sys.executable, program, "fuse3"], stdout=subprocess.PIPE, text=True, check=False
        )
        if done.returncode or not _has_library():
            return f"libfuse is missing; {done.stdout.strip()}"
    if os.geteuid() and shutil.which("fusermount3") is None and shutil.which("fusermount") is None:
        return "neither root nor fusermount3 (Debian: fuse3) is there to mount"
    return None


@contextmanager
def mounted(
    source: Path,
    mountpoint: Path,
    far: Far | None = None,
    *,
    cache_s: float = 3.0,
    read_bytes_max: int = 2**17,
) -> Iterator[FarMount]:
    """Mount a folder as if it were far away, and unmount it at the end of the context.

    Args:
        source: The folder.
        mountpoint: Where it is to be seen; it is made.
        far: How it behaves; it can be changed later.
        cache_s: For how long the kernel believes names and sizes.
        read_bytes_max: The largest request for bytes. The kernel makes none above 128 KiB.

    Raises:
        FarMountUnavailableError: Something is missing here.
        RuntimeError: The server did not start.
    """
    missing = why_not()
    if missing is not None:
        raise FarMountUnavailableError(missing)
    mountpoint.mkdir(parents=True, exist_ok=True)
    settings = ("--cache-s", str(cache_s), "--read-bytes-max", str(read_bytes_max))
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [sys.executable, str(_SERVER), str(source), str(mountpoint), *settings],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        try:
            stdout = _pipes(process)[1]
            if not stdout.readline():
                process.wait(_WAIT_S)
                errors.seek(0)
                text = errors.read().strip()
                if "not permitted" in text or "ermission denied" in text:
                    raise FarMountUnavailableError(f"mounting is not allowed: {text}")
                raise RuntimeError(f"{mountpoint}: the far file system did not start: {text}")
            mount = FarMount(mountpoint, process)
            mount.set(far)
            yield mount
        finally:
            _end(process, mountpoint)


def _pipes(process: subprocess.Popen[str]) -> tuple[IO[str], IO[str]]:
    """To and from the server."""
    assert process.stdin is not None
    assert process.stdout is not None
    return process.stdin, process.stdout


def _end(process: subprocess.Popen[str], mountpoint: Path) -> None:
    """Have the server unmount; if it hangs, do it without it."""
    stdin, stdout = _pipes(process)
    # Forked children may hold this pipe as well, so its end alone might not come.
    with suppress(BrokenPipeError):
        stdin.write(json.dumps({"end": True}) + "\n")
        stdin.close()
    try:
        process.wait(_WAIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    stdout.close()
    until = time.monotonic() + _WAIT_S
    while os.path.ismount(mountpoint) and time.monotonic() < until:
        _unmount(mountpoint)


def _unmount(mountpoint: Path) -> None:
    command = "fusermount3" if os.geteuid() else "umount"
    options = ["-u", "-z"] if os.geteuid() else ["-l"]
    subprocess.run([command, *options, mountpoint], capture_output=True, check=False)
