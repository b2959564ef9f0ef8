"""What a loader says of itself adds up, and its verdict follows from it."""

from __future__ import annotations

import pytest

from readers.stats import STAGES, LoaderStats, Watch
from readers.store.record_bytes import NO_READS, ReadFigures


def read_figures(count, size, each_s=0.0021):
    """What so many reads of a size took."""
    return ReadFigures(count, count * size, count * each_s, in_flight=24)


def stats_of(
    *,
    waiting_s,
    consuming_s,
    engine="process",
    storage_batch_count=0,
    reads=NO_READS,
    **stages_s,
):
    """Totals of ten batches."""
    stats = LoaderStats(engine, 3, batch_count=10, sample_count=320, byte_count=6400)
    stats.waiting_s, stats.consuming_s = waiting_s, consuming_s
    stats.ready_count = 15
    stats.add_watch(dict.fromkeys(STAGES, 0.0) | stages_s, storage_batch_count, reads)
    return stats


VERDICTS = {
    "training": (
        stats_of(waiting_s=0.9, consuming_s=9.1, decode=5.0, storage_batch_count=10),
        "training is the bottleneck: it waited for data 9% of the time, so a faster loader would "
        "change nothing",
    ),
    "storage": (
        stats_of(waiting_s=5.0, consuming_s=5.0, decode=9.0, storage_batch_count=6),
        "the loader waits for storage: 6 of 10 batches were not in memory, and training waited 50% "
        "of the time; copy the store to a local disk, or give the job more memory",
    ),
    "storage for half of them": (
        stats_of(waiting_s=5.0, consuming_s=5.0, read=9.0, storage_batch_count=5),
        "copy-bound: 100% of the loader's time in copying out of the store, training waited 50% of "
        "the time with 3 processes; smaller images (packer build --size) or fewer fields (fields=) "
        "would help",
    ),
    "small reads of a server": (
        stats_of(waiting_s=5.0, consuming_s=5.0, read=9.0, reads=read_figures(400, 100_000)),
        "the loader waits for storage: 4 MB/s, 2.1 ms a read of 100 kB, up to 24 at once, and "
        "training waited 50% of the time; shuffle in blocks, so that neighbours come by one read "
        "(BlockShuffleSampler), store smaller images (packer build --image jpeg), or copy the "
        "store to a local disk",
    ),
    "large reads of a server": (
        stats_of(waiting_s=5.0, consuming_s=5.0, read=9.0, reads=read_figures(400, 300_000)),
        "the loader waits for storage: 12 MB/s, 2.1 ms a read of 300 kB, up to 24 at once, and "
        "training waited 50% of the time; store smaller images (packer build --image jpeg, "
        "--size), or copy the store to a local disk",
    ),
    "reads that nobody waits for": (
        stats_of(waiting_s=5.0, consuming_s=5.0, read=4.0, decode=6.0, reads=read_figures(9, 9)),
        "decode-bound: 60% of the loader's time in decoding images, training waited 50% of the "
        "time with 3 processes; store decoded pixels (packer build --image raw --size N), or add "
        "workers",
    ),
    "reads out of memory": (
        stats_of(waiting_s=5.0, consuming_s=5.0, read=9.0, reads=read_figures(4, 9, 0.0001)),
        "copy-bound: 100% of the loader's time in copying out of the store, training waited 50% of "
        "the time with 3 processes; smaller images (packer build --size) or fewer fields (fields=) "
        "would help",
    ),
    "decode": (
        stats_of(waiting_s=1.0, consuming_s=9.0, read=1.0, decode=6.0, transform=3.0),
        "decode-bound: 60% of the loader's time in decoding images, training waited 10% of the "
        "time with 3 processes; store decoded pixels (packer build --image raw --size N), or add "
        "workers",
    ),
    "transform": (
        stats_of(waiting_s=9.0, consuming_s=1.0, transform=1.0, engine="thread"),
        "transform-bound: 100% of the loader's time in operations on samples, training waited 90% "
        "of the time with 3 threads; move operations to the device (readers.augment), or add "
        "workers",
    ),
    "collate": (
        stats_of(waiting_s=5.0, consuming_s=5.0, collate=2.0, read=1.0),
        "collate-bound: 67% of the loader's time in joining samples, training waited 50% of the "
        "time with 3 processes; return tensors of one shape, or add workers",
    ),
    "no stage": (
        stats_of(waiting_s=5.0, consuming_s=5.0, read=4.0, decode=3.0, transform=3.0),
        "copy-bound: no stage stands out, training waited 50% of the time with 3 processes; "
        "smaller images (packer build --size) or fewer fields (fields=) would help",
    ),
    "nothing": (LoaderStats("thread", 2), "nothing was loaded yet"),
}


@pytest.mark.parametrize(("stats", "verdict"), VERDICTS.values(), ids=VERDICTS)
def test_the_verdict_says_what_holds_training_up_and_what_would_help(stats, verdict):
    """Word for word, as a user acts on it."""
    assert stats.verdict() == verdict
    assert stats.as_dict()["verdict"] == verdict


def test_rates_follow_from_the_totals():
    """Time is what the training loop saw: waiting and between two batches."""
    facts = stats_of(waiting_s=1.0, consuming_s=3.0, read=0.5).as_dict()
    assert facts["samples_per_s"] == 80
    assert facts["bytes_per_s"] == 1600
    assert facts["waiting_share"] == 0.25
    assert facts["queue_depth"] == 1.5
    assert facts["stages_s"] == {"read": 0.5, "decode": 0, "transform": 0, "collate": 0}
    assert (facts["engine"], facts["worker_count"], facts["batch_count"]) == ("process", 3, 10)


def test_rates_of_nothing_are_zero():
    """A loader that was not used yet can be asked."""
    facts = LoaderStats("thread", 2).as_dict()
    names = ("samples_per_s", "bytes_per_s", "waiting_share", "queue_depth", "waiting_s")
    assert [facts[name] for name in names] == [0] * 5


def test_what_was_read_adds_up():
    """Counts are sums; what was kept, and under way, at once is the most of any worker."""
    stats = stats_of(waiting_s=1.0, consuming_s=3.0, reads=ReadFigures(2, 30, 0.5, 1, 700, 16))
    stats.add_watch(dict.fromkeys(STAGES, 0.0), 0, ReadFigures(1, 10, 0.25, 1, 500, 24))
    assert stats.as_dict()["reads"] == {
        "read_count": 3,
        "byte_count": 40,
        "seconds": 0.75,
        "ahead_count": 2,
        "ahead_bytes": 700,
        "in_flight": 24,
    }


def test_each_lap_counts_for_its_stage():
    """All time from the start on belongs to a stage, and none to two."""
    watch = Watch()
    watch.start()
    begin = watch._last
    for stage in ("read", "decode", "transform", "decode", "collate"):
        watch.lap(stage)
    assert all(seconds > 0 for seconds in watch.stages.values())
    assert sum(watch.stages.values()) == pytest.approx(watch._last - begin, abs=1e-9)
