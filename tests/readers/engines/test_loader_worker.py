"""Loader workers leave signals to the program, and end with it, whatever they are doing."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.processes import heed_keys, is_gone, wait_until

ROOT = Path(__file__).resolve().parents[3]
METHODS = ("fork", "spawn", "forkserver")

MAIN = """
import ctypes, json, multiprocessing, os, signal, sys, threading, time
from torch.utils.data import Dataset
from readers import make_loader

class Busy(Dataset):
    def __init__(self, act):
        self.act = act
    def __len__(self):
        return 64
    def __getitem__(self, index):
        return globals()[self.act](index)

def number(index):
    return index

def sleep(index):
    if index >= 2:
        time.sleep(600)
    return os.getpid()

def read(index):
    if index >= 2:
        os.read(os.pipe()[0], 1)
    return os.getpid()

def native(index):  # It holds the interpreter lock all the while, as a decoder in a circle may.
    if index >= 2:
        ctypes.PyDLL(None).sleep(600)
    return os.getpid()

def handlers(index):
    return [repr(signal.getsignal(number)) for number in sorted(signal.valid_signals())]

def loader_of(act, **settings):
    settings = {"train": False, "workers": 2, "engine": "process", **settings}
    return make_loader(Busy(act), 1, collate_fn=list, **settings)

def say(*words):  # One write, which cannot mix with another's.
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

def kind_of(loader):
    next(iter(loader))
    kind = type(loader.engine._workers[0].process).__name__
    loader.close()
    return kind

def say_kinds():
    say(kind_of(loader_of("number")), kind_of(loader_of("number", start_method="fork")))

def pids(loader):
    return [worker.process.pid for worker in loader.engine._workers]
"""


@pytest.fixture
def start(tmp_path):
    """Starts a program, whose functions are those of `MAIN`; its process group is ended later."""
    programs = []

    def run(code, *arguments, **settings):
        path = tmp_path / f"program{len(programs)}.py"
        path.write_text(MAIN + "\nif __name__ == '__main__':\n    " + code.replace("\n", "\n    "))
        settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **settings}
        program = subprocess.Popen(
            [sys.executable, "-W", "error", path, *map(str, arguments)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            text=True,
            start_new_session=True,
            preexec_fn=heed_keys,
            **settings,
        )
        programs.append(program)
        return program

    yield run
    for program in programs:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        program.communicate()


def group_of(leader):
    """The processes of a group that are alive."""
    found = []
    for name in os.listdir("/proc"):
        try:
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
        except (OSError, ValueError):
            continue
        if int(fields[2]) == leader and fields[0] != "Z":
            found.append(int(name))
    return found


HANDLED = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGCHLD", "SIGSEGV", "SIGINT")


@pytest.mark.parametrize(
    ("method", "place"),
    [("fork", "main"), ("fork", "thread"), ("spawn", "main"), ("forkserver", "thread")],
)
def test_a_worker_has_no_handler_of_the_program(start, method, place):
    """None at all: signals that the program handles are its own, and defaults stay defaults."""
    code = """
for name in sys.argv[3].split(","):
    signal.signal(getattr(signal, name), lambda *_: say("handled in", os.getpid()))
def run():
    loader = loader_of("handlers", start_method=sys.argv[1])
    (found,) = next(iter(loader))
    numbers = sorted(signal.valid_signals())
    names = {signal.Signals(n).name: h for n, h in zip(numbers, found) if n < 32}
    say(json.dumps(names))
    loader.close()
if sys.argv[2] == "main":
    run()
else:
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
"""
    program = start(code, method, place, ",".join(HANDLED))
    said, errors = program.communicate(timeout=100)
    assert (program.returncode, errors) == (0, "")
    found = json.loads(next(line for line in said.splitlines() if line.startswith("{")))
    assert not any("function" in handler for handler in found.values())
    ignored = {"SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGALRM"} if method == "fork" else set()
    for name, handler in found.items():
        if name in ("SIGINT", "SIGPIPE", "SIGXFSZ") or name in ignored:
            assert "SIG_IGN" in handler, name
        elif name not in ("SIGKILL", "SIGSTOP"):
            assert "SIG_DFL" in handler, name


@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1"])
def test_a_signal_for_the_whole_group_leaves_the_program_time(start, name):
    """As a scheduler sends it: the program's handler runs once, and training goes on to its end."""
    code = """
main = os.getpid()
def on_signal(number, frame):
    say("handled in", "main" if os.getpid() == main else "a worker")
signal.signal(getattr(signal, sys.argv[1]), on_signal)
for number, batch in enumerate(loader_of("number")):
    if number == 3:
        say("ready")
        time.sleep(1)
say(number + 1, "batches")
"""
    program = start(code, name)
    assert program.stdout.readline() == "ready\n"
    os.killpg(program.pid, getattr(signal, name))
    said, errors = program.communicate(timeout=60)
    assert (said, errors) == ("handled in main\n64 batches\n", "")
    wait_until(lambda: not group_of(program.pid), 8)


@pytest.mark.parametrize(
    ("method", "act"),
    [
        ("fork", "sleep"),
        ("fork", "read"),
        ("fork", "native"),
        ("spawn", "native"),
        ("forkserver", "sleep"),
        ("forkserver", "native"),
    ],
)
def test_workers_of_a_killed_program_end_whatever_they_do(start, method, act):
    """Within seconds: also one that never gets to run Python again."""
    code = """
loader = loader_of(sys.argv[2], start_method=sys.argv[1])
batches = iter(loader)
next(batches), next(batches)
say(*pids(loader))
time.sleep(600)
"""
    program = start(code, method, act)
    pids = [int(pid) for pid in program.stdout.readline().split()]
    assert len(pids) == 2
    time.sleep(0.3)  # Until both are at it.
    assert not any(map(is_gone, pids))
    program.kill()
    wait_until(lambda: all(map(is_gone, pids)), 5)


@pytest.mark.parametrize(
    ("method", "act"),
    [("fork", "sleep"), ("fork", "native"), ("spawn", "native"), ("forkserver", "sleep")],
)
def test_workers_that_a_thread_has_started_live_as_long_as_the_program(start, method, act):
    """They outlive that thread, and not the process; a forked child that stays is fine.

    The kernel would end them with the thread that has started them.
    """
    code = """
loader = loader_of(sys.argv[2], start_method=sys.argv[1])
batches = []
def begin():
    batches.append(iter(loader))
    next(batches[0])
thread = threading.Thread(target=begin)
thread.start()
thread.join()
time.sleep(0.5)
next(batches[0])
threads = [thread.name for thread in threading.enumerate()]
if sys.argv[2] == "sleep" and os.fork() == 0:
    time.sleep(600)
say(*pids(loader))
time.sleep(600)
"""
    program = start(code, method, act)
    pids = [int(pid) for pid in program.stdout.readline().split()]
    time.sleep(0.3)
    assert len(pids) == 2
    assert not any(map(is_gone, pids))
    program.kill()
    wait_until(lambda: all(map(is_gone, pids)), 5)


def test_a_closed_loader_leaves_no_thread_of_its_start(start):
    """The thread that had to stay for the workers goes with them, also when nobody closed it."""
    code = """
def run(is_closed):
    loader = loader_of("number")
    assert len(list(loader)) == 64
    if is_closed:
        loader.close()
    else:
        assert "loader-start" in [thread.name for thread in threading.enumerate()]
for is_closed in (True, False):
    thread = threading.Thread(target=run, args=(is_closed,))
    thread.start()
    thread.join()
    end = time.monotonic() + 10
    while threading.active_count() > 1:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert multiprocessing.active_children() == []
"""
    program = start(code)
    _, errors = program.communicate(timeout=60)
    assert (program.returncode, errors) == (0, "")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("wait_s", [0.0, 0.4, 1.5])
def test_ctrl_c_at_any_moment_is_one_interrupt(start, method, wait_s):
    """While workers start, import and work: one KeyboardInterrupt, and no word of a worker.

    A fork server is there before: that is Python's own, and takes an interrupt as it imports.
    """
    code = """
if sys.argv[1] == "forkserver":
    list(loader_of("number", start_method=sys.argv[1], workers=1))
say("begins")
for batch in loader_of("sleep", start_method=sys.argv[1]):
    pass
"""
    program = start(code, method)
    assert program.stdout.readline() == "begins\n"
    time.sleep(wait_s)
    os.killpg(program.pid, signal.SIGINT)
    _, errors = program.communicate(timeout=60)
    assert program.returncode == -signal.SIGINT
    assert errors.count("Traceback") == 1
    assert errors.strip().endswith("KeyboardInterrupt")
    wait_until(lambda: not group_of(program.pid), 8)


@pytest.mark.parametrize(
    ("method", "expected"),
    [("fork", "ForkProcess"), ("spawn", "SpawnProcess"), ("forkserver", "ForkServerProcess")],
)
def test_workers_of_a_spawned_process_are_spawned(start, method, expected):
    """Beside CUDA a process must not fork; how it was started itself says whether it is such a one.

    What was asked for goes before that.
    """
    code = """
process = multiprocessing.get_context(sys.argv[1]).Process(target=say_kinds)
process.start()
process.join()
"""
    program = start(code, method)
    said, errors = program.communicate(timeout=100)
    assert (said, errors) == (f"{expected} ForkProcess\n", "")
