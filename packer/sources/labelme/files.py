"""One file of LabelMe: JSON, or the XML of the old web tool of MIT."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from xml.etree.ElementTree import Element

import msgspec

from packer.files.start import content_problem
from packer.files.xml import read_xml
from packer.items.annotations import RawObject, pack_points
from packer.items.raw_item import Reject
from packer.sources.labelme.masks import read_png_mask
from packer.sources.named_objects import NamedObject, ellipse
from packer.sources.region_runs import check_region, region_runs
from packer.sources.turned_boxes import (
    are_upright,
    begins_upright,
    bounds,
    corners_of_turned,
    pack_corners,
    turn_degrees,
)
from packer.wording import cut_text
from readers.store.pictures.signatures import START_BYTES
from readers.store.schema import SIDE_MAX

FILE_BYTES_MAX = 2**28
"""256 MiB: LabelMe writes the picture itself into the file."""

_NO_AREA = frozenset(("point", "line", "linestrip", "points"))


@dataclass
class LabelmeFile:
    """What a file says of one picture.

    Attributes:
        objects: Those that can be used.
        size: (width, height) of the picture, or None.
        rejects: Place of each other object and why it cannot be used.
        lost_parts: Parts of objects that cannot be used; the picture's key is not known here.
        holds_picture: Whether the picture is inside of the file as well.
        deleted_count: Objects that were deleted in the tool, which keeps them.
        mask_file_count: Objects whose outline is a picture of its own.
    """

    objects: list[NamedObject] = field(default_factory=list)
    size: tuple[int, int] | None = None
    rejects: list[tuple[str, str]] = field(default_factory=list)
    lost_parts: list[Reject] = field(default_factory=list)
    holds_picture: bool = False
    deleted_count: int = 0
    mask_file_count: int = 0

    @property
    def object_count(self) -> int:
        """How many objects the file has, without deleted ones."""
        return len(self.objects) + len(self.rejects)

    def lose(self, place: str, part: str, reason: str) -> None:
        """Take note of a part of an object that is left out of it."""
        path = f"{place}, {part}"
        self.lost_parts.append(Reject(key=b"", path=path, reason=reason, part=part))


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
        raise ValueError("no list of `shapes`: the JSON is not a file of LabelMe")
    found = LabelmeFile(holds_picture=bool(content.get("imageData")))
    width, height = content.get("imageWidth"), content.get("imageHeight")
    if type(width) is int and type(height) is int:
        found.size = _size(width, height)
    for number, shape in enumerate(content["shapes"], 1):
        shape_place = f"{place}, shape {number}"
        try:
            found.objects.append(_json_object(shape, shape_place, found))
        except ValueError as error:
            found.rejects.append((shape_place, str(error)))
    return found


def _decode(path: bytes) -> Any:
    try:
        with open(path, "rb") as file:
            byte_count = os.fstat(file.fileno()).st_size
            if byte_count > FILE_BYTES_MAX:
                raise ValueError(f"{byte_count:,} bytes, expected at most {FILE_BYTES_MAX:,}")
            data = file.read(FILE_BYTES_MAX + 1).removeprefix(b"\xef\xbb\xbf")
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from error
    problem = content_problem(data[:START_BYTES])
    if problem:
        raise ValueError(f"not JSON: {problem}")
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # Python writes and reads NaN, which is not JSON; then one shape is wrong, not the file.
        try:
            return json.loads(data.decode())
        except UnicodeDecodeError as error:
            raise ValueError(
                f"not UTF-8 ({error.reason} at byte {error.start}). Save it as UTF-8"
            ) from error
        except (ValueError, RecursionError) as error:
            raise ValueError(f"not JSON: {error}") from error


def _json_object(shape: Any, place: str, found: LabelmeFile) -> NamedObject:
    if not isinstance(shape, dict):
        raise ValueError(f"{_short(shape)}, expected a shape with label and points")
    class_name = shape.get("label")
    if not isinstance(class_name, str) or not class_name.strip():
        raise ValueError(f"label {_short(class_name)}, expected the name of a class")
    kind = shape.get("shape_type") or "polygon"
    if not isinstance(kind, str):
        raise ValueError(f"shape type {_short(kind)}, expected {_KINDS_TEXT}")
    if kind in _NO_AREA:
        raise ValueError(f"a {kind} has no area; expected {_KINDS_TEXT}")
    if kind not in _SHAPES:
        raise ValueError(f"shape type {_short(kind)} is not read; expected {_KINDS_TEXT}")
    points = _points(shape.get("points"))
    parts = _turned_by(shape, points) if kind == "rectangle" else None
    if parts is None:
        parts = _SHAPES[kind](points)
    if kind == "mask":
        _add_mask(parts, shape.get("mask"), place, found)
    attributes = parts.pop("attributes", {})
    if shape.get("group_id") is not None:
        attributes["group_id"] = shape["group_id"]
    for key in ("flags", "description", "attributes", "difficult"):
        if shape.get(key):
            attributes[key] = shape[key]
    try:
        class_name.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"label {_short(class_name)} cannot be stored: {error}") from error
    for key, value in list(attributes.items()):
        try:
            msgspec.msgpack.encode(value)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            del attributes[key]
            found.lose(place, "attributes", f"{key} cannot be stored: {error}. It is left out")
    return NamedObject(
        class_name.strip(), RawObject(place=place, label=0, attributes=attributes, **parts)
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


_Pairs = list[tuple[float, float]]
_Shape = dict[str, Any]
"""Parts of a `RawObject`."""


def _polygon(points: _Pairs) -> _Shape:
    if len(points) < 3:
        raise ValueError(f"a polygon of {len(points)} points, expected at least 3")
    return {"polygons": (pack_points(points),)}


def _rectangle(points: _Pairs) -> _Shape:
    # Two corners that lie opposite, in the order in which they were drawn; or all four.
    if len(points) not in (2, 4):
        raise ValueError(f"a rectangle of {len(points)} points, expected 2 corners or all 4")
    if len(points) == 2 or are_upright(points):
        return {"box": bounds(points)}
    return {"box": bounds(points), "keypoints": pack_corners(points)}


def _turned_rectangle(points: _Pairs) -> _Shape:
    if len(points) != 4:
        raise ValueError(f"a turned rectangle of {len(points)} points, expected its 4 corners")
    if begins_upright(points):
        return {"box": bounds(points)}
    return {"box": bounds(points), "keypoints": pack_corners(points)}


def _turned_by(shape: dict[str, Any], points: _Pairs) -> _Shape | None:
    """A rectangle of two corners with an angle beside it; None where it has none."""
    degrees = turn_degrees(shape.get("rotation"))
    direction = shape.get("direction")  # In radians, as the descendants of LabelMe have it.
    if not degrees and isinstance(direction, (int, float)):
        degrees = turn_degrees(math.degrees(direction))
    if len(points) != 2 or not degrees:
        return None
    corners = corners_of_turned(bounds(points), degrees)
    attributes = {"rotation": degrees}
    return {"box": bounds(corners), "keypoints": pack_corners(corners), "attributes": attributes}


def _circle(points: _Pairs) -> _Shape:
    if len(points) != 2:
        raise ValueError(f"a circle of {len(points)} points, expected its centre and one on it")
    (x, y), edge = points
    radius = math.dist((x, y), edge)
    box, outline = ellipse(x, y, radius, radius)
    return {"box": box, "polygons": (outline,), "attributes": {"shape": "circle"}}


def _mask(points: _Pairs) -> _Shape:
    """The box of a mask: its first and last pixel are given."""
    if len(points) != 2:
        raise ValueError(f"a mask of {len(points)} points, expected its first and last pixel")
    x0, y0, x1, y1 = map(int, bounds(points))
    return {"box": (float(x0), float(y0), float(x1 + 1), float(y1 + 1))}


def _add_mask(parts: _Shape, mask: Any, place: str, found: LabelmeFile) -> None:
    """Give a mask its pixels, or leave its box alone where they cannot be read."""
    x0, y0, x1, y1 = map(int, parts["box"])
    try:
        if found.size is None:
            raise ValueError("a mask, and the file has no imageWidth and imageHeight")
        check_region((x0, y0, x1 - x0, y1 - y0), found.size)
        is_on = read_png_mask(mask, x1 - x0, y1 - y0)
        parts["box"], parts["runs"] = region_runs(is_on, x0, y0, found.size)
    except ValueError as error:
        found.lose(place, "outline", f"{error}. The object is stored with its box alone")


_SHAPES: dict[str, Callable[[_Pairs], _Shape]] = {
    "polygon": _polygon,
    "rectangle": _rectangle,
    "circle": _circle,
    "mask": _mask,
    # As LabelMe and its descendants call a box that is turned.
    "oriented_rectangle": _turned_rectangle,
    "rotated_rectangle": _turned_rectangle,
    "rotation": _turned_rectangle,
}
_KINDS_TEXT = "polygon, rectangle, oriented_rectangle, circle or mask"


def _size(width: int, height: int) -> tuple[int, int] | None:
    return (width, height) if 0 < width <= SIDE_MAX and 0 < height <= SIDE_MAX else None


def _short(value: Any) -> str:
    return cut_text(repr(value), 60)


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
            found.objects.append(_xml_object(element, object_place, found))
        except ValueError as error:
            found.rejects.append((object_place, str(error)))
        else:
            found.mask_file_count += element.find("segm/mask") is not None
    return found


def _xml_object(element: Element, place: str, found: LabelmeFile) -> NamedObject:
    class_name = (element.findtext("name") or "").strip()
    if not class_name:
        raise ValueError("no class: <name> is missing or empty")
    words = (element.findtext("attributes") or "").strip()
    outlines, segment = element.findall("polygon"), element.find("segm/box")
    if not outlines and segment is None:
        others = ", ".join(f"<{child.tag}>" for child in element)
        raise ValueError(f"no outline: found {others}; expected <polygon> or <segm>")
    is_box = (element.findtext("type") or "").strip() == "bounding_box"
    parts: _Shape = {}
    problem = ""
    for outline in outlines:
        try:
            more = _xml_box(outline, words) if is_box else _polygon(_xml_points(outline))
            if is_box and parts:
                raise ValueError("a second box of one object, expected one")
            # An object may be in several pieces.
            polygons = (*parts.get("polygons", ()), *more.get("polygons", ()))
            parts = {**parts, **more, "polygons": polygons}
        except ValueError as error:
            problem = problem or str(error)
    if segment is not None and "box" not in parts:
        try:
            x0, y0, x1, y1 = (_number(segment, side) for side in ("xmin", "ymin", "xmax", "ymax"))
            parts["box"] = (x0, y0, x1, y1)
        except ValueError as error:
            problem = problem or str(error)
    if not parts:
        raise ValueError(problem)
    if problem:
        part = "box" if is_box or "polygons" in parts else "outline"
        found.lose(place, part, f"{problem}. The object is stored without it")
    attributes: dict[str, Any] = {}
    occluded = (element.findtext("occluded") or "").strip().lower()
    if occluded in ("yes", "no"):
        attributes["occluded"] = occluded == "yes"
    if words:
        attributes["attributes"] = words
    return NamedObject(
        class_name,
        RawObject(place=place, label=0, attributes=attributes, **parts),
    )


def _xml_points(outline: Element) -> _Pairs:
    points = outline.findall("pt")
    if not points and outline.find("x1") is not None:
        raise ValueError(
            "a <polygon> of <x1>, <y1>, ... is Pascal VOC's; expected <pt>. Give --format voc"
        )
    return [(_number(point, "x"), _number(point, "y")) for point in points]


def _xml_box(outline: Element, words: str) -> _Shape:
    """A box, turned where the attributes say so, as CVAT writes them: `rotation=30.0`."""
    points = _xml_points(outline)
    said = re.search(r"(?:^|,)\s*rotation\s*=\s*([-+.\deE]+)\s*(?:,|$)", words)
    degrees = turn_degrees(said[1]) if said else 0.0
    if not degrees or len(points) != 4 or not are_upright(points):
        return _rectangle(points)
    corners = corners_of_turned(bounds(points), degrees)
    return {"box": bounds(corners), "keypoints": pack_corners(corners)}


def _number(element: Element, tag: str) -> float:
    text = (element.findtext(tag) or "").strip()
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not abs(number) <= 1e9 or "_" in text:
        raise ValueError(f"<{tag}> {text!r}, expected a number of pixels")
    return number
