"""nnU-Net's folders: `imagesTr/case_0000.png`, `labelsTr/case.png`, and names in `dataset.json`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from packer.errors import SourceError
from packer.files.text import read_text
from packer.sources.masks.label_map import LabelMap
from packer.sources.masks.names import NNUNET_FOLDER
from packer.sources.pairing import split_path, stem_of
from packer.wording import readable_path

_CHANNEL = re.compile(rb"(.+)_\d{4}")
_IGNORE = "ignore"
_NAMES_FILE = b"dataset.json"


def case_of(path: bytes) -> bytes | None:
    """The case that a picture is of, which is the name of its mask; None in other folders."""
    folder, name = split_path(path)
    found = NNUNET_FOLDER.fullmatch(split_path(folder)[1])
    if found is None or found[1].lower() != b"images":
        return None
    match = _CHANNEL.fullmatch(stem_of(name))
    return match[1] if match is not None else None


def channel_problem(folders: Mapping[bytes, Iterable[bytes]]) -> str:
    """Why the pictures cannot be read, if a case has several: a sample holds one. Else empty.

    Args:
        folders: Names of the pictures in each folder, by its path.
    """
    for folder, names in folders.items():
        first: dict[bytes, bytes] = {}
        for name in names:
            case = case_of(folder + b"/" + name)
            other = first.setdefault(case, name) if case is not None else name
            if other != name:
                return (
                    f"{readable_path(folder)} holds several channels of a case, each in a file of "
                    f"its own, such as {readable_path(other)} and {readable_path(name)}, and a "
                    "sample has one picture. Write the channels of each case into one file, or "
                    "keep the files of one channel"
                )
    return ""


def find_names(
    raw: Path, listed: Sequence[bytes], folders: Iterable[bytes]
) -> tuple[bytes, LabelMap | None] | None:
    """The `dataset.json` beside such folders and the classes in it; None where there is none.

    It has no names of classes where its labels are regions: several values each.

    Raises:
        SourceError: It cannot be read, or says nothing that can be about labels.
    """
    places = {split_path(f)[0] for f in folders if NNUNET_FOLDER.fullmatch(split_path(f)[1])}
    for path in listed:
        folder, name = split_path(path)
        if name.lower() == _NAMES_FILE and folder in places:
            return path, _label_map(Path(os.fsdecode(os.path.join(os.fsencode(raw), path))), path)
    return None


def _label_map(file: Path, path: bytes) -> LabelMap | None:
    place = readable_path(path)
    try:
        content = json.loads(read_text(file))
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{place}: not JSON: {error}.") from error
    labels = content.get("labels") if isinstance(content, dict) else None
    if not isinstance(labels, dict) or not labels:
        raise SourceError(
            f"{place}: found no labels; expected an object of names and values, such as "
            '"labels": {"background": 0, "road": 1}. Add it, or move the file away.'
        )
    names: dict[int, str] = {}
    for key, said in labels.items():
        # Older files have {"0": "background"}.
        name, value = (said, key) if isinstance(said, str) and key.isdecimal() else (key, said)
        if isinstance(value, list):
            return None
        try:
            number = int(value)
        except (TypeError, ValueError):
            number = -1
        if not 0 <= number < 2**16 or number in names:
            raise SourceError(
                f"{place}, label {key!r}: found {said!r}; expected a whole number in [0, 65536), "
                "another for each label."
            )
        names[number] = name
    last = max(names)
    ignore = last if last and names[last].lower() == _IGNORE else None
    count = last if ignore is not None else last + 1
    return LabelMap(
        place=place, names=tuple(names.get(n, str(n)) for n in range(count)), ignore=ignore
    )
