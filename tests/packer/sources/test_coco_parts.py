"""COCO annotations of which one part is broken: the rest is stored, and the part is reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from packer.building.build import build
from packer.items.raw_item import Scan
from packer.recipe import Recipe
from readers.dataset import LMDBDataset
from tests.packer.sources.test_coco import (
    box,
    draw,
    image,
    objects,
    one,
    panoptic,
    reasons,
    scan,
    write,
)

SQUARE = [2, 3, 6, 3, 6, 8, 2, 8]


def outlines(found: Scan, key: str = "a.png") -> list[list[list[float]]]:
    """The polygons of each object."""
    return [
        [np.frombuffer(polygon, "<f8").tolist() for polygon in thing.polygons]
        for thing in objects(found, key)
    ]


# Outlines.


@pytest.mark.parametrize(
    ("written", "form"),
    [
        (SQUARE, "a list of numbers"),
        ([str(number) for number in SQUARE], "a list of numbers"),
        ([[2, 3], [6, 3], [6, 8], [2, 8]], "pairs [x, y]"),
        ([[[2, 3], [6, 3], [6, 8], [2, 8]]], "pairs [x, y]"),
        ([{"x": 2, "y": 3}, {"x": 6, "y": 3}, {"x": 6, "y": 8}, {"x": 2, "y": 8}], "records"),
        ([[{"x": 2, "y": 3}, {"x": 6, "y": 3}, {"x": 6, "y": 8}, {"x": 2, "y": 8}]], "records"),
    ],
)
def test_an_outline_in_another_form_is_read_and_said(tmp_path, written, form):
    """A flat list, points as pairs or as records: all mean what the usual form means."""
    found = one(tmp_path, box(1, 1, segmentation=written), box(2, 1, segmentation=[SQUARE]))
    assert outlines(found) == [[SQUARE], [SQUARE]]
    assert found.annotation_rejects == []
    assert any(f"segmentation of 1 annotation is written as {form}" in n for n in found.notes)


def test_several_outlines_of_pairs_stay_several(tmp_path):
    """Pairs are points of their own outline alone."""
    pairs = [[[0, 0], [4, 0], [4, 4]], [[8, 8], [9, 8], [9, 9], [8, 9]]]
    found = one(tmp_path, box(1, 1, segmentation=pairs))
    assert outlines(found) == [[[0, 0, 4, 0, 4, 4], [8, 8, 9, 8, 9, 9, 8, 9]]]


def test_one_rle_in_a_list_is_that_rle(tmp_path):
    """Some tools write a list of one."""
    runs = {"size": [12, 16], "counts": [24, 12, 156]}
    found = one(tmp_path, box(1, 1, segmentation=[runs]), box(2, 1, segmentation=runs))
    first, second = objects(found, "a.png")
    assert first.runs == second.runs != b""


@pytest.mark.parametrize("nothing", [None, [], [[]], {}, ""])
def test_an_empty_outline_is_none(tmp_path, nothing):
    """Tools that have boxes alone write it in many ways, and nothing is lost."""
    found = one(tmp_path, box(1, 1, segmentation=nothing))
    assert outlines(found) == [[]]
    assert found.annotation_rejects == []


# A part that cannot be read.


@pytest.mark.parametrize(
    ("change", "part", "reason"),
    [
        ({"segmentation": [[1, 2, 3, 4]]}, "outline", "polygon of 4 numbers; expected x, y of at"),
        ({"segmentation": [1, 2, 3, 4]}, "outline", "polygon of 4 numbers"),
        ({"segmentation": [[1, 2, 3, 4, 5, 6, 7]]}, "outline", "polygon of 7 numbers"),
        ({"segmentation": [[1, 2, 3, 4, 5, "inf"]]}, "outline", "segmentation is not finite"),
        ({"segmentation": 7}, "outline", "segmentation is 7; expected lists of numbers, [[x0, y0"),
        ({"segmentation": "a.png"}, "outline", "segmentation is 'a.png'; expected lists"),
        ({"segmentation": [1, 2, "a", 4]}, "outline", "segmentation is [1, 2, 'a', 4]; expected"),
        ({"segmentation": [["a", 2]]}, "outline", "segmentation[0] is ['a', 2]; expected"),
        (
            {"segmentation": {"counts": [192]}},
            "outline",
            "not an RLE: object missing required field",
        ),
        (
            {"segmentation": {"size": [16, 12], "counts": [192]}},
            "outline",
            "of 12x16 pixels; expected those",
        ),
        ({"segmentation": {"size": [12, 16], "counts": [191]}}, "outline", "add up to 191"),
        ({"segmentation": {"size": [12, 16], "counts": [-1, 193]}}, "outline", "2 counts from -1"),
        ({"segmentation": {"size": [12, 16], "counts": "~~"}}, "outline", "segmentation: counts"),
        (
            {"segmentation": {"size": [12, 16], "counts": "b'`5'"}},
            "outline",
            "write counts.decode() instead of str(counts)",
        ),
        ({"keypoints": "none"}, "keypoints", "keypoints is 'none'; expected a list of x, y, vis"),
        ({"keypoints": [1, 2]}, "keypoints", "keypoints has 2 numbers; expected 6"),
        ({"keypoints": [1, 2, "nan", 0, 0, 0]}, "keypoints", "keypoints are not finite"),
        ({"attributes": {"big": 2**70}}, "attributes", "attributes cannot be kept"),
        ({"iscrowd": "maybe"}, "iscrowd", "iscrowd is 'maybe'; expected 0 or 1"),
        ({"iscrowd": [1]}, "iscrowd", "iscrowd is [1]; expected 0 or 1"),
    ],
)
def test_a_part_that_cannot_be_read_costs_itself_alone(tmp_path, change, part, reason):
    """Its object keeps its box, label and other parts, and the report names the part."""
    draw(tmp_path, "a.png")
    posed = {"id": 1, "name": "cat", "keypoints": ["nose", "tail"]}
    good = {"segmentation": [SQUARE], "keypoints": [1, 2, 2, 0, 0, 0], "area": 7, "iscrowd": 1}
    entries = [box(17, 1, **good) | change, box(18, 1, bbox=[0, 0, 2, 2], **good)]
    write(tmp_path / "ann.json", [image(1, "a.png")], entries, [posed])
    found = scan(tmp_path)
    broken, whole = objects(found, "a.png")
    assert (broken.box, broken.area) == ((2, 3, 6, 8), 7.0)
    assert broken.iscrowd == (part != "iscrowd")
    assert bool(broken.polygons) == (part != "outline")
    assert bool(broken.keypoints) == (part != "keypoints")
    assert whole.polygons
    assert whole.keypoints
    (reject,) = found.annotation_rejects
    assert (reject.key, reject.part) == (b"a.png", part)
    assert reject.path == f"ann.json, annotation 17, {part}"
    assert reason in reject.reason
    assert reject.reason.endswith(". The object is stored without it")


def test_a_bad_polygon_leaves_the_other_polygons(tmp_path):
    """Of an outline in several pieces only the piece is left out."""
    found = one(tmp_path, box(1, 1, segmentation=[SQUARE, [1, 2, 3, 4], "x", [0, 0, 4, 0, 4, 4]]))
    assert outlines(found) == [[SQUARE, [0, 0, 4, 0, 4, 4]]]
    assert [r.path for r in found.annotation_rejects] == ["ann.json, annotation 1, outline"] * 2


@pytest.mark.parametrize("bbox", [[1, 2, 3], ["nan", 1, 2, 3], {"x": 1}, "2 3 4 5"])
def test_a_bad_box_leaves_its_outline(tmp_path, bbox):
    """The box around the outline is that of the object then."""
    found = one(tmp_path, box(1, 1, bbox=bbox, segmentation=[SQUARE]))
    (thing,) = objects(found, "a.png")
    assert thing.box is None
    assert outlines(found) == [[SQUARE]]
    (reject,) = found.annotation_rejects
    assert reject.path == "ann.json, annotation 1, box"
    assert reject.reason.endswith("stored with the box around its outline")


@pytest.mark.parametrize("area", ["big", [], {}, -1, "nan"])
def test_an_area_that_is_none_is_computed_and_counted(tmp_path, area):
    """It follows from the outline or the box, so nothing is lost."""
    found = one(tmp_path, box(1, 1, area=area))
    assert [o.area for o in objects(found, "a.png")] == [None]
    assert found.annotation_rejects == []
    assert any("area of 1 annotation is below 0 or no number" in note for note in found.notes)


def test_keypoints_as_rows_are_keypoints(tmp_path):
    """[[x, y, v], ...] is as clear as one list."""
    found = one(tmp_path, box(1, 1, keypoints=[[1, 2, 2], [3, 4, 1]]))
    (thing,) = objects(found, "a.png")
    assert np.frombuffer(thing.keypoints, "<f4").tolist() == [1, 2, 2, 3, 4, 1]


def test_runs_that_cannot_be_read_do_not_say_the_size_of_the_picture(tmp_path):
    """Of an image without width and height only runs that fit their own size are believed."""
    bad = {"size": [99, 99], "counts": [3]}
    found = one(tmp_path, box(1, 1, segmentation=bad), box(2, 1), width=0)
    assert len(objects(found, "a.png")) == 2
    (item,) = found.items
    assert b"annotation 2" in item.annotations
    assert list(reasons(found)) == ["ann.json, annotation 1, outline"]


def test_a_panoptic_segment_keeps_its_box_without_its_flag(tmp_path):
    """A bad area or crowd flag is no reason to lose what the mask's value means."""
    segment = {"id": 7, "category_id": 1, "bbox": [2, 0, 1, 9], "area": "x", "iscrowd": "?"}
    panoptic(tmp_path, [segment])
    found = scan(tmp_path)
    (thing,) = objects(found, "images/val/b.jpg")
    assert (thing.box, thing.area, thing.iscrowd) == ((2, 0, 3, 9), None, False)
    place = "annotations/panoptic_val.json, annotations[0], segment 7, iscrowd"
    assert list(reasons(found)) == [place]


def test_a_turned_box_with_a_bad_part_is_turned_all_the_same(tmp_path):
    """What is read part by part has all that is read at once."""
    turned = {"bbox": [4, 4, 6, 2], "rotation": 90}
    found = one(tmp_path, box(1, 1, **turned), box(2, 1, segmentation=7, **turned))
    whole, partly = objects(found, "a.png")
    assert whole.box == partly.box != (4, 4, 10, 6)


def test_keypoints_of_another_file_that_cannot_be_read_are_a_part(tmp_path):
    """Their object is stored, from the file of instances."""
    draw(tmp_path, "val/a.png")
    posed = {"id": 1, "name": "cat", "keypoints": ["nose", "tail"]}
    folder = tmp_path / "annotations"
    write(folder / "instances_val.json", [image(1, "a.png")], [box(5, 1)], [posed])
    entries = [box(5, 1, keypoints=[1, 2, 2])]
    write(folder / "person_keypoints_val.json", [image(1, "a.png")], entries, [posed])
    found = scan(tmp_path)
    assert len(objects(found, "val/a.png")) == 1
    assert [reject.part for reject in found.annotation_rejects] == ["keypoints"]


# The whole way.


def test_boxes_are_stored_beside_a_bad_and_a_flat_outline(tmp_path):
    """Both boxes arrive, the flat list is an outline, and the report counts the one left out."""
    draw(tmp_path / "raw", "images/0.png", "images/1.png")
    images: list[dict[str, Any]] = [image(0, "0.png"), image(1, "1.png")]
    entries = [box(0, 0, segmentation=[[2, 3, 6, 8]]), box(1, 1, segmentation=SQUARE)]
    write(tmp_path / "raw/annotations.json", images, entries)
    report = build(tmp_path / "raw", tmp_path / "s.lmdb", Recipe())
    assert (report.sample_count, report.reject_count) == (2, 0)
    counts = {"found": 2, "stored": 2, "rejected": 0, "parts_rejected": 1}
    assert report.annotations == counts
    dataset = LMDBDataset(tmp_path / "s.lmdb", image_as="numpy")
    assert [s["boxes"].tolist() for s in (dataset[0], dataset[1])] == [[[2, 3, 6, 8]]] * 2
    assert [int(dataset[n]["masks"].to_masks().sum()) for n in (0, 1)] == [0, 20]
    (line,) = Path(tmp_path / "s.lmdb/rejects.jsonl").read_text().splitlines()
    reject = json.loads(line)
    assert reject["path"] == "annotations.json, annotation 0, outline"
    assert (reject["kind"], reject["part"]) == ("part", "outline")
