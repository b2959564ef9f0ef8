"""What `packer doctor` says of the disk or server below a store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from packer.doctor import doctor
from packer.doctor.storage import StorageTimes, check_epoch, check_reading, check_storage
from readers.machine import Mount

LOCAL = Mount(Path("/"), "ext4", ("rw",))
NFS = Mount(Path("/data"), "nfs4", ("rw", "vers=4.2", "rsize=131072"))

TIMES = StorageTimes(
    is_cold=True,
    round_trip_s=0.002,
    round_trip_count=8,
    shuffled_count=64,
    shuffled_s=0.08,
    shuffled_bytes=64 * 200_000,
    ordered_count=40,
    ordered_s=0.02,
    ordered_bytes=40 * 200_000,
    record_bytes=200_000.0,
)
"""800 samples a second at random, 2,000 in order."""


def epoch(times=TIMES, mount=NFS, images_per_s=None, holds_pixels=True):
    return check_epoch(
        times,
        mount,
        sample_count=50_000,
        shard_count=10,
        holds_pixels=holds_pixels,
        images_per_s=images_per_s,
    )


@pytest.mark.parametrize(
    ("mount", "can_map", "status", "said"),
    [
        (LOCAL, True, "pass", "out of mapped files, since ext4 is local"),
        (NFS, True, "pass", "by many reads at once, since nfs4 is a network mount"),
        (NFS, False, "pass", "need not be"),
        (LOCAL, False, "fail", 'io="read"'),
    ],
)
def test_the_way_of_reading_follows_the_mount(mount, can_map, status, said):
    """What cannot be mapped and is not taken for a network mount needs a word from the user."""
    check = check_reading(mount, can_map=can_map)
    assert check.status == status
    assert said in "\n".join(check.lines())


def test_round_trip_and_speed_are_told():
    """In the units of people; what was in memory is not passed off as the server's speed."""
    figure = check_storage(TIMES).figure
    assert figure == (
        "round trip 2.0 ms (8 reads of 4.0 KiB); 64 samples at random: 160 MB/s, 800 samples/s; "
        "40 neighbours: 400 MB/s"
    )
    assert "would not leave it" in check_storage(replace(TIMES, is_cold=False)).figure


def test_an_epoch_is_counted_in_bytes_and_calls():
    """A record that is larger than the mount's largest request takes several."""
    check = epoch()
    assert (check.status, check.remedy) == ("pass", "")
    assert "50,000 samples of 195.3 KiB: 9.3 GiB by 100,000 reads, 10 opens" in check.figure
    assert "1,000 images/s take 0.20 GB/s" in check.why
    assert "by 50,000 reads" in epoch(mount=LOCAL).figure


def test_what_training_needs_is_held_against_what_comes():
    """With the ways to get more, the least work first."""
    assert epoch(images_per_s=700).status == "pass"
    check = epoch(images_per_s=3000)
    assert check.status == "warn"
    assert "3,000 images/s take 0.60 GB/s, here come 800 images/s" in check.figure
    remedies = check.remedy.split("; or ")
    assert ["BlockShuffleSampler" in remedies[0], "nconnect=8" in remedies[1]] == [True, True]
    assert ["cache_dir=" in remedies[2], "--image jpeg" in remedies[3]] == [True, True]
    slow = replace(TIMES, ordered_s=0.05)
    quiet = epoch(slow, Mount(Path("/"), "ext4", ()), images_per_s=3000, holds_pixels=False)
    assert quiet.remedy == "store smaller samples: packer build --size"


@pytest.mark.parametrize("rate", [0, -1.0, float("nan")])
def test_a_rate_that_cannot_be_is_refused(rate):
    """With the value."""
    with pytest.raises(ValueError, match="images_per_s must be more than 0; got"):
        doctor(images_per_s=rate)
