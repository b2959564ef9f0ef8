"""A small raw tree, its store, and real `packer build` processes that are disturbed."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from readers.store.errors import StoreIncompleteError, StoreNotFoundError
from readers.store.layout import UPDATE_CACHE_NAME
from readers.store.reader import open_store

ROOT = Path(__file__).parents[2]
NAMES = [f"{name}/{number}.png" for name in ("ant", "bee", "cat") for number in range(4)]
SETTINGS = ("--size", "320", "--fit", "stretch", "--shard-size", "1MiB")
"""A picture takes 307,200 bytes, so that three fill a shard: 12 pictures make 4 shards."""

WAIT_S = 60


def draw(path: Path) -> None:
    """Write a picture of noise that follows from the path's last two parts."""
    rng = np.random.default_rng(zlib.crc32("/".join(path.parts[-2:]).encode()))
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(rng.integers(0, 256, (16, 24, 3), dtype=np.uint8)).save(path)


def python_path() -> dict[str, str]:
    """An environment in which a child imports what this process imports."""
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def contents_of(path: Path) -> dict[str, bytes]:
    return {
        entry.name: entry.read_bytes()
        for entry in path.iterdir()
        if entry.name != UPDATE_CACHE_NAME
    }


def is_whole(path: Path) -> bool:
    """Whether a reader takes this for a store. What it takes must be whole."""
    try:
        store = open_store(path)
    except (StoreIncompleteError, StoreNotFoundError):
        return False
    for shard in store.shards():
        for position in range(len(shard.lengths)):
            shard.check_record(position)
    return True


def processes_with(text: str) -> list[int]:
    """Processes, but this one, whose command line holds a text."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            with contextlib.suppress(OSError):
                if os.fsencode(text) in (folder / "cmdline").read_bytes():
                    found.append(int(folder.name))
    return found


def wait_until(condition: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {WAIT_S} s for {what}"
        time.sleep(0.002)


class Ended:
    """How a `packer build` ended: exit status, what it said, and seconds since it was disturbed.

    Of what it said on stderr, `errors` is all but what it decided before the work.
    """

    def __init__(self, status: int, said: str, errors: str, mark: Path) -> None:
        self.status, self.said = status, said
        lines = errors.splitlines(keepends=True)
        self.errors = "".join(line for line in lines if not line.startswith("format: "))
        self.delay_s = time.time() - mark.stat().st_mtime if mark.exists() else None


class Builder:
    """Runs `packer build` of a raw tree to `out`, whole or disturbed.

    Attributes:
        out: Target of the build; nothing else lies in its folder.
        scratch: An empty folder elsewhere, for `--scratch`.
    """

    def __init__(self, raw: Path, folder: Path) -> None:
        self.raw = raw
        (folder / "target").mkdir()
        self.out = folder / "target" / "out.lmdb"
        self.scratch = folder / "scratch"
        self.scratch.mkdir()
        self._mark = folder / "disturbed"

    def run(
        self,
        *options: str | os.PathLike[str],
        step: str = "",
        turn: int = 1,
        command: str = "",
        before: Sequence[str] = (),
        **process: Any,
    ) -> Ended:
        """Build, and at a step run a shell command; `before` is what runs the interpreter."""
        self._mark.unlink(missing_ok=True)
        command = f"touch {self._mark}\n{command}"
        arguments = [*before, sys.executable, str(Path(__file__).with_name("at_step.py"))]
        arguments += [
            step,
            str(turn),
            command,
            "build",
            str(self.raw),
            str(self.out),
            *SETTINGS,
        ]
        running = subprocess.Popen(
            [*arguments, *map(os.fspath, options)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            **{"env": python_path(), "preexec_fn": take_interrupts, **process},
        )
        try:
            said, errors = running.communicate(timeout=WAIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            raise
        return Ended(running.returncode, said, errors, self._mark)

    def check_gone(self) -> None:
        """No process of the build is left, also none that the driver left to itself."""
        wait_until(lambda: not processes_with(str(self.out)), "the build workers to end")

    def finish(self, whole: dict[str, bytes], *options: str | os.PathLike[str]) -> Ended:
        """The same command ends well, with the bytes of an undisturbed build and no remains."""
        done = self.run(*options)
        assert (done.status, done.errors) == (0, "")
        self.check_whole(whole)
        return done

    def check_whole(self, whole: dict[str, bytes]) -> None:
        """The store is byte for byte that of an undisturbed build, and nothing is left behind."""
        assert contents_of(self.out) == whole
        assert os.listdir(self.out.parent) == [self.out.name]
        assert os.listdir(self.scratch) == []
        self.check_gone()


def take_interrupts() -> None:
    """A shell that runs the suite in its background has it ignore Ctrl-C, children included."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def check_one_line(done: Ended, *words: str) -> None:
    """The build failed, and said why in one line for people."""
    assert done.status == 1, done.errors
    assert done.said == ""
    assert done.errors.startswith("Error: ")
    assert done.errors.count("\n") == 1, done.errors
    for word in words:
        assert word in done.errors, done.errors


@pytest.fixture(scope="session")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve pictures in three class folders. Not to be changed."""
    root = tmp_path_factory.mktemp("classes") / "raw"
    for name in NAMES:
        draw(root / name)
    return root


@pytest.fixture(scope="session")
def whole(raw: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """All files of the store that an undisturbed build of `raw` makes."""
    builder = Builder(raw, tmp_path_factory.mktemp("whole"))
    done = builder.run()
    assert (done.status, done.errors) == (0, "")
    return contents_of(builder.out)


@pytest.fixture
def builder(raw: Path, tmp_path: Path) -> Builder:
    return Builder(raw, tmp_path)


@pytest.fixture
def own_builder(raw: Path, tmp_path: Path) -> Builder:
    """As `builder`, of a copy of the raw tree that a test may change."""
    shutil.copytree(raw, tmp_path / "raw")
    return Builder(tmp_path / "raw", tmp_path)


@pytest.fixture
def second_builder(own_builder: Builder, tmp_path: Path) -> Builder:
    """Another one of the tree of `own_builder`."""
    (tmp_path / "second").mkdir()
    return Builder(own_builder.raw, tmp_path / "second")


@pytest.fixture(name="check_one_line", scope="session")
def _check_one_line() -> Callable[..., None]:
    return check_one_line


@pytest.fixture(name="is_whole", scope="session")
def _is_whole() -> Callable[[Path], bool]:
    return is_whole


@pytest.fixture(name="contents_of", scope="session")
def _contents_of() -> Callable[[Path], dict[str, bytes]]:
    return contents_of


@pytest.fixture(name="wait_until", scope="session")
def _wait_until() -> Callable[[Callable[[], Any], str], None]:
    return wait_until


@functools.cache
def _refusal(*command: str) -> str:
    """Why a command cannot be run here; empty when it can."""
    if shutil.which(command[0]) is None:
        return f"{command[0]} is not installed"
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr.strip() or "refused" if done.returncode else ""


@pytest.fixture
def strace() -> Callable[..., list[str]]:
    """Start of a command line whose system calls on files fail: strace(calls, paths, how).

    Of calls with two paths only the first counts.

    Every process that it starts is meant, build workers included.
    """
    probe = (
        "strace",
        "-f",
        "--seccomp-bpf",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        "inject=fsync:error=EIO",
        "true",
    )
    if refusal := _refusal(*probe):
        pytest.skip(f"no faults can be injected into system calls here: {refusal}")

    def command(calls: str, paths: Sequence[Path], how: str) -> list[str]:
        chosen = [f"--trace-path={path}" for path in paths]
        quiet = ["strace", "-f", "--seccomp-bpf", "-qq", "-o", "/dev/null"]
        return [*quiet, *chosen, "-e", f"trace={calls}", "-e", f"inject={calls}:{how}"]

    return command


@pytest.fixture
def mounting() -> Callable[[str], list[str]]:
    """Start of a command line that mounts file systems first, for itself alone: mounting(script).

    Whoever is not root mounts as root of a user namespace, where the system allows that.
    """
    options = ["--mount"] if os.geteuid() == 0 else ["--mount", "--map-root-user"]
    probe = ("unshare", *options, "sh", "-ec", "mount -t tmpfs -o size=1m none /mnt")
    if refusal := _refusal(*probe):
        pytest.skip(f"no file system can be mounted here: {refusal}")
    return lambda script: ["unshare", *options, "sh", "-ec", f'{script}\nexec "$@"', "sh"]
