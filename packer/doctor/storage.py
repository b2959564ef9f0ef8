"""What the disk or server below a store gives: measured with few reads, and held against a job.

A read of some bytes takes a round trip whatever their number; records in random order are read many
at once, as a loader does; neighbours come by few large reads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from packer.doctor.check import Check
from packer.doctor.records import ROUND_TRIP_BYTES, StoredRecords
from packer.wording import count_text, size_text, time_text
from readers.machine import Mount

_ROUND_TRIP_COUNT = 8
_SHUFFLED_COUNT = 64
_SHUFFLED_BYTES_MAX = 16 * 2**20
_ORDERED_BYTES_MAX = 8 * 2**20

_ORDERED_GAIN_LEAST = 1.5
"""How much quicker neighbours must come for an order by blocks to be worth it."""


@dataclass(frozen=True, kw_only=True)
class StorageTimes:
    """What reading took that nothing in memory helped with.

    Attributes:
        is_cold: Whether what was read had left the page cache before, as far as the kernel tells.
        round_trip_s: Median of some reads of a few bytes each.
        round_trip_count: How many.
        shuffled_count: Records in random order that were read at once.
        shuffled_s: What they took together.
        shuffled_bytes: Their bytes.
        ordered_count: Neighbours that were read at once.
        ordered_s: What they took together.
        ordered_bytes: Their bytes.
        record_bytes: Bytes of a record, on the average.
    """

    is_cold: bool
    round_trip_s: float
    round_trip_count: int
    shuffled_count: int
    shuffled_s: float
    shuffled_bytes: int
    ordered_count: int
    ordered_s: float
    ordered_bytes: int
    record_bytes: float

    @property
    def shuffled_rate(self) -> float:
        """Samples a second in random order."""
        return self.shuffled_count / self.shuffled_s

    @property
    def ordered_rate(self) -> float:
        """Samples a second, neighbours together."""
        return self.ordered_count / self.ordered_s


def measure_storage(records: StoredRecords) -> StorageTimes:
    """Read some records from a cold start, 24 MiB at most: the same ones in every run.

    Raises:
        ShardError: One cannot be read.
    """
    mean_bytes = records.mean_bytes
    shuffled_count = max(1, min(_SHUFFLED_COUNT, int(_SHUFFLED_BYTES_MAX / max(1.0, mean_bytes))))
    generator = np.random.default_rng(1)
    picked = generator.integers(0, len(records), _ROUND_TRIP_COUNT + shuffled_count + 1).tolist()
    round_trips, is_cold = [], True
    for index in picked[:_ROUND_TRIP_COUNT]:
        is_cold &= records.forget(index)
        round_trips.append(records.round_trip(index))
    shuffled = picked[_ROUND_TRIP_COUNT:-1]
    for index in shuffled:
        is_cold &= records.forget(index)
    shuffled_s, shuffled_bytes = records.fetch(shuffled)
    ordered = records.neighbours(picked[-1], _ORDERED_BYTES_MAX)
    is_cold &= records.forget(ordered.start, len(ordered))
    ordered_s, ordered_bytes = records.fetch(ordered)
    return StorageTimes(
        is_cold=is_cold,
        round_trip_s=float(np.median(round_trips)),
        round_trip_count=len(round_trips),
        shuffled_count=shuffled_count,
        shuffled_s=shuffled_s,
        shuffled_bytes=shuffled_bytes,
        ordered_count=len(ordered),
        ordered_s=ordered_s,
        ordered_bytes=ordered_bytes,
        record_bytes=mean_bytes,
    )


def check_reading(mount: Mount, *, can_map: bool) -> Check:
    """Which way a dataset reads here, unless it is told otherwise."""
    name = "reading"
    if mount.is_network:
        figure = f"by many reads at once, since {mount.type} is a network mount"
        why = (
            "Each read is tried again while a server fails; mapped, a file would come page by page."
        )
        if not can_map:
            why += " Files cannot be mapped here, and need not be."
        return Check(name, "pass", figure, why)
    if can_map:
        why = "What is in memory is copied once, and processes share it."
        return Check(name, "pass", f"out of mapped files, since {mount.type} is local", why)
    return Check(
        name,
        "fail",
        f"out of mapped files, which {mount.type} refuses",
        "A dataset cannot be read in the way that it takes here of its own accord.",
        'have it read instead: LMDBDataset(path, io="read")',
    )


def check_storage(times: StorageTimes) -> Check:
    """What asking costs, and what comes when much is asked for at once."""
    cold = "" if times.is_cold else " (some of it was in memory, and would not leave it)"
    figure = (
        f"round trip {time_text(times.round_trip_s)} ({times.round_trip_count} reads of "
        f"{size_text(ROUND_TRIP_BYTES)}); {count_text(times.shuffled_count, 'sample')} at random: "
        f"{_speed(times.shuffled_bytes, times.shuffled_s)}, {times.shuffled_rate:,.0f} samples/s; "
        f"{count_text(times.ordered_count, 'neighbour')}: "
        f"{_speed(times.ordered_bytes, times.ordered_s)}{cold}"
    )
    why = "What comes from the disk or server while nothing is in memory, many reads at once."
    return Check("storage", "pass", figure, why)


def check_epoch(
    times: StorageTimes,
    mount: Mount,
    *,
    sample_count: int,
    shard_count: int,
    holds_pixels: bool,
    images_per_s: float | None,
) -> Check:
    """What an epoch asks of the disk or server, and whether it can give it.

    Args:
        times: What it gave.
        mount: Where the store lies.
        sample_count: Samples of an epoch.
        shard_count: Shards of the store.
        holds_pixels: Whether images are stored as pixels.
        images_per_s: What training is to get, in all processes that read from there.
    """
    name = "epoch"
    requests = sample_count * _requests(times.record_bytes, mount)
    figure = (
        f"{sample_count:,} samples of {size_text(times.record_bytes)}: "
        f"{size_text(sample_count * times.record_bytes)} by {requests:,} reads, "
        f"{count_text(shard_count, 'open')}"
    )
    if images_per_s is None:
        why = (
            f"Each 1,000 images/s take {_gigabytes(1000 * times.record_bytes)} of what is not in "
            "memory. To hold what you need against it: --images-per-s N"
        )
        return Check(name, "pass", figure, why)
    figure += (
        f"; {images_per_s:,.0f} images/s take {_gigabytes(images_per_s * times.record_bytes)}, "
        f"here come {times.shuffled_rate:,.0f} images/s"
    )
    if images_per_s <= times.shuffled_rate:
        return Check(name, "pass", figure, "Storage keeps up, also while nothing is in memory.")
    why = "Until it is in memory, the store comes more slowly than training wants it."
    return Check(name, "warn", figure, why, "; or ".join(_remedies(times, mount, holds_pixels)))


def _requests(record_bytes: float, mount: Mount) -> int:
    """Requests that a record takes on its mount."""
    values = dict(option.partition("=")[::2] for option in mount.options)
    largest = values.get("rsize", values.get("max_read", ""))
    if not (largest.isdecimal() and int(largest)):
        return 1
    return max(1, -(-round(record_bytes) // int(largest)))


def _remedies(times: StorageTimes, mount: Mount, holds_pixels: bool) -> list[str]:
    """What would bring more, the least work first."""
    found = []
    if times.ordered_rate > _ORDERED_GAIN_LEAST * times.shuffled_rate:
        found.append(
            f"read neighbours together, {times.ordered_rate / times.shuffled_rate:.1f} times as "
            "fast here: make_loader(..., sampler=BlockShuffleSampler(dataset))"
        )
    options = {option.partition("=")[0] for option in mount.options}
    if mount.type.startswith("nfs") and "nconnect" not in options:
        found.append("mount with nconnect=8")
    if mount.is_network:
        found.append('stage it on a local disk: LMDBDataset(path, cache_dir="/local/disk")')
    if holds_pixels:
        found.append("store a tenth of the bytes: packer build RAW OUT --image jpeg")
    return found or ["store smaller samples: packer build --size"]


def _speed(byte_count: int, seconds: float) -> str:
    return f"{byte_count / seconds / 1e6:,.0f} MB/s"


def _gigabytes(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e9:.2f} GB/s"
