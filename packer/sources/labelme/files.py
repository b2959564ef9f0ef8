"""One file of LabelMe: JSON, or the XML of the old web tool of MIT."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from xml.etree.ElementTree import Element

import msgspec

from packer.sources.annotations import RawObject, pack_points
from packer.sources.named_objects import NamedObject, ellipse
from packer.sources.xml_file import read_xml
from readers.store.schema import SIDE_MAX

FILE_BYTES_MAX = 2**28
"""256 MiB: LabelMe writes the picture itself into the file."""

_Box = tuple[float, float, float, float]
_NO_AREA = frozenset(("point", "line", "linestrip", "points"))


@dataclass
class LabelmeFile:
    """What a file says of one picture.

    Attributes:
        objects: Those that can be used.
        size: (width, height) of the picture, or None.
        rejects: Place of each other object and why it cannot be used.
        holds_picture: Whether the picture is inside of the file as well.
        deleted_count: Objects that were deleted in the tool, which keeps them.
        mask_file_count: Objects whose outline is a picture of its own.
    """

    objects: list[NamedObject] = field(default_factory=list)
    size: tuple[int, int] | None = None
    rejects: list[tuple[str, str]] = field(default_factory=list)
    holds_picture: bool = False
    deleted_count: int = 0
    mask_file_count: int = 0

    @property
    def object_count(self) -> int:
        """How many objects the file has, without deleted ones."""
        return len(self.objects) + len(self.rejects)


def read_labelme(path: bytes, place: str) -> LabelmeFile:
    """What the file says.

    Args:
        path: A .json or .xml file.
        place: What reports call it.

    Raises:
        ValueError: Why it cannot be used, without its name.
    """
    return (_read_xml if path.lower().endswith(b".xml") else _read_json)(path, place)


# --- JSON -----------------------------------------------------------------------------------------


def _read_json(path: bytes, place: str) -> LabelmeFile:
    content = _decode(path)
    if not isinstance(content, dict) or not isinstance(content.get("shapes"), list):
        raise ValueError("no list of `shapes`: the JSON is no file of LabelMe")
    found = LabelmeFile(holds_picture=bool(content.get("imageData")))
    width, height = content.get("imageWidth"), content.get("imageHeight")
    if type(width) is int and type(height) is int:
        found.size = _size(width, height)
    for number, shape in enumerate(content["shapes"], 1):
        shape_place = f"{place}, shape {number}"
        try:
            found.objects.append(_json_object(shape, shape_place))
        except ValueError as error:
            found.rejects.append((shape_place, str(error)))
    return found


def _decode(path: bytes) -> Any:
    try:
        with open(path, "rb") as file:
            byte_count = os.fstat(file.fileno()).st_size
            if byte_count > FILE_BYTES_MAX:
                raise ValueError(f"{byte_count:,} bytes, expected at most {FILE_BYTES_MAX:,}")
            data = file.read().removeprefix(b"\xef\xbb\xbf")
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from error
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # Python writes and reads NaN, which is no JSON; then one shape is wrong, not the file.
        try:
            return json.loads(data.decode())
        except UnicodeDecodeError as error:
            raise ValueError(
                f"not UTF-8 ({error.reason} at byte {error.start}). Save it as UTF-8"
            ) from error
        except (ValueError, RecursionError) as error:
            raise ValueError(f"not JSON: {error}") from error


def _json_object(shape: Any, place: str) -> NamedObject:
    if not isinstance(shape, dict):
        raise ValueError(f"{_short(shape)}, expected a shape with label and points")
    class_name = shape.get("label")
    if not isinstance(class_name, str) or not class_name.strip():
        raise ValueError(f"label {_short(class_name)}, expected the name of a class")
    kind = shape.get("shape_type") or "polygon"
    if not isinstance(kind, str):
        raise ValueError(f"shape type {_short(kind)}, expected polygon, rectangle or circle")
    if kind in _NO_AREA:
        raise ValueError(f"a {kind} has no area; expected polygon, rectangle or circle")
    if kind not in _SHAPES:
        raise ValueError(
            f"shape type {_short(kind)} is not read; expected polygon, rectangle or circle"
        )
    box, polygons, attributes = _SHAPES[kind](_points(shape.get("points")))
    if shape.get("group_id") is not None:
        attributes["group_id"] = shape["group_id"]
    for key in ("flags", "description"):
        if shape.get(key):
            attributes[key] = shape[key]
    try:
        msgspec.msgpack.encode((class_name, attributes))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ValueError(
            f"label, group_id, flags or description cannot be stored: {error}"
        ) from error
    return NamedObject(
        class_name.strip(),
        RawObject(place=place, label=0, box=box, polygons=polygons, attributes=attributes),
    )


def _points(value: Any) -> list[tuple[float, float]]:
    if not isinstance(value, list):
        raise ValueError(f"points {_short(value)}, expected a list of [x, y]")
    points = []
    for pair in value:
        if not isinstance(pair, list) or len(pair) != 2:
            raise ValueError(f"point {_short(pair)}, expected [x, y]")
        for number in pair:
            # True is an int to Python.
            if type(number) not in (int, float) or abs(number) > 1e9 or not math.isfinite(number):
                raise ValueError(f"point {_short(pair)}, expected two numbers of pixels")
        points.append((float(pair[0]), float(pair[1])))
    return points


_Shape = tuple["_Box | None", tuple[bytes, ...], dict[str, Any]]


def _polygon(points: list[tuple[float, float]]) -> _Shape:
    if len(points) < 3:
        raise ValueError(f"a polygon of {len(points)} points, expected at least 3")
    return None, (pack_points(points),), {}


def _rectangle(points: list[tuple[float, float]]) -> _Shape:
    # Two corners that lie opposite, in the order in which they were drawn; or all four.
    if len(points) not in (2, 4):
        raise ValueError(f"a rectangle of {len(points)} points, expected 2 corners or all 4")
    xs, ys = zip(*points, strict=True)
    return (min(xs), min(ys), max(xs), max(ys)), (), {}


def _circle(points: list[tuple[float, float]]) -> _Shape:
    if len(points) != 2:
        raise ValueError(f"a circle of {len(points)} points, expected its centre and one on it")
    (x, y), edge = points
    radius = math.dist((x, y), edge)
    box, outline = ellipse(x, y, radius, radius)
    return box, (outline,), {"shape": "circle"}


_SHAPES: dict[str, Callable[[list[tuple[float, float]]], _Shape]] = {
    "polygon": _polygon,
    "rectangle": _rectangle,
    "circle": _circle,
}


def _size(width: int, height: int) -> tuple[int, int] | None:
    return (width, height) if 0 < width <= SIDE_MAX and 0 < height <= SIDE_MAX else None


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


# --- XML ------------------------------------------------------------------------------------------


def _read_xml(path: bytes, place: str) -> LabelmeFile:
    root = read_xml(path)
    if root.tag != "annotation":
        raise ValueError(f"the root element is <{root.tag}>, expected <annotation>")
    found = LabelmeFile()
    try:
        width, height = (int(root.findtext(f"imagesize/{n}") or 0) for n in ("ncols", "nrows"))
    except ValueError:
        width = height = 0
    found.size = _size(width, height)
    for number, element in enumerate(root.findall("object"), 1):
        if (element.findtext("deleted") or "").strip() == "1":
            found.deleted_count += 1
            continue
        object_place = f"{place}, object {number}"
        try:
            found.objects.append(_xml_object(element, object_place))
        except ValueError as error:
            found.rejects.append((object_place, str(error)))
        else:
            found.mask_file_count += element.find("segm/mask") is not None
    return found


def _xml_object(element: Element, place: str) -> NamedObject:
    class_name = (element.findtext("name") or "").strip()
    if not class_name:
        raise ValueError("no class: <name> is missing or empty")
    box: _Box | None = None
    polygons: tuple[bytes, ...] = ()
    outline, segment = element.find("polygon"), element.find("segm/box")
    if outline is not None:
        points = [(_number(p, "x"), _number(p, "y")) for p in outline.findall("pt")]
        if (element.findtext("type") or "").strip() == "bounding_box":
            box, polygons, _ = _rectangle(points)
        else:
            box, polygons, _ = _polygon(points)
    elif segment is not None:
        x0, y0, x1, y1 = (_number(segment, side) for side in ("xmin", "ymin", "xmax", "ymax"))
        box = (x0, y0, x1, y1)
    else:
        others = ", ".join(f"<{child.tag}>" for child in element)
        raise ValueError(f"no outline: found {others}; expected <polygon> or <segm>")
    attributes: dict[str, Any] = {}
    occluded = (element.findtext("occluded") or "").strip().lower()
    if occluded in ("yes", "no"):
        attributes["occluded"] = occluded == "yes"
    words = (element.findtext("attributes") or "").strip()
    if words:
        attributes["attributes"] = words
    return NamedObject(
        class_name,
        RawObject(place=place, label=0, box=box, polygons=polygons, attributes=attributes),
    )


def _number(element: Element, tag: str) -> float:
    text = (element.findtext(tag) or "").strip()
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not abs(number) <= 1e9 or "_" in text:
        raise ValueError(f"<{tag}> {text!r}, expected a number of pixels")
    return number
