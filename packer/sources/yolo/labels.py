"""Which label file of YOLO belongs to a picture: the same path with `images` made `labels`."""

from __future__ import annotations

from collections.abc import Iterator

from packer.sources.pairing import composed, split_path, stem_of
from packer.sources.walk import Tree

# In lower case. The first of each is the rule; the others are found where they are used instead.
PICTURE_FOLDERS = (b"images", b"image", b"imgs", b"img", b"jpegimages", b"pictures", b"photos")
_LABEL_FOLDERS = (b"labels", b"label", b"annotations", b"annotation", b"labels_txt", b"txt")


class LabelFiles:
    """All text files of a tree, to be looked up by picture.

    Where the labels of a folder of pictures lie is decided once for the folder: in the first of
    the places below that has a file for at least one of its pictures.

        a/images/b  ->  a/labels/b     the LAST `images` of the path, since it may stand there twice
                        a/label/b ...  other names
                        a/images/b/labels
                        a/images/b     beside the pictures

    Args:
        tree: From `walk`, with `.txt` among the extensions.
        taken: Paths of text files that are something else: class names, lists of pictures.
    """

    def __init__(self, tree: Tree, taken: set[bytes]) -> None:
        self._tree = tree
        self._spelling = {composed(path).lower(): path for path in tree.folders}
        self._stems: dict[bytes, dict[bytes, list[bytes]]] = {}
        for path, folder in tree.folders.items():
            stems: dict[bytes, list[bytes]] = {}
            for file in folder.annotation_files:
                if file.lower().endswith(b".txt") and file not in taken:
                    stems.setdefault(composed(stem_of(split_path(file)[1])), []).append(file)
            if stems:
                self._stems[path] = stems
        self._folders: dict[bytes, bytes] = {}

    def folder_of(self, pictures: bytes) -> bytes:
        """Folder of the labels of a folder of pictures; where they should be, if there are none."""
        if pictures not in self._folders:
            names = [split_path(p.path)[1] for p in self._tree.folders[pictures].pictures]
            stems = {composed(stem_of(name)) for name in names}
            places = list(self._places(pictures))
            matching = (p for p in places if not stems.isdisjoint(self._stems.get(p, ())))
            self._folders[pictures] = next(matching, places[0])
        return self._folders[pictures]

    def has_labels(self, pictures: bytes) -> bool:
        """Whether a picture of the folder has a label file."""
        stems = self._stems.get(self.folder_of(pictures), {})
        found = self._tree.folders[pictures].pictures
        return any(composed(stem_of(split_path(p.path)[1])) in stems for p in found)

    def of_picture(self, path: bytes) -> list[bytes]:
        """Label files of a picture: one, none, or several that differ in the extension's case."""
        folder, name = split_path(path)
        return self._stems.get(self.folder_of(folder), {}).get(composed(stem_of(name)), [])

    def expected_path(self, path: bytes) -> bytes:
        """Where the label file of a picture should be."""
        folder, name = split_path(path)
        labels = self.folder_of(folder)
        return (labels + b"/" if labels else b"") + stem_of(name) + b".txt"

    def _places(self, pictures: bytes) -> Iterator[bytes]:
        parts = pictures.split(b"/") if pictures else []
        for at in reversed(range(len(parts))):
            if parts[at].lower() == b"images":
                yield self._found([*parts[:at], b"labels", *parts[at + 1 :]])
                break
        for at in reversed(range(len(parts))):
            if parts[at].lower() in PICTURE_FOLDERS:
                for name in _LABEL_FOLDERS:
                    yield self._found([*parts[:at], name, *parts[at + 1 :]])
        yield pictures
        yield self._found([*parts, b"labels"])

    def _found(self, parts: list[bytes]) -> bytes:
        """A folder as the tree spells it (`Labels`), or as it is asked for."""
        path = b"/".join(parts)
        return (
            path if path in self._tree.folders else self._spelling.get(composed(path).lower(), path)
        )
