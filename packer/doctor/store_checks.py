"""Checks of a store: is it whole, and how fast can it be read here."""

from __future__ import annotations

from packer.doctor.check import Check
from packer.doctor.storage import check_epoch, check_reading, check_storage
from packer.doctor.store import SampleTimes, StoreFacts
from packer.wording import count_text, size_text, time_text
from readers.machine import Memory

_SAMPLE_S_MAX = 0.1
"""A loader worker that waits this long for one sample starves a GPU whatever the batch size."""

_RANDOM_S_MAX = 0.01
"""At 10 ms a sample a loader worker gives fewer than 100 samples a second."""


def check_store(facts: StoreFacts) -> Check:
    """Whether the store can be opened, and its shards are as long as they should be."""
    name = "store"
    if facts.problem is not None:
        why = "Nothing can be trained from it as it is."
        return Check(name, "fail", facts.problem, why, facts.remedy)
    sizes = (
        "their sizes match"
        if facts.seen_count == facts.shard_count
        else f"{facts.seen_count:,} of them looked at, their sizes match"
    )
    figure = (
        f"{facts.path}: {count_text(facts.sample_count, 'sample')}, {size_text(facts.total_bytes)} "
        f"in {count_text(facts.shard_count, 'shard')}, {sizes}"
    )
    if not facts.sample_count:
        why = "A loader over no samples is an error when it is made."
        return Check(name, "warn", figure, why, "build it from a folder with images in it")
    why = f"A quick look. Every byte is checked by: packer verify {facts.path}"
    return Check(name, "pass", figure, why)


def check_single_sample(times: SampleTimes) -> Check:
    """What one sample takes, from the disk and from memory."""
    name = "single_sample"
    cold = "cold" if times.is_cold else "first read (its pages would not leave the page cache)"
    figure = f"{cold} {time_text(times.cold_s)}, warm {time_text(times.warm_s)}; limit 100 ms"
    if times.warm_s >= _SAMPLE_S_MAX:
        why = "Even from memory a sample takes so long: it is decoding that takes the time."
        remedy = "packer build with --image raw (pixels, decoded once) or a smaller --size"
        return Check(name, "warn", figure, why, remedy)
    if times.cold_s >= _SAMPLE_S_MAX:
        why = "The disk or server takes so long: the first epoch, or every one if RAM is too small."
        remedy = "copy the store to a local disk first: cp -r STORE /local/disk/"
        return Check(name, "warn", figure, why, remedy)
    why = "Time to read and decode, in one thread; medians of some samples."
    return Check(name, "pass", figure, why)


def check_random_samples(times: SampleTimes, *, is_network: bool = False) -> Check:
    """What random access gives, with the page cache as it is.

    One sample at a time says little of a network mount, where a batch is read at once: there what
    an epoch takes is held against what storage gives.
    """
    name, mean = "random_samples", times.random_s / times.random_count
    rate, byte_rate = 1 / mean, times.random_bytes / times.random_s
    figure = (
        f"{count_text(times.random_count, 'random sample')}: {rate:,.0f}/s, "
        f"{byte_rate / 1e6:,.0f} MB/s, slowest {time_text(times.slowest_s)}"
    )
    if mean > _RANDOM_S_MAX and not is_network:
        why = "A loader worker gives fewer than 100 samples a second, in shuffled order."
        remedy = (
            "read the store once in order, if it fits into RAM: cat STORE/*.lmdb > /dev/null; or "
            "copy it to a local disk; or build smaller samples (--size)"
        )
        return Check(name, "warn", figure, why, remedy)
    why = "One thread, one sample at a time, with the page cache as it is now; batches are quicker."
    return Check(name, "pass", figure, why)


def check_page_cache(facts: StoreFacts, memory: Memory) -> Check:
    """How much of the store is in memory, and whether all of it can be."""
    name, found = "page_cache", facts.residency
    usable = memory.usable_bytes
    fits = facts.total_bytes <= usable
    size = f"the store takes {size_text(facts.total_bytes)}, {size_text(usable)} are free"
    if found is None:
        figure = f"{size}; what is cached is told to the owner of the files only"
    else:
        share = found.resident_bytes / max(1, found.seen_bytes)
        figure = f"{share:.0%} cached; {size}"
        if found.seen_bytes < found.total_bytes:
            figure += f" (looked at {size_text(found.seen_bytes)})"
        # What is cached counts as free memory, since it can be given up.
        fits = fits or share > 0.999
    if not fits:
        why = "The store does not fit into memory: in every epoch, shuffled reads go to the disk."
        remedy = (
            "use a local disk, more memory (sbatch --mem=..., docker run --memory=...), or a "
            "smaller --size; blocks read in order are quicker than single samples"
        )
        return Check(name, "warn", figure, why, remedy)
    if found is None:
        why = "A store that fits is read from the disk in the first epoch only."
        return Check(name, "skip", figure, why)
    why = "What is cached is read at memory's speed; a store that fits is cached after one epoch."
    return Check(name, "pass", figure, why)


def store_checks(
    facts: StoreFacts, memory: Memory, images_per_s: float | None = None
) -> list[Check]:
    """All of them, in the order of the checklist.

    Args:
        facts: What was found.
        memory: Of the machine.
        images_per_s: What training is to get; None if that is not known.
    """
    checks = [check_store(facts)]
    if facts.times is not None:
        checks.append(check_reading(facts.mount, can_map=facts.can_map))
        checks.append(check_single_sample(facts.times))
        checks.append(check_random_samples(facts.times, is_network=facts.mount.is_network))
    if facts.storage is not None:
        checks.append(check_storage(facts.storage))
        epoch = check_epoch(
            facts.storage,
            facts.mount,
            sample_count=facts.sample_count,
            shard_count=facts.shard_count,
            holds_pixels=facts.holds_pixels,
            images_per_s=images_per_s,
        )
        checks.append(epoch)
    if facts.times is not None:
        checks.append(check_page_cache(facts, memory))
    return checks
