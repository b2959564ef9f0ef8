"""What a scheduler granted this job, held against what the job sees of the machine.

Sources: sbatch(1) and srun(1) of Slurm, pbs_job_attributes(7B) of PBS Professional, the
environment variables of LSF's and Grid Engine's manuals.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from packer.doctor.check import Check
from packer.wording import count_text, size_text
from readers.machine import Machine, mount_of, space_at

_COUNT = re.compile(r"([0-9]+)(?:\(x[0-9]+\))?")
"""A count; "4(x2)" says that it is the same on two nodes."""


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """A job of a scheduler, as it is told on this node.

    Attributes:
        scheduler: "Slurm", "PBS", "LSF" or "Grid Engine".
        job: Its number or name.
        core_count: Cores that were granted here, or None when that is not said.
        task_core_count: Cores of each task, where tasks were given a count of their own.
        memory_bytes: Memory that was granted here, or None.
        scratch: Folder for temporary files that the scheduler names, or None.
        is_step: Whether this process was started by the scheduler as one of the job's tasks.
    """

    scheduler: str
    job: str
    core_count: int | None = None
    task_core_count: int | None = None
    memory_bytes: int | None = None
    scratch: Path | None = None
    is_step: bool = False

    @classmethod
    def read(cls, said: Mapping[str, str] | None = None) -> Allocation | None:
        """The job that this process belongs to, or None outside of any.

        Args:
            said: The environment; None is this process's.
        """
        said = os.environ if said is None else said
        for read in (_slurm, _pbs, _lsf, _grid_engine):
            found = read(said)
            if found is not None:
                return found
        return None


def _slurm(said: Mapping[str, str]) -> Allocation | None:
    if "SLURM_JOB_ID" not in said:
        return None
    cores = _number(said, "SLURM_CPUS_ON_NODE")
    mib = _number(said, "SLURM_MEM_PER_NODE")
    if mib is None and cores is not None:
        of_core = _number(said, "SLURM_MEM_PER_CPU")
        mib = None if of_core is None else of_core * cores
    return Allocation(
        scheduler="Slurm",
        job=said["SLURM_JOB_ID"],
        core_count=cores,
        task_core_count=_number(said, "SLURM_CPUS_PER_TASK"),
        # 0 asks for all of the node's memory.
        memory_bytes=mib * 2**20 if mib else None,
        scratch=_folder(said, "SLURM_TMPDIR", "TMPDIR"),
        is_step="SLURM_STEP_ID" in said,  # srun sets it; in a batch script it is not there.
    )


def _pbs(said: Mapping[str, str]) -> Allocation | None:
    if "PBS_JOBID" not in said:
        return None
    cores = _number(said, "NCPUS") or _number(said, "PBS_NUM_PPN")
    return Allocation(
        scheduler="PBS",
        job=said["PBS_JOBID"],
        core_count=cores,
        scratch=_folder(said, "PBS_JOBDIR", "TMPDIR"),
    )


def _lsf(said: Mapping[str, str]) -> Allocation | None:
    if "LSB_JOBID" not in said:
        return None
    # "node1 4 node2 8": hosts, and the slots on each.
    words = said.get("LSB_MCPU_HOSTS", "").split()
    slots = dict(zip(words[::2], words[1::2], strict=False))
    name = os.uname().nodename
    here = slots.get(name) or slots.get(name.partition(".")[0])
    if here is None and len(slots) == 1:
        here = next(iter(slots.values()))
    return Allocation(
        scheduler="LSF",
        job=said["LSB_JOBID"],
        core_count=int(here) if here is not None and here.isdecimal() else None,
        scratch=_folder(said, "TMPDIR"),
    )


def _grid_engine(said: Mapping[str, str]) -> Allocation | None:
    if "SGE_ROOT" not in said or "JOB_ID" not in said:
        return None
    return Allocation(
        scheduler="Grid Engine",
        job=said["JOB_ID"],
        # Of a job on several nodes these are all of its slots.
        core_count=_number(said, "NSLOTS") if said.get("NHOSTS", "1") == "1" else None,
        scratch=_folder(said, "TMPDIR"),
    )


def _number(said: Mapping[str, str], name: str) -> int | None:
    found = _COUNT.fullmatch(said.get(name, ""))
    return int(found[1]) if found else None


def _folder(said: Mapping[str, str], *names: str) -> Path | None:
    return next((Path(said[name]) for name in names if said.get(name)), None)


def check_allocation(found: Allocation, machine: Machine) -> Check:
    """Cores and memory that were granted against those that this process is held to."""
    name, seen = "allocation", machine.core_count
    granted = found.core_count
    if found.is_step and found.task_core_count is not None:
        granted = found.task_core_count
    figure = f"{found.scheduler} job {found.job}: " + (
        "cores not told" if granted is None else f"{count_text(granted, 'core')} granted"
    )
    figure += f", {seen} seen"
    memory, limit = machine.memory, machine.memory.limit_bytes
    if found.memory_bytes is not None:
        held = "not enforced" if limit is None else f"{size_text(limit)} enforced"
        figure += f"; {size_text(found.memory_bytes)} of memory granted, {held}"
    if granted is not None and seen < granted:
        return Check(
            name,
            "warn",
            figure,
            "This process may use fewer cores than the job has: it was bound to them when it was "
            "started, and all that it starts shares them.",
            "srun does not take over what sbatch was given: srun "
            f"--cpus-per-task={granted} ..., or --cpu-bind=none"
            if found.scheduler == "Slurm"
            else "start it without binding to cores (mpirun --bind-to none, taskset)",
        )
    if granted is not None and seen > granted:
        return Check(
            name,
            "warn",
            figure,
            "The scheduler does not hold this job to its cores, so worker counts are chosen by all "
            "cores of the node, and the jobs beside it pay.",
            f"packer build --workers {granted}, make_loader(..., "
            f"workers={max(1, granted * 3 // 4)}); administrators: ConstrainCores in cgroup.conf, "
            "TaskPlugin=task/cgroup,task/affinity"
            if found.scheduler == "Slurm"
            else f"packer build --workers {granted}, make_loader(..., "
            f"workers={max(1, granted * 3 // 4)})",
        )
    if found.memory_bytes is not None and found.memory_bytes > memory.available_bytes:
        return Check(
            name,
            "warn",
            f"{figure}; {size_text(memory.available_bytes)} available",
            "The node has less memory left than the job was granted: something else uses it.",
            "see what runs there (ps -eo user,rss,args --sort=-rss | head), or ask for another "
            "node",
        )
    why = "Worker counts follow the cores that this job may use."
    return Check(name, "pass", figure, why)


def check_job_scratch(found: Allocation) -> Check:
    """The folder for temporary files that shards are written to before they are copied."""
    name, folder = "job_scratch", found.scratch
    if folder is None:
        return Check(
            name,
            "pass",
            "the scheduler names none; /tmp is used",
            "Shards are written on a disk of the node, then copied to the target.",
        )
    remedy = "packer build --scratch FOLDER on a local disk of the node"
    try:
        free = space_at(folder).free_bytes
    except OSError as error:
        why = "Build workers write their shards there first; a build cannot begin."
        return Check(name, "fail", f"{folder}: {error.strerror}", why, remedy)
    mount = mount_of(folder)
    figure = f"{folder}: {mount.type}, {size_text(free)} free"
    if mount.is_network:
        why = "It lies on the network: shards would be written over it twice, page by page."
        return Check(name, "warn", figure, why, remedy)
    if mount.type in ("tmpfs", "ramfs"):
        why = "It lies in memory and counts against the job's: one shard a build worker."
        return Check(name, "warn", figure, why, f"{remedy}, or more memory for the job")
    return Check(name, "pass", figure, "Shards are written there, then copied to the target.")


def allocation_checks(machine: Machine, found: Allocation | None) -> list[Check]:
    """Those of a job; none outside of one."""
    return [] if found is None else [check_allocation(found, machine), check_job_scratch(found)]
