"""What another library reads of a set of annotations, as JSON: run by scripts/compare_oracles.py.

    python scripts/oracle_facts.py LIBRARY FORMAT FOLDER OUT.json

It runs in the library's own environment, so it imports nothing of this project. Nothing is
corrected but what is named in the docstring of a reader; numbers are as the file has them.

A picture is `size` (width, height, as the library has it) and `objects`; an object has of the
following what the library gives: `label`, `box` (x0 y0 x1 y1), `crowd`, `area`, `keypoints` (flat),
`polygons` (flat, sorted), `mask`, and `difficult`, `truncated`. Masks are packed, see `packed`.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import importlib
import importlib.metadata
import json
import logging
import os
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

LIBRARY_MISSING = 3
"""Exit status when the library is not installed here."""

PICTURE_SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp"}

Facts = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """One folder of pictures with its annotations; a set is made of some.

    Attributes:
        pictures: The folder.
        annotations: Its file (COCO, and the data.yaml of YOLO), or its folder.
        labels: Folder of the label files (YOLO).
        keypoints: Second file with the points of the same annotations (COCO).
    """

    pictures: Path
    annotations: Path
    labels: Path | None = None
    keypoints: Path | None = None


def packed(mask: Any) -> Facts:
    """A mask, (height, width), as JSON."""
    import numpy as np

    bits = np.packbits(np.asarray(mask, bool)).tobytes()
    return {
        "shape": list(mask.shape),
        "bits": base64.b64encode(zlib.compress(bits)).decode("ascii"),
    }


def polygons_of(parts: list[Any]) -> list[list[float]]:
    """Flat polygons, sorted: libraries keep the parts of an object in orders of their own."""
    return sorted([float(value) for value in part] for part in parts)


# --- where the parts of a set are -----------------------------------------------------------------


def find_parts(layout: str, raw: Path) -> list[Part]:
    """The parts of a set, found here without asking the side that is being checked."""
    return list({"coco": _coco, "voc": _voc, "yolo": _yolo, "mask-pairs": _masks}[layout](raw))


def _coco(raw: Path) -> Iterator[Part]:
    files = {}
    for path in sorted(raw.rglob("*.json")):
        with contextlib.suppress(ValueError):
            content = json.loads(path.read_text("utf-8-sig"))
            if isinstance(content, dict) and {"images", "annotations", "categories"} <= set(
                content
            ):
                sample = content["annotations"][:1]
                if sample and ("bbox" in sample[0] or "segmentation" in sample[0]):
                    files[path] = content
    for path, content in files.items():
        instances = path.with_name(path.name.replace("person_keypoints_", "instances_"))
        if instances != path and instances in files:
            continue
        keypoints = path.with_name(path.name.replace("instances_", "person_keypoints_"))
        folders = [path.parent, *(f for f in sorted(raw.rglob("*")) if f.is_dir()), raw]
        names = [image["file_name"] for image in content["images"]]
        pictures = max(folders, key=lambda folder: sum((folder / name).is_file() for name in names))
        second = keypoints if keypoints != path and keypoints in files else None
        yield Part(pictures, path, keypoints=second)


def _voc(raw: Path) -> Iterator[Part]:
    for folder in [raw, *sorted(f for f in raw.rglob("*") if f.is_dir())]:
        stems = {path.stem for path in folder.glob("*.xml")}
        if stems:
            places = [folder, *sorted(f for f in folder.parent.iterdir() if f.is_dir())]
            # The first of those with most: pictures come before masks of the same name.
            pictures = max(places, key=lambda p: len(stems & {x.stem for x in _pictures(p)}))
            yield Part(pictures, folder)


def _yolo(raw: Path) -> Iterator[Part]:
    names = (
        *raw.glob("*.yaml"),
        *raw.glob("*.yml"),
        *raw.glob("classes.txt"),
        *raw.glob("*.names"),
    )
    for folder in sorted(f for f in (raw, *raw.rglob("*")) if f.is_dir() and _pictures(f)):
        parts = list(folder.relative_to(raw).parts)
        labels = folder
        if "images" in parts:
            at = len(parts) - 1 - parts[::-1].index("images")
            labels = raw.joinpath(*parts[:at], "labels", *parts[at + 1 :])
        if names and labels.is_dir():
            yield Part(folder, names[0], labels=labels)


def _masks(raw: Path) -> Iterator[Part]:
    if (raw / "images").is_dir() and (raw / "masks").is_dir():
        yield Part(raw / "images", raw / "masks")


def _pictures(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.suffix.lower() in PICTURE_SUFFIXES)


# --- pycocotools ----------------------------------------------------------------------------------


def pycocotools_coco(part: Part) -> Facts:
    """All of it; `masks` are annToMask. Nothing is corrected."""
    module = importlib.import_module("pycocotools.coco")
    coco = module.COCO(str(part.annotations))
    points = module.COCO(str(part.keypoints)).anns if part.keypoints is not None else coco.anns
    pictures: Facts = {}
    for image in coco.imgs.values():
        objects = []
        for annotation in coco.imgToAnns[image["id"]]:
            thing: Facts = {"label": coco.cats[annotation["category_id"]]["name"]}
            if annotation.get("bbox"):
                x, y, width, height = annotation["bbox"]
                thing["box"] = [x, y, x + width, y + height]
            thing["crowd"] = bool(annotation.get("iscrowd", 0))
            if "area" in annotation:
                thing["area"] = annotation["area"]
            outline = annotation.get("segmentation")
            if outline:
                thing["mask"] = packed(coco.annToMask(annotation))
            if isinstance(outline, list) and outline:
                thing["polygons"] = polygons_of(outline)
            keypoints = points.get(annotation["id"], {}).get("keypoints")
            if keypoints:
                thing["keypoints"] = keypoints
            objects.append(thing)
        size = [image["width"], image["height"]] if "width" in image else None
        pictures[str(part.pictures / image["file_name"])] = {"size": size, "objects": objects}
    return pictures


# --- supervision ----------------------------------------------------------------------------------


def supervision_coco(part: Part) -> Facts:
    """Boxes, crowd, area, masks.

    An area that the file does not have is left out: supervision counts the pixels of its mask then.
    """
    dataset = importlib.import_module("supervision").DetectionDataset.from_coco(
        str(part.pictures), str(part.annotations)
    )
    content = json.loads(part.annotations.read_text("utf-8-sig"))
    image_of = {str((part.pictures / i["file_name"]).resolve()): i for i in content["images"]}
    pictures: Facts = {}
    for path, found in dataset.annotations.items():
        image = image_of[path]
        written = [a for a in content["annotations"] if a["image_id"] == image["id"]]
        objects = _detections(found, dataset.classes)
        for at, (thing, annotation) in enumerate(zip(objects, written, strict=True)):
            thing["crowd"] = bool(found.data["iscrowd"][at])
            if "area" in annotation:
                thing["area"] = float(found.data["area"][at])
            if not annotation.get("segmentation"):
                thing.pop("mask", None)
        size = [image["width"], image["height"]]
        name = str(part.pictures / image["file_name"])
        pictures[name] = {"size": size, "objects": objects}
    return pictures


def supervision_voc(part: Part) -> Facts:
    """Boxes, as written: supervision takes 1 off xmin and ymin, always, which is put back here.

    It does not look at `<size>`, which is taken from the file.
    """
    dataset = importlib.import_module("supervision").DetectionDataset.from_pascal_voc(
        str(part.pictures), str(part.annotations)
    )
    pictures: Facts = {}
    for path, found in dataset.annotations.items():
        objects = _detections(found, dataset.classes)
        for thing in objects:
            thing["box"] = [a + b for a, b in zip(thing["box"], (1, 1, 0, 0), strict=True)]
        file = part.annotations / (Path(path).stem + ".xml")
        size = _voc_size(file) if file.exists() else None
        pictures[path] = {"size": size, "objects": objects}
    return pictures


def _voc_size(file: Path) -> list[int] | None:
    root = ElementTree.parse(file).getroot()
    sides = [int(root.findtext(f"size/{side}") or 0) for side in ("width", "height")]
    return sides if all(sides) else None


def supervision_yolo(part: Part) -> Facts:
    """Boxes and masks. `size` is that of the picture as supervision loads it, which is upright.

    It wants a data.yaml, so one is made where the names stand in a text file.
    """
    module = importlib.import_module("supervision")
    with tempfile.TemporaryDirectory() as folder:
        described = part.annotations
        if described.suffix not in (".yaml", ".yml"):
            described = Path(folder) / "data.yaml"
            described.write_text(json.dumps({"names": part.annotations.read_text().split("\n")}))
        dataset = module.DetectionDataset.from_yolo(
            str(part.pictures), str(part.labels), str(described)
        )
    pictures: Facts = {}
    for path, image, found in dataset:
        size = [image.shape[1], image.shape[0]]
        pictures[path] = {"size": size, "objects": _detections(found, dataset.classes)}
    return pictures


def _detections(found: Any, classes: list[str]) -> list[Facts]:
    objects = []
    for at, (box, class_id) in enumerate(zip(found.xyxy, found.class_id, strict=True)):
        thing: Facts = {"label": classes[class_id], "box": [float(value) for value in box]}
        if found.mask is not None:
            thing["mask"] = packed(found.mask[at])
        objects.append(thing)
    return objects


# --- datumaro -------------------------------------------------------------------------------------


def datumaro_coco(part: Part) -> Facts:
    """Boxes, crowd, polygons, masks of RLE, keypoints.

    It refuses other layouts than `annotations/instances_X.json` and `images/X`, so links are laid
    out like that.
    """
    points: dict[int, list[float]] = {}
    if part.keypoints is not None:
        second = Part(part.pictures, part.keypoints)
        for item in _datumaro_coco_items(second, "person_keypoints"):
            points |= {
                a.id: _keypoints(a) for a in item.annotations if type(a).__name__ == "Points"
            }
    is_pose = part.annotations.name.startswith("person_keypoints")
    kind = "person_keypoints" if is_pose else "instances"
    pictures: Facts = {}
    for item in _datumaro_coco_items(part, kind):
        objects: dict[int, Facts] = {}
        polygons: dict[int, list[Any]] = {}
        for annotation in item.annotations:
            thing = objects.setdefault(annotation.id, {"label": annotation.label})
            thing["crowd"] = bool(annotation.attributes["is_crowd"])
            what = type(annotation).__name__
            if what == "Bbox":
                thing["box"] = annotation.points
            elif what == "Polygon":
                polygons.setdefault(annotation.id, []).append(annotation.points)
            elif what == "RleMask":
                thing["mask"] = packed(annotation.image)
            elif what == "Points":
                thing["keypoints"] = _keypoints(annotation)
        for number, parts in polygons.items():
            objects[number]["polygons"] = polygons_of(parts)
        for number, values in points.items():
            if number in objects:
                objects[number]["keypoints"] = values
        height, width = item.media.size
        inside = os.path.relpath(item.media.path, item.root)
        path = str(part.pictures / inside)
        pictures[path] = {"size": [width, height], "objects": list(objects.values())}
        _name_labels(pictures[path], item.names)
    return pictures


@dataclass
class _Item:
    """What is needed of an item once the links that it was read through are gone."""

    media: Any
    annotations: list[Any]
    root: str
    names: list[str]


def _datumaro_coco_items(part: Part, kind: str) -> list[_Item]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "annotations").mkdir()
        (root / "images").mkdir()
        (root / "annotations" / f"{kind}_all.json").symlink_to(part.annotations)
        (root / "images" / "all").symlink_to(part.pictures)
        return _datumaro_items(root, f"coco_{kind}", str(root / "images" / "all"))


def datumaro_voc(part: Part) -> Facts:
    """Boxes as written, difficult and truncated.

    It refuses classes outside of the official ones without a labelmap.txt, and XML that no list in
    ImageSets names, so links and both files are laid out as it wants them.
    """
    files = sorted(part.annotations.glob("*.xml"))
    names = {
        text.strip()
        for file in files
        for element in ElementTree.parse(file).getroot().findall("object")
        for text in [element.findtext("name") or ""]
    }
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "JPEGImages").symlink_to(part.pictures)
        (root / "Annotations").symlink_to(part.annotations)
        (root / "ImageSets" / "Main").mkdir(parents=True)
        stems = "".join(f"{path.stem}\n" for path in _pictures(part.pictures))
        (root / "ImageSets" / "Main" / "all.txt").write_text(stems)
        lines = "".join(f"{name}:{at},0,0::\n" for at, name in enumerate(sorted(names), 1))
        (root / "labelmap.txt").write_text("background:0,0,0::\n" + lines)
        items = _datumaro_items(root, "voc_detection", str(root / "JPEGImages"))
        pictures: Facts = {}
        for item in items:
            objects = []
            for annotation in item.annotations:
                flags = {name: annotation.attributes[name] for name in ("difficult", "truncated")}
                objects.append({"label": annotation.label, "box": annotation.points, **flags})
            path = str(part.pictures / os.path.relpath(item.media.path, item.root))
            height, width = item.media.size
            pictures[path] = {"size": [width, height], "objects": objects}
            _name_labels(pictures[path], item.names)
    return pictures


def datumaro_yolo(part: Part) -> Facts:
    """Boxes: it knows no outlines.

    It lists label files whose first line is 5 numbers without exponents; the pictures of others are
    not there.
    """
    root = part.annotations.parent
    inside = part.pictures.relative_to(root).parts
    pictures: Facts = {}
    for item in _datumaro_items(root, "yolo", str(root)):
        if Path(item.media.path).parent != root.joinpath(*inside):
            continue
        height, width = item.media.size
        objects = [{"label": a.label, "box": a.points} for a in item.annotations]
        pictures[item.media.path] = {"size": [width, height], "objects": objects}
        _name_labels(pictures[item.media.path], item.names)
    return pictures


def datumaro_mask_pairs(part: Part) -> Facts:
    """Pixels of each class, as `segments`: class name -> mask."""
    pictures: Facts = {}
    root = part.pictures.parent
    for item in _datumaro_items(root, "common_semantic_segmentation", str(root)):
        segments = {item.names[a.label]: packed(a.image) for a in item.annotations}
        height, width = item.media.size
        pictures[item.media.path] = {"size": [width, height], "objects": [], "segments": segments}
    return pictures


def _datumaro_items(root: Path, layout: str, pictures: str) -> list[_Item]:
    logging.disable(logging.WARNING)
    datumaro = importlib.import_module("datumaro")
    dataset = datumaro.Dataset.import_from(str(root), layout)
    names = [c.name for c in dataset.categories()[datumaro.AnnotationType.label]]
    items = []
    for item in dataset:
        assert item.media.size is not None  # Read from the file now, while it is there.
        items.append(_Item(item.media, list(item.annotations), pictures, names))
    return items


def _keypoints(annotation: Any) -> list[float]:
    pairs = zip(annotation.points[::2], annotation.points[1::2], annotation.visibility, strict=True)
    return [float(value) for x, y, seen in pairs for value in (x, y, int(seen))]


def _name_labels(picture: Facts, names: list[str]) -> None:
    for thing in picture["objects"]:
        label = thing["label"]
        thing["label"] = None if label is None else names[label]


# --- the program ----------------------------------------------------------------------------------

READERS: dict[tuple[str, str], Callable[[Part], Facts]] = {
    ("pycocotools", "coco"): pycocotools_coco,
    ("supervision", "coco"): supervision_coco,
    ("supervision", "voc"): supervision_voc,
    ("supervision", "yolo"): supervision_yolo,
    ("datumaro", "coco"): datumaro_coco,
    ("datumaro", "voc"): datumaro_voc,
    ("datumaro", "yolo"): datumaro_yolo,
    ("datumaro", "mask-pairs"): datumaro_mask_pairs,
}


def main() -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(description="Write what a library reads of a set, as JSON.")
    parser.add_argument("library")
    parser.add_argument("format")
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    try:
        importlib.import_module(arguments.library)
    except ModuleNotFoundError as error:
        print(f"{arguments.library} is not installed here: {error}", file=sys.stderr)
        return LIBRARY_MISSING
    raw = arguments.folder.resolve()
    pictures: Facts = {}
    unread: list[str] = []
    with contextlib.redirect_stdout(sys.stderr):  # pycocotools prints how long it took.
        parts = find_parts(arguments.format, raw)
        for part in parts:
            try:
                found = READERS[arguments.library, arguments.format](part)
            except Exception as error:  # A library's own error, whatever it is, is its answer.
                cause = error.__cause__ or error
                unread.append(
                    f"{part.annotations.relative_to(raw)}: {type(cause).__name__}: {cause}"
                )
                continue
            pictures |= {os.path.relpath(path, raw): facts for path, facts in found.items()}
    facts = {
        "version": importlib.metadata.version(arguments.library),
        "part_count": len(parts),
        "pictures": pictures,
        "unread": unread,
    }
    arguments.out.write_text(json.dumps(facts, default=float))
    return 0


if __name__ == "__main__":
    sys.exit(main())
