"""`packer export` says what will be lost before it writes, and counts it afterwards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import packer
from packer.errors import BuildError
from packer.stores.export.formats import EXPORT_FORMATS
from readers.store.errors import SchemaMismatchError, UnknownKeyError
from tests.cases.real_data import shards_made_here
from tests.command import run_packer
from tests.packer.stores.export.making import make_detection, make_store


@pytest.fixture(scope="module")
def detection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of boxes, outlines, crowds and attributes in two splits. Not to be changed."""
    folder = tmp_path_factory.mktemp("detection")
    with shards_made_here():
        return make_store(make_detection(folder / "raw"), folder / "out.lmdb")


def test_what_is_lost_is_said_first_and_counted_last(detection, tmp_path):
    """On stderr before anything is written, on stdout how often it was so."""
    result = run_packer("export", detection, tmp_path / "out", "--as", "yolo")
    assert result.exit_code == 0, result.stderr
    assert result.stderr.startswith(
        "not carried by yolo: area, iscrowd, attributes, image_id\na line is what task segment has"
    )
    lines = result.stdout.splitlines()
    assert "not carried: area of 8 objects" in lines
    assert "not carried: iscrowd of 2 objects" in lines
    assert "not carried: attributes of 2 objects" in lines
    assert "not carried: image_id of 6 samples" in lines
    assert lines[-1].startswith(f"{tmp_path / 'out'}: 6 samples as yolo, 12 files, ")


def test_a_dry_run_says_the_same_and_writes_nothing(detection, tmp_path):
    """Also as JSON."""
    arguments = ["export", detection, tmp_path / "out", "--as", "voc", "--dry-run"]
    text = run_packer(*arguments).stdout
    assert text.startswith("not carried by voc: area, iscrowd, image_id\n")
    plan = json.loads(run_packer(*arguments, "--json").stdout)
    assert plan["losses"] == ["area", "iscrowd", "image_id"]
    assert plan["sample_count"] == 6
    assert list(tmp_path.iterdir()) == []


def test_a_part_of_a_store_can_be_exported(detection, tmp_path):
    """By split, by keys and by count, together; a list of what was written comes as JSON."""
    result = run_packer(
        *("export", detection, tmp_path / "a", "--as", "coco", "--split", "val2017"),
        *("--limit", "2", "--json"),
    )
    report = json.loads(result.stdout)
    assert report["sample_count"] == 2
    assert report["splits"] == {"train2017": 0, "val2017": 2}
    pictures = sorted(p.name for p in (tmp_path / "a").rglob("*.[jp][pn]g"))
    assert pictures == ["000010.png", "000011.jpg"]
    (tmp_path / "keys").write_text("val2017/000011.jpg\n")
    result = run_packer(
        "export", detection, tmp_path / "b", "--as", "tar", "--keys", tmp_path / "keys"
    )
    assert result.exit_code == 0
    assert [p.name for p in (tmp_path / "b").glob("*.tar")] == ["val2017-000000.tar"]


def test_archives_and_tables_are_cut_by_size(detection, tmp_path):
    """So that workers have many to read from; each split has its own, numbered."""
    packer.export(detection, tmp_path / "a", as_="tar", shard_bytes_max=1)
    assert sorted(p.name for p in (tmp_path / "a").glob("*.tar")) == [
        f"{split}-{number:06d}.tar" for split in ("train2017", "val2017") for number in range(3)
    ]
    packer.export(detection, tmp_path / "b", as_="parquet", shard_bytes_max=1)
    names = sorted(p.name for p in (tmp_path / "b" / "data").iterdir())
    assert names[0] == "train2017-00000-of-00003.parquet"
    assert len(names) == 6


@pytest.mark.parametrize("as_", ["coco", "yolo", "voc"])
def test_a_store_without_objects_is_sent_to_another_layout(as_, store, tmp_path):
    """Rather than written as files that say nothing."""
    with pytest.raises(BuildError, match="give --as folder"):
        packer.export(store, tmp_path / "out", as_=as_)
    assert list(tmp_path.iterdir()) == []


def test_wrong_arguments_are_named(store, tmp_path):
    """With what there is instead, and before anything is written."""
    out = tmp_path / "out"
    with pytest.raises(ValueError, match=r"as_ must be one of folder, .*Did you mean 'coco'"):
        packer.export(store, out, as_="cocos")
    with pytest.raises(ValueError, match="limit must be at least 1; got 0"):
        packer.export(store, out, as_="folder", limit=0)
    with pytest.raises(SchemaMismatchError, match="no split 'val'"):
        packer.export(store, out, as_="folder", splits=["val"])
    with pytest.raises(UnknownKeyError, match="no sample has the key 'x'"):
        packer.export(store, out, as_="folder", keys=["x"])
    assert list(tmp_path.iterdir()) == []


def test_every_layout_is_explained(tmp_path):
    """In the help of the command."""
    text = " ".join(run_packer("export", "--help").stdout.split())
    for name, row in EXPORT_FORMATS.items():
        assert f"{name}: {row.text}" in text
