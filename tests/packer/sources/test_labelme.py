"""LabelMe: JSON beside pictures, and the XML of the old web tool."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from packer.errors import SourceError
from packer.items.annotations import Annotations, object_fields, unpack_annotations
from packer.items.raw_item import Reject, Scan
from packer.sources import labelme
from packer.sources.sidecars import NO_PICTURE_HERE
from packer.sources.source import SourceOptions

TRIANGLE = [[1.5, 2.0], [9.0, 2.0], [5.0, 8.25]]


def shape(label: Any = "cup", points: Any = TRIANGLE, **more: Any) -> dict[str, Any]:
    return {"label": label, "points": points, "shape_type": "polygon", **more}


def document(*shapes: Any, **more: Any) -> str:
    content = {"version": "5.4", "flags": {}, "shapes": shapes, "imagePath": "other.png", **more}
    return json.dumps(content)


def write(root: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def scan(root: Path, **options: Any) -> Scan:
    return labelme.scan(root, SourceOptions(**options))


def annotations(found: Scan) -> dict[str, Annotations]:
    return {item.key.decode(): unpack_annotations(item.annotations) for item in found.items}


def points_of(data: bytes) -> list[list[float]]:
    points: list[list[float]] = np.frombuffer(data, "<f8").reshape(-1, 2).tolist()
    return points


def test_polygons_and_rectangles_keep_their_numbers(tmp_path):
    """A rectangle's corners come in the order in which they were drawn; points are not rounded."""
    content = document(
        shape(),
        shape("bat", [[9.5, 8], [1, 2.25]], shape_type="rectangle"),
        shape("ant", [[1, 2], [5, 2], [5, 4], [1, 4]], shape_type="rectangle"),
        imageWidth=40,
        imageHeight=30,
    )
    found = scan(write(tmp_path, {"1.json": content, "1.jpg": b"x"}))
    assert found.classes == ("ant", "bat", "cup")
    packed = annotations(found)["1.jpg"]
    assert packed.size == (40, 30)
    cup, bat, ant = packed.objects
    assert (cup.label, cup.box, cup.place) == (2, None, "1.json, shape 1")
    assert [points_of(polygon) for polygon in cup.polygons] == [TRIANGLE]
    assert (bat.label, bat.box, bat.polygons) == (1, (1, 2.25, 9.5, 8), ())
    assert (ant.label, ant.box) == (0, (1, 2, 5, 4))
    assert found.fields == object_fields(found.classes, ("boxes", "labels", "masks"))
    assert (found.rejects, found.annotation_rejects, found.ignored.total) == ([], [], 0)


def test_a_circle_is_its_bounds_and_a_polygon_as_good_as_round(tmp_path):
    """Its centre and a point on it are given; no point of the outline is off by a quarter pixel."""
    content = document(shape(points=[[500, 400], [800, 800]], shape_type="circle"))
    found = scan(write(tmp_path, {"1.json": content, "1.jpg": b"x"}))
    (circle,) = annotations(found)["1.jpg"].objects
    assert circle.box == pytest.approx((0, -100, 1000, 900))
    assert circle.attributes == {"shape": "circle"}
    points = np.array(points_of(circle.polygons[0])) - (500, 400)
    assert np.hypot(*points.T) == pytest.approx(np.full(len(points), 500.0))
    middles = (points + np.roll(points, 1, axis=0)) / 2
    assert np.hypot(*middles.T).min() > 499.75


def test_group_flags_and_description_are_attributes(tmp_path):
    """As far as they say something."""
    content = document(
        shape(group_id=0, flags={"blurred": True}, description="by hand"),
        shape(group_id=None, flags={}, description=""),
    )
    found = scan(write(tmp_path, {"1.json": content, "1.jpg": b"x"}))
    assert [o.attributes for o in annotations(found)["1.jpg"].objects] == [
        {"group_id": 0, "flags": {"blurred": True}, "description": "by hand"},
        {},
    ]
    assert found.fields[-1].name == "attributes"


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (shape(points=[[1, 2]], shape_type="point"), "a point has no area"),
        (shape(points=[[1, 2], [3, 4]], shape_type="line"), "a line has no area"),
        (shape(shape_type="linestrip"), "a linestrip has no area"),
        (shape(shape_type="cube"), "shape type 'cube' is not read; expected polygon, rect"),
        (shape(shape_type="mask"), "a mask of 3 points, expected its first and last pixel"),
        (shape(shape_type="rotation"), "a turned rectangle of 3 points, expected its 4 corners"),
        (shape(shape_type=["x"]), "shape type ['x'], expected polygon"),
        (shape(points=[[1, 2], [3, 4]]), "a polygon of 2 points, expected at least 3"),
        (shape(points=[[1, 2]], shape_type="rectangle"), "a rectangle of 1 points, expected 2"),
        (shape(points=[[1, 2]] * 3, shape_type="circle"), "a circle of 3 points, expected its"),
        (shape(points=[[1, 2], [3, 4], [5]]), "point [5], expected [x, y]"),
        (shape(points=[[1, 2], [3, 4], [5, "6"]]), "point [5, '6'], expected two numbers"),
        (shape(points=[[1, 2], [3, 4], [5, float("nan")]]), "point [5, nan], expected two"),
        (shape(points=[[1, 2], [3, 4], [5, float("inf")]]), "point [5, inf], expected two"),
        (shape(points=[[1, 2], [3, 4], [5, 10**400]]), "expected two numbers of pixels"),
        (shape(points=[[1, 2], [3, 4], [5, True]]), "point [5, True], expected two"),
        (shape(points={"x": 1}), "points {'x': 1}, expected a list"),
        (shape(label=None), "label None, expected the name of a class"),
        (shape(label="  "), "label '  ', expected the name of a class"),
        (shape(label="\ud800"), "cannot be stored"),
        ([1, 2], "[1, 2], expected a shape with label and points"),
    ],
)
def test_a_shape_that_cannot_be_packed_is_rejected_alone(tmp_path, bad, reason):
    """With the file, its number and what was expected."""
    found = scan(write(tmp_path, {"a/1.json": document(bad, shape()), "a/1.jpg": b"x"}))
    assert [o.place for o in annotations(found)["a/1.jpg"].objects] == ["a/1.json, shape 2"]
    (reject,) = found.annotation_rejects
    assert (reject.key, reject.path) == (b"a/1.jpg", "a/1.json, shape 1")
    assert reason in reject.reason


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{", "not JSON"),
        (b"", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        ('{"shapes": [], "a": "\u4e2d"}'.encode("gbk"), "not UTF-8"),
        (b"[1]", "no list of `shapes`"),
        (b'{"shapes": {}}', "no list of `shapes`"),
    ],
)
def test_a_picture_whose_file_cannot_be_read_is_rejected(tmp_path, content, reason):
    """It is not taken for a picture without objects."""
    files = {"1.json": content, "1.jpg": b"x", "2.json": document(shape()), "2.jpg": b"x"}
    found = scan(write(tmp_path, files))
    assert list(annotations(found)) == ["2.jpg"]
    assert [(r.key, r.path) for r in found.rejects] == [(b"1.jpg", "1.json")]
    assert reason in found.rejects[0].reason


def test_a_mark_before_the_json_and_odd_sizes_harm_nothing(tmp_path):
    """A size that is no size leaves the picture's own."""
    content = "\ufeff" + document(shape(), imageWidth=0, imageHeight="30")
    found = scan(write(tmp_path, {"1.json": content, "1.jpg": b"x"}))
    packed = annotations(found)["1.jpg"]
    assert (packed.size, len(packed.objects)) == (None, 1)


def test_a_file_without_its_picture_is_rejected(tmp_path):
    """`imagePath` is of another machine and not used; a picture inside of the file is said."""
    files = {
        "1.json": document(shape(), imagePath="2.jpg"),
        "2.json": document(shape(), imagePath="1.jpg"),
        "2.jpg": b"x",
        "3.json": document(imageData="aGVsbG8="),
        "other.json": '{"info": 1}',
    }
    found = scan(write(tmp_path, files))
    assert list(annotations(found)) == ["2.jpg"]
    expected = "annotations of {} without a picture: expected {}.jpg, .png or the like; looked in"
    first, third = found.rejects
    assert first == Reject(key=b"", path="1.json", reason=expected.format("1 object", 1) + " './'")
    assert third.reason.startswith(expected.format("0 objects", 3))
    assert "inside of the file (imageData)" in third.reason
    assert found.ignored.counts == {labelme.OTHER_FILE: 1}


def test_pictures_without_a_file_have_no_objects(tmp_path):
    """Beside others that have one; elsewhere they are ignored, and both are said."""
    files = {"a/1.json": document(shape()), "a/1.jpg": b"x", "a/2.jpg": b"x", "b/3.jpg": b"x"}
    found = scan(write(tmp_path, files))
    assert {key: len(packed.objects) for key, packed in annotations(found).items()} == {
        "a/1.jpg": 1,
        "a/2.jpg": 0,
    }
    assert found.ignored.counts == {NO_PICTURE_HERE: 1}
    assert [note.split(":")[0] for note in found.notes] == [
        "1 picture without a file of LabelMe",
        "1 picture not packed, lies in a folder where no picture has annotations",
    ]
    assert found.notes[1].endswith(": 'b/3.jpg'")


def test_folders_of_splits_and_given_classes(tmp_path):
    """An object of another class than those given is rejected by name."""
    files = {"train/1.json": document(shape(), shape("bat")), "train/1.jpg": b"x"}
    files |= {"annotations/val/2.json": document(shape("bat")), "images/val/2.jpg": "x"}
    found = scan(write(tmp_path, files), classes=("bat",))
    assert {item.key: found.splits[item.values["split"]] for item in found.items} == {
        b"images/val/2.jpg": "val",
        b"train/1.jpg": "train",
    }
    assert [(r.path, r.reason) for r in found.annotation_rejects] == [
        ("train/1.json, shape 1", "class 'cup' is not one of --classes")
    ]


def test_no_pair_at_all_is_an_error(tmp_path):
    """It says what was looked for."""
    with pytest.raises(SourceError, match="no JSON or XML file; expected one of LabelMe"):
        scan(write(tmp_path, {"1.jpg": b"x"}))
    with pytest.raises(SourceError, match=r"such as 2\.json, and no picture of the same name"):
        scan(write(tmp_path, {"2.json": document(shape())}))


def points_xml(points: list[tuple[float, float]]) -> str:
    return "".join(f"<pt><x>{x}</x><y>{y}</y></pt>" for x, y in points)


SQUARE = points_xml([(13, 19), (23, 19), (23, 30), (13, 30)])
SIZE = "<imagesize><nrows>77</nrows><ncols>102</ncols></imagesize>"
OLD = f"""<annotation><filename>x.png</filename>{SIZE}
<object><name> window
</name><deleted>0</deleted><occluded>yes</occluded><attributes>open</attributes>
<polygon><username>a</username>{SQUARE}</polygon></object>
<object><name>gone</name><deleted>1</deleted><polygon>{SQUARE}</polygon></object>
<object><name>door</name><type>bounding_box</type><occluded>no</occluded><attributes/>
<polygon>{SQUARE}</polygon></object>
<object><name>plate</name><segm><box><xmin>58</xmin><ymin>66</ymin><xmax>62</xmax><ymax>68</ymax>
</box><mask>1_mask_3.png</mask></segm></object>
<object><name>line</name><polygon>{points_xml([(1, 2), (3, 4)])}</polygon></object>
<object><name>odd</name><polygon>{SQUARE}<pt><x>z</x><y>1</y></pt></polygon></object>
<object><name></name><polygon>{SQUARE}</polygon></object>
<object><name>bare</name><date>today</date></object>
</annotation>"""


def test_the_old_xml_form_is_read(tmp_path):
    """Polygons, boxes, masks as boxes; deleted objects are skipped and counted."""
    files = {"Annotations/s/1.xml": OLD, "Images/s/1.png": "x", "Masks/s/1_mask_3.png": "x"}
    found = scan(write(tmp_path, files))
    assert found.classes == ("door", "plate", "window")
    packed = annotations(found)["Images/s/1.png"]
    assert packed.size == (102, 77)
    window, door, plate = packed.objects
    assert window.place == "Annotations/s/1.xml, object 1"
    assert points_of(window.polygons[0]) == [[13, 19], [23, 19], [23, 30], [13, 30]]
    assert window.attributes == {"occluded": True, "attributes": "open"}
    assert (door.box, door.polygons, door.attributes) == (
        (13, 19, 23, 30),
        (),
        {"occluded": False},
    )
    assert (plate.box, plate.polygons) == ((58, 66, 62, 68), ())
    place = "Annotations/s/1.xml, object "
    assert [(r.path, r.reason) for r in found.annotation_rejects] == [
        (place + "5", "a polygon of 2 points, expected at least 3"),
        (place + "6", "<x> 'z', expected a number of pixels"),
        (place + "7", "no class: <name> is missing or empty"),
        (place + "8", "no outline: found <name>, <date>; expected <polygon> or <segm>"),
    ]
    assert found.ignored.counts == {NO_PICTURE_HERE: 1}
    assert found.notes[:2] == [
        "1 object marked as deleted in the tool: not packed",
        "1 object with a mask file for an outline: packed without it, with box or polygon",
    ]
