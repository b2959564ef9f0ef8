"""Pascal VOC's lists of pictures: `ImageSets/Main/train.txt` and its like."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from packer.files.start import pointer_reason
from packer.files.text import LIST_BYTES_MAX, read_bounded
from packer.items.findings import Findings
from packer.sources.pairing import composed, split_path, stem_of
from packer.sources.splits import ordered_splits
from packer.sources.walk import is_picture_name
from packer.wording import count_text, readable_path
from readers.store.splits import canonical_split

# In lower case. They name pictures of several splits, and so decide only about those that no list
# of one split names.
_UNIONS = ("trainval", "train_val", "traintest", "all", "default")
_FOLDER = b"imagesets"
_KINDS: dict[bool, tuple[bytes, ...]] = {
    False: (b"main", b"", b"segmentation"),
    True: (b"segmentation", b"main", b""),
}
"""Which folder of lists counts, the first that has any; by whether masks are wanted."""


@dataclass
class ImageSets:
    """The lists of one VOC folder.

    Attributes:
        split_of: Split of each picture, by its name without extension.
        places: Where each name stands: `ImageSets/Main/train.txt, line 3`.
    """

    split_of: dict[bytes, str] = field(default_factory=dict)
    places: dict[bytes, str] = field(default_factory=dict)


class SplitLists:
    """The lists of all VOC folders of a tree: `VOC2007/ImageSets`, `VOC2012/ImageSets`.

    Args:
        raw: The raw folder.
        files: Paths of text files in it.
        findings: Lists that cannot be read are refused there.
        prefers_masks: Whether the lists of `ImageSets/Segmentation` count before those of `Main`.

    Attributes:
        sets: By path of the VOC folder.
        unread: Files in `ImageSets` that were not read.
        notes: What was chosen or is odd.
    """

    def __init__(
        self, raw: Path, files: Iterable[bytes], findings: Findings, *, prefers_masks: bool
    ) -> None:
        self.sets: dict[bytes, ImageSets] = {}
        self.unread: set[bytes] = set()
        self._read_files: set[bytes] = set()
        self.notes: list[str] = []
        found: dict[bytes, dict[bytes, list[bytes]]] = {}
        for file in files:
            place = _voc_folder(file)
            if place is None:
                continue
            root, kind = place
            if kind in _KINDS[prefers_masks] and _list_split(file) is not None:
                found.setdefault(root, {}).setdefault(kind, []).append(file)
            else:
                self.unread.add(file)
        for root, by_kind in sorted(found.items()):
            kinds = [kind for kind in _KINDS[prefers_masks] if kind in by_kind]
            for kind in kinds[1:]:
                self.unread.update(by_kind[kind])
            self._read(os.fsencode(raw), root, by_kind[kinds[0]], findings)

    def of(self, path: bytes) -> tuple[bytes, ImageSets] | None:
        """The nearest VOC folder with lists that a path lies in, and its lists."""
        root = path
        while root:
            root = split_path(root)[0]
            if root in self.sets:
                return root, self.sets[root]
        return None

    def split(self, path: bytes) -> str | None:
        """Split of the picture at a path, or None when no list names it."""
        place = self.of(path)
        return place[1].split_of.get(list_name(path)) if place else None

    def was_read(self, file: bytes) -> bool:
        """Whether a text file is a list that was read."""
        return file in self._read_files

    def refuse_missing(self, names: set[tuple[bytes, bytes]], findings: Findings) -> None:
        """Refuse each listed name that is not among `names`, (VOC folder, name) each."""
        for root, sets in self.sets.items():
            folder = readable_path(root) + "/" if root else "this folder"
            for name, place in sets.places.items():
                if (root, name) not in names:
                    reason = (
                        f"no picture named {readable_path(name)} lies in {folder}, expected one"
                    )
                    findings.refuse(b"", reason, place, sets.split_of[name])

    def _read(self, raw: bytes, root: bytes, files: list[bytes], findings: Findings) -> None:
        self._read_files.update(files)
        splits = {str(_list_split(file)): file for file in files}
        in_order = ordered_splits(splits)
        sets = ImageSets()
        overlaps: dict[tuple[str, str], int] = {}
        for split in (*(s for s in in_order if canonical_split(s)), *_unions(in_order)):
            place = readable_path(splits[split])
            try:
                data = read_bounded(os.path.join(raw, splits[split]), LIST_BYTES_MAX)
                data = data.removeprefix(b"\xef\xbb\xbf")
                problem = pointer_reason(data)
            except (OSError, ValueError) as error:
                problem = f"the list cannot be read: {getattr(error, 'strerror', error)}"
            if problem:
                findings.refuse(b"", problem, place, split)
                continue
            lines = data.splitlines()
            for number, line in enumerate(lines, 1):
                name = _listed_name(line)
                if not name:
                    continue
                earlier = sets.split_of.setdefault(name, split)
                sets.places.setdefault(name, f"{place}, line {number}")
                if earlier != split and canonical_split(split):
                    overlaps[earlier, split] = overlaps.get((earlier, split), 0) + 1
        if sets.split_of:
            self.sets[root] = sets
        folder = readable_path(split_path(files[0])[0])
        for (earlier, split), count in overlaps.items():
            self.notes.append(
                f"{folder}: {count_text(count, 'picture')} of {split} also in {earlier}, "
                f"taken for {earlier}"
            )


def list_name(path: bytes) -> bytes:
    """What a list calls the picture at a path."""
    return composed(stem_of(split_path(path)[1]))


def _unions(splits: Iterable[str]) -> list[str]:
    return [split for split in splits if not canonical_split(split)]


def _voc_folder(file: bytes) -> tuple[bytes, bytes] | None:
    """The VOC folder of a list and the kind of the list, or None for a file that is none."""
    folder, name = split_path(split_path(file)[0])
    if name.lower() == _FOLDER:
        return folder, b""
    root, parent = split_path(folder)
    return (root, name.lower()) if parent.lower() == _FOLDER else None


def _list_split(file: bytes) -> str | None:
    """The split that a list is of, by its name, or None: `cat_train.txt` is a list of a class."""
    name = stem_of(split_path(file)[1]).decode("utf-8", "replace")
    return name if canonical_split(name) or name.lower() in _UNIONS else None


def _listed_name(line: bytes) -> bytes:
    """The name of a picture in a line, without its folder and its extension."""
    name = line.strip().replace(b"\\", b"/")
    name = split_path(name)[1]
    return composed(stem_of(name) if is_picture_name(name) else name)
