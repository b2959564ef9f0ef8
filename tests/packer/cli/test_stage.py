"""The command that fills, shows and empties a cache of shards."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import threading
import time

import pytest

from readers.dataset import LMDBDataset
from readers.staging.cache_folder import CacheFolder, StagedStore, store_key, use_key
from readers.store.manifest import read_manifest
from tests.command import run_packer


@pytest.fixture
def cache(tmp_path):
    return CacheFolder(tmp_path / "local")


def facts(*arguments):
    done = run_packer("stage", *arguments, "--json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def _wait_until_staged():
    """Until the dataset's own thread has seen that all is there: it would copy what is removed."""
    for thread in threading.enumerate():
        if thread.name == "staging":
            thread.join(60)
            assert not thread.is_alive()


def test_a_store_is_copied_shown_and_removed(shards, cache):
    """From nothing to nothing; what a process reads stays until it is done."""
    manifest, folder = read_manifest(shards), cache.path.parent
    count = len(manifest.shards)
    done = run_packer("stage", shards, folder)
    assert done.exit_code == 0
    assert f"{shards}: {count} of {count} shards are in {folder}" in done.stdout
    for info in manifest.shards:
        assert cache.copy_path(info.sha256).read_bytes() == (shards / info.file).read_bytes()
    assert "copied 0 bytes" in run_packer("stage", shards, folder).stdout

    dataset = LMDBDataset(shards, cache_dir=folder)
    assert dataset[0]
    _wait_until_staged()
    shown = run_packer("stage", folder, "--status").stdout
    assert f"{folder}: {count} copies of" in shown
    assert f"{shards}: all staged, {count} of {count} shards" in shown
    assert "1 in use" in shown
    found = facts(shards, folder, "--status")
    assert found["stores"][0]["staged_bytes"] == manifest.shard_bytes == found["bytes"]
    assert found["stores"][0]["used_count"] == 1

    done = run_packer("stage", folder, "--evict")
    assert f"removed {count - 1} copies" in done.stdout
    assert "1 copy in use, and kept" in done.stdout
    dataset.close()
    del dataset
    assert facts(shards, folder, "--evict")["count"] == 1
    assert cache.names() == ["locks"]


def test_a_limit_stages_in_part_and_a_damaged_shard_fails(shards, cache, tmp_path):
    """The one was asked for; the other is named, and the exit status is 1."""
    folder, byte_count = cache.path.parent, read_manifest(shards).shard_bytes
    done = run_packer("stage", shards, folder, "--limit", str(byte_count - 1), "--rate", "1GB/s")
    assert done.exit_code == 0, done.stdout
    assert "no room for" in done.stdout
    damaged = shutil.copytree(shards, tmp_path / "damaged.lmdb")
    last = sorted(damaged.glob("shard-*.lmdb"))[-1]
    data = bytearray(last.read_bytes())
    data[-1] ^= 1
    last.write_bytes(data)
    done = run_packer("stage", damaged, folder)
    assert done.exit_code == 1
    assert f"{damaged}: {last.name}: SHA-256" in done.stdout
    shown = run_packer("stage", folder, "--status").stdout
    assert "staged in part" in shown


def test_several_stores_share_a_cache(shards, store, cache):
    """Each is told of; to remove one leaves the other."""
    folder = cache.path.parent
    report = facts(shards, store, folder)
    assert [one["is_whole"] for one in report["stores"]] == [True, True]
    assert {one["path"] for one in facts(folder, "--status")["stores"]} == {str(shards), str(store)}
    facts(shards, folder, "--evict")
    assert [one["path"] for one in facts(folder, "--status")["stores"]] == [str(store)]
    assert cache.whole() == {info.sha256 for info in read_manifest(store).shards}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("STORE", "DIR", "--status", "--evict"), "exclude each other"),
        (("DIR", "--status", "--limit", "1GB"), "about copying"),
        (("DIR",), "Give a STORE"),
        (("STORE", "STORE"), "is the store"),
        (("STORE", "STORE/cache"), "is in the store"),
        (("STORE", "DIR", "--limit", "0"), "limit of a cache must be at least 1 byte"),
        (("STORE", "DIR", "--rate", "fast"), "'fast' is no size"),
    ],
)
def test_what_does_not_fit_together_is_a_usage_error(store, cache, arguments, text):
    """Told before anything is done."""
    places = {"STORE": str(store), "DIR": str(cache.path.parent), "STORE/cache": f"{store}/cache"}
    done = run_packer("stage", *(places.get(argument, argument) for argument in arguments))
    assert done.exit_code == 2
    assert text in done.stderr
    assert not cache.path.exists()


def test_a_folder_without_copies_is_said_to_be_none(tmp_path):
    """By --status and --evict: it may be a slip."""
    for option in ("--status", "--evict"):
        done = run_packer("stage", tmp_path, option)
        assert done.exit_code == 1
        assert "expected a cache that packer stage" in done.stderr


def test_a_stopped_command_is_gone_on_with(shards, cache, packer_command, packer):
    """Killed or interrupted, it leaves nothing that is taken for whole."""
    folder = cache.path.parent
    command = [*packer_command, "stage", str(shards), str(folder), "--rate", "70kB/s"]
    cache.make()
    key = store_key(StagedStore.of(shards, read_manifest(shards)).identity)

    def is_begun(entry):
        return entry.written_bytes and not entry.is_whole

    def is_copied():
        locks = cache.locks(may_hold=False)
        try:
            return locks.is_taken(key) and any(map(is_begun, cache.entries()))
        finally:
            locks.close()

    for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)):
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while not is_copied():
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(number)
        assert process.wait(timeout=60) == status
    shown = packer("stage", folder, "--status").stdout
    assert "1 copy not whole yet" in shown
    assert "by nobody at this moment" in shown
    assert packer("stage", shards, folder).returncode == 0
    assert all(entry.is_whole for entry in cache.entries())


def test_status_tells_who_copies(shards, cache):
    """Of a store that a process copies at this moment."""
    cache.make()
    store = StagedStore.of(shards, read_manifest(shards))
    locks = cache.locks(may_hold=True)
    assert locks.hold(store_key(store.identity))
    assert "being copied now" in run_packer("stage", shards, cache.path.parent, "--status").stdout
    locks.close()
    assert use_key(store.shards[0][0]) != use_key(store.shards[1][0])


def test_who_removes_copies_is_told_who_copies_them_again(shards, store, cache):
    """And the cache goes on knowing a store that is being copied, when no copy is left of it."""
    folder = cache.path.parent
    facts(shards, store, folder)
    staged = StagedStore.of(shards, read_manifest(shards))
    locks = cache.locks(may_hold=True)
    assert locks.hold(store_key(staged.identity))
    done = run_packer("stage", folder, "--evict")
    assert f"{shards} is being copied now, by a job that will copy it again" in done.stdout
    assert str(store) not in done.stdout
    assert [one["path"] for one in facts(folder, "--status")["stores"]] == [str(shards)]
    locks.close()
    assert facts(folder, "--evict")["copied_paths"] == []
    assert facts(folder, "--status")["stores"] == []
