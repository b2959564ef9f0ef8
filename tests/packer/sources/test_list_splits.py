"""Pictures of a list have the splits that it tells, or that their folders are called after."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from packer.sources import SourceOptions, scan_source
from tests.packer.raw_files import write_files, write_texts

AUTO = SourceOptions()
PATHS = ["train/0.jpg", "train/1.jpg", "test/2.jpg", "valid/3.jpg"]


def table(kind: str, paths: list[str], **columns: list[str]) -> dict[str, str]:
    """A list of each kind, with a label or caption in each row."""
    if kind == "jsonl":
        rows = [
            {"file_name": path, "text": "words", **{c: v[n] for c, v in columns.items()}}
            for n, path in enumerate(paths)
        ]
        return {"metadata.jsonl": "".join(json.dumps(row) + "\n" for row in rows)}
    if kind == "txt":
        return {"list.txt": "".join(f"{path} {n % 2}\n" for n, path in enumerate(paths))}
    header = ",".join(["path", "label", *columns])
    lines = [
        ",".join([path, "cat", *(values[n] for values in columns.values())])
        for n, path in enumerate(paths)
    ]
    return {"labels.csv": "\n".join([header, *lines]) + "\n"}


def split_names(root: Path, options: SourceOptions = AUTO) -> dict[str, str]:
    scan = scan_source(root, options)
    names = [scan.splits[item.values["split"]] if scan.splits else "" for item in scan.items]
    return {item.key.decode(): name for item, name in zip(scan.items, names, strict=True)}


@pytest.mark.parametrize("kind", ["csv", "jsonl", "txt"])
@pytest.mark.parametrize("place", ["", "images/", "a/b/"])
def test_folders_of_splits_are_splits_of_a_list(place, kind, tmp_path):
    """One list over train/ and test/ keeps them apart, as a folder of pictures alone does."""
    paths = [place + path for path in PATHS]
    root = write_texts(write_files(tmp_path, *paths), table(kind, paths))
    wanted = {place + path: path.split("/")[0] for path in PATHS}
    assert split_names(root) == wanted
    (name,) = table(kind, paths)
    assert split_names(root / name) == wanted
    scan = scan_source(root, AUTO)
    assert scan.splits == ("train", "valid", "test")
    assert "splits are those of the folders: train, valid, test" in scan.notes
    assert set(split_names(root, SourceOptions(split="test"))) == {f"{place}test/2.jpg"}


def test_a_parquet_list_has_the_splits_of_folders(tmp_path):
    """Whatever kind of file a list is."""
    arrow = pytest.importorskip("pyarrow", reason="needs the extra parquet")
    parquet = pytest.importorskip("pyarrow.parquet")
    write_files(tmp_path, *PATHS)
    parquet.write_table(
        arrow.table({"path": PATHS, "label": ["a"] * 4}), tmp_path / "metadata.parquet"
    )
    assert split_names(tmp_path) == {path: path.split("/")[0] for path in PATHS}


def test_what_a_list_says_of_splits_goes_before_its_folders(tmp_path):
    """A column, or lists of a split each, are about just this."""
    splits = ["val", "train", "train", "val"]
    write_texts(write_files(tmp_path / "1", *PATHS), table("csv", PATHS, split=splits))
    assert split_names(tmp_path / "1") == dict(zip(PATHS, splits, strict=True))
    write_texts(
        write_files(tmp_path / "2", *PATHS),
        {"train.csv": "path,label\ntrain/0.jpg,a\ntest/2.jpg,a\n", "val.csv": "path,label\n"
         "train/1.jpg,a\n"},
    )  # fmt: skip
    assert split_names(tmp_path / "2") == {
        "train/0.jpg": "train",
        "test/2.jpg": "train",
        "train/1.jpg": "val",
    }


def test_folders_that_are_not_all_splits_are_none_and_said(tmp_path):
    """A class may be called test; a note says what would make splits."""
    paths = ["train/0.jpg", "extra/1.jpg"]
    write_texts(write_files(tmp_path / "1", *paths), table("csv", paths))
    scan = scan_source(tmp_path / "1", AUTO)
    assert scan.splits == ()
    assert (
        "no splits: pictures lie in train/, but others in extra/. For splits, add a column called "
        "split" in scan.notes
    )
    paths = ["cat/0.jpg", "dog/1.jpg"]
    write_texts(write_files(tmp_path / "2", *paths), table("csv", paths))
    scan = scan_source(tmp_path / "2", AUTO)
    assert (scan.splits, [n for n in scan.notes if "split" in n]) == ((), [])
