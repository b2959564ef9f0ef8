"""One XML file in the form of Pascal VOC, as it is written: no origin is taken off."""

from __future__ import annotations

import math
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element

import msgspec

from packer.sources.xml_file import read_xml
from readers.store.schema import SIDE_MAX

_SIDES = ("xmin", "ymin", "xmax", "ymax")
_YES = frozenset(("1", "true", "yes"))
_NO = frozenset(("", "0", "false", "no", "unspecified"))


class VocObject(msgspec.Struct, frozen=True, array_like=True):
    """One `<object>`.

    Attributes:
        number: Which of the file's objects it is, from 1.
        name: Its class.
        box: xmin, ymin, xmax, ymax as written.
        difficult: False where the file does not say.
        truncated: False where the file does not say.
        attributes: `pose` and `occluded`, where the file says; and a `difficult` or `truncated`
            that is neither yes nor no, as text.
    """

    number: int
    name: str
    box: tuple[float, float, float, float]
    difficult: bool
    truncated: bool
    attributes: dict[str, Any]


class VocFile(NamedTuple):
    """What an XML file says of one picture.

    Attributes:
        objects: Those that can be used.
        size: (width, height) of the picture; None where it is missing, 0 or no number.
        rejects: Number of each other object, from 1, and why it cannot be used.
        file_name: What it calls the picture; it often lies.
        part_count: Boxes of parts inside of objects, which are no objects.
        action_count: Objects that say what a person does.
    """

    objects: list[VocObject]
    size: tuple[int, int] | None
    rejects: list[tuple[int, str]]
    file_name: str
    part_count: int
    action_count: int

    @property
    def object_count(self) -> int:
        """How many `<object>` there are."""
        return len(self.objects) + len(self.rejects)


def read_voc(path: bytes) -> VocFile:
    """What the file says.

    Raises:
        ValueError: Why it cannot be used, without its name.
    """
    root = read_xml(path)
    if root.tag != "annotation":
        raise ValueError(f"the root element is <{root.tag}>, expected <annotation>")
    objects: list[VocObject] = []
    rejects: list[tuple[int, str]] = []
    part_count = action_count = 0
    # Children only: `iter` would find the boxes of parts as well.
    for number, element in enumerate(root.findall("object"), 1):
        children: dict[str, Element] = {}
        for child in element:
            if child.tag == "part":
                part_count += 1
            else:
                children.setdefault(child.tag, child)
        action_count += "actions" in children
        try:
            objects.append(_object(number, children))
        except ValueError as error:
            rejects.append((number, str(error)))
    file_name = (root.findtext("filename") or "").strip()
    return VocFile(objects, _size(root), rejects, file_name, part_count, action_count)


def _object(number: int, children: dict[str, Element]) -> VocObject:
    class_name = _text(children, "name")
    if not class_name:
        raise ValueError("no class: <name> is missing or empty")
    if "bndbox" not in children:
        others = ", ".join(f"<{tag}>" for tag in children)
        raise ValueError(f"no box: found {others}; expected <bndbox>")
    x0, y0, x1, y1 = _box(children["bndbox"])
    attributes: dict[str, Any] = {}
    pose = _text(children, "pose")
    if pose and pose.lower() != "unspecified":
        attributes["pose"] = pose
    flags: dict[str, bool | None] = {}
    for tag in ("difficult", "truncated", "occluded"):
        text = _text(children, tag)
        lower = text.lower()
        flags[tag] = True if lower in _YES else False if lower in _NO else None
        if flags[tag] is None:
            attributes[tag] = text
        elif tag == "occluded" and lower and lower != "unspecified":
            attributes[tag] = flags[tag]
    difficult, truncated = bool(flags["difficult"]), bool(flags["truncated"])
    return VocObject(number, class_name, (x0, y0, x1, y1), difficult, truncated, attributes)


def _text(children: dict[str, Element], tag: str) -> str:
    child = children.get(tag)
    return (child.text or "").strip() if child is not None else ""


def _box(element: Element) -> list[float]:
    """Four numbers, by the names of their elements: tools write them in different orders."""
    texts = {child.tag: child.text for child in element}
    numbers = []
    for side in _SIDES:
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
