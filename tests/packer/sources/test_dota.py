"""DOTA: turned boxes in pixels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from packer.errors import SourceError
from packer.items.annotations import RawObject, unpack_annotations
from packer.items.raw_item import Scan
from packer.sources.dota import scan
from packer.sources.source import SourceOptions

LINE = "10 20 30 20 30 40 10 40 ship 1\n"


def write(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def objects(found: Scan) -> dict[str, list[RawObject]]:
    return {
        item.key.decode(): list(unpack_annotations(item.annotations).objects)
        for item in found.items
    }


def test_corners_class_and_difficulty(tmp_path):
    """Corners are pixels in the order of the line; the head of the file is no annotation."""
    text = "imagesource:GoogleEarth\ngsd:null\n" + LINE + "1 2 3 4 5 6 7 8 plane\n"
    files = {"train/images/a.png": "x", "train/labelTxt/a.txt": text}
    found = scan(write(tmp_path, {**files, "val/images/b.png": "x"}), SourceOptions())
    assert (found.format, found.classes, found.splits) == (
        "dota",
        ("plane", "ship"),
        ("train", "val"),
    )
    ship, plane = objects(found)["train/images/a.png"]
    assert (ship.label, ship.difficult, ship.box) == (1, True, None)
    assert (plane.label, plane.difficult) == (0, False)
    assert ship.place == "train/labelTxt/a.txt, line 3"
    assert not found.annotation_rejects
    assert np.frombuffer(ship.keypoints, "<f4").tolist() == [10, 20, 30, 20, 30, 40, 10, 40]
    assert not unpack_annotations(found.items[0].annotations).is_relative
    assert [(f.name, f.shape) for f in found.fields] == [
        ("boxes", (None, 4)),
        ("labels", (None,)),
        ("difficult", (None,)),
        ("corners", (None, 4, 2)),
        ("split", ()),
    ]
    assert "no label file: 1 picture, taken as background: 'val/images/b.png'" in found.notes
    assert any(note.startswith("split val has no label file at all") for note in found.notes)
    assert found.ignored.total == 0


@pytest.mark.parametrize(
    ("picture", "labels"),
    [
        ("images/a.png", "labelTxt/a.txt"),
        ("a.png", "labelTxt/a.txt"),
        ("train/images/a.png", "train/labelTxt-v1.5/a.txt"),
        ("train/images/a.png", "train/labelTxt-v1.0/labelTxt/a.txt"),
        ("images/train/a.png", "images/train/labelTxt/a.txt"),
    ],
)
def test_where_the_labels_lie(picture, labels, tmp_path):
    """Beside the folder of pictures, among them, or in a folder of the archive's name."""
    found = scan(write(tmp_path, {picture: "x", labels: LINE}), SourceOptions())
    assert [len(made) for made in objects(found).values()] == [1]
    assert found.ignored.total == 0


def test_classes_of_a_data_yaml_or_of_the_user(tmp_path):
    """Their order decides; a class that is not among them is rejected by name."""
    text = LINE + "1 2 3 4 5 6 7 8 plane 0\n"
    files = {"images/a.png": "x", "labelTxt/a.txt": text}
    raw = write(tmp_path, {**files, "data.yaml": "train: ../x\nnames: [ship, car]\n"})
    write(raw, {"README.txt": "x"})
    found = scan(raw, SourceOptions())
    assert found.classes == ("ship", "car")
    assert [o.label for o in objects(found)["images/a.png"]] == [0]
    assert [(r.path, r.reason) for r in found.annotation_rejects] == [
        ("labelTxt/a.txt, line 2", "class 'plane' is not one of the class names")
    ]
    assert found.notes[0].startswith("class names are from data.yaml; its paths are not read")
    assert found.ignored.examples == {"not a picture": ["README.txt"]}
    found = scan(raw, SourceOptions(classes=("plane",)))
    assert found.annotation_rejects[0].reason == "class 'ship' is not one of --classes"
    assert [o.label for o in objects(found)["images/a.png"]] == [0]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("1 2 3 4 ship 0", "6 values; expected 10"),
        ("1 2 3 4 5 6 7 nan ship 0", "value 8 is 'nan'; expected a number"),
        ("1 2 x 4 5 6 7 8 ship 0", "value 3 is 'x'"),
        ("1,2,3,4,5,6,7,8,ship,0", "the numbers are separated by commas; expected blanks"),
        ("1, 2, 3, 4, 5, 6, 7, 8, ship, 0", "the numbers are separated by commas"),
        ("1 2 3,5 4 5 6 7 8 ship 0", "value 3 is '3,5'; expected a number with a point"),
        ("1 2 3 4 5 6 7 8 small vehicle 0", "11 values"),
    ],
)
def test_bad_lines_are_rejected(line, words, tmp_path):
    """One by one, with their place; the others stay."""
    raw = write(tmp_path, {"images/a.png": "x", "labelTxt/a.txt": f"{LINE}{line}\n"})
    found = scan(raw, SourceOptions())
    assert len(objects(found)["images/a.png"]) == 1
    assert found.annotation_rejects[0].path == "labelTxt/a.txt, line 2"
    assert found.annotation_rejects[0].reason.startswith(words)


def test_no_labels_are_an_error(tmp_path):
    """That says where they were looked for."""
    with pytest.raises(SourceError, match=r"no picture has a label file; .*'labeltxt'"):
        scan(write(tmp_path, {"images/a.png": "x", "labels/a.txt": LINE}), SourceOptions())
