"""WIDER FACE: a list of pictures and faces for each split."""

from __future__ import annotations

from pathlib import Path

import pytest

from packer.errors import SourceError
from packer.items.annotations import RawObject, unpack_annotations
from packer.items.raw_item import Scan
from packer.sources.source import SourceOptions
from packer.sources.wider import scan

TRAIN = "wider_face_split/wider_face_train_bbx_gt.txt"
FACE = "449 330 122 149 1 0 1 0 2 0\n"


def write(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def train(root: Path, text: str, *names: str) -> Scan:
    """A set with a list of the training split and pictures in it."""
    files = {f"WIDER_train/images/0--Parade/{name}.jpg": "x" for name in names}
    return scan(write(root, {**files, TRAIN: text}), SourceOptions())


def objects(found: Scan) -> dict[str, list[RawObject]]:
    return {
        item.key.decode(): list(unpack_annotations(item.annotations).objects)
        for item in found.items
    }


def test_faces_and_attributes(tmp_path):
    """Width and height become corners; items are in the order of the lists, train first."""
    text = f"0--Parade/b.jpg\n2\n{FACE}1 2 3 4 0 0 0 1 0 0\n0--Parade/a.jpg\n1\n{FACE}"
    files = {
        "WIDER_val/images/1--Shop/c.jpg": "x",
        "wider_face_split/wider_face_val_bbx_gt.txt": f"1--Shop/c.jpg\r\n1\r\n{FACE}",
        "wider_face_split/readme.txt": "x",
    }
    write(tmp_path, files)
    found = train(tmp_path, text, "a", "b")
    assert (found.format, found.classes, found.splits) == ("wider", ("face",), ("train", "val"))
    assert list(objects(found)) == [
        "WIDER_train/images/0--Parade/b.jpg",
        "WIDER_train/images/0--Parade/a.jpg",
        "WIDER_val/images/1--Shop/c.jpg",
    ]
    assert [item.values for item in found.items] == [{"split": 0}, {"split": 0}, {"split": 1}]
    first, second = objects(found)["WIDER_train/images/0--Parade/b.jpg"]
    assert (first.label, first.box) == (0, (449, 330, 571, 479))
    assert first.attributes == {
        "blur": 1,
        "expression": 0,
        "illumination": 1,
        "invalid": 0,
        "occlusion": 2,
        "pose": 0,
    }
    assert second.place == f"{TRAIN}, line 4"
    assert second.attributes["invalid"] == 1
    assert [field.name for field in found.fields] == ["boxes", "labels", "attributes", "split"]
    assert found.ignored.examples == {"not a picture": ["wider_face_split/readme.txt"]}


def test_no_face_is_a_count_of_zero_and_a_line_of_zeros(tmp_path):
    """The line is not a face; some copies of the lists leave it out."""
    text = (
        f"0--Parade/a.jpg\n0\n0 0 0 0 0 0 0 0 0 0 \n0--Parade/b.jpg\n0\n0--Parade/c.jpg\n1\n{FACE}"
    )
    found = train(tmp_path, text, "a", "b", "c")
    assert [len(made) for made in objects(found).values()] == [0, 0, 1]
    assert not found.rejects
    assert not found.annotation_rejects
    assert "without a face: 2 pictures" in found.notes


def test_a_wrong_count_costs_one_picture(tmp_path):
    """What it has is not known; the pictures after it are read as ever."""
    text = (
        f"0--Parade/a.jpg\n3\n{FACE}{FACE}0--Parade/b.jpg\n{FACE}0--Parade/c.jpg\n"
        f"0--Parade/d.jpg\n0\n{FACE}0--Parade/e.jpg\n1\n{FACE}"
    )
    found = train(tmp_path, text, "a", "b", "c", "d", "e")
    assert list(objects(found)) == ["WIDER_train/images/0--Parade/e.jpg"]
    assert [(r.path, r.reason) for r in found.rejects] == [
        (f"{TRAIN}, line 1", "3 faces announced, but 2 lines follow"),
        (f"{TRAIN}, line 5", f"line 6 is '{FACE.strip()}'; expected the number of faces"),
        (f"{TRAIN}, line 7", "no number of faces follows"),
        (f"{TRAIN}, line 8", "0 faces announced, but 1 line follow"),
    ]
    assert found.ignored.total == 0


def test_a_bad_face_costs_one_annotation(tmp_path):
    """It is named with its line, and the picture is kept."""
    text = f"0--Parade/a.jpg\n3\n1 2 3\n{FACE}1 2 x 4 0 0 0 0 0 0\n"
    found = train(tmp_path, text, "a")
    assert [len(made) for made in objects(found).values()] == [1]
    assert [(r.path, r.reason[:24]) for r in found.annotation_rejects] == [
        (f"{TRAIN}, line 3", "3 values; expected 10: x"),
        (f"{TRAIN}, line 5", "value 3 is 'x'; expected"),
    ]


def test_pictures_and_names_that_do_not_match(tmp_path):
    """Missing and repeated ones are rejects, unnamed ones are ignored with a note."""
    text = f"0--Parade/a.jpg\n1\n{FACE}0--Parade/gone.jpg\n1\n{FACE}0--Parade/a.jpg\n1\n{FACE}"
    text += f"../../../etc/x.jpg\n1\n{FACE}"
    found = train(tmp_path, text, "a", "more")
    assert list(objects(found)) == ["WIDER_train/images/0--Parade/a.jpg"]
    assert [r.path for r in found.rejects] == [f"{TRAIN}, line {n}" for n in (4, 7, 10)]
    assert "'0--Parade/gone.jpg'; looked under WIDER_train/images/" in found.rejects[0].reason
    assert found.rejects[1].reason == "WIDER_train/images/0--Parade/a.jpg is listed twice"
    assert found.ignored.examples == {
        "not named by the annotations": ["WIDER_train/images/0--Parade/more.jpg"]
    }
    assert "1 picture not packed, not named by the annotations" in found.notes[-1]


def test_what_is_no_list(tmp_path):
    """No list, two of one split, one that begins with something else, more than one class."""
    with pytest.raises(SourceError, match=r"no list of faces; expected wider_face_split/"):
        scan(write(tmp_path, {"a.jpg": "x"}), SourceOptions())
    with pytest.raises(
        SourceError, match=r"train_bbx_gt.txt, line 1: found '3'; expected the path"
    ):
        train(tmp_path, "3\n", "a")
    write(tmp_path, {TRAIN: f"0--Parade/a.jpg\n1\n{FACE}"})
    assert scan(tmp_path, SourceOptions(classes=("head",))).classes == ("head",)
    with pytest.raises(SourceError, match=r"has one class, 'face'; --classes names 2"):
        scan(tmp_path, SourceOptions(classes=("head", "tail")))
    write(tmp_path, {"wider_face_train_bbx_gt.txt": "x"})
    with pytest.raises(SourceError, match=r"are both lists of split 'train'"):
        scan(tmp_path, SourceOptions())
