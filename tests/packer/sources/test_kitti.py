"""KITTI's boxes."""

from __future__ import annotations

from pathlib import Path

import pytest

from packer.errors import SourceError
from packer.items.annotations import RawObject, unpack_annotations
from packer.items.raw_item import Scan
from packer.sources.kitti import scan
from packer.sources.source import SourceOptions

CAR = "Car 0.25 1 1.85 387.63 181.54 423.81 203.12 1.67 1.87 3.69 -16.53 2.39 58.49 1.57\n"
VAN = "Van 0.00 0 -10 1 2 3 4 -1 -1 -1 -1000 -1000 -1000 -10 0.9\n"
REGION = "DontCare -1 -1 -10 503.89 169.71 590.61 190.13 -1 -1 -1 -1000 -1000 -1000 -10\n"


def write(root: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


def one(root: Path, text: str | bytes) -> Path:
    """A set of one picture."""
    return write(root, {"training/image_2/1.png": "x", "training/label_2/1.txt": text})


def objects(found: Scan) -> dict[str, list[RawObject]]:
    return {
        item.key.decode(): list(unpack_annotations(item.annotations).objects)
        for item in found.items
    }


def test_boxes_and_attributes(tmp_path):
    """The box as written, everything else as attributes, classes by code point."""
    found = scan(one(tmp_path, VAN + "\n" + CAR), SourceOptions())
    van, car = objects(found)["training/image_2/1.png"]
    assert (found.format, found.classes, found.splits) == ("kitti", ("Car", "Van"), ("training",))
    assert (car.label, car.box) == (0, (387.63, 181.54, 423.81, 203.12))
    assert car.place == "training/label_2/1.txt, line 3"
    assert car.attributes == {
        "truncated": 0.25,
        "occluded": 1,
        "alpha": 1.85,
        "dimensions": [1.67, 1.87, 3.69],
        "location": [-16.53, 2.39, 58.49],
        "rotation_y": 1.57,
    }
    assert (van.label, van.box, van.attributes["score"]) == (1, (1, 2, 3, 4), 0.9)
    assert [field.name for field in found.fields] == ["boxes", "labels", "attributes", "split"]
    assert found.fields[1].names == ("Car", "Van")
    assert not unpack_annotations(found.items[0].annotations).is_relative


def test_dont_care_is_no_class(tmp_path):
    """Its regions are rejected one by one and counted, unless it is asked for."""
    raw = one(tmp_path, CAR + REGION + REGION)
    found = scan(raw, SourceOptions())
    assert found.classes == ("Car",)
    assert len(objects(found)["training/image_2/1.png"]) == 1
    assert [(r.key, r.path) for r in found.annotation_rejects] == [
        (b"training/image_2/1.png", "training/label_2/1.txt, line 2"),
        (b"training/image_2/1.png", "training/label_2/1.txt, line 3"),
    ]
    assert all(r.reason.startswith("DontCare: ") for r in found.annotation_rejects)
    assert any(note.startswith("2 regions of DontCare left out") for note in found.notes)
    found = scan(raw, SourceOptions(classes=("DontCare", "Car")))
    assert [o.label for o in objects(found)["training/image_2/1.png"]] == [1, 0, 0]
    assert not found.annotation_rejects


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("Car 0 0 0 1 2 3 4", "8 values; expected 15, or 16 with a score"),
        (CAR.replace("387.63", "abc"), "value 5 is 'abc'; expected a number"),
        (CAR.replace("387.63", "nan"), "value 5 is 'nan'"),
        (CAR.replace("387.63", "387,63"), "value 5 is '387,63'; expected a number with a point"),
        (CAR.replace(" ", ","), "the numbers are separated by commas; expected blanks"),
        (CAR.replace(" ", "; "), "the numbers are separated by semicolons; expected blanks"),
        (CAR.replace("Car", "Person sitting"), "value 2 is 'sitting'; expected a number. A class"),
        (CAR.strip() + " 1 2", "17 values"),
    ],
)
def test_bad_lines_are_rejected(line, words, tmp_path):
    """One by one, with their place; the others stay."""
    found = scan(one(tmp_path, VAN + line), SourceOptions())
    assert len(objects(found)["training/image_2/1.png"]) == 1
    assert [r.path for r in found.annotation_rejects] == ["training/label_2/1.txt, line 2"]
    assert found.annotation_rejects[0].reason.startswith(words)


def test_everything_is_accounted_for(tmp_path):
    """Pictures without labels and the reverse, the other camera, and what is unreadable."""
    raw = one(tmp_path, CAR)
    write(
        raw,
        {
            "training/image_2/2.png": "x",
            "training/image_3/1.png": "x",
            "training/label_2/9.txt": CAR,
            "training/image_2/4.png": "x",
            "training/label_2/4.txt": CAR.encode("utf-16"),
            "training/image_2/5.png": "x",
            "training/image_2/5.jpg": "x",
            "training/label_2/5.txt": CAR,
            "testing/image_2/3.png": "x",
            "readme.txt": "x",
        },
    )
    found = scan(raw, SourceOptions())
    assert {key: len(made) for key, made in objects(found).items()} == {
        "testing/image_2/3.png": 0,
        "training/image_2/1.png": 1,
        "training/image_2/2.png": 0,
    }
    assert found.splits == ("training", "testing")
    assert [item.values["split"] for item in found.items] == [1, 0, 0]
    reasons = {reject.path: reject.reason for reject in found.rejects}
    assert sorted(reasons) == [f"training/image_2/{n}" for n in ("4.png", "5.jpg", "5.png")]
    assert "is not text" in reasons["training/image_2/4.png"]
    assert "several pictures fit" in reasons["training/image_2/5.jpg"]
    assert found.ignored.examples == {
        "outside of the folders of pictures": ["training/image_3/1.png"],
        "label file without a picture": ["training/label_2/9.txt"],
        "not a picture": ["readme.txt"],
    }
    notes = "\n".join(found.notes)
    assert "no label file: 2 pictures, taken as background" in notes
    assert "split testing has no label file at all" in notes
    assert "1 picture not packed, outside of the folders of pictures" in notes
    assert "1 file not packed, label file without a picture: 'training/label_2/9.txt'" in notes


def test_classes_of_the_user_decide(tmp_path):
    """Objects of other classes are rejected by name."""
    found = scan(one(tmp_path, CAR + VAN), SourceOptions(classes=("Tram", "Van")))
    assert found.classes == ("Tram", "Van")
    assert [o.label for o in objects(found)["training/image_2/1.png"]] == [1]
    assert [r.reason for r in found.annotation_rejects] == ["class 'Car' is not one of --classes"]


def test_no_labels_are_an_error(tmp_path):
    """That says where they were looked for."""
    raw = write(tmp_path, {"training/image_2/1.png": "x"})
    with pytest.raises(SourceError, match=r"no picture has a label file; .*'label_2'"):
        scan(raw, SourceOptions())
