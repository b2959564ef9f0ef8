"""Facts about a raw folder, and checks of them: what training from single files would cost."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from packer.doctor.check import Check
from packer.sources.walk import PICTURE_TYPES, is_picture_name, skip_reason
from packer.wording import count_text, size_text, time_text
from readers.machine import Mount

_WALK_TIMEOUT_S = 0.5
_READ_TIMEOUT_S = 0.5
_READ_COUNT = 50

_METADATA_CALLS_A_FILE = 3
"""An open, an fstat and a close: what any image library does before and after it reads."""

_FILE_S_MAX = 0.005
"""At 5 ms a file a loader worker gives fewer than 200 samples a second, before it decodes any."""


@dataclass(frozen=True, kw_only=True)
class RawFacts:
    """What was found in a raw folder.

    Attributes:
        path: The folder.
        file_count: Pictures found.
        is_whole: Whether the walk came to its end in time.
        depth: Mean count of folders between the mount point and a picture.
        read_count: Pictures that were read.
        stat_s: Median time of a stat.
        read_s: Median time to open, read and close one.
        mean_bytes: Mean size of those.
        problem: What could not be read; None when all could.
    """

    path: Path
    file_count: int = 0
    is_whole: bool = True
    depth: float = 0.0
    read_count: int = 0
    stat_s: float = 0.0
    read_s: float = 0.0
    mean_bytes: float = 0.0
    problem: str | None = None


def gather_raw(path: Path, mount: Mount) -> RawFacts:
    """Look at a raw folder for at most about a second: its pictures, and what some take to read."""
    names, is_whole = _pictures(os.fsencode(os.path.realpath(path)))
    if not names:
        return RawFacts(path=path, is_whole=is_whole)
    places = np.linspace(0, len(names) - 1, min(len(names), _READ_COUNT)).astype(int)
    stats, reads, sizes = [], [], []
    until = time.monotonic() + _READ_TIMEOUT_S
    problem = None
    for at in places:
        try:
            started = time.perf_counter()
            os.stat(names[at])
            between = time.perf_counter()
            with open(names[at], "rb", buffering=0) as stream:
                sizes.append(len(stream.readall()))
            stats.append(between - started)
            reads.append(time.perf_counter() - between)
        except OSError as error:
            problem = problem or f"{os.fsdecode(names[at])}: {error.strerror}"
        if time.monotonic() > until:
            break
    above = len(mount.folder.parts)
    depths = [len(Path(os.fsdecode(names[at])).parts) - above - 1 for at in places]
    return RawFacts(
        path=path,
        file_count=len(names),
        is_whole=is_whole,
        depth=max(0.0, float(np.mean(depths))),
        read_count=len(reads),
        stat_s=float(np.median(stats)) if stats else 0.0,
        read_s=float(np.median(reads)) if reads else 0.0,
        mean_bytes=float(np.mean(sizes)) if sizes else 0.0,
        problem=problem,
    )


def _pictures(root: bytes) -> tuple[list[bytes], bool]:
    """Files that are named like pictures, and whether all folders were entered in time."""
    until = time.monotonic() + _WALK_TIMEOUT_S
    names: list[bytes] = []
    pending = [root]
    while pending:
        try:
            with os.scandir(pending.pop()) as listing:
                for entry in listing:
                    if time.monotonic() > until:
                        return sorted(names), False
                    if skip_reason(entry.name) is not None:
                        continue
                    # Links to folders are not followed: they may lead around in circles.
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    elif is_picture_name(entry.name):
                        names.append(entry.path)
        except OSError:
            continue  # `packer build` names what it cannot read.
    return sorted(names), True


def check_raw_files(facts: RawFacts, mount: Mount) -> Check:
    """What an epoch over single files costs in calls and in time."""
    name = "raw_files"
    if not facts.file_count:
        return Check(
            name,
            "fail",
            f"{facts.path}: no pictures found",
            f"A build would have nothing to store; expected {PICTURE_TYPES}.",
            "check the path",
        )
    least = "" if facts.is_whole else "at least "
    no_memory = "noac" in mount.options or "actimeo=0" in mount.options
    calls = _METADATA_CALLS_A_FILE + (facts.depth if no_memory else 0)
    figure = (
        f"{least}{count_text(facts.file_count, 'file')}; {facts.read_count} read: stat "
        f"{time_text(facts.stat_s)}, open and read {time_text(facts.read_s)}, "
        f"{size_text(facts.mean_bytes)} each; an epoch: {least}"
        f"{round(facts.file_count * calls):,} metadata calls, "
        f"{time_text(facts.file_count * facts.read_s)} in one process"
    )
    if facts.problem is not None:
        why = f"Not every file can be read: {facts.problem}."
        return Check(
            name, "warn", figure, why, f"see each with its reason: packer build {facts.path} OUT"
        )
    why = "Each epoch opens every file again, in every job; a store is opened once."
    if mount.is_network or facts.read_s > _FILE_S_MAX:
        return Check(name, "warn", figure, why, f"packer build {facts.path} OUT")
    return Check(name, "pass", figure, why)
