"""Where the pictures of a COCO file lie: `file_name` alone does not say."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import quote_from_bytes, unquote_to_bytes

from packer.sources.pairing import (
    PictureIndex,
    composed,
    normal_path,
    several_reason,
    split_path,
    stem_of,
)
from packer.sources.walk import Picture, Tree
from packer.wording import readable_path

_URL_OR_DRIVE = re.compile(rb"[A-Za-z][A-Za-z0-9+.\-]*:/")
_ODD = re.compile(rb"[^A-Za-z0-9_./\-]")
_LOCAL_FILES = re.compile(rb"/data/local-files/?\?d=([^&#]+)")
"""How Label Studio names a file of its own machine."""

_PARTS_MAX = 8
"""Parts of a path that are tried, from its end."""


@dataclass(frozen=True)
class FoundPictures:
    """Pictures of a list of names.

    Attributes:
        pictures: Of each name its picture, or why there is none.
        folder: That the names are relative to; empty too where they were found by name alone.
        found_count: How many there are.
        note: How they were found, where that is not as written; or None.
    """

    pictures: list[Picture | str]
    folder: bytes
    found_count: int
    note: str | None = None


def picture_folders(json_folder: bytes, words: Iterable[str], root: bytes | None) -> list[bytes]:
    """Folders that names may be relative to, in the order in which they are tried.

    Args:
        json_folder: Folder of the COCO file, relative to the raw folder.
        words: Names that the split may have.
        root: Folder that the user gave, relative to the raw folder; None: none given.
    """
    names = [*(os.fsencode(word) for word in words), b""]  # Its own folder before the one above.
    parents = [json_folder, json_folder + b"/..", json_folder + b"/../.."]
    if root is not None:
        parents.insert(0, root)
    tried = [
        normal_path(b"/".join((parent, middle, word)))
        for parent in parents
        for word in names
        for middle in (b"", b"images")
    ]
    # The file's own folder before all others: a name beside the file is meant.
    first = [normal_path(parents[0]), normal_path(json_folder)]
    inside = [path for path in (*first, *tried, b"") if not path.startswith(b"..")]
    return list(dict.fromkeys(inside))


def find_pictures(
    names: Sequence[bytes], folders: Sequence[bytes], index: PictureIndex, tree: Tree
) -> FoundPictures:
    """Find the picture of each name.

    All names of a file are relative to one folder: the one where most of them are found. A name
    that is missing there is missing, even should another folder have a picture of that name, which
    would be another picture (`train/0001.jpg` for `val/0001.jpg`). Only when no name is found
    as written are they looked for by the ends of their paths: by the last parts with which most
    are found, the more the better, and last by the name alone in all folders, where it must be the
    only one. Addresses and absolute paths are of another machine, and looked for by their ends.

    Args:
        names: `file_name` of each image, relative or not.
        folders: From `picture_folders`.
        index: Of all pictures.
        tree: That the index is of.
    """
    search = _Search(folders, index, tree)
    written = [search.spelled(name) for name in names]
    far = [position for position, name in enumerate(written) if _is_absolute(name)]
    if not far or len(far) == len(names):
        return search.find(written, names, is_absolute=bool(far))
    # Some of them are relative: two kinds of names, each with a folder of its own.
    near = sorted(set(range(len(names))) - set(far))
    pictures: list[Picture | str] = [""] * len(names)
    parts = []
    for positions, is_absolute in ((near, False), (far, True)):
        found = search.find(
            [written[at] for at in positions], [names[at] for at in positions], is_absolute
        )
        for position, picture in zip(positions, found.pictures, strict=True):
            pictures[position] = picture
        parts.append(found)
    notes = "; ".join(f"{len(f.pictures):,} {f.note}" for f in parts if f.note)
    found_count = sum(found.found_count for found in parts)
    return FoundPictures(pictures, parts[0].folder, found_count, notes or None)


@dataclass(frozen=True, eq=False)
class _Search:
    """Where pictures are looked for: likely folders, and all there are."""

    folders: Sequence[bytes]
    index: PictureIndex
    tree: Tree

    def find(
        self, written: Sequence[bytes], names: Sequence[bytes], is_absolute: bool
    ) -> FoundPictures:
        """The pictures of names of one kind, which are relative to one folder.

        Args:
            written: Each name as the files here spell it.
            names: As the file has it.
            is_absolute: Whether they start from the root of another machine.
        """
        if not is_absolute:
            folder, found = self._best_folder(written)
            if found:
                return self._result(written, names, folder, None)
        ends, depth, folder, found = self._best_ends(written)
        if found:
            how = (
                "by name, without the folders in file_name,"
                if depth == 1
                else f"by the last {depth} parts of their paths"
            )
            return self._result(ends, names, folder, f"found {how} in {_folder_text(folder)}")
        looked = f"looked in {folders_text(self.folders)}"
        pictures: list[Picture | str] = []
        for name, written_name in zip(written, names, strict=True):
            bare = split_path(name)[1]
            alike = self.index.named(bare) if bare else []
            if len(alike) == 1:
                pictures.append(alike[0])
            elif alike:
                pictures.append(several_reason(alike))
            else:
                pictures.append(
                    f"{readable_path(written_name)} not found; {looked}, and for its name "
                    f"everywhere{self._hint(bare)}"
                )
        found = sum(isinstance(picture, Picture) for picture in pictures)
        note = "found by name alone, wherever they lie" if found else None
        return FoundPictures(pictures, b"", found, note)

    def spelled(self, name: bytes) -> bytes:
        """A name as files here may be called, unless one is called just so.

        With slashes for the backslashes of Windows; without the query of an address; and with
        `%20` for a blank or the other way round, whichever is there.
        """
        if not _ODD.search(name):
            return name
        spelled = name.replace(b"\\", b"/")
        local = _LOCAL_FILES.search(spelled)
        if local is not None:
            spelled = unquote_to_bytes(local[1])
        elif _URL_OR_DRIVE.match(spelled):
            spelled = re.split(rb"[?#]", spelled, maxsplit=1)[0]
        forms = spelled, unquote_to_bytes(spelled), quote_from_bytes(spelled, "/:%").encode()
        for count in (2, 1):  # With the folder first: it may be written in one way or the other.
            for form in (name, *forms) if count == 2 else (*forms, name):
                if composed(_end(form, count)) in self._ends:
                    return form
        return spelled

    @cached_property
    def _ends(self) -> frozenset[bytes]:
        """The names of all pictures, alone and with the folder that they lie in."""
        paths = (p.path for folder in self.tree.folders.values() for p in folder.pictures)
        return frozenset(composed(_end(path, count)) for path in paths for count in (1, 2))

    def _best_folder(self, names: Sequence[bytes]) -> tuple[bytes, int]:
        """The folder where most names are found, the first of equals, and how many are."""
        best, best_count = b"", 0
        for folder in self.folders:
            if folder and folder not in self.tree.folders:
                continue
            at = self.index.at
            # Different ones: cut down to their ends, names of different pictures may be the same.
            count = len({p.path for p in (at(_join(folder, n)) for n in names if n) if p})
            if count > best_count:
                best, best_count = folder, count
            if count == len(names):
                break
        return best, best_count

    def _best_ends(self, names: Sequence[bytes]) -> tuple[list[bytes], int, bytes, int]:
        """(the ends of the names, how many parts, in which folder, how many are found)."""
        parts = [_parts(name) for name in names]
        best: tuple[list[bytes], int, bytes, int] = ([], 0, b"", 0)
        longest = max(map(len, parts), default=0)
        # Whole paths come last: `/home/a.png` of another machine is no `home/a.png` here.
        for depth in (*range(min(longest - 1, _PARTS_MAX), 0, -1), longest):
            ends = [b"/".join(found[-depth:]) if depth else b"" for found in parts]
            folder, count = self._best_folder(ends)
            if count > best[3]:
                best = ends, depth, folder, count
            if count == len(names):
                break
        return best

    def _result(
        self,
        names: Sequence[bytes],
        written: Sequence[bytes],
        folder: bytes,
        note: str | None,
    ) -> FoundPictures:
        pictures: list[Picture | str] = []
        for name, written_name in zip(names, written, strict=True):
            picture = self.index.at(_join(folder, name)) if name else None
            if picture is None:
                hint = self._hint(_join(folder, name))
                reason = f"{readable_path(written_name)} not found in {_folder_text(folder)}{hint}"
            pictures.append(picture if picture is not None else reason)
        found_count = sum(isinstance(picture, Picture) for picture in pictures)
        return FoundPictures(pictures, folder, found_count, note)

    def _hint(self, path: bytes) -> str:
        """Names a picture that differs in its extension, or in case, alone; or nothing."""
        alike = self._by_lower_stem.get(stem_of(normal_path(path)).lower())
        if alike is None:
            return ""
        return f", but {readable_path(alike)} is there: correct file_name, or rename the picture"

    @cached_property
    def _by_lower_stem(self) -> dict[bytes, bytes]:
        paths = (p.path for folder in self.tree.folders.values() for p in folder.pictures)
        return {stem_of(path).lower(): path for path in paths}


def _join(folder: bytes, name: bytes) -> bytes:
    return folder + b"/" + name if folder else name


def _parts(name: bytes) -> list[bytes]:
    """The parts of a path, without a scheme or drive, and without detours."""
    name = name.partition(b":")[2] if _URL_OR_DRIVE.match(name) else name
    return [part for part in normal_path(name).split(b"/") if part not in (b"", b"..")]


def _end(path: bytes, count: int) -> bytes:
    """The last parts of a path."""
    return b"/".join(path.split(b"/")[-count:])


def _is_absolute(name: bytes) -> bool:
    """Whether a name starts from the root of some machine, or is an address."""
    return name.startswith(b"/") or _URL_OR_DRIVE.match(name) is not None


def folders_text(folders: Iterable[bytes]) -> str:
    """Folders as a message names them."""
    return ", ".join(map(_folder_text, folders))


def _folder_text(folder: bytes) -> str:
    return readable_path(folder) + "/" if folder else "the raw folder"
