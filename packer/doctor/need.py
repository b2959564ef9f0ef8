"""What a training job needs of the machine, by its settings and the store's schema. Arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

from readers.machine import KEPT_BATCH_COUNT, PREFETCH_FACTOR, batches_ahead

ASSUMED_SAMPLE_BYTES = 224 * 224 * 3
"""Without a store: an RGB image of the usual side, uint8."""

_DESCRIPTOR_RESERVE = 64
"""Log files, checkpoints, CUDA, sockets between ranks: what a training process has open besides."""


@dataclass(frozen=True, kw_only=True)
class Need:
    """Settings of a job, and what follows from them.

    Attributes:
        batch_size: Samples of a batch.
        worker_count: Loader workers of each training process.
        prefetch_factor: Batches that each of them is ahead.
        rank_count: Training processes on this machine.
        sample_bytes: Bytes of a decoded sample, on the average.
        sample_is_assumed: Whether that is a guess, there being no store to ask.
        fixed_count: Fields that become one tensor for a batch.
        variable_count: Fields that become a tensor for each sample, their sizes being different.
    """

    batch_size: int
    worker_count: int
    prefetch_factor: int = PREFETCH_FACTOR
    rank_count: int = 1
    sample_bytes: int = ASSUMED_SAMPLE_BYTES
    sample_is_assumed: bool = True
    fixed_count: int = 2
    variable_count: int = 0

    def __post_init__(self) -> None:
        for name, least in (("batch_size", 1), ("worker_count", 0), ("prefetch_factor", 1)):
            value = getattr(self, name)
            if value < least:
                raise ValueError(f"{name} must be at least {least}; got {value!r}")

    @property
    def batch_bytes(self) -> int:
        """Bytes of one batch."""
        return self.batch_size * self.sample_bytes

    @property
    def _batches_ahead(self) -> int:
        """Of one training process."""
        return batches_ahead(self.worker_count, self.prefetch_factor)

    @property
    def batches_text(self) -> str:
        """How the batches under way come about, for a figure."""
        ranks = f"{self.rank_count} ranks x " if self.rank_count > 1 else ""
        return f"{ranks}{self.worker_count} loader workers x {self.prefetch_factor} batches"

    @property
    def shared_bytes(self) -> int:
        """What batches of a stock DataLoader take in /dev/shm while they are under way."""
        return self.rank_count * self._batches_ahead * self.batch_bytes

    @property
    def buffer_bytes(self) -> int:
        """What kept (on CUDA machines pinned) batch buffers of `make_loader` take in memory."""
        batches = self._batches_ahead + KEPT_BATCH_COUNT
        return self.rank_count * batches * self.batch_bytes

    @property
    def descriptor_count(self) -> int:
        """Descriptors that a training process with `make_loader` needs.

        A worker has a pipe, a sentinel and a page for its state, and each batch under way a slot.
        """
        batches = self._batches_ahead + KEPT_BATCH_COUNT
        return _DESCRIPTOR_RESERVE + 4 * self.worker_count + batches

    @property
    def stock_descriptor_count(self) -> int:
        """The same with a stock DataLoader: a descriptor for each tensor under way.

        A worker has two queues and a sentinel. Fields whose size differs between samples become
        tensors of their own, in lists.
        """
        tensors = self.fixed_count + self.variable_count * self.batch_size
        under_way = self._batches_ahead * tensors
        return _DESCRIPTOR_RESERVE + 8 * self.worker_count + under_way
