"""Class folders: `root/class/**.jpg`, or `root/split/class/**.jpg`."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path

from packer.errors import SourceError
from packer.items.item_columns import FileItems
from packer.items.raw_item import Scan
from packer.sources.class_folders import classless, names_no_class
from packer.sources.class_names import check_any_class
from packer.sources.siblings import find_parts, split_names
from packer.sources.source import SourceOptions
from packer.sources.split_labels import (
    LIST_EXTENSION,
    SplitLabels,
    find_label_file,
    read_split_labels,
)
from packer.sources.splits import are_all_splits, split_field
from packer.sources.walk import NOT_A_PICTURE, Contents, Tree, walk
from packer.wording import names_text, readable_path
from readers.store.schema import Field
from readers.store.splits import canonical_split

name = "imagefolder"

BESIDE_CLASSES = "unlabelled: lies beside class folders"
NO_CLASSES = "unlabelled: its split has no class folders"
OTHER_CLASS = "of a class that --classes does not name"
NOT_LISTED = "unlabelled: not named by the file of labels in its split"


def scan(raw: Path, options: SourceOptions) -> Scan:
    """Pictures labelled by the first folder of their path, below the split where there are splits.

    The level-1 folders are splits only if each one that holds pictures has the name of a split.
    Classes are the union over the splits, sorted by bytes, so that a class that is missing from
    one split does not shift the labels of that split. An empty class folder keeps its class.
    A folder such as `images` is not a class (see `classless`): classes are the folders in it.
    Under `options.classes` the classes are those, in that order, and pictures of others ignored.
    Pictures that lie in no class folder are ignored, by reason, and a note says so; but those of a
    split whose labels are in a text file (`val/val_annotations.txt`) get them.

    Raises:
        SourceError: There are pictures, but no class folder holds any, or none of those asked for.
    """
    tree = walk(raw, (LIST_EXTENSION,))
    found = tree.findings
    tops = tree.contents(1)
    splits = split_folders(tops)
    class_depth = 2 if splits else 1
    candidates, passed = _candidates(raw, tree, splits)
    # Of the class folders, those that hold only other files (documents, code) are no classes: each
    # would take a number. An empty one may be a class that is still to come or lost its pictures.
    class_folders = {
        path: folder
        for path, folder in candidates.items()
        if folder.holds_pictures or not folder.other_count
    }
    if not any(folder.holds_pictures for folder in class_folders.values()):
        _ignore_lists(tree, set())
        if any(folder.pictures for folder in tree.folders.values()):
            raise SourceError(
                f"{readable_path(os.fsencode(raw))}: pictures lie in no class folder, and format "
                f"{name!r} takes its labels from folders. "
                "Give --format flat to pack them unlabelled."
            )
        return found.as_scan(name, raw)

    folder_keys = sorted({path.split(b"/")[-1] for path in class_folders})
    folder_names = tuple(key.decode("utf-8", "backslashreplace") for key in folder_keys)
    if len(set(folder_names)) < len(folder_names):
        raise SourceError(
            f"{readable_path(os.fsencode(raw))}: two class folders have the same name once it is "
            "written as UTF-8. Rename the one that is not UTF-8."
        )
    folders = dict(zip(folder_names, folder_keys, strict=True))
    classes, class_keys = _chosen_classes(raw, folders, options)
    labels = {key: label for label, key in enumerate(class_keys)}
    labelled_splits = {path.split(b"/")[0] for path, f in class_folders.items() if f.holds_pictures}
    said = _labels_in_files(raw, tree, splits, labelled_splits, dict.fromkeys(folder_keys, 0))
    # One dict for all items of a class and split, which nobody changes: one each would take more
    # memory than all the rest.
    shared: dict[tuple[int, int], dict[str, int]] = {}
    values_of: dict[bytes, dict[str, int]] = {}
    values_of_file: dict[bytes, dict[str, int]] = {}
    for path, folder in tree.folders.items():
        if not folder.pictures:
            continue
        parts = path.split(b"/") if path else []
        split = splits.index(parts[0]) if splits and parts else 0
        at = class_depth - 1
        if len(parts) > at and parts[at] in passed:
            at += 1
        class_key = parts[at] if len(parts) > at else None
        label = labels.get(class_key) if class_key is not None else None
        if label is None and class_key in folder_keys:
            found.ignore(OTHER_CLASS, (picture.path for picture in folder.pictures))
            continue
        if label is not None:
            values_of[path] = _values(shared, split, label, has_splits=bool(splits))
            continue
        of_split = said.get(parts[0]) if parts else None
        has_classes = not parts or parts[0] in labelled_splits
        reason = NOT_LISTED if of_split else BESIDE_CLASSES if has_classes else NO_CLASSES
        rejected = {reject.key for reject in of_split.rejects} if of_split else ()
        for p in folder.pictures:
            class_key = of_split.class_of.get(p.path) if of_split else None
            if class_key is not None and class_key not in labels:
                found.ignore(OTHER_CLASS, [p.path])
            elif class_key is not None:
                values_of_file[p.path] = _values(shared, split, labels[class_key], has_splits=True)
            elif p.path not in rejected:
                found.ignore(reason, [p.path])
    items = FileItems(tree.table)
    for path, first, end in tree.runs():
        if path in values_of:
            items.add(path, first, end, values_of[path])
            continue
        prefix = path + b"/" if path else b""
        for row in range(first, end):
            values = values_of_file.get(prefix + tree.table.name(row))
            if values is not None:
                items.add(path, row, row + 1, values)

    split_names = tuple(readable_path(split) for split in splits)
    fields = [Field(name="label", kind="label", dtype="int64", names=classes)]
    if splits:
        fields.append(split_field(split_names))
    found.note_ignored(BESIDE_CLASSES, NO_CLASSES, NOT_LISTED, OTHER_CLASS)
    found.notes += _class_notes(classes, class_keys, class_folders, splits)
    found.notes += _folder_notes(tops, candidates, class_folders, splits)
    found.notes += _name_notes(class_keys, passed)
    if options.format == name:
        found.notes += sibling_notes(raw, tree)
    return found.as_scan(
        name, raw, items=items, classes=classes, splits=split_names, fields=tuple(fields)
    )


def _chosen_classes(
    raw: Path, folders: dict[str, bytes], options: SourceOptions
) -> tuple[tuple[str, ...], list[bytes]]:
    """The classes in the order of their labels, and the name of the folder of each.

    Args:
        raw: The raw folder.
        folders: Class folders as they are called, by their names as text, sorted.
        options: `classes` is used; one that has no folder keeps its number.

    Raises:
        SourceError: None of the classes asked for has a folder.
    """
    if options.classes is None:
        return tuple(folders), list(folders.values())
    check_any_class(raw, options.classes, folders)
    return options.classes, [folders.get(name, os.fsencode(name)) for name in options.classes]


def _candidates(
    raw: Path, tree: Tree, splits: list[bytes]
) -> tuple[dict[bytes, Contents], frozenset[bytes]]:
    """Folders that may be classes, by path, and the names of those that were passed over.

    Where no folder is a class but those of such names, they are the classes: it was asked for.

    Raises:
        SourceError: The folders below are splits, whose level is the first.
    """
    class_depth = 2 if splits else 1
    found = {
        path: folder
        for path, folder in tree.contents(class_depth).items()
        if not splits or _is_split_name(path.split(b"/")[0])
    }
    groups: dict[bytes, list[bytes]] = {}
    for path, folder in found.items():
        if folder.holds_pictures:
            groups.setdefault(path.rpartition(b"/")[0], []).append(path.rpartition(b"/")[2])
    passed = classless(groups.values())
    if not passed:
        return found, passed
    kept = {path: f for path, f in found.items() if path.rpartition(b"/")[2] not in passed}
    for path, folder in tree.contents(class_depth + 1).items():
        _, above, last = path.rsplit(b"/", 2) if splits else (b"", *path.rsplit(b"/", 1))
        if above in passed and not names_no_class(last):
            kept[path] = folder
    filled = [path.rsplit(b"/") for path, folder in kept.items() if folder.holds_pictures]
    if not filled:
        return found, frozenset()
    if not splits and are_all_splits(parts[-1] for parts in filled):
        place = readable_path(os.path.join(os.fsencode(raw), filled[0][0]))
        raise SourceError(
            f"{place}: its folders are splits ({names_text(readable_path(p[-1]) for p in filled)}"
            f"), and format {name!r} expects these in the folder that is given. Give {place} "
            "instead."
        )
    return kept, passed


def _values(
    shared: dict[tuple[int, int], dict[str, int]], split: int, label: int, *, has_splits: bool
) -> dict[str, int]:
    """The values of all items of one class and split."""
    values = {"label": label, "split": split} if has_splits else {"label": label}
    return shared.setdefault((split, label), values)


def _labels_in_files(
    raw: Path,
    tree: Tree,
    splits: list[bytes],
    labelled_splits: set[bytes],
    labels: dict[bytes, int],
) -> dict[bytes, SplitLabels]:
    """What text files say of the pictures of splits without class folders, by split."""
    said: dict[bytes, SplitLabels] = {}
    not_said: list[str] = []
    used: set[bytes] = set()
    for split in splits:
        if split in labelled_splits:
            continue
        files = [*tree.folders[split].annotation_files, *tree.folders[b""].annotation_files]
        path = find_label_file(raw, split, files)
        pictures = [
            picture
            for folder, held in tree.folders.items()
            if folder.split(b"/")[0] == split
            for picture in held.pictures
        ]
        found = read_split_labels(raw, split, path, pictures, labels) if path is not None else None
        if path is not None and found is not None:
            said[split] = found
            used.add(path)
        elif path is not None:
            not_said.append(
                f"{readable_path(path)} names pictures, and none with the name of a class folder: "
                "not read"
            )
    _ignore_lists(tree, used)
    for labels_of_split in said.values():
        tree.findings.rejects += labels_of_split.rejects
        tree.findings.notes += labels_of_split.notes
    tree.findings.notes += not_said
    return said


def _ignore_lists(tree: Tree, used: set[bytes]) -> None:
    """Count the text files that were not read."""
    for folder in tree.folders.values():
        unread = (path for path in folder.annotation_files if path not in used)
        tree.findings.ignore(NOT_A_PICTURE, unread)


def split_folders(tops: dict[bytes, Contents]) -> list[bytes]:
    """The level-1 folders that are splits, sorted by bytes: all that hold pictures, or none."""
    holding = sorted(path for path, folder in tops.items() if folder.holds_pictures)
    return holding if are_all_splits(holding) else []


def _is_split_name(name: bytes) -> bool:
    return canonical_split(name.decode("utf-8", "replace")) is not None


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


def _name_notes(class_keys: list[bytes], passed: frozenset[bytes]) -> list[str]:
    """Folders whose names say no more than that pictures lie there, and what was made of them."""
    if passed:
        shown = names_text(map(readable_path, sorted(passed)))
        return [f"not taken for classes, since they name none: {shown}"]
    if all(map(names_no_class, class_keys)):
        shown = names_text(map(readable_path, class_keys))
        return [f"taken for classes, since there are no others, although they name none: {shown}"]
    return []


def sibling_notes(raw: Path, tree: Tree) -> list[str]:
    """What else folders may be that a user asked to take for classes, or to pack as they are."""
    folders = {path: folder.pictures.names for path, folder in tree.folders.items()}
    parts = find_parts(os.fsencode(raw), folders)
    if parts is not None:
        return [f"{parts.text}: each is a sample of its own, as asked for"]
    named = split_names(folders)
    if named:
        shown = names_text(map(readable_path, named))
        return [f"splits in the names of folders are not read, as asked for: {shown}"]
    return []


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
