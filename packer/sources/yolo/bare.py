"""YOLO without a file that declares it: pictures and label files alone."""

from __future__ import annotations

from pathlib import Path

from packer.sources.pairing import PictureIndex
from packer.sources.splits import are_all_splits, ordered_splits
from packer.sources.walk import Picture, Tree, walk
from packer.sources.yolo.labels import PICTURE_FOLDERS, LabelFiles
from packer.sources.yolo.layout import ANNOTATION_EXTENSIONS, Layout
from packer.sources.yolo.names import find_class_names
from packer.wording import readable_path


def bare_layout(
    base: Path, tree: Tree | None = None, *, class_names: tuple[str, ...] | None = None
) -> Layout:
    """The pictures of a folder, in splits where folders are named like them.

    Args:
        base: The folder.
        tree: Of `base`, where it was walked already.
        class_names: By the numbers in the label files. None looks for a file of them.

    Raises:
        SourceError: A file of class names cannot be read, or two of them name other classes.
    """
    tree = tree or walk(base, ANNOTATION_EXTENSIONS)
    used: set[bytes] = set()
    if class_names is None:
        class_names, notes = find_class_names(base, tree, used)
        tree.findings.notes += notes
    labels = LabelFiles(tree, used)
    index = PictureIndex(tree)
    holding = [path for path, folder in tree.folders.items() if folder.pictures]
    named = [path for path in holding if _is_picture_folder(path)]
    # Once there are folders called images, pictures elsewhere are plots or previews, unless
    # label files of their own say otherwise.
    folders = [p for p in holding if p in named or labels.has_labels(p)] if named else holding
    depth = _split_depth(folders)
    splits: tuple[str, ...] = ()
    if depth is not None:
        splits = ordered_splits(readable_path(path.split(b"/")[depth]) for path in folders)
    pictures: list[tuple[Picture, int]] = []
    for path in folders:
        name = readable_path(path.split(b"/")[depth]) if depth is not None else ""
        split = splits.index(name) if splits else 0
        for picture in tree.folders[path].pictures:
            index.take(picture)
            pictures.append((picture, split))
    return Layout(
        form="bare",
        base=base,
        tree=tree,
        index=index,
        labels=labels,
        pictures=sorted(pictures),
        splits=splits,
        class_names=class_names,
        used=used,
    )


def _is_picture_folder(path: bytes) -> bool:
    return any(part.lower() in PICTURE_FOLDERS for part in path.split(b"/"))


def _split_depth(folders: list[bytes]) -> int | None:
    """Which part of the paths names the split: train/images, images/train, set/images/train."""
    parts = [path.split(b"/") for path in folders]
    for depth in range(min(map(len, parts), default=0)):
        names = {path[depth] for path in parts}
        if are_all_splits(names):
            return depth
        if len(names) > 1:
            return None
    return None
