"""Two stores are compared by what they hold, whatever the order and the shards."""

from __future__ import annotations

import json

import pytest
from PIL import Image

from packer.building.build import build
from packer.recipe import Recipe
from packer.stores.diff import diff
from packer.stores.merge import merge
from packer.stores.subset import subset
from readers.store.errors import StoreNotFoundError

NAMES = ["ant/1.png", "ant/2.png", "bee/1.png", "bee/2.png"]


@pytest.fixture
def made(tmp_path, draw_tree):
    """A raw tree and its store A."""
    raw = draw_tree(tmp_path / "raw", NAMES)
    build(raw, tmp_path / "a", worker_count=1)
    return raw


def test_a_store_is_the_same_as_itself_and_as_its_copy_in_other_shards(shards, raw, tmp_path):
    """Where a sample lies does not count; the setting that cut the shards does."""
    report = diff(shards, shards)
    assert report.is_same
    assert report.same_count == 12
    build(raw, tmp_path / "b", Recipe(size=320, fit="stretch"), worker_count=1)
    report = diff(shards, tmp_path / "b")
    assert (report.added, report.removed, report.changed) == ([], [], {})
    assert report.settings == {"recipe shard_bytes_max": (2**20, 2**30)}
    assert not report.is_same


def test_samples_that_were_added_removed_and_changed_are_named(made, tmp_path, picture):
    """Each by its key, and what changed by its fields."""
    (made / "ant/1.png").unlink()
    Image.fromarray(picture("other")).save(made / "ant/2.png")
    Image.fromarray(picture("small")[:8]).save(made / "bee/1.png")
    Image.fromarray(picture("new")).save(made / "bee/3.png")
    done = []
    build(made, tmp_path / "b", worker_count=1)
    report = diff(tmp_path / "a", tmp_path / "b", on_progress=done.append)
    assert report.added == ["bee/3.png"]
    assert report.removed == ["ant/1.png"]
    assert report.changed == {"ant/2.png": ["image"], "bee/1.png": ["image", "original_size"]}
    assert report.same_count == 1
    assert report.settings == {}
    assert sum(done) == 4
    lines = report.summary().splitlines()
    assert lines[:-1] == [
        "- ant/1.png", "+ bee/3.png", "~ ant/2.png: image", "~ bee/1.png: image, original_size",
    ]  # fmt: skip
    assert "1 removed, 1 added, 2 changed, 1 sample the same; 0 settings differ" in lines[-1]


def test_labels_are_compared_by_name(tmp_path, draw_tree):
    """A class before the others gives all labels another number, and changes no sample."""
    for name, names in (("a", NAMES), ("b", ["aardvark/1.png", *NAMES])):
        build(draw_tree(tmp_path / f"raw-{name}", names), tmp_path / name, worker_count=1)
    report = diff(tmp_path / "a", tmp_path / "b")
    assert (report.added, report.changed, report.same_count) == (["aardvark/1.png"], {}, 4)
    assert list(report.settings) == ["field label", "classes"]
    assert report.settings["classes"] == (["ant", "bee"], ["aardvark", "ant", "bee"])


def test_a_label_of_the_same_number_and_another_name_is_a_change(tmp_path, draw_tree):
    """The bytes are the same, and mean another class."""
    for name, folder in (("a", "ant"), ("b", "bee")):
        raw = draw_tree(tmp_path / f"raw-{name}", ["shared/1.png"])
        (raw / "list.csv").write_text(f"path,label\nshared/1.png,{folder}\n")
        build(raw / "list.csv", tmp_path / name, worker_count=1)
    report = diff(tmp_path / "a", tmp_path / "b")
    assert report.changed == {"shared/1.png": ["label"]}


def test_a_setting_that_changed_every_pixel_is_named_with_its_values(made, tmp_path):
    """The reason stands above its consequences."""
    build(made, tmp_path / "b", Recipe(size=8, fit="stretch"), worker_count=1)
    report = diff(tmp_path / "a", tmp_path / "b")
    assert report.settings["recipe size"] == (None, 8)
    assert set(report.changed) == set(NAMES)
    assert all(names[0] == "image" for names in report.changed.values())
    assert report.summary().splitlines()[0].startswith("field image: {")


def test_what_merge_and_subset_do_is_undone_by_each_other(shards, tmp_path):
    """Two halves of a store are the store."""
    subset(shards, tmp_path / "a", classes=["ant"])
    subset(shards, tmp_path / "b", classes=["bee", "cat"])
    merge([tmp_path / "b", tmp_path / "a"], tmp_path / "out")
    report = diff(shards, tmp_path / "out")
    assert report.same_count == 12
    assert report.settings == {"source": ("imagefolder", "merge")}


def test_the_command_leaves_with_1_when_anything_differs(made, tmp_path, packer, draw_tree):
    """As diff(1) does."""
    same = packer("diff", tmp_path / "a", tmp_path / "a")
    assert same.returncode == 0
    assert "0 changed, 4 samples the same" in same.stdout
    draw_tree(made, ["bee/5.png"])
    build(made, tmp_path / "b", worker_count=1)
    other = packer("diff", tmp_path / "a", tmp_path / "b", "--json")
    assert (other.returncode, other.stderr) == (1, "")
    found = json.loads(other.stdout)
    assert found["added"] == ["bee/5.png"]
    assert found["is_same"] is False
    with pytest.raises(StoreNotFoundError):
        diff(tmp_path / "a", tmp_path / "none")
