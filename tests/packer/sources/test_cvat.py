"""CVAT's XML dumps: of images, and of the frames of a video."""

from __future__ import annotations

import math
from itertools import groupby
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from packer.errors import SourceError
from packer.items.annotations import Annotations, object_fields, unpack_annotations
from packer.items.raw_item import Reject, Scan
from packer.sources import cvat
from packer.sources.cvat.shapes import read_shape
from packer.sources.source import SourceOptions
from packer.sources.splits import split_field
from readers.store.schema import Field

BOX = '<box label="cup" xtl="1.5" ytl="2" xbr="9" ybr="8.25" occluded="0"/>'


def meta(*labels: str, more: str = "") -> str:
    inner = "".join(f"<label><name>{label}</name></label>" for label in labels)
    return f"<version>1.1</version><meta><task>{more}<labels>{inner}</labels></task></meta>"


def image(name: str, *shapes: str, more: str = "") -> str:
    return f'<image id="0" name="{name}" width="40" height="30"{more}>{"".join(shapes)}</image>'


def write(root: Path, files: dict[str, str | bytes]) -> Path:
    """Files by name: a dump of the elements given, or whatever bytes."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".xml") and isinstance(content, str):
            content = f"<annotations>{content}</annotations>"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def scan(root: Path, **options: Any) -> Scan:
    return cvat.scan(root, SourceOptions(**options))


def annotations(found: Scan) -> dict[str, Annotations]:
    return {item.key.decode(): unpack_annotations(item.annotations) for item in found.items}


def one(tmp_path: Path, *shapes: str) -> Scan:
    dump = meta("cup", "bat") + image("1.png", *shapes)
    return scan(write(tmp_path, {"a.xml": dump, "1.png": b"x"}))


def test_boxes_and_polygons_keep_their_numbers(tmp_path):
    """Labels are in the order of the dump's own list, also those that nothing has."""
    polygon = '<polygon label="bat" points="1.5,2;3,4.25;6,5" occluded="1" group_id="7"/>'
    dump = meta("zebra", "cup", "bat") + image("1.png", BOX, polygon) + image("2.png")
    found = scan(write(tmp_path, {"a.xml": dump, "1.png": b"x", "2.png": b"x", "3.png": b"x"}))
    assert found.classes == ("zebra", "cup", "bat")
    packed = annotations(found)
    assert list(packed) == ["1.png", "2.png"]
    assert (packed["1.png"].size, packed["2.png"].objects) == ((40, 30), ())
    cup, bat = packed["1.png"].objects
    assert (cup.label, cup.box, cup.attributes) == (1, (1.5, 2, 9, 8.25), {})
    assert cup.place == "a.xml, image '1.png', box 1"
    assert (bat.label, bat.box) == (2, None)
    assert np.frombuffer(bat.polygons[0], "<f8").tolist() == [1.5, 2, 3, 4.25, 6, 5]
    assert bat.attributes == {"occluded": True, "group_id": "7"}
    names = ("boxes", "labels", "masks", "attributes")
    assert found.fields == object_fields(found.classes, names)
    assert found.ignored.counts == {cvat.NOT_NAMED: 1}
    assert found.notes == ["1 picture not packed, not named by the annotations: '3.png'"]


def test_attributes_are_text_as_written(tmp_path):
    """CVAT writes numbers and checkboxes as text too."""
    inner = '<attribute name="side">left </attribute><attribute name="n">007</attribute>'
    found = one(tmp_path, BOX.replace("/>", f">{inner}</box>"))
    (cup,) = annotations(found)["1.png"].objects
    assert cup.attributes == {"side": "left", "n": "007"}


def test_a_turned_box_has_its_upright_bounds(tmp_path):
    """Its numbers are those before it is turned about its middle."""
    turned = '<box label="cup" xtl="10" ytl="10" xbr="20" ybr="14" rotation="{}"/>'
    found = one(tmp_path, turned.format("90.0"), turned.format("45"), turned.format("0.0"))
    quarter, eighth, none = annotations(found)["1.png"].objects
    assert quarter.box == pytest.approx((13, 7, 17, 17))
    side = 7 / math.sqrt(2)
    assert eighth.box == pytest.approx((15 - side, 12 - side, 15 + side, 12 + side))
    assert none.box == (10, 10, 20, 14)
    assert [o.attributes for o in (quarter, eighth, none)] == [
        {"rotation": 90.0},
        {"rotation": 45.0},
        {},
    ]


def test_an_ellipse_is_its_bounds_and_a_polygon(tmp_path):
    """Also when it is turned."""
    found = one(tmp_path, '<ellipse label="cup" cx="20" cy="15" rx="8" ry="3" rotation="90"/>')
    (cup,) = annotations(found)["1.png"].objects
    assert cup.box == pytest.approx((17, 7, 23, 23))
    x, y = (np.frombuffer(cup.polygons[0], "<f8").reshape(-1, 2) - (20, 15)).T
    assert (x / 3) ** 2 + (y / 8) ** 2 == pytest.approx(np.ones(len(x)))
    assert cup.attributes == {"shape": "ellipse"}


def test_a_mask_becomes_runs_over_the_columns_of_the_picture(tmp_path):
    """CVAT counts the rows of a part of it; drawn again, the same pixels are set."""
    expected = np.zeros((30, 40), np.uint8)
    expected[27:30, 35:38] = [[1, 1, 0], [0, 1, 1], [0, 1, 0]]
    mask = '<mask label="cup" rle="0, 2, 2, 2, 1, 1, 1" left="35" top="27" width="3" height="3"/>'
    found = one(tmp_path, mask)
    (cup,) = annotations(found)["1.png"].objects
    runs = np.frombuffer(cup.runs, "<u4")
    values = np.repeat(np.arange(len(runs)) % 2, runs)
    assert np.array_equal(values.reshape(40, 30).T, expected)
    assert cup.box == (35, 27, 38, 30)
    assert found.fields[2].name == "masks"


@given(st.data())
def test_any_mask_of_cvat_is_drawn_again_pixel_by_pixel(data):
    """Whatever its pixels, and wherever in the picture its part lies."""
    height, width = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 5))
    left, top = data.draw(st.integers(0, 3)), data.draw(st.integers(0, 3))
    size = (
        left + width + data.draw(st.integers(0, 2)),
        top + height + data.draw(st.integers(0, 2)),
    )
    pixels = data.draw(st.lists(st.booleans(), min_size=height * width, max_size=height * width))
    assume(any(pixels))
    rle = [0] if pixels[0] else []
    rle += [len(list(run)) for _, run in groupby(pixels)]
    attributes = {"left": left, "top": top, "width": width, "height": height}
    element = Element("mask", {name: str(value) for name, value in attributes.items()})
    element.set("rle", ", ".join(map(str, rle)))
    found = read_shape(element, "cup", size, "here", {}, []).object
    runs = np.frombuffer(found.runs, "<u4")
    drawn = np.repeat(np.arange(len(runs)) % 2, runs).reshape(size).T
    expected = np.zeros((size[1], size[0]), int)
    expected[top : top + height, left : left + width] = np.reshape(pixels, (height, width))
    assert np.array_equal(drawn, expected)
    ys, xs = np.nonzero(expected)
    assert found.box == (xs.min(), ys.min(), xs.max() + 1, ys.max() + 1)


def test_columns_that_touch_are_one_run(tmp_path):
    """The last pixel of a column and the first of the next follow each other."""
    mask = '<mask label="cup" rle="0, 60" left="3" top="0" width="2" height="30"/>'
    (cup,) = annotations(one(tmp_path, mask))["1.png"].objects
    assert np.frombuffer(cup.runs, "<u4").tolist() == [90, 60, 1050]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ('<points label="cup" points="1,2"/>', "a <points> is not packed"),
        ('<polyline label="cup" points="1,2;3,4"/>', "a <polyline> is not packed"),
        ('<skeleton label="cup"/>', "a <skeleton> is not packed"),
        ('<cuboid label="cup"/>', "a <cuboid> is not packed"),
        ('<polygon label="" points="1,2;3,4;6,5"/>', "no label; expected the name of a class"),
        ('<polygon label="cup" points="1,2;3,4"/>', "a polygon of 2 points, expected at least 3"),
        ('<polygon label="cup" points="1,2;3;6,5"/>', "points '1,2;3;6,5', expected x,y;x,y"),
        ('<polygon label="cup" points="1,2;3,4;nan,5"/>', "not a finite number of pixels"),
        ('<polygon label="cup"/>', "points '', expected x,y;x,y"),
        ('<box label="cup" xtl="x" ytl="2" xbr="3" ybr="4"/>', "xtl 'x', expected a number"),
        ('<box label="cup" xtl="1" ytl="2" xbr="3"/>', "ybr None, expected a number"),
        ('<box label="cup" xtl="1" ytl="2" xbr="inf" ybr="4"/>', "xbr 'inf', expected a number"),
        (
            '<mask label="cup" rle="0,4" left="39" top="0" width="2" height="2"/>',
            "a mask of 2x2 at 39, 0, expected inside of 40x30",
        ),
        (
            '<mask label="cup" rle="4" left="0" top="0" width="2" height="2"/>',
            "a mask without a pixel",
        ),
    ],
)
def test_a_shape_that_cannot_be_packed_is_rejected_alone(tmp_path, bad, reason):
    """With its place and what was expected; the others of the picture stay."""
    found = one(tmp_path, bad, BOX)
    assert len(annotations(found)["1.png"].objects) == 1
    (reject,) = found.annotation_rejects
    assert reject.key == b"1.png"
    assert reject.path.startswith("a.xml, image '1.png', ")
    assert reject.path.endswith(" 1")
    assert reason in reject.reason


def test_a_label_that_the_dump_does_not_declare_is_rejected(tmp_path):
    """By name; without a declaration the labels are those that are used, sorted."""
    other = BOX.replace("cup", "zebra")
    found = one(tmp_path, other, BOX)
    assert [(r.path, r.reason) for r in found.annotation_rejects] == [
        ("a.xml, image '1.png', box 1", "class 'zebra' is not one of the class names")
    ]
    found = scan(write(tmp_path, {"a.xml": image("1.png", other, BOX)}))
    assert found.classes == ("cup", "zebra")
    assert [o.label for o in annotations(found)["1.png"].objects] == [1, 0]
    assert scan(tmp_path, classes=("zebra",)).classes == ("zebra",)


def test_points_of_skeletons_are_no_classes(tmp_path):
    """They stand among the labels, with the one that they are part of."""
    labels = "<label><name>1</name><parent>person</parent></label>"
    dump = meta("person").replace("</labels>", labels + "</labels>") + image("1.png")
    assert scan(write(tmp_path, {"a.xml": dump, "1.png": b"x"})).classes == ("person",)


def test_labels_of_whole_images_are_tags(tmp_path):
    """Every image has a list of them then."""
    dump = image("1.png", '<tag label="night"/>', BOX) + image("2.png")
    found = scan(write(tmp_path, {"a.xml": meta("cup") + dump, "1.png": b"x", "2.png": b"x"}))
    assert [item.values for item in found.items] == [{"tags": ["night"]}, {"tags": []}]
    assert found.fields[-1] == Field(name="tags", kind="json")


# --- pictures -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dump", "written", "picture"),
    [
        ("a.xml", "1.png", "1.png"),
        ("a.xml", "1.png", "images/1.png"),
        ("a.xml", "s/1.png", "images/s/1.png"),
        ("a.xml", "s\\1.png", "images/s/1.png"),
        ("annotations/a.xml", "1.png", "images/1.png"),
        ("a.xml", "1.png", "images/Val/1.png"),
    ],
)
def test_a_picture_is_found_where_cvat_puts_it(tmp_path, dump, written, picture):
    """Beside the dump, in `images`, and below that in the subset."""
    content = meta("cup") + image(written, BOX, more=' subset="Val"')
    found = scan(write(tmp_path, {dump: content, picture: b"x"}))
    assert list(annotations(found)) == [picture]
    assert (found.notes, found.rejects, found.splits) == ([], [], ("Val",))


def test_a_picture_elsewhere_is_found_by_name_and_said(tmp_path):
    """When there is one of the name; of two, neither is taken."""
    content = meta("cup") + image("/home/me/1.png", BOX) + image("x/2.png", BOX)
    files = {"a.xml": content, "p/1.png": b"x", "p/2.png": b"x", "q/2.png": b"x"}
    found = scan(write(tmp_path, files))
    assert list(annotations(found)) == ["p/1.png"]
    assert found.notes[0] == (
        "1 image found by name in another folder than the dump says; the first is a.xml, image "
        "'/home/me/1.png'"
    )
    several = "several pictures fit: p/2.png, q/2.png; expected one. Rename one of them"
    assert found.rejects == [Reject(key=b"", path="a.xml, image 'x/2.png'", reason=several)]


def test_an_image_without_its_picture_or_named_twice_is_rejected(tmp_path):
    """A path out of the raw folder leads nowhere."""
    content = image("1.png", BOX) + image("../2.png", BOX, BOX) + image("1.png")
    raw = write(tmp_path / "raw", {"a.xml": meta("cup") + content, "1.png": b"x"})
    write(tmp_path, {"2.png": b"x"})
    found = scan(raw)
    assert [len(packed.objects) for packed in annotations(found).values()] == [1]
    missing, twice = found.rejects
    assert (missing.key, missing.path) == (b"", "a.xml, image '../2.png'")
    assert missing.reason.startswith(
        "annotations of 2 objects without a picture: expected '../2.png' in './', 'images/'"
    )
    assert (twice.key, twice.path) == (b"1.png", "a.xml, image '1.png'")
    assert "a second time; expected once" in twice.reason


def test_dumps_of_splits_give_the_splits(tmp_path):
    """When all have the name of one; the labels of all are joined in their order."""
    files = {
        "train.xml": meta("cup") + image("1.png", BOX),
        "val.xml": meta("bat", "cup") + image("2.png", BOX),
        "1.png": "x",
        "2.png": "x",
    }
    found = scan(write(tmp_path, files))
    assert (found.splits, found.classes) == (("train", "val"), ("cup", "bat"))
    assert [item.values for item in found.items] == [{"split": 0}, {"split": 1}]
    assert found.fields[-1] == split_field(("train", "val"))
    found = scan(write(tmp_path, {"more.xml": meta() + image("3.png"), "3.png": b"x"}))
    assert found.splits == ()


def test_other_and_broken_xml_is_accounted_for(tmp_path):
    """The one is ignored, the other rejected, and the dump beside them is read."""
    files = {"a.xml": meta("cup") + image("1.png", BOX), "1.png": "x"}
    write(tmp_path, {**files, "b.xml": b"<annotation/>", "c.xml": b"<annotations><image>"})
    found = scan(tmp_path)
    assert list(annotations(found)) == ["1.png"]
    assert found.ignored.counts == {cvat.OTHER_XML: 1}
    assert [(r.key, r.path) for r in found.rejects] == [(b"", "c.xml")]
    assert "not well-formed XML" in found.rejects[0].reason


def test_no_dump_or_none_of_its_pictures_is_an_error(tmp_path):
    """It says what was looked for."""
    with pytest.raises(SourceError, match="no dump of CVAT; expected an XML file with the root"):
        scan(write(tmp_path, {"1.png": b"x"}))
    with pytest.raises(SourceError, match=r"a\.xml, image '2\.png': annotations of 1 object wi"):
        scan(write(tmp_path, {"a.xml": meta("cup") + image("2.png", BOX)}))


# --- video ----------------------------------------------------------------------------------------


def track(number: int, label: str, *frames: tuple[int, int, str]) -> str:
    """A track of boxes: frame, whether it is outside, and left edge."""
    shapes = "".join(
        f'<box frame="{frame}" outside="{outside}" keyframe="1" occluded="0" xtl="{left}" '
        'ytl="2" xbr="9" ybr="8"/>'
        for frame, outside, left in frames
    )
    return f'<track id="{number}" label="{label}">{shapes}</track>'


SIZE = "<original_size><width>40</width><height>30</height></original_size>"


def test_tracks_are_objects_of_the_frames_on_which_they_show(tmp_path):
    """A shape marked as outside is no object; a frame without any is a background."""
    dump = (
        meta("bat", "cup", more=SIZE)
        + track(0, "cup", (10, 0, "1"), (13, 0, "2"), (16, 1, "2"))
        + track(1, "bat", (13, 0, "3"), (1_000_000, 0, "4"), (19, 1, "4"))
    )
    names = ("frame_000010.png", "frame_000013.png", "frame_000016.png", "frame_1000000.png")
    files = {f"images/{name}": b"x" for name in (*names, "cover.png")}
    found = scan(write(tmp_path, {"annotations.xml": dump, **files}))
    assert {
        key: [(found.classes[o.label], o.box, o.attributes, o.place) for o in packed.objects]
        for key, packed in annotations(found).items()
    } == {
        "images/frame_000010.png": [
            ("cup", (1, 2, 9, 8), {"track_id": "0"}, "annotations.xml, track 0, frame 10")
        ],
        "images/frame_000013.png": [
            ("cup", (2, 2, 9, 8), {"track_id": "0"}, "annotations.xml, track 0, frame 13"),
            ("bat", (3, 2, 9, 8), {"track_id": "1"}, "annotations.xml, track 1, frame 13"),
        ],
        "images/frame_000016.png": [],
        "images/frame_1000000.png": [
            ("bat", (4, 2, 9, 8), {"track_id": "1"}, "annotations.xml, track 1, frame 1000000")
        ],
    }
    assert annotations(found)["images/frame_000010.png"].size == (40, 30)
    assert "2 shapes of tracks marked as outside of the frame: not packed" in found.notes
    assert found.ignored.counts == {cvat.NOT_NAMED: 1}


def test_a_frame_without_a_picture_is_rejected(tmp_path):
    """As is a shape on no frame, and a shape that is no object."""
    odd = '<track id="3" label="cup"><box frame="x"/><points frame="1" points="1,2"/></track>'
    dump = meta("cup") + track(0, "cup", (1, 0, "1"), (2, 0, "2")) + odd
    found = scan(write(tmp_path, {"a.xml": dump, "frame_000001.jpg": b"x"}))
    assert [len(packed.objects) for packed in annotations(found).values()] == [1]
    assert [(r.path, r.reason[:43]) for r in found.rejects] == [
        ("a.xml, frame 2", "annotations of 1 object without a picture: ")
    ]
    assert [(r.key, r.path) for r in found.annotation_rejects] == [
        (b"", "a.xml, track 3"),
        (b"frame_000001.jpg", "a.xml, track 3, frame 1"),
    ]
    assert found.annotation_rejects[0].reason == "frame 'x', expected a whole number"


def test_a_video_alone_is_an_error_that_says_what_to_do(tmp_path):
    """Frames are pictures here; a film is none."""
    dump = meta("cup") + track(0, "cup", (1, 0, "1"))
    with pytest.raises(SourceError, match="export the dump together with its frames"):
        scan(write(tmp_path, {"a.xml": dump, "film.mp4": b"x"}))
