"""One turned box, written in every format that has them, is stored alike; tasks are honoured."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from packer.building.build import build
from packer.errors import SourceError
from packer.pictures.sample_maker import SampleMaker
from packer.plan.shards import make_plan
from packer.recipe import Recipe
from packer.report import BuildReport
from packer.sources import scan_source
from packer.sources.source import SourceOptions
from packer.sources.turned_boxes import (
    are_upright,
    begins_upright,
    corners_of_turned,
    turn_degrees,
    turned_corners,
)
from readers import LMDBDataset

WIDTH, HEIGHT = 64, 48
BOX = (10.0, 10.0, 40.0, 20.0)
DEGREES = 30.0
CORNERS = corners_of_turned(BOX, DEGREES)
AROUND = [9.5096, 3.1699, 40.4904, 26.8301]
UPRIGHT = (4.0, 30.0, 20.0, 40.0)
"""A second box, which is not turned."""

UPRIGHT_CORNERS = [[4.0, 30.0], [20.0, 30.0], [20.0, 40.0], [4.0, 40.0]]


def write(root: Path, files: dict[str, str]) -> Path:
    """Files by name; a picture of noise for each name of one."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".png"):
            noise = np.random.default_rng(1).integers(0, 255, (HEIGHT, WIDTH, 3), dtype=np.uint8)
            Image.fromarray(noise).save(path)
        else:
            path.write_text(text)
    return root


def coco(root: Path, **turned: Any) -> Path:
    common = {"image_id": 1, "category_id": 1, "iscrowd": 0}
    content = {
        "images": [{"id": 1, "file_name": "1.png", "width": WIDTH, "height": HEIGHT}],
        "categories": [{"id": 1, "name": "ship"}],
        "annotations": [
            {"id": 1, "bbox": [10, 10, 30, 10], **common, **turned},
            {"id": 2, "bbox": [4, 30, 16, 10], **common},
        ],
    }
    return write(root, {"annotations.json": json.dumps(content), "1.png": ""})


def cvat(root: Path) -> Path:
    boxes = (
        '<box label="ship" xtl="10" ytl="10" xbr="40" ybr="20" rotation="30.0"/>'
        '<box label="ship" xtl="4" ytl="30" xbr="20" ybr="40" rotation="360.0"/>'
    )
    text = f'<annotations><image id="0" name="1.png" width="64" height="48">{boxes}</image>'
    return write(root, {"annotations.xml": f"{text}</annotations>", "1.png": ""})


def voc_box(x0: float, y0: float, x1: float, y1: float) -> str:
    sides = zip(("xmin", "ymin", "xmax", "ymax"), (x0, y0, x1, y1), strict=True)
    return f"<bndbox>{''.join(f'<{tag}>{value}</{tag}>' for tag, value in sides)}</bndbox>"


def voc(root: Path, turned: str) -> Path:
    """Counted from 0, as the box at 0.5 proves."""
    objects = (turned, voc_box(*UPRIGHT))
    inner = "".join(f"<object><name>ship</name>{one}</object>" for one in objects)
    size = f"<size><width>{WIDTH}</width><height>{HEIGHT}</height></size>"
    return write(root, {"1.xml": f"<annotation>{size}{inner}</annotation>", "1.png": ""})


def robndbox(angle: float) -> str:
    numbers = {"cx": 25, "cy": 15, "w": 30, "h": 10, "angle": angle}
    return f"<robndbox>{''.join(f'<{k}>{v}</{k}>' for k, v in numbers.items())}</robndbox>"


def voc_attributes() -> str:
    rotation = "<attribute><name>rotation</name><value>30.0</value></attribute>"
    return f"{voc_box(*BOX)}<attributes>{rotation}</attributes>"


def labelme(root: Path, **turned: Any) -> Path:
    shapes = [
        {"label": "ship", **turned},
        {"label": "ship", "shape_type": "rectangle", "points": [[4, 30], [20, 40]]},
    ]
    content = {"shapes": shapes, "imagePath": "1.png", "imageWidth": WIDTH, "imageHeight": HEIGHT}
    return write(root, {"1.json": json.dumps(content), "1.png": ""})


def labelme_xml(root: Path) -> Path:
    def thing(points: Any, more: str = "") -> str:
        inner = "".join(f"<pt><x>{x}</x><y>{y}</y></pt>" for x, y in points)
        kind = "<type>bounding_box</type>"
        return f"<object><name>ship</name>{kind}{more}<polygon>{inner}</polygon></object>"

    corners = [(10, 10), (40, 10), (40, 20), (10, 20)]
    words = "<attributes>z_order=0, rotation=30.0, occluded=no</attributes>"
    inner = thing(corners, words) + thing(UPRIGHT_CORNERS)
    return write(root, {"1.xml": f"<annotation>{inner}</annotation>", "1.png": ""})


def yolo(root: Path) -> Path:
    numbers = [value for x, y in CORNERS for value in (x / WIDTH, y / HEIGHT)]
    x0, y0, x1, y1 = UPRIGHT
    upright = [(x0 + x1) / 2 / WIDTH, (y0 + y1) / 2 / HEIGHT, 16 / WIDTH, 10 / HEIGHT]
    lines = [" ".join(["0", *map(repr, line)]) for line in (numbers, upright)]
    files = {"data.yaml": "names: [ship]\ntrain: images\n", "labels/1.txt": "\n".join(lines)}
    return write(root, {**files, "images/1.png": ""})


def dota(root: Path) -> Path:
    lines = [
        " ".join([*(repr(value) for point in points for value in point), "ship 0"])
        for points in (CORNERS, UPRIGHT_CORNERS)
    ]
    return write(root, {"labelTxt/1.txt": "\n".join(lines), "images/1.png": ""})


FORMATS: dict[str, Callable[[Path], Path]] = {
    "coco, attributes": lambda root: coco(root, attributes={"rotation": 30.0}),
    "coco, attributes as text": lambda root: coco(root, attributes={"rotation": "30"}),
    "coco, rotation": lambda root: coco(root, rotation=30),
    "coco, four points": lambda root: coco(
        root, bbox=[9.5096, 3.1699, 30.9808, 23.6603], segmentation=[list(sum(CORNERS, ()))]
    ),
    "cvat": cvat,
    "voc, roLabelImg": lambda root: voc(root, robndbox(math.radians(30))),
    "voc, degrees": lambda root: voc(root, robndbox(30)),
    "voc, attributes": lambda root: voc(root, voc_attributes()),
    "labelme, oriented": lambda root: labelme(
        root, shape_type="oriented_rectangle", points=CORNERS
    ),
    "labelme, rotation": lambda root: labelme(
        root, shape_type="rotation", points=CORNERS, direction=math.radians(30)
    ),
    "labelme, rectangle": lambda root: labelme(root, shape_type="rectangle", points=CORNERS),
    "labelme, polygon": lambda root: labelme(root, shape_type="polygon", points=CORNERS),
    "labelme, direction": lambda root: labelme(
        root, shape_type="rectangle", points=[[10, 10], [40, 20]], direction=math.radians(30)
    ),
    "labelme xml": labelme_xml,
    "yolo": yolo,
    "dota": dota,
}
OUTLINES = frozenset(("coco, four points", "labelme, polygon"))
"""Written as outlines, which are turned boxes only where the task says so."""


def origin_of(raw: Any) -> dict[str, Any]:
    """Where Pascal VOC counts from, for data that is of it."""
    is_voc = isinstance(raw, Path) and any(
        b"bndbox" in path.read_bytes() for path in raw.rglob("*.xml")
    )
    return {"voc_origin": "0"} if is_voc else {}


def made(raw: Path, **options: Any) -> tuple[dict[str, Any], list[str]]:
    """The sample of the only picture of raw data, made in this process, and the notes."""
    scan = scan_source(raw, SourceOptions(**{**origin_of(raw), **options}))
    plan = make_plan(scan, Recipe())
    (item,) = scan.items
    with SampleMaker(os.fsencode(scan.root), plan.schema, Recipe(), ()) as maker:
        sample = maker.make(item)
    assert (scan.annotation_rejects, sample.objects.rejects) == ([], [])
    return sample.values, scan.notes


def built(raw: Path, tmp_path: Path, **options: Any) -> tuple[LMDBDataset, BuildReport]:
    out = tmp_path / "out.lmdb"
    source = SourceOptions(**{**origin_of(raw), **options})
    report = build(raw, out, source=source, worker_count=1)
    return LMDBDataset(out), report


@pytest.mark.parametrize("name", FORMATS)
def test_the_same_turned_box_is_stored_alike_from_every_format(name, tmp_path):
    """Under obb its corners and the upright box around it; an upright box is turned by 0."""
    sample, _ = made(FORMATS[name](tmp_path), task="obb")
    assert sample["boxes"].tolist() == [pytest.approx(AROUND, abs=1e-3), list(UPRIGHT)]
    assert sample["corners"].shape == (2, 4, 2)
    assert sample["corners"][0] == pytest.approx(np.array(CORNERS), abs=1e-3)
    assert sample["corners"][1] == pytest.approx(np.array(UPRIGHT_CORNERS), abs=1e-4)
    assert "masks" not in sample


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "yolo"])
def test_without_a_task_nothing_of_a_turned_box_is_lost(name, tmp_path):
    """The upright box holds the turned one, and the corners (or the outline) are there as well."""
    sample, _ = made(FORMATS[name](tmp_path))
    assert sample["boxes"].tolist() == [pytest.approx(AROUND, abs=1e-3), list(UPRIGHT)]
    if name in OUTLINES:
        assert [len(outline) for outline in sample["masks"]] == [1, 0]
    else:
        assert sample["corners"][0] == pytest.approx(np.array(CORNERS), abs=1e-3)


@pytest.mark.parametrize("name", FORMATS)
def test_detect_takes_upright_boxes_alone(name, tmp_path):
    """The same numbers, and no field beside them; what is left aside is said with its count."""
    sample, notes = made(FORMATS[name](tmp_path), task="detect")
    assert sample["boxes"].tolist() == [pytest.approx(AROUND, abs=1e-3), list(UPRIGHT)]
    assert not {"corners", "masks", "keypoints"} & set(sample)
    if name != "yolo":
        said = "1 outline left aside" if name in OUTLINES else "upright boxes around"
        assert any(said in note for note in notes)


def test_turned_boxes_follow_their_picture(tmp_path):
    """Corners of turned and upright boxes are scaled with it."""
    out = tmp_path / "out.lmdb"
    build(cvat(tmp_path / "raw"), out, Recipe(size=24), worker_count=1)
    corners = LMDBDataset(out)[0]["corners"].numpy()
    assert corners[0] == pytest.approx(np.array(CORNERS) / 2, abs=1e-3)
    assert corners[1] == pytest.approx(np.array(UPRIGHT_CORNERS) / 2, abs=1e-3)


def test_a_turned_box_of_rolabelimg_counts_from_the_corner_of_the_picture(tmp_path):
    """It is a middle and a size: what is taken off upright boxes of VOC is not taken off it."""
    raw = voc(tmp_path / "raw", robndbox(math.radians(30)))
    dataset, report = built(raw, tmp_path, voc_origin="1")
    x0, y0, x1, y1 = UPRIGHT
    assert dataset[0]["boxes"].tolist() == [
        pytest.approx(AROUND, abs=1e-3),
        [x0 - 1, y0 - 1, x1, y1],
    ]
    assert any("1 of 2 objects is turned" in note for note in report.notes)


def test_keypoints_stay_where_boxes_are_turned_as_well(tmp_path):
    """COCO with both: points are kept, boxes turned; under obb corners are, and points counted."""
    raw = coco(tmp_path / "raw", rotation=30, keypoints=[11, 12, 2, 13, 14, 1])
    dataset, report = built(raw, tmp_path)
    sample = dataset[0]
    assert sample["keypoints"].tolist() == [
        [[11, 12, 2], [13, 14, 1]],
        [[0, 0, 0], [0, 0, 0]],
    ]
    assert sample["boxes"][0].tolist() == pytest.approx(AROUND, abs=1e-3)
    assert any("--task obb packs their corners" in note for note in report.notes)
    (tmp_path / "second").mkdir()
    dataset, report = built(raw, tmp_path / "second", task="obb")
    assert dataset[0]["corners"][0].numpy() == pytest.approx(np.array(CORNERS), abs=1e-3)
    assert any("the keypoints of 1 object left aside" in note for note in report.notes)


def test_corners_of_some_objects_give_way_to_keypoints_of_others(tmp_path):
    """A turned box without points, in a set of points, has none, and does not break the build."""
    raw = coco(tmp_path / "raw", rotation=30)
    content = json.loads((raw / "annotations.json").read_text())
    content["annotations"][1]["keypoints"] = [11, 12, 2, 13, 14, 1]
    (raw / "annotations.json").write_text(json.dumps(content))
    sample = built(raw, tmp_path)[0][0]
    assert sample["boxes"][0].tolist() == pytest.approx(AROUND, abs=1e-3)
    assert sample["keypoints"][0].tolist() == [[0, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize("rotation", [0, 360, -720.0, "left", None, True, float("nan"), [30]])
def test_what_is_no_angle_turns_nothing(rotation, tmp_path):
    """Whole turns, and attributes that are only called so."""
    sample, _ = made(coco(tmp_path, attributes={"rotation": rotation}))
    assert sample["boxes"][0].tolist() == list(BOX)
    assert "corners" not in sample


# --- tasks ----------------------------------------------------------------------------------------

PLAIN = {
    "imagefolder": {"ant/1.png": "", "bee/2.png": ""},
    "csv": {"list.csv": "path,label\n1.png,a\n2.png,b\n", "1.png": "", "2.png": ""},
    "kitti": {
        "training/image_2/1.png": "",
        "training/label_2/1.txt": "Car 0 0 0 1 2 9 9 1 1 1 1 1 1 1",
    },
    "boxes": {"list.csv": "path,label,xmin,ymin,xmax,ymax\n1.png,a,1,2,9,9\n", "1.png": ""},
}


@pytest.mark.parametrize(
    ("name", "task", "words"),
    [
        ("imagefolder", "detect", "has no boxes: it gives label"),
        ("imagefolder", "segment", "has no outlines and no masks"),
        ("csv", "detect", "has no boxes"),
        ("csv", "obb", "format 'csv' has none; those that have are coco, cvat, dota"),
        ("kitti", "obb", "format 'kitti' has none"),
        ("kitti", "segment", "has no outlines"),
        ("kitti", "pose", "has no keypoints"),
        ("boxes", "segment", "has no outlines"),
        ("boxes", "obb", "format 'csv' has none"),
    ],
)
def test_a_task_that_the_data_is_not_for_is_refused(name, task, words, tmp_path):
    """Never ignored: the message says what the data has, or which formats have what is asked."""
    with pytest.raises(SourceError) as caught:
        scan_source(write(tmp_path, PLAIN[name]), SourceOptions(task=task))
    assert words in str(caught.value)
    assert "Leave --task out" in str(caught.value)


def test_a_task_for_a_dataset_is_honoured_or_refused(tmp_path):
    """As for files."""
    image = Image.new("RGB", (20, 10))
    samples = [(image, {"boxes": [[1, 2, 9, 8]], "labels": [0]})]
    report = build(samples, tmp_path / "a", source=SourceOptions(task="detect"), worker_count=1)
    assert report.annotations["stored"] == 1
    for task in ("segment", "obb", "pose"):
        with pytest.raises(SourceError, match=f"task '{task}'"):
            build(samples, tmp_path / "b", source=SourceOptions(task=task), worker_count=1)


def test_segment_rejects_objects_without_outline(tmp_path):
    """By name and with the way out, as YOLO's; those that have one stay."""
    raw = labelme(tmp_path / "raw", shape_type="polygon", points=CORNERS)
    dataset, report = built(raw, tmp_path, task="segment")
    assert [len(outline) for outline in dataset[0]["masks"]] == [1]
    assert report.annotations == {"found": 2, "stored": 1, "rejected": 1}
    reject = json.loads((tmp_path / "out.lmdb/rejects.jsonl").read_text())
    assert reject["path"] == "1.png: 1.json, shape 2"
    assert "Give --task detect" in reject["reason"]


def test_obb_rejects_outlines_that_are_no_box(tmp_path):
    """An outline of five points has no corners, and a box of its own would be made up."""
    points = [[10, 10], [20, 10], [25, 15], [20, 20], [10, 20]]
    raw = labelme(tmp_path / "raw", shape_type="polygon", points=points)
    dataset, report = built(raw, tmp_path, task="obb")
    assert dataset[0]["boxes"].tolist() == [list(UPRIGHT)]
    assert report.annotations == {"found": 2, "stored": 1, "rejected": 1}
    assert any("no box is turned" in note for note in report.notes)


# --- geometry -------------------------------------------------------------------------------------


def test_an_angle_turns_clockwise_from_the_top_left():
    """A quarter turn takes the top left corner to the top right."""
    x0, y0, x1, y1 = BOX
    corners = corners_of_turned(BOX, 90)
    expected = [(30, 0), (30, 30), (20, 30), (20, 0)]
    assert np.array(corners) == pytest.approx(np.array(expected))
    assert turned_corners(25, 15, 30, 10, 0) == [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]
    assert are_upright(corners)
    assert not begins_upright(corners)
    assert not are_upright(CORNERS)
    assert turn_degrees("1e400") == 0
