"""What text files say about the layout: labels of YOLO, lists of masks, lists of faces."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from packer.sources.detection.found import FILES_MAX, PAIRED, STRUCTURAL, Evidence
from packer.sources.detection.look import Look, shown_names
from packer.sources.masks.lists import read_mask_lists
from packer.sources.yolo.names import CLASS_FILES
from packer.wording import readable_path

_YOLO_LINE = re.compile(r"\s*\d+(\.0*)?(\s+[-+.\deE]+){4,}\s*")
_SEPARATED_LINE = re.compile(r"\s*\d+(\s*[,;]\s*([01](\.\d*)?|\.\d+)){4,}\s*")
"""The same with commas or semicolons between shares of the sides: the source says what is wrong."""
_GOOD_SHARE_MIN = 0.9


def texts(look: Look) -> Iterator[Evidence]:
    """Text files of all pictures together: of WIDER FACE, and lists of pictures and masks."""
    faces = [path for path in look.files(b".txt") if path.endswith(b"_bbx_gt.txt")]
    if faces:
        yield Evidence(format="wider", score=STRUCTURAL, seen=f"{shown_names(faces)} is there")
    lists = mask_lists(look)
    if lists:
        seen = f"{shown_names(lists)} names a picture and its mask in each line"
        yield Evidence(format="mask-pairs", score=PAIRED, seen=seen)


def mask_lists(look: Look) -> list[bytes]:
    """Paths of text files that name two pictures in their first line."""
    root = Path(os.fsdecode(look.root))
    return [path for path in look.files(b".txt")[:FILES_MAX] if read_mask_lists(root, [path])]


def are_yolo(look: Look, paths: list[bytes]) -> bool:
    """Whether nine of ten lines are a class number and four numbers or more; no line is fine."""
    lines = [
        line for path in paths[:FILES_MAX] for line in look.head(path).splitlines() if line.strip()
    ]
    good = (_YOLO_LINE.fullmatch(line) or _SEPARATED_LINE.fullmatch(line) for line in lines)
    return sum(map(bool, good)) >= _GOOD_SHARE_MIN * len(lines)


def is_yolo_class_file(name: bytes) -> bool:
    """Whether a file is called like one that names YOLO's classes."""
    return name.lower() in CLASS_FILES or name.lower().endswith(b".names")


def yolo_classes_text(look: Look) -> str:
    """Which file names the classes of YOLO data without a data.yaml, as a message says it."""
    for listing in look.listings:
        for name in listing.files:
            if is_yolo_class_file(name):
                return f"classes in {readable_path(listing.join(name))}"
    return "no file of class names"
