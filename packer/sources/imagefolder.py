"""Class folders: `root/class/**.jpg`, or `root/split/class/**.jpg`."""

from __future__ import annotations

import os
import unicodedata
from operator import attrgetter
from pathlib import Path

from packer.errors import SourceError
from packer.sources.items import RawItem, Scan
from packer.sources.source import SourceOptions
from packer.sources.splits import are_all_splits, split_field
from packer.sources.walk import Contents, Tree, readable_path, walk
from packer.wording import names_text
from readers.store.schema import Field
from readers.store.splits import canonical_split

name = "imagefolder"

BESIDE_CLASSES = "unlabelled: lies beside class folders"
NO_CLASSES = "unlabelled: its split has no class folders"
NAMES_SHOWN_MAX = 5


def scan(raw: Path, options: SourceOptions) -> Scan:
    """Pictures labelled by the first folder of their path, below the split where there are splits.

    The level-1 folders are splits only if each one that holds pictures has the name of a split.
    Classes are the union over the splits, sorted by bytes, so that a class that is missing from
    one split does not shift the labels of that split. An empty class folder keeps its class.
    Pictures that lie in no class folder are ignored, by reason, and a note says so.

    Raises:
        SourceError: There are pictures, but no class folder holds any.
    """
    tree = walk(raw)
    tops = tree.contents(1)
    splits = split_folders(tops)
    class_depth = 2 if splits else 1
    # Of the class folders, those that hold only other files (documents, code) are no classes: each
    # would take a number. An empty one may be a class that is still to come or lost its pictures.
    candidates = {
        path: folder
        for path, folder in tree.contents(class_depth).items()
        if not splits or _is_split_name(path.split(b"/")[0])
    }
    class_folders = {
        path: folder
        for path, folder in candidates.items()
        if folder.holds_pictures or not folder.other_count
    }
    if not any(folder.holds_pictures for folder in class_folders.values()):
        if any(folder.pictures for folder in tree.folders.values()):
            raise SourceError(
                f"{readable_path(os.fsencode(raw))}: pictures lie in no class folder, and format "
                f"{name!r} takes its labels from folders. "
                "Give --format flat to pack them unlabelled."
            )
        return Scan(format=name, root=raw, items=[], rejects=tree.rejects, ignored=tree.ignored)

    class_keys = sorted({path.split(b"/")[-1] for path in class_folders})
    classes = tuple(key.decode("utf-8", "backslashreplace") for key in class_keys)
    if len(set(classes)) < len(classes):
        raise SourceError(
            f"{readable_path(os.fsencode(raw))}: two class folders have the same name once it is "
            "written as UTF-8. Rename the one that is not UTF-8."
        )
    labels = {key: label for label, key in enumerate(class_keys)}
    labelled_splits = {path.split(b"/")[0] for path, f in class_folders.items() if f.holds_pictures}
    items: list[RawItem] = []
    for path, folder in tree.folders.items():
        if not folder.pictures:
            continue
        parts = path.split(b"/") if path else []
        if len(parts) < class_depth:
            has_classes = not parts or parts[0] in labelled_splits
            for picture in folder.pictures:
                reason = BESIDE_CLASSES if has_classes else NO_CLASSES
                tree.ignored.add(reason, readable_path(picture.path))
            continue
        # One dict for all of a folder's items, which nobody changes: one each would take more
        # memory than all the rest.
        values = {"label": labels[parts[class_depth - 1]]}
        if splits:
            values["split"] = splits.index(parts[0])
        items += [
            RawItem(p.path, p.path, p.byte_count, p.mtime_ns, values) for p in folder.pictures
        ]
    items.sort(key=attrgetter("key"))

    split_names = tuple(readable_path(split) for split in splits)
    fields = [Field(name="label", kind="label", dtype="int64", names=classes)]
    if splits:
        fields.append(split_field(split_names))
    notes = [
        *_unlabelled_notes(tree),
        *_class_notes(classes, class_keys, class_folders, splits),
        *_folder_notes(tops, candidates, class_folders, splits),
    ]
    return Scan(
        format=name,
        root=raw,
        items=items,
        classes=classes,
        splits=split_names,
        fields=tuple(fields),
        rejects=tree.rejects,
        ignored=tree.ignored,
        notes=notes,
    )


def split_folders(tops: dict[bytes, Contents]) -> list[bytes]:
    """The level-1 folders that are splits, sorted by bytes: all that hold pictures, or none."""
    holding = sorted(path for path, folder in tops.items() if folder.holds_pictures)
    return holding if are_all_splits(holding) else []


def _is_split_name(name: bytes) -> bool:
    return canonical_split(name.decode("utf-8", "replace")) is not None


def _unlabelled_notes(tree: Tree) -> list[str]:
    notes = []
    for reason in (BESIDE_CLASSES, NO_CLASSES):
        count = tree.ignored.counts.get(reason, 0)
        if count:
            shown = ", ".join(tree.ignored.examples[reason][:NAMES_SHOWN_MAX])
            more = ", ..." if count > NAMES_SHOWN_MAX else ""
            notes.append(f"{count} not packed, {reason}: {shown}{more}")
    return notes


def _class_notes(
    classes: tuple[str, ...],
    class_keys: list[bytes],
    class_folders: dict[bytes, Contents],
    splits: list[bytes],
) -> list[str]:
    """What is odd about the classes: empty, missing from a split, alike, or only one."""
    notes = []
    filled = {path for path, folder in class_folders.items() if folder.holds_pictures}
    filled_names = {path.split(b"/")[-1] for path in filled}
    empty = [c for key, c in zip(class_keys, classes, strict=True) if key not in filled_names]
    if empty:
        notes.append(f"no pictures, kept in the list of classes: {names_text(empty)}")
    for split in splits:
        here = {path.split(b"/")[-1] for path in filled if path.split(b"/")[0] == split}
        missing = [
            c
            for key, c in zip(class_keys, classes, strict=True)
            if key in filled_names and key not in here
        ]
        if here and missing:
            notes.append(f"split {readable_path(split)} has no pictures of: {names_text(missing)}")
    alike: dict[str, list[str]] = {}
    for class_name in classes:
        alike.setdefault(unicodedata.normalize("NFC", class_name).casefold(), []).append(class_name)
    for group in alike.values():
        if len(group) > 1:
            notes.append(
                f"classes that differ only in case or Unicode form, kept apart: {names_text(group)}"
            )
    if len(classes) == 1:
        notes.append(f"only one class: {names_text(classes)}")
    return notes


def _folder_notes(
    tops: dict[bytes, Contents],
    candidates: dict[bytes, Contents],
    class_folders: dict[bytes, Contents],
    splits: list[bytes],
) -> list[str]:
    """Which folders were taken for no class or split, and which might have been meant otherwise."""
    notes = []
    aside = [readable_path(path) + "/" for path in candidates if path not in class_folders]
    if aside:
        notes.append(f"no pictures but other files, not taken for classes: {names_text(aside)}")
    if splits:
        empty = [readable_path(path) + "/" for path in sorted(tops) if path not in splits]
        if empty:
            notes.append(f"no pictures, not taken for splits: {names_text(empty)}")
    else:
        named = sorted(p for p, f in tops.items() if f.holds_pictures and _is_split_name(p))
        if named:
            shown = names_text(readable_path(path) for path in named)
            notes.append(
                f"taken for classes, although named like splits: {shown}; other folders beside "
                "them hold pictures too"
            )
    return notes
