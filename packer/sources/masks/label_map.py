"""Label maps: files beside masks that say which value or which colour each class has.

labelmap.csv, class_dict.csv     name,r,g,b      or  Pixel Value,Class  (Roboflow)
labelmap.txt                     name:r,g,b::    (VOC as CVAT writes it)
label_colors.txt                 r g b name      (CamVid)
codes.txt, classes.txt           name            one a line, the first is 0
dataset_meta.json                label_map and segmentation_colors  (Datumaro)
colors.json, label_map.json      {"0": [r, g, b]}, {"name": [r, g, b]}, {"0": "name"}, or a
                                 list of {"id", "name", "color"}
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from packer.errors import SourceError
from packer.files.masks import NO_COLOR, Color
from packer.files.text import read_text
from packer.sources.class_names import read_class_names
from packer.wording import readable_path

LABEL_MAP_NAMES: tuple[bytes, ...] = (
    b"labelmap.csv",
    b"label_map.csv",
    b"class_dict.csv",
    b"class_dict_seg.csv",
    b"label_colors.csv",
    b"label_colours.csv",
    b"_classes.csv",
    b"labelmap.txt",
    b"label_map.txt",
    b"label_colors.txt",
    b"label_colours.txt",
    b"dataset_meta.json",
    b"labelmap.json",
    b"label_map.json",
    b"label_colors.json",
    b"label_colours.json",
    b"colors.json",
    b"colours.json",
    b"class_dict.json",
    b"codes.txt",
    b"classes.txt",
    b"class_names.txt",
)
"""Names of files that are taken for label maps, in lower case. Earlier ones say more."""

VALUE_MAX = 65535
"""Largest value that a mask of 16 bits can hold."""

IGNORE = 255
"""The value that masks commonly have where no class is meant."""

_NO_CLASS = (
    *("void", "ignore", "ignored", "ignorelabel", "unlabeled", "unlabelled"),
    *("border", "boundary", "dontcare", "none"),
)
"""Names that 255 has where it is not a class, without punctuation."""

_NAME_COLUMNS = ("name", "class", "label", "classname", "labelname", "category")
_VALUE_COLUMNS = ("id", "index", "value", "pixelvalue", "classid", "labelid")
_COLOR_COLUMNS = ("color", "colour", "rgb", "hex")
_RGB_COLUMNS = (("r", "g", "b"), ("red", "green", "blue"))


@dataclass(frozen=True, kw_only=True)
class LabelMap:
    """Classes of masks, by value.

    Attributes:
        place: The file, as a message names it.
        names: Name of each value. A value between others that the file leaves out is called by
            its number. Empty where the file has colours alone.
        colors: Colour of each value, or `NO_COLOR`. Empty where the file has names alone.
        ignore: Value that the file itself sets apart from the classes, or None.
    """

    place: str
    names: tuple[str, ...] = ()
    colors: tuple[Color, ...] = ()
    ignore: int | None = None


_Entry: TypeAlias = "tuple[int | None, str | None, Color | None, str]"
"""Value, name, colour, and the place in the file, as far as the file says."""


def is_label_map_name(name: bytes) -> bool:
    """Whether a file of this name, whatever its case, is taken for a label map."""
    return name.lower() in LABEL_MAP_NAMES


def find_label_maps(raw: Path, paths: Iterable[bytes]) -> list[LabelMap]:
    """All label maps among some files, each kind once: those that say more first.

    Of files of one name only those that are least deep count, such as one in each split.

    Args:
        raw: Folder that the paths are relative to.
        paths: Of files that were found; those of other names are passed over.

    Raises:
        SourceError: A file cannot be read as what its name says, or two files of one name and
            depth differ.
    """
    by_name: dict[bytes, list[bytes]] = {}
    for path in paths:
        name = path.split(b"/")[-1].lower()
        if name in LABEL_MAP_NAMES:
            by_name.setdefault(name, []).append(path)
    maps = []
    for name in sorted(by_name, key=LABEL_MAP_NAMES.index):
        depth = min(path.count(b"/") for path in by_name[name])
        first: LabelMap | None = None
        for path in sorted(p for p in by_name[name] if p.count(b"/") == depth):
            read = read_label_map(Path(os.fsdecode(os.path.join(os.fsencode(raw), path))))
            if first is None:
                first = LabelMap(
                    place=readable_path(path),
                    names=read.names,
                    colors=read.colors,
                    ignore=read.ignore,
                )
            elif (read.names, read.colors) != (first.names, first.colors):
                raise SourceError(
                    f"{first.place} and {readable_path(path)} differ; expected one label map for "
                    "all masks. Keep the right one, or build the folders one by one."
                )
        assert first is not None
        maps.append(first)
    return maps


def read_label_map(path: Path) -> LabelMap:
    """The classes in a file, in the way that its name and content say.

    Raises:
        SourceError: The file cannot be read, is not UTF-8, a line or entry of it is none of a label
            map, or a value, name or colour is listed twice.
    """
    place = readable_path(os.fsencode(path))
    text = read_text(path)
    suffix = path.suffix.lower()
    if suffix == ".json":
        entries = _json_entries(text, place)
    elif suffix == ".csv":
        entries = _csv_entries(text, place)
    else:
        read_line = _line_reader(text)
        if read_line is None:
            return LabelMap(place=place, names=read_class_names(path))
        entries = [
            read_line(line.strip(), f"{place}, line {number}")
            for number, line in enumerate(text.splitlines(), 1)
            if line.strip() and not line.lstrip().startswith("#")
        ]
    return _label_map(entries, place)


# What each kind of file says.


_COLON_LINE = re.compile(r"(?P<name>[^:]+):(?P<color>[^:]*)(:[^:]*){0,2}")
_COLOR_FIRST = re.compile(r"(?P<color>\d+[\s,]+\d+[\s,]+\d+)[\s,]+(?P<name>\D.*)")
_COLOR_LAST = re.compile(r"(?P<name>.*\D)[\s,]+(?P<color>\d+[\s,]+\d+[\s,]+\d+)")


def _line_reader(text: str) -> Callable[[str, str], _Entry] | None:
    """How the lines of a text file are read, by the first of them; None where they are names."""
    lines = [line.strip() for line in text.splitlines()]
    first = next((line for line in lines if line and not line.startswith("#")), "")
    for pattern in (_COLON_LINE, _COLOR_FIRST, _COLOR_LAST):
        if pattern.fullmatch(first):
            return lambda line, place: _line_entry(pattern, line, place)
    return None


def _line_entry(pattern: re.Pattern[str], line: str, place: str) -> _Entry:
    found = pattern.fullmatch(line)
    if found is None:
        raise SourceError(
            f"{place}: {line!r} is not of the form of the lines before it; expected a name and a "
            "colour of three numbers."
        )
    written = found["color"].strip()
    color = _color(written, place) if written else None
    return None, found["name"].strip(), color, place


def _csv_entries(text: str, place: str) -> list[_Entry]:
    try:
        written_rows = list(csv.reader(text.splitlines(), skipinitialspace=True))
    except csv.Error as error:
        raise SourceError(f"{place}: not CSV: {error}.") from error
    rows = [
        (number, [cell.strip() for cell in row])
        for number, row in enumerate(written_rows, 1)
        if any(cell.strip() for cell in row)
    ]
    if not rows:
        return []
    header = [re.sub(r"[\s_]+", "", cell).lower() for cell in rows[0][1]]
    name, value, color = (
        _position(header, columns) for columns in (_NAME_COLUMNS, _VALUE_COLUMNS, _COLOR_COLUMNS)
    )
    parts = next(
        (
            [header.index(c) for c in columns]
            for columns in _RGB_COLUMNS
            if set(columns) <= {*header}
        ),
        None,
    )
    if (name is None and value is None) or (name is None and color is None and parts is None):
        if len(header) != 4 or not all(cell.isdigit() for cell in rows[0][1][1:]):
            raise SourceError(
                f"{place}: the header has {', '.join(map(repr, rows[0][1][:8]))}; expected columns "
                "name, r, g and b, or a value and a class."
            )
        name, value, color, parts = 0, None, None, [1, 2, 3]  # A list without a header.
    else:
        rows = rows[1:]
    entries: list[_Entry] = []
    for number, row in rows:
        line = f"{place}, line {number}"
        if len(row) != len(header):
            raise SourceError(f"{line}: has {len(row)} columns; the first line has {len(header)}.")
        written = (
            " ".join(row[part] for part in parts)
            if parts is not None
            else row[color]
            if color is not None
            else ""
        )
        entries.append(
            (
                None if value is None else _value(row[value], line),
                None if name is None else row[name],
                _color(written, line) if written else None,
                line,
            )
        )
    return entries


def _position(header: list[str], columns: tuple[str, ...]) -> int | None:
    return next((header.index(column) for column in columns if column in header), None)


def _json_entries(text: str, place: str) -> list[_Entry]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{place}: not JSON: {error}.") from error
    if isinstance(content, dict) and isinstance(content.get("label_map"), dict):
        return _datumaro_entries(content, place)
    if isinstance(content, list):
        return [_object_entry(entry, f"{place}, entry {n}") for n, entry in enumerate(content)]
    if not isinstance(content, dict):
        raise SourceError(f"{place}: expected an object or a list of classes at the top.")
    entries: list[_Entry] = []
    for key, said in content.items():
        where = f"{place}, {key!r}"
        key_color = re.fullmatch(r"[(\[]?(\d+(?:\s*,\s*|\s+)\d+(?:\s*,\s*|\s+)\d+)[)\]]?", key)
        if isinstance(said, list):
            value, name = (_value(key, where), None) if key.isdecimal() else (None, key)
            entries.append((value, name, _color(said, where), where))
        elif key_color is not None:
            color = _color(key_color[1], where)
            if isinstance(said, str) and not said.isdecimal():
                entries.append((None, said, color, where))
            else:
                entries.append((_value(said, where), None, color, where))
        elif key.isdecimal() and isinstance(said, str):
            entries.append((_value(key, where), said, None, where))
        else:
            entries.append((_value(said, where), key, None, where))
    return entries


def _datumaro_entries(content: dict[str, Any], place: str) -> list[_Entry]:
    labels, colors = content["label_map"], content.get("segmentation_colors") or []
    if not isinstance(colors, list) or (colors and len(colors) != len(labels)):
        count = len(colors) if isinstance(colors, list) else "no list of"
        raise SourceError(
            f"{place}: {count} segmentation_colors for {len(labels)} labels of label_map; expected "
            "one for each."
        )
    entries: list[_Entry] = []
    for n, (key, label) in enumerate(labels.items()):
        where = f"{place}, label {key!r}"
        color = _color(colors[n], where) if colors else None
        entries.append((_value(key, where), str(label), color, where))
    return entries


def _object_entry(entry: object, place: str) -> _Entry:
    """One of a list: a name, a colour, or an object with both."""
    if isinstance(entry, str):
        return None, entry, None, place
    if isinstance(entry, list):
        return None, None, _color(entry, place), place
    if not isinstance(entry, dict):
        raise SourceError(f"{place}: found {entry!r}; expected an object with name and color.")
    plain = {re.sub(r"[\s_]+", "", str(key)).lower(): said for key, said in entry.items()}
    value = next((plain[key] for key in _VALUE_COLUMNS if key in plain), None)
    name = next((plain[key] for key in _NAME_COLUMNS if key in plain), None)
    color = next((plain[key] for key in _COLOR_COLUMNS if key in plain), None)
    return (
        None if value is None else _value(value, place),
        None if name is None else str(name),
        None if color is None else _color(color, place),
        place,
    )


def _color(written: object, place: str) -> Color:
    """R, G, B of three numbers, of text such as "128, 0, 0", or of "#800000"."""
    parts: list[Any] = []
    if isinstance(written, str) and re.fullmatch(r"#?[0-9a-fA-F]{6}", written.strip()):
        digits = written.strip().lstrip("#")
        parts = [int(digits[n : n + 2], 16) for n in (0, 2, 4)]
    elif isinstance(written, str):
        found = re.split(r"[\s,]+", written.strip(" ()[]"))
        parts = [int(part) if part.isdecimal() and len(part) < 4 else part for part in found]
    elif isinstance(written, list):
        parts = written
    if len(parts) != 3 or not all(type(part) is int and 0 <= part <= 255 for part in parts):
        raise SourceError(f"{place}: colour {written!r}; expected three numbers in [0, 256).")
    return parts[0], parts[1], parts[2]


def _value(written: object, place: str) -> int:
    """A value of a mask's pixels."""
    is_number = type(written) is int or (
        isinstance(written, str) and written.isdecimal() and len(written) < 8
    )
    value = int(written) if is_number else -1  # type: ignore[call-overload]
    if not 0 <= value <= VALUE_MAX:
        raise SourceError(
            f"{place}: value {written!r}; expected a whole number in [0, {VALUE_MAX + 1})."
        )
    return value


# What the entries say together.


def _label_map(entries: list[_Entry], place: str) -> LabelMap:
    """The map of all entries, by value: that of the entry, or its position."""
    if not entries:
        raise SourceError(f"{place}: no classes; expected one in each line or entry.")
    for part, what in ((0, "value"), (1, "name"), (2, "colour")):
        lacking = [entry for entry in entries if entry[part] is None]
        if lacking and len(lacking) < len(entries):
            raise SourceError(
                f"{lacking[0][3]}: no {what}, which others have. Give every class one, or none."
            )
        first: dict[object, str] = {}
        for entry in entries:
            said = entry[part]
            if said is not None and first.setdefault(said, entry[3]) != entry[3]:
                raise SourceError(
                    f"{entry[3]}: {what} {said!r} stands at {first[said]} already. "
                    f"Give every class a {what} of its own."
                )
    for entry in entries:
        if entry[1] is not None and not entry[1].isascii():
            try:
                entry[1].encode()
            except UnicodeEncodeError as error:  # JSON can spell half a character.
                raise SourceError(f"{entry[3]}: name {entry[1]!r} is not text: {error}.") from error
    by_value = {n if entry[0] is None else entry[0]: entry for n, entry in enumerate(entries)}
    values = sorted(by_value)
    ignore = IGNORE if values[-1] == IGNORE and _is_no_class(by_value[IGNORE], values) else None
    if ignore is not None:
        values = values[:-1]
    if not values:
        raise SourceError(f"{place}: only value {IGNORE}, which is not a class; expected classes.")
    names: tuple[str, ...] = ()
    if entries[0][1] is not None:
        names = tuple(_name_of(by_value.get(n), n) for n in range(values[-1] + 1))
    colors: tuple[Color, ...] = ()
    if entries[0][2] is not None:
        last = values[-1] if ignore is None else ignore
        found = [by_value[n][2] if n in by_value else None for n in range(last + 1)]
        colors = tuple(color or NO_COLOR for color in found)
    if not names and not colors:
        raise SourceError(f"{place}: neither names nor colours of classes; expected one of them.")
    return LabelMap(place=place, names=names, colors=colors, ignore=ignore)


def _is_no_class(entry: _Entry, values: list[int]) -> bool:
    """Whether the entry of 255 stands for pixels of no class, by its name or for want of one."""
    if entry[1] is not None:
        return re.sub(r"[\W_]+", "", entry[1]).lower() in _NO_CLASS
    return 0 < values[-2:-1][0] < IGNORE - 1 if len(values) > 1 else False


def _name_of(entry: _Entry | None, value: int) -> str:
    return entry[1] if entry is not None and entry[1] is not None else str(value)
