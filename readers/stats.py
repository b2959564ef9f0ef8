"""Where a loader's time goes, and what would help."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import Any

from readers.store.record_bytes import NO_READS, ReadFigures

STAGES = ("read", "decode", "transform", "collate")
"""What filling a batch consists of: bytes out of the store, encoded images to pixels, operations on
them (the loader's or the user's), and joining samples."""

_WAITING_SHARE_LEAST = 0.1
_STAGE_SHARE_LEAST = 0.5

_SLOW_READ_S = 0.0005
"""A read out of the page cache of 270 kB takes 0.1 ms; one from a server its round trip as well."""

_LARGE_READ_BYTES = 256 * 2**10
"""From here on the bytes of a read take longer than its round trip: 2.6 ms at 100 MB/s."""

_LOCAL = "or copy the store to a local disk"
_SMALL_READS = (
    "shuffle in blocks, so that neighbours come by one read (BlockShuffleSampler), store smaller "
    f"images (packer build --image jpeg), {_LOCAL}"
)
_LARGE_READS = f"store smaller images (packer build --image jpeg, --size), {_LOCAL}"


class Watch:
    """What one filler is doing, and where its time goes.

    Attributes:
        stages: Seconds spent in each of `STAGES`.
        storage_batch_count: Batches whose records were not in the page cache.
        reads: What it took where the store is read, not mapped.
    """

    def __init__(self) -> None:
        self.stages = dict.fromkeys(STAGES, 0.0)
        self.storage_batch_count = 0
        self.reads = NO_READS
        self._last = 0.0

    def sample(self, index: int) -> None:
        """The sample at `index` is worked on from now on."""

    def start(self) -> None:
        """Time counts from now."""
        self._last = time.perf_counter()

    def lap(self, stage: str) -> None:
        """The time since the last call was spent in a stage."""
        now = time.perf_counter()
        self.stages[stage] += now - self._last
        self._last = now

    def measured(self) -> tuple[dict[str, float], int, ReadFigures]:
        """All of it, as it goes to `LoaderStats.add_watch`."""
        return self.stages, self.storage_batch_count, self.reads


@dataclass
class LoaderStats:
    """Totals of a loader since it was made.

    Attributes:
        engine: "thread" or "process".
        worker_count: Threads or processes that fill batches.
        batch_count: Batches handed out.
        sample_count: Samples in them.
        byte_count: Bytes of their tensors.
        waiting_s: Seconds that the training loop waited for a batch.
        consuming_s: Seconds that it spent between two batches.
        ready_count: Sum over batches of how many more were ready when one was asked for.
        stages_s: Seconds that workers spent in each stage, all workers together.
        storage_batch_count: Batches whose records came from the disk or server, not from memory.
        reads: What it took where the store is read, not mapped.
    """

    engine: str
    worker_count: int
    batch_count: int = 0
    sample_count: int = 0
    byte_count: int = 0
    waiting_s: float = 0.0
    consuming_s: float = 0.0
    ready_count: int = 0
    stages_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))
    storage_batch_count: int = 0
    reads: ReadFigures = NO_READS

    def add_watch(
        self,
        stages: dict[str, float],
        storage_batch_count: int,
        reads: ReadFigures = NO_READS,
    ) -> None:
        """Take over what a filler measured."""
        for stage, seconds in stages.items():
            self.stages_s[stage] += seconds
        self.storage_batch_count += storage_batch_count
        if reads is not NO_READS:
            self.reads += reads

    def as_dict(self) -> dict[str, Any]:
        """The totals by name, with rates and the verdict."""
        total_s = self.waiting_s + self.consuming_s
        return {
            **asdict(self),
            "samples_per_s": self.sample_count / total_s if total_s else 0.0,
            "bytes_per_s": self.byte_count / total_s if total_s else 0.0,
            "waiting_share": self.waiting_s / total_s if total_s else 0.0,
            "queue_depth": self.ready_count / self.batch_count if self.batch_count else 0.0,
            "verdict": self.verdict(),
        }

    def verdict(self) -> str:
        """In a sentence: what holds training up, and what would help."""
        total_s = self.waiting_s + self.consuming_s
        if not self.batch_count or not total_s:
            return "nothing was loaded yet"
        waiting = self.waiting_s / total_s
        if waiting < _WAITING_SHARE_LEAST:
            return (
                f"training is the bottleneck: it waited for data {waiting:.0%} of the time, so a "
                "faster loader would change nothing"
            )
        if self.storage_batch_count > self.batch_count / 2:
            return (
                f"the loader waits for storage: {self.storage_batch_count} of {self.batch_count} "
                f"batches were not in memory, and training waited {waiting:.0%} of the time; copy "
                "the store to a local disk, or give the job more memory"
            )
        if self._waits_for_reads():
            reads = self.reads
            size = reads.byte_count / reads.read_count
            return (
                f"the loader waits for storage: {reads.byte_count / total_s / 1e6:,.0f} MB/s, "
                f"{reads.seconds / reads.read_count * 1e3:.1f} ms a read of {size / 1e3:,.0f} kB, "
                f"up to {reads.in_flight} at once, and training waited {waiting:.0%} of the time; "
                f"{_SMALL_READS if size < _LARGE_READ_BYTES else _LARGE_READS}"
            )
        filling_s = sum(self.stages_s.values()) or 1.0
        stage, seconds = max(self.stages_s.items(), key=lambda item: item[1])
        share = seconds / filling_s
        workers = f"{self.worker_count} {'threads' if self.engine == 'thread' else 'processes'}"
        where = f"{share:.0%} of the loader's time in {_STAGE_WORDS[stage]}"
        if share < _STAGE_SHARE_LEAST:
            where = "no stage stands out"
        return (
            f"{_BOUND_WORDS[stage]}: {where}, training waited {waiting:.0%} of the time with "
            f"{workers}; {_REMEDIES[stage]}"
        )

    def _waits_for_reads(self) -> bool:
        """Whether a server, and not the copy of what it gave, takes the loader's time."""
        reads, filling_s = self.reads, sum(self.stages_s.values())
        if not reads.read_count or reads.seconds / reads.read_count < _SLOW_READ_S:
            return False
        return self.stages_s["read"] >= _STAGE_SHARE_LEAST * filling_s > 0


_BOUND_WORDS = {
    "read": "copy-bound",
    "decode": "decode-bound",
    "transform": "transform-bound",
    "collate": "collate-bound",
}
_STAGE_WORDS = {
    "read": "copying out of the store",
    "decode": "decoding images",
    "transform": "operations on samples",
    "collate": "joining samples",
}
_REMEDIES = {
    "read": "smaller images (packer build --size) or fewer fields (fields=) would help",
    "decode": "store decoded pixels (packer build --image raw --size N), or add workers",
    "transform": "move operations to the device (readers.augment), or add workers",
    "collate": "return tensors of one shape, or add workers",
}
