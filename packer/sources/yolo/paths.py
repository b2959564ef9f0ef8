"""Finds what the paths in data.yaml and in lists of pictures mean.

They are often wrong where they stand: written for another folder or another machine. So several
readings are tried in a fixed order, only inside of the data, and the one that was taken is said.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from packer.sources.pairing import PictureIndex, composed, normal_path
from packer.sources.walk import Picture, Tree
from readers.store.splits import SPLIT_ALIASES, canonical_split


class Found(NamedTuple):
    """What an entry of data.yaml leads to.

    Attributes:
        path: Folder or list file, relative to the base.
        how: How the entry had to be read, or empty when it was there as written.
    """

    path: bytes
    how: str


def inside(path: bytes, base: Path) -> bytes | None:
    """An absolute path relative to a folder that it lies in, or None when it lies elsewhere."""
    if b"\0" in path:
        return None
    path = os.path.normpath(path)
    for folder, place in (
        (os.path.abspath(os.fsencode(base)), path),
        (os.path.realpath(os.fsencode(base)), os.path.realpath(path)),
    ):
        if place == folder:
            return b""
        if place.startswith(folder.rstrip(b"/") + b"/"):
            return place[len(folder.rstrip(b"/")) + 1 :]
    return None


def posix_path(written: bytes) -> bytes:
    r"""A path of Windows in POSIX form: `C:\data\train` is `/data/train`; others as they are."""
    if b"\\" in written and b"/" not in written:
        written = written.replace(b"\\", b"/")
    if len(written) > 2 and written[1:3] == b":/" and written[:1].isalpha():
        written = written[2:]
    return written


def find_entry(written: str, starts: list[bytes], base: Path, tree: Tree) -> Found | None:
    """The folder or list of pictures that an entry of a split means.

    Args:
        written: The entry.
        starts: Absolute folders that it may be relative to, the likeliest first.
        base: Folder of the data; nothing outside of it is taken.
        tree: Of `base`.
    """
    folders = {composed(path): path for path in tree.folders}
    files = {
        composed(path): path
        for folder in tree.folders.values()
        for path in folder.annotation_files
        if path.lower().endswith(b".txt")
    }
    for spelling, how in _spellings(posix_path(os.fsencode(written))):
        for start in starts:
            path = inside(os.path.join(start, spelling), base)
            if path is None:
                continue
            found = folders.get(composed(path), files.get(composed(path)))
            if found is not None:
                return Found(found, how)
    return None


def _spellings(written: bytes) -> Iterator[tuple[bytes, str]]:
    """The readings of an entry, the likeliest first, and what was done to it."""
    readings = [(written, "")]
    stripped = written
    while stripped.startswith((b"../", b"./")):
        stripped = stripped.partition(b"/")[2]
    if stripped != written:
        readings.append((stripped, "without the leading ../"))
    elif written.startswith(b"/"):
        # Of another machine, or of the place that the data was copied from: its end, as long as
        # that still says which split it is.
        parts = [part for part in written.split(b"/") if part]
        split_at = [at for at, part in enumerate(parts) if _meaning(part)] or [len(parts) - 1]
        readings += [
            (b"/".join(parts[at:]), "the end of a path outside of the data")
            for at in range(1, split_at[0] + 1)
        ]
    yield from readings
    for reading, how in readings:
        parts = reading.split(b"/")
        for at, part in enumerate(parts):
            meaning = _meaning(part)
            for alias in (a for a, m in SPLIT_ALIASES.items() if meaning and m == meaning):
                other = b"/".join([*parts[:at], alias.encode(), *parts[at + 1 :]])
                yield other, ", ".join(filter(None, (how, f"under its other name {alias!r}")))


def _meaning(part: bytes) -> str | None:
    return canonical_split(part.decode("utf-8", "replace"))


class ListedPaths:
    """Pictures by the paths of a list.

    A list made for another folder has a beginning of its own in every line (`data/` where darknet
    was started, `/content/set/`). If no line leads to a picture as written, as few parts of the
    beginning as possible are left out, the same number in all lines.

    Args:
        lines: Paths as written.
        starts: Folders, relative to the base, that they may be relative to.
        base: Folder of the data.
        index: Of its pictures.
    """

    def __init__(
        self, lines: list[bytes], starts: list[bytes], base: Path, index: PictureIndex
    ) -> None:
        self._starts = list(dict.fromkeys(starts))
        self._base = base
        self._index = index
        self.drop_count = 0
        """How many parts of each path are left out."""
        longest = max((len(_parts(line)) for line in lines), default=0)
        for count in range(longest):
            if any(self._find(line, count) for line in lines):
                self.drop_count = count
                break

    def find(self, line: bytes) -> Picture | None:
        """The picture that a line means, or None."""
        return self._find(line, self.drop_count)

    def dropped(self, line: bytes) -> bytes:
        """What is left out of a line."""
        return b"/".join(_parts(line)[: self.drop_count]) + b"/" if self.drop_count else b""

    def _find(self, line: bytes, drop_count: int) -> Picture | None:
        path = posix_path(line)
        if drop_count == 0 and path.startswith(b"/"):
            place = inside(path, self._base)
            return self._index.at(place) if place else None
        if drop_count:
            path = b"/".join(_parts(line)[drop_count:])
        if not path:
            return None
        for start in self._starts:
            found = self._index.at(normal_path(start + b"/" + path))
            if found is not None:
                return found
        return None


def _parts(line: bytes) -> list[bytes]:
    return [part for part in posix_path(line).split(b"/") if part not in (b"", b".")]
