"""Shapes of CVAT's XML -> objects: boxes, polygons, ellipses and masks. The rest has no area."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np

from packer.sources.annotations import RawObject, pack_points, pack_runs
from packer.sources.named_objects import NamedObject, ellipse

PIXELS_MAX = 2**28
"""Of a picture that runs are drawn on."""

_Size = tuple[int, int]


def read_shape(
    element: Element, class_name: str, size: _Size | None, place: str, more: dict[str, Any]
) -> NamedObject:
    """The object that a shape is.

    Args:
        element: Such as `<box>`, of an image or of a track.
        class_name: Its label.
        size: (width, height) of the picture, which masks need.
        place: What reports call it.
        more: Attributes beside those that stand in the shape itself.

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
    attributes = {**more, **parts.pop("attributes", {})}
    if element.get("occluded") == "1":
        attributes["occluded"] = True
    if element.get("group_id", "0") not in ("", "0"):
        attributes["group_id"] = element.get("group_id")
    for child in element.findall("attribute"):
        attributes[child.get("name", "")] = (child.text or "").strip()
    return NamedObject(class_name, RawObject(place=place, label=0, attributes=attributes, **parts))


def _box(element: Element, size: _Size | None) -> dict[str, Any]:
    x0, y0, x1, y1 = (_number(element, side) for side in ("xtl", "ytl", "xbr", "ybr"))
    degrees = _number(element, "rotation", 0.0)
    if not degrees:
        return {"box": (x0, y0, x1, y1)}
    # The numbers are those before the box is turned about its middle. What an upright box can say
    # of it are its bounds.
    cos, sin = abs(math.cos(math.radians(degrees))), abs(math.sin(math.radians(degrees)))
    width, height = x1 - x0, y1 - y0
    x, y = (x0 + x1) / 2, (y0 + y1) / 2
    half_width = (width * cos + height * sin) / 2
    half_height = (width * sin + height * cos) / 2
    return {
        "box": (x - half_width, y - half_height, x + half_width, y + half_height),
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
        raise ValueError("a point that is no finite number of pixels")
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
    if size is None:
        raise ValueError("a mask on a picture without width and height in the XML")
    if size[0] * size[1] > PIXELS_MAX:
        raise ValueError(
            f"a mask on a picture of {size[0]}x{size[1]}, expected {PIXELS_MAX} pixels"
        )
    is_inside = 0 <= left <= left + width <= size[0] and 0 <= top <= top + height <= size[1]
    if width < 1 or height < 1 or not is_inside:
        raise ValueError(
            f"a mask of {width}x{height} at {left}, {top}, expected inside of {size[0]}x{size[1]}"
        )
    text = element.get("rle", "")
    try:
        runs = [int(run) for run in text.split(",")]
    except ValueError as error:
        raise ValueError(f"rle {text[:60]!r}, expected whole numbers") from error
    if min(runs) < 0 or sum(runs) != width * height:
        raise ValueError(f"rle of {sum(runs)} pixels, expected {width}x{height}")
    is_on = np.repeat(np.arange(len(runs)) % 2 == 1, runs).reshape(height, width)
    columns, rows = np.nonzero(is_on.T)
    if not len(rows):
        raise ValueError("a mask without a pixel")
    pixels = (left + columns) * size[1] + top + rows  # Rising, as they are counted in columns.
    breaks = np.flatnonzero(np.diff(pixels) != 1)
    starts = pixels[np.append(0, breaks + 1)]
    ends = pixels[np.append(breaks, len(pixels) - 1)] + 1
    flips = np.stack((starts, ends), axis=1).ravel()
    counts = np.diff(flips, prepend=0, append=size[0] * size[1])
    x0, y0 = left + int(columns.min()), top + int(rows.min())
    x1, y1 = left + int(columns.max()) + 1, top + int(rows.max()) + 1
    return {"box": (float(x0), float(y0), float(x1), float(y1)), "runs": pack_runs(counts)}


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
