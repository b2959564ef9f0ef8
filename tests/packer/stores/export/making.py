"""Raw data of every kind that a layout can carry, and what a store holds of each sample."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from packer.building.build import build
from packer.recipe import Recipe
from packer.sources import SourceOptions
from readers.store.reader import open_store
from readers.store.record import RecordReader
from readers.store.shapes.polygons import Polygons, Runs
from tests.packer.conftest import picture

SIZE = (24, 16)
CLASSES = ["bee", "a/b c", "größe", ".hidden"]


def draw(path: Path, **settings: Any) -> None:
    """A picture of noise, as the kind of file that its name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture(path.name)).save(path, **settings)


def make_detection(raw: Path, **more: Any) -> Path:
    """COCO with two splits; outlines, runs, crowds, attributes, and numbers that are not round."""
    for split, first in (("train2017", 0), ("val2017", 10)):
        names = [f"{first + n:06d}.{'jpg' if n % 2 else 'png'}" for n in range(3)]
        for name in names:
            draw(raw / split / name)
        images = [
            {"id": 7 * (first + n) + 3, "file_name": name, "width": SIZE[0], "height": SIZE[1]}
            for n, name in enumerate(names)
        ]
        objects: list[dict[str, Any]] = [
            {"bbox": [1.1, 2.3, 9.7, 8.123], "segmentation": [[1.1, 2.3, 10.8, 2.5, 6.2, 10.4]]},
            {
                "bbox": [0.25, 0.3, 20, 12],
                "segmentation": [[0.25, 0.3, 9, 0.3, 9, 9.1], [12, 4, 20.25, 4, 20.25, 12.3]],
                "attributes": {"color": "red", "seen": True},
            },
            {
                "bbox": [2, 3, 2, 5],
                "segmentation": {"size": [16, 24], "counts": [35, 5, 11, 5, 328]},
                "iscrowd": 1,
            },
            {"bbox": [-3.5, 4.25, 9, 20], "segmentation": [[-3.5, 4.25, 5.5, 4.25, 5.5, 24.25]]},
        ]
        annotations = [
            {
                "id": n + 1,
                "image_id": images[n % 2]["id"],
                "category_id": 5 * n + 1,
                "area": n + 0.1,
            }
            | thing
            for n, thing in enumerate(objects)
        ]
        categories = [{"id": 5 * n + 1, "name": name} for n, name in enumerate(CLASSES)]
        content = {"images": images, "annotations": annotations, "categories": categories, **more}
        path = raw / "annotations" / f"instances_{split}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
    return raw


def make_panoptic(raw: Path) -> Path:
    """COCO's panoptic files of two splits: ids of 3 bytes, a crowd, a thing and a stuff class."""
    for split, first in (("train2017", 0), ("val2017", 10)):
        images, entries = [], []
        for number in range(first, first + 2):
            name, mask = f"{number:06d}.jpg", f"{number:06d}.png"
            draw(raw / split / name)
            ids = np.zeros((SIZE[1], SIZE[0]), np.int32)
            ids[:8], ids[8:, :9] = 70000 + number, 7
            colors = np.stack([ids & 255, ids >> 8 & 255, ids >> 16], axis=-1).astype(np.uint8)
            folder = raw / "annotations" / f"panoptic_{split}"
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(colors).save(folder / mask)
            images.append({"id": 3 * number + 5, "file_name": name, "width": 24, "height": 16})
            segments = [
                {"id": 70000 + number, "category_id": 9, "bbox": [0, 0, 24, 8], "area": 192},
                {"id": 7, "category_id": 4, "bbox": [0, 8, 9, 8], "area": 72, "iscrowd": 1},
            ]
            entry = {"image_id": 3 * number + 5, "file_name": mask, "segments_info": segments}
            entries.append(entry)
        categories = [
            {"id": 4, "name": "person", "isthing": 1},
            {"id": 9, "name": "sky", "isthing": 0},
        ]
        content = {"images": images, "annotations": entries, "categories": categories}
        path = raw / "annotations" / f"panoptic_{split}.json"
        path.write_text(json.dumps(content))
    return raw


def make_pose(raw: Path, visible: int = 2) -> Path:
    """COCO with keypoints, and lines between them."""
    draw(raw / "train2017" / "1.png")
    points = [3.3, 4.1, visible, 0, 0, 0, 11.7, 9.9, 1]
    content = {
        "images": [{"id": 1, "file_name": "1.png", "width": SIZE[0], "height": SIZE[1]}],
        "annotations": [
            {"id": 1, "image_id": 1, "category_id": 1, "bbox": [2, 3, 11.5, 9.25], "area": 5}
            | {"keypoints": points, "num_keypoints": 2}
        ],
        "categories": [
            {"id": 1, "name": "a", "keypoints": ["x", "y", "z"], "skeleton": [[1, 2], [2, 3]]}
        ],
    }
    (raw / "annotations").mkdir()
    (raw / "annotations" / "instances_train2017.json").write_text(json.dumps(content))
    return raw


def make_turned(raw: Path) -> Path:
    """COCO with a turned box and one that is not."""
    draw(raw / "train2017" / "1.png")
    content = {
        "images": [{"id": 1, "file_name": "1.png", "width": SIZE[0], "height": SIZE[1]}],
        "annotations": [
            {"id": 1, "image_id": 1, "category_id": 1, "bbox": [8, 5, 8, 4], "area": 32}
            | {"attributes": {"rotation": 30.0}},
            {"id": 2, "image_id": 1, "category_id": 1, "bbox": [1, 2, 3.5, 4], "area": 14}
            | {"attributes": {"rotation": 0.0}},
        ],
        "categories": [{"id": 1, "name": "a"}],
    }
    (raw / "annotations").mkdir()
    (raw / "annotations" / "instances_train2017.json").write_text(json.dumps(content))
    return raw


def make_store(raw: Path, out: Path, image: str = "original", **options: Any) -> Path:
    """A store of raw data that keeps the bytes of picture files, unless told otherwise."""
    recipe = Recipe(image=image, mode="unchanged")  # type: ignore[arg-type]
    build(raw, out, recipe, source=SourceOptions(**options), workers=1, rejects_max=0)
    return out


def samples(path: Path, *, with_pixels: bool = True) -> list[dict[str, Any]]:
    """The samples of a store, in order: arrays, classes and splits by their names, outlines.

    Args:
        path: The store.
        with_pixels: Whether to decode the images; else there are their sizes, height and width.
    """
    store = open_store(path)
    names = store.manifest.schema.names
    reader = RecordReader(store.layout, [n for n in names if with_pixels or n != "image"])
    image = store.manifest.schema["image"]
    files = RecordReader(store.layout, ["image"])
    found = []
    for shard in store.shards():
        for position in range(len(shard.offsets)):
            record = shard.record(position)
            values = reader.unpack(record)
            for field in store.manifest.schema.fields:
                if field.names and field.kind in ("label", "scalar"):
                    numbers = np.atleast_1d(values[field.name]).tolist()
                    values[field.name] = [field.names[number] for number in numbers]
            if not with_pixels:
                sides = zip(("height", "width"), image.shape[:2], strict=True)
                values["size"] = [
                    int(shard.columns[f"image.{name}"][position]) if side is None else side
                    for name, side in sides
                ]
            if image.codec != "raw":
                values["file"] = bytes(files.encoded(record)[0])
            found.append(values)
    return found


def is_same(a: Any, b: Any, within: float = 0.0) -> bool:
    """Whether two values of a field are, to within so many pixels."""
    if isinstance(a, Polygons):
        pairs = zip(a, b, strict=True)
        return len(a) == len(b) and all(is_same_outline(x, y, within) for x, y in pairs)
    if isinstance(a, np.ndarray):
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        if a.dtype.kind != "f" or not within:
            return bool(np.array_equal(a, b))
        return bool(np.abs(a - b).max(initial=0) <= within)
    return bool(a == b)


def is_same_outline(a: Any, b: Any, within: float) -> bool:
    if isinstance(a, Runs) or isinstance(b, Runs):
        return type(a) is type(b) and np.array_equal(a.counts, b.counts)
    return len(a) == len(b) and all(is_same(x, y, within) for x, y in zip(a, b, strict=True))


def differing(
    a: list[dict[str, Any]], b: list[dict[str, Any]], within: dict[str, float] | None = None
) -> set[str]:
    """Names of the fields that are not the same in two lists of samples, or in one of them only."""
    assert len(a) == len(b)
    found: set[str] = set()
    for x, y in zip(a, b, strict=True):
        found |= x.keys() ^ y.keys()
        for name in x.keys() & y.keys():
            if not is_same(x[name], y[name], (within or {}).get(name, 0.0)):
                found.add(name)
    return found
