"""A cache keeps its limit and the disk's free space, and what is used stays."""

from __future__ import annotations

import os
import threading

import pytest

from readers.staging import room
from readers.staging.cache_folder import copy_key, use_key
from readers.staging.room import Evicted, evict, free_bytes, hold_to_limit
from readers.store.manifest import read_manifest


def run(stager):
    return stager.run(threading.Event())


def digests(path):
    return [info.sha256 for info in read_manifest(path).shards]


def size(path):
    return read_manifest(path).shard_bytes


def aged(cache, digest, seconds):
    """A copy that was last used so long ago."""
    path = cache.copy_path(digest)
    then = path.stat().st_mtime - seconds
    path.chmod(0o644)
    os.utime(path, (then, then))


def test_a_store_that_is_larger_than_the_limit_is_staged_in_part(far, cache, stager_of):
    """As many shards as it allows, and the report says why the others are missing."""
    limit = size(far.path) * 2 // 3
    report = run(stager_of(far.path, bytes_max=limit))
    assert 0 < report.staged_bytes <= limit
    assert report.staged_count == 4
    assert report.is_room_missing
    assert f"the limit is {limit:,} bytes" in report.problems[0]
    again = run(stager_of(far.path, bytes_max=limit))
    assert (again.copied_bytes, again.staged_count) == (0, 4)


def test_the_copies_that_were_used_least_recently_go_first(make_far, cache, stager_of):
    """As many as are needed for the new store, and no more."""
    old, new = make_far(1).path, make_far(2).path
    run(stager_of(old))
    for age, digest in enumerate(digests(old)):
        aged(cache, digest, 100 * age)
    limit = size(old) + size(new) - 2 * 100_000
    assert run(stager_of(new, bytes_max=limit)).is_whole
    assert cache.whole() == {*digests(old)[:4], *digests(new)}


def test_a_copy_that_is_read_stays(make_far, cache, stager_of):
    """Also when there is then no room for what is to come; nothing is removed in vain."""
    old, new = make_far(1).path, make_far(2).path
    run(stager_of(old))
    locks = cache.locks(may_hold=False)
    for digest in digests(old)[1:]:
        assert locks.share(use_key(digest))
    report = run(stager_of(new, bytes_max=size(old) + 50_000))
    assert report.staged_count == 1  # In place of the only one that nobody reads.
    assert cache.whole() == {*digests(old)[1:], digests(new)[0]}
    locks.close()


def test_nothing_is_removed_in_vain(make_far, cache, stager_of, monkeypatch):
    """Where all that nobody reads is too little, it stays."""
    old, new = make_far(1).path, make_far(2).path
    run(stager_of(old))
    monkeypatch.setattr(room, "free_bytes", lambda _: -size(old))
    report = run(stager_of(new))
    assert report.is_room_missing
    assert cache.whole() == set(digests(old))


def test_of_two_stores_with_a_shard_in_common_it_is_kept(far, cache, stager_of):
    """Shards of the store that room is made for are not removed for it."""
    run(stager_of(far.path))
    for digest in digests(far.path):
        aged(cache, digest, 1000)
    report = run(stager_of(far.path, bytes_max=size(far.path)))
    assert report.is_whole
    assert report.copied_bytes == 0


def test_a_lower_limit_is_held(far, cache, stager_of):
    """Copies that nobody reads go until it is."""
    run(stager_of(far.path))
    limit = size(far.path) // 2
    report = run(stager_of(far.path, bytes_max=limit))
    # Nothing was missing, so nothing was begun; whoever copies next holds to the limit.
    assert report.is_whole
    found = hold_to_limit(cache, limit)
    assert found.count == 3
    assert sum(entry.bytes for entry in cache.entries()) <= limit


def test_partial_copies_of_the_dead_go_before_whole_ones(make_far, cache, stager_of):
    """One that is made at this moment counts with the size that it will have, and stays."""
    old, new = make_far(1).path, make_far(2).path
    run(stager_of(old))
    infos = read_manifest(make_far(3).path).shards
    for info in infos[:2]:
        cache.partial_path(info).write_bytes(b"x")
    locks = cache.locks(may_hold=True)
    assert locks.hold(copy_key(infos[1].sha256))
    limit = size(old) + infos[0].bytes + infos[1].bytes
    report = run(stager_of(new, bytes_max=limit))
    assert report.is_whole
    assert {entry.path for entry in cache.entries() if not entry.is_whole} == {
        cache.partial_path(infos[1])
    }
    assert len(cache.whole() & set(digests(old))) == 1
    locks.close()


def test_a_disk_that_is_full_is_seen_before_it_is_written(far, cache, stager_of, monkeypatch):
    """Some of it is left free for others."""
    cache.make()
    found = os.statvfs(cache.path)
    free = found.f_bavail * found.f_frsize
    assert free - 4 * 2**30 <= free_bytes(cache) < free
    monkeypatch.setattr(
        room, "free_bytes", lambda _: 400_000 - sum(e.written_bytes for e in cache.entries())
    )
    report = run(stager_of(far.path))
    assert report.staged_count == 2
    assert report.is_room_missing
    assert "no room for shard-00002.lmdb" in report.problems[0]


def test_copies_are_removed_on_demand(make_far, cache, stager_of):
    """Those of some shards, or all; not those that are read."""
    old, new = make_far(1).path, make_far(2).path
    run(stager_of(old))
    run(stager_of(new))
    locks = cache.locks(may_hold=False)
    assert locks.share(use_key(digests(old)[0]))
    found = evict(cache, set(digests(old)))
    assert found == Evicted(count=5, bytes=size(old) * 5 // 6, used_count=1)
    assert cache.whole() == {digests(old)[0], *digests(new)}
    locks.close()
    assert evict(cache).count == 7
    assert cache.whole() == set()


@pytest.mark.parametrize("bytes_max", [0, -1])
def test_a_limit_of_nothing_is_a_mistake(far, stager_of, bytes_max):
    """It says what is wrong."""
    with pytest.raises(ValueError, match="limit of a cache must be at least 1 byte; got"):
        stager_of(far.path, bytes_max=bytes_max)
