"""Labels of a split without class folders, from a text file in it, as Tiny ImageNet's `val` has.

val/images/val_0.JPEG        val/val_annotations.txt: `val_0.JPEG	n01443537	0	32	44	62`
test/images/test_0.JPEG      test_labels.txt: `test_0.JPEG n01443537`, beside the folder
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from packer.items.raw_item import Reject
from packer.sources.lists.files import split_in_name
from packer.sources.pairing import composed, split_path
from packer.sources.walk import Picture, is_picture_name
from packer.wording import readable_path
from readers.store.splits import canonical_split

LIST_EXTENSION = b".txt"
_BETWEEN = re.compile(rb"[\t,; ]+")
_FIRST_BYTES = 2**12


@dataclass
class SplitLabels:
    """What a file says about the pictures of its split.

    Attributes:
        class_of: Class of each picture, by path.
        rejects: Pictures that are named and get no label, and lines that name none.
        notes: Which file was read, and what of it was not.
    """

    class_of: dict[bytes, bytes] = field(default_factory=dict)
    rejects: list[Reject] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def names_pictures(path: Path) -> bool:
    """Whether the first line of a text file is the name of a picture and something about it."""
    try:
        with open(path, "rb") as file:
            lines = file.read(_FIRST_BYTES).removeprefix(b"\xef\xbb\xbf").splitlines()
    except OSError:
        return False
    words = _words(lines[0]) if lines else []
    return len(words) > 1 and is_picture_name(words[0])


def find_label_file(root: Path, split: bytes, files: Iterable[bytes]) -> bytes | None:
    """The one text file in or beside the folder of a split that names pictures; None if not one.

    Beside the folder, its name has that of the split.
    """
    naming = [
        file
        for file in files
        if is_of_split(split, file) and names_pictures(root / os.fsdecode(file))
    ]
    return naming[0] if len(naming) == 1 else None


def is_of_split(split: bytes, file: bytes) -> bool:
    """Whether a file lies in the folder of a split, or beside it with its name in its own."""
    folder, name = split_path(file)
    if folder:
        return folder == split
    said = split_in_name(Path(os.fsdecode(name)))
    return said is not None and canonical_split(said) == canonical_split(os.fsdecode(split))


def read_split_labels(
    root: Path, split: bytes, path: bytes, pictures: Sequence[Picture], classes: Mapping[bytes, int]
) -> SplitLabels | None:
    """Labels of the pictures of one split, or None if the file names no class of the others.

    A line is the name of a picture, by itself or with folders, and a class; more is not read.

    Args:
        root: Folder that the paths are relative to.
        split: Folder of the split.
        path: The file's path.
        pictures: The split's pictures.
        classes: Names that there are.
    """
    try:
        content = (root / os.fsdecode(path)).read_bytes().removeprefix(b"\xef\xbb\xbf")
    except OSError:
        return None
    lines = [(n, _words(line)) for n, line in enumerate(content.splitlines(), 1) if line.strip()]
    if not any(len(words) > 1 and words[1] in classes for _, words in lines):
        return None
    found = SplitLabels()
    by_name: dict[bytes, list[Picture]] = {}
    for picture in pictures:
        by_name.setdefault(composed(split_path(picture.path)[1]), []).append(picture)
    rejects: dict[bytes, Reject] = {}
    first_lines: dict[bytes, int] = {}
    shown, folder = readable_path(path), readable_path(split)
    for number, words in lines:
        place = f"{shown}, line {number}"
        written = composed(words[0].replace(b"\\", b"/"))
        named = by_name.get(split_path(written)[1], [])
        if b"/" in written:
            named = [p for p in named if (b"/" + composed(p.path)).endswith(b"/" + written)]
        label = words[1] if len(words) > 1 else b""
        if not named:
            reason = f"{readable_path(words[0])} is not in {folder}/"
            found.rejects.append(Reject(key=b"", path=place, reason=reason))
            continue
        key = named[0].path
        if len(named) > 1:
            reason = f"several pictures are called {readable_path(words[0])}; expected one"
        elif label not in classes:
            reason = f"label {readable_path(label)!r} is not the name of a class folder"
        elif found.class_of.setdefault(key, label) != label:
            reason = f"listed with another label (first in line {first_lines[key]})"
        else:
            first_lines.setdefault(key, number)
            continue
        for picture in named:  # Each once, for the first reason.
            rejects.setdefault(picture.path, Reject(key=picture.path, path=place, reason=reason))
    for key in rejects:
        found.class_of.pop(key, None)
    found.rejects += rejects.values()
    found.notes.append(f"labels of {folder}/ are those of {shown}")
    if any(len(words) > 2 for _, words in lines):
        found.notes.append(f"{shown}: only the name and the label of each line are read")
    return found


def _words(line: bytes) -> list[bytes]:
    """Words of a line; where there are tabs, names may hold blanks."""
    line = line.strip()
    between = re.compile(rb"\t+") if b"\t" in line else _BETWEEN
    return [word.strip() for word in between.split(line)]
