"""Settings of a file of `packer bench` reach the loader, and are held against store and machine."""

from __future__ import annotations

import json
import logging

import msgspec
import pytest
import torch
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from readers.dataset import LMDBDataset
from readers.engines.threads import ThreadEngine
from readers.loader.make import make_loader
from readers.loader.tuned import MachineFacts, Tuned, read_tuned
from readers.ops import RandomFlip


@pytest.fixture
def dataset(shapes):
    with LMDBDataset(shapes.path, returns=("image", "label")) as dataset:
        yield dataset


@pytest.fixture
def tuned(dataset):
    """Settings that no loader takes by itself."""
    return Tuned(
        store=dataset.view.identity.hex(),
        store_path=dataset.view.path,
        machine=MachineFacts.read(),
        batch_size=4,
        has_work=False,
        engine="thread",
        workers=1,
        prefetch_factor=5,
        images_per_s=1000.0,
    )


def written(tuned, tmp_path, **changed):
    path = tmp_path / "tuned.json"
    msgspec.structs.replace(tuned, **changed).write(path)
    return path


def test_settings_of_a_file_reach_the_loader_and_change_no_batch(
    dataset, tuned, tmp_path, caplog, same
):
    """Engine, workers and batches ahead are those of the file; batches are what they were."""
    path = written(tuned, tmp_path)
    assert [left.name for left in tmp_path.iterdir()] == ["tuned.json"]
    with caplog.at_level(logging.WARNING, "readers.loader"):
        loader = make_loader(dataset, 4, train=True, tuned=path)
    assert not caplog.records
    assert (loader.config.workers, loader.config.prefetch_factor) == (1, 5)
    assert isinstance(loader.engine, ThreadEngine)
    assert same(list(loader), list(make_loader(dataset, 4, train=True, workers=0)))
    loader.close()


def test_what_is_asked_for_by_name_stands(dataset, tuned, tmp_path):
    """A file takes the place of defaults alone."""
    path = written(tuned, tmp_path)
    settings = {"engine": "process", "prefetch_factor": 1, "num_workers": 1}
    loader = make_loader(dataset, 4, train=True, tuned=str(path), **settings)
    assert (loader.config.workers, loader.config.prefetch_factor) == (1, 1)
    assert loader.stats()["engine"] == "process"
    loader = make_loader(dataset, 4, train=True, tuned=str(path), workers=0)
    assert loader.config.workers == 0


def test_parts_of_the_store_take_them_and_others_are_refused(dataset, tuned, tmp_path, many_shards):
    """A Subset is of the store; another store, one beside it, and other datasets are not."""
    path = written(tuned, tmp_path)
    subset = Subset(dataset, range(8))
    assert make_loader(subset, 4, train=True, tuned=path).config.prefetch_factor == 5
    with LMDBDataset(many_shards, returns=("image", "label")) as other:
        for wrong in (other, ConcatDataset([dataset, other])):
            with pytest.raises(ValueError, match="another store") as raised:
                make_loader(wrong, 4, train=True, tuned=path)
            assert f"packer bench {many_shards}" in str(raised.value)
            assert dataset.view.path in str(raised.value)
    with pytest.raises(ValueError, match="a dataset of no store"):
        make_loader(TensorDataset(torch.zeros(8)), 4, train=True, tuned=path)


def test_another_machine_and_other_work_are_warned_of(dataset, tuned, tmp_path, caplog):
    """They may make other settings better: what differs is named, and the loader is made."""
    there = msgspec.structs.replace(tuned.machine, core_count=1234)
    path = written(tuned, tmp_path, machine=there)
    with caplog.at_level(logging.WARNING, "readers.loader"):
        loader = make_loader(dataset, 4, train=True, tuned=path, ops=[RandomFlip()])
    assert loader.config.prefetch_factor == 5
    (record,) = caplog.records
    assert "core_count 1234 then" in record.getMessage()
    assert "without operations on samples, used with" in record.getMessage()


def test_what_is_not_such_a_file_is_refused(dataset, tuned, tmp_path):
    """Its name and what writes one are told; an argument that is not a path is named."""
    path = written(tuned, tmp_path)
    assert read_tuned(path) == tuned
    facts = json.loads(path.read_text())
    wrongs = ("{}", "no JSON", json.dumps({**facts, "workers": -1}))
    for wrong in (*wrongs, json.dumps({**facts, "format": "lmdb-packer tuned 2"})):
        path.write_text(wrong)
        with pytest.raises(ValueError, match=r"tuned\.json is not a file of tuned settings") as e:
            make_loader(dataset, 4, train=True, tuned=path)
        assert "packer bench STORE -o FILE" in str(e.value)
    with pytest.raises(FileNotFoundError):
        make_loader(dataset, 4, train=True, tuned=tmp_path / "none.json")
    with pytest.raises(TypeError, match="tuned is the path of a file, or None"):
        make_loader(dataset, 4, train=True, tuned=tuned)
