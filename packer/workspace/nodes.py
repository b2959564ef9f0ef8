"""Who works on an unfinished build, where several nodes do: a small file of each, and claims.

Both are advice. A shard that is made twice is the same bytes, so nothing but time is lost where a
file server shows them late (attribute caches of NFS: up to a minute), or a node dies with a claim.
Ages are differences of times that the file server sets: clocks of nodes may differ.

    nodes/ID            what a process of `packer work` does and has done; written every few seconds
    claims/00000.1      ID of the first that took a shard; .2 of one that helps out
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from packer.errors import TargetBusyError
from packer.wording import names_text
from packer.workspace.folder import Workspace
from packer.workspace.place import fresh_name
from readers.store.place import Place

SILENT_S = 180.0
"""A node that has written nothing for so long is taken for dead. Caches may hide a minute."""

BEAT_S = 10.0
"""How often a node writes its file, while nothing begins or ends there."""

CLAIMS_MAX = 4
"""How often a shard is taken at all. What kills a node each time is left to whoever publishes."""


class NodeFacts(msgspec.Struct, kw_only=True):
    """What a process of `packer work` says of itself.

    Attributes:
        name: What people call it: the job's number, say.
        host: Its machine.
        pid: Its number there.
        part: Its share of the shards, "3/64"; empty when it has none of its own.
        log: File that its messages go to; empty when they go to none.
        state: Whether it works, has ended by itself, was told to stop, or has failed.
        error: Why it failed.
        making: Shards that are being made, and for how many seconds when this was written.
        finished_count: Shards that it has finished.
        image_count: Raw items that it has done.
        seconds: Since it began.
        rejects: Number of rejects of each finished shard that has any.
    """

    name: str = ""
    host: str
    pid: int
    part: str = ""
    log: str = ""
    state: Literal["working", "done", "stopped", "failed"] = "working"
    error: str = ""
    making: dict[int, float] = {}
    finished_count: int = 0
    image_count: int = 0
    seconds: float = 0.0
    rejects: dict[int, int] = {}


@dataclass(frozen=True)
class SeenNode:
    """A node as others see it.

    Attributes:
        id: Name of its file.
        facts: What it says.
        age_s: How long ago it said so.
    """

    id: str
    facts: NodeFacts
    age_s: float

    @property
    def is_live(self) -> bool:
        """Whether it seems to be at work."""
        return self.facts.state == "working" and self.age_s < SILENT_S


class NodeFile:
    """The file of this process.

    Args:
        workspace: Of the build that it works on.
        facts: What it says at first.

    Attributes:
        id: Name of the file; no other process has it.
        facts: What it says; change it and `write`.
    """

    def __init__(self, workspace: Workspace, facts: NodeFacts) -> None:
        self.id = fresh_name(facts.part.replace("/", "-of-") or "any")
        self.facts = facts
        self._path = workspace.folder / "nodes" / self.id
        self._started = time.monotonic()
        self._written = 0.0
        self._begun: dict[int, float] = {}

    def begin(self, number: int) -> None:
        """Say that a shard is being made."""
        self._begun[number] = time.monotonic()
        self.write()

    def end(self, number: int, reject_count: int) -> None:
        """Say that it is finished."""
        self._begun.pop(number, None)
        self.facts.finished_count += 1
        if reject_count:
            self.facts.rejects[number] = reject_count
        self.write()

    def give_up(self) -> None:
        """Say that none is being made any more: others have finished them."""
        self._begun.clear()
        self.write()

    @property
    def making(self) -> set[int]:
        """The shards that are being made."""
        return set(self._begun)

    @property
    def is_due(self) -> bool:
        """Whether others have heard nothing for a while."""
        return time.monotonic() - self._written >= BEAT_S

    def write(self) -> None:
        """Write it. Where the folder is gone, so are those who would read it."""
        now = time.monotonic()
        self._written = now
        self.facts.seconds = now - self._started
        self.facts.making = {number: now - begun for number, begun in self._begun.items()}
        aside = self._path.with_name(f".{self.id}")
        with contextlib.suppress(FileNotFoundError):
            aside.write_bytes(msgspec.json.encode(self.facts))
            os.replace(aside, self._path)


def this_process(name: str = "", part: str = "") -> NodeFacts:
    """What this process can say of itself: also the file that its messages go to, if any."""
    log = ""
    with contextlib.suppress(OSError):
        target = os.readlink("/proc/self/fd/2")
        if os.path.isfile(target):
            log = target
    return NodeFacts(name=name, host=socket.gethostname(), pid=os.getpid(), part=part, log=log)


def read_nodes(workspace: Workspace) -> list[SeenNode]:
    """All nodes that have worked on a build since it was planned, as they see themselves."""
    folder = workspace.folder / "nodes"
    found = []
    now: float | None = None
    try:
        names = sorted(name for name in os.listdir(folder) if not name.startswith("."))
    except FileNotFoundError:
        return []
    for name in names:
        with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):
            with open(folder / name, "rb") as stream:
                written = os.fstat(stream.fileno()).st_mtime
                facts = msgspec.json.decode(stream.read(), type=NodeFacts)
            if now is None:
                now = _server_time(folder)
            found.append(SeenNode(name, facts, max(0.0, now - written)))
    return found


def _server_time(folder: Path) -> float:
    """What time it is where the file system lies; by our own clock where we may not write."""
    path = folder / f".{fresh_name('time')}"
    try:
        path.touch()
        try:
            return path.stat().st_mtime
        finally:
            path.unlink(missing_ok=True)
    except OSError:
        return time.time()


def check_nobody_works(workspace: Workspace, out: Place) -> None:
    """See that an unfinished build may be discarded.

    Raises:
        TargetBusyError: Nodes are at work on it.
    """
    live = [node for node in read_nodes(workspace) if node.is_live]
    if live:
        raise TargetBusyError(
            f"{out}: {names_text(node.facts.name or node.facts.host for node in live)} still work "
            f"on an unfinished build of it (packer status {out}). End them first, with scancel for "
            f"instance; one that was killed counts as gone after {SILENT_S / 60:.0f} minutes."
        )


class Claims:
    """Which shards are taken, and by whom.

    Args:
        workspace: Of the build.
        me: ID of this process's `NodeFile`.
    """

    def __init__(self, workspace: Workspace, me: str) -> None:
        self._workspace = workspace
        self._folder = workspace.folder / "claims"
        self._me = me
        self._live: dict[str, bool] = {}
        self._looked = -BEAT_S

    def take_first(self, number: int) -> bool:
        """Take a shard that nobody has taken."""
        return self._take(number, 1)

    def help_with(self, number: int) -> bool:
        """Take a shard that is not finished, unless it is ours or two live nodes make it."""
        holders = self._holders(number)
        live = sum(self._is_live(holder) for holder in holders)
        if self._me in holders or live > 1 or len(holders) >= CLAIMS_MAX:
            return False
        return self._take(number, len(holders) + 1)

    def _take(self, number: int, turn: int) -> bool:
        try:
            with open(self._folder / f"{number:05d}.{turn}", "x") as claim:
                claim.write(self._me)
        except FileExistsError:
            return False
        except FileNotFoundError:
            return True  # The folder is being made anew. Nothing depends on a claim.
        return True

    def claimed(self) -> set[int]:
        """The shards that somebody has taken."""
        try:
            return {int(name.split(".")[0]) for name in os.listdir(self._folder)}
        except FileNotFoundError:
            return set()

    def release(self, numbers: Iterable[int]) -> None:
        """Give back what this process will not finish."""
        for number in numbers:
            for turn, holder in enumerate(self._holders(number), 1):
                if holder == self._me:
                    (self._folder / f"{number:05d}.{turn}").unlink(missing_ok=True)

    def _holders(self, number: int) -> list[str]:
        found: list[str] = []
        while len(found) < CLAIMS_MAX:
            try:
                found.append((self._folder / f"{number:05d}.{len(found) + 1}").read_text())
            except FileNotFoundError:
                break
        return found

    def _is_live(self, holder: str) -> bool:
        if time.monotonic() - self._looked >= BEAT_S:
            self._live = {node.id: node.is_live for node in read_nodes(self._workspace)}
            self._looked = time.monotonic()
        # One that is not seen yet has just begun.
        return self._live.get(holder, True)
