"""COCO files of the same pictures: which of them is read, since annotations are never added up."""

from __future__ import annotations

import filecmp
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from packer.errors import SourceError
from packer.sources.coco.files import is_of_another, says_of_objects
from packer.sources.coco.images import FileImages
from packer.wording import count_text, readable_path
from readers.store.splits import canonical_split

SHARED_MAX = 0.5
"""Files that share more of their pictures than this are two versions of one annotation. Of fewer,
the pictures are rejected one by one, and the others stay."""

_CONFLICTS_SHOWN_MAX = 5


def without_doubles(
    shown: str, folder: Path, listed: Sequence[FileImages], wanted: str | None
) -> tuple[list[FileImages], list[FileImages]]:
    """(the files to read, the files to leave aside) of those that were chosen.

    A file without annotations, or with the name of another kind (`captions_train`), is left aside
    where another file has annotations of its pictures; and so is a copy of another file.

    Args:
        shown: How a message calls the raw path.
        folder: That the paths of the files are relative to.
        listed: The images of each file, all of one kind.
        wanted: The one split that is asked for; None: all are.

    Raises:
        SourceError: Several files have annotations of the same pictures of the wanted split.
    """
    kept = list(listed)
    keys = {id(f): {i.key for i in f.images if i.picture is not None} for f in kept}

    def drop(is_dropped: Callable[[FileImages, FileImages], bool]) -> None:
        for one in list(kept):
            others = [o for o in kept if o is not one and keys[id(o)] & keys[id(one)]]
            if any(is_dropped(one, other) for other in others):
                kept.remove(one)

    drop(lambda one, other: _count(one) == 0 < _count(other))
    drop(lambda one, other: says_of_objects(other.coco_file) and is_of_another(one.coco_file))
    drop(lambda one, other: _order(other) < _order(one) and _is_copy(folder, one, other))
    conflicts = []
    asked = [f for f in kept if wanted is None or _is_of(f.split, wanted)]
    for position, one in enumerate(asked):
        for other in asked[position + 1 :]:
            shared = keys[id(one)] & keys[id(other)]
            if len(shared) > SHARED_MAX * min(len(keys[id(one)]), len(keys[id(other)])):
                conflicts.append(
                    f"{one.coco_file.name} and {other.coco_file.name} both have annotations of "
                    f"{count_text(len(shared), 'picture')}, such as {readable_path(min(shared))}"
                )
    if conflicts:
        raise SourceError(
            f"{shown}: {'; '.join(conflicts[:_CONFLICTS_SHOWN_MAX])}. Expected one file for each "
            "picture, since annotations are never added up. Give the path of the file that you "
            "want instead of the folder, or move the others away."
        )
    return kept, [file_images for file_images in listed if file_images not in kept]


def _is_of(split: str | None, wanted: str) -> bool:
    """Whether a file may have images of the split that is asked for."""
    return split is None or split == wanted or canonical_split(split) == canonical_split(wanted)


def _count(listed: FileImages) -> int:
    return len(listed.coco_file.annotations)


def _order(listed: FileImages) -> tuple[int, bytes]:
    """The original before its copy, whose name is longer."""
    return len(listed.coco_file.path), listed.coco_file.path


def _is_copy(folder: Path, one: FileImages, other: FileImages) -> bool:
    """Whether two files are the same byte for byte."""
    first, second = (os.path.join(os.fsencode(folder), f.coco_file.path) for f in (one, other))
    try:
        return filecmp.cmp(first, second, shallow=False)
    except OSError:
        return False
