"""KITTI's boxes: `training/image_2/000000.png` with `training/label_2/000000.txt`.

Car 0.00 0 1.85 387.63 181.54 423.81 203.12 1.67 1.87 3.69 -16.53 2.39 58.49 1.57
class, truncated, occluded, alpha, box (left top right bottom), height width length in metres,
place x y z in metres, rotation_y; results have a score as well
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from packer.sources.annotations import RawObject, object_fields
from packer.sources.items import Scan
from packer.sources.source import SourceOptions
from packer.sources.text_pairs import ParsedLine, TextLayout, read_numbers, scan_text_pairs
from packer.wording import count_text
from readers.store.schema import Field

name = "kitti"

DONT_CARE = "DontCare"
_NOT_AN_OBJECT = f"{DONT_CARE}: a region where objects were not labelled, and no object"


def scan(raw: Path, options: SourceOptions) -> Scan:
    """The pictures in `image_2` and the boxes in `label_2`, splits by folder.

    What a line says beside class and box is in the field `attributes`, as written (-1, -10 and
    -1000 stand for what is not known). DontCare is no class: its regions are rejected one by one,
    unless `options.classes` has it.

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
    if len(values) not in (15, 16):
        return f"{len(values)} values; expected 15, or 16 with a score"
    numbers = read_numbers(values[1:], 2)
    if isinstance(numbers, str):
        return numbers
    class_name = values[0].decode("utf-8", "backslashreplace")
    if class_name == DONT_CARE and not keeps_dont_care:
        return _NOT_AN_OBJECT
    left, top, right, bottom = numbers[3:7]
    attributes = {
        "truncated": numbers[0],
        "occluded": int(numbers[1]) if numbers[1].is_integer() else numbers[1],
        "alpha": numbers[2],
        "dimensions": numbers[7:10],
        "location": numbers[10:13],
        "rotation_y": numbers[13],
    }
    if len(numbers) == 15:
        attributes["score"] = numbers[14]
    return class_name, RawObject(
        place=place, label=0, box=(left, top, right, bottom), attributes=attributes
    )


def _fields(classes: tuple[str, ...]) -> tuple[Field, ...]:
    return object_fields(classes, ("boxes", "labels", "attributes"))
