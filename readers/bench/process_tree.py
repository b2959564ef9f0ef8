"""What this process and all that it started use: time on cores, and memory."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def tree_cpu_s() -> float:
    """Seconds on cores so far, of those that run."""
    stats = _stats()
    return sum(sum(map(int, stats[pid][11:13])) for pid in _tree(stats)) / _TICKS_PER_S


def tree_memory_bytes() -> int:
    """Memory that they hold together: what several share counts once (PSS)."""
    return sum(_pss_bytes(pid) for pid in _tree(_stats()))


def _stats() -> dict[int, list[str]]:
    """Of each process what follows its name in /proc/PID/stat: state, parent, ..."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text(errors="replace")
        except OSError:  # It has ended.
            continue
        found[int(path.parent.name)] = text.rpartition(")")[2].split()
    return found


def _tree(stats: dict[int, list[str]]) -> list[int]:
    children: dict[int, list[int]] = {}
    for pid, words in stats.items():
        children.setdefault(int(words[1]), []).append(pid)
    tree = [os.getpid()]
    for pid in tree:  # It grows meanwhile.
        tree += children.get(pid, [])
    return tree


def _pss_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
