"""A store in a bucket or on a web server is staged as one in a folder."""

from __future__ import annotations

import json

import pytest

from readers.dataset import LMDBDataset
from readers.store.manifest import read_manifest
from tests.command import run_packer
from tests.readers.store.servers import Faults, s3_server, web_server


@pytest.fixture(params=["web", "s3"])
def served(request, tmp_path):
    with web_server(tmp_path / "served") if request.param == "web" else s3_server() as found:
        yield found
        found.faults.answer = Faults().answer


def test_shards_at_a_url_are_copied_and_read_in_their_copies(far, served, cache, until):
    """Each byte of a shard is asked for once; then the server is asked for none."""
    url = served.put_store(far.path)
    dataset = LMDBDataset(url, storage_options=served.options, cache_dir=cache.path.parent)
    until(lambda: dataset.staging().is_whole)
    for info in read_manifest(far.path).shards:
        assert cache.copy_path(info.sha256).read_bytes() == (far.path / info.file).read_bytes()
    dataset.close()
    # A server that has not one shard any more.
    asked = []

    def answer(request):
        asked.append(request)
        return 404 if "shard-" in request.path else None

    served.faults.answer = answer
    dataset = LMDBDataset(
        url, storage_options=served.options, cache_dir=cache.path.parent, checks_files=False
    )
    assert [dataset[at]["key"] for at in range(48)] == [s["key"] for s in far.samples]
    assert not [request for request in asked if "shard-" in request.path]
    dataset.close()


def test_the_command_takes_a_url(far, tmp_path, cache):
    """What cannot be read is named; the others are there."""
    with web_server(tmp_path / "served") as served:
        url = served.put_store(far.path)
        served.faults.answer = lambda r: 404 if "shard-00002" in r.path else None
        done = run_packer("stage", url, cache.path.parent, "--json")
        assert done.exit_code == 1, done.stderr
        (report,) = json.loads(done.stdout)["stores"]
        assert report["staged_count"] == 5
        assert "shard-00002.lmdb" in report["problems"][0]
        served.faults.answer = Faults().answer
        assert run_packer("stage", url, cache.path.parent).exit_code == 0
        shown = run_packer("stage", cache.path.parent, "--status").stdout
        assert f"{url}: all staged, 6 of 6 shards" in shown
