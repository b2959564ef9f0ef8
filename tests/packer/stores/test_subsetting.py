"""Chosen samples of a store make a store of their own, byte for byte."""

from __future__ import annotations

import json

import numpy as np
import pytest

from packer.building.build import build
from packer.errors import BuildError, TargetExistsError
from packer.recipe import Recipe
from packer.stores.subset import subset
from packer.stores.verify import verify
from readers.store.errors import SchemaMismatchError, UnknownKeyError
from readers.store.manifest import read_manifest
from readers.store.reader import open_store
from readers.store.record import RecordReader


def records(path):
    """The records of a store by key, in order."""
    store = open_store(path)
    reader = RecordReader(store.layout, ["key"])
    return {
        reader.unpack(shard.record(at))["key"]: bytes(shard.record(at))
        for shard in store.shards()
        for at in range(len(shard.offsets))
    }


@pytest.fixture(scope="module")
def split_store(tmp_path_factory, draw_tree):
    """Eight samples of two splits and three classes. Not to be changed."""
    folder = tmp_path_factory.mktemp("splits")
    names = [f"{s}/{c}/{n}.png" for s in ("train", "val") for c in ("ant", "bee") for n in (1, 2)]
    build(draw_tree(folder / "raw", names), folder / "out", worker_count=1)
    return folder / "out"


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"splits": ["val"]}, [4, 5, 6, 7]),
        ({"splits": ["val", "train"]}, range(8)),
        ({"classes": ["bee"]}, [2, 3, 6, 7]),
        ({"splits": ["train"], "classes": ["bee"]}, [2, 3]),
        ({"every": 3}, [0, 3, 6]),
        ({"limit": 2}, [0, 1]),
        ({"every": 3, "limit": 2}, [0, 3]),
        ({"classes": ["bee"], "every": 2, "limit": 1}, [2]),
        ({"classes": ["bee"], "every": 2}, [2, 6]),
        ({"keys": ["val/ant/1.png", "train/bee/2.png", "val/ant/1.png"]}, [3, 4]),
        ({"keys": ["val/ant/1.png", "train/bee/2.png"], "splits": ["val"]}, [4]),
    ],
    ids=str,
)
def test_samples_that_fit_all_that_is_asked_are_copied(choice, expected, split_store, tmp_path):
    """In their order, whatever the order of the keys, and with an account that adds up."""
    whole = records(split_store)
    report = subset(split_store, tmp_path / "out", **choice)
    keys = [list(whole)[at] for at in expected]
    assert list(records(tmp_path / "out").items()) == [(key, whole[key]) for key in keys]
    assert report.sample_count == len(keys)
    assert verify(tmp_path / "out", level="full").problems == []
    manifest, first = read_manifest(tmp_path / "out"), read_manifest(split_store)
    assert manifest.classes == first.classes == ("ant", "bee")
    assert manifest.schema == first.schema
    assert manifest.recipe == first.recipe
    assert manifest.splits == {
        name: sum(key.startswith(name) for key in keys) for name in ("train", "val")
    }
    assert manifest.source.format == "subset"
    assert manifest.source.notes[0].startswith(f"{len(keys)} of 8 samples of out: ")
    left_out = 8 - len(keys)
    assert manifest.source.ignored == ({"not chosen": left_out} if left_out else {})


def test_facts_about_all_samples_are_not_passed_on_as_of_some(split_store, tmp_path):
    """The mean of the pixels was another store's; classes are counted anew, and one size is one."""
    subset(split_store, tmp_path / "out", limit=3)
    manifest = read_manifest(tmp_path / "out")
    assert manifest.statistics == {"class_counts": [2, 1], "image_size": [16, 24]}
    assert (
        "channel_mean, channel_std, sizes were of all its samples, and are left out"
        in manifest.source.notes
    )


def test_a_large_subset_is_cut_into_shards_and_found_in_all(shards, tmp_path):
    """Shards are no larger than the recipe says: three samples each, wherever they came from."""
    subset(shards, tmp_path / "out", keys=[*records(shards)][1:])
    manifest = read_manifest(tmp_path / "out")
    assert [shard.sample_count for shard in manifest.shards] == [3, 3, 3, 2]
    store = open_store(tmp_path / "out")
    assert store.find(b"cat/3.png") == 10
    assert store.find(b"ant/0.png") is None


def test_classes_of_objects_are_those_of_any_of_them(tmp_path):
    """An image is taken with all its objects, those of other classes too."""
    from tests.packer.stores.test_merging import object_store

    store = object_store(tmp_path / "a", "a", ("x", "y", "z"), ("train",), count=12)
    reader = RecordReader(open_store(store).layout, ["key", "labels"])
    shard = open_store(store).shard(0)
    values = [reader.unpack(shard.record(at)) for at in range(12)]
    expected = [v["key"] for v in values if np.isin(v["labels"], [0, 2]).any()]
    assert 0 < len(expected) < 12
    subset(store, tmp_path / "out", classes=["z", "x"])
    assert list(records(tmp_path / "out")) == expected
    labels = np.concatenate([v["labels"] for v in values if v["key"] in expected])
    manifest = read_manifest(tmp_path / "out")
    assert manifest.statistics["class_counts"] == np.bincount(labels, minlength=3).tolist()
    assert manifest.source.annotations["stored"] == len(labels)


def test_what_the_store_does_not_have_is_named(split_store, store, tmp_path):
    """Splits, classes and keys, with what there is."""
    out = tmp_path / "out"
    with pytest.raises(SchemaMismatchError, match=r"no split 'vall'; it has 'train', 'val'. Did"):
        subset(split_store, out, splits=["vall"])
    with pytest.raises(SchemaMismatchError, match=r"no split 'val'; it has none"):
        subset(store, out, splits=["val"])
    with pytest.raises(SchemaMismatchError, match=r"no class 'ape'; it has 'ant', 'bee'"):
        subset(split_store, out, classes=["ant", "ape"])
    with pytest.raises(UnknownKeyError, match=r"no sample has the key 'x.png' \(1 of 2 keys\)"):
        subset(split_store, out, keys=["x.png", "val/ant/1.png"])
    with pytest.raises(BuildError, match="none of its 8 samples fits all that is asked for"):
        subset(split_store, out, classes=["ant"], keys=["val/bee/1.png"])
    with pytest.raises(ValueError, match="every must be at least 1; got 0"):
        subset(split_store, out, every=0)
    with pytest.raises(BuildError, match="which it is to be made of"):
        subset(split_store, split_store, overwrite=True)
    assert list(tmp_path.iterdir()) == []


def test_the_command_takes_keys_from_a_file(split_store, tmp_path, packer):
    """One a line; what stands in no store is an error."""
    keys = tmp_path / "keys.txt"
    keys.write_text("val/ant/1.png\n\nval/bee/2.png\n")
    done = packer("subset", split_store, tmp_path / "out", "--keys", keys, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["sample_count"] == 2
    assert list(records(tmp_path / "out")) == ["val/ant/1.png", "val/bee/2.png"]
    again = packer(
        "subset", split_store, tmp_path / "out", "--split", "val", "--classes", "ant,bee"
    )
    assert again.returncode == 1
    assert "a store is there already" in again.stderr
    done = packer(
        *("subset", split_store, tmp_path / "out", "--split", "val", "--every", "2"),
        *("--limit", "1", "--overwrite"),
    )
    assert done.returncode == 0
    assert "1 of 8 samples of out: splits val; one in 2; the first 1" in done.stdout
    assert list(records(tmp_path / "out")) == ["val/ant/1.png"]


def test_a_target_that_is_taken_is_left_alone(split_store, tmp_path):
    """But for --overwrite."""
    subset(split_store, tmp_path / "out", limit=1)
    with pytest.raises(TargetExistsError):
        subset(split_store, tmp_path / "out", limit=2)
    assert len(records(tmp_path / "out")) == 1


def test_files_of_images_are_copied_as_they_are(raw, tmp_path):
    """No picture is decoded on the way."""
    build(raw, tmp_path / "all", Recipe(image="original"), worker_count=1)
    subset(tmp_path / "all", tmp_path / "out", classes=["cat"])
    whole = records(tmp_path / "all")
    assert records(tmp_path / "out") == {k: v for k, v in whole.items() if k.startswith("cat")}
