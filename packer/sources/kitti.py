"""KITTI's boxes: `training/image_2/000000.png` with `training/label_2/000000.txt`.

Car 0.00 0 1.85 387.63 181.54 423.81 203.12 1.67 1.87 3.69 -16.53 2.39 58.49 1.57
class, truncated, occluded, alpha, box (left top right bottom), height width length in metres,
place x y z in metres, rotation_y; results have a score as well
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from packer.items.annotations import RawObject, object_fields
from packer.items.raw_item import Scan
from packer.sources.source import SourceOptions
from packer.sources.text_pairs import LineObject, ParsedLine, TextLayout, scan_text_pairs
from packer.sources.text_values import is_number, number_problem, read_numbers, separator_problem
from packer.wording import count_text
from readers.store.schema import Field

name = "kitti"

DONT_CARE = "DontCare"
_NOT_AN_OBJECT = f"{DONT_CARE}: a region where objects were not labelled, and no object"


def scan(raw: Path, options: SourceOptions) -> Scan:
    """The pictures in `image_2` and the boxes in `label_2`, splits by folder.

    What a line says beside class and box is in the field `attributes`, as written (-1, -10 and
    -1000 stand for what is not known). DontCare is not a class: its regions are rejected one by
    one, unless `options.classes` has it.

    Raises:
        SourceError: No picture has a label file.
    """
    keeps_dont_care = options.classes is not None and DONT_CARE in options.classes
    layout = TextLayout(
        name=name,
        picture_folders=(b"image_2",),
        label_folders=(b"label_2",),
        parse=partial(parse_line, keeps_dont_care=keeps_dont_care),
    )
    found = scan_text_pairs(raw, options.classes, layout, _fields)
    count = sum(reject.reason == _NOT_AN_OBJECT for reject in found.annotation_rejects)
    if count:
        found.notes.append(
            f"{count_text(count, 'region')} of {DONT_CARE} left out; name it in --classes to keep "
            "it as a class"
        )
    return found


def parse_line(values: list[bytes], place: str, *, keeps_dont_care: bool = False) -> ParsedLine:
    """Class and object of a line, or why it is none."""
    problem = separator_problem(values, lambda count: count in (15, 16))
    if problem:
        return problem
    if len(values) not in (15, 16):
        return f"{len(values)} values; expected 15, or 16 with a score"
    if len(values) == 16 and not is_number(values[1]):
        # Then all that follows is one place further on than it seems.
        return f"{number_problem(values[1], 2)}. A class of two words is written as one"
    box = read_numbers(values[4:8], 5)
    if isinstance(box, str):
        return box
    class_name = values[0].decode("utf-8", "backslashreplace")
    if class_name == DONT_CARE and not keeps_dont_care:
        return _NOT_AN_OBJECT
    attributes: dict[str, Any] = {}
    lost = []
    for name, first, end in _ATTRIBUTES:
        numbers = read_numbers(values[first:end], first + 1)
        if isinstance(numbers, str):
            # What is beside the box does not take it along.
            lost.append(("attributes", f"{name}: {numbers}. It is left out"))
        elif numbers:
            attributes[name] = numbers if end - first > 1 else numbers[0]
    if attributes.get("occluded", 0.5).is_integer():
        attributes["occluded"] = int(attributes["occluded"])
    left, top, right, bottom = box
    made = RawObject(place=place, label=0, box=(left, top, right, bottom), attributes=attributes)
    return LineObject(class_name, made, tuple(lost))


_ATTRIBUTES = (
    ("truncated", 1, 2),
    ("occluded", 2, 3),
    ("alpha", 3, 4),
    ("dimensions", 8, 11),
    ("location", 11, 14),
    ("rotation_y", 14, 15),
    ("score", 15, 16),
)
"""Where a line has what is not its class and box."""


def _fields(classes: tuple[str, ...]) -> tuple[Field, ...]:
    return object_fields(classes, ("boxes", "labels", "attributes"))
