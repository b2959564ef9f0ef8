"""What this machine gives this job. Light, and without torch: the build side reads it too.

Sources: sched(7), cgroups(7), proc(5), Documentation/admin-guide/cgroup-v2.rst (`cpu.max`,
`memory.max`) and cgroup-v1/memory.rst, torchrun's documentation (LOCAL_WORLD_SIZE).
"""

from __future__ import annotations

import math
import multiprocessing
import os
import re
import resource
import threading
from dataclasses import dataclass
from pathlib import Path

# The tests put a tree of their own here.
_ROOT = Path("/")

_OCTAL_ESCAPE = re.compile(rb"\\([0-7]{3})")

NETWORK_FILE_SYSTEMS = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre"),
        *("gpfs", "beegfs", "ocfs2", "gfs2", "orangefs", "wekafs", "panfs", "daos", "juicefs"),
        *("pvfs2", "dvs", "cvfs", "acfs", "virtiofs", "vboxsf", "prl_fs", "ncpfs", "coda"),
    }
)
"""Types of mounts on which a live LMDB file is unsafe or slow; everything FUSE counts as well.

The last row: PVFS, Cray's DVS, StorNext, Oracle's ACFS, folders that a virtual machine shares with
its host, and two that are hardly met any more.
"""


def core_count() -> int:
    """Cores that this process may use: by its affinity, and by its cgroup's share of time."""
    allowed = len(os.sched_getaffinity(0))
    share = _cgroup_cores()
    return allowed if share is None else max(1, min(allowed, math.floor(share)))


def physical_core_count() -> int:
    """The same, with the threads of one core counted once.

    From /sys/devices/system/cpu/cpuN/topology; where it does not say, threads count as cores.
    """
    allowed = os.sched_getaffinity(0)
    siblings = set()
    for cpu in allowed:
        path = _ROOT / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
        try:
            siblings.add(path.read_text().strip())
        except OSError:
            siblings.add(str(cpu))
    return max(1, min(len(siblings), core_count()))


def local_rank_count() -> int:
    """Training processes of this job on this machine: what torchrun says, or 1.

    It is the launcher's fact about the machine, not a setting of ours.
    """
    text = os.environ.get("LOCAL_WORLD_SIZE", "1")
    return int(text) if text.isdecimal() and int(text) > 0 else 1


def _cgroup_cores() -> float | None:
    """Cores' worth of CPU time that the cgroup may use, or None when it is not limited."""
    limits = []
    for controllers, path in _cgroups():
        if controllers == "":
            limits.append(_quota_v2(path))
        elif "cpu" in controllers.split(","):
            limits.append(_quota_v1(path))
    found = [limit for limit in limits if limit is not None]
    return min(found) if found else None


def _cgroups() -> list[tuple[str, str]]:
    """(controllers, path) of each cgroup of this process; no controllers means version 2."""
    try:
        lines = (_ROOT / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    return [(parts[1], parts[2]) for line in lines if len(parts := line.split(":", 2)) == 3]


def _quota_v2(path: str) -> float | None:
    """The tightest `cpu.max` from the process's cgroup up to the root."""
    limits = []
    for folder in _levels(_ROOT / "sys/fs/cgroup", path):
        numbers = _numbers(folder / "cpu.max")
        if len(numbers) == 2 and numbers[1] > 0:
            limits.append(numbers[0] / numbers[1])
    return min(limits) if limits else None


def _quota_v1(path: str) -> float | None:
    """The tightest quota from the process's cgroup up to the root."""
    limits = []
    for folder in _levels(_ROOT / "sys/fs/cgroup/cpu", path):
        quota = _numbers(folder / "cpu.cfs_quota_us")
        period = _numbers(folder / "cpu.cfs_period_us")
        if quota and period and quota[0] > 0 and period[0] > 0:
            limits.append(quota[0] / period[0])
    return min(limits) if limits else None


def _levels(root: Path, path: str) -> list[Path]:
    """A cgroup's folder and those above it. In a container only the root may be there."""
    folder = root / path.lstrip("/")
    return [level for level in (folder, *folder.parents) if level.is_relative_to(root)]


def _numbers(path: Path) -> list[int]:
    """The whole numbers in a file of one line; none when it is not there or says "max"."""
    try:
        words = path.read_text().split()
    except OSError:
        return []
    return [int(word) for word in words] if all(w.lstrip("-").isdecimal() for w in words) else []


@dataclass(frozen=True)
class Mount:
    """Where a path lies.

    Attributes:
        folder: Mount point.
        type: Type of the file system: ext4, nfs4, tmpfs, ...
        options: Its mount options.
    """

    folder: Path
    type: str
    options: tuple[str, ...]

    @property
    def is_network(self) -> bool:
        """Whether a live LMDB file should not lie there."""
        return self.type in NETWORK_FILE_SYSTEMS or self.type.startswith("fuse")


def mount_of(path: Path) -> Mount:
    """The mount that a path, or its nearest existing parent, lies on."""
    path = Path(os.path.realpath(path))
    best = Mount(Path("/"), "unknown", ())
    try:
        lines = (_ROOT / "proc/self/mountinfo").read_bytes().splitlines()
    except OSError:
        return best
    for line in lines:
        left, _, right = line.partition(b" - ")
        words, rest = left.split(), right.split()
        if len(words) < 6 or len(rest) < 3:
            continue
        # Blanks and such are written as octal escapes: proc(5).
        name = _OCTAL_ESCAPE.sub(lambda escape: bytes([int(escape[1], 8)]), words[4])
        folder = Path(os.fsdecode(name))
        # The last of two mounts at one place lies on top.
        if path.is_relative_to(folder) and len(folder.parts) >= len(best.folder.parts):
            options = f"{words[5].decode()},{os.fsdecode(rest[2])}".split(",")
            best = Mount(folder, rest[0].decode(), tuple(options))
    return best


PREFETCH_FACTOR = 2
"""Batches that each loader worker is ahead: the DataLoader's default, and ours."""

KEPT_BATCH_COUNT = 2
"""Batches that the training loop holds beside those that are under way: the one in use and the one
on its way to the device."""

_LOADER_WORKER_COUNT_MAX = 16
_LOADER_CORE_SHARE = 0.75

_UNLIMITED_BYTES_LEAST = 2**62
"""Version 1 of cgroups writes "no limit" as the largest number of pages that it can count."""

_PYTHON = re.compile(r"python[0-9.]*t?|pypy[0-9.]*")


def loader_worker_count() -> int:
    """Loader workers that fit this machine and job.

    Three quarters of the physical cores that this job may use, shared between its training
    processes here, at most 16: past that a loader waits for memory, not for cores.
    """
    cores = physical_core_count() / local_rank_count()
    return max(0, min(_LOADER_WORKER_COUNT_MAX, round(cores * _LOADER_CORE_SHARE)))


def batches_ahead(worker_count: int, prefetch_factor: int) -> int:
    """Batches that loader workers are at, or have ready, while one is in use."""
    return worker_count * prefetch_factor


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Memory of the machine, and of this job's cgroup, in bytes.

    Attributes:
        total_bytes: The machine's total bytes.
        available_bytes: What the kernel could hand out now, page cache given up.
        limit_bytes: Limit of the cgroup with the least room left, or None without a limit.
        used_bytes: What counts against that limit, without the page cache that it can give up.
    """

    total_bytes: int
    available_bytes: int
    limit_bytes: int | None
    used_bytes: int

    @property
    def usable_bytes(self) -> int:
        """What this job may still take."""
        if self.limit_bytes is None:
            return self.available_bytes
        return max(0, min(self.available_bytes, self.limit_bytes - self.used_bytes))


def memory() -> Memory:
    """Memory of the machine, and what the cgroup leaves of it."""
    facts = _sizes(_ROOT / "proc/meminfo")
    total = facts.get("MemTotal", 0) * 1024
    available = facts.get("MemAvailable", facts.get("MemFree", 0)) * 1024
    limits = []
    for controllers, path in _cgroups():
        if controllers == "":
            for folder in _levels(_ROOT / "sys/fs/cgroup", path):
                limits += _memory_limit(folder, "memory.max", "memory.current", "")
        elif "memory" in controllers.split(","):
            for folder in _levels(_ROOT / "sys/fs/cgroup/memory", path):
                names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
                limits += _memory_limit(folder, *names)
    # The level that has the least room left is the one that ends a process.
    limit, used = min(limits, key=lambda pair: pair[0] - pair[1], default=(None, 0))
    return Memory(total_bytes=total, available_bytes=available, limit_bytes=limit, used_bytes=used)


def _memory_limit(folder: Path, limit: str, usage: str, prefix: str) -> list[tuple[int, int]]:
    """(limit, use without page cache) of one level; nothing when it has no limit."""
    limits = _numbers(folder / limit)
    if not limits or not 0 <= limits[0] < _UNLIMITED_BYTES_LEAST:
        return []
    facts = _sizes(folder / "memory.stat")
    # Not "file" or "cache": those count shared memory too, which cannot be given up.
    cache = sum(facts.get(f"{prefix}{kind}_file", 0) for kind in ("active", "inactive"))
    used = _numbers(folder / usage)
    return [(limits[0], max(0, used[0] - cache) if used else 0)]


def _sizes(path: Path) -> dict[str, int]:
    """The numbers of a file of lines such as "name: number unit" or "name number"."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    words = [line.replace(":", " ").split() for line in lines]
    return {parts[0]: int(parts[1]) for parts in words if len(parts) > 1 and parts[1].isdecimal()}


@dataclass(frozen=True)
class Space:
    """Room on a file system, in bytes.

    Attributes:
        total_bytes: In all.
        free_bytes: What this process may still write.
    """

    total_bytes: int
    free_bytes: int


def space_at(path: str | Path) -> Space:
    """Room on the file system that a path lies on. Raises OSError where it cannot be told."""
    found = os.statvfs(path)
    return Space(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)


def shared_memory() -> Space | None:
    """Room in /dev/shm, through which a stock DataLoader hands batches; None without one."""
    try:
        return space_at(_ROOT / "dev/shm")
    except OSError:
        return None


@dataclass(frozen=True)
class FileLimit:
    """How many files this process may have open.

    Attributes:
        soft: The limit now: `ulimit -Sn`.
        hard: What it may be raised to without root: `ulimit -Hn`.
        open_count: Descriptors that are open now.
    """

    soft: int
    hard: int
    open_count: int


def file_limit() -> FileLimit:
    """The limit on descriptors. No limit at all is a very large number."""
    soft, hard = (
        2**31 - 1 if limit == resource.RLIM_INFINITY else limit
        for limit in resource.getrlimit(resource.RLIMIT_NOFILE)
    )
    try:
        open_count = len(os.listdir("/proc/self/fd")) - 1  # The listing itself needs one.
    except OSError:
        open_count = 0
    return FileLimit(soft, hard, open_count)


def file_limit_of(process: int) -> int | None:
    """How many files another process may have open; None where that may not be known."""
    try:
        text = (_ROOT / f"proc/{process}/limits").read_text()
    except OSError:
        return None
    found = re.search(r"^Max open files +([0-9]+)", text, re.MULTILINE)
    return int(found[1]) if found else None


@dataclass(frozen=True)
class PythonProcesses:
    """Other Python processes of this user that may run on the cores of this one.

    Attributes:
        count: How many; this process, those above and those below it do not count.
        running_count: How many of them were running or waiting for a core at this moment.
    """

    count: int
    running_count: int


def other_python_processes() -> PythonProcesses:
    """Python processes of this user beside this job: loader and build workers among them."""
    user, cores = str(os.geteuid()), os.sched_getaffinity(0)
    parents, candidates = {}, {}
    try:
        folders = [entry for entry in (_ROOT / "proc").iterdir() if entry.name.isdecimal()]
    except OSError:
        folders = []
    for folder in folders:
        try:
            status = (folder / "status").read_text(errors="replace")
            facts = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
            number = int(folder.name)
            parents[number] = int(facts["PPid"])
            # The effective user comes second. A program may name itself as it likes; its
            # interpreter may not.
            if facts["Uid"].split()[1] == user and _PYTHON.fullmatch(
                Path(os.readlink(folder / "exe")).name
            ):
                allowed = cpu_list(facts.get("Cpus_allowed_list", ""))
                if allowed & cores:
                    candidates[number] = facts["State"].split()[0]
        except (OSError, KeyError, IndexError, ValueError):
            continue  # It ended while we looked, or is not ours to look into.
    ours = {os.getpid(), *_above(os.getpid(), parents)}
    states = [
        state
        for number, state in candidates.items()
        if number not in ours and os.getpid() not in _above(number, parents)
    ]
    return PythonProcesses(len(states), states.count("R"))


def _above(number: int, parents: dict[int, int]) -> list[int]:
    """The processes above one, nearest first."""
    found: list[int] = []
    while (number := parents.get(number, 0)) and number not in found:
        found.append(number)
    return found


def cpu_list(text: str) -> set[int]:
    """The CPUs of a list such as "0-3,8"."""
    cores: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first.isdecimal():
            cores.update(range(int(first), int(last or first) + 1))
    return cores


def nvidia_driver() -> str | None:
    """Version of the NVIDIA kernel driver, or None where there is none."""
    try:
        text = (_ROOT / "proc/driver/nvidia/version").read_text()
    except OSError:
        return None
    found = re.search(r"\b[0-9]+(?:\.[0-9]+)+\b", text)
    return found[0] if found else "unknown"


@dataclass(frozen=True, kw_only=True)
class Machine:
    """All that is known of the machine and of what this job may use of it, at one moment.

    Attributes:
        cpu_count: CPUs of the machine, whoever may use them.
        affinity_count: CPUs that this process may run on.
        cgroup_core_count: Cores' worth of time of its cgroup, or None without a limit.
        core_count: What follows from the last two.
        physical_core_count: The same, threads of one core counted once.
        local_rank_count: Training processes of this job here.
        load_average: Processes that ran or waited on the whole machine, over one minute.
        memory: See `Memory`.
        shared_memory: Room in /dev/shm, or None without one.
        file_limit: See `FileLimit`.
        python: See `PythonProcesses`.
        start_method: How this process would start loader workers: fork, forkserver or spawn.
        thread_count: Threads of this process, native ones among them.
        python_thread_names: Its Python threads beside the main one.
        omp_num_threads: What OMP_NUM_THREADS says, or None when it is not set.
        nvidia_driver: Version of the NVIDIA kernel driver, or None.
    """

    cpu_count: int
    affinity_count: int
    cgroup_core_count: float | None
    core_count: int
    physical_core_count: int
    local_rank_count: int
    load_average: float
    memory: Memory
    shared_memory: Space | None
    file_limit: FileLimit
    python: PythonProcesses
    start_method: str
    thread_count: int
    python_thread_names: tuple[str, ...]
    omp_num_threads: str | None
    nvidia_driver: str | None

    @classmethod
    def read(cls) -> Machine:
        """What it is now."""
        return cls(
            cpu_count=os.cpu_count() or 1,
            affinity_count=len(os.sched_getaffinity(0)),
            cgroup_core_count=_cgroup_cores(),
            core_count=core_count(),
            physical_core_count=physical_core_count(),
            local_rank_count=local_rank_count(),
            load_average=os.getloadavg()[0],
            memory=memory(),
            shared_memory=shared_memory(),
            file_limit=file_limit(),
            python=other_python_processes(),
            start_method=_start_method(),
            thread_count=_thread_count(),
            python_thread_names=tuple(
                thread.name
                for thread in threading.enumerate()
                if thread is not threading.main_thread()
            ),
            omp_num_threads=os.environ.get("OMP_NUM_THREADS"),
            nvidia_driver=nvidia_driver(),
        )


def _start_method() -> str:
    # Asked without `allow_none`, multiprocessing would fix the method for good.
    chosen = multiprocessing.get_start_method(allow_none=True)
    return chosen or multiprocessing.get_all_start_methods()[0]


def _thread_count() -> int:
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return threading.active_count()
