"""A store is built into a bucket: whole or not at all, and none of what is done is done twice."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time

import pytest

from packer.building.build import build
from packer.errors import BuildError, NoSpaceError, TargetExistsError
from packer.workspace import space
from packer.workspace.folder import Workspace
from packer.workspace.step import Step
from packer.workspace.upload import workspace_of
from readers.store.errors import RemoteError, StoreError, StoreIncompleteError, StoreNotFoundError
from readers.store.place import Url
from readers.store.reader import open_store
from readers.store.record import RecordReader
from readers.store.remote import files_of
from tests.command import run_packer
from tests.readers.store.servers import Faults, s3_server, web_server


@pytest.fixture(scope="module")
def s3():
    """It stays connected: to start botocore takes half a second."""
    with s3_server() as served:
        kept = files_of(Url("s3://bucket/any", served.options))
        yield served
        del kept


@pytest.fixture
def url(s3, request):
    """Of no store yet."""
    yield Url(f"s3://bucket/{request.node.name}.lmdb", s3.options)
    s3.faults.answer = Faults().answer


@pytest.fixture
def scratch(tmp_path):
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


def contents_at(url, names):
    """Files of a store, by name."""
    files = files_of(url)
    return {name: files.read(name, 2**30) for name in names}


def uploads(s3, name):
    """How often a file was sent."""
    sent = [one for one in s3.faults.requests if one.method == "PUT" and one.path.endswith(name)]
    return len(sent)


def test_the_store_is_the_same_as_in_a_folder(s3, url, raw, shards, scratch, many_shards, contents):
    """Byte for byte; nothing of it stays here, and its manifest came last."""
    steps = []
    s3.faults.requests.clear()
    report = build(raw, url, many_shards, worker_count=1, scratch=scratch, on_step=steps.append)
    assert report.path == str(url)
    assert "LMDBDataset('s3://bucket/" in report.summary()
    expected = contents(shards)
    assert contents_at(url, expected) == expected
    assert steps[-3:] == [Step.MANIFEST_WRITTEN, Step.PUBLISHED, Step.CLEANED]
    sent = [one.path.rsplit("/", 1)[-1] for one in s3.faults.requests if one.method == "PUT"]
    assert sent[-1] == "manifest.json"
    assert list(scratch.iterdir()) == []
    names = set(files_of(url).listing())
    assert names == {*expected, "update-cache"}


def test_an_upload_that_fails_goes_on_where_it_stopped(
    s3, url, raw, shards, scratch, many_shards, contents
):
    """There is no store meanwhile; the shards are kept here, and none is made or sent twice."""
    s3.faults.answer = lambda request: (
        403 if request.method == "PUT" and request.path.endswith("shard-00002.lmdb") else None
    )
    with pytest.raises(RemoteError, match=r"shard-00002.lmdb: 403.*are kept here: run"):
        build(raw, url, many_shards, worker_count=1, scratch=scratch)
    with pytest.raises(StoreIncompleteError, match="its upload did not finish"):
        open_store(url)
    s3.faults.answer = Faults().answer
    s3.faults.requests.clear()
    report = build(raw, url, many_shards, worker_count=1, scratch=scratch)
    assert report.kept_shard_count == 4
    assert uploads(s3, "shard-00002.lmdb") == 1
    assert sum(uploads(s3, f"shard-0000{number}.lmdb") for number in (0, 1)) == 0
    expected = contents(shards)
    assert contents_at(url, expected) == expected
    assert list(scratch.iterdir()) == []


def test_a_build_that_was_killed_goes_on(s3, url, raw, shards, scratch, packer_command, contents):
    """In the midst of the upload, with no time to say good-bye."""
    s3.faults.requests.clear()
    s3.faults.answer = lambda request: (
        "late" if request.method == "PUT" and request.path.endswith("shard-00001.lmdb") else None
    )
    environment = {
        **os.environ,
        "AWS_ENDPOINT_URL": s3.options["endpoint_url"],
        "AWS_ACCESS_KEY_ID": s3.options["key"],
        "AWS_SECRET_ACCESS_KEY": s3.options["secret"],
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    settings = ["--size", "320", "--fit", "stretch", "--shard-size", "1MiB", "--workers", "1"]
    command = [*packer_command, "build", str(raw), str(url), *settings, "--scratch", str(scratch)]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 120
        while not uploads(s3, "shard-00001.lmdb"):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    with pytest.raises((StoreIncompleteError, StoreNotFoundError)):
        open_store(url)
    s3.faults.answer = Faults().answer
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "4 shards kept" in done.stdout
    expected = contents(shards)
    assert contents_at(url, expected) == expected


def test_a_build_that_died_behind_the_last_upload_is_done(
    s3, url, raw, scratch, many_shards, monkeypatch
):
    """The manifest is there: all that is left is to clean up."""
    with monkeypatch.context() as patch:
        patch.setattr(Workspace, "remove", lambda self: (_ for _ in ()).throw(OSError(5)))
        with pytest.raises(BuildError):
            build(raw, url, many_shards, worker_count=1, scratch=scratch)
    assert len(open_store(url).manifest.shards) == 4
    s3.faults.requests.clear()
    report = build(raw, url, many_shards, worker_count=1, scratch=scratch)
    assert report.kept_shard_count == 4
    assert uploads(s3, ".lmdb") == 0
    assert list(scratch.iterdir()) == []


def test_a_store_that_is_there_is_replaced_only_when_asked(
    url, raw, shards, scratch, many_shards, draw_tree, tmp_path
):
    """And wholly: shards that the new one has not are gone."""
    build(raw, url, many_shards, worker_count=1, scratch=scratch)
    other = draw_tree(tmp_path / "other", ["x/1.png", "y/2.png"])
    with pytest.raises(TargetExistsError, match=r"a store is there already.*--overwrite"):
        build(other, url, worker_count=1, scratch=scratch)
    build(other, url, worker_count=1, scratch=scratch, overwrite=True)
    assert set(files_of(url).listing()) == {
        *("manifest.json", "rejects.jsonl", "shard-00000.lmdb", "update-cache")
    }
    store = open_store(url)
    shard = store.shard(0)
    assert RecordReader(store.layout).unpack(shard.record(1))["key"] == "y/2.png"


def test_what_cannot_be_is_said_before_the_work(s3, url, raw, scratch, tmp_path, monkeypatch):
    """A bucket that is not there, keys that may not write, a web server, no room here."""
    with pytest.raises(StoreError, match=r"NoSuchBucket"):
        build(raw, Url("s3://no-bucket/out.lmdb", s3.options), scratch=scratch)
    s3.faults.answer = lambda request: 403 if request.method == "PUT" else None
    with pytest.raises(RemoteError, match=r"403.*The key may be wrong or expired"):
        build(raw, url, scratch=scratch)
    s3.faults.answer = Faults().answer
    with web_server(tmp_path / "web") as web, pytest.raises(BuildError, match="takes no uploads"):
        build(raw, f"{web.url}/out.lmdb", scratch=scratch)
    with pytest.raises(ValueError, match="update works on a store in a folder"):
        build(raw, url, scratch=scratch, update=True)
    with pytest.raises(BuildError, match="no such folder"):
        build(raw, url, scratch=scratch / "none")
    monkeypatch.setattr(space.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(9, 9, 9))
    with pytest.raises(NoSpaceError, match=r"scratch/.*the store will take about"):
        build(raw, url, scratch=scratch)
    assert list(scratch.iterdir()) == []
    assert files_of(url).listing() == {}


def test_the_manifest_of_another_program_is_left_alone(s3, url, raw, scratch):
    """Even where it may be overwritten."""
    s3.put(f"{url.name}/manifest.json", b"{}")
    with pytest.raises(TargetExistsError, match="is not one of a store"):
        build(raw, url, scratch=scratch, overwrite=True)


def test_passing_faults_of_the_server_are_not_seen(
    s3, url, raw, shards, scratch, many_shards, contents
):
    """Every third upload fails."""
    count = 0

    def answer(request):
        nonlocal count
        count += request.method == "PUT"
        return 503 if request.method == "PUT" and count % 3 == 0 else None

    s3.faults.answer = answer
    build(raw, url, many_shards, worker_count=1, scratch=scratch)
    s3.faults.answer = Faults().answer
    expected = contents(shards)
    assert contents_at(url, expected) == expected


def test_the_command_tells_how_to_go_on(url, raw, scratch):
    """The workspace of a URL lies in the scratch folder."""
    assert workspace_of(url, scratch).folder.parent == scratch
    result = run_packer("build", raw, str(url), "--update")
    assert result.exit_code == 2
    assert "update works on a store in a folder" in result.stderr
