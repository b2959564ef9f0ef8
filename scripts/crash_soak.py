"""Kills builds at random moments, over and over, and checks everything after each kill.

    python scripts/crash_soak.py --kills 500
    python scripts/crash_soak.py --kills 500 --seed 7 --json

A build is started as a process of its own and killed by SIGKILL: its driver, one of its build
workers, or all of them at once. Then the same command is started again, and killed again, until
one comes to its end. After every kill: nothing that is not a whole store opens, and no process is
left. After every end: exit status 0, the bytes of an undisturbed build, and nothing left behind.
The first thing that is wrong ends the run with exit status 1; the moments follow from the seed, as
far as the machine is as quick as the last time.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from packer.workspace.folder import Workspace
from readers.store.errors import StoreIncompleteError, StoreNotFoundError
from readers.store.reader import open_store

WAIT_S = 60.0
VICTIMS = ("driver", "worker", "all")
START_S = 1.0
SHARD_S = 0.15
"""A little more than a start and a shard take on a machine that does nothing else."""

SETTINGS = ("--size", "320", "--fit", "stretch", "--shard-size", "1MiB")
"""A picture takes 307,200 bytes, so that three fill a shard."""

START = "import sys; sys.path[:] = {path!r}; from packer.cli import main; main()"


class SoakError(Exception):
    """A law was broken; the text says which."""


@dataclass
class Figures:
    """What happened.

    Attributes:
        kills: By victim.
        moments: Kills by what the build had done.
        builds: Builds that came to their end, after any number of kills.
        runs_max: Most runs that one of them took.
        seconds: Wall time.
    """

    kills: Counter[str] = field(default_factory=Counter)
    moments: Counter[str] = field(default_factory=Counter)
    builds: int = 0
    runs_max: int = 0
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """By name, for programs."""
        return {
            "kill_count": self.kills.total(),
            "kills": dict(self.kills),
            "moments": dict(sorted(self.moments.items())),
            "builds": self.builds,
            "runs_max": self.runs_max,
            "seconds": round(self.seconds, 1),
        }

    def summary(self) -> str:
        """For people."""
        kills = ", ".join(f"{self.kills[victim]} {victim}" for victim in VICTIMS)
        moments = ", ".join(f"{count} {what}" for what, count in sorted(self.moments.items()))
        return (
            f"{self.kills.total()} kills ({kills}) in {self.seconds:.0f} s\n"
            f"moments: {moments}\n"
            f"{self.builds} builds finished, the most disturbed one in its run {self.runs_max}; "
            "every store as undisturbed, nothing half opened, nothing left behind"
        )


def draw_raw(root: Path, count: int) -> Path:
    """Pictures of noise in three class folders."""
    rng = np.random.default_rng(0)
    for number in range(count):
        path = root / "abc"[number % 3] / f"{number:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (16, 24, 3), dtype=np.uint8)).save(path)
    return root


def contents_of(path: Path) -> dict[str, bytes]:
    """All files of a store, by name."""
    return {entry.name: entry.read_bytes() for entry in path.iterdir()}


def start(raw: Path, out: Path, scratch: Path) -> subprocess.Popen[str]:
    """Start a build in a process group of its own."""
    options = ("--workers", "2", "--scratch", str(scratch))
    return subprocess.Popen(
        [sys.executable, "-c", START.format(path=sys.path), "build", raw, out, *SETTINGS, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def children_of(pid: int) -> list[int]:
    """Processes that a process has started and that have not ended."""
    try:
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def processes_of(out: Path) -> list[int]:
    """Processes that a build has left, told by their command lines."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                if os.fsencode(out) in (folder / "cmdline").read_bytes():
                    found.append(int(folder.name))
            except OSError:
                continue
    return found


def moment_of(out: Path) -> str:
    """What a build has done so far, in a few words."""
    workspace = Workspace.of(out)
    if not workspace.folder.exists():
        return "after all" if out.exists() else "before all"
    if out.exists():
        return "published"
    if workspace.read_facts() is None:
        return "while planning"
    return "between shards" if any((workspace.folder / "reports").iterdir()) else "first shards"


def check_not_half(out: Path, whole: dict[str, bytes]) -> None:
    """What opens must be whole."""
    try:
        open_store(out)
    except (StoreIncompleteError, StoreNotFoundError):
        return
    if contents_of(out) != whole:
        raise SoakError(f"{out} opens, and is not the store of an undisturbed build")


def check_left(out: Path) -> None:
    """No process of a build is left, at the latest after some seconds."""
    deadline = time.monotonic() + WAIT_S
    while processes := processes_of(out):
        if time.monotonic() > deadline:
            raise SoakError(f"processes {processes} of the build of {out} are left")
        time.sleep(0.005)


def check_finished(
    running: subprocess.Popen[str], out: Path, scratch: Path, whole: dict[str, bytes]
) -> None:
    """A build that came to its end did so well."""
    said, errors = running.communicate(timeout=WAIT_S)
    # Killed over the last files of its workspace, the store is there, and that is what is said.
    is_there = running.returncode == 1 and "a store is there already" in errors
    if running.returncode != 0 and not is_there:
        raise SoakError(f"exit status {running.returncode}: {said}{errors}")
    if contents_of(out) != whole:
        raise SoakError(f"{out} differs from the store of an undisturbed build")
    left = [*os.listdir(scratch), *(n for n in os.listdir(out.parent) if n != out.name)]
    if left:
        raise SoakError(f"left behind: {', '.join(left)}")
    check_left(out)


def wait_for_hold(running: subprocess.Popen[str], out: Path, before_ns: int) -> None:
    """Wait until a build took hold of its target, or ended without."""
    deadline = time.monotonic() + WAIT_S
    while running.poll() is None and held_since(out) in (0, before_ns):
        if time.monotonic() > deadline:
            raise SoakError(f"a build did not take hold of {out} in {WAIT_S:.0f} s")
        time.sleep(0.001)


def finished_count(out: Path) -> int:
    """Shards that a build has finished so far."""
    try:
        return sum(n.isdigit() for n in os.listdir(Workspace.of(out).folder / "reports"))
    except FileNotFoundError:
        return 0


def wait_for_shards(running: subprocess.Popen[str], out: Path, count: int) -> None:
    """Wait until a build has finished so many shards, or ended."""
    deadline = time.monotonic() + WAIT_S
    while running.poll() is None and finished_count(out) < count:
        if time.monotonic() > deadline:
            raise SoakError(f"a build did not make {count} shards of {out} in {WAIT_S:.0f} s")
        time.sleep(0.001)


def held_since(out: Path) -> int:
    """When the lock beside a target was last written, in ns; 0 when there is none."""
    try:
        return (Workspace.of(out).folder / "lock").stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def kill(running: subprocess.Popen[str], victim: str, rng: random.Random) -> bool:
    """Kill the driver of a build, one of its workers, or all; False when it is not there."""
    if running.poll() is not None:
        return False
    if victim == "worker":
        workers = children_of(running.pid)
        if workers:
            os.kill(rng.choice(workers), signal.SIGKILL)
        return bool(workers)
    (os.killpg if victim == "all" else os.kill)(running.pid, signal.SIGKILL)
    running.wait(WAIT_S)
    return True


def disturb(
    running: subprocess.Popen[str],
    out: Path,
    shard_count: int,
    rng: random.Random,
    figures: Figures,
) -> bool:
    """Kill a worker of a build, and then its driver or all of it, if it is still there.

    Args:
        running: The build, just started.
        out: Its target.
        shard_count: How many shards its store will have.
        rng: Decides whom to kill, and when.
        figures: Counts the kills.

    Returns:
        Whether it was killed; False when it is to end by itself, or has.
    """
    # One run in four is killed while modules are loaded and the raw tree is read; the others after
    # some shard or other, so that a busy machine changes nothing about where they are met.
    if rng.random() < 1 / 4:
        time.sleep(rng.uniform(0, START_S))
    else:
        wait_for_hold(running, out, held_since(out))
        wait_for_shards(running, out, rng.randint(finished_count(out), shard_count))
    # Of workers one: the second on the same raw item would rightly make a reject of it.
    for victims in (VICTIMS, ("driver", "all")):
        victim = rng.choice(victims)
        time.sleep(rng.uniform(0, SHARD_S))
        moment = moment_of(out)
        if kill(running, victim, rng):
            figures.kills[victim] += 1
            figures.moments[moment] += 1
            if victim != "worker":
                return True
    return False


def soak(
    folder: Path, kill_count: int, seed: int, picture_count: int, seconds_max: float
) -> Figures:
    """Kill builds that often; see the module.

    Raises:
        SoakError: Something was not as it must be.
    """
    began = time.monotonic()
    raw, scratch = draw_raw(folder / "raw", picture_count), folder / "scratch"
    scratch.mkdir()
    (folder / "whole").mkdir()
    (folder / "target").mkdir()
    undisturbed = start(raw, folder / "whole" / "out.lmdb", scratch)
    undisturbed.communicate(timeout=WAIT_S)
    whole = contents_of(folder / "whole" / "out.lmdb")
    shard_count = sum(name.startswith("shard-") for name in whole)
    rng, figures, out = random.Random(seed), Figures(), folder / "target" / "out.lmdb"
    while figures.kills.total() < kill_count and time.monotonic() - began < seconds_max:
        run_count, is_killed = 0, True
        while is_killed:
            run_count += 1
            running = start(raw, out, scratch)
            is_killed = figures.kills.total() < kill_count and disturb(
                running, out, shard_count, rng, figures
            )
            if is_killed:
                running.communicate(timeout=WAIT_S)
                check_left(out)
                check_not_half(out, whole)
        check_finished(running, out, scratch, whole)
        figures.builds += 1
        figures.runs_max = max(figures.runs_max, run_count)
        shutil.rmtree(out)
    figures.seconds = time.monotonic() - began
    return figures


def main() -> None:
    """Parse, soak, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=500, help="How many kills. Default: 500.")
    parser.add_argument("--seed", type=int, default=0, help="Of the moments. Default: 0.")
    parser.add_argument("--pictures", type=int, default=48, help="In the raw tree. Default: 48.")
    parser.add_argument(
        "--seconds-max", type=float, default=3600.0, help="Stop then at the latest."
    )
    parser.add_argument("--json", action="store_true", help="Print the figures as JSON.")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="crash-soak-") as folder:
        try:
            figures = soak(
                Path(folder),
                arguments.kills,
                arguments.seed,
                arguments.pictures,
                arguments.seconds_max,
            )
        except SoakError as error:
            sys.exit(f"seed {arguments.seed}: {error}")
    print(json.dumps(figures.as_dict()) if arguments.json else figures.summary())


if __name__ == "__main__":
    main()
