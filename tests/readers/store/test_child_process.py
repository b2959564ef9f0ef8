"""A child leaves signals to its parent, and ends with it, in whatever way it can."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.processes import heed_keys, is_gone

ROOT = Path(__file__).resolve().parents[3]

PROGRAM = """
import ctypes, os, signal, sys, threading, time
from readers.store import child_process
from readers.store.child_process import end_with_parent, leave_signals_to_parent

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

def child_of(act):  # A forked child; in the parent, its pid.
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        try:
            act(parent)
        finally:
            os._exit(3)
    return child
"""


@pytest.fixture
def start():
    """Starts a program that has the functions above; its whole group is ended later."""
    programs = []

    def run(code, *arguments):
        programs.append(
            subprocess.Popen(
                [sys.executable, "-W", "error", "-c", PROGRAM + code, *arguments],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
                preexec_fn=heed_keys,
            )
        )
        return programs[-1]

    yield run
    for program in programs:
        try:
            os.killpg(program.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
        finally:
            program.communicate()


def check_gone(pid, timeout_s=6):
    end = time.monotonic() + timeout_s
    while not is_gone(pid):
        assert time.monotonic() < end, "it lives on"
        time.sleep(0.02)


SLEEPS = {
    "kernel": "end_with_parent(parent, by_kernel=True); ctypes.PyDLL(None).sleep(600)",
    "thread": "end_with_parent(parent, by_kernel=False); time.sleep(600)",
    "no descriptor of a process": (
        "del os.pidfd_open; end_with_parent(parent, by_kernel=False); time.sleep(600)"
    ),
    "no way of the kernel": (
        "child_process._end_with_starting_thread = lambda: False; "
        "end_with_parent(parent, by_kernel=True); time.sleep(600)"
    ),
    "no child": (
        "end_with_parent(parent, by_kernel=False, is_child=False); time.sleep(600)"
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", SLEEPS)
def test_a_child_ends_with_its_killed_parent(start, way):
    """By the kernel even while native code holds the interpreter lock; else by a thread."""
    program = start(
        f"""
def act(parent):
    {SLEEPS[way]}
say(child_of(act))
time.sleep(600)
"""
    )
    child = int(program.stdout.readline())
    time.sleep(0.4)
    assert not is_gone(child)
    program.kill()
    check_gone(child)


def test_a_grandchild_ends_with_the_process_that_it_is_told(start):
    """One that a fork server has started is not that process's child, and outlives the server."""
    program = start(
        """
top = os.getpid()
def server(parent):
    def act(_):
        end_with_parent(top, by_kernel=False, is_child=False)
        time.sleep(600)
    say(child_of(act))
child_of(server)
time.sleep(600)
"""
    )
    child = int(program.stdout.readline())
    time.sleep(0.4)
    assert not is_gone(child)
    program.kill()
    check_gone(child)


def test_a_child_whose_parent_was_faster_ends_at_once(start):
    """It asks when the parent has ended already."""
    program = start(
        """
def act(parent):
    while os.getppid() == parent:
        time.sleep(0.01)
    say(os.getpid())
    end_with_parent(parent, by_kernel=True)
    say("lives on")
child_of(act)
"""
    )
    said, _ = program.communicate(timeout=30)
    assert said.count("\n") == 1
    check_gone(int(said))


def test_the_end_of_a_thread_is_not_that_of_the_parent(start):
    """A child that does not ask the kernel outlives the thread that has started it."""
    program = start(
        """
def act(parent):
    end_with_parent(parent, by_kernel=False)
    time.sleep(600)
thread = threading.Thread(target=lambda: say(child_of(act)))
thread.start()
thread.join()
time.sleep(600)
"""
    )
    child = int(program.stdout.readline())
    time.sleep(0.5)
    assert not is_gone(child)
    program.kill()
    check_gone(child)


def test_signals_that_the_parent_handles_are_left_to_it(start):
    """Those that would end the child are ignored there; others have their default again."""
    program = start(
        """
for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGQUIT}:
    signal.signal(number, lambda number, frame: say("handled", number))
signal.signal(signal.SIGHUP, signal.SIG_IGN)
reading, writing = os.pipe()
os.set_blocking(writing, False)
signal.set_wakeup_fd(writing)

def act(parent):
    leave_signals_to_parent()
    for number in signal.valid_signals():
        assert not callable(signal.getsignal(number)), number
    for name in ("SIGCHLD", "SIGSEGV", "SIGABRT", "SIGTSTP", "SIGQUIT"):
        assert signal.getsignal(getattr(signal, name)) == signal.SIG_DFL, name
    for name in ("SIGINT", "SIGTERM", "SIGUSR1", "SIGHUP", "SIGPIPE", "SIGALRM"):
        number = getattr(signal, name)
        assert signal.getsignal(number) == signal.SIG_IGN, name
        os.kill(os.getpid(), number)
    os.kill(os.getpid(), signal.SIGCHLD)
    os.set_blocking(reading, False)
    try:
        os.read(reading, 1)
    except BlockingIOError:
        os._exit(0)

status = os.waitpid(child_of(act), 0)[1]
say("status", status)
"""
    )
    said, _ = program.communicate(timeout=30)
    lines = [line for line in said.splitlines() if line != f"handled {int(signal.SIGCHLD)}"]
    assert lines == ["status 0"]
