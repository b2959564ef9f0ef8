"""A store in a bucket or on a web server is read as one in a folder."""

from __future__ import annotations

import pickle
import sys

import pytest
import torch.utils.data

from readers import make_loader
from readers.dataset import LMDBDataset
from readers.store.errors import (
    ManifestError,
    RemoteError,
    ShardError,
    StoreError,
    StoreIncompleteError,
    StoreNotFoundError,
)
from readers.store.layout import MANIFEST_NAME
from readers.store.place import Url, place_of
from readers.store.remote import files_of
from tests.readers.store.servers import Faults, s3_server, web_server


@pytest.fixture(scope="module")
def s3():
    """It stays connected: to start botocore takes half a second."""
    with s3_server() as served:
        kept = files_of(Url("s3://bucket/store.lmdb", served.options))
        yield served
        del kept


@pytest.fixture
def web(tmp_path):
    with web_server(tmp_path / "served") as served:
        yield served


@pytest.fixture(params=["web", "s3"])
def served(request):
    found = request.getfixturevalue(request.param)
    yield found
    found.faults.answer = Faults().answer


@pytest.fixture
def kind(request):
    return request.getfixturevalue(request.param)


def dataset_at(served, stored, **settings):
    """A store put there, and opened."""
    url = served.put_store(stored.path)
    served.faults.requests.clear()
    return LMDBDataset(url, storage_options=served.options, **settings)


def test_every_field_of_every_kind_is_the_same(served, every_kind, same):
    """One by one, many at once, by keys and by their numbers."""
    remote, local = dataset_at(served, every_kind), LMDBDataset(every_kind.path)
    expected = [local[at] for at in range(11)]
    assert same(
        list(remote.__getitems__([3, 0, 10, 7, 3])), [expected[a] for a in (3, 0, 10, 7, 3)]
    )
    assert same([remote[at] for at in range(11)], expected)
    for at, sample in enumerate(expected):
        assert remote.key_of(at) == sample["key"]
        assert remote.index_of(sample["key"]) == at
    for name, column in local.columns.items():
        assert (remote.columns[name] == column).all()


@pytest.mark.parametrize("engine", ["thread", "process"])
def test_loaders_give_the_same_batches(served, shapes, engine):
    """Also those whose workers are forked from a process that has read there."""
    remote, local = dataset_at(served, shapes), LMDBDataset(shapes.path)
    assert remote[0]["key"] == local[0]["key"]
    batches = [
        [
            [*batch["key"]]
            for batch in make_loader(dataset, 4, train=True, engine=engine, workers=2, seed=1)
        ]
        for dataset in (remote, local)
    ]
    assert batches[0] == batches[1]


@pytest.mark.parametrize(
    ("kind", "method"), [("web", "fork"), ("s3", "fork"), ("s3", "spawn")], indirect=["kind"]
)
def test_workers_of_a_stock_loader_connect_by_themselves(kind, shapes, method):
    """Whether or not their parent has: a dataset carries what it takes."""
    remote = dataset_at(kind, shapes, returns=("label",))
    expected = [remote[at][0] for at in range(len(remote))]
    loader = torch.utils.data.DataLoader(
        remote, batch_size=4, num_workers=1, multiprocessing_context=method, timeout=120
    )
    assert [int(label) for (labels,) in loader for label in labels] == expected


def test_a_store_opens_by_few_requests(served, every_kind):
    """The manifest; what is there; and of a shard that is read, where it is, its index, records."""
    remote = dataset_at(served, every_kind)
    opening = len(served.faults.requests)
    assert opening <= (2 if served.url.startswith("s3") else 4)
    remote.__getitems__([0, 3])
    names = {request.path.rsplit("/", 1)[-1] for request in served.faults.requests[opening:]}
    assert names == {"shard-00000.lmdb"}
    assert len(served.faults.requests) - opening <= 4


def test_it_travels_small_and_shows_no_secret(s3, shapes):
    """Keys go where a worker needs them, and into no text that people paste."""
    remote = dataset_at(s3, shapes)
    data = pickle.dumps(remote)
    assert len(data) < 1500
    assert pickle.loads(data)[0]["key"] == remote[0]["key"]
    for text in (repr(remote), str(remote.view.place), repr(remote.view)):
        assert "a-secret" not in text
    with pytest.raises(IndexError, match=r"sample 99 of s3://bucket/store.lmdb, expected"):
        remote[99]


def test_what_signs_a_url_is_sent_and_not_shown(web, shapes):
    """Each file is asked for with it."""
    url = web.put_store(shapes.path)
    remote = LMDBDataset(f"{url}?signature=abc")
    assert remote[0]["key"] == shapes.samples[0]["key"]
    assert "abc" not in repr(remote)
    place = Url("https://user:pass@host/out.lmdb/?sig=1")
    assert str(place / "x") == "https://host/out.lmdb/x"
    assert (place / "x").text == "https://user:pass@host/out.lmdb/x?sig=1"


def test_a_store_that_was_replaced_is_told(served, shapes, every_kind):
    """Neither its old index nor its new bytes are believed."""
    remote = dataset_at(served, shapes)
    assert remote[0]["key"] == shapes.samples[0]["key"]
    there = pickle.dumps(remote)
    served.put_store(every_kind.path)
    remote.close()
    with pytest.raises(StoreError, match="replaced since this dataset was made"):
        remote[0]
    with pytest.raises(StoreError, match="replaced since this dataset was made"):
        pickle.loads(there)[0]


# --- What is not there, or not given --------------------------------------------------------------


def test_an_unfinished_upload_is_refused(s3, shapes):
    """The manifest comes last; without one, there is no store."""
    for path in shapes.path.glob("shard-*"):
        s3.put(f"unfinished.lmdb/{path.name}", path.read_bytes())
    with pytest.raises(StoreIncompleteError, match=r"upload did not finish.*packer build RAW s3"):
        LMDBDataset("s3://bucket/unfinished.lmdb", storage_options=s3.options)


@pytest.mark.parametrize("change", ["missing", "short"])
def test_shards_that_are_not_as_the_manifest_says_are_named(served, every_kind, change):
    """When the store is opened; or where they are read, if that was not asked for."""
    for path in every_kind.path.iterdir():
        if path.name != "shard-00001.lmdb":
            served.put(f"{change}.lmdb/{path.name}", path.read_bytes())
        elif change == "short":
            served.put(f"{change}.lmdb/{path.name}", path.read_bytes()[:-1])
    url, what = f"{served.url}/{change}.lmdb", "missing" if change == "missing" else "expected"
    with pytest.raises(ShardError, match=rf"shard-00001.lmdb: .*{what}"):
        LMDBDataset(url, storage_options=served.options)
    remote = LMDBDataset(url, storage_options=served.options, checks_files=False)
    assert remote[0]["key"] == every_kind.samples[0]["key"]
    with pytest.raises(ShardError, match=r"shard-00001.lmdb"):
        remote[4]


def test_a_bucket_or_store_that_is_not_there_is_told(s3, web):
    """With the server's word for it."""
    for url, text in (
        ("s3://no-bucket/out.lmdb", "404 NoSuchBucket"),
        ("s3://bucket/none.lmdb", "404 NoSuchKey"),
    ):
        with pytest.raises(StoreNotFoundError, match=rf"{url}/{MANIFEST_NAME}: {text}"):
            LMDBDataset(url, storage_options=s3.options)
    with pytest.raises(StoreNotFoundError, match=r"none.lmdb/manifest.json: there is no such file"):
        LMDBDataset(f"{web.url}/none.lmdb")


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (403, r"403.*The key may be wrong or expired.*storage_options.*AWS_PROFILE"),
        (503, r"503.*See whether the server is well"),
    ],
)
def test_a_server_that_refuses_or_fails_is_told(served, shapes, fault, text):
    """What it said, and what to do."""
    url = served.put_store(shapes.path)
    served.faults.answer = lambda request: fault
    with pytest.raises(RemoteError, match=rf"store.lmdb/manifest.json: {text}"):
        LMDBDataset(url, storage_options=served.options)


def test_a_list_that_may_not_be_seen_is_done_without(s3, shapes):
    """Many keys allow to read, and not to list: then each shard is asked for."""
    url = s3.put_store(shapes.path)
    s3.faults.answer = lambda request: (
        403 if request.method == "GET" and not request.path.endswith((".lmdb", ".json")) else None
    )
    assert LMDBDataset(url, storage_options=s3.options)[0]["key"] == shapes.samples[0]["key"]


def test_no_server_at_all_is_told():
    """After 2 s: a wrong name is as likely."""
    pytest.importorskip("aiohttp", reason="needs aiohttp, of the extra remote")
    with pytest.raises(RemoteError, match=r"127.0.0.1:9/x/manifest.json: .*See whether the server"):
        LMDBDataset("http://127.0.0.1:9/x")


def test_a_manifest_that_is_none_is_refused(served):
    """As one in a folder."""
    served.put(f"odd.lmdb/{MANIFEST_NAME}", b"{}")
    with pytest.raises(ManifestError, match=r"odd.lmdb/manifest.json: not a manifest"):
        LMDBDataset(f"{served.url}/odd.lmdb", storage_options=served.options)


def test_what_is_missing_on_this_machine_is_named(monkeypatch):
    """The extra, and what other kinds of URLs need."""
    pytest.importorskip("fsspec")
    with pytest.raises(RemoteError, match=r"Protocol not known: foo.*Expected a URL"):
        LMDBDataset("foo://bucket/out.lmdb")
    for name in ("fsspec", "fsspec.core"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(RemoteError, match=r'pip install "lmdb-packer\[remote\]"'):
        LMDBDataset("s3://bucket/out.lmdb")


def test_arguments_that_cannot_be_are_refused(tmp_path, shapes):
    """Before anything is asked of anybody."""
    with pytest.raises(ValueError, match="storage_options are for URLs"):
        LMDBDataset(shapes.path, storage_options={})
    with pytest.raises(ValueError, match="a Path drops a slash of a URL"):
        place_of(tmp_path.__class__("s3://bucket/out.lmdb"))
    with pytest.raises(ValueError, match="io must be 'auto' or 'read' for a store at a URL"):
        LMDBDataset("s3://bucket/out.lmdb", io="map")
    assert LMDBDataset(f"file://{shapes.path}")[0]["key"] == shapes.samples[0]["key"]
