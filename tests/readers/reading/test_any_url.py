"""Any file system of fsspec will do, also one that this project knows nothing of."""

from __future__ import annotations

import pickle

import cv2
import numpy as np
import pytest
from torch.utils.data import DataLoader

from packer.building.build import build
from packer.stores.stage import stage
from packer.stores.verify import verify
from readers import make_loader
from readers.dataset import LMDBDataset
from readers.store.errors import ShardError, StoreNotFoundError
from readers.store.manifest import read_manifest
from readers.store.reader import open_store

fsspec = pytest.importorskip("fsspec", reason="needs fsspec, of the extra remote")

KINDS = ("memory://", "simplecache::memory://")
"""Memory of this process; and that through a cache on the disk, which is named in front of it."""


@pytest.fixture
def root(tmp_path):
    """A folder there."""
    system, path = fsspec.filesystem("memory"), str(tmp_path)
    system.makedirs(path, exist_ok=True)
    yield path
    system.rm(path, recursive=True)


@pytest.fixture(params=KINDS)
def url(request, root, shapes):
    """A store there."""
    system = fsspec.filesystem("memory")
    for path in sorted(shapes.path.iterdir()):
        system.pipe_file(f"{root}/store.lmdb/{path.name}", path.read_bytes())
    return f"{request.param}{root}/store.lmdb"


def test_a_store_is_read_there(url, shapes, same):
    """One by one and together, in loaders whose workers are forked, and out of a pickle."""
    remote, local = LMDBDataset(url), LMDBDataset(shapes.path)
    count = len(local)
    assert same([remote[at] for at in range(count)], [local[at] for at in range(count)])
    assert same(list(remote.__getitems__([5, 0, 5])), list(local.__getitems__([5, 0, 5])))
    assert pickle.loads(pickle.dumps(remote))[3]["key"] == local[3]["key"]
    keys = [
        [list(batch["key"]) for batch in make_loader(one, 4, train=True, workers=1, seed=1)]
        for one in (remote, local)
    ]
    assert keys[0] == keys[1]
    labels = LMDBDataset(url, returns=("label",))
    loader = DataLoader(labels, 4, num_workers=1, multiprocessing_context="fork", timeout=120)
    assert [int(label) for (batch,) in loader for label in batch] == [
        int(local[at]["label"]) for at in range(count)
    ]


def test_a_store_is_staged_from_there(url, shapes, tmp_path):
    """Its copies are its files."""
    assert stage([url], tmp_path / "cache").is_good
    infos = read_manifest(shapes.path).shards
    copies = {path.name: path for path in (tmp_path / "cache").rglob("*") if path.is_file()}
    for info in infos:
        found = [path for name, path in copies.items() if info.sha256 in name]
        assert found[0].read_bytes() == (shapes.path / info.file).read_bytes()


def test_what_is_not_there_is_named(url, root):
    """A store, and a shard of one."""
    with pytest.raises(StoreNotFoundError, match=r"none.lmdb/manifest.json"):
        LMDBDataset(url.replace("store.lmdb", "none.lmdb"))
    fsspec.filesystem("memory").rm_file(f"{root}/store.lmdb/shard-00000.lmdb")
    with pytest.raises(ShardError, match=r"shard-00000.lmdb: missing"):
        LMDBDataset(url)


def test_a_store_is_built_there(root, tmp_path):
    """Uploaded shard by shard, the manifest last; the bytes are those of a folder's store."""
    raw = tmp_path / "raw"
    for name in ("cat", "dog"):
        (raw / name).mkdir(parents=True)
        cv2.imwrite(str(raw / name / "0.png"), np.full((4, 6, 3), len(name), np.uint8))
    url = f"memory://{root}/built.lmdb"
    build(raw, url, worker_count=1, scratch=tmp_path)
    build(raw, tmp_path / "local.lmdb", worker_count=1)
    assert open_store(url).manifest == read_manifest(tmp_path / "local.lmdb")
    assert "all good" in verify(url).summary()
    assert LMDBDataset(url)[0]["key"] == LMDBDataset(tmp_path / "local.lmdb")[0]["key"]
