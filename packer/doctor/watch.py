"""`packer doctor --watch PID`: what a running training job does, one line every few seconds.

Source: proc(5) (`stat`, `status`, `io`, `fd`); nvidia-smi(1) for devices.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packer.wording import count_text, size_text
from readers.machine import file_limit_of, shared_memory

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_GPU_TIMEOUT_S = 5.0


@dataclass(frozen=True, kw_only=True)
class ProcessFacts:
    """One process at one moment.

    Attributes:
        pid: Its number.
        start: When it was started, in ticks since boot: with `pid` it is unmistakable.
        state: R runs, S sleeps, D waits for a disk or file server, Z has ended.
        cpu_s: Time on cores so far.
        memory_bytes: Memory that is its own: without shared pages such as a mapped store.
        read_bytes: Read by calls so far, or 0 where that may not be known.
        file_count: Open descriptors, or 0 where that may not be known.
    """

    pid: int
    start: int
    state: str
    cpu_s: float
    memory_bytes: int
    read_bytes: int
    file_count: int


def _facts_of(pid: int) -> ProcessFacts | None:
    """A process, or None when it is not there (any more)."""
    folder = _PROC / str(pid)
    try:
        # The name, in brackets, may hold blanks and brackets itself.
        words = (folder / "stat").read_bytes().rpartition(b")")[2].split()
        pages = (folder / "statm").read_bytes().split()
    except OSError:
        return None
    read_bytes = file_count = 0
    with contextlib.suppress(OSError):  # Of another user's processes they may not be known.
        for line in (folder / "io").read_text().splitlines():
            if line.startswith("rchar:"):
                read_bytes = int(line.split()[1])
        file_count = len(os.listdir(folder / "fd"))
    return ProcessFacts(
        pid=pid,
        start=int(words[19]),
        state=words[0].decode(),
        cpu_s=(int(words[11]) + int(words[12])) / _TICKS,
        memory_bytes=(int(pages[1]) - int(pages[2])) * _PAGE_BYTES,
        read_bytes=read_bytes,
        file_count=file_count,
    )


def _below(pid: int) -> list[int]:
    """All processes below one."""
    found, pending = [], [pid]
    while pending:
        above = pending.pop()
        with contextlib.suppress(OSError):
            for task in (_PROC / str(above) / "task").iterdir():
                with contextlib.suppress(OSError):
                    children = [int(word) for word in (task / "children").read_text().split()]
                    found += children
                    pending += children
    return found


@dataclass(frozen=True)
class _Look:
    """A job at one moment."""

    at: float
    main: ProcessFacts
    below: dict[int, ProcessFacts]


def _look(pid: int) -> _Look | None:
    main = _facts_of(pid)
    if main is None or main.state in "ZX":
        return None
    below = {}
    for child in _below(pid):
        facts = _facts_of(child)
        if facts is not None and facts.state not in "ZX":
            below[child] = facts
    return _Look(time.monotonic(), main, below)


def watch(pid: int, *, interval_s: float = 5.0) -> Iterator[str]:
    """Lines about a process and those below it, until it ends; the last says that it has.

    Args:
        pid: The training process; of a launcher such as torchrun, the launcher's.
        interval_s: Time between lines.

    Raises:
        ValueError: There is no such process.
    """
    before = first = _look(pid)
    if before is None or first is None:
        raise ValueError(f"process {pid}: not there; see: ps -u $USER -o pid,etime,args")
    while True:
        time.sleep(interval_s)
        now = _look(pid)
        if now is None or now.main.start != first.main.start:
            yield f"{time.strftime('%H:%M:%S')}  process {pid} has ended"
            return
        yield _line(before, now)
        before = now


def _line(before: _Look, now: _Look) -> str:
    seconds = now.at - before.at
    workers = list(now.below.values())
    parts = [f"main {_cores(before.main, now.main, seconds)}"]
    known = [(before.below[one.pid], one) for one in workers if one.pid in before.below]
    cpu_s = sum(one.cpu_s - was.cpu_s for was, one in known if was.start == one.start)
    text = f"{count_text(len(workers), 'process')} below it {cpu_s / seconds:.1f} cores"
    waiting = sum(one.state == "D" for one in [now.main, *workers])
    ended = sum(
        pid not in now.below or now.below[pid].start != was.start
        for pid, was in before.below.items()
    )
    text += f", {waiting} waiting for storage" if waiting else ""
    text += f", {ended} ENDED" if ended else ""
    parts.append(text)
    read = sum(
        one.read_bytes - was.read_bytes
        for was, one in [(before.main, now.main), *known]
        if was.start == one.start
    )
    parts.append(f"reads {size_text(max(0, read) / seconds)}/s")
    memory = sum(one.memory_bytes for one in [now.main, *workers])
    then = sum(one.memory_bytes for one in [before.main, *before.below.values()])
    change = (memory - then) / seconds
    sign = "+" if change >= 0 else "-"
    parts.append(f"memory {size_text(memory)} ({sign}{size_text(abs(change))}/s)")
    most = max([now.main, *workers], key=lambda one: one.file_count)
    limit = file_limit_of(most.pid)
    parts.append(f"files {most.file_count:,}" + ("" if limit is None else f" of {limit:,}"))
    shm = shared_memory()
    if shm is not None:
        used = size_text(shm.total_bytes - shm.free_bytes)
        parts.append(f"/dev/shm {used} of {size_text(shm.total_bytes)}")
    gpu = _gpu_text()
    if gpu is not None:
        parts.append(gpu)
    return f"{time.strftime('%H:%M:%S')}  {'; '.join(parts)}"


def _cores(was: ProcessFacts, now: ProcessFacts, seconds: float) -> str:
    return f"{(now.cpu_s - was.cpu_s) / seconds:.1f} cores"


def _gpu_text() -> str | None:
    """How busy each NVIDIA device is, or None without one."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    asked = ["--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(
            [program, *asked], capture_output=True, timeout=_GPU_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return "GPU not told"
    shares = [line.strip() for line in answer.stdout.decode("ascii", "replace").splitlines()]
    return "GPU " + ", ".join(f"{share} %" for share in shares)
