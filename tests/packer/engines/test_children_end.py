"""Every process that packer starts ends with the one that started it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from packer.building.build import build
from tests.processes import is_gone

ROOT = Path(__file__).resolve().parents[3]

# A forked child of the program holds copies of all pipes, as those that are forked beside a build
# do: so that no end of a pipe tells that the program is gone.
END = """
if os.fork() == 0:
    time.sleep(600)
say(child)
time.sleep(600)
"""

START = """
import os, sys, threading, time
from pathlib import Path
def say(word):
    os.write(1, f"{word}\\n".encode())
"""

BUILD_WORKER = """
from packer.engines.local import Crew
from packer.workspace.folder import Workspace
crew = Crew(Workspace(Path(sys.argv[1])))
child = crew.start()._process.pid
"""

# One child of look-ups is started by a thread that ends, and goes on being asked by others.
LOOK_UPS = """
from packer.stores.lmdb_children import LmdbChildren
from readers.store.reader import open_store
children = LmdbChildren(open_store(Path(sys.argv[1])))
found = []
thread = threading.Thread(target=lambda: found.append(children.problem(0)))
thread.start()
thread.join()
time.sleep(0.3)
found.append(children.problem(0))
assert found == [None, None], found
(one,) = children._all
child = one._process.pid
"""

DOCTOR = """
from packer.doctor.torch_facts import TorchQuestion
question = TorchQuestion().__enter__()
child = question._child.pid
while b"torch" not in Path(f"/proc/{child}/maps").read_bytes() and not Path("imports").exists():
    time.sleep(0.02)
"""

SLOW_TORCH = "import pathlib, time\npathlib.Path('imports').touch()\ntime.sleep(600)\n"


@pytest.fixture
def start(tmp_path):
    """Starts a program in a folder of its own; its whole group is ended later."""
    programs = []

    def run(code, *arguments):
        program = subprocess.Popen(
            [sys.executable, "-c", START + code + END, *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path / 'modules'}"},
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        programs.append(program)
        return program

    yield run
    for program in programs:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        program.communicate()


@pytest.mark.parametrize("kind", ["build worker", "look-ups", "doctor"])
def test_a_child_ends_with_a_killed_program(start, raw, tmp_path, kind):
    """Within seconds, though the pipes to it stay open elsewhere."""
    if kind == "build worker":
        program = start(BUILD_WORKER, str(tmp_path))
    elif kind == "look-ups":
        build(raw, tmp_path / "out.lmdb")
        program = start(LOOK_UPS, str(tmp_path / "out.lmdb"))
    else:
        (tmp_path / "modules").mkdir()
        (tmp_path / "modules/torch.py").write_text(SLOW_TORCH)
        program = start(DOCTOR)
    child = int(program.stdout.readline())
    time.sleep(0.5)
    assert not is_gone(child)
    program.kill()
    end = time.monotonic() + 8
    while not is_gone(child):
        assert time.monotonic() < end, "it lives on"
        time.sleep(0.02)
