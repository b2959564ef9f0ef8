"""Which picture an annotation belongs to: by path, by name, or by the name without extension."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

from packer.sources.walk import Picture, Tree
from packer.wording import readable_path
from readers.store.wording import few_text


class PictureIndex:
    """All pictures of a tree, to be looked up; remembers which were taken.

    Names are compared in Unicode's composed form as well: archives made on macOS decompose them,
    and an annotation file from elsewhere then spells the same name in other bytes.

    Args:
        tree: From `walk`.
    """

    def __init__(self, tree: Tree) -> None:
        self._by_path: dict[bytes, Picture] = {}
        self._by_name: dict[bytes, list[Picture]] = {}
        self._by_stem: dict[tuple[bytes, bytes], list[Picture]] = {}
        self._taken: set[bytes] = set()
        for picture in (p for folder in tree.folders.values() for p in folder.pictures):
            path = composed(picture.path)
            folder, name = split_path(path)
            # Its own spelling first, should both be there.
            self._by_path.setdefault(path, picture)
            self._by_path[picture.path] = picture
            self._by_name.setdefault(name, []).append(picture)
            self._by_stem.setdefault((folder, stem_of(name)), []).append(picture)

    def at(self, path: bytes) -> Picture | None:
        """The picture of a path relative to the raw folder, `.` and `..` resolved, or None."""
        path = normal_path(path)
        return self._by_path.get(path) or self._by_path.get(composed(path))

    def named(self, name: bytes) -> list[Picture]:
        """All pictures of a file name, in any folder, sorted by path."""
        return self._by_name.get(composed(name), [])

    def with_stem(self, folder: bytes, stem: bytes) -> list[Picture]:
        """All pictures in a folder whose name without the extension is `stem`, sorted by path."""
        return self._by_stem.get((composed(folder), composed(stem)), [])

    def take(self, picture: Picture) -> None:
        """Remember that a sample is made of the picture."""
        self._taken.add(picture.path)

    def is_taken(self, picture: Picture) -> bool:
        """Whether a sample is made of the picture."""
        return picture.path in self._taken

    def rest(self) -> Iterator[Picture]:
        """Pictures that were not taken, sorted by path."""
        seen = {picture.path: picture for picture in self._by_path.values()}
        for path in sorted(seen.keys() - self._taken):
            yield seen[path]


def split_path(path: bytes) -> tuple[bytes, bytes]:
    """(folder, name) of a relative path; the folder is empty for one without."""
    folder, _, name = path.rpartition(b"/")
    return folder, name


def stem_of(name: bytes) -> bytes:
    """A file name or path without its last extension; a leading dot begins no extension."""
    at = name.rfind(b".")
    return name[:at] if at > name.rfind(b"/") + 1 else name


def composed(path: bytes) -> bytes:
    """A path in Unicode's composed form (NFC); one that is not UTF-8 as it is."""
    if path.isascii():
        return path
    try:
        return unicodedata.normalize("NFC", path.decode()).encode()
    except UnicodeDecodeError:
        return path


def normal_path(path: bytes) -> bytes:
    """A relative path without empty and `.` parts, and with `..` resolved as far as it goes."""
    parts: list[bytes] = []
    for part in path.split(b"/"):
        if part == b".." and parts and parts[-1] != b"..":
            parts.pop()
        elif part not in (b"", b"."):
            parts.append(part)
    return b"/".join(parts)


def several_reason(pictures: list[Picture]) -> str:
    """Why an annotation file that fits several pictures is rejected."""
    names = few_text(pictures, 5, lambda picture: readable_path(picture.path))
    return f"several pictures fit: {names}; expected one. Rename one of them"
