"""DOTA: turned boxes as corners in pixels, in `labelTxt/` beside the pictures.

imagesource:GoogleEarth
gsd:0.146343
2753 2408 2861 2385 2888 2468 2805 2502 plane 0
x0   y0   x1   y1   x2   y2   x3   y3   class difficulty
"""

from __future__ import annotations

import os
from pathlib import Path

from packer.items.annotations import RawObject, object_fields, pack_points
from packer.items.raw_item import Scan
from packer.sources.layouts import LAYOUTS
from packer.sources.source import SourceOptions
from packer.sources.text_pairs import LineObject, ParsedLine, TextLayout, scan_text_pairs
from packer.sources.text_values import is_number, read_numbers, separator_problem, shown_value
from packer.sources.turned_boxes import corners_field
from packer.sources.yolo.data_yaml import YAML_EXTENSIONS, declares_yolo, read_data_yaml
from packer.wording import readable_path
from readers.store.schema import Field

name = "dota"

_LABEL_FOLDERS = tuple(folder for (folder,) in LAYOUTS[name].folders_anywhere)


def scan(raw: Path, options: SourceOptions) -> Scan:
    """The pictures beside `labelTxt/` and their turned boxes, as field `corners`.

    Classes are sorted by code point, unless a data.yaml lies there: then they are its names. Splits
    are folders (`train/images`, `train/labelTxt`). `difficult` is any difficulty but 0.

    Raises:
        SourceError: No picture has a label file, or the data.yaml cannot be read.
    """
    listed, class_file, notes = _listed_classes(raw)
    layout = TextLayout(
        name=name,
        picture_folders=(b"images", b"image", b"imgs", b"img"),
        label_folders=_LABEL_FOLDERS,
        parse=parse_line,
        classes=listed,
        class_file=class_file,
    )
    found = scan_text_pairs(raw, options.classes, layout, _fields)
    found.notes[:0] = notes
    return found


def parse_line(values: list[bytes], place: str) -> ParsedLine:
    """Class and object of a line; None for those at the head of a file, about the picture."""
    if values[0].lower().startswith((b"imagesource:", b"gsd:")):
        return None
    problem = separator_problem(values, lambda count: count in (9, 10))
    if problem:
        return problem
    if len(values) not in (9, 10):
        words = ""
        if len(values) > 10 and not any(map(is_number, values[8:-1])):
            one_word = shown_value(b"-".join(values[8:-1]))
            words = f". A class of several words is written as one: {one_word}"
        return (
            f"{len(values)} values; expected 10: x and y of four corners in pixels, a class and a "
            f"difficulty{words}"
        )
    corners = read_numbers(values[:8], 1)
    if isinstance(corners, str):
        return corners
    difficulty = values[9] if len(values) == 10 else b"0"
    lost: tuple[tuple[str, str], ...] = ()
    if difficulty not in (b"0", b"1", b"2"):
        reason = f"difficulty is {shown_value(difficulty)!r}; expected 0, 1 or 2. It is taken for 0"
        lost, difficulty = (("difficulty", reason),), b"0"
    class_name = values[8].decode("utf-8", "backslashreplace")
    made = RawObject(
        place=place,
        label=0,
        keypoints=pack_points(corners, "<f4"),
        difficult=difficulty != b"0",
    )
    return LineObject(class_name, made, lost)


def _fields(classes: tuple[str, ...]) -> tuple[Field, ...]:
    return object_fields(classes, ("boxes", "labels", "difficult"), keypoints=corners_field())


def _listed_classes(raw: Path) -> tuple[tuple[str, ...] | None, bytes, list[str]]:
    """Class names of a data.yaml in the folder, its name, and notes; None without one."""
    for path in sorted(raw.iterdir()) if raw.is_dir() else []:
        file_name = os.fsencode(path.name)
        if file_name.lower().endswith(YAML_EXTENSIONS) and path.is_file() and declares_yolo(path):
            data = read_data_yaml(path)
            if data.names is not None:
                note = (
                    f"class names are from {readable_path(file_name)}; its paths are not read: "
                    "splits are folders"
                )
                return data.names, file_name, [note, *data.notes]
    return None, b"", []
