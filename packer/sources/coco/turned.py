"""Turned boxes of COCO: a bbox as it was before it was turned, and an angle beside it.

CVAT writes the angle as `attributes.rotation`, others as `rotation`: degrees, clockwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from packer.items.annotations import RawObject, pack_annotations, unpack_annotations
from packer.sources.coco.images import Image
from packer.sources.source import Task
from packer.sources.turned_boxes import (
    bounds,
    corners_of_turned,
    pack_corners,
    turn_degrees,
)

_CORNER_BYTES = len(pack_corners([(0.0, 0.0)] * 4))


def turn_object(thing: RawObject, said: Any, task: Task | None) -> RawObject:
    """The object with its box turned, if it is one that is.

    The box of an object with an outline is that around the outline, and is turned already. Under
    "obb" points are corners, and keypoints are left aside.

    Args:
        thing: As its annotation has it.
        said: Its `rotation`; that of its attributes counts where this is none.
        task: What the build is for.
    """
    if task == "obb" and thing.keypoints:
        thing = msgspec.structs.replace(thing, keypoints=b"")
    box = thing.box
    if box is None or thing.polygons or thing.runs or box[0] >= box[2] or box[1] >= box[3]:
        return thing
    degrees = turn_degrees(said) or turn_degrees(thing.attributes.get("rotation"))
    if not degrees:
        return thing
    corners = corners_of_turned(box, degrees)
    area = (box[2] - box[0]) * (box[3] - box[1]) if thing.area is None else thing.area
    keypoints = thing.keypoints or pack_corners(corners)
    return msgspec.structs.replace(thing, box=bounds(corners), area=area, keypoints=keypoints)


def drop_corners(images: Iterable[Image]) -> None:
    """Take the corners out of objects of a data set that has keypoints in their place."""
    for image in images:
        found = unpack_annotations(image.annotations) if image.annotations else None
        if found is None or all(len(o.keypoints) != _CORNER_BYTES for o in found.objects):
            continue
        objects = tuple(
            msgspec.structs.replace(o, keypoints=b"") if len(o.keypoints) == _CORNER_BYTES else o
            for o in found.objects
        )
        image.annotations = pack_annotations(msgspec.structs.replace(found, objects=objects))
