"""Draws the sets of annotations that scripts/compare_oracles.py reads in two ways.

Random, but the same for the same seed. They hold what readers tend to disagree about: pictures that
EXIF turns, with annotations on the upright or on the stored grid; boxes over the border; numbers in
odd spellings; crowds; outlines of several parts; empty pictures; and annotations that are to be
rejected.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import numpy as np
from PIL import Image

from readers.store.shapes.rle import encode_counts, mask_runs

CLASSES = ("cat", "a name with spaces", "Straße", "dog")
_ORIENTATION_TAG = 0x0112
_PICTURE_COUNT = 40

Random = np.random.Generator


@dataclass(frozen=True)
class DrawnSet:
    """One set, and who can read it.

    Attributes:
        draw: Writes it into an empty folder.
        format: Its layout.
        oracles: Libraries that read it. Another one refuses it, for a reason that stands beside.
        reject_count: Annotations in it that are to be rejected.
    """

    draw: Callable[[Path, Random], None]
    format: str
    oracles: tuple[str, ...]
    reject_count: int = 0


@dataclass(frozen=True)
class _Picture:
    """A picture in its file: sides as stored, and as it is looked at."""

    name: str
    stored: tuple[int, int]
    upright: tuple[int, int]


def _picture(folder: Path, number: int, random: Random, *, turned: bool = True) -> _Picture:
    """Write one picture of noise; every other one is a JPEG with an EXIF orientation."""
    width, height = (int(side) for side in random.integers(40, 160, 2))
    height += width == height  # Else nobody could tell the stored grid from the upright one.
    pixels = random.integers(0, 256, (height, width, 3), np.uint8)
    orientation = number // 2 % 8 + 1 if turned and number % 2 else 1
    name = f"{number:03d}.{'jpg' if number % 2 else 'png'}"
    exif = Image.Exif()
    if orientation != 1:
        exif[_ORIENTATION_TAG] = orientation
    folder.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(folder / name, exif=exif)
    upright = (height, width) if orientation >= 5 else (width, height)
    return _Picture(name, (width, height), upright)


def _frame(picture: _Picture, random: Random) -> tuple[int, int]:
    """Sides of what annotations are on: the upright picture mostly, or the file's own grid."""
    return picture.stored if random.random() < 0.4 else picture.upright


def _box(size: tuple[int, int], random: Random) -> list[float]:
    """x0 y0 x1 y1 of odd numbers inside of a picture, at least 4 pixels wide and high."""
    width, height = size
    x, y = random.uniform(0, width - 6), random.uniform(0, height - 6)
    return [x, y, random.uniform(x + 4, width), random.uniform(y + 4, height)]


def _star(box: list[float], random: Random) -> list[float]:
    """A polygon of 3 to 12 points around the middle of a box, flat."""
    count = int(random.integers(3, 13))
    angles = np.sort(random.uniform(0, 2 * np.pi, count))
    radii = random.uniform(0.4, 1.0, count) / 2
    x = (box[0] + box[2]) / 2 + (box[2] - box[0]) * radii * np.cos(angles)
    y = (box[1] + box[3]) / 2 + (box[3] - box[1]) * radii * np.sin(angles)
    return [float(value) for value in np.stack([x, y], axis=1).ravel()]


# --- COCO -----------------------------------------------------------------------------------------


def draw_coco(folder: Path, random: Random) -> None:
    """Polygons, both kinds of RLE, crowds, sparse category ids, `images/` above the splits."""
    ids = (0, 7, 18, 90)
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for number in range(_PICTURE_COUNT):
        picture = _picture(folder / "images" / "val", number, random)
        size = _frame(picture, random)
        image = {"id": 1000 - number, "file_name": picture.name}
        images.append({**image, "width": size[0], "height": size[1]})
        for _ in range(0 if number % 7 == 6 else int(random.integers(1, 7))):
            annotations.append(_coco_object(size, random))
            annotations[-1] |= {"image_id": 1000 - number, "category_id": int(random.choice(ids))}
    for number, annotation in enumerate(annotations):
        annotation["id"] = 500 + 3 * number
    on_first = [a for a in annotations if a["image_id"] == 1000]
    width, height = images[0]["width"], images[0]["height"]
    for number, change in enumerate(
        ({}, {"bbox": [5, 5, 0, 7]}, {"bbox": [width + 1, height + 1, 3, 3]})
    ):  # The same once more, no area, and outside.
        annotations.append({**on_first[0], **change, "id": 90_000 + number})
    categories = [{"id": number, "name": name} for number, name in zip(ids, CLASSES, strict=True)]
    content = {"images": images, "annotations": annotations, "categories": categories[::-1]}
    (folder / "annotations").mkdir()
    (folder / "annotations" / "instances_val.json").write_text(json.dumps(content))


def _coco_object(size: tuple[int, int], random: Random) -> dict[str, Any]:
    width, height = size
    box = _box(size, random)
    kind = int(random.integers(0, 6))
    outline: Any
    if kind < 2:
        outline = [_star(box, random) for _ in range(kind + 1)]
    elif kind == 2:  # Over the border of the picture, as labelling tools let one draw.
        box = [box[0] - width / 3, box[1], box[2], box[3] + height / 3]
        outline = [_star(box, random)]
    elif kind == 3:
        box = [float(round(value)) for value in box]
        outline = [[int(v) for v in (box[0], box[1], box[2], box[1], box[2], box[3])]]
    else:
        mask = np.zeros((height, width), np.uint8)
        x0, y0, x1, y1 = (int(value) for value in box)
        mask[y0:y1, x0:x1] = random.random((y1 - y0, x1 - x0)) < 0.7
        runs = mask_runs(mask)
        counts = runs.tolist() if kind == 4 else encode_counts(runs).decode("ascii")
        outline = {"size": [height, width], "counts": counts}
    bbox = [box[0], box[1], box[2] - box[0], box[3] - box[1]]
    area = float(random.uniform(1, 500)) if random.random() < 0.8 else 17
    return {"bbox": bbox, "segmentation": outline, "area": area, "iscrowd": int(kind == 4)}


def draw_coco_keypoints(folder: Path, random: Random) -> None:
    """Five points an object, some not marked, some hidden, on turned pictures as well."""
    names = ["nose", "left", "right", "top", "tail"]
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for number in range(_PICTURE_COUNT):
        picture = _picture(folder / "images" / "val", number, random)
        size = _frame(picture, random)
        image = {"id": number, "file_name": picture.name, "width": size[0], "height": size[1]}
        images.append(image)
        for _ in range(int(random.integers(0, 4))):
            box = _box(size, random)
            points: list[float] = []
            for _ in names:
                x, y = random.uniform(box[0], box[2]), random.uniform(box[1], box[3])
                seen = int(random.integers(0, 3))
                points += [x, y, seen] if seen else [0, 0, 0]
            bbox = [box[0], box[1], box[2] - box[0], box[3] - box[1]]
            annotation = {"id": len(annotations) + 1, "image_id": number, "category_id": 1}
            outline = {"segmentation": [_star(box, random)], "area": bbox[2] * bbox[3]}
            seen_count = sum(value > 0 for value in points[2::3])
            pose = {"keypoints": points, "num_keypoints": seen_count}
            annotations.append({**annotation, "bbox": bbox, "iscrowd": 0, **outline, **pose})
    category = {"id": 1, "name": "person", "keypoints": names, "skeleton": [[1, 2], [1, 3]]}
    content = {"images": images, "annotations": annotations, "categories": [category]}
    (folder / "annotations").mkdir()
    (folder / "annotations" / "person_keypoints_val.json").write_text(json.dumps(content))


def draw_coco_bare(folder: Path, random: Random) -> None:
    """One file beside its pictures, without area or iscrowd, in spellings of other tools."""
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for number in range(8):
        picture = _picture(folder, number, random)
        width, height = picture.upright
        images.append({"id": number, "file_name": picture.name, "width": width, "height": height})
        for _ in range(3):
            box = [float(f"{value:.3e}") for value in _box(picture.upright, random)]
            bbox = [box[0], box[1], box[2] - box[0], box[3] - box[1]]
            annotation = {"id": len(annotations), "image_id": number, "category_id": number % 4}
            annotations.append({**annotation, "bbox": bbox, "segmentation": []})
    categories = [{"id": number, "name": name} for number, name in enumerate(CLASSES)]
    content = {"images": images, "annotations": annotations, "categories": categories}
    (folder / "annotations.json").write_text(json.dumps(content, indent=1), "utf-8")


# --- Pascal VOC -----------------------------------------------------------------------------------


def draw_voc(folder: Path, random: Random) -> None:
    """Official folders, whole numbers from 1, flags, and a box that ends where it begins."""
    _draw_voc(folder, random, first=1)


def draw_voc_from_zero(folder: Path, random: Random) -> None:
    """The same by a tool that counts from 0, with fractions."""
    _draw_voc(folder, random, first=0)


def _draw_voc(folder: Path, random: Random, first: int) -> None:
    names: list[str] = []
    (folder / "Annotations").mkdir()
    for number in range(_PICTURE_COUNT):
        picture = _picture(folder / "JPEGImages", number, random)
        size = _frame(picture, random)
        names.append(Path(picture.name).stem)
        objects = []
        for at in range(int(random.integers(0, 6))):
            x0, y0, x1, y1 = _box(size, random)
            if first == 1:
                x0, y0, x1, y1 = (float(int(value)) for value in (x0 + 1, y0 + 1, x1, y1))
            elif at == 0:
                x0 = 0
            objects.append((x0, y0, x1, y1))
        if number == 0:
            objects.append((30.0, 20.0, 10.0, 25.0))  # Ends left of where it begins.
        xml = "".join(_voc_object(box, random) for box in objects)
        (folder / "Annotations" / f"{names[-1]}.xml").write_text(
            f"<annotation><filename>{picture.name}</filename><size><width>{size[0]}</width>"
            f"<height>{size[1]}</height><depth>3</depth></size>{xml}</annotation>",
            "utf-8",
        )
    lists = folder / "ImageSets" / "Main"
    lists.mkdir(parents=True)
    (lists / "train.txt").write_text("\n".join(names[:-5]) + "\n")
    (lists / "val.txt").write_text("\n".join(names[-5:]))


def _voc_object(box: tuple[float, ...], random: Random) -> str:
    name = escape(str(random.choice(CLASSES)))
    flags = random.integers(0, 2, 2)
    # Tools write the sides in any order; and a part's box is not an object's.
    sides = list(zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True))
    random.shuffle(sides)
    inner = "".join(f"<{side}>{value:g}</{side}>" for side, value in sides)
    return (
        f"<object><name>{name}</name><truncated>{flags[0]}</truncated>"
        f"<difficult>{flags[1]}</difficult><bndbox>{inner}</bndbox></object>"
    )


# --- YOLO -----------------------------------------------------------------------------------------


def draw_yolo(folder: Path, random: Random) -> None:
    """Boxes in shares of upright pictures, in odd spellings, and pictures without labels."""
    _draw_yolo(folder, random, _yolo_box)


def draw_yolo_segments(folder: Path, random: Random) -> None:
    """Outlines in shares of upright pictures."""
    _draw_yolo(folder, random, _yolo_outline)


def _draw_yolo(
    folder: Path, random: Random, line: Callable[[tuple[int, int], int, Random], str]
) -> None:
    for number in range(_PICTURE_COUNT):
        split = "val" if number % 5 == 4 else "train"
        picture = _picture(folder / "images" / split, number, random)
        count = 0 if number % 7 == 6 else int(random.integers(1, 6))
        lines = [line(picture.upright, at, random) for at in range(count)]
        labels = folder / "labels" / split
        labels.mkdir(parents=True, exist_ok=True)
        if number != 6:  # One without a label file, and others with an empty one.
            (labels / f"{Path(picture.name).stem}.txt").write_text("\n".join(lines) + "\n")
    names = "".join(f"  {number}: {name}\n" for number, name in enumerate(CLASSES))
    text = f"path: .\ntrain: images/train\nval: images/val\nnames:\n{names}"
    (folder / "data.yaml").write_text(text, "utf-8")


def _yolo_box(size: tuple[int, int], at: int, random: Random) -> str:
    x0, y0, x1, y1 = np.array(_box(size, random)) / np.tile(size, 2)
    values = ((x0 + x1) / 2, (y0 + y1) / 2, x1 - x0, y1 - y0)
    # Datumaro passes over a file, silently, when its first line has an exponent.
    spelling = str(random.choice(["{:.17g}", "{:.9e}"])) if at else "{:.6f}"
    return f"{random.integers(0, 4)} " + " ".join(spelling.format(value) for value in values)


def _yolo_outline(size: tuple[int, int], at: int, random: Random) -> str:
    points = np.array(_star(_box(size, random), random)).reshape(-1, 2) / size
    # Four points would be a turned box as well, which no reader can tell.
    points = points if len(points) != 4 else points[:3]
    return f"{random.integers(0, 4)} " + " ".join(f"{value:.7f}" for value in points.ravel())


# --- masks ----------------------------------------------------------------------------------------


def draw_masks(folder: Path, random: Random) -> None:
    """Masks of colours, with a table of them as Datumaro writes it."""
    names = ("background", *CLASSES)
    colors = [[0, 0, 0], [128, 0, 0], [0, 128, 0], [128, 128, 0], [7, 8, 9]]
    (folder / "masks").mkdir()
    for number in range(8):
        picture = _picture(folder / "images", number, random, turned=False)
        width, height = picture.stored
        ids = np.zeros((height, width), np.int64)
        for _ in range(4):
            x0, y0, x1, y1 = (int(value) for value in _box(picture.stored, random))
            ids[y0:y1, x0:x1] = random.integers(0, len(names))
        mask = Image.fromarray(np.array(colors, np.uint8)[ids])
        mask.save(folder / "masks" / f"{Path(picture.name).stem}.png")
    meta = {
        "label_map": {str(number): name for number, name in enumerate(names)},
        "segmentation_colors": colors,
        "background_label": "0",
    }
    (folder / "dataset_meta.json").write_text(json.dumps(meta))


ALL = ("pycocotools", "supervision", "datumaro")

SETS: dict[str, DrawnSet] = {
    "coco": DrawnSet(draw_coco, "coco", ALL, reject_count=3),
    "coco-keypoints": DrawnSet(draw_coco_keypoints, "coco", ALL),
    # Datumaro wants iscrowd.
    "coco-bare": DrawnSet(draw_coco_bare, "coco", ("pycocotools", "supervision")),
    "voc": DrawnSet(draw_voc, "voc", ("supervision", "datumaro"), reject_count=1),
    "voc-from-zero": DrawnSet(
        draw_voc_from_zero, "voc", ("supervision", "datumaro"), reject_count=1
    ),
    "yolo": DrawnSet(draw_yolo, "yolo", ("supervision", "datumaro")),
    # Of YOLO's lines datumaro reads boxes alone.
    "yolo-segments": DrawnSet(draw_yolo_segments, "yolo", ("supervision",)),
    "masks": DrawnSet(draw_masks, "mask-pairs", ("datumaro",)),
}
"""What is drawn, by the name that the table gives it."""
