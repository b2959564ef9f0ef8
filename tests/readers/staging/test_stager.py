"""Copies are whole and right, made once a node, and gone on with when their maker was killed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from readers.machine import Mount
from readers.staging import cache_folder, shard_copy
from readers.staging import stager as stager_module
from readers.staging.cache_folder import StagingError
from readers.staging.shard_copy import RecordSource
from readers.store.manifest import read_manifest

ROOT = Path(__file__).resolve().parents[3]

STAGE = """
import json, sys, threading
from pathlib import Path
from readers.staging import stager
from readers.staging.settings import CacheSettings
from readers.store.manifest import read_manifest
path, folder, rate = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]) or None
settings = CacheSettings(folder=folder, bytes_per_s_max=rate)
report = stager.Stager(path, read_manifest(path), settings).run(threading.Event())
print(json.dumps([report.copied_bytes, report.staged_count, list(report.problems)]))
"""


@pytest.fixture(autouse=True)
def looks_often(monkeypatch):
    monkeypatch.setattr(stager_module, "LOOK_S", 0.02)


@pytest.fixture
def started():
    """Starts processes that stage: started(store, cache, bytes a second)."""
    processes = []

    def start(store, cache, rate=0):
        command = [sys.executable, "-c", STAGE, store, cache.path.parent, rate]
        process = subprocess.Popen(
            list(map(str, command)), cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()
        process.stdout.close()


def contents(cache):
    """Bytes of all whole copies, by digest."""
    return {digest: cache.copy_path(digest).read_bytes() for digest in cache.whole()}


def expected(path):
    return {info.sha256: (path / info.file).read_bytes() for info in read_manifest(path).shards}


def run(stager, **settings):
    return stager.run(threading.Event(), **settings)


def test_all_shards_are_copied(far, cache, stager_of):
    """Byte for byte, nothing else is left, nobody may write to them, and the report says so."""
    told = []
    report = run(stager_of(far.path), on_bytes=told.append)
    assert contents(cache) == expected(far.path)
    assert not [name for name in cache.names() if name.endswith((".partial", ".damaged"))]
    assert all(not cache.copy_path(d).stat().st_mode & 0o222 for d in cache.whole())
    assert report.is_whole
    assert report.copied_bytes == report.bytes == report.staged_bytes == sum(told)
    assert report.problems == ()
    assert run(stager_of(far.path)).copied_bytes == 0


def test_a_store_that_was_built_again_is_another(make_far, cache, stager_of, tmp_path):
    """At the same path; shards that both have are not copied again."""
    path = tmp_path / "out.lmdb"
    shutil.copytree(make_far(1).path, path)
    run(stager_of(path))
    first = contents(cache)
    shutil.rmtree(path)
    shutil.copytree(make_far(2).path, path)
    report = run(stager_of(path))
    assert report.copied_bytes == report.bytes
    assert contents(cache) == {**first, **expected(path)}


class Broken(RecordSource):
    """A way to a shard on which a byte goes wrong, once it was asked for so often."""

    left = 0

    def read(self, start, into):
        super().read(start, into)
        if type(self).left:
            type(self).left -= 1
            into[0] ^= 1


def test_damage_on_the_way_is_found(far, cache, stager_of, monkeypatch):
    """The shard is not copied, the others are, and the report says which; later it is right."""
    monkeypatch.setattr(Broken, "left", 1)
    stager = stager_of(far.path, open_source=Broken.of_shard)
    report = run(stager)
    digests = [info.sha256 for info in read_manifest(far.path).shards]
    assert report.staged_count == 5
    assert cache.whole() == set(digests[1:])
    (problem,) = report.problems
    assert "shard-00000.lmdb" in problem
    assert f"expected {digests[0][:16]}" in problem
    assert f"packer verify {far.path}" in problem
    # Others of the node do not try it again and again.
    assert run(stager_of(far.path)).problems == (problem,)
    assert run(stager, tries_damaged=True).is_whole


def test_a_partial_copy_is_gone_on_with(far, cache, stager_of):
    """Only what is missing crosses the network."""
    info = read_manifest(far.path).shards[0]
    cache.make()
    content = (far.path / info.file).read_bytes()
    cache.partial_path(info).write_bytes(content[:40_000])
    starts = []

    class Counting(RecordSource):
        def read(self, start, into):
            starts.append((start, len(into)))
            super().read(start, into)

    assert run(stager_of(far.path, open_source=Counting.of_shard)).is_whole
    assert starts[0] == (40_000, len(content) - 40_000)
    assert contents(cache) == expected(far.path)


@pytest.mark.parametrize("harm", ["zeros", "longer", "whole but wrong"])
def test_a_partial_copy_that_is_wrong_is_begun_anew(far, cache, stager_of, harm):
    """As after a power cut: the shard itself is not blamed for it."""
    info = read_manifest(far.path).shards[0]
    cache.make()
    size = {"zeros": 50_000, "longer": info.bytes + 1, "whole but wrong": info.bytes}[harm]
    cache.partial_path(info).write_bytes(bytes(size))
    told = []
    report = run(stager_of(far.path), on_bytes=told.append)
    assert report.is_whole
    assert contents(cache) == expected(far.path)
    assert sum(told) == report.bytes


def test_two_processes_copy_each_shard_once(far, cache, started):
    """Both wait until all is there; what they copied is together one store."""
    processes = [started(far.path, cache, 400_000) for _ in range(2)]
    reports = [json.loads(process.communicate(timeout=100)[0]) for process in processes]
    assert [report[1:] for report in reports] == [[6, []], [6, []]]
    total = sum(map(len, expected(far.path).values()))
    assert sorted(report[0] for report in reports) == [0, total]
    assert contents(cache) == expected(far.path)


def test_a_shard_that_another_store_copies_is_waited_for(far, cache, stager_of, until):
    """Two stores may share shards: the others are copied meanwhile."""
    info = read_manifest(far.path).shards[1]
    cache.make()
    locks, reports = cache.locks(may_hold=True), []
    assert locks.hold(cache_folder.copy_key(info.sha256))
    thread = threading.Thread(target=lambda: reports.append(run(stager_of(far.path))))
    thread.start()
    try:
        until(lambda: len(cache.whole()) == 5)
        shutil.copy(far.path / info.file, cache.partial_path(info))
        cache.partial_path(info).rename(cache.copy_path(info.sha256))
    finally:
        locks.close()
        thread.join(60)
    assert reports[0].is_whole
    assert reports[0].copied_bytes == reports[0].bytes - info.bytes


def test_a_killed_holder_is_succeeded(far, cache, started, stager_of, until):
    """By another process, which goes on with what it left, its partial file too."""
    holder = started(far.path, cache, 200_000)
    until(lambda: cache.whole() and any(not entry.is_whole for entry in cache.entries()))
    other = started(far.path, cache, 0)
    holder.send_signal(signal.SIGSTOP)
    assert other.poll() is None
    before = len(cache.whole())
    assert before < 6
    holder.kill()
    report = json.loads(other.communicate(timeout=100)[0])
    assert report[1:] == [6, []]
    assert contents(cache) == expected(far.path)
    assert not [name for name in cache.names() if name.endswith(".partial")]


def test_it_can_be_stopped_and_gone_on_with(far, cache, stager_of):
    """Between two pieces; what was copied stays."""
    stop = threading.Event()
    report = stager_of(far.path).run(stop, lambda _: stop.set())
    assert report.staged_count <= 1
    assert run(stager_of(far.path)).is_whole


def test_what_is_needed_next_comes_first(far, cache, stager_of):
    """As a loader has said; the others follow in the order of the store."""
    identity = stager_of(far.path)._identity
    cache.make()
    cache.hint(identity, [4, 2, 99])
    opened = []

    def noted(path, info):
        opened.append(int(info.file[6:11]))
        if len(opened) == 2:
            cache.hint(identity, [5])
        return RecordSource.of_shard(path, info)

    assert run(stager_of(far.path, open_source=noted)).is_whole
    assert opened == [4, 2, 5, 0, 1, 3]


def test_a_shard_that_cannot_be_read_leaves_the_others(far, cache, stager_of, tmp_path):
    """It may be there later, and is named until then."""
    path = tmp_path / "out.lmdb"
    shutil.copytree(far.path, path)
    moved = (path / "shard-00002.lmdb").rename(tmp_path / "away")
    report = run(stager_of(path))
    assert report.staged_count == 5
    assert report.may_pass
    assert "shard-00002.lmdb" in report.problems[0]
    moved.rename(path / "shard-00002.lmdb")
    assert run(stager_of(path)).is_whole


@pytest.fixture
def away_from_root():
    """For root, every folder is writable; it is somebody else meanwhile."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    yield
    os.seteuid(user)


def test_a_cache_that_cannot_be_written_is_refused(far, stager_of, cache, request):
    """The message names it and says what to do."""
    cache.path.mkdir(parents=True)
    cache.path.chmod(0o555)
    stager = stager_of(far.path)
    request.getfixturevalue("away_from_root")
    with pytest.raises(StagingError, match=f"{cache.path}: Permission denied; expected a folder"):
        run(stager)


@pytest.mark.parametrize("place", ["a file", "network", "somebody else's"])
def test_a_place_that_is_no_cache_is_refused(far, cache, stager_of, place, monkeypatch):
    """Nothing is written there, nor read."""
    folder = cache.path.parent
    if place == "a file":
        folder.write_text("")
    elif place == "network":
        nfs = Mount(Path("/data"), "nfs4", ())
        monkeypatch.setattr(cache_folder, "mount_of", lambda _: nfs)
    else:
        if os.geteuid() != 0:
            pytest.skip("needs root, to give a folder away")
        cache.path.mkdir(parents=True)
        os.chown(cache.path, 4242, 4242)
    text = {
        "a file": "expected a folder",
        "network": r"on the network mount /data \(nfs4\)",
        "somebody else's": "belongs to user 4242",
    }[place]
    with pytest.raises(StagingError, match=text):
        run(stager_of(far.path))
    assert not cache.names() if place != "a file" else folder.is_file()


def test_a_full_disk_ends_it_and_leaves_no_partial_file(far, cache, stager_of, monkeypatch):
    """What is copied stays; the report says what is missing."""
    real, calls = os.pwrite, []

    def full(descriptor, piece, start):
        calls.append(start)
        if len(calls) > 2:
            raise OSError(28, os.strerror(28))
        return real(descriptor, piece, start)

    monkeypatch.setattr(shard_copy.os, "pwrite", full)
    report = run(stager_of(far.path))
    assert report.staged_count == 2
    assert report.is_room_missing
    assert "No space left on device" in report.problems[0]
    assert all(entry.is_whole for entry in cache.entries())


def test_a_digest_is_the_name(far, cache, stager_of):
    """Anybody can see with sha256sum that a copy is right."""
    run(stager_of(far.path))
    for digest, content in contents(cache).items():
        assert hashlib.sha256(content).hexdigest() == digest
