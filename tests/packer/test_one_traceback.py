"""The mistakes of a first hour end in one traceback, whose last line says what to do.

An error that was raised while another was handled prints both, and readers look at the wrong one.
"""

from __future__ import annotations

import traceback

import pytest

import packer
from readers import LMDBDataset, make_loader


@pytest.fixture
def places(tmp_path, raw, store):
    """Raw data, a store, and what is neither."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.txt").write_text("x")
    shard = next(store.glob("shard-*.lmdb"))
    return {"raw": raw, "store": store, "shard": shard, "tmp": tmp_path}


MISTAKES = {
    "raw data as a store": lambda at: LMDBDataset(at["raw"]),
    "nothing as a store": lambda at: LMDBDataset(at["tmp"] / "nothing"),
    "an empty folder as a store": lambda at: LMDBDataset(at["tmp"] / "empty"),
    "a file as a store": lambda at: LMDBDataset(at["tmp"] / "file.txt"),
    "a shard as a store": lambda at: LMDBDataset(at["shard"]),
    "a split that is not there": lambda at: LMDBDataset(at["store"], split="trian"),
    "a field that is not there": lambda at: LMDBDataset(at["store"], fields=["imag"]),
    "a key that is not there": lambda at: LMDBDataset(at["store"])["zz"],
    "a sample that is not there": lambda at: LMDBDataset(at["store"])[10**6],
    "a path as a dataset": lambda at: make_loader(str(at["store"]), 2, train=True),
    "a loader without train": lambda at: make_loader(LMDBDataset(at["store"]), 2, shuffle=True),
    "a batch that is too large": lambda at: make_loader(
        LMDBDataset(at["store"]), 10**6, train=True
    ),
    "nothing as raw data": lambda at: packer.build(at["tmp"] / "nothing", at["tmp"] / "x.lmdb"),
    "a store as raw data": lambda at: packer.build(at["store"], at["tmp"] / "x.lmdb"),
    "an empty folder as raw data": lambda at: packer.build(
        at["tmp"] / "empty", at["tmp"] / "x.lmdb"
    ),
    "a target that is there": lambda at: packer.build(at["raw"], at["store"]),
    "a size that is none": lambda at: packer.build(at["raw"], at["tmp"] / "x.lmdb", size="a"),
    "a word that is none": lambda at: packer.build(at["raw"], at["tmp"] / "x.lmdb", sise=8),
    "verify of raw data": lambda at: packer.verify(at["raw"]),
    "export of raw data": lambda at: packer.export(at["raw"], at["tmp"] / "x", layout="folder"),
    "export to a target that is there": lambda at: packer.export(
        at["store"], at["raw"], layout="folder"
    ),
    "staging of raw data": lambda at: packer.stage(at["raw"], at["tmp"] / "cache"),
    "merging raw data": lambda at: packer.merge([at["raw"], at["store"]], at["tmp"] / "x.lmdb"),
    "a subset of raw data": lambda at: packer.subset(at["raw"], at["tmp"] / "x.lmdb"),
    "rejects of raw data": lambda at: packer.rejects(at["raw"]),
    "status of nothing": lambda at: packer.status(at["tmp"] / "x.lmdb"),
    "a view of raw data as of a store": lambda at: packer.view_store(
        at["raw"], at["tmp"] / "x.html"
    ),
    "a difference to raw data": lambda at: packer.diff(at["store"], at["raw"]),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_ends_in_one_traceback(places, mistake):
    """No other stack before it, and a sentence that says more than a name."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - of which class it is, others hold.
        MISTAKES[mistake](places)
    printed = "".join(traceback.format_exception(caught.value))
    assert printed.count("Traceback (most recent call last)") == 1, printed
    assert len(str(caught.value).split()) >= 4
    assert not isinstance(caught.value, AttributeError)
