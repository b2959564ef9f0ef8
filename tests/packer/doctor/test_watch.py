"""A running job is told line by line: workers, descriptors, memory, reads, and its end."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from packer.doctor.watch import watch
from tests.command import run_packer

JOB = """
import os, subprocess, sys, time
files = [open(os.devnull) for _ in range(40)]
kept = bytearray(os.urandom(1)) * (64 * 2**20)
children = [subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
            for _ in range(2)]
print("ready", flush=True)
for line in sys.stdin:
    children.pop().kill()
    print("killed", flush=True)
"""


@pytest.fixture
def job():
    """A process with forty files, 64 MiB and two processes below it; a line to it ends one."""
    with subprocess.Popen(
        [sys.executable, "-c", JOB], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def test_a_line_says_what_the_job_has(job):
    """Processes below it, descriptors against their limit, memory; one that ends is shouted."""
    lines = watch(job.pid, interval_s=0.2)
    line = next(lines)
    assert "2 processes below it" in line
    assert "ENDED" not in line
    count = int(line.split("files ")[1].split()[0].rstrip(";"))
    assert 43 <= count <= 60
    mib = float(line.split("memory ")[1].split(" MiB")[0])
    assert 64 <= mib <= 200
    job.stdin.write("\n")
    job.stdin.flush()
    assert job.stdout.readline() == "killed\n"
    line = next(lines)
    assert "1 process below it" in line
    assert "1 ENDED" in line
    assert "ENDED" not in next(lines)


def test_the_end_of_the_job_ends_the_watch(job):
    """By the command: its last line says so, and the exit status is 0."""
    job.kill()
    while job.poll() is None:
        time.sleep(0.01)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        lines = watch(other.pid, interval_s=0.1)
        next(lines)
        other.kill()
        other.wait()
        assert list(lines)[-1].endswith(f"process {other.pid} has ended")


def test_a_process_that_is_not_there_is_a_usage_error():
    """So is --watch beside what it does not look at."""
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    result = run_packer("doctor", "--watch", str(gone.pid))
    assert result.exit_code == 2
    assert "not there" in result.stderr
    result = run_packer("doctor", "--watch", str(os.getpid()), "--json")
    assert (result.exit_code, "--json" in result.stderr) == (2, True)
