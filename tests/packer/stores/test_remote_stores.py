"""Commands that look into a store do so at a URL as well."""

from __future__ import annotations

import json

import pytest

from packer.stores.verify import verify
from packer.view.make import view_store
from readers.store.errors import RemoteError
from readers.store.place import Url
from readers.store.reader import open_store
from readers.store.remote import files_of
from tests.command import run_packer
from tests.readers.store.servers import Faults, s3_server


@pytest.fixture(scope="module")
def s3():
    """It stays connected: to start botocore takes half a second."""
    with s3_server() as served:
        kept = files_of(Url("s3://bucket/out.lmdb", served.options))
        yield served
        del kept


@pytest.fixture
def url(s3, shards):
    """A store of four shards there."""
    yield Url(s3.put_store(shards, "out.lmdb"), s3.options)
    s3.faults.answer = Faults().answer


def flip(s3, shards, name, position):
    """Change one byte of a file there."""
    data = bytearray((shards / name).read_bytes())
    data[position] ^= 1
    s3.put(f"out.lmdb/{name}", bytes(data))


def test_a_good_store_is_read_once(s3, url, shards):
    """Each byte costs money: the digests of the files say that all is as it was written."""
    done = []
    s3.faults.requests.clear()
    report = verify(url, on_progress=done.append)
    assert report.summary() == "s3://bucket/out.lmdb: 12 samples in 4 shards: all good"
    assert sum(done) == 12
    for path in shards.glob("shard-*"):
        spans = [
            request.range.removeprefix("bytes=").split("-") for request in s3.faults.gets(path.name)
        ]
        byte_count = sum(int(last) - int(first) + 1 for first, last in spans)
        assert byte_count < 1.6 * path.stat().st_size  # The index is read when it is opened.
    report = verify(url, level="full")
    assert report.summary().endswith("12 samples in 4 shards: all good, every field decoded")
    assert verify(url, level="quick").is_good


def test_a_changed_record_is_found_by_sample(s3, url, shards):
    """The file with both digests, and then the sample in it."""
    offset = int(open_store(shards).shard(2).offsets[1])
    flip(s3, shards, "shard-00002.lmdb", offset + 1000)
    done = []
    report = verify(url, on_progress=done.append)
    assert sum(done) == 12
    assert len(report.problems) == 2
    assert report.problems[0].startswith(f"{url}/shard-00002.lmdb: SHA-256 ")
    (damaged,) = report.damaged
    assert (damaged.index, damaged.key, damaged.position) == (7, "bee/3.png", 1)
    assert damaged.shard == "s3://bucket/out.lmdb/shard-00002.lmdb"


def test_a_manifest_that_was_changed_is_found(s3, url, shards):
    """By its own digest."""
    data = (shards / "manifest.json").read_bytes()
    s3.put("out.lmdb/manifest.json", data.replace(b'"ant"', b'"elk"'))
    assert any("manifest.json: SHA-256" in problem for problem in verify(url).problems)


def test_a_shard_that_cannot_be_read_is_a_finding(s3, url):
    """The others are looked at all the same."""
    s3.faults.answer = lambda request: 403 if request.path.endswith("shard-00001.lmdb") else None
    report = verify(url)
    assert len(report.problems) == 1
    assert "shard-00001.lmdb: 403" in report.problems[0]


def test_the_commands_take_keys_from_where_others_do(s3, url, monkeypatch, class_names, tmp_path):
    """There is no option for them: they do not belong on a command line."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.options["endpoint_url"])
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.options["key"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.options["secret"])
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    result = run_packer("info", str(url), "--json")
    assert result.exit_code == 0, result.stderr
    facts = json.loads(result.stdout)
    assert (facts["path"], facts["sample_count"]) == (str(url), 12)
    result = run_packer("get", str(url), "7", "-o", tmp_path / "7.png")
    assert json.loads(result.stdout)["key"] == class_names[7]
    assert (tmp_path / "7.png").stat().st_size
    result = run_packer("verify", str(url))
    assert (result.exit_code, result.stdout) == (0, f"{url}: 12 samples in 4 shards: all good\n")
    result = run_packer("info", "s3://no-bucket/out.lmdb")
    assert result.exit_code == 1
    assert "404 NoSuchBucket" in result.stderr
    result = run_packer("info", "s3:/bucket/out.lmdb")
    assert result.exit_code == 2
    assert "drops a slash of a URL" in result.stderr


def test_what_needs_files_says_so(url, shards, tmp_path):
    """A store that is joined or cut is copied here first; nothing called s3: is made here."""
    for arguments in (
        ("merge", str(url), shards, tmp_path / "out.lmdb"),
        ("subset", shards, str(url)),
        ("diff", shards, str(url)),
        ("doctor", str(url)),
    ):
        result = run_packer(*arguments)
        assert result.exit_code == 2
        assert f"{url}: this command needs stores in folders" in result.stderr


def test_a_page_shows_a_store_that_lies_there(url, tmp_path):
    """Samples, figures and rejects come by ranges, like a folder's."""
    assert view_store(url, tmp_path / "p.html").shown_count == 12


def test_keys_are_needed(s3, monkeypatch, tmp_path):
    """Where there are none at all, that is said."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    options = {"endpoint_url": s3.options["endpoint_url"]}
    with pytest.raises(RemoteError, match=r"NoCredentialsError.*The key may be wrong or expired"):
        open_store(Url("s3://bucket/other.lmdb", options))
