"""Can a store be built at a path? Tried in a child process, since a dead file server hangs forever.

The child makes a folder beside the target, does there what a build does, one step after the other,
and removes it. It says each step before it takes it, so that one which hangs is known.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from packer.doctor.check import Check
from packer.wording import size_text, time_text
from readers.machine import mount_of

_START = (
    "import sys; sys.path[:] = {path!r}; from packer.doctor.target import main; main(sys.argv[1])"
)
"""As a build worker's (`packer.engines.local`): modules are found where the parent found them."""

_START_S = 60.0
"""Until the child says its first step: it loads modules, perhaps from a network disk."""

_TIMEOUT_S = 20.0
_KILL_S = 1.0
_WRITE_BYTES = 4 * 2**20
_FILES_LEAST = 10_000
"""A store has some files a shard; so few inodes are left where a quota is nearly full."""

_SYNC_S_MAX = 1.0


@dataclass
class TargetFacts:
    """What the child could do.

    Attributes:
        folder: The folder that was tried: the nearest parent of the target that exists.
        seconds: How long each step took, by its name.
        step: The last step that was begun; empty when all were done.
        problem: Why that one failed; None when it did not.
        free_bytes: Room for this user.
        free_file_count: Files that may still be made, or None where that has no limit.
    """

    folder: Path
    seconds: dict[str, float] = field(default_factory=dict)
    step: str = ""
    problem: str | None = None
    free_bytes: int = 0
    free_file_count: int | None = None


class _Said(msgspec.Struct, kw_only=True):
    """One line of the child: a step that it takes now, or the last line.

    Attributes:
        step: The name of a step; empty in the last line.
        problem: Why the step before failed.
        room: When all are done: bytes and files for which there is room.
    """

    step: str = ""
    problem: str | None = None
    room: tuple[int, int | None] | None = None


_DIED = "the child process died"

_NEEDS = {
    "make a folder": "a build works in a folder beside its target",
    "lock": "a build locks its target, so that no other can write there",
    "write": "shards are copied there",
    "sync": "a store must outlive a power cut",
    "rename": "a finished shard and the finished store get their names by a rename",
    "sync the folder": "names must outlive a power cut as well",
    "look again": "what was renamed must be there under its new name",
    "remove": "an unfinished build is removed when the store is published",
}


def try_target(folder: Path, say: Callable[[str], None]) -> tuple[int, int | None]:
    """Do in a folder what a build does; runs in the child.

    Args:
        folder: An existing folder.
        say: Called with the name of each step before it is taken.

    Returns:
        Bytes and files for which there is room; None where files have no limit.

    Raises:
        OSError: A step failed: the last that was said.
    """
    say("make a folder")
    own = Path(tempfile.mkdtemp(prefix=".packer-doctor-", dir=folder))
    try:
        path, final = own / "partial", own / "final"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            say("lock")
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            say("write")
            os.write(descriptor, bytes(_WRITE_BYTES))
            say("sync")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        say("rename")
        os.replace(path, final)
        say("sync the folder")
        opened = os.open(own, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
        say("look again")
        os.stat(final)
        say("remove")
        final.unlink()
    finally:
        with contextlib.suppress(OSError):
            for left in own.iterdir():
                left.unlink()
            own.rmdir()
    room = os.statvfs(folder)
    return room.f_bavail * room.f_frsize, room.f_favail if room.f_files else None


def main(folder: str) -> None:
    """The child: a line of JSON for each step; the last says what failed, or that all is done."""

    def say(said: _Said) -> None:
        sys.stdout.buffer.write(msgspec.json.encode(said) + b"\n")
        sys.stdout.flush()

    try:
        room = try_target(Path(folder), lambda step: say(_Said(step=step)))
    except OSError as error:
        say(_Said(problem=error.strerror or str(error)))
    else:
        say(_Said(room=room))


def gather_target(target: Path, *, timeout_s: float = _TIMEOUT_S) -> TargetFacts:
    """Try the folder that a store would be built in, in a child process.

    Args:
        target: Path of the store to be.
        timeout_s: How long a step may take. A child that hangs is left to itself: what waits for a
            dead file server cannot be killed.
    """
    folder = Path(os.path.realpath(target)).parent
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    facts = TargetFacts(folder)
    child = subprocess.Popen(
        [sys.executable, "-c", _START.format(path=sys.path), os.fspath(folder)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert child.stdout is not None
    began = time.monotonic()
    with child.stdout, selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while True:
            limit_s = timeout_s if facts.step else _START_S
            if not selector.select(limit_s):
                facts.problem = f"no answer within {limit_s:.0f} s"
                child.kill()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(_KILL_S)
                return facts
            line = child.stdout.readline()
            said = msgspec.json.decode(line, type=_Said) if line else _Said(problem=_DIED)
            now = time.monotonic()
            if said.problem is not None:
                facts.problem = said.problem
                break
            if facts.step:
                facts.seconds[facts.step] = now - began
            facts.step, began = said.step, now
            if said.room is not None:
                facts.free_bytes, facts.free_file_count = said.room
                break
    child.wait()
    return facts


def check_target(target: Path, facts: TargetFacts) -> Check:
    """Whether a build can lock, write, sync and rename there, and how much room there is."""
    name, mount = "build_target", mount_of(facts.folder)
    figure = f"{facts.folder} ({mount.type})"
    if facts.problem is not None:
        step = facts.step or "start"
        remedy = f"another target, or mend it: ls -ld {facts.folder}; df -hi {facts.folder}"
        if step == "lock":
            remedy = (
                "build to another file system and copy the finished store; NFSv3 needs lockd and "
                "statd (mount without nolock), NFSv4 has locks of its own"
            )
        why = f"A build to {target} would fail: {_NEEDS.get(step, 'it must answer')}."
        return Check(name, "fail", f"{figure}: cannot {step}: {facts.problem}", why, remedy)
    sync_s = facts.seconds.get("sync", 0.0)
    figure += (
        f": lock, write, rename work; {size_text(_WRITE_BYTES)} synced in {time_text(sync_s)}; "
        f"{size_text(facts.free_bytes)} free"
    )
    if facts.free_file_count is not None:
        figure += f", {facts.free_file_count:,} more files allowed"
        if facts.free_file_count < _FILES_LEAST:
            why = "Each shard takes up to three files while it is made; a full table of inodes ends"
            return Check(
                name,
                "warn",
                figure,
                f"{why} a build as a full disk does.",
                "larger shards (--shard-size 4GiB), or remove files there",
            )
    if sync_s > _SYNC_S_MAX:
        why = "Each shard is synced before it gets its name, so many small ones are slow here."
        return Check(name, "warn", figure, why, "larger shards: --shard-size 4GiB")
    why = "Shards are written on scratch, copied there, synced and renamed."
    return Check(name, "pass", figure, why)
