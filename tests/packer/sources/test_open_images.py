"""Open Images."""

from __future__ import annotations

from pathlib import Path

import pytest

from packer.errors import SourceError
from packer.items.annotations import RawObject, object_fields, unpack_annotations
from packer.items.raw_item import Scan
from packer.sources.lists.open_images import scan
from packer.sources.source import SourceOptions

HEADER = (
    "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,"
    "IsOccluded,IsTruncated,IsGroupOf,IsDepiction,IsInside\n"
)


def write_set(folder: Path, texts: dict[str, str], *pictures: str) -> Path:
    for name, text in {**texts, **dict.fromkeys(pictures, "x")}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def objects(found: Scan) -> dict[str, tuple[RawObject, ...]]:
    return {i.key.decode(): unpack_annotations(i.annotations).objects for i in found.items}


def annotation_reasons(found: Scan) -> dict[str, str]:
    return {reject.path: reject.reason for reject in found.annotation_rejects}


def test_boxes_classes_splits_and_flags(tmp_path):
    """XMin, XMax, YMin, YMax are shares of the sides; classes are called by their display names."""
    write_set(
        tmp_path,
        {
            "annotations/train-annotations-bbox.csv": HEADER
            + "a,xclick,/m/2,1,0.1,0.5,0.2,1,1,0,1,0,-1\na,xclick,/m/1,1,0,1,0,1,0,1,0,0,0\n",
            "annotations/validation-annotations-bbox.csv": HEADER
            + "b,xclick,/m/1,1,0,0.5,0,0.25,0,0,0,0,0\n",
            "annotations/class-descriptions-boxable.csv": "/m/2,Dog\n/m/1,Cat\n/m/3,Bird\n",
            "hierarchy.json": "{}",
        },
        "images/train/a.jpg",
        "images/validation/b.PNG",
    )
    found = scan(tmp_path, SourceOptions())
    assert found.classes == ("Dog", "Cat", "Bird")
    assert found.splits == ("train", "validation")
    assert [(i.key, i.values) for i in found.items] == [
        (b"images/train/a.jpg", {"split": 0}),
        (b"images/validation/b.PNG", {"split": 1}),
    ]
    assert unpack_annotations(found.items[0].annotations).is_relative
    first, second = objects(found)["images/train/a.jpg"]
    assert first.box == (0.1, 0.2, 0.5, 1.0)
    assert first.place == "annotations/train-annotations-bbox.csv, line 2"
    assert (first.label, first.iscrowd, first.truncated) == (0, True, False)
    assert first.attributes == {
        "IsOccluded": 1,
        "IsTruncated": 0,
        "IsGroupOf": 1,
        "IsDepiction": 0,
        "IsInside": -1,
    }
    assert (second.label, second.iscrowd, second.truncated) == (1, False, True)
    names = ("boxes", "labels", "iscrowd", "truncated", "attributes")
    assert found.fields[:5] == object_fields(found.classes, names)
    assert found.ignored.counts == {"not a picture": 1}
    assert not found.rejects
    assert not found.annotation_rejects


def test_rows_that_cannot_be_used_are_rejects(tmp_path):
    """A missing picture is rejected once, with each of its boxes; others lose the row alone."""
    header = "ImageID,LabelName,XMin,XMax,YMin,YMax,IsGroupOf\n"
    write_set(
        tmp_path,
        {
            "train-annotations-bbox.csv": header
            + "a,/m/1,0,1,0,1,0\na,/m/9,0,1,0,1,0\na,/m/1,0,1.5,0,1,0\na,/m/1,0,x,0,1,0\n"
            + "a,/m/1,0,1,0,1,2\na,/m/1\ngone,/m/1,0,1,0,1,0\ngone,/m/1,0,1,0,1,0\n"
            + "two,/m/1,0,1,0,1,0\n",
            "class-descriptions.csv": "LabelName,DisplayName\n/m/1,Cat\n",
        },
        "a.jpg",
        "x/two.jpg",
        "y/two.png",
    )
    found = scan(tmp_path, SourceOptions())
    assert {key: len(inner) for key, inner in objects(found).items()} == {"a.jpg": 2}
    place = "train-annotations-bbox.csv, line"
    assert annotation_reasons(found) == {
        f"{place} 3": "class '/m/9' is not one of the class names",
        f"{place} 4": "box ['0', '0', '1.5', '1']; expected shares of the picture's sides, at most "
        "1",
        f"{place} 5": "box ['0', '0', 'x', '1']; expected four numbers",
        f"{place} 6, attributes": "IsGroupOf is '2'; expected 1, 0 or -1. It is left out",
        f"{place} 7": "has 2 columns; the header has 7",
        f"{place} 8": "its picture was rejected",
        f"{place} 9": "its picture was rejected",
        f"{place} 10": "its picture was rejected",
    }
    assert [(r.key, r.path) for r in found.rejects] == [
        (b"gone", f"{place} 8"),
        (b"two", f"{place} 10"),
    ]
    assert "several pictures fit: x/two.jpg, y/two.png" in found.rejects[1].reason
    assert found.splits == ("train",)


def test_pictures_named_without_boxes_are_background(tmp_path):
    """Files of ids and of image-level labels name pictures too; others are ignored, and counted."""
    write_set(
        tmp_path,
        {
            "bbox.csv": HEADER + "a,x,/m/1,1,0,1,0,1,0,0,0,0,0\n",
            "imagelabels.csv": "ImageID,Source,LabelName,Confidence\nb,v,/m/1,1\nq,v,/m/1,1\n",
            "image_ids_and_rotation.csv": "ImageID,Subset,Rotation\nc,test,0\na,train,0\n",
            "segments.csv": "MaskPath,ImageID,LabelName\na_m01_0123abcd.png,a,/m/1\n",
        },
        "train/a.jpg",
        "train/b.jpg",
        "c.jpg",
        "train/d.jpg",
        "masks/a_m01_0123abcd.png",
    )
    found = scan(tmp_path, SourceOptions())
    assert {key: len(inner) for key, inner in objects(found).items()} == {
        "c.jpg": 0,
        "train/a.jpg": 1,
        "train/b.jpg": 0,
    }
    assert [found.splits[item.values["split"]] for item in found.items] == [
        "test",
        "train",
        "train",
    ]
    assert found.classes == ("/m/1",)
    assert found.ignored.counts == {
        "not named by the annotations": 1,
        "mask of a segment, which this source does not read": 1,
        "annotation file without boxes": 1,
    }
    assert "image-level labels left aside: imagelabels.csv" in found.notes
    assert "2 pictures named by other files and without boxes: background" in found.notes
    assert "1 row without boxes are about pictures that are not here" in found.notes


def test_of_two_pictures_the_one_of_the_split_is_taken(tmp_path):
    """An id may be in several splits of a set that was put together by hand."""
    row = "a,x,/m/1,1,0,1,0,1,0,0,0,0,0\n"
    write_set(
        tmp_path,
        {"train-annotations-bbox.csv": HEADER + row, "val-annotations-bbox.csv": HEADER + row},
        "train/a.jpg",
        "val/a.jpg",
    )
    found = scan(tmp_path, SourceOptions())
    assert {key: len(inner) for key, inner in objects(found).items()} == {
        "train/a.jpg": 1,
        "val/a.jpg": 1,
    }


def test_classes_may_be_given_by_name_or_mid(tmp_path):
    """A name that two MIDs share is told apart; boxes of other classes are rejects."""
    texts = {
        "bbox.csv": HEADER + "a,x,/m/1,1,0,1,0,1,0,0,0,0,0\na,x,/m/2,1,0,1,0,1,0,0,0,0,0\n",
        "class-descriptions.csv": "/m/1,Crane\n/m/2,Crane\n/m/3,Cat\n",
    }
    write_set(tmp_path, texts, "a.jpg")
    assert scan(tmp_path, SourceOptions()).classes == ("Crane (/m/1)", "Crane (/m/2)", "Cat")
    found = scan(tmp_path, SourceOptions(classes=("/m/2",)))
    assert [o.label for o in objects(found)["a.jpg"]] == [0]
    assert annotation_reasons(found) == {
        "bbox.csv, line 2": "class 'Crane (/m/1)' is not one of --classes"
    }


def test_what_is_not_open_images_is_refused(tmp_path):
    """The message says what was looked for."""
    write_set(tmp_path, {"a.csv": "path,label\na.jpg,x\n"}, "a.jpg")
    with pytest.raises(SourceError, match=r"no Open Images boxes found; expected a \.csv file"):
        scan(tmp_path, SourceOptions())
    write_set(tmp_path, {"bbox.csv": HEADER + "b,x,/m/1,1,0,1,0,1,0,0,0,0,0\n"})
    with pytest.raises(SourceError, match=r"none of the pictures that bbox\.csv names is there"):
        scan(tmp_path, SourceOptions())
