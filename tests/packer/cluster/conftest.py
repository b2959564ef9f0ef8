"""Planned builds of twelve pictures in four shards, and one whose first picture does not come."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from packer.building.planned import plan_build
from packer.workspace.folder import Workspace
from tests.packer.conftest import MANY_SHARDS, processes_with

WAIT_S = 120


def wait_until(condition: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {WAIT_S} s for {what}"
        time.sleep(0.02)


def waits_for_pipe(pid: int) -> bool:
    """Whether a thread of a process opens a named pipe at whose other end is nobody."""
    for thread in Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(OSError):
            if (thread / "wchan").read_text() == "wait_for_partner":
                return True
    return False


@dataclass
class Planned:
    """A planned build, and the processes that a test starts for it.

    Attributes:
        raw: A copy of the raw tree.
        out: The target.
        workspace: Beside it.
        processes: Nodes; they are killed in the end.
    """

    raw: Path
    out: Path
    workspace: Workspace
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def plan(self, **options: Any) -> Any:
        return plan_build(self.raw, self.out, MANY_SHARDS, **options)

    def start(self, *arguments: str, look_s: float = 0.1) -> subprocess.Popen[str]:
        """A node: a process that works on the build as `packer work` does, and looks often."""
        code = (
            f"import sys; sys.path[:] = {sys.path!r}\n"
            "import functools, packer.cli.cluster as cluster\n"
            f"cluster.work = functools.partial(cluster.work, look_s={look_s})\n"
            "from packer.cli import main\n"
            "main()"
        )
        command = [sys.executable, "-c", code, "work", str(self.out), "--workers", "1", *arguments]
        started = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.processes.append(started)
        return started

    def block(self, name: str) -> None:
        """Have a picture not come, as from a server that is gone."""
        (self.raw / name).rename(self.raw.parent / "aside.png")
        os.mkfifo(self.raw / name)
        self._blocked = name

    def mend(self) -> None:
        """Have it come again, once a node waits for it: that one goes on waiting, for ever."""
        folder = str(self.workspace.folder)
        wait_until(
            lambda: any(map(waits_for_pipe, processes_with(folder))), "a node to open the picture"
        )
        os.replace(self.raw.parent / "aside.png", self.raw / self._blocked)

    def reported_count(self) -> int:
        return len(self.workspace.reported())


@pytest.fixture
def planned(raw: Path, tmp_path: Path) -> Iterator[Planned]:
    """A build of a copy of `raw`, planned for any nodes."""
    tree = Path(shutil.copytree(raw, tmp_path / "raw"))
    out = tmp_path / "target" / "out.lmdb"
    out.parent.mkdir()
    made = Planned(tree, out, Workspace.of(out))
    made.plan()
    yield made
    for process in made.processes:
        process.kill()
        process.communicate()
