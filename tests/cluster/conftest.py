"""A real Slurm of three nodes on this machine, and builds that are submitted to it."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from packer.building.build import build
from packer.cluster.slurm import logs_folder
from packer.workspace.folder import Workspace
from packer.workspace.nodes import SeenNode, read_nodes
from tests.packer.conftest import CLASS_NAMES, MANY_SHARDS, draw_tree, processes_with

SLURM_DEV = Path(__file__).resolve().parents[2] / "scripts" / "slurm_dev.py"
LACKING_STATUS = 3
WAIT_S = 180
SETTINGS = ("--size", "320", "--fit", "stretch", "--shard-size", "1MiB")
"""A picture takes 307,200 bytes, so that three fill a shard: 12 pictures make 4 shards."""


def wait_until(
    condition: Callable[[], Any], what: str, state: Callable[[], str] = lambda: ""
) -> Any:
    """What a condition gives, once it gives something; a failure says what `state` does."""
    deadline = time.monotonic() + WAIT_S
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {WAIT_S} s for {what}\n{state()}"
        time.sleep(0.02)
    return found


@dataclass(frozen=True)
class Slurm:
    """A running cluster. Nodes are n1 to n3, of one core each.

    Attributes:
        folder: Of `scripts/slurm_dev.py`.
        environment: In which the programs of Slurm find it.
    """

    folder: Path
    environment: dict[str, str]

    def run(self, *command: str | os.PathLike[str], check: bool = True) -> Any:
        return subprocess.run(
            [os.fspath(word) for word in command],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=check,
        )

    def dev(self, action: str, *arguments: str) -> Any:
        return self.run(sys.executable, SLURM_DEV, action, self.folder, *arguments, check=False)

    def states(self, job: str) -> set[str]:
        """Of a job, or of all tasks of an array."""
        lines = self.run("squeue", "-h", "-r", "-t", "all", "-j", job, "-o", "%T").stdout
        return set(lines.split())

    def wait_until_ended(self, job: str) -> str:
        """The state in which a job ended."""
        ended = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED"}

        def found() -> set[str] | None:
            states = self.states(job)
            return states if states and states <= ended else None

        return "+".join(sorted(wait_until(found, f"job {job} to end", self._queue)))

    def _queue(self) -> str:
        """Jobs and nodes as Slurm has them, and the end of its log."""
        log = (self.folder / "log" / "slurmctld.log").read_text(errors="replace")
        return "\n".join(
            [
                self.run("squeue", "-r", "-t", "all", check=False).stdout,
                self.run("sinfo", "-N", "-l", check=False).stdout,
                log[-3000:],
            ]
        )


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """A cluster; the test is skipped, by the cluster's own words, where there can be none."""
    # A socket's path is short.
    folder = Path(f"/tmp/slurm-dev-{os.getpid()}")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # Jobs find the Python of the tests by its name.
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin:/sbin"
    root = str(SLURM_DEV.parents[1])
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("SLURM_")},
        **{"PATH": path, "SLURM_CONF": str(folder / "slurm.conf"), "PYTHONPATH": root},
    }
    made = Slurm(folder, environment)
    try:
        started = made.dev("up", "--port", str(port))
        if started.returncode == LACKING_STATUS:
            pytest.skip(started.stderr.strip().splitlines()[-1])
        assert started.returncode == 0, started.stderr
        yield made
    finally:
        made.dev("down")
        assert not folder.exists()


@dataclass
class Submitted:
    """A raw tree, where its store is to be, and the jobs of its build.

    Attributes:
        slurm: The cluster.
        raw: The raw tree.
        out: The target.
        workspace: Beside it.
        jobs: Number of each job, by name.
    """

    slurm: Slurm
    raw: Path
    out: Path
    workspace: Workspace
    jobs: dict[str, str]

    def submit(self, *options: str, task_count: int = 2) -> Any:
        """What `packer submit` says."""
        from packer.cluster.slurm import packer_command

        done = self.slurm.run(
            *packer_command(),
            *("submit", self.raw, self.out, *SETTINGS, "--tasks", str(task_count)),
            *("--cpus-per-task", "1", *options),
            check=False,
        )
        first = done.stdout.splitlines()[:1]
        if done.returncode == 0 and first:
            words = first[0].removeprefix("submitted: ").split(", ")
            self.jobs = dict(word.split(" ") for word in words)
        return done

    def log(self, name: str) -> str:
        """What the jobs of a name have printed."""
        logs = sorted(logs_folder(self.out).glob(f"{name}-*.log"))
        return "".join(path.read_text() for path in logs)

    def submit_blocked(self, name: str, *, task_count: int) -> None:
        """Submit, and have a picture not come once it is planned, as from a server that is gone."""
        assert self.submit(task_count=task_count).returncode == 0
        self.slurm.run("scontrol", "hold", self.jobs["work"])
        assert self.slurm.wait_until_ended(self.jobs["plan"]) == "COMPLETED"
        (self.raw / name).rename(self.raw.parent / "aside.png")
        os.mkfifo(self.raw / name)
        self._blocked = name
        # The others begin later: with their own work done, they would wait for the picture too.
        self.slurm.run("scontrol", "release", f"{self.jobs['work']}_1")

    def mend(self) -> SeenNode:
        """Have it come again, once a node waits for it, which goes on waiting: that of part 1."""
        wait_until(self._waits, "a task to open the picture")
        os.replace(self.raw.parent / "aside.png", self.raw / self._blocked)
        nodes = [node for node in read_nodes(self.workspace) if node.facts.part.startswith("1/")]
        assert len(nodes) == 1
        self.slurm.run("scontrol", "release", self.jobs["work"], check=False)  # If there are more.
        return nodes[0]

    def _waits(self) -> bool:
        for pid in processes_with(str(self.workspace.folder)):
            for thread in Path(f"/proc/{pid}/task").glob("*"):
                with contextlib.suppress(OSError):
                    if (thread / "wchan").read_text() == "wait_for_partner":
                        return True
        return False


@pytest.fixture
def submitted(slurm: Slurm, tmp_path: Path) -> Iterator[Submitted]:
    """Twelve pictures that make four shards; nothing is submitted yet."""
    raw = draw_tree(tmp_path / "raw", CLASS_NAMES)
    out = tmp_path / "target" / "out.lmdb"
    out.parent.mkdir()
    made = Submitted(slurm, raw, out, Workspace.of(out), {})
    yield made
    slurm.run("scancel", "--full", *made.jobs.values(), check=False)
    wait_until(lambda: not processes_with(str(out)), "the jobs to be gone")


@pytest.fixture
def alike(tmp_path: Path) -> Callable[[Submitted], bool]:
    """Whether a store is, byte for byte, what one machine makes of the same raw tree."""

    def compare(made: Submitted) -> bool:
        local = tmp_path / "local.lmdb"
        shutil.rmtree(local, ignore_errors=True)
        build(made.raw, local, MANY_SHARDS, worker_count=1)
        names: Sequence[str] = sorted(os.listdir(local))
        return names == sorted(os.listdir(made.out)) and all(
            subprocess.run(["cmp", local / name, made.out / name], check=False).returncode == 0
            for name in names
            if name != "update-cache"  # It holds times of the raw files, one of which was moved.
        )

    return compare
