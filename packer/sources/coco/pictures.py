"""Where the pictures of a COCO file lie: `file_name` alone does not say."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from packer.sources.pairing import PictureIndex, normal_path, several_reason, split_path
from packer.sources.walk import Picture, Tree, readable_path

_URL_OR_DRIVE = re.compile(rb"[A-Za-z][A-Za-z0-9+.\-]*:/")


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
    as written are they looked for without their folders: in each folder, and last in all, where a
    name must be the only one.

    Args:
        names: `file_name` of each image, relative or not.
        folders: From `picture_folders`.
        index: Of all pictures.
        tree: That the index is of.
    """
    written = [_slashes(name, index) for name in names]
    looked = f"looked in {folders_text(folders)}"
    there = [folder for folder in folders if not folder or folder in tree.folders]
    relative = [b"" if _is_absolute(name) else name for name in written]
    folder, found = _best_folder(relative, there, index)
    if found:
        return _result(relative, names, folder, index, None)
    bare = [split_path(name)[1] for name in written]
    folder, found = _best_folder(bare, there, index)
    if found:
        note = f"found by name, without the folders in file_name, in {_folder_text(folder)}"
        return _result(bare, names, folder, index, note)
    pictures: list[Picture | str] = []
    for name, written_name in zip(bare, names, strict=True):
        alike = index.named(name) if name else []
        if len(alike) == 1:
            pictures.append(alike[0])
        elif alike:
            pictures.append(several_reason(alike))
        else:
            pictures.append(
                f"{readable_path(written_name)} not found; {looked}, and for its name everywhere"
            )
    found = sum(isinstance(picture, Picture) for picture in pictures)
    how = "found by name alone, wherever they lie" if found else None
    return FoundPictures(pictures, b"", found, how)


def _best_folder(
    names: Sequence[bytes], folders: Iterable[bytes], index: PictureIndex
) -> tuple[bytes, int]:
    """The folder where most names are found, the first of equals, and how many are."""
    best, best_count = b"", 0
    for folder in folders:
        count = sum(bool(name) and index.at(_join(folder, name)) is not None for name in names)
        if count > best_count:
            best, best_count = folder, count
        if count == len(names):
            break
    return best, best_count


def _result(
    names: Sequence[bytes],
    written: Sequence[bytes],
    folder: bytes,
    index: PictureIndex,
    note: str | None,
) -> FoundPictures:
    pictures: list[Picture | str] = []
    for name, written_name in zip(names, written, strict=True):
        picture = index.at(_join(folder, name)) if name else None
        reason = f"{readable_path(written_name)} not found in {_folder_text(folder)}"
        pictures.append(picture if picture is not None else reason)
    return FoundPictures(
        pictures, folder, sum(isinstance(picture, Picture) for picture in pictures), note
    )


def _join(folder: bytes, name: bytes) -> bytes:
    return folder + b"/" + name if folder else name


def _slashes(name: bytes, index: PictureIndex) -> bytes:
    """A name from Windows with slashes, unless a file is called so."""
    if b"\\" not in name or index.named(split_path(name)[1]):
        return name
    return name.replace(b"\\", b"/")


def _is_absolute(name: bytes) -> bool:
    """Whether a name starts from the root of some machine, or is an address."""
    return name.startswith(b"/") or _URL_OR_DRIVE.match(name) is not None


def folders_text(folders: Iterable[bytes]) -> str:
    """Folders as a message names them."""
    return ", ".join(map(_folder_text, folders))


def _folder_text(folder: bytes) -> str:
    return readable_path(folder) + "/" if folder else "the raw folder"
