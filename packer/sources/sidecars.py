"""Annotation files that belong to one picture each: which picture, by folder and name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from packer.sources.pairing import PictureIndex, several_reason, split_path, stem_of
from packer.sources.walk import Picture, Tree, is_picture_name
from packer.wording import count_text, names_text, readable_path
from readers.store.splits import canonical_split

NO_PICTURE_HERE = "lies in a folder where no picture has annotations"

PICTURE_FOLDERS = frozenset(
    b"jpegimages images image imgs img img1 jpegs jpg photos pictures input inputs rgb "
    b"frames".split()
)
"""Names of folders of pictures, in lower case."""

_ANNOTATION_FOLDERS = frozenset(
    b"annotations annotation annots annot ann labels label xml xmls json jsons".split()
)
_MASK_FOLDERS = (b"segmentation", b"mask", b"scribble")


@dataclass
class Pairs:
    """Which annotation file belongs to which picture.

    Attributes:
        file_of: Annotation file of a picture, both by path.
        folders: Folders in which at least one picture has an annotation file.
        lost: Annotation files that no picture fits, and where pictures were looked for.
    """

    file_of: dict[bytes, bytes] = field(default_factory=dict)
    folders: set[bytes] = field(default_factory=set)
    lost: dict[bytes, str] = field(default_factory=dict)


def pair_files(tree: Tree, index: PictureIndex, files: Iterable[bytes]) -> Pairs:
    """Find the picture of each annotation file: the same name without extension.

    It lies beside the file, or in the folder that is the partner of the file's own: `images` or
    `JPEGImages` beside `Annotations`, also with the same folders below both. The nearest such
    folder where the name is found decides. Pictures that share a file, or have several, are refused
    in the tree's findings and taken from the index.
    """
    pairs = Pairs()
    folders = _Partners(tree)
    files_of: dict[bytes, list[bytes]] = {}
    pictures_by_path: dict[bytes, Picture] = {}
    for file in files:
        folder, file_name = split_path(file)
        stem = stem_of(file_name)
        pictures = _pictures(index, folders.of(folder), stem)
        if not pictures:
            pairs.lost[file] = folders.names(folder)
        for picture in pictures:
            pairs.folders.add(split_path(picture.path)[0])
            pictures_by_path[picture.path] = picture
            if len(pictures) == 1:
                files_of.setdefault(picture.path, []).append(file)
            elif not index.is_taken(picture):
                index.take(picture)
                reason = f"of its annotations {readable_path(file)}, {several_reason(pictures)}"
                tree.findings.refuse(picture.path, reason)
    for path, found in files_of.items():
        if index.is_taken(pictures_by_path[path]):
            continue
        if len(found) == 1:
            pairs.file_of[path] = found[0]
        else:
            index.take(pictures_by_path[path])
            shown = names_text(map(readable_path, found))
            reason = f"several annotation files fit: {shown}; expected one. Move the others away"
            tree.findings.refuse(path, reason)
    return pairs


def splits_by_folder(folders: Iterable[bytes]) -> dict[bytes, str]:
    """Split of each folder of pictures, by the last part of its path that has the name of one.

    Empty unless all have one: a folder may be called `test` for another reason.
    """
    found: dict[bytes, str] = {}
    for folder in folders:
        names = [part.decode("utf-8", "replace") for part in folder.split(b"/")]
        split = next((name for name in reversed(names) if canonical_split(name)), None)
        if split is None:
            return {}
        found[folder] = split
    return found


def lost_reason(file: bytes, looked: str, object_count: int) -> str:
    """Why an annotation file without a picture is rejected."""
    stem = readable_path(stem_of(split_path(file)[1]))
    return (
        f"annotations of {count_text(object_count, 'object')} without a picture: expected "
        f"{stem}.jpg, .png or the like; looked in {looked}"
    )


def _pictures(index: PictureIndex, tiers: list[list[bytes]], stem: bytes) -> list[Picture]:
    """Pictures of a name in the first folders that have any."""
    for tier in tiers:
        found = [picture for folder in tier for picture in index.with_stem(folder, stem)]
        if not found and is_picture_name(stem):
            # The annotations of 1.jpg may be called 1.jpg.xml.
            paths = [folder + b"/" + stem if folder else stem for folder in tier]
            found = [picture for path in paths if (picture := index.at(path)) is not None]
        if found:
            return found
    return []


class _Partners:
    """Where the pictures of a folder of annotation files may lie.

    Args:
        tree: From `walk`.
    """

    def __init__(self, tree: Tree) -> None:
        self._holding = {path for path, folder in tree.folders.items() if folder.pictures}
        self._children: dict[bytes, list[bytes]] = {}
        for path in tree.folders:
            if path:
                parent, name = split_path(path)
                self._children.setdefault(parent, []).append(name)
        self._found: dict[bytes, list[list[bytes]]] = {}

    def of(self, folder: bytes) -> list[list[bytes]]:
        """Folders of pictures, those that are as near as each other together, the nearest first."""
        if folder not in self._found:
            self._found[folder] = self._find(folder)
        return self._found[folder]

    def names(self, folder: bytes) -> str:
        """The folders as a message names them."""
        paths = dict.fromkeys(path for tier in self.of(folder) for path in tier)
        return names_text(readable_path(path) + "/" if path else "./" for path in paths)

    def _find(self, folder: bytes) -> list[list[bytes]]:
        parts = folder.split(b"/") if folder else []
        tiers = [[folder]]
        for at in reversed(range(len(parts))):
            base, tail = parts[:at], parts[at + 1 :]
            # `annotations/xmls` is beside `images`.
            short_tail = [part for part in tail if part.lower() not in _ANNOTATION_FOLDERS]
            siblings = [
                name
                for name in self._children.get(b"/".join(base), [])
                if name.lower() in PICTURE_FOLDERS and name != parts[at]
            ]
            for heads in ([[*base, name] for name in siblings], [base]):
                paths = [b"/".join([*head, *t]) for head in heads for t in (tail, short_tail)]
                tier = [path for path in dict.fromkeys(paths) if path in self._holding]
                if tier:
                    tiers.append(tier)
        if parts and len(tiers) == 1 and folder not in self._holding:
            # Whatever it is called, the only folder of pictures beside it is the partner.
            parent = b"/".join(parts[:-1])
            others = [
                path
                for name in self._children.get(parent, [])
                if not any(word in name.lower() for word in _MASK_FOLDERS)
                and (path := parent + b"/" + name if parent else name) in self._holding
            ]
            if len(others) == 1:
                tiers.append(others)
        return tiers
