"""Memory, limits, processes and threads of a job are read from the system's own files and calls."""

from __future__ import annotations

import os
import threading

import pytest

from readers import machine
from readers.loader.make import LoaderConfig


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A tree of the system's files for this test, in place of the machine's."""
    monkeypatch.setattr(machine, "_ROOT", tmp_path)
    return tmp_path


def write(root, files):
    """Files by path, with their text."""
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


V2 = "sys/fs/cgroup"
V1 = "sys/fs/cgroup/memory"
MEMINFO = {"proc/meminfo": "MemTotal: 8000 kB\nMemFree:  100 kB\nMemAvailable: 5000 kB\n"}
KIB = 1024


@pytest.mark.parametrize(
    ("files", "limit", "used", "usable"),
    [
        ({}, None, 0, 5000 * KIB),
        ({"proc/self/cgroup": "0::/\n", f"{V2}/memory.max": "max\n"}, None, 0, 5000 * KIB),
        # Page cache is given up when memory is short; what lies in tmpfs ("file" has it) is not.
        (
            {
                "proc/self/cgroup": "0::/job\n",
                f"{V2}/job/memory.max": "1000000\n",
                f"{V2}/job/memory.current": "700000\n",
                f"{V2}/job/memory.stat": "anon 1\nfile 400000\ninactive_file 200000\n"
                "active_file 100000\n",
            },
            1_000_000,
            400_000,
            600_000,
        ),
        # The level with the least room left counts, not the one with the lowest limit.
        (
            {
                "proc/self/cgroup": "0::/job/step\n",
                f"{V2}/job/memory.max": "2000000\n",
                f"{V2}/job/memory.current": "1900000\n",
                f"{V2}/job/step/memory.max": "1000000\n",
                f"{V2}/job/step/memory.current": "300000\n",
            },
            2_000_000,
            1_900_000,
            100_000,
        ),
        # A limit above what the machine has left changes nothing.
        (
            {"proc/self/cgroup": "0::/\n", f"{V2}/memory.max": "9000000000\n"},
            9_000_000_000,
            0,
            5000 * KIB,
        ),
        (
            {
                "proc/self/cgroup": "4:memory:/slurm/job\n3:cpu:/\n",
                f"{V1}/slurm/job/memory.limit_in_bytes": "3000000\n",
                f"{V1}/slurm/job/memory.usage_in_bytes": "2500000\n",
                f"{V1}/slurm/job/memory.stat": "cache 5\ntotal_inactive_file 400000\n"
                "total_active_file 100000\ninactive_file 7\n",
                f"{V1}/memory.limit_in_bytes": "9223372036854771712\n",
            },
            3_000_000,
            2_000_000,
            1_000_000,
        ),
        (
            {
                "proc/self/cgroup": "4:memory:/\n",
                f"{V1}/memory.limit_in_bytes": "9223372036854771712\n",
                f"{V1}/memory.usage_in_bytes": "2500000\n",
            },
            None,
            0,
            5000 * KIB,
        ),
        # More in use than the limit, while the kernel reclaims: nothing is left, not less.
        (
            {
                "proc/self/cgroup": "0::/\n",
                f"{V2}/memory.max": "1000\n",
                f"{V2}/memory.current": "1500\n",
            },
            1000,
            1500,
            0,
        ),
    ],
)
def test_memory_is_what_machine_and_cgroup_leave(root, files, limit, used, usable):
    """A job is killed at the limit of its cgroup, however much the machine has free."""
    write(root, {**MEMINFO, **files})
    found = machine.memory()
    assert (found.total_bytes, found.available_bytes) == (8000 * KIB, 5000 * KIB)
    assert (found.limit_bytes, found.used_bytes, found.usable_bytes) == (limit, used, usable)


def test_an_old_kernel_and_a_missing_proc_are_no_error(root):
    """Without MemAvailable, what is free counts; without /proc, nothing is known."""
    assert machine.memory().usable_bytes == 0
    write(root, {"proc/meminfo": "MemTotal: 8 kB\nMemFree: 3 kB\nHugePages_Total: 0\n"})
    assert (machine.memory().total_bytes, machine.memory().usable_bytes) == (8192, 3072)


def test_memory_of_this_machine_is_found():
    """The page size times the page count that the C library knows."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    found = machine.memory()
    assert found.total_bytes == total
    assert 0 < found.usable_bytes <= found.available_bytes < total


def test_shared_memory_is_the_room_of_its_file_system(root):
    """In all, and what one without root may still write; None where there is no /dev/shm."""
    assert machine.shared_memory() is None
    (root / "dev/shm").mkdir(parents=True)
    facts = os.statvfs(root)
    found = machine.shared_memory()
    assert found.total_bytes == facts.f_blocks * facts.f_frsize
    assert 0 < found.free_bytes <= found.total_bytes


def test_the_file_limit_is_that_of_this_process(run_python):
    """Soft and hard limit, and how many descriptors are open."""
    code = (
        "import json, os, resource\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (123, 456))\n"
        "from readers.machine import file_limit\n"
        "before = file_limit()\n"
        "descriptor = os.open('/dev/null', os.O_RDONLY)\n"
        "after = file_limit()\n"
        "print(json.dumps([after.soft, after.hard, after.open_count - before.open_count]))"
    )
    assert run_python(code) == [123, 456, 1]


def process(root, number, parent, *, user=None, state="S", cores="0-1", exe="python3.11"):
    """The files of a process."""
    user = os.geteuid() if user is None else user
    write(
        root,
        {
            f"proc/{number}/status": f"Name:\tx: y\nState:\t{state} (a word)\nPPid:\t{parent}\n"
            f"Uid:\t{user + 1}\t{user}\t{user}\t{user}\nCpus_allowed_list:\t{cores}\n"
        },
    )
    (root / f"proc/{number}/exe").symlink_to(f"/usr/bin/{exe}")


def test_other_python_processes_are_those_of_this_user_on_these_cores(root, monkeypatch):
    """Not this job's own, no other program's, no other user's, and none on other cores."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {1, 2})
    me = os.getpid()
    process(root, me, me + 1, state="R")
    process(root, me + 1, me + 2, state="R")  # What started it, and what it started,
    process(root, me + 3, me, state="R")
    process(root, me + 4, me + 3, state="R")  # also through another.
    process(root, me + 5, 1, user=os.geteuid() + 7)
    process(root, me + 6, 1, exe="bash")
    process(root, me + 11, 1, exe="python-launcher")
    process(root, me + 7, 1, cores="0,3-5,8")
    (root / "proc/77").mkdir()  # It ended a moment ago.
    assert machine.other_python_processes() == machine.PythonProcesses(0, 0)
    process(root, me + 8, 1, state="R", cores="0,2-5")
    process(root, me + 9, 1, state="D", exe="python3.13t")
    process(root, me + 10, me + 9, state="S", exe="python")
    assert machine.other_python_processes() == machine.PythonProcesses(3, 1)


def test_the_driver_is_named_by_its_version(root):
    """The kernel module says it in a line of text, whose other words have changed before."""
    assert machine.nvidia_driver() is None
    text = (
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build\n"
        "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n"
    )
    write(root, {"proc/driver/nvidia/version": text})
    assert machine.nvidia_driver() == "570.86.15"


@pytest.mark.parametrize(
    ("core_count", "rank_count", "expected"),
    [(1, 1, 1), (2, 1, 2), (4, 1, 3), (8, 1, 6), (64, 1, 16), (64, 8, 6), (1, 4, 0), (2, 4, 0)],
)
def test_loader_workers_fit_cores_and_ranks(monkeypatch, core_count, rank_count, expected):
    """What the checklist reckons with is what make_loader takes."""
    monkeypatch.setattr(machine, "core_count", lambda: core_count)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(core_count)))
    monkeypatch.setattr(machine, "physical_core_count", lambda: core_count)
    monkeypatch.setattr(
        "readers.loader.make.physical_core_count", lambda: core_count, raising=False
    )
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(rank_count))
    assert machine.loader_worker_count() == expected
    assert LoaderConfig.tuned().workers == expected


def test_reading_the_machine_changes_nothing(run_python):
    """Asking for the start method must not choose it for the program that asks."""
    code = (
        "import json, multiprocessing, threading\n"
        "from readers.machine import Machine\n"
        "found = Machine.read()\n"
        "multiprocessing.set_start_method('spawn')\n"
        "again = Machine.read()\n"
        "print(json.dumps([found.start_method in multiprocessing.get_all_start_methods(),\n"
        "                  again.start_method, found.thread_count, threading.active_count()]))"
    )
    assert run_python(code) == [True, "spawn", 1, 1]


def test_threads_of_this_process_are_named():
    """A lock that one of them holds would stay locked in a forked worker."""
    before, stop = machine.Machine.read(), threading.Event()
    thread = threading.Thread(target=stop.wait, name="keeps-a-lock", daemon=True)
    thread.start()
    found = machine.Machine.read()
    stop.set()
    thread.join()
    assert set(found.python_thread_names) - set(before.python_thread_names) == {"keeps-a-lock"}
    assert found.thread_count == before.thread_count + 1
    assert found.core_count == machine.core_count()
    assert found.cpu_count == os.cpu_count()


def test_the_environment_says_how_many_threads(monkeypatch):
    """As it stands, since it may be nonsense."""
    monkeypatch.setenv("OMP_NUM_THREADS", "4,2")
    assert machine.Machine.read().omp_num_threads == "4,2"
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert machine.Machine.read().omp_num_threads is None
