"""Boxes that are turned: one rule for every format that has them.

A turned box has four corners, in pixels of the picture. They begin at the corner that is the top
left one before the box is turned, and go round clockwise as it is seen:

    0 ---- 1        An angle turns the box about its middle, clockwise as it is seen. Formats that
    |      |        write the corners themselves keep their order.
    3 ---- 2

Its object has these corners as its points, and as its box the upright one around them. A store has
the field `corners` where any box is turned or the user asks for it; there the corners of a box that
is not turned are those of the box.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from packer.items.annotations import RawObject, keypoint_field, pack_points
from packer.sources.source import Task
from packer.wording import count_text
from readers.store.schema import Field

CORNERS = "corners"

ROUNDING_PX = 0.01
"""Corners that are off by no more are where they should be: tools round, and compute with sines."""

Box = tuple[float, float, float, float]
Points = list[tuple[float, float]]


def turned_corners(x: float, y: float, width: float, height: float, degrees: float) -> Points:
    """Corners of a box of this middle and size, turned clockwise."""
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    across, down = width / 2, height / 2
    return [
        (x + dx * cos - dy * sin, y + dx * sin + dy * cos)
        for dx, dy in ((-across, -down), (across, -down), (across, down), (-across, down))
    ]


def corners_of_turned(box: Box, degrees: float) -> Points:
    """Corners of a box that is written as it was before it was turned about its middle."""
    x0, y0, x1, y1 = box
    return turned_corners((x0 + x1) / 2, (y0 + y1) / 2, x1 - x0, y1 - y0, degrees)


def turn_degrees(value: object) -> float:
    """The angle that an attribute `rotation` is; 0 where it is not a number, or a whole turn.

    Tools let their users call an attribute so as well: text says nothing about the box.
    """
    try:
        is_number = isinstance(value, (int, float, str)) and not isinstance(value, bool)
        degrees = float(value) if is_number else 0.0  # type: ignore[arg-type]
    except (ValueError, OverflowError):
        return 0.0
    return degrees if math.isfinite(degrees) and is_turn(degrees) else 0.0


ANGLE_NAMES = frozenset(("rotation", "angle", "theta"))
"""Columns that say how a box is turned, in units that lists have in no common form."""


def angle_note(column: str, turned_count: int) -> list[str]:
    """That an angle beside boxes is not read, where any box has one."""
    if not turned_count:
        return []
    return [
        f"{count_text(turned_count, 'box')} with an angle in {column!r}, which is not read: theirs "
        "are the boxes before they were turned. Convert the data to COCO to have them turned"
    ]


def is_turn(degrees: float) -> bool:
    """Whether an angle turns a box at all: 0 and whole turns do not."""
    return degrees % 360 != 0


def are_upright(corners: Sequence[tuple[float, float]]) -> bool:
    """Whether four corners are those of a box that is not turned, wherever they begin."""
    x0, y0, x1, y1 = bounds(corners)
    places = set()
    for x, y in corners:
        is_left, is_top = x - x0 <= x1 - x, y - y0 <= y1 - y
        if abs(x - (x0 if is_left else x1)) > ROUNDING_PX:
            return False
        if abs(y - (y0 if is_top else y1)) > ROUNDING_PX:
            return False
        places.add((is_left, is_top))
    return len(places) == 4


def begins_upright(corners: Sequence[tuple[float, float]]) -> bool:
    """Whether four corners are those of a box that is turned by 0: from the top left, clockwise."""
    x0, y0, x1, y1 = bounds(corners)
    upright = ((x0, y0), (x1, y0), (x1, y1), (x0, y1))
    return all(
        abs(a - b) <= ROUNDING_PX
        for corner, expected in zip(corners, upright, strict=True)
        for a, b in zip(corner, expected, strict=True)
    )


def bounds(points: Sequence[tuple[float, float]]) -> Box:
    """The upright box around points."""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    return min(xs), min(ys), max(xs), max(ys)


def pack_corners(corners: Sequence[tuple[float, float]]) -> bytes:
    """Corners as the points of a raw object."""
    return pack_points(corners, "<f4")


def corners_field() -> Field:
    """The field of the corners of all objects."""
    return keypoint_field(4, name=CORNERS, has_visibility=False)


def stores_corners(task: Task | None, turned_count: int) -> bool:
    """Whether a store gets the field: the task asks for it, or leaves it to the data."""
    return task == "obb" or (task is None and turned_count > 0)


def turned_notes(task: Task | None, turned_count: int, object_count: int) -> list[str]:
    """What becomes of the turned boxes of a data set, in one line."""
    if not turned_count:
        return []
    are = "is turned" if turned_count == 1 else "are turned"
    found = f"{turned_count:,} of {count_text(object_count, 'object')} {are}"
    if stores_corners(task, turned_count):
        return [
            f"{found}: `corners` has their corners, and those of the boxes of the others; `boxes` "
            "has the upright boxes around them"
        ]
    return [f"{found}: packed as upright boxes around them; --task obb packs their corners"]


def is_turned(thing: RawObject) -> bool:
    """Whether an object of a source without keypoints is a turned box."""
    return bool(thing.keypoints)
