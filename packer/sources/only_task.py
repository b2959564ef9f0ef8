"""What annotations are wanted for, for `--task`: a task is honoured by every source, or refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from packer.errors import SourceError
from packer.items.annotations import RawObject, pack_annotations, unpack_annotations
from packer.items.raw_item import Reject, Scan
from packer.sources.layouts import LAYOUTS
from packer.sources.source import Task
from packer.sources.turned_boxes import CORNERS, bounds, pack_corners
from packer.wording import count_text, readable_path

_PARTS = {"detect": (), "segment": ("masks",), "pose": ("keypoints",), "obb": (CORNERS,)}
"""Fields of parts of objects that a store of a task has."""

_PART_TEXT = {
    "masks": ("outline", "{} left aside"),
    "keypoints": ("object", "the keypoints of {} left aside"),
    CORNERS: ("turned box", "the corners of {} left aside; `boxes` has the upright boxes around"),
}
_NEEDED = {
    "detect": ("boxes", "boxes"),
    "segment": ("masks", "outlines and no masks"),
    "pose": ("keypoints", "keypoints"),
    "obb": (CORNERS, "boxes"),
}
"""The field that a task cannot do without, and what the data lacks where it is not there."""


def check_task(format_name: str, task: Task | None, shown: str) -> None:
    """Refuse a task that no data of a format can be for, before it is read.

    Args:
        format_name: A layout, or what the source of torch Datasets is called.
        task: What was asked for.
        shown: The raw data, as a message names it.

    Raises:
        SourceError: It is such a task.
    """
    having = sorted(name for name, layout in LAYOUTS.items() if layout.has_corners)
    if task == "obb" and format_name not in having:
        raise SourceError(
            f"{shown}: task 'obb' packs the corners of turned boxes, and format {format_name!r} "
            f"has none; those that have are {', '.join(having)}. Leave --task out, or "
            "convert the data to one of these."
        )


def only_task(scan: Scan, task: Task) -> Scan:
    """The scan with what a task asks for: what else objects have is left aside, and counted.

    Objects without the part that it is about are rejected: under "segment" those without an
    outline, under "obb" outlines of other than four points that have no box.

    Args:
        scan: Of any source.
        task: What was asked for.

    Raises:
        SourceError: The data has nothing for the task.
    """
    if scan.format == "yolo":
        return scan  # Its lines were read for the task.
    names = {field.name for field in scan.fields}
    if task == "segment" and any(field.kind == "mask" for field in scan.fields):
        return scan
    needed, lacking = _NEEDED[task]
    if needed not in names:
        found = ", ".join(field.name for field in scan.fields) or "pictures alone"
        raise SourceError(
            f"{readable_path(os.fsencode(scan.root))}: task {task!r} was asked for, and the data, "
            f"read as {scan.format}, has no {lacking}: it gives {found}. Leave --task out, or "
            "check the path and --format."
        )
    left = [name for name in _PART_TEXT if name in names and name not in _PARTS[task]]
    if not left and task not in ("segment", "obb"):
        return scan
    tally = _Tally(has_corners=CORNERS in names)
    items = []
    rejects = list(scan.annotation_rejects)
    change = _CHANGES[task]
    for item in scan.items:
        if not item.annotations:
            items.append(item)
            continue
        annotations = unpack_annotations(item.annotations)
        objects = []
        for thing in annotations.objects:
            changed = change(thing, tally)
            if isinstance(changed, str):
                rejects.append(Reject(key=item.key, path=_place(item.key, thing), reason=changed))
            else:
                objects.append(changed)
        packed = pack_annotations(msgspec.structs.replace(annotations, objects=tuple(objects)))
        items.append(msgspec.structs.replace(item, annotations=packed))
    counted = [
        text.format(count_text(tally.left[part], noun))
        for part, (noun, text) in _PART_TEXT.items()
        if tally.left.get(part)
    ]
    if tally.quad_count:
        quads = count_text(tally.quad_count, "outline")
        counted.append(f"{quads} of four points taken for the corners of boxes")
    if task == "obb" and not tally.turned_count:
        counted.append("no box is turned: all corners are those of upright boxes")
    note = f"task {task}, as given: {'; '.join(counted)}" if counted else ""
    return replace(
        scan,
        items=items,
        annotation_rejects=rejects,
        fields=tuple(field for field in scan.fields if field.name not in left),
        notes=[*scan.notes, *([note] if note else [])],
    )


@dataclass
class _Tally:
    """How many parts of objects were left aside, by field; `has_corners` says what points are.

    And how many boxes are turned, and outlines of four points were taken for those.
    """

    has_corners: bool
    turned_count: int = 0
    quad_count: int = 0
    left: dict[str, int] = field(default_factory=dict)

    def add(self, part: str, has_part: object) -> None:
        self.left[part] = self.left.get(part, 0) + bool(has_part)


def _place(key: bytes, thing: RawObject) -> str:
    return f"{readable_path(key)}: {thing.place}"


def _without_points(thing: RawObject, tally: _Tally) -> RawObject:
    if not thing.keypoints:
        return thing
    tally.add(CORNERS if tally.has_corners else "keypoints", has_part=True)
    box = thing.box
    if box is None and tally.has_corners:
        corners = np.frombuffer(thing.keypoints, "<f4").astype(float).reshape(-1, 2)
        box = bounds([(x, y) for x, y in corners.tolist()])
    return msgspec.structs.replace(thing, keypoints=b"", box=box)


def _detected(thing: RawObject, tally: _Tally) -> RawObject:
    tally.add("masks", thing.polygons or thing.runs)
    return _without_points(thing, tally)


def _segmented(thing: RawObject, tally: _Tally) -> RawObject | str:
    if not (thing.polygons or thing.runs):
        return (
            "has no outline; task 'segment' needs one of each object. Give --task detect to take "
            "the boxes of all"
        )
    return _without_points(thing, tally)


def _posed(thing: RawObject, tally: _Tally) -> RawObject:
    tally.add("masks", thing.polygons or thing.runs)
    return thing


def _turned(thing: RawObject, tally: _Tally) -> RawObject | str:
    if not thing.keypoints and len(thing.polygons) == 1:
        points = np.frombuffer(thing.polygons[0], "<f8").reshape(-1, 2).tolist()
        if len(points) == 4:
            corners = [(x, y) for x, y in points]
            tally.quad_count += 1
            tally.turned_count += 1
            return msgspec.structs.replace(
                thing, keypoints=pack_corners(corners), box=bounds(corners), polygons=()
            )
        if thing.box is None:
            return (
                f"an outline of {len(points)} points and no box; task 'obb' needs a turned box or "
                "four corners. Give --task segment to take outlines"
            )
    if thing.box is None and not thing.keypoints:
        return (
            "an outline and no box; task 'obb' needs a turned box or four corners. Give --task "
            "segment to take outlines"
        )
    tally.turned_count += bool(thing.keypoints)
    tally.add("masks", thing.polygons or thing.runs)
    return thing


_CHANGES: dict[str, Callable[[RawObject, _Tally], RawObject | str]] = {
    "detect": _detected,
    "segment": _segmented,
    "pose": _posed,
    "obb": _turned,
}
