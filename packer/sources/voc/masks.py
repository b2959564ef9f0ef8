"""Pascal VOC's masks: `SegmentationClass`, its colours, and what its values are called."""

from __future__ import annotations

from packer.sources.pairing import PictureIndex, split_path, stem_of
from packer.sources.walk import Picture, Tree

VOC_CLASSES = (
    *("background", "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat"),
    *("chair", "cow", "diningtable", "dog", "horse", "motorbike", "person", "pottedplant"),
    *("sheep", "sofa", "train", "tvmonitor"),
)
"""What the values of official masks mean."""

VOC_IGNORE = 255
"""Value of the pixels on the edge of an object."""

LABEL_MAP = b"labelmap.txt"
"""Names and colours, as CVAT and Datumaro write them beside `SegmentationClass`."""

_CLASS_FOLDERS = (b"segmentationclass", b"segmentationclasspng")
_MASK_FOLDERS = frozenset((*_CLASS_FOLDERS, b"segmentationobject", b"segmentationobjectpng"))


def voc_colors() -> tuple[tuple[int, int, int], ...]:
    """Colour of each of 256 values: their bits, spread over red, green and blue from the top."""
    return tuple(
        (
            sum((value >> 3 * bit & 1) << 7 - bit for bit in range(3)),
            sum((value >> 3 * bit + 1 & 1) << 7 - bit for bit in range(3)),
            sum((value >> 3 * bit + 2 & 1) << 7 - bit for bit in range(2)),
        )
        for value in range(256)
    )


def is_mask_folder(folder: bytes) -> bool:
    """Whether a folder holds masks of VOC, of classes or of objects, in some part of its path."""
    return not _MASK_FOLDERS.isdisjoint(folder.lower().split(b"/"))


class VocMasks:
    """The masks of classes of a tree.

    Args:
        tree: From `walk`.
        index: The tree's index.
    """

    def __init__(self, tree: Tree, index: PictureIndex) -> None:
        self._index = index
        found: dict[bytes, dict[bytes, bytes]] = {}
        for path, folder in tree.folders.items():
            root, name = split_path(path)
            if name.lower() in _CLASS_FOLDERS and folder.pictures:
                found.setdefault(root, {})[name.lower()] = path
        self.folders = {
            root: next(by_name[name] for name in _CLASS_FOLDERS if name in by_name)
            for root, by_name in found.items()
        }
        """Folder of masks of each VOC folder."""

    def of(self, path: bytes) -> list[Picture]:
        """Masks of the picture at a path: one, or none, or several that fit."""
        root = path
        while root:
            root = split_path(root)[0]
            if root in self.folders:
                return self._index.with_stem(self.folders[root], stem_of(split_path(path)[1]))
        return []
