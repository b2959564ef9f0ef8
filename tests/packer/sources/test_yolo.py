"""YOLO data sets: where their pictures, labels and class names are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from packer.errors import SourceError
from packer.items.annotations import RawObject, unpack_annotations
from packer.items.raw_item import Scan
from packer.sources.detection.detect import detect
from packer.sources.source import SourceOptions
from packer.sources.yolo import scan
from readers.store.schema import Field

BOX = "0 0.5 0.5 0.5 0.5\n"
CORNERS = "0 .1 .2 .3 .1 .4 .6 .2 .7\n"
TRIANGLE = "0 0.5 0.25 0.9375 0.25 0.71875 0.875\n"


def write(root: Path, files: dict[str, str | bytes]) -> Path:
    """Files by path. A picture needs no pixels here: nothing reads it."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


def pair(picture: str, labels: str, text: str = BOX) -> dict[str, str | bytes]:
    """A picture and its label file."""
    return {picture: "pixels", labels: text}


def read(raw: Path, **options: Any) -> Scan:
    return scan(raw, SourceOptions(**options))


def objects(found: Scan) -> dict[str, list[RawObject]]:
    """Objects of each picture, by its path."""
    return {
        item.key.decode(): list(unpack_annotations(item.annotations).objects)
        for item in found.items
    }


def split_of(found: Scan) -> dict[str, str]:
    return {item.key.decode(): found.splits[item.values["split"]] for item in found.items}


def notes(found: Scan) -> str:
    return "\n".join(found.notes)


def field_names(found: Scan) -> list[str]:
    return [field.name for field in found.fields]


def is_accounted_for(raw: Path, found: Scan) -> bool:
    """Whether every picture is an item, a reject, or ignored."""
    named = {os.fsdecode(i.key) for i in found.items} | {os.fsdecode(r.key) for r in found.rejects}
    named |= {name for names in found.ignored.examples.values() for name in names}
    pictures = [p for p in raw.rglob("*") if p.suffix.lower() in (".png", ".jpg")]
    return all(path.relative_to(raw).as_posix() in named for path in pictures)


# data.yaml


ULTRALYTICS = {
    **pair("images/train/b.png", "labels/train/b.txt"),
    **pair("images/train/a.png", "labels/train/a.txt", "1 0.5 0.5 0.25 0.5\n" + BOX),
    **pair("images/val/c.png", "labels/val/c.txt"),
}
ROBOFLOW = {
    **pair("train/images/a.png", "train/labels/a.txt"),
    **pair("valid/images/c.png", "valid/labels/c.txt"),
}


def test_a_data_yaml_with_folders(tmp_path):
    """Splits and classes in its order, items by key; coordinates stay shares of the sides."""
    yaml = "path: .\ntrain: images/train\nval: images/val\nnames: [bee, ant]\n"
    found = read(write(tmp_path, {**ULTRALYTICS, "data.yaml": yaml, "labels.cache": "x"}))
    assert (found.format, found.root, found.classes) == ("yolo", tmp_path, ("bee", "ant"))
    assert split_of(found) == {
        "images/train/a.png": "train",
        "images/train/b.png": "train",
        "images/val/c.png": "val",
    }
    assert [item.key for item in found.items] == sorted(item.key for item in found.items)
    first, second = objects(found)["images/train/a.png"]
    assert (first.label, first.box) == (1, (0.375, 0.25, 0.625, 0.75))
    assert (second.label, second.place) == (0, "labels/train/a.txt, line 2")
    assert unpack_annotations(found.items[0].annotations).is_relative
    assert found.fields == (
        Field(name="boxes", kind="boxes", dtype="float32", shape=(None, 4)),
        Field(name="labels", kind="label", dtype="int64", shape=(None,), names=("bee", "ant")),
        Field(name="split", kind="scalar", dtype="uint8", names=("train", "val")),
    )
    assert found.ignored.counts == {"not a picture": 1}
    assert found.choices == {"yolo_form": "ultralytics", "task": "detect"}
    assert found.notes == [
        "data.yaml: train: 'images/train' is images/train",
        "data.yaml: val: 'images/val' is images/val",
    ]


@pytest.mark.parametrize(
    ("train", "val", "how"),
    [
        ("train/images", "valid/images", ""),
        ("./train/images/", "valid/images", ""),
        ("../train/images", "../valid/images", " (without the leading ../)"),
        ("train/images", "../val/images", " (without the leading ../, under its other name"),
        ("train/images", "validation/images", " (under its other name 'valid')"),
        ("/content/set-1/train/images", "valid/images", " (the end of a path outside of the data)"),
        ("C:\\sets\\train\\images", "valid/images", " (the end of a path outside of the data)"),
        ("train", "valid", ""),
    ],
)
def test_paths_that_are_wrong_where_they_stand(train, val, how, tmp_path):
    """Those of Roboflow, of another split name and of another machine; a note says how."""
    yaml = f"train: {train}\nval: {val}\ntest: ../test/images\nnames: [a]\n"
    found = read(write(tmp_path / "set", {**ROBOFLOW, "data.yaml": yaml}))
    assert split_of(found) == {"train/images/a.png": "train", "valid/images/c.png": "val"}
    assert how in notes(found)
    assert "data.yaml: test is '../test/images', which is not there; the split is empty" in notes(
        found
    )


def test_the_path_of_a_data_yaml(tmp_path, monkeypatch):
    """Absolute, relative to the file, or to where we are; when it leads nowhere, a note says so."""
    write(tmp_path / "sets/one", ULTRALYTICS)
    splits = "train: images/train\nval: images/val\nnames: [a, b]\n"
    for path, place in (
        (str(tmp_path / "sets/one"), "config/data.yaml"),
        ("../sets/one", "config/data.yaml"),
        ("sets/one", "config/data.yaml"),
        ("sets/one", "data.yaml"),
    ):
        monkeypatch.chdir(tmp_path)
        write(tmp_path, {place: f"path: {path}\n{splits}"})
        found = read(tmp_path / place)
        assert found.root.resolve() == tmp_path / "sets/one"
        assert len(found.items) == 3
        assert found.items[0].key == b"images/train/a.png"
    write(tmp_path, {"sets/one/data.yaml": f"path: /nowhere/set\n{splits}"})
    found = read(tmp_path / "sets/one")
    assert len(found.items) == 3
    assert "path '/nowhere/set' is not there" in found.notes[0]


def test_a_folder_that_was_given_is_the_data(tmp_path):
    """Not the older copy that the path of its data.yaml still leads to."""
    yaml = f"path: {tmp_path}/old\ntrain: images/train\nnames: [a, b]\n"
    write(tmp_path / "old", ULTRALYTICS)
    new = write(tmp_path / "new", {**ULTRALYTICS, "data.yaml": yaml, "images/val/new.png": "x"})
    found = read(new)
    assert found.root == new
    assert "lies outside of the data" in found.notes[0]
    assert [item.path for item in found.items] == [b"images/train/a.png", b"images/train/b.png"]
    assert found.ignored.counts["not named by the annotations"] == 2
    assert "2 pictures not packed, not named by the annotations" in notes(found)


def test_root_is_where_the_data_is(tmp_path):
    """Where it does not lie beside its data.yaml."""
    write(tmp_path / "data", ULTRALYTICS)
    write(tmp_path / "conf", {"data.yaml": "path: /gone\ntrain: images/train\nnames: [a, b]\n"})
    with pytest.raises(SourceError, match=r"train is 'images/train'.*--root"):
        read(tmp_path / "conf")
    for raw in (tmp_path / "conf", tmp_path / "conf/data.yaml"):
        found = read(raw, root=tmp_path / "data")
        assert (found.root, len(found.items)) == (tmp_path / "data", 2)


def test_paths_may_not_leave_the_data(tmp_path):
    """A stranger's data.yaml must not pack pictures from elsewhere."""
    write(tmp_path / "private", {"train/x.png": "x", "train/x.txt": BOX})
    raw = write(
        tmp_path / "raw", {**ROBOFLOW, "data.yaml": "train: ../private/train\nnames: [a]\n"}
    )
    with pytest.raises(SourceError, match=r"no such folder or list inside of .*raw; looked in"):
        read(raw)
    (raw / "data.yaml").write_text(f"train: {tmp_path}/private/train\nnames: [a]\n")
    assert [item.key for item in read(raw).items] == [b"train/images/a.png"]
    raw = write(tmp_path / "list", {**ROBOFLOW, "data.yaml": "train: l.txt\nnames: [a]\n"})
    (raw / "l.txt").write_text(f"../private/train/x.png\n{tmp_path}/private/train/x.png\n")
    found = read(raw)
    assert found.items == []
    assert [r.path for r in found.rejects] == ["l.txt, line 1", "l.txt, line 2"]


def test_a_list_of_folders_and_the_same_pictures_in_two_splits(tmp_path):
    """Each picture is packed once, in the first split that names it."""
    yaml = "train: [images/train, images/val]\nval: images/val\nnames: [a, b]\n"
    found = read(write(tmp_path, {**ULTRALYTICS, "data.yaml": yaml}))
    assert set(split_of(found).values()) == {"train"}
    assert len(found.items) == 3
    assert found.splits == ("train", "val")
    assert "split val names 1 picture of split train again" in notes(found)


def test_a_list_of_pictures(tmp_path):
    """In its order; what it names wrongly or twice is rejected by line."""
    yaml = "train: lists/train.txt\nnames: [a, b]\n"
    lines = "\ufeff../images/train/b.png\r\n\r\n../images/train/a.png\r\n"
    lines += "../images/train/b.png\n../images/train/gone.png\n"
    found = read(write(tmp_path, {**ULTRALYTICS, "data.yaml": yaml, "lists/train.txt": lines}))
    assert [item.key for item in found.items] == [b"images/train/b.png", b"images/train/a.png"]
    assert [(r.path, r.reason) for r in found.rejects] == [
        ("lists/train.txt, line 4", "listed twice (first in line 1)"),
        (
            "lists/train.txt, line 5",
            "there is no picture at '../images/train/gone.png' inside of the data",
        ),
    ]


@pytest.mark.parametrize("start", ["data/", "/content/set/", "./", "set\\", ""])
def test_the_start_of_listed_paths_may_be_another_machines(start, tmp_path):
    """Every line loses the same start, and a note names it."""
    yaml = "train: train.txt\nnames: [a, b]\n"
    lines = "".join(f"{start}images/train/{name}.png\n" for name in "ab")
    if "\\" in start:
        lines = lines.replace("/", "\\")
    found = read(write(tmp_path, {**ULTRALYTICS, "data.yaml": yaml, "train.txt": lines}))
    assert [item.key for item in found.items] == [b"images/train/a.png", b"images/train/b.png"]
    assert ("without their start" in notes(found)) == (start not in ("", "./"))


def test_paths_that_no_file_can_have(tmp_path):
    """Too long, or with a zero byte: they are missing like others."""
    raw = write(tmp_path, {**ULTRALYTICS, "data.yaml": "train: train.txt\nnames: [a, b]\n"})
    lines = [b"images/train/a.png", b"/\0/b.png", b"/" + b"x" * 5000 + b".png", b"\xff\xfe.png"]
    (raw / "train.txt").write_bytes(b"\n".join(lines))
    found = read(raw)
    assert [r.path for r in found.rejects] == [f"train.txt, line {n}" for n in (2, 3, 4)]
    for path in ("x" * 5000, "~", "../" * 50):
        (raw / "data.yaml").write_text(f"path: {path!r}\ntrain: images/train\nnames: [a, b]\n")
        assert len(read(raw / "data.yaml").items) == 2
        assert len(read(raw).items) == 2


def test_a_line_that_is_missing_is_not_found_elsewhere(tmp_path):
    """Where one line is right as written, another is not shortened until something fits."""
    yaml = "train: train.txt\nnames: [a, b]\n"
    lines = "images/train/a.png\nother/images/val/c.png\n"
    found = read(write(tmp_path, {**ULTRALYTICS, "data.yaml": yaml, "train.txt": lines}))
    assert [item.key for item in found.items] == [b"images/train/a.png"]
    assert [r.path for r in found.rejects] == ["train.txt, line 2"]


def test_nothing_where_the_data_yaml_says(tmp_path):
    """The error names the entry, where it was looked for, and what to do."""
    raw = write(tmp_path, {**ROBOFLOW, "data.yaml": "train: nowhere/at/all\nnames: [a]\n"})
    with pytest.raises(SourceError, match=r"train is 'nowhere/at/all'.*looked in.*--root"):
        read(raw)
    raw = write(tmp_path, {**ROBOFLOW, "data.yaml": "val: nowhere/at/all\nnames: [a]\n"})
    with pytest.raises(SourceError, match=r"no pictures at 'nowhere/at/all'"):
        read(raw)


def test_which_data_yaml(tmp_path):
    """The usual name is taken with a note; two others are a question for the user."""
    text = "train: images/train\nnames: [a, b]\n"
    raw = write(tmp_path, {**ULTRALYTICS, "data.yaml": text, "other.yaml": text, "h.yaml": "a: 1"})
    found = read(raw)
    assert "data.yaml was taken; not read: 'other.yaml'" in found.notes
    (raw / "data.yaml").rename(raw / "one.yaml")
    with pytest.raises(SourceError, match=r"one.yaml, other.yaml each name classes"):
        read(raw)
    assert len(read(raw / "one.yaml").items) == 2
    nested = write(tmp_path / "n", {f"set/{k}": v for k, v in ULTRALYTICS.items()})
    write(nested, {"set/data.yaml": text})
    assert read(nested).items[0].key == b"set/images/train/a.png"
    write(nested, {"two/data.yaml": text})
    with pytest.raises(SourceError, match=r"more than one data set"):
        read(nested)


def test_a_data_yaml_without_splits_names_the_classes(tmp_path):
    """The pictures are then found as in data without one; a number alone names them 0 to n - 1."""
    found = read(write(tmp_path, {**ROBOFLOW, "data.yaml": "nc: 2\nnames: [a, b]\n"}))
    assert (found.classes, found.splits) == (("a", "b"), ("train", "valid"))
    assert found.ignored.total == 0
    found = read(write(tmp_path, {"data.yaml": "nc: 3\ntrain: train/images\n"}))
    assert found.classes == ("0", "1", "2")


# darknet


DARKNET = {
    **pair("obj_train_data/b.png", "obj_train_data/b.txt"),
    **pair("obj_train_data/a.png", "obj_train_data/a.txt", "1 0.5 0.5 0.25 0.5\n"),
    "obj.data": "classes = 3\ntrain = data/train.txt\nnames = data/obj.names\nbackup = backup/\n",
    "obj.names": "bee\nant\n\n",
    "train.txt": "data/obj_train_data/b.png\ndata/obj_train_data/a.png\n",
}


def test_darknet(tmp_path):
    """Pictures in the order of the list, labels beside them, classes from obj.names."""
    raw = write(tmp_path, DARKNET)
    for path in (raw, raw / "obj.data"):
        found = read(path)
        assert found.classes == ("bee", "ant")
        assert split_of(found) == {"obj_train_data/b.png": "train", "obj_train_data/a.png": "train"}
        assert [o.label for made in objects(found).values() for o in made] == [0, 1]
        assert "train.txt: paths are taken without their start 'data/'" in found.notes
        assert "obj.data: classes is 3, but there are 2 names; the names decide" in found.notes
        assert (found.ignored.total, found.choices["yolo_form"]) == (0, "darknet")


def test_darknet_with_files_missing(tmp_path):
    """The error names the file that obj.data promises."""
    raw = write(tmp_path, DARKNET)
    (raw / "obj.names").unlink()
    with pytest.raises(SourceError, match=r"obj.data: names is 'data/obj.names'.*--classes"):
        read(raw)
    write(raw, {"obj.data": "train = gone.txt\n"})
    with pytest.raises(SourceError, match=r"train is 'gone.txt', and there is no such list"):
        read(raw)


# Pictures and labels alone


@pytest.mark.parametrize(
    ("picture", "labels"),
    [
        ("a.png", "a.txt"),
        ("a.PNG", "a.TXT"),
        ("sub/a.png", "sub/a.txt"),
        ("images/a.png", "labels/a.txt"),
        ("images/a.png", "images/a.txt"),
        ("Images/a.png", "Labels/a.txt"),
        ("images/x/a.png", "labels/x/a.txt"),
        ("proj/images/set/images/a.png", "proj/images/set/labels/a.txt"),
        ("imgs/a.png", "annotations/a.txt"),
        ("a.png", "labels/a.txt"),
        ("images/a.b.png", "labels/a.b.txt"),
        ("images/caf\u00e9.png", "labels/cafe\u0301.txt"),
    ],
)
def test_where_labels_are_found(picture, labels, tmp_path):
    """Beside the picture, or where the last `images` of the path is `labels`."""
    found = read(write(tmp_path, {**pair(picture, labels), "classes.txt": "ant\n"}))
    assert [len(made) for made in objects(found).values()] == [1]
    assert found.classes == ("ant",)
    assert found.ignored.total == 0
    assert "class names are from classes.txt" in found.notes


def test_the_last_images_of_the_path_counts(tmp_path):
    """Also where a folder of labels lies beside the first."""
    files = {**pair("images/x/images/a.png", "images/x/labels/a.txt"), "labels/x/images/a.txt": BOX}
    found = read(write(tmp_path, files))
    assert [o.place for o in objects(found)["images/x/images/a.png"]] == [
        "images/x/labels/a.txt, line 1"
    ]
    assert found.ignored.examples == {"label file without a picture": ["labels/x/images/a.txt"]}


def test_a_list_of_classes_is_no_label_file(tmp_path):
    """Not even of a picture with its name."""
    found = read(
        write(tmp_path, {**pair("a.png", "a.txt"), "classes.png": "x", "classes.txt": "ant"})
    )
    assert "no label file: 1 picture, taken as background: 'classes.png'" in found.notes


def test_background_is_counted(tmp_path):
    """A picture with an empty label file, or without one, has no objects; notes say which."""
    files = {**pair("images/1.png", "labels/1.txt"), **pair("images/2.png", "labels/2.txt", " \n")}
    found = read(write(tmp_path, {**files, "images/3.png": "x", "images/4.png": "x"}))
    assert {key: len(made) for key, made in objects(found).items()} == {
        "images/1.png": 1,
        "images/2.png": 0,
        "images/3.png": 0,
        "images/4.png": 0,
    }
    assert "no label file: 2 pictures, taken as background: 'images/3.png', 'images/4.png'" in (
        found.notes
    )
    assert "empty label file: 1 picture, taken as background: 'images/2.png'" in found.notes


def test_no_label_file_at_all_is_an_error(tmp_path):
    """It is a wrong path, not a set of backgrounds; a split without any is noted."""
    raw = write(tmp_path, {"images/1.png": "x", "README.txt": "hello"})
    with pytest.raises(SourceError) as caught:
        read(raw)
    assert "no label file; of images/1.png it should be labels/1.txt" in str(caught.value)
    write(raw, {"train/images/a.png": "x", "train/labelTxt/a.txt": "0 0 1 0 1 1 0 1 car 0"})
    with pytest.raises(SourceError, match=r"--format dota"):
        read(raw)
    raw = write(tmp_path / "s", {**ROBOFLOW, "test/images/t.png": "x"})
    assert "split test has no label file at all" in notes(read(raw))


def test_files_that_are_not_used_are_accounted_for(tmp_path):
    """Label files without a picture, documents, plots beside the folders of pictures."""
    files = {
        **pair("images/1.png", "labels/1.txt"),
        "labels/gone.txt": BOX,
        "labels/empty.txt": "",
        "README.txt": "A data set.\n",
        "train.txt": "images/1.png\n",
        "runs/plot.png": "x",
    }
    raw = write(tmp_path, files)
    found = read(raw)
    assert found.ignored.examples == {
        "outside of the folders of pictures": ["runs/plot.png"],
        "label file without a picture": ["labels/empty.txt", "labels/gone.txt"],
        "not a picture": ["README.txt", "train.txt"],
    }
    assert (
        "2 files not packed, label file without a picture: 'labels/empty.txt', 'labels/gone.txt'"
    ) in found.notes
    assert "1 picture not packed, outside of the folders of pictures: 'runs/plot.png'" in (
        found.notes
    )
    assert is_accounted_for(raw, found)


def test_two_candidates_are_rejected(tmp_path):
    """Two pictures of one label file, two label files of one picture, and what cannot be read."""
    files = {
        **pair("1.jpg", "1.txt"),
        "1.png": "x",
        **pair("2.png", "2.txt"),
        "2.TXT": BOX,
        **pair("3.png", "3.txt", "\ufeff0 0.5 0.5 0.5 0.5\n".encode("utf-16")),  # type: ignore[arg-type]
        **pair("4.png", "4.txt"),
    }
    raw = write(tmp_path, files)
    found = read(raw)
    reasons = {reject.path: reject.reason for reject in found.rejects}
    assert list(objects(found)) == ["4.png"]
    assert reasons["1.jpg"] == reasons["1.png"]
    assert "1.txt, several pictures fit: 1.jpg, 1.png" in reasons["1.jpg"]
    assert "several label files fit: 2.TXT, 2.txt" in reasons["2.png"]
    assert "3.txt is not text (or UTF-16)" in reasons["3.png"]
    assert is_accounted_for(raw, found)


def test_a_bad_line_costs_one_annotation(tmp_path):
    """It is named with its file and line, and the picture is kept."""
    found = read(write(tmp_path, pair("1.png", "1.txt", f"{BOX}0 1.4 0.5 0.2 0.2\nx\n{BOX}")))
    assert [o.place for o in objects(found)["1.png"]] == ["1.txt, line 1", "1.txt, line 4"]
    assert [(r.key, r.path) for r in found.annotation_rejects] == [
        (b"1.png", "1.txt, line 2"),
        (b"1.png", "1.txt, line 3"),
    ]
    assert "x centre is 1.4" in found.annotation_rejects[0].reason


def test_the_same_line_twice_is_no_matter_of_the_source(tmp_path):
    """Duplicates are rejected with the picture, for all formats alike."""
    found = read(write(tmp_path, pair("1.png", "1.txt", BOX + BOX)))
    assert len(objects(found)["1.png"]) == 2


@pytest.mark.parametrize(
    "layout", ["{split}/images/{n}.png", "images/{split}/{n}.png", "x/{split}/{n}.png"]
)
def test_folders_with_the_names_of_splits_are_splits(layout, tmp_path):
    """If all are; their own names are kept, in the order of their meaning."""
    files: dict[str, str | bytes] = {}
    for n, split in enumerate(("valid", "train")):
        path = layout.format(split=split, n=n)
        files |= pair(path, path.replace("images", "labels").replace(".png", ".txt"))
    found = read(write(tmp_path, files))
    assert found.splits == ("train", "valid")
    assert set(split_of(found).values()) == {"train", "valid"}
    extra = layout.format(split="more", n=9)
    found = read(write(tmp_path, {extra: "x"}))
    assert (found.splits, "split" in field_names(found)) == ((), False)


def test_class_names(tmp_path):
    """From a file of them, else by number; what the user gives decides."""
    raw = write(tmp_path, pair("1.png", "1.txt", "3 0.5 0.5 0.5 0.5\n1 0.5 0.5 0.5 0.5\n"))
    found = read(raw)
    assert found.classes == ("0", "1", "2", "3")
    assert "no list of class names" in notes(found)
    assert read(raw, classes=("a", "b", "c", "d", "e")).classes == ("a", "b", "c", "d", "e")
    found = read(raw, classes=("a", "b"))
    assert [r.reason for r in found.annotation_rejects] == [
        "class 3 is not known; there are 2 classes, 0 to 1"
    ]
    write(raw, {"notes.json": '{"categories": [{"id": 1, "name": "B"}, {"id": 0, "name": "A"}]}'})
    found = read(raw)
    assert found.classes == ("A", "B")
    assert found.ignored.total == 0
    found = read(raw, classes=("B", "C"))
    assert found.classes == ("B", "C")
    assert [o.label for o in objects(found)["1.png"]] == [0]
    write(raw, {"sub/classes.txt": "A\nC\n"})
    with pytest.raises(SourceError, match=r"notes.json and sub/classes.txt name different classes"):
        read(raw)
    write(raw, {"sub/classes.txt": "A\nB\n"})
    assert read(raw).classes == ("A", "B")


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"categories": [{"id": 1, "name": "a"}]}', '{"categories": [{"id": []}]}',
     '{"categories": [{"id": 0, "name": "a"}, {"id": 1, "name": "a"}]}', "[" * 100_000],
)  # fmt: skip
def test_a_broken_notes_json_is_an_error(text, tmp_path):
    """That names the file."""
    raw = write(tmp_path, {**pair("1.png", "1.txt"), "notes.json": text})
    with pytest.raises(SourceError, match=r"notes.json"):
        read(raw)


# What the lines are


def test_boxes_and_outlines_in_one_set(tmp_path):
    """Without a task both are kept: boxes for all, outlines where there are any."""
    raw = write(tmp_path, pair("1.png", "1.txt", BOX + TRIANGLE))
    found = read(raw)
    assert field_names(found) == ["boxes", "labels", "masks"]
    assert [len(o.polygons) for o in objects(found)["1.png"]] == [0, 1]
    assert "1 box without an outline" in notes(found)
    found = read(raw, task="detect")
    assert "task detect: 1 outline, turned boxes or sets of keypoints left aside" in notes(found)
    assert field_names(found) == ["boxes", "labels"]
    assert [o.box for o in objects(found)["1.png"]][1] == (0.5, 0.25, 0.9375, 0.875)
    found = read(raw, task="segment")
    assert [r.path for r in found.annotation_rejects] == ["1.txt, line 1"]
    assert field_names(found) == ["boxes", "labels", "masks"]


def test_nine_numbers_are_undecidable(tmp_path):
    """A turned box or an outline: the line is shown, and the task is asked for."""
    raw = write(tmp_path, pair("1.png", "1.txt", BOX + CORNERS))
    with pytest.raises(SourceError) as caught:
        read(raw)
    assert "1.txt, line 2: '0 .1 .2 .3 .1 .4 .6 .2 .7'" in str(caught.value)
    assert "--task obb" in str(caught.value)
    assert "--task segment" in str(caught.value)
    found = read(raw, task="obb")
    corners = found.fields[2]
    assert (corners.name, corners.kind, corners.shape) == ("corners", "keypoints", (None, 4, 2))
    upright, made = objects(found)["1.png"]
    assert (found.annotation_rejects, upright.keypoints) == ([], b"")
    assert "1 of 2 objects is turned" in notes(found)
    assert np.frombuffer(made.keypoints, "<f4").tolist() == pytest.approx(
        [0.1, 0.2, 0.3, 0.1, 0.4, 0.6, 0.2, 0.7]
    )
    assert [len(o.polygons) for o in objects(read(raw, task="segment"))["1.png"]] == [1]


def test_nine_numbers_among_outlines_are_outlines(tmp_path):
    """A set of turned boxes has no line of seven; a note says what was taken for what."""
    found = read(write(tmp_path, pair("1.png", "1.txt", TRIANGLE + CORNERS)))
    assert [len(o.polygons) for o in objects(found)["1.png"]] == [1, 1]
    assert "lines of 9 values are outlines of four points" in notes(found)


@pytest.mark.parametrize(
    ("files", "task"),
    [
        ({**pair("images/1.png", "labels/1.txt", CORNERS), "data.yaml": "task: obb"}, "obb"),
        (
            {**pair("images/1.png", "labels/1.txt", CORNERS), "data.yaml": "task: segment"},
            "segment",
        ),
        ({**pair("images/1.png", "labels/1.txt", CORNERS), "data-obb.yaml": ""}, "obb"),
        ({**pair("obb/images/1.png", "obb/labels/1.txt", CORNERS)}, "obb"),
    ],
)
def test_the_data_may_say_what_nine_numbers_are(files, task, tmp_path):
    """The task in data.yaml, or obb in its name or in that of the labels' folder."""
    for name in files:
        if name.endswith(".yaml"):
            files = {**files, name: f"train: images\nnames: [a]\n{files[name]}\n"}
    assert read(write(tmp_path, files)).choices["task"] == task


def test_a_name_does_not_overrule_the_lines(tmp_path):
    """Boxes in a folder called obb are boxes."""
    found = read(write(tmp_path, pair("obb/images/1.png", "obb/labels/1.txt")))
    assert found.choices["task"] == "detect"
    assert not found.annotation_rejects


def test_pose(tmp_path):
    """The shape of the points is that of data.yaml; who changes places in a mirror is kept."""
    yaml = "train: images\nnames: [a]\nkpt_shape: [2, 3]\nflip_idx: [1, 0]\nkpt_names: [l, r]\n"
    files = pair("images/1.png", "labels/1.txt", "0 .5 .5 .5 .5 .25 .5 2 0 0 0\n")
    raw = write(tmp_path, {**files, "data.yaml": yaml})
    found = read(raw)
    points = found.fields[2]
    assert (points.name, points.shape, points.names) == ("keypoints", (None, 2, 3), ("l", "r"))
    assert found.choices == {"yolo_form": "ultralytics", "task": "pose", "flip_idx": "1 0"}
    assert "mirrored picture: 1 0" in notes(found)
    (raw / "data.yaml").write_text("train: images\nnames: [a]\n")
    with pytest.raises(SourceError, match=r"found no kpt_shape"):
        read(raw, task="pose")


def test_what_is_no_data_set(tmp_path):
    """A file of another kind, a root without a data.yaml."""
    raw = write(tmp_path, {**pair("1.png", "1.txt"), "a.json": "{}"})
    with pytest.raises(SourceError, match=r"expected a folder, a data.yaml or an obj.data"):
        read(raw / "a.json")
    with pytest.raises(SourceError, match=r"no data.yaml or obj.data"):
        read(raw, root=tmp_path)
    assert read(write(tmp_path / "none", {"a.json": "{}"})).items == []


def test_corners_instead_of_centres_are_suspected(tmp_path):
    """Where every line could be two corners, and as centres boxes stick out of their pictures."""
    lines = "0 0.1 0.1 0.9 0.8\n0 0.2 0.1 0.7 0.9\n0 0.4 0.4 0.5 0.6\n"
    found = read(write(tmp_path / "a", pair("1.png", "1.txt", lines)))
    assert "2 of 3 boxes stick out of their pictures" in notes(found)
    found = read(write(tmp_path / "b", pair("1.png", "1.txt", "0 0.5 0.5 0.9 0.8\n" * 3)))
    assert "stick out" not in notes(found)


@pytest.mark.parametrize("separator", [",", ";", ", "])
def test_labels_with_separators_are_told_as_yolo(separator, tmp_path):
    """So that the message is about the separator, not about files of no known kind."""
    line = separator.join(("0", "0.5", "0.5", "0.25", "0.25"))
    raw = write(tmp_path, pair("images/1.png", "labels/1.txt", line))
    assert detect(raw, SourceOptions()).format == "yolo"
    assert "separated by" in read(raw).annotation_rejects[0].reason
