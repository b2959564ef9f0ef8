"""JSON lines lists, Parquet lists and text lists."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from packer.errors import SourceError
from packer.items.annotations import unpack_annotations
from packer.items.raw_item import Scan
from packer.sources.lists import jsonl_list, parquet_list, parquet_table, txt_list
from packer.sources.source import SourceOptions


def scan_lines(folder: Path, *lines: Any, name: str = "list.jsonl") -> Scan:
    """Scan a list of these lines, with pictures 1.png to 3.png beside it."""
    draw(folder, "1.png", "2.png", "3.png")
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    (folder / name).write_bytes(text.encode("utf-8", "surrogatepass"))
    return jsonl_list.scan(folder / name, SourceOptions())


def draw(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x")


def boxes(found: Scan) -> dict[str, list[tuple[str, tuple[float, ...]]]]:
    return {
        item.key.decode(): [
            (found.classes[o.label], o.box or ())
            for o in unpack_annotations(item.annotations).objects
        ]
        for item in found.items
    }


def reasons(found: Scan) -> dict[str, str]:
    return {reject.path: reject.reason for reject in found.rejects}


def test_boxes_and_labels_of_a_line(tmp_path):
    """`boxes` are corners; a line without any is background, and its place is line and box."""
    found = scan_lines(
        tmp_path,
        {"image": "1.png", "boxes": [[1, 2, 3, 4], [5, 6, 7.5, 8]], "labels": ["b", "a"]},
        {"image": "2.png", "boxes": [], "labels": []},
        {"image": "3.png"},
    )
    assert boxes(found) == {
        "1.png": [("b", (1.0, 2.0, 3.0, 4.0)), ("a", (5.0, 6.0, 7.5, 8.0))],
        "2.png": [],
        "3.png": [],
    }
    objects = unpack_annotations(found.items[0].annotations).objects
    assert [o.place for o in objects] == ["list.jsonl, line 1, box 1", "list.jsonl, line 1, box 2"]


def test_objects_have_boxes_of_width_and_height(tmp_path):
    """Hugging Face: metadata.jsonl in the folder of each split, boxes as in COCO."""
    draw(tmp_path, "train/a.png", "validation/b.png", "validation/c.png")
    line = {"file_name": "a.png", "objects": {"bbox": [[10, 20, 3, 4]], "categories": [7]}}
    (tmp_path / "train/metadata.jsonl").write_text(json.dumps(line))
    line = {"file_name": "b.png", "objects": [{"bbox": [1, 2, 3, 4], "category": "x"}]}
    (tmp_path / "validation/metadata.jsonl").write_text(json.dumps(line))
    found = jsonl_list.scan(tmp_path, SourceOptions())
    assert boxes(found) == {
        "train/a.png": [("7", (10.0, 20.0, 13.0, 24.0))],
        "validation/b.png": [("x", (1.0, 2.0, 4.0, 6.0))],
    }
    assert [item.values for item in found.items] == [{"split": 0}, {"split": 1}]
    assert found.splits == ("train", "validation")
    assert found.ignored.counts == {"not named by the annotations": 1}


def test_broken_lines_are_rejects_with_their_number(tmp_path):
    """Lines of another kind do not stop the others; labels are text, as JSON writes them."""
    found = scan_lines(
        tmp_path,
        "\ufeff" + json.dumps({"path": "1.png", "label": 3}),
        '{"path": "2.png", "label": ',
        "[1, 2]",
        "",
        {"path": "2.png", "label": ["a"]},
        {"path": 5, "label": "a"},
        {"path": ["2.png"], "label": "a"},
        {"label": "a"},
        {"path": "2.png", "label": True},
        '{"path": "3.png", "label": "\\ud800"}',
        '{"path": "\\ud800.png", "label": "a"}',
    )
    assert [(i.key, found.classes[i.values["label"]]) for i in found.items] == [
        (b"1.png", "3"),
        (b"2.png", "true"),
    ]
    got = reasons(found)
    assert got["list.jsonl, line 2"].startswith("not a JSON object: ")
    assert got["list.jsonl, line 3"].startswith("not a JSON object: ")
    assert got["list.jsonl, line 5"] == "the label is a list; expected one text or number"
    assert got["list.jsonl, line 6"].startswith("5 not found")
    assert got["list.jsonl, line 7"] == "the path is ['2.png']; expected text"
    assert got["list.jsonl, line 8"] == "the path is empty"
    assert got["list.jsonl, line 10"].startswith("the label is not UTF-8 text")
    assert "not found" in got["list.jsonl, line 11"]
    assert len(got) == 8


def test_a_line_whose_boxes_and_labels_do_not_match_is_a_reject(tmp_path):
    """It is not known which label is missing; a box that is none is refused alone."""
    found = scan_lines(
        tmp_path,
        {"image": "1.png", "boxes": [[1, 2, 3, 4], [5, 6, 7, 8]], "labels": ["a"]},
        {"image": "2.png", "boxes": [[1, 2, 3, 4], [1, 2, 3], "x"], "labels": ["a", "a", None]},
    )
    assert reasons(found) == {
        "list.jsonl, line 1": "has 2 boxes and 1 label; expected one label for each box"
    }
    assert boxes(found) == {"2.png": [("a", (1.0, 2.0, 3.0, 4.0))]}
    assert [(r.path, r.reason) for r in found.annotation_rejects][1:] == [
        ("list.jsonl, line 2, box 2", "box [1, 2, 3]; expected four numbers"),
        ("list.jsonl, line 2, box 3", "box 'x'; expected four numbers"),
    ]


def test_a_box_that_is_not_a_number_is_refused_alone(tmp_path):
    """NaN is not JSON, and Python writes it all the same."""
    found = scan_lines(
        tmp_path,
        '{"image": "1.png", "boxes": [[1, NaN, 3, 4], [1, 2, 3, 4]], "labels": ["a", "a"]}',
        {"image": "2.png", "boxes": [[True, 0, 1, 10**400]], "labels": ["a"]},
    )
    assert boxes(found) == {"1.png": [("a", (1.0, 2.0, 3.0, 4.0))], "2.png": []}
    assert [r.path for r in found.annotation_rejects] == [
        "list.jsonl, line 1, box 1",
        "list.jsonl, line 2, box 1",
    ]


def test_a_key_may_come_late(tmp_path):
    """The columns are the keys of all lines, not those of the first."""
    lines: list[Any] = [{"image": "1.png", "label": "a"}, {"image": "2.png", "label": "b"}]
    found = scan_lines(tmp_path, *lines, {"image": "3.png", "label": "a", "split": "val"})
    assert reasons(found) == {
        "list.jsonl, line 1": "the split is empty",
        "list.jsonl, line 2": "the split is empty",
    }
    assert found.classes == ("a",)


def test_lists_of_labels(tmp_path):
    """Without boxes, `labels` are those of the picture; one that is no label is refused alone."""
    found = scan_lines(
        tmp_path,
        {"image": "1.png", "labels": ["b", "a"]},
        {"image": "2.png", "labels": []},
        {"image": "3.png", "labels": ["a", None]},
        {"image": "4.png", "labels": "a b"},
    )
    assert [item.values for item in found.items] == [
        {"labels": [1, 0]},
        {"labels": []},
        {"labels": [0]},
    ]
    assert [(r.path, r.reason) for r in found.annotation_rejects] == [
        ("list.jsonl, line 3, label 2", "the label is empty")
    ]


def test_parquet_rows_are_read_like_lines(tmp_path):
    """Lists, records and numbers of a Parquet file, and rows count from 1."""
    pyarrow = importlib.import_module("pyarrow")
    parquet = importlib.import_module("pyarrow.parquet")
    draw(tmp_path, "1.png", "2.png")
    table = pyarrow.table(
        {
            "file_name": ["1.png", "2.png", "gone.png"],
            "objects": [
                {"bbox": [[10.0, 20.0, 3.0, 4.0]], "category": ["a"]},
                {"bbox": [], "category": []},
                None,
            ],
            "split": ["train", "val", "val"],
        }
    )
    parquet.write_table(table, tmp_path / "list.parquet")
    found = parquet_list.scan(tmp_path, SourceOptions())
    assert boxes(found) == {"1.png": [("a", (10.0, 20.0, 13.0, 24.0))], "2.png": []}
    assert [item.values for item in found.items] == [{"split": 0}, {"split": 1}]
    assert list(reasons(found)) == ["list.parquet, row 3"]
    assert (found.format, found.ignored.counts) == ("parquet", {})


def test_parquet_with_pictures_inside_is_another_source(tmp_path):
    """The message names the format that reads pictures in cells; a broken file is named."""
    pyarrow = importlib.import_module("pyarrow")
    parquet = importlib.import_module("pyarrow.parquet")
    table = pyarrow.table({"image": [{"bytes": b"x", "path": "1.png"}], "label": [1]})
    parquet.write_table(table, tmp_path / "list.parquet")
    with pytest.raises(SourceError, match=r"'image\.bytes' holds the pictures .*--format hf"):
        parquet_list.scan(tmp_path, SourceOptions())
    (tmp_path / "list.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(SourceError, match=r"list\.parquet: cannot be read as Parquet"):
        parquet_list.scan(tmp_path, SourceOptions())


def test_without_pyarrow_the_message_says_what_to_install(tmp_path, monkeypatch):
    """The library is an extra that few need."""
    (tmp_path / "list.parquet").write_bytes(b"")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(SourceError, match=r"pip install lmdb-packer\[parquet\]"):
        parquet_table.parquet_table(tmp_path / "list.parquet")


def test_text_lists_name_a_picture_and_its_label(tmp_path):
    """Labels are positions in the file of class names beside the list; a path may hold blanks."""
    draw(tmp_path, "images/a b.png", "images/2.png")
    (tmp_path / "train.txt").write_text("a b.png 2\n2.png 0\n3.png 0\nalone.png\n")
    (tmp_path / "synsets.txt").write_text("n01 crane\nn02\nn03\n")
    found = txt_list.scan(tmp_path, SourceOptions())
    assert [(i.key, found.classes[i.values["label"]]) for i in found.items] == [
        (b"images/a b.png", "n03"),
        (b"images/2.png", "n01 crane"),
    ]
    assert list(reasons(found)) == ["train.txt, line 3", "train.txt, line 4"]
    assert found.ignored.counts == {}
    (tmp_path / "synsets.txt").unlink()
    assert txt_list.scan(tmp_path, SourceOptions()).classes == ("0", "2")


def test_text_lists_of_splits(tmp_path):
    """One file for each split; other text files are no lists."""
    draw(tmp_path, "1.png", "2.png")
    (tmp_path / "train.txt").write_text("1.png cat\n")
    (tmp_path / "val.txt").write_text("2.png dog\n")
    (tmp_path / "readme.txt").write_text("A set of pictures\n")
    found = txt_list.scan(tmp_path, SourceOptions())
    assert [item.values for item in found.items] == [
        {"label": 0, "split": 0},
        {"label": 1, "split": 1},
    ]
    assert found.ignored.counts == {"list that was not read": 1}
