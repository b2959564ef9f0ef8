"""Objects of one target of a torch Dataset: as CocoDetection, VOCDetection and detectors have them.

What cannot be used of an object does not take the rest of it along.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from xml.etree.ElementTree import Element

import msgspec
import numpy as np
from numpy.typing import NDArray

from packer.items.annotations import RawObject, pack_points, pack_runs
from packer.sources.coco.turned import turn_object
from packer.sources.outlines import read_outline
from packer.sources.voc.objects import RADIANS_MAX, make_object
from packer.sources.voc.xml import VocFile, VocObject, add_object
from readers.store.shapes.rle import mask_runs

VOC_ORIGIN = 1
"""Pascal VOC counts from 1, and a box includes its last pixel."""


@dataclass(frozen=True, kw_only=True)
class Made:
    """An object whose label is not known yet.

    Attributes:
        category: What the dataset calls its class.
        object: With label 0.
        lost_parts: (part, reason) of each part that is left out of it.
        is_turned: Whether its box was turned, and is the upright one around it.
    """

    category: Any
    object: RawObject
    lost_parts: tuple[tuple[str, str], ...] = ()
    is_turned: bool = False


Objects = Iterator["Made | str"]
"""Objects of a target, and why others are none."""


def has_value(thing: Any, key: str) -> bool:
    """Whether a dict has something under a key."""
    value = thing.get(key) if isinstance(thing, dict) else None
    return value is not None and (not hasattr(value, "__len__") or len(value) > 0)


# --- CocoDetection --------------------------------------------------------------------------------


def coco_objects(target: Any, point_count: int) -> Objects:
    """Objects of annotations as COCO has them."""
    for number, thing in enumerate(target):
        lost: list[tuple[str, str]] = []
        try:
            category = thing["category_id"]
            hash(category)
        except (KeyError, TypeError) as error:
            yield f"no annotation as COCO has it: {type(error).__name__} {error}"
            continue
        polygons: tuple[bytes, ...] = ()
        runs = b""
        try:
            polygons, runs = read_outline(thing.get("segmentation"))
        except ValueError as error:
            lost.append(("outline", f"{error}. The object is stored without it"))
        box, problem = _coco_box(thing.get("bbox"))
        if box is None and not polygons and not runs:
            yield f"no annotation as COCO has it: {problem}"
            continue
        if box is None:
            lost.append(("box", f"{problem}. The object is stored with the box around its outline"))
        keypoints = b""
        if point_count and has_value(thing, "keypoints"):
            points = _numbers(thing["keypoints"])
            if points is None or len(points) != 3 * point_count:
                reason = f"keypoints are not {3 * point_count} finite numbers"
                lost.append(("keypoints", f"{reason}. The object is stored without them"))
            else:
                keypoints = pack_points(points, "<f4")
        area = _numbers([thing.get("area", 0)])
        if area is None:
            lost.append(("area", f"area {thing['area']!r:.40} is not a number. It is computed"))
        made = RawObject(
            place=f"target {number}",
            label=0,
            box=box,
            polygons=polygons,
            runs=runs,
            keypoints=keypoints,
            area=float(area[0]) if area is not None and "area" in thing else None,
            iscrowd=bool(thing.get("iscrowd", 0)),
        )
        said = thing.get("rotation")
        attributes = thing.get("attributes")
        if not said and isinstance(attributes, dict):
            said = attributes.get("rotation")
        turned = msgspec.structs.replace(turn_object(made, said, None), keypoints=keypoints)
        yield Made(
            category=category,
            object=turned,
            lost_parts=tuple(lost),
            is_turned=turned.box != made.box,
        )


def _coco_box(bbox: Any) -> tuple[tuple[float, float, float, float] | None, str]:
    """The box, or None and what is wrong with it."""
    numbers = _numbers(bbox)
    if numbers is None or len(numbers) != 4:
        return None, f"bbox is {bbox!r:.60}; expected x, y, width, height"
    x, y, width, height = numbers
    return (x, y, x + width, y + height), ""


def _numbers(values: Any) -> list[float] | None:
    """Finite numbers, or None where they are something else."""
    try:
        numbers = list(map(float, values))
    except (TypeError, ValueError, OverflowError):
        return None
    return numbers if math.isfinite(sum(numbers)) else None


# --- VOCDetection ---------------------------------------------------------------------------------


def voc_things(target: Any) -> list[Any]:
    """Objects of a VOCDetection target; a single one is not a list."""
    annotation = target["annotation"]
    found = annotation.get("object", []) if isinstance(annotation, dict) else []
    return found if isinstance(found, list) else [found]


def voc_name(thing: Any) -> str:
    """Name of the class of an object."""
    return str(thing.get("name") or "").strip() if isinstance(thing, dict) else ""


def has_voc_degrees(targets: Any) -> bool:
    """Whether an angle of any turned box cannot be radians."""
    for target in targets:
        found = _voc_file(target)
        if any(o.turned and abs(o.turned.angle) > RADIANS_MAX for o in found.objects):
            return True
    return False


def voc_objects(target: Any, *, has_degrees: bool) -> Objects:
    """Objects of a target as VOCDetection has it: nested dicts of text."""
    found = _voc_file(target)
    lost: dict[int, list[tuple[str, str]]] = {}
    for number, part, reason in found.lost_parts:
        lost.setdefault(number, []).append((part, reason))
    for _, reason in found.rejects:
        yield f"no object as VOC has it: {reason}"
    for thing in found.objects:
        place = f"target {thing.number - 1}"
        if thing.box_number:
            place += f", box {thing.box_number}"
        yield Made(
            category=thing.name,
            object=_voc_object(thing, place, has_degrees=has_degrees),
            lost_parts=tuple(lost.pop(thing.number, ())),
            is_turned=thing.turned is not None or bool(thing.degrees),
        )


def _voc_object(thing: VocObject, place: str, *, has_degrees: bool) -> RawObject:
    made = make_object(thing, "", 0, VOC_ORIGIN, has_degrees=has_degrees)
    return msgspec.structs.replace(made, place=place, keypoints=b"")


def _voc_file(target: Any) -> VocFile:
    found = VocFile()
    for number, thing in enumerate(voc_things(target), 1):
        add_object(found, number, _element("object", thing))
    return found


def _element(tag: str, value: Any) -> Element:
    """The XML element that a nested dict was made of; a list is several of one name."""
    element = Element(tag)
    if isinstance(value, dict):
        for key, inner in value.items():
            for one in inner if isinstance(inner, list) else [inner]:
                element.append(_element(str(key), one))
    elif value is not None:
        element.text = str(value)
    return element


# --- Dicts of boxes and labels --------------------------------------------------------------------

READ_KEYS = frozenset(("boxes", "labels", "area", "iscrowd", "masks", "keypoints", "image_id"))
"""Keys of a dict that are read; the id of an image is its position."""

_TO_CORNERS = {
    "XYXY": lambda a, b, c, d: (a, b, c, d),
    "XYWH": lambda a, b, c, d: (a, b, a + c, b + d),
    "CXCYWH": lambda a, b, c, d: (a - c / 2, b - d / 2, a + c / 2, b + d / 2),
}
"""Forms of boxes that torchvision's `tv_tensors` declare."""


def box_objects(target: Any, point_count: int) -> Objects:
    """Objects of torchvision's detection targets: boxes are x0 y0 x1 y1 unless they say."""
    boxes = np.asarray(target["boxes"], np.float64)
    labels = np.asarray(target["labels"]).reshape(-1)
    form = getattr(getattr(target["boxes"], "format", None), "name", "XYXY")
    boxes = boxes.reshape(-1, 4) if boxes.size == 0 else boxes
    if boxes.ndim != 2 or boxes.shape[1] != 4 or form not in _TO_CORNERS:
        reason = f"boxes of shape {boxes.shape} and form {form}; expected (box, 4), x0 y0 x1 y1"
        yield from [reason] * max(len(boxes), 1)
        return
    if len(boxes) != len(labels):
        reason = f"{len(boxes)} boxes and {len(labels)} labels; expected as many of each"
        yield from [reason] * max(len(boxes), len(labels))
        return
    parts = {
        key: _part(target, key, len(boxes)) for key in ("area", "iscrowd", "masks", "keypoints")
    }
    for number, (label, box) in enumerate(zip(labels, boxes.tolist(), strict=True)):
        lost: list[tuple[str, str]] = []
        values = {key: _one(part, number, key, lost) for key, part in parts.items()}
        crowd = values["iscrowd"]
        made = RawObject(
            place=f"target {number}",
            label=0,
            box=_TO_CORNERS[form](*box),
            runs=_mask_runs(values["masks"], lost),
            keypoints=_box_points(values["keypoints"], point_count, lost),
            area=float(values["area"]) if values["area"] is not None else None,
            iscrowd=bool(crowd) if crowd is not None else False,
        )
        yield Made(category=int(label), object=made, lost_parts=tuple(lost))


def _part(target: Any, key: str, count: int) -> NDArray[Any] | str | None:
    """What all objects have under a key, or why it cannot be given to them."""
    if target.get(key) is None:
        return None
    values = np.asarray(target[key])
    if values.ndim == 0 or len(values) != count:
        found = len(values) if values.ndim else 1
        return f"{found} {key} and {count} boxes; expected as many of each"
    return values


_PART_NAMES = {"masks": "outline"}


def _one(
    part: NDArray[Any] | str | None, number: int, key: str, lost: list[tuple[str, str]]
) -> Any:
    if isinstance(part, str):
        lost.append((_PART_NAMES.get(key, key), f"{part}. The object is stored without it"))
        return None
    return None if part is None else part[number]


def _mask_runs(mask: Any, lost: list[tuple[str, str]]) -> bytes:
    if mask is None:
        return b""
    try:
        pixels = np.asarray(mask) != 0
        if pixels.ndim == 3 and len(pixels) == 1:
            pixels = pixels[0]
        return pack_runs(mask_runs(pixels))
    except ValueError as error:
        lost.append(("outline", f"{error}. The object is stored without it"))
        return b""


def _box_points(points: Any, point_count: int, lost: list[tuple[str, str]]) -> bytes:
    if points is None:
        return b""
    values = np.asarray(points, np.float64)
    if values.shape != (point_count, 3) or not np.isfinite(values).all():
        reason = f"keypoints of shape {values.shape}, expected ({point_count}, 3), finite"
        lost.append(("keypoints", f"{reason}. The object is stored without them"))
        return b""
    return pack_points(values, "<f4")
