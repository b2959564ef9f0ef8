"""What a dataset gives beside an image -> fields of a sample."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np

from packer.errors import SourceError
from packer.sources.annotations import (
    BOX_FIELDS,
    Annotations,
    RawObject,
    object_fields,
    pack_annotations,
    pack_points,
)
from packer.sources.items import RawFile, Reject
from packer.sources.source import SourceOptions
from readers.store.schema import Field


class TargetError(Exception):
    """A target is not of the form of the others. The text is the reason."""


class Targets:
    """Turns the targets of a dataset into fields, all in the way of the first.

    Args:
        dataset: May have `classes`, or `coco.cats`.
        targets: Of its samples.
        options: `classes` names the labels.

    Attributes:
        classes: Names of the labels.
        fields: What the samples have.
        rejects: Annotations that were refused.
        notes: What was seen.

    Raises:
        SourceError: The first target has no known form.
    """

    def __init__(self, dataset: Any, targets: Sequence[Any], options: SourceOptions) -> None:
        self.rejects: list[Reject] = []
        self.notes: list[str] = []
        self.fields: tuple[Field, ...] = ()
        self._place = type(dataset).__name__
        self._kind = _kind_of(targets[0]) if targets else "none"
        if self._kind == "unknown":
            raise SourceError(
                f"{self._place}: the first target is a {type(targets[0]).__name__}: "
                f"{str(targets[0])[:80]!r}; expected a class number or name, a mask, a dict with "
                "'boxes' and 'labels', or annotations as CocoDetection or VOCDetection give. Give "
                "the dataset a target_transform that makes one of these."
            )
        self._labels: dict[Any, int] = {}
        self.classes = self._named(dataset, targets, options)
        self._has_outlines = self._kind == "coco" and any(
            thing.get("segmentation") and isinstance(thing.get("segmentation"), list)
            for target in targets
            for thing in target
            if isinstance(thing, dict)
        )
        if self._kind in ("number", "name"):
            self.fields = (Field(name="label", kind="label", dtype="int64", names=self.classes),)
        elif self._kind == "mask":
            self.fields = (Field(name="mask", kind="mask", dtype="uint8", shape=(None, None)),)
        elif self._kind == "coco":
            names = (*BOX_FIELDS, "area", "iscrowd")
            self.fields = object_fields(
                self.classes, (*names, "masks") if self._has_outlines else names
            )
        elif self._kind == "boxes":
            self.fields = object_fields(self.classes)
        elif self._kind == "voc":
            self.fields = object_fields(self.classes, (*BOX_FIELDS, "difficult", "truncated"))

    def _named(
        self, dataset: Any, targets: Sequence[Any], options: SourceOptions
    ) -> tuple[str, ...]:
        """Class names, and in `_labels` what the dataset calls each."""
        names = options.classes or getattr(dataset, "classes", None)
        if self._kind == "coco":
            coco = getattr(dataset, "coco", None)
            cats: dict[int, Any] = getattr(coco, "cats", {}) or {}
            said = {x["category_id"] for t in targets for x in t if "category_id" in x}
            ids = sorted(cats) or sorted(said)
            self._labels = {category: label for label, category in enumerate(ids)}
            return tuple(str(cats[i]["name"]) if i in cats else str(i) for i in ids)
        if self._kind == "name":
            found = tuple(names) if names else tuple(sorted({str(target) for target in targets}))
        elif self._kind == "voc":
            found = tuple(
                options.classes or sorted({_voc_name(x) for t in targets for x in _voc(t)})
            )
        elif self._kind in ("number", "boxes"):
            if names:
                found = tuple(map(str, names))
            else:
                top = max((_top(target) for target in targets), default=-1)
                found = tuple(map(str, range(top + 1)))
                self.notes.append("classes have no names: they are called by their numbers")
            self._labels = {label: label for label in range(len(found))}
            return found
        else:
            return ()
        self._labels = {class_name: label for label, class_name in enumerate(found)}
        return found

    def of(self, target: Any, index: int) -> tuple[dict[str, Any], bytes, dict[str, RawFile]]:
        """(values, annotations, masks) of one sample.

        Raises:
            TargetError: It is of another form than the first.
        """
        if self._kind == "none":
            return {}, b"", {}
        if _kind_of(target) != self._kind:
            raise TargetError(
                f"the target is a {type(target).__name__}, and that of the first sample was "
                f"another kind ({self._kind})"
            )
        if self._kind in ("number", "name"):
            return {"label": self._label(target)}, b"", {}
        if self._kind == "mask":
            return {}, b"", {"mask": target}
        makers = {"coco": self._coco_objects, "boxes": _box_objects, "voc": self._voc_objects}
        objects = []
        for number, thing in enumerate(makers[self._kind](target)):
            place = f"target {number}"
            if isinstance(thing, str):
                where = f"{self._place}[{index}]: {place}"
                self.rejects.append(Reject(key=b"%d" % index, path=where, reason=thing))
                continue
            label = self._labels.get(thing.pop("category"))
            if label is None:
                where = f"{self._place}[{index}]: {place}"
                reason = f"its class is not one of {len(self.classes)} known ones"
                self.rejects.append(Reject(key=b"%d" % index, path=where, reason=reason))
                continue
            objects.append(RawObject(place=place, label=label, **thing))
        return {}, pack_annotations(Annotations(objects=tuple(objects))), {}

    def _label(self, target: Any) -> int:
        value: Any = target if self._kind == "name" else int(target)
        if value not in self._labels:
            raise TargetError(f"class {value!r} is not one of the {len(self.classes)} classes")
        return self._labels[value]

    def _coco_objects(self, target: Any) -> list[Any]:
        found: list[Any] = []
        for thing in target:
            try:
                x, y, w, h = map(float, thing["bbox"])
                category = thing["category_id"]
            except (KeyError, TypeError, ValueError) as error:
                found.append(f"no annotation as COCO has it: {type(error).__name__} {error}")
                continue
            entry = {
                "category": category,
                "box": (x, y, x + w, y + h),
                "iscrowd": bool(thing.get("iscrowd", 0)),
                "area": float(thing["area"]) if "area" in thing else None,
            }
            outline = thing.get("segmentation")
            if self._has_outlines and isinstance(outline, list):
                parts = [np.asarray(part, np.float64).reshape(-1, 2) for part in outline]
                entry["polygons"] = tuple(pack_points(part) for part in parts)
            found.append(entry)
        return found

    def _voc_objects(self, target: Any) -> list[Any]:
        found: list[Any] = []
        for thing in _voc(target):
            try:
                box = thing["bndbox"]
                # Pascal VOC counts from 1, and includes the last pixel.
                sides = [float(box[side]) for side in ("xmin", "ymin", "xmax", "ymax")]
            except (KeyError, TypeError, ValueError) as error:
                found.append(f"no object as VOC has it: {type(error).__name__} {error}")
                continue
            found.append(
                {
                    "category": _voc_name(thing),
                    "box": (sides[0] - 1, sides[1] - 1, sides[2], sides[3]),
                    "difficult": str(thing.get("difficult", "0")) == "1",
                    "truncated": str(thing.get("truncated", "0")) == "1",
                }
            )
        return found


def _kind_of(target: Any) -> str:
    """Which form a target has."""
    if isinstance(target, str):
        return "name"
    if isinstance(target, numbers.Integral) or (
        getattr(target, "shape", None) == () and "int" in str(getattr(target, "dtype", ""))
    ):
        return "number"
    if isinstance(target, dict):
        if "annotation" in target:
            return "voc"
        return "boxes" if {"boxes", "labels"} <= target.keys() else "unknown"
    if isinstance(target, (list, tuple)):
        are_dicts = all(isinstance(thing, dict) for thing in target)
        has_boxes = not target or any("bbox" in thing for thing in target if are_dicts)
        return "coco" if are_dicts and has_boxes else "unknown"
    return "mask" if isinstance(target, RawFile) else "unknown"


def _box_objects(target: Any) -> list[Any]:
    """Of torchvision's detection targets: boxes are x0 y0 x1 y1."""
    boxes = np.asarray(target["boxes"], np.float64).reshape(-1, 4)
    labels = np.asarray(target["labels"]).reshape(-1)
    if len(boxes) != len(labels):
        return [f"{len(boxes)} boxes and {len(labels)} labels; expected as many of each"]
    return [
        {"category": int(label), "box": tuple(map(float, box))}
        for box, label in zip(boxes, labels, strict=True)
    ]


def _voc(target: Any) -> list[Any]:
    """Objects of a VOCDetection target; a single one is no list."""
    found = target["annotation"].get("object", [])
    return found if isinstance(found, list) else [found]


def _voc_name(thing: Any) -> str:
    return str(thing.get("name", ""))


def _top(target: Any) -> int:
    """Largest class number of a target."""
    if isinstance(target, dict):
        labels = np.asarray(target["labels"]).reshape(-1)
        return int(labels.max()) if len(labels) else -1
    return int(target)
