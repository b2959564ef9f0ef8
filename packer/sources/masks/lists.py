"""Lists that name a picture and its mask in each line, as CamVid's `train.txt` does."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from packer.files.text import LIST_BYTES_MAX, read_bounded
from packer.sources.pairing import split_path, stem_of
from packer.sources.splits import are_all_splits
from packer.sources.walk import is_picture_name
from packer.wording import readable_path

_FIRST_LINE_BYTES_MAX = 2**16
_BETWEEN = re.compile(rb"[\s,;]+")


class ListLine(NamedTuple):
    """One line of a list.

    Attributes:
        number: From 1.
        files: Picture and mask as written, but with slashes; empty where there is a problem.
        problem: Why the line cannot be used, or empty.
    """

    number: int
    files: tuple[bytes, ...]
    problem: str


@dataclass(frozen=True)
class MaskList:
    """A list of pictures and masks.

    Attributes:
        path: Relative to the raw folder.
        split: Name of the split, after the file.
        lines: Without empty ones.
    """

    path: bytes
    split: str
    lines: tuple[ListLine, ...]


def read_mask_lists(raw: Path, paths: Sequence[bytes]) -> list[MaskList]:
    """The lists among some text files whose first line names a picture and a mask.

    Of several, those in the highest folder count; and where some of these are called like splits
    (train, val, test), only those, since another (trainval) would name the same pictures again.
    """
    lists: list[MaskList] = []
    for path in sorted(paths, key=lambda path: (path.count(b"/"), path)):
        if not path.lower().endswith(b".txt"):
            continue
        if lists and path.count(b"/") > lists[0].path.count(b"/"):
            break
        try:
            full = os.path.join(os.fsencode(raw), path)
            with open(full, "rb") as file:
                start = _lines(file.read(_FIRST_LINE_BYTES_MAX).removeprefix(b"\xef\xbb\xbf"))
                if not start or start[0].problem:
                    continue
            content = read_bounded(full, LIST_BYTES_MAX)
        except (OSError, ValueError):
            continue  # It stays among the files that no use was found for.
        lines = _lines(content.removeprefix(b"\xef\xbb\xbf"))
        if lines and not lines[0].problem:
            split = readable_path(split_path(stem_of(path))[1])
            lists.append(MaskList(path, split, tuple(lines)))
    named = [mask_list for mask_list in lists if are_all_splits([os.fsencode(mask_list.split)])]
    return named or lists


def _lines(content: bytes) -> list[ListLine]:
    lines: list[ListLine] = []
    for number, line in enumerate(content.splitlines(), 1):
        if line.strip():
            files = _two_files(line.strip())
            problem = "" if files else "expected the paths of a picture and of its mask"
            lines.append(ListLine(number, files, problem))
            if problem and len(lines) == 1:
                break  # It is not a list of masks.
    return lines


def _two_files(line: bytes) -> tuple[bytes, ...]:
    """The two paths of a line, in which there may be blanks; empty where there are not two."""
    found = [
        (line[: between.start()], line[between.end() :])
        for between in _BETWEEN.finditer(line)
        if is_picture_name(line[: between.start()]) and is_picture_name(line[between.end() :])
    ]
    return tuple(path.replace(b"\\", b"/") for path in found[0]) if len(found) == 1 else ()
