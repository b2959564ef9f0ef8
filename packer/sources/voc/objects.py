"""Objects of Pascal VOC as a store takes them: the origin taken off, turned boxes with corners."""

from __future__ import annotations

import math

from packer.items.annotations import RawObject, pack_points
from packer.sources.turned_boxes import (
    Points,
    bounds,
    corners_of_turned,
    is_turn,
    pack_corners,
    turned_corners,
)
from packer.sources.voc.xml import VocObject

RADIANS_MAX = 2 * math.pi + 0.01
"""roLabelImg writes radians below pi. What is over a whole turn was written in degrees."""


def make_object(
    thing: VocObject, file: str, label: int, origin: int, *, has_degrees: bool
) -> RawObject:
    """The raw object of an object of a file.

    Args:
        thing: As written.
        file: What reports call the file.
        label: Of its class.
        origin: Which pixel its boxes and outlines count from. A turned box is a middle and a size,
            from the corner of the picture, and counts from none.
        has_degrees: Whether angles of `<robndbox>` are degrees rather than radians.
    """
    box: tuple[float, float, float, float] | None = None
    corners: Points = []
    attributes = thing.attributes
    if thing.box is not None:
        x0, y0, x1, y1 = thing.box
        box = (x0 - origin, y0 - origin, x1, y1)
        if thing.degrees:
            corners = corners_of_turned(box, thing.degrees)
    elif thing.turned is not None:
        t = thing.turned
        degrees = t.angle if has_degrees else math.degrees(t.angle)
        if is_turn(degrees):
            corners = turned_corners(t.x, t.y, t.width, t.height, degrees)
            attributes = {**attributes, "rotation": degrees}
        else:
            half_width, half_height = t.width / 2, t.height / 2
            box = (t.x - half_width, t.y - half_height, t.x + half_width, t.y + half_height)
    return RawObject(
        place=f"{file}, {thing.place}",
        label=label,
        box=bounds(corners) if corners else box,
        polygons=tuple(pack_points([n - origin for n in points]) for points in thing.polygons),
        keypoints=pack_corners(corners) if corners else b"",
        difficult=thing.difficult,
        truncated=thing.truncated,
        attributes=attributes,
    )
