"""A bad part of an object does not take its good parts along, in any format, and is counted."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from packer.building.build import build
from packer.errors import RejectedItemError, TooManyRejectsError
from packer.items.annotations import add_attribute
from packer.report import BuildReport
from packer.sources.outlines import read_outline
from packer.sources.source import SourceOptions
from packer.stores.verify import verify
from readers import LMDBDataset

WIDTH, HEIGHT = 64, 48
GOOD = [4.0, 6.0, 20.0, 30.0]


def picture() -> Image.Image:
    noise = np.random.default_rng(1).integers(0, 255, (HEIGHT, WIDTH, 3), dtype=np.uint8)
    return Image.fromarray(noise)


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith((".png", ".jpg")):
            picture().save(path)
        else:
            path.write_text(text)
    return root


def voc(root: Path, *objects: str) -> Path:
    inner = "".join(f"<object><name>van</name>{one}</object>" for one in objects)
    size = f"<size><width>{WIDTH}</width><height>{HEIGHT}</height></size>"
    return write(root, {"1.xml": f"<annotation>{size}{inner}</annotation>", "1.png": ""})


def box(x0: float = 4, y0: float = 6, x1: Any = 20, y1: float = 30) -> str:
    return f"<bndbox><xmin>{x0}</xmin><ymin>{y0}</ymin><xmax>{x1}</xmax><ymax>{y1}</ymax></bndbox>"


def polygon(*points: Any) -> str:
    inner = "".join(f"<x{n}>{x}</x{n}><y{n}>{y}</y{n}>" for n, (x, y) in enumerate(points, 1))
    return f"<polygon>{inner}</polygon>"


OUTLINE = ((4, 6), (20, 6), (20, 30))


def cvat(root: Path, shape: str) -> Path:
    image = f'<image id="0" name="1.png" width="{WIDTH}" height="{HEIGHT}">{shape}</image>'
    text = f"<annotations>{image}</annotations>"
    return write(root, {"annotations.xml": text, "1.png": ""})


def labelme(root: Path, **shape: Any) -> Path:
    content = {
        "shapes": [{"label": "van", **shape}],
        "imagePath": "1.png",
        "imageWidth": WIDTH,
        "imageHeight": HEIGHT,
    }
    return write(root, {"1.json": json.dumps(content), "1.png": ""})


def labelme_xml(root: Path, inner: str) -> Path:
    thing = f"<object><name>van</name>{inner}</object>"
    return write(root, {"1.xml": f"<annotation>{thing}</annotation>", "1.png": ""})


def kitti(root: Path, line: str) -> Path:
    return write(root, {"training/image_2/1.png": "", "training/label_2/1.txt": line})


def dota(root: Path, line: str) -> Path:
    return write(root, {"images/1.png": "", "labelTxt/1.txt": line})


def wider(root: Path, line: str) -> Path:
    return write(
        root,
        {
            "wider_face_split/wider_face_train_bbx_gt.txt": f"a/1.jpg\n1\n{line}\n",
            "WIDER_train/images/a/1.jpg": "",
        },
    )


def pose(root: Path, points: str) -> Path:
    x, y, w, h = 12 / WIDTH, 18 / HEIGHT, 16 / WIDTH, 24 / HEIGHT
    text = "names: [van]\ntrain: images\nkpt_shape: [2, 3]\n"
    line = f"0 {x} {y} {w} {h} {points}"
    return write(root, {"data.yaml": text, "labels/1.txt": line, "images/1.png": ""})


def open_images(root: Path, flag: str) -> Path:
    header = "ImageID,LabelName,XMin,XMax,YMin,YMax,IsOccluded,IsTruncated"
    row = f"1,van,{4 / WIDTH},{20 / WIDTH},{6 / HEIGHT},{30 / HEIGHT},1,{flag}"
    return write(root, {"train-annotations-bbox.csv": f"{header}\n{row}\n", "1.png": ""})


def png_text(width: int, height: int) -> str:
    stream = io.BytesIO()
    Image.new("L", (width, height), 255).save(stream, "PNG")
    return base64.b64encode(stream.getvalue()).decode()


CVAT_MASK = '<mask label="van" left="4" top="6" width="16" height="24" rle="{}"/>'
LABELME_MASK = {"shape_type": "mask", "points": [[4, 6], [19, 29]]}
LABELME_BOX = {"shape_type": "rectangle", "points": [[4, 6], [20, 30]]}
SEGM_BOX = "<segm><box><xmin>4</xmin><ymin>6</ymin><xmax>20</xmax><ymax>30</ymax></box></segm>"

BAD_PARTS: dict[str, tuple[Callable[[Path], Path], str, str]] = {
    "voc, outline of two points": (
        lambda root: voc(root, box() + polygon((4, 6), (20, 6))),
        "outline",
        "a <polygon> of 2 points, expected at least 3",
    ),
    "voc, outline without a number": (
        lambda root: voc(root, box() + polygon((4, 6), (20, 6), ("x", 30))),
        "outline",
        "<x3> is 'x', expected a number",
    ),
    "voc, outline with a gap": (
        lambda root: voc(root, box() + "<polygon><x1>4</x1><y1>6</y1><x9>4</x9></polygon>"),
        "outline",
        "a <polygon> of 3 numbers goes up to <x9>",
    ),
    "voc, box that is not a box": (
        lambda root: voc(root, box(x1="wide") + polygon(*OUTLINE)),
        "box",
        "<xmax> is 'wide', expected a number",
    ),
    "voc, box without area": (
        lambda root: voc(root, box(x1=2) + polygon(*OUTLINE)),
        "box",
        "has no area: -2 wide and 24 high. The object is stored with the box around its outline",
    ),
    "cvat, runs that are text": (
        lambda root: cvat(root, CVAT_MASK.format("a,b")),
        "outline",
        "rle 'a,b', expected whole numbers. The object is stored with its box alone",
    ),
    "cvat, runs of another size": (
        lambda root: cvat(root, CVAT_MASK.format("0,9")),
        "outline",
        "rle of 9 pixels, expected 16x24",
    ),
    "labelme, mask of another size": (
        lambda root: labelme(root, **LABELME_MASK, mask=png_text(3, 3)),
        "outline",
        "mask of 3x3 pixels, expected 16x24",
    ),
    "labelme, mask that is not a PNG": (
        lambda root: labelme(root, **LABELME_MASK, mask="bm8gcG5n"),
        "outline",
        "mask cannot be read as PNG in base64",
    ),
    "labelme, mask that is missing": (
        lambda root: labelme(root, **LABELME_MASK),
        "outline",
        "mask is a NoneType, expected a PNG in base64",
    ),
    "labelme, attributes": (
        lambda root: labelme(root, **LABELME_BOX, group_id=10**30),
        "attributes",
        "group_id cannot be stored",
    ),
    "labelme xml, outline beside a box": (
        lambda root: labelme_xml(root, f"<polygon><pt><x>4</x><y>6</y></pt></polygon>{SEGM_BOX}"),
        "outline",
        "a polygon of 1 points, expected at least 3",
    ),
    "labelme xml, second box": (
        lambda root: labelme_xml(
            root,
            "<type>bounding_box</type>"
            + "<polygon><pt><x>4</x><y>6</y></pt><pt><x>20</x><y>30</y></pt></polygon>"
            + "<polygon><pt><x>1</x><y>2</y></pt><pt><x>3</x><y>4</y></pt></polygon>",
        ),
        "box",
        "a second box of one object, expected one",
    ),
    "kitti, attributes": (
        lambda root: kitti(root, "Car 0 0 nan 4 6 20 30 1 1 1 1 1 1 1"),
        "attributes",
        "alpha: value 4 is 'nan'; expected a number. It is left out",
    ),
    "kitti, dimensions": (
        lambda root: kitti(root, "Car 0 0 0 4 6 20 30 1 1,5 1 1 1 1 1"),
        "attributes",
        "dimensions: value 10 is '1,5'; expected a number with a point, not a comma: 1.5",
    ),
    "dota, difficulty": (
        lambda root: dota(root, "4 6 20 6 20 30 4 30 van hard"),
        "difficulty",
        "difficulty is 'hard'; expected 0, 1 or 2. It is taken for 0",
    ),
    "wider, attributes": (
        lambda root: wider(root, "4 6 16 24 0 0 x 0 0 0"),
        "attributes",
        "illumination: value 7 is 'x'; expected a number. It is left out",
    ),
    "yolo, keypoint outside": (
        lambda root: pose(root, "0.5 0.5 2 3.5 0.5 2"),
        "keypoints",
        "x of point 2 is 3.5",
    ),
    "yolo, keypoint that is text": (
        lambda root: pose(root, "0.5 0.5 2 left 0.5 2"),
        "keypoints",
        "x of point 2 is nan",
    ),
    "yolo, visibility": (
        lambda root: pose(root, "0.5 0.5 nan 0.5 0.5 2"),
        "keypoints",
        "the visibility of a keypoint is not a number",
    ),
    "open images, flag": (
        lambda root: open_images(root, "yes"),
        "attributes",
        "IsTruncated is 'yes'; expected 1, 0 or -1. It is left out",
    ),
}


def built(raw: Any, tmp_path: Path, **options: Any) -> tuple[LMDBDataset, BuildReport, list[Any]]:
    out = tmp_path / "out.lmdb"
    is_voc = isinstance(raw, Path) and any(
        b"bndbox" in path.read_bytes() for path in raw.rglob("*.xml")
    )
    source = SourceOptions(**{**({"voc_origin": "0"} if is_voc else {}), **options})
    report = build(raw, out, source=source, worker_count=1)
    lines = (out / "rejects.jsonl").read_text().splitlines()
    return LMDBDataset(out), report, [json.loads(line) for line in lines]


@pytest.mark.parametrize("name", BAD_PARTS)
def test_an_object_stays_without_its_bad_part(name, tmp_path):
    """Its box is stored; the part is listed by place and reason, and counted beside objects."""
    make, part, reason = BAD_PARTS[name]
    dataset, report, rejects = built(make(tmp_path / "raw"), tmp_path)
    assert dataset[0]["boxes"].tolist() == [pytest.approx(GOOD, abs=1e-4)]
    assert report.annotations == {"found": 1, "stored": 1, "rejected": 0, "parts_rejected": 1}
    (reject,) = rejects
    assert (reject["kind"], reject["part"]) == ("part", part)
    assert reject["path"].endswith(f", {part}")
    assert reject["reason"].startswith(reason) or reason in reject["reason"]
    assert reject["key"] == dataset[0]["key"]
    assert "1 part of stored annotations rejected" in report.summary()


def test_a_store_with_rejected_parts_is_verified(tmp_path):
    """Lines of parts are no raw items, so that the account of the manifest still holds."""
    raw = voc(tmp_path / "raw", box() + polygon((4, 6), (20, 6)))
    built(raw, tmp_path)
    assert verify(tmp_path / "out.lmdb", workers=1).problems == []


def test_a_build_may_stop_at_a_bad_part(tmp_path):
    """As at any reject, where it was told to stop at the first."""
    raw = voc(tmp_path / "raw", box() + polygon((4, 6), (20, 6)))
    with pytest.raises(RejectedItemError, match=r"1.xml, object 1, outline: a <polygon> of 2"):
        build(raw, tmp_path / "out.lmdb", on_error="fail", worker_count=1)


def test_bad_parts_alone_do_not_hide_that_all_objects_were_rejected(tmp_path):
    """Objects are counted apart from parts."""
    raw = voc(tmp_path / "raw", box(x1=2), box(x1=1))
    with pytest.raises(TooManyRejectsError, match="all 2 annotations were rejected"):
        built(raw, tmp_path)


# --- Pascal VOC: several boxes, outlines ----------------------------------------------------------


def test_both_boxes_of_one_object_of_voc_are_objects(tmp_path):
    """Neither is dropped; the outline goes with the one that it lies in, and a note counts."""
    raw = voc(tmp_path / "raw", box() + box(30, 10, 50, 40) + polygon((30, 10), (50, 10), (50, 40)))
    dataset, report, rejects = built(raw, tmp_path)
    sample = dataset[0]
    assert sample["boxes"].tolist() == [GOOD, [30, 10, 50, 40]]
    assert [len(outline) for outline in sample["masks"]] == [0, 1]
    assert (report.annotations["found"], rejects) == (2, [])
    assert "1 <object> with several boxes: each box is packed as an object" in report.notes


def test_one_of_two_boxes_that_cannot_be_read_is_named(tmp_path):
    """One stored, one rejected by name."""
    raw = voc(tmp_path / "raw", box() + box(x1="x"))
    dataset, _, rejects = built(raw, tmp_path)
    assert dataset[0]["boxes"].tolist() == [GOOD]
    assert [(r["path"], r["part"]) for r in rejects] == [("1.xml, object 1, box", "box")]


@pytest.mark.parametrize(("origin", "shift"), [("0", 0.0), ("1", 1.0)])
def test_outlines_of_voc_are_stored_where_boxes_are(origin, shift, tmp_path):
    """In the origin of the boxes, in all their pieces, with or without a <bndbox>."""
    points = [[10.0, 10.0], [40.0, 12.0], [38.0, 40.0], [12.0, 38.0]]
    pieces = polygon(*points) + polygon((50, 2), (60, 2), (60, 9))
    raw = voc(tmp_path / "raw", box(10, 2, 60, 40) + pieces, polygon(*points))
    sample = built(raw, tmp_path, voc_origin=origin)[0][0]
    assert sample["boxes"].tolist() == [
        [10 - shift, 2 - shift, 60, 40],
        [10 - shift, 10 - shift, 40 - shift, 40 - shift],
    ]
    first, second = sample["masks"]
    assert [len(part) for part in first] == [4, 3]
    assert (np.array(points) - shift).tolist() == first[0].tolist() == second[0].tolist()


def test_a_point_of_an_outline_below_one_proves_that_counting_starts_at_zero(tmp_path):
    """As a box does, where outlines are all there is."""
    raw = voc(tmp_path / "raw", polygon((0.5, 2), (20, 2), (20, 9)))
    sample = built(raw, tmp_path, voc_origin="auto")[0][0]
    assert sample["boxes"].tolist() == [[0.5, 2, 20, 9]]


def test_elements_of_voc_that_are_not_read_are_counted(tmp_path):
    """What may be a part of an object is not dropped silently."""
    more = "<mask>abc</mask><landmarks><x>1</x></landmarks><extra/>"
    report = built(voc(tmp_path / "raw", box() + more, box(30, 10, 50, 40)), tmp_path)[1]
    assert "1 <mask> inside of objects: not read, not packed" in report.notes
    assert "1 <landmarks> inside of objects: not read, not packed" in report.notes
    assert not any("<extra>" in note for note in report.notes)


def test_an_upright_box_beside_a_turned_one_is_counted(tmp_path):
    """Both are of one object: the turned one says more."""
    turned = "<robndbox><cx>12</cx><cy>18</cy><w>16</w><h>24</h><angle>0</angle></robndbox>"
    dataset, report, _ = built(voc(tmp_path / "raw", box(1, 1, 50, 40) + turned), tmp_path)
    assert dataset[0]["boxes"].tolist() == [GOOD]
    assert "1 object with a <bndbox> beside <robndbox>: the turned box is packed" in report.notes


# --- LabelMe's masks ------------------------------------------------------------------------------


def test_a_mask_of_labelme_keeps_its_pixels(tmp_path):
    """A PNG in base64, in the box that its two points say, the last pixel included."""
    pixels = np.zeros((24, 16), np.uint8)
    pixels[2:, 1:] = 255
    pixels[10, 5] = 0
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    text = base64.b64encode(stream.getvalue()).decode()
    sample = built(labelme(tmp_path / "raw", **LABELME_MASK, mask=text), tmp_path)[0][0]
    assert sample["boxes"].tolist() == [[5, 8, 20, 30]]
    (mask,) = sample["masks"].to_masks()
    assert np.array_equal(mask[6:30, 4:20] != 0, pixels != 0)
    assert mask.sum() == (pixels != 0).sum()


# --- torch Datasets -------------------------------------------------------------------------------

COCO_TARGET = {"bbox": [4, 6, 16, 24], "category_id": 1}
DICT_TARGET = {"boxes": [GOOD], "labels": [0]}
TARGETS: dict[str, tuple[Any, list[str]]] = {
    "coco, outline of two points": (
        [{**COCO_TARGET, "segmentation": [[4, 6, 20, 6]]}],
        ["outline"],
    ),
    "coco, runs that are not": (
        [{**COCO_TARGET, "segmentation": {"size": [48, 64], "counts": [5]}}],
        ["outline"],
    ),
    "coco, area": ([{**COCO_TARGET, "area": "large"}], ["area"]),
    "coco, keypoints": (
        [
            {**COCO_TARGET, "keypoints": [1, 2, float("nan")]},
        ],
        ["keypoints"],
    ),
    "coco, box": (
        [{"category_id": 1, "bbox": [1, 2], "segmentation": [[4, 6, 20, 6, 20, 30]]}],
        ["box"],
    ),
    "dict, masks": ({**DICT_TARGET, "masks": np.zeros((2, 48, 64), np.uint8)}, ["outline"]),
    "dict, mask of another picture": (
        {**DICT_TARGET, "masks": np.ones((1, 4, 4), np.uint8)},
        ["outline"],
    ),
    "dict, area": ({**DICT_TARGET, "area": [1.0, 2.0]}, ["area"]),
    "voc": (
        {
            "annotation": {
                "object": {
                    "name": "van",
                    "bndbox": {"xmin": "5", "ymin": "7", "xmax": "20", "ymax": "30"},
                    "polygon": {"x1": "1", "y1": "2"},
                }
            }
        },
        ["outline"],
    ),
}


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_of_a_dataset_stays_without_its_bad_part(name, tmp_path):
    """As in files; nothing of it ends the build."""
    target, parts = TARGETS[name]
    dataset, report, rejects = built([(picture(), target)], tmp_path)
    assert dataset[0]["boxes"].tolist() == [GOOD]
    assert [(reject["kind"], reject["part"]) for reject in rejects] == [("part", p) for p in parts]
    assert report.annotations["parts_rejected"] == len(parts)


def test_parts_of_targets_are_stored_or_their_keys_named(tmp_path):
    """Masks, keypoints, areas and crowds of a detector's targets; runs and points of COCO's."""
    mask = np.zeros((1, HEIGHT, WIDTH), np.uint8)
    mask[0, 6:30, 4:20] = 1
    target = {
        **DICT_TARGET,
        "masks": mask,
        "keypoints": [[[5, 7, 2], [0, 0, 0]]],
        "area": [99.0],
        "iscrowd": [1],
        "scores": [0.5],
    }
    (tmp_path / "a").mkdir()
    dataset, report, rejects = built([(picture(), target)], tmp_path / "a")
    sample = dataset[0]
    assert np.array_equal(sample["masks"].to_masks(), mask)
    assert sample["keypoints"].tolist() == [[[5, 7, 2], [0, 0, 0]]]
    assert (sample["area"].tolist(), sample["iscrowd"].tolist(), rejects) == ([99], [True], [])
    assert "keys of targets not read: 'scores' (of 1 target)" in report.notes

    runs = {"size": [HEIGHT, WIDTH], "counts": [4 * HEIGHT, 16 * HEIGHT, 44 * HEIGHT]}
    thing = {**COCO_TARGET, "segmentation": runs, "keypoints": [5, 7, 2]}
    turned = {**COCO_TARGET, "bbox": [10, 10, 30, 10], "attributes": {"rotation": 30}}
    (tmp_path / "b").mkdir()
    dataset, report, rejects = built([(picture(), [thing, turned])], tmp_path / "b")
    sample = dataset[0]
    assert sample["masks"].to_masks()[0].sum() == 16 * HEIGHT
    assert sample["keypoints"].tolist() == [[[5, 7, 2]], [[0, 0, 0]]]
    assert sample["boxes"][1].tolist() == pytest.approx(
        [9.5096, 3.1699, 40.4904, 26.8301], abs=1e-3
    )
    assert "1 turned box packed as the upright boxes around them" in report.notes


def test_both_boxes_of_an_object_of_a_voc_target_are_objects(tmp_path):
    """torchvision makes a list of what is listed twice."""
    boxes = [
        {"xmin": "5", "ymin": "7", "xmax": "20", "ymax": "30"},
        {"xmin": "31", "ymin": "11", "xmax": "50", "ymax": "40"},
    ]
    target = {"annotation": {"object": [{"name": "van", "bndbox": boxes}]}}
    dataset, report, _ = built([(picture(), target)], tmp_path)
    assert dataset[0]["boxes"].tolist() == [GOOD, [30, 10, 50, 40]]
    assert report.annotations["found"] == 2


def test_boxes_of_another_form_are_read_as_they_say(tmp_path):
    """torchvision's tensors of boxes name their form; a form that is not read is not a corners."""

    class Boxes(np.ndarray[Any, Any]):
        format: Any = None

    def tensor(values: Any, form: str) -> Any:
        made = np.array(values, np.float64).view(Boxes)
        made.format = type("Format", (), {"name": form})
        return made

    targets = [
        {"boxes": tensor([[4, 6, 16, 24]], "XYWH"), "labels": [0]},
        {"boxes": tensor([[12, 18, 16, 24]], "CXCYWH"), "labels": [0]},
        {"boxes": tensor([[12, 18, 16, 24, 30]], "CXCYWHR"), "labels": [0]},
    ]
    samples = [
        (Image.new("RGB", (WIDTH, HEIGHT), (n, 0, 0)), target) for n, target in enumerate(targets)
    ]
    dataset, report, rejects = built(samples, tmp_path)
    assert [dataset[n]["boxes"].tolist() for n in range(3)] == [[GOOD], [GOOD], []]
    assert "form CXCYWHR; expected (box, 4)" in rejects[0]["reason"]
    assert report.annotations == {"found": 3, "stored": 2, "rejected": 1}


# --- helpers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("text", "outline is a str"),
        ([[1, 2, 3, 4]], "a polygon of 4 numbers"),
        ([[1, 2, 3, 4, 5, 6, 7]], "a polygon of 7 numbers"),
        ([[1, 2, 3, 4, 5, "x"]], "something else than numbers"),
        ([[1, 2, 3, 4, 5, float("inf")]], "not finite"),
        ({"counts": [1]}, "runs cannot be read"),
        ({"size": [2, 2], "counts": [1, 2]}, "runs of 3 pixels; expected 2x2"),
    ],
)
def test_an_outline_that_cannot_be_read_says_why(value, reason):
    """In words that name what was found."""
    with pytest.raises(ValueError, match=reason):
        read_outline(value)


def test_a_flat_list_is_one_outline():
    """As COCO's own tools take it."""
    assert read_outline([1, 2, 3, 4, 5, 6]) == read_outline([[1, 2, 3, 4, 5, 6]])
    assert read_outline([]) == read_outline(None) == ((), b"")


def test_a_second_attribute_of_a_name_does_not_replace_the_first():
    """Both values are kept, and one that is repeated is kept once."""
    attributes: dict[str, Any] = {"occluded": True}
    for value in ("0", "1", True, "1"):
        add_attribute(attributes, "occluded", value)
    assert attributes == {"occluded": [True, "0", "1"]}
