"""Is this machine, and this job's share of it, set up to train fast from a store or a folder?

readers.machine, allocation, gpu_link,      gather facts, once, side by side
torch_facts, store, raw, target
check_*                                     pure functions from facts to one `Check` each
watch                                       a running job, line by line
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from packer.doctor.allocation import Allocation, allocation_checks
from packer.doctor.check import Check
from packer.doctor.gpu_link import check_gpu_link, gpu_links
from packer.doctor.machine_checks import machine_checks
from packer.doctor.mount_checks import check_mount, check_mount_options
from packer.doctor.need import Need
from packer.doctor.raw import check_raw_files, gather_raw
from packer.doctor.store import gather_store, is_store
from packer.doctor.store_checks import store_checks
from packer.doctor.target import check_target, gather_target
from packer.doctor.torch_facts import TorchQuestion
from packer.doctor.watch import watch
from packer.wording import Summarized
from readers.machine import PREFETCH_FACTOR, Machine, loader_worker_count, mount_of

__all__ = ["Check", "DoctorReport", "doctor", "watch"]


@dataclass(frozen=True, kw_only=True)
class DoctorReport(Summarized):
    """The checklist.

    Attributes:
        path: What was looked at besides the machine; None when nothing was given.
        batch_size: Samples of a batch that the checks reckon with.
        worker_count: Loader workers of each training process, likewise.
        prefetch_factor: Batches that each of them is ahead, likewise.
        seconds: How long looking took.
        checks: One for each thing that was looked at.
        machine: All facts about the machine.
    """

    path: str | None
    batch_size: int
    worker_count: int
    prefetch_factor: int
    seconds: float
    checks: list[Check]
    machine: Machine

    @property
    def is_good(self) -> bool:
        """Whether nothing fails. Warnings are about speed, or about what may happen."""
        return all(check.status != "fail" for check in self.checks)

    def as_dict(self) -> dict[str, Any]:
        """The report by name, as `--json` prints it."""
        return {**asdict(self), "is_good": self.is_good}

    def summary(self) -> str:
        """The checklist for a person, with the counts at its end."""
        lines = [line for check in self.checks for line in check.lines()]
        counts = Counter(check.status for check in self.checks)
        told = ", ".join(
            f"{counts[status]} {status}"
            for status in ("fail", "warn", "pass", "skip")
            if counts[status]
        )
        lines.append(
            f"{told}; for batches of {self.batch_size}, {self.worker_count} loader workers, "
            f"{self.prefetch_factor} batches ahead; {self.seconds:.1f} s"
        )
        return "\n".join(lines)


def doctor(
    path: str | Path | None = None,
    *,
    batch_size: int = 64,
    worker_count: int | None = None,
    prefetch_factor: int = PREFETCH_FACTOR,
    images_per_s: float | None = None,
    target: str | Path | None = None,
) -> DoctorReport:
    """Look at the machine, this process, and a store or raw folder, for one to three seconds.

    Some records of a store are dropped from the page cache and read again. Nothing is written, but
    for a folder beside `target`, which is removed again.

    Args:
        path: A store, finished or not, or a raw folder or list. None looks at the machine alone.
        batch_size: Samples of a batch.
        worker_count: Loader workers of each training process. None fits the machine.
        prefetch_factor: Batches that each loader worker is ahead.
        images_per_s: What training is to get, held against what the store's disk or server gives.
        target: Where a store is to be built: whether that can be done there.

    Raises:
        ValueError: An argument is out of its range.
    """
    if images_per_s is not None and not images_per_s > 0:
        raise ValueError(f"images_per_s must be more than 0; got {images_per_s!r}")
    started = time.monotonic()
    machine = Machine.read()
    need = Need(
        batch_size=batch_size,
        worker_count=loader_worker_count() if worker_count is None else worker_count,
        prefetch_factor=prefetch_factor,
        rank_count=machine.local_rank_count,
    )
    with TorchQuestion() as question:
        of_path: list[Check] = []
        if path is not None:
            of_path, need = _path_checks(Path(path), machine, need, images_per_s)
        if target is not None:
            of_path.append(check_target(Path(target), gather_target(Path(target))))
        torch = question.answer()
    links = gpu_links()
    of_job = allocation_checks(machine, Allocation.read())
    of_job += [check_gpu_link(links)] if links else []
    return DoctorReport(
        path=None if path is None else str(path),
        batch_size=need.batch_size,
        worker_count=need.worker_count,
        prefetch_factor=need.prefetch_factor,
        seconds=time.monotonic() - started,
        checks=[*machine_checks(machine, torch, need), *of_job, *of_path],
        machine=machine,
    )


def _path_checks(
    path: Path, machine: Machine, need: Need, images_per_s: float | None
) -> tuple[list[Check], Need]:
    """The checks of a path, and the need with what it says of samples."""
    mount = mount_of(path)
    if is_store(path):
        facts = gather_store(path)
        mounts = [check_mount(path, mount, is_store=True), check_mount_options(mount)]
        return [*mounts, *store_checks(facts, machine.memory, images_per_s)], facts.need(need)
    if not path.exists():
        missing = Check(
            "path",
            "fail",
            f"{path}: nothing there",
            "Expected a store, or a folder or list of images to build one from.",
            f"check the path; a store is made by: packer build RAW {path}",
        )
        return [missing], need
    mounts = [check_mount(path, mount, is_store=False), check_mount_options(mount)]
    if path.is_dir():
        return [*mounts, check_raw_files(gather_raw(path, mount), mount)], need
    return mounts, need
