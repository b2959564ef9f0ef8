"""Shapes of CVAT's XML -> objects: boxes, polygons, ellipses and masks. The rest has no area."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np
from numpy.typing import NDArray

from packer.items.annotations import RawObject, add_attribute, pack_points
from packer.items.raw_item import Reject
from packer.sources.named_objects import NamedObject, ellipse
from packer.sources.region_runs import check_region, region_runs
from packer.sources.turned_boxes import bounds, corners_of_turned, is_turn, pack_corners

_Size = tuple[int, int]


def read_shape(
    element: Element,
    class_name: str,
    size: _Size | None,
    place: str,
    more: dict[str, Any],
    lost_parts: list[Reject],
) -> NamedObject:
    """The object that a shape is.

    Args:
        element: Such as `<box>`, of an image or of a track.
        class_name: Its label.
        size: (width, height) of the picture, which masks need.
        place: What reports call it.
        more: Attributes beside those that stand in the shape itself.
        lost_parts: Takes the outline where it cannot be used and the box can.

    Raises:
        ValueError: Why it cannot be used.
    """
    if not class_name:
        raise ValueError("no label; expected the name of a class")
    if element.tag not in _READERS:
        raise ValueError(
            f"a <{element.tag}> is not packed: it has no area or is no shape on a picture; "
            f"expected {', '.join(f'<{tag}>' for tag in _READERS)}"
        )
    parts = _READERS[element.tag](element, size)
    if "lost" in parts:
        reason = parts.pop("lost")
        lost_parts.append(Reject(key=b"", path=f"{place}, outline", reason=reason, part="outline"))
    attributes = {**more, **parts.pop("attributes", {})}
    if element.get("occluded") == "1":
        attributes["occluded"] = True
    if element.get("group_id", "0") not in ("", "0"):
        attributes["group_id"] = element.get("group_id")
    for child in element.findall("attribute"):
        add_attribute(attributes, child.get("name", ""), (child.text or "").strip())
    return NamedObject(class_name, RawObject(place=place, label=0, attributes=attributes, **parts))


def _box(element: Element, size: _Size | None) -> dict[str, Any]:
    x0, y0, x1, y1 = (_number(element, side) for side in ("xtl", "ytl", "xbr", "ybr"))
    degrees = _number(element, "rotation", 0.0)
    box = (x0, y0, x1, y1)
    if not is_turn(degrees) or x0 >= x1 or y0 >= y1:
        return {"box": box}  # A box that ends before it begins is rejected as it is written.
    # The numbers are those before the box is turned about its middle.
    corners = corners_of_turned(box, degrees)
    return {
        "box": bounds(corners),
        "keypoints": pack_corners(corners),
        "attributes": {"rotation": degrees},
    }


def _polygon(element: Element, size: _Size | None) -> dict[str, Any]:
    pairs = [pair.split(",") for pair in element.get("points", "").split(";")]
    try:
        points = [(float(x), float(y)) for x, y in pairs]
    except ValueError as error:
        raise ValueError(f"points {element.get('points', '')[:60]!r}, expected x,y;x,y") from error
    if len(points) < 3:
        raise ValueError(f"a polygon of {len(points)} points, expected at least 3")
    if not all(abs(number) <= 1e9 for point in points for number in point):
        raise ValueError("a point that is not a finite number of pixels")
    return {"polygons": (pack_points(points),)}


def _ellipse(element: Element, size: _Size | None) -> dict[str, Any]:
    x, y, radius_x, radius_y = (_number(element, side) for side in ("cx", "cy", "rx", "ry"))
    degrees = _number(element, "rotation", 0.0)
    box, outline = ellipse(x, y, radius_x, radius_y, degrees)
    return {"box": box, "polygons": (outline,), "attributes": {"shape": "ellipse"}}


def _mask(element: Element, size: _Size | None) -> dict[str, Any]:
    """Runs over the rows of a part of the picture -> runs over the columns of all of it."""
    left, top, width, height = (
        int(_number(element, side)) for side in ("left", "top", "width", "height")
    )
    if size is not None:
        check_region((left, top, width, height), size)
    try:
        if size is None:
            raise ValueError("a mask on a picture without width and height in the XML")
        is_on = _pixels(element.get("rle", ""), width, height)
    except ValueError as error:
        # What it is drawn in is as narrow as the mask: that is the box.
        box = (float(left), float(top), float(left + width), float(top + height))
        return {"box": box, "lost": f"{error}. The object is stored with its box alone"}
    box, runs = region_runs(is_on, left, top, size)
    return {"box": box, "runs": runs}


def _pixels(text: str, width: int, height: int) -> NDArray[np.bool_]:
    try:
        runs = [int(run) for run in text.split(",")]
    except ValueError as error:
        raise ValueError(f"rle {text[:60]!r}, expected whole numbers") from error
    if min(runs) < 0 or sum(runs) != width * height:
        raise ValueError(f"rle of {sum(runs)} pixels, expected {width}x{height}")
    return np.repeat(np.arange(len(runs)) % 2 == 1, runs).reshape(height, width)


_READERS: dict[str, Callable[[Element, _Size | None], dict[str, Any]]] = {
    "box": _box,
    "polygon": _polygon,
    "ellipse": _ellipse,
    "mask": _mask,
}


def _number(element: Element, attribute: str, default: float | None = None) -> float:
    text = element.get(attribute)
    if text is None and default is not None:
        return default
    try:
        number = float(text or "")
    except ValueError:
        number = math.nan
    if not abs(number) <= 1e9:
        raise ValueError(f"{attribute} {text!r}, expected a number of pixels")
    return number
