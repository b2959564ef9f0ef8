"""What a scheduler granted is held against what the job sees, and each trap is named."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from packer.doctor.allocation import Allocation, check_allocation, check_job_scratch
from readers.machine import Machine, Memory

GIB = 2**30

SAID = {
    "Slurm": (
        {"SLURM_JOB_ID": "7", "SLURM_CPUS_ON_NODE": "8", "SLURM_MEM_PER_NODE": "4096"},
        ("7", 8, 4 * GIB),
    ),
    "Slurm, memory by core": (
        {"SLURM_JOB_ID": "7", "SLURM_CPUS_ON_NODE": "8(x2)", "SLURM_MEM_PER_CPU": "1024"},
        ("7", 8, 8 * GIB),
    ),
    "Slurm, all memory": (
        {"SLURM_JOB_ID": "7", "SLURM_CPUS_ON_NODE": "8", "SLURM_MEM_PER_NODE": "0"},
        ("7", 8, None),
    ),
    "PBS": ({"PBS_JOBID": "12.server", "NCPUS": "4"}, ("12.server", 4, None)),
    "Torque": ({"PBS_JOBID": "12.server", "PBS_NUM_PPN": "6"}, ("12.server", 6, None)),
    "LSF": (
        {"LSB_JOBID": "3", "LSB_MCPU_HOSTS": f"other 2 {os.uname().nodename} 16"},
        ("3", 16, None),
    ),
    "LSF, elsewhere": ({"LSB_JOBID": "3", "LSB_MCPU_HOSTS": "a.b 2 c.d 16"}, ("3", None, None)),
    "Grid Engine": ({"SGE_ROOT": "/opt", "JOB_ID": "5", "NSLOTS": "3"}, ("5", 3, None)),
    "Grid Engine, two nodes": (
        {"SGE_ROOT": "/opt", "JOB_ID": "5", "NSLOTS": "32", "NHOSTS": "2"},
        ("5", None, None),
    ),
}


@pytest.fixture(scope="module")
def machine():
    """Eight cores and much memory, without a limit."""
    memory = Memory(total_bytes=64 * GIB, available_bytes=32 * GIB, limit_bytes=None, used_bytes=0)
    return replace(Machine.read(), core_count=8, cpu_count=16, memory=memory)


@pytest.mark.parametrize("name", SAID)
def test_each_scheduler_is_understood(name):
    """By the variables of its manual: job, cores and memory on this node."""
    said, (job, cores, memory) = SAID[name]
    found = Allocation.read(said)
    assert found is not None
    assert (found.job, found.core_count, found.memory_bytes) == (job, cores, memory)
    assert name.startswith(found.scheduler) or name == "Torque"


def test_outside_of_a_job_there_is_none():
    """Nothing is made up, even where one variable of a scheduler lies about."""
    assert Allocation.read({"SLURM_CPUS_ON_NODE": "8", "NSLOTS": "3", "TMPDIR": "/tmp"}) is None


@pytest.mark.parametrize(
    ("granted", "status", "remedy"),
    [(8, "pass", ""), (16, "warn", "srun --cpus-per-task=16"), (4, "warn", "--workers 4")],
)
def test_cores_granted_and_seen(machine, granted, status, remedy):
    """A job that is bound to fewer, or held to none, is told what to write."""
    found = Allocation(scheduler="Slurm", job="7", core_count=granted)
    check = check_allocation(found, machine)
    assert check.status == status
    assert remedy in check.remedy
    assert f"{granted} cores granted, 8 seen" in check.figure


def test_a_task_is_held_against_its_own_cores(machine):
    """A step of two tasks with eight cores each may have sixteen on the node."""
    said = {
        **{"SLURM_JOB_ID": "7", "SLURM_CPUS_ON_NODE": "16", "SLURM_CPUS_PER_TASK": "8"},
        "SLURM_STEP_ID": "0",
    }
    found = Allocation.read(said)
    assert found is not None
    assert check_allocation(found, machine).status == "pass"


def test_memory_that_is_not_there(machine):
    """More granted than the node has left: somebody else's processes use it."""
    found = Allocation(scheduler="Slurm", job="7", core_count=8, memory_bytes=48 * GIB)
    check = check_allocation(found, machine)
    assert check.status == "warn"
    assert "48.0 GiB of memory granted, not enforced; 32.0 GiB available" in check.figure


def test_scratch_of_the_job(tmp_path):
    """A folder that is there passes with its room; one that is not fails, with the option."""
    good = Allocation(scheduler="Slurm", job="7", scratch=tmp_path)
    assert check_job_scratch(good).status in ("pass", "warn")
    assert "free" in check_job_scratch(good).figure
    gone = check_job_scratch(replace(good, scratch=tmp_path / "gone"))
    assert (gone.status, "--scratch" in gone.remedy) == ("fail", True)
    shm = Path("/dev/shm")
    if shm.is_dir():
        memory = check_job_scratch(replace(good, scratch=shm))
        assert (memory.status, "memory" in memory.why) == ("warn", True)
