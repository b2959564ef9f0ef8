"""One XML file in the form of Pascal VOC, as it is written: no origin is taken off."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from xml.etree.ElementTree import Element

import msgspec

from packer.files.xml import read_xml
from packer.items.annotations import add_attribute
from packer.sources.turned_boxes import bounds, turn_degrees
from readers.store.schema import SIDE_MAX

_SIDES = ("xmin", "ymin", "xmax", "ymax")
_YES = frozenset(("1", "true", "yes"))
_NO = frozenset(("", "0", "false", "no", "unspecified"))


class TurnedBox(msgspec.Struct, frozen=True, array_like=True):
    """A `<robndbox>` of roLabelImg, as written: middle, size, and an angle clockwise."""

    x: float
    y: float
    width: float
    height: float
    angle: float


class VocObject(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """One `<object>`, or one box of an object that has several.

    Attributes:
        number: Which of the file's objects it is, from 1.
        name: Its class.
        box: xmin, ymin, xmax, ymax as written; None where the object has something else.
        turned: A turned box; then `box` is None.
        degrees: By how much `box` is turned about its middle, clockwise, as its attributes say.
        polygons: Outline: x and y of the points of each polygon, in turn, as written.
        box_number: Which of the object's boxes it is, from 1; 0 where there is one.
        difficult: False where the file does not say.
        truncated: False where the file does not say.
        attributes: `pose` and `occluded`, where the file says; what stands in `<attributes>`; and a
            `difficult` or `truncated` that is neither yes nor no, as text.
    """

    number: int
    name: str
    box: tuple[float, float, float, float] | None = None
    turned: TurnedBox | None = None
    degrees: float = 0.0
    polygons: tuple[tuple[float, ...], ...] = ()
    box_number: int = 0
    difficult: bool = False
    truncated: bool = False
    attributes: dict[str, Any] = {}

    @property
    def bounds(self) -> tuple[float, float, float, float]:
        """The upright box, or that around the outline, as written."""
        if self.box is not None:
            return self.box
        return bounds(
            [p for part in self.polygons for p in zip(part[::2], part[1::2], strict=True)]
        )

    @property
    def place(self) -> str:
        """How reports name it, after the file."""
        which = f", box {self.box_number}" if self.box_number else ""
        return f"object {self.number}{which}"


@dataclass(kw_only=True)
class VocFile:
    """What an XML file says of one picture.

    Attributes:
        objects: Those that can be used.
        size: (width, height) of the picture; None where it is missing, 0 or no number.
        rejects: Number of each other object, from 1, and why it cannot be used.
        lost_parts: (number, part, reason) of each part of objects that cannot be used.
        file_name: What it calls the picture; it often lies.
        part_count: Boxes of parts inside of objects, which are no objects.
        action_count: Objects that say what a person does.
        several_count: Objects with several boxes.
        beside_count: Objects with an upright box beside their turned one.
        unread: How many objects have each element that is not read and may be a part of them.
    """

    objects: list[VocObject] = field(default_factory=list)
    size: tuple[int, int] | None = None
    rejects: list[tuple[int, str]] = field(default_factory=list)
    lost_parts: list[tuple[int, str, str]] = field(default_factory=list)
    file_name: str = ""
    part_count: int = 0
    action_count: int = 0
    several_count: int = 0
    beside_count: int = 0
    unread: Counter[str] = field(default_factory=Counter)

    @property
    def object_count(self) -> int:
        """How many `<object>` there are."""
        return len({o.number for o in self.objects}) + len(self.rejects)


def read_voc(path: bytes) -> VocFile:
    """What the file says.

    Raises:
        ValueError: Why it cannot be used, without its name.
    """
    root = read_xml(path)
    if root.tag != "annotation":
        raise ValueError(f"the root element is <{root.tag}>, expected <annotation>")
    found = VocFile(size=_size(root), file_name=(root.findtext("filename") or "").strip())
    # Children only: `iter` would find the boxes of parts as well.
    for number, element in enumerate(root.findall("object"), 1):
        add_object(found, number, element)
    return found


def add_object(found: VocFile, number: int, element: Element) -> None:
    """Add what an `<object>` is: an object, several, or the reason why it is none."""
    children: dict[str, list[Element]] = {}
    for child in element:
        children.setdefault(child.tag, []).append(child)
    found.part_count += len(children.pop("part", ()))
    found.action_count += "actions" in children
    for tag, elements in children.items():
        if tag in _PARTS_NOT_READ or (tag not in _READ and len(elements[0])):
            found.unread[tag] += len(elements)
    try:
        found.objects += _objects(found, number, children)
    except ValueError as error:
        found.rejects.append((number, str(error)))


_READ = frozenset(("bndbox", "robndbox", "polygon", "attributes", "actions"))
_PARTS_NOT_READ = frozenset(("mask", "rle", "segmentation", "keypoints", "landmarks"))

_Children = dict[str, list[Element]]


def _objects(found: VocFile, number: int, children: _Children) -> list[VocObject]:
    """The boxes of an object, each as an object; the outline goes with the one that fits best.

    Raises:
        ValueError: The object has no class, or no box or outline that can be read.
    """
    class_name = _text(children, "name")
    if not class_name:
        raise ValueError("no class: <name> is missing or empty")
    problems: list[tuple[str, str]] = []
    boxes = _readable(children.get("bndbox", []), "box", _box, problems)
    turned = _readable(children.get("robndbox", []), "box", _turned_box, problems)
    polygons = _readable(children.get("polygon", []), "outline", _polygon, problems)
    if not boxes and not turned and not polygons:
        if problems:
            raise ValueError(problems[0][1])
        others = ", ".join(f"<{tag}>" for tag in children)
        raise ValueError(f"no box: found {others}; expected <bndbox>, <robndbox> or <polygon>")
    found.lost_parts += [(number, part, reason) for part, reason in problems]
    if len(boxes) == len(turned) == 1:
        boxes = []
        found.beside_count += 1
    attributes, degrees = _attributes(children)
    common = VocObject(
        number=number,
        name=class_name,
        difficult=bool(_flag(_text(children, "difficult"))),
        truncated=bool(_flag(_text(children, "truncated"))),
        attributes=attributes,
    )
    objects = [msgspec.structs.replace(common, box=box, degrees=degrees) for box in boxes]
    objects += [msgspec.structs.replace(common, turned=box) for box in turned]
    if len(objects) > 1:
        found.several_count += 1
        objects = [msgspec.structs.replace(o, box_number=n) for n, o in enumerate(objects, 1)]
    objects = objects or [common]
    if polygons:
        at = min(range(len(objects)), key=lambda n: _distance(objects[n], polygons))
        objects[at] = msgspec.structs.replace(objects[at], polygons=tuple(polygons))
    return objects


_T = TypeVar("_T")


def _readable(
    elements: list[Element],
    part: str,
    read: Callable[[Element], _T],
    problems: list[tuple[str, str]],
) -> list[_T]:
    """What is read of elements; (part, reason) of those that cannot be is added to `problems`."""
    values = []
    for element in elements:
        try:
            values.append(read(element))
        except ValueError as error:
            problems.append((part, str(error)))
    return values


def _distance(thing: VocObject, polygons: Sequence[tuple[float, ...]]) -> float:
    """How far the sides of a box are from those of the box around an outline."""
    around = VocObject(number=0, name="", polygons=tuple(polygons)).bounds
    box = thing.box
    if thing.turned is not None:
        turned = thing.turned
        box = (turned.x, turned.y, turned.x, turned.y)
    return 0.0 if box is None else sum(abs(a - b) for a, b in zip(box, around, strict=True))


def _attributes(children: _Children) -> tuple[dict[str, Any], float]:
    """What else is known of an object, and by how many degrees its box is turned."""
    attributes: dict[str, Any] = {}
    degrees = 0.0
    pose = _text(children, "pose")
    if pose and pose.lower() != "unspecified":
        attributes["pose"] = pose
    for tag in ("difficult", "truncated", "occluded"):
        text = _text(children, tag)
        flag = _flag(text)
        if flag is None:
            attributes[tag] = text
        elif tag == "occluded" and text and text.lower() != "unspecified":
            attributes[tag] = flag
    # CVAT and Datumaro: `<attributes><attribute><name>rotation</name><value>30.0</value>`.
    for inner in (a for element in children.get("attributes", []) for a in element):
        key = (inner.findtext("name") or "").strip()
        value = (inner.findtext("value") or "").strip()
        if not key:
            continue
        if key == "rotation":
            degrees = turn_degrees(value)
        add_attribute(attributes, key, value)
    return attributes, degrees


def _flag(text: str) -> bool | None:
    """Whether a text says yes; None where it says neither yes nor no."""
    lower = text.lower()
    return True if lower in _YES else False if lower in _NO else None


def _text(children: _Children, tag: str) -> str:
    elements = children.get(tag)
    return (elements[0].text or "").strip() if elements else ""


def _box(element: Element) -> tuple[float, float, float, float]:
    x0, y0, x1, y1 = _numbers(element, _SIDES)
    return x0, y0, x1, y1


def _turned_box(element: Element) -> TurnedBox:
    x, y, width, height, angle = _numbers(element, ("cx", "cy", "w", "h", "angle"))
    if width <= 0 or height <= 0:
        raise ValueError(f"a <robndbox> of {width:g} x {height:g} has no area")
    return TurnedBox(x, y, width, height, angle)


def _polygon(element: Element) -> tuple[float, ...]:
    """Points of a `<polygon>`: x1, y1, x2, ... or the `<pt>` of LabelMe's old web tool."""
    points = element.findall("pt")
    if points:
        numbers = [number for point in points for number in _numbers(point, ("x", "y"))]
    else:
        tags = {child.tag for child in element}
        count = max(
            (int(tag[1:]) for tag in tags if re.fullmatch(r"[xy][1-9]\d{0,5}", tag)), default=0
        )
        if count > len(tags):
            raise ValueError(f"a <polygon> of {len(tags)} numbers goes up to <x{count}>")
        numbers = _numbers(element, [f"{axis}{n}" for n in range(1, count + 1) for axis in "xy"])
    if len(numbers) < 6:
        raise ValueError(
            f"a <polygon> of {len(numbers) // 2} points, expected at least 3: <x1>, <y1>, <x2>, ..."
        )
    if max(map(abs, numbers)) > 1e9:
        raise ValueError("a <polygon> with a point beyond any picture")
    return tuple(numbers)


def _numbers(element: Element, tags: Sequence[str]) -> list[float]:
    """Numbers by the names of their elements: tools write them in different orders."""
    texts = {child.tag: child.text for child in element}
    numbers = []
    for side in tags:
        text = (texts.get(side) or "").strip()
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number) or "_" in text:
            found = f"is {text!r}" if side in texts else "is missing"
            raise ValueError(f"<{side}> {found}, expected a number")
        numbers.append(number)
    return numbers


def _size(root: Element) -> tuple[int, int] | None:
    try:
        width, height = (int(float(root.findtext(f"size/{side}") or 0)) for side in _WIDTH_HEIGHT)
    except (ValueError, OverflowError):
        return None
    return (width, height) if 0 < width <= SIDE_MAX and 0 < height <= SIDE_MAX else None


_WIDTH_HEIGHT = ("width", "height")
