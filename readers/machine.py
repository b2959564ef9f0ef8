"""What this machine gives this job. Light, and without torch: the build side reads it too.

Sources: sched(7), cgroups(7), Documentation/admin-guide/cgroup-v2.rst (`cpu.max`), torchrun's
documentation (LOCAL_WORLD_SIZE).
"""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from pathlib import Path

# The tests put a tree of their own here.
_ROOT = Path("/")

_OCTAL_ESCAPE = re.compile(rb"\\([0-7]{3})")

NETWORK_FILE_SYSTEMS = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre"),
        *("gpfs", "beegfs", "ocfs2", "gfs2", "orangefs", "wekafs", "panfs", "daos", "juicefs"),
    }
)
"""Types of mounts on which a live LMDB file is unsafe or slow; everything FUSE counts as well."""


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
