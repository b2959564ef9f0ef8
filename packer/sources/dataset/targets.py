"""What a dataset gives beside an image -> fields of a sample."""

from __future__ import annotations

import numbers
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from packer.errors import SourceError
from packer.items.annotations import (
    BOX_FIELDS,
    Annotations,
    keypoint_field,
    object_fields,
    pack_annotations,
)
from packer.items.findings import Findings
from packer.items.raw_item import RawFile
from packer.sources.dataset.objects import (
    READ_KEYS,
    Objects,
    box_objects,
    coco_objects,
    has_value,
    has_voc_degrees,
    voc_name,
    voc_objects,
    voc_things,
)
from packer.sources.source import SourceOptions
from packer.wording import count_text
from readers.store.schema import Field


class TargetError(Exception):
    """A target is not of the form of the others. The text is the reason."""


class Targets:
    """Turns the targets of a dataset into fields, all in the way of the first.

    Args:
        dataset: May have `classes`, or `coco.cats`.
        targets: Of its samples.
        options: `classes` names the labels.
        findings: Takes annotations that are refused, and notes.

    Attributes:
        classes: Names of the labels.
        fields: What the samples have.

    Raises:
        SourceError: The first target has no known form.
    """

    def __init__(
        self, dataset: Any, targets: Sequence[Any], options: SourceOptions, findings: Findings
    ) -> None:
        self._findings = findings
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
        self._point_count = self._count_points(targets)
        self._has_degrees = self._kind == "voc" and has_voc_degrees(targets)
        self._turned_count = 0
        if self._kind in ("number", "name"):
            self.fields = (Field(name="label", kind="label", dtype="int64", names=self.classes),)
        elif self._kind == "mask":
            self.fields = (Field(name="mask", kind="mask", dtype="uint8", shape=(None, None)),)
        elif self._kind in ("coco", "boxes", "voc"):
            self.fields = self._object_fields(targets)

    def _object_fields(self, targets: Sequence[Any]) -> tuple[Field, ...]:
        """Fields of objects: what those of any target have."""
        names = list(BOX_FIELDS)
        if self._kind == "coco":
            things = [thing for target in targets for thing in target]
            names += ["area", "iscrowd"]
            names += ["masks"] if any(has_value(thing, "segmentation") for thing in things) else []
        elif self._kind == "boxes":
            names += [key for key in ("area", "iscrowd", "masks") if any(key in t for t in targets)]
            self._findings.notes += _unread_notes(targets)
        else:
            things = [thing for target in targets for thing in voc_things(target)]
            names += ["difficult", "truncated"]
            names += ["masks"] if any(has_value(thing, "polygon") for thing in things) else []
        points = keypoint_field(self._point_count) if self._point_count else None
        return object_fields(self.classes, tuple(names), keypoints=points)

    def _count_points(self, targets: Sequence[Any]) -> int:
        """How many keypoints an object has, by the first that has any; 0 where none has."""
        if self._kind == "coco":
            things = (thing for target in targets for thing in target)
            first = next((thing for thing in things if has_value(thing, "keypoints")), None)
            return 0 if first is None else len(first["keypoints"]) // 3
        if self._kind == "boxes":
            found = (np.asarray(t["keypoints"]) for t in targets if has_value(t, "keypoints"))
            return next((points.shape[1] for points in found if points.ndim == 3), 0)
        return 0

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
                options.classes
                or sorted({name for t in targets for x in voc_things(t) if (name := voc_name(x))})
            )
        elif self._kind in ("number", "boxes"):
            if names:
                found = tuple(map(str, names))
            else:
                top = max((_top(target) for target in targets), default=-1)
                found = tuple(map(str, range(top + 1)))
                self._findings.notes.append(
                    "classes have no names: they are called by their numbers"
                )
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
        objects = []
        place = f"{self._place}[{index}]"
        key = b"%d" % index
        for number, made in enumerate(self._objects(target)):
            if isinstance(made, str):
                where = f"{place}: target {number}"
                self._findings.refuse_annotation(key, made, where)
                continue
            where = f"{place}: {made.object.place}"
            label = self._labels.get(made.category)
            if label is None:
                reason = f"its class is not one of {len(self.classes)} known ones"
                self._findings.refuse_annotation(key, reason, where)
                continue
            for part, reason in made.lost_parts:
                self._findings.refuse_annotation(key, reason, f"{where}, {part}", part)
            self._turned_count += made.is_turned
            objects.append(msgspec.structs.replace(made.object, label=label))
        return {}, pack_annotations(Annotations(objects=tuple(objects))), {}

    def turned_notes(self) -> list[str]:
        """What became of turned boxes, once all samples were asked for."""
        if not self._turned_count:
            return []
        boxes = count_text(self._turned_count, "turned box")
        return [f"{boxes} packed as the upright boxes around them"]

    def _objects(self, target: Any) -> Objects:
        if self._kind == "coco":
            return coco_objects(target, self._point_count)
        if self._kind == "boxes":
            return box_objects(target, self._point_count)
        return voc_objects(target, has_degrees=self._has_degrees)

    def _label(self, target: Any) -> int:
        value: Any = target if self._kind == "name" else int(target)
        if value not in self._labels:
            raise TargetError(f"class {value!r} is not one of the {len(self.classes)} classes")
        return self._labels[value]


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


def _unread_notes(targets: Sequence[Any]) -> list[str]:
    """Keys of targets that are not read, and how many targets have each."""
    counts = Counter(str(key) for target in targets for key in target if key not in READ_KEYS)
    if not counts:
        return []
    shown = ", ".join(f"{key!r} (of {count_text(n, 'target')})" for key, n in counts.items())
    return [f"keys of targets not read: {shown}"]


def _top(target: Any) -> int:
    """Largest class number of a target."""
    if isinstance(target, dict):
        labels = np.asarray(target["labels"]).reshape(-1)
        return int(labels.max()) if len(labels) else -1
    return int(target)
