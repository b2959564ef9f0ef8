"""Text files that list pictures and labels: `path label` in each line (`imagenet-txt`)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

from packer.errors import SourceError
from packer.files.start import pointer_reason_of
from packer.files.text import bounded_lines
from packer.items.raw_item import Scan
from packer.sources.class_names import read_class_names
from packer.sources.layouts import LAYOUTS
from packer.sources.lists.columns import columns_of
from packer.sources.lists.files import find_lists
from packer.sources.lists.scan import scan_lists
from packer.sources.lists.table import Row, Table
from packer.sources.source import SourceOptions
from packer.sources.walk import is_picture_name
from packer.wording import readable_path

name = "txt-list"

LIST_EXTENSIONS = LAYOUTS[name].endings

CLASS_FILES = ("synsets.txt", "classes.txt", "labels.txt")
"""Names of classes, one a line, that labels of a list beside it are positions in."""

PICTURE_FOLDER = b"images"
"""Where pictures of such lists lie, if not beside them."""

_LINE_BYTES_MAX = 2**20
"""Paths end at 4096 bytes, and labels are words."""

_SAMPLED_LINES = 200
_NAMED_SHARE_MIN = 0.9


_NUMBERS = re.compile(rb"[-+\d.]+([,;][-+\d.]+)+")


def scan(raw: Path, options: SourceOptions) -> Scan:
    """The pictures that a text file names, or one for each split; see `scan_lists`.

    The label is the last word of a line, and the path is all before it. Where every label is a
    whole number and a file of class names lies beside the list, labels are positions in it.

    Args:
        raw: The list, or a folder with exactly one, or one for each split.
        options: `root` is where pictures are that lie neither beside the list nor in `images`.

    Raises:
        SourceError: There is no list, or more than one, or it is not clear what it says.
    """
    expected = ".txt file with a picture and its label in each line"
    lists = find_lists(raw, LIST_EXTENSIONS, txt_table, expected, is_list, wanted=options.split)
    notes: list[str] = []
    also_read: list[Path] = []
    if options.classes is None:
        folder = raw if raw.is_dir() else raw.parent
        class_path = next((folder / n for n in CLASS_FILES if (folder / n).is_file()), None)
        if class_path is not None and all(_labels_are_numbers(entry.table) for entry in lists):
            classes = read_class_names(class_path)
            options = replace(options, classes=classes, label_is_index=True)
            also_read.append(class_path)
            notes.append(f"labels are positions in {class_path.name}, from 0")
    found = scan_lists(
        name,
        raw,
        lists,
        options,
        inside=(PICTURE_FOLDER,),
        extensions=LIST_EXTENSIONS,
        also_read=also_read,
    )
    found.notes.extend(notes)
    return found


def is_list(path: Path) -> bool:
    """Whether nearly every line of a text file begins with the path of a picture."""
    lines = [line for _, line in islice(_lines(path), _SAMPLED_LINES)]
    named = [parts for parts in map(_parts, lines) if is_picture_name(parts[0])]
    if named and all(len(parts) == 2 and _NUMBERS.fullmatch(parts[1]) for parts in named):
        return False  # Boxes (`1.jpg 5,6,20,22,0`), not labels.
    return bool(lines) and len(named) >= _NAMED_SHARE_MIN * len(lines)


def txt_table(path: Path) -> Table:
    """A text file as a table of paths and labels.

    Raises:
        SourceError: It cannot be read.
    """

    def rows() -> Iterator[Row]:
        for line, data in _lines(path):
            parts = _parts(data)
            if len(parts) == 2:
                yield line, [part.decode("utf-8", "surrogateescape") for part in parts]
            else:
                yield line, "has one word; expected a path and a label"

    columns = columns_of(("path", "label"))
    return Table(path=path, columns=columns, unit="line", rows=rows)


def _labels_are_numbers(table: Table) -> bool:
    return all(isinstance(row, str) or row[1].isdecimal() for _, row in table.rows())


def _parts(line: bytes) -> list[bytes]:
    """Path and label, or the one of them that there is."""
    return line.rsplit(None, 1)


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Lines that are not empty, without blanks around them, with their number from 1."""
    problem = pointer_reason_of(path)
    if problem:
        raise SourceError(f"{readable_path(os.fsencode(path))}: {problem}.")
    try:
        with open(path, "rb") as file:
            for number, written in enumerate(bounded_lines(file, _LINE_BYTES_MAX), 1):
                # What is longer names no picture: it is a row that cannot be read.
                line = b"?" if written is None else written
                line = (line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line).strip()
                if line:
                    yield number, line
    except OSError as error:
        raise SourceError(
            f"{readable_path(os.fsencode(path))}: the list cannot be read: {error.strerror}. "
            "Check its permissions."
        ) from error
