"""Data sets with a text file for each picture, in a folder of their own, that names the classes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec

from packer.files.start import pointer_reason
from packer.files.text import read_bounded
from packer.items.annotations import Annotations, RawObject, pack_annotations, unpack_annotations
from packer.items.findings import Findings
from packer.items.raw_item import Scan
from packer.sources.class_names import ClassNames, class_names
from packer.sources.pairing import PictureIndex, composed, several_reason, split_path, stem_of
from packer.sources.picture_item import picture_item
from packer.sources.sidecars import splits_by_folder
from packer.sources.splits import ordered_splits, split_field
from packer.sources.walk import NOT_A_PICTURE, Picture, Tree, walk
from packer.wording import count_text, names_text, readable_path
from readers.store.schema import Field

WITHOUT_PICTURE = "label file without a picture"
NOT_AMONG_PICTURES = "outside of the folders of pictures"


class LineObject(NamedTuple):
    """What a line says.

    Attributes:
        class_name: The object's class name.
        object: With any label.
        lost_parts: (part, reason) of each part of it that cannot be used.
    """

    class_name: str
    object: RawObject
    lost_parts: tuple[tuple[str, str], ...] = ()


ParsedLine = LineObject | str | None
"""What a line says, or why it is no object, or None where it says nothing."""


@dataclass(frozen=True, kw_only=True)
class TextLayout:
    """How such a data set looks.

    Attributes:
        name: The source's name.
        picture_folders: Names of folders of pictures, in lower case.
        label_folders: Names of folders of label files, in lower case. They lie beside the pictures'
            or one further up, or among the pictures.
        parse: Reads a line that is not blank: (values, place).
        classes: Class names in the order of their labels, where the data set has a list of them.
        class_file: Name of the file of that list, directly in the folder of the data.
    """

    name: str
    picture_folders: tuple[bytes, ...]
    label_folders: tuple[bytes, ...]
    parse: Callable[[list[bytes], str], ParsedLine]
    classes: tuple[str, ...] | None = None
    class_file: bytes = b""


@dataclass
class _Found:
    """Items as they are read, with labels in the order in which the classes are met.

    Attributes:
        findings: The items and all else.
        read: Paths of the label files that were read.
        missing: Pictures without one.
        numbers: Number of each class.
    """

    findings: Findings
    read: set[bytes] = field(default_factory=set)
    missing: list[Picture] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)


def scan_text_pairs(
    raw: Path,
    given: tuple[str, ...] | None,
    layout: TextLayout,
    make_fields: Callable[[tuple[str, ...]], tuple[Field, ...]],
) -> Scan:
    """The pictures of such a data set and the objects in their text files.

    Classes are sorted by code point unless there is a list of them. A picture without a label file
    is background.

    Args:
        raw: Folder of the data.
        given: Class names from the user, which decide.
        layout: How it looks.
        make_fields: Fields of the objects, from the class names.

    Raises:
        SourceError: No picture has a label file.
    """
    tree = walk(raw, (b".txt", *filter(None, (layout.class_file.lower(),))))
    index = PictureIndex(tree)
    folders = _label_folders(tree, layout)
    splits_of = splits_by_folder(folders)
    splits = ordered_splits(splits_of.values())
    found = _Found(tree.findings)
    for folder, labels in folders.items():
        values = {"split": splits.index(splits_of[folder])} if splits else {}
        files = _by_stem(tree.folders[labels].annotation_files) if labels is not None else {}
        for picture in tree.folders[folder].pictures:
            index.take(picture)
            _add(raw, picture, folder, files, index, values, layout, found)
    if not found.read:
        wanted = names_text(name.decode() for name in layout.label_folders)
        beside = names_text(name.decode() for name in layout.picture_folders)
        raise tree.findings.nothing(
            raw,
            "no picture has a label file",
            f"looked for folders called {wanted} beside folders called {beside}, with a .txt of "
            "the same name for each picture. Check the path",
        )
    names = _relabel(found, given, layout.classes)
    findings = found.findings
    findings.notes += _missing_notes(found, splits)
    _ignore_rest(tree, index, found, layout.class_file)
    findings.items.sort(key=lambda item: item.key)
    fields = make_fields(names)
    return findings.as_scan(
        layout.name,
        raw,
        classes=names,
        splits=splits,
        fields=(*fields, split_field(splits)) if splits else fields,
    )


def _label_folders(tree: Tree, layout: TextLayout) -> dict[bytes, bytes | None]:
    """Each folder of pictures with that of its label files, or None where it has none."""
    children: dict[bytes, list[bytes]] = {}
    for path in tree.folders:
        if path:
            children.setdefault(split_path(path)[0], []).append(path)
    found: dict[bytes, bytes | None] = {}
    for path, folder in tree.folders.items():
        if not folder.pictures:
            continue
        parent, folder_name = split_path(path)
        is_named = folder_name.lower() in layout.picture_folders
        places = [parent, split_path(parent)[0]] if is_named else [path]
        labels = next(
            (p for place in places for p in _labels_in(tree, children, place, layout)), None
        )
        if is_named or labels is not None:
            found[path] = labels
    return found


def _labels_in(
    tree: Tree, children: dict[bytes, list[bytes]], place: bytes, layout: TextLayout
) -> Iterator[bytes]:
    """Folders of label files in a folder; archives put one of the same name inside (`a/a`)."""
    for wanted in layout.label_folders:
        for path in children.get(place, []):
            if split_path(path)[1].lower() == wanted:
                for candidate in (path, *children.get(path, [])):
                    if tree.folders[candidate].annotation_files:
                        yield candidate


def _by_stem(files: list[bytes]) -> dict[bytes, list[bytes]]:
    stems: dict[bytes, list[bytes]] = {}
    for file in files:
        if file.lower().endswith(b".txt"):
            stems.setdefault(composed(stem_of(split_path(file)[1])), []).append(file)
    return stems


def _add(
    raw: Path,
    picture: Picture,
    folder: bytes,
    files: dict[bytes, list[bytes]],
    index: PictureIndex,
    values: dict[str, int],
    layout: TextLayout,
    found: _Found,
) -> None:
    """The item of a picture, or its reject."""
    stem = stem_of(split_path(picture.path)[1])
    paths = files.get(composed(stem), [])
    rivals = index.with_stem(folder, stem)
    annotations: bytes | str
    found.read.update(paths)
    if not paths:
        found.missing.append(picture)
        annotations = pack_annotations(Annotations())
    elif len(paths) > 1:
        shown = names_text(map(readable_path, paths))
        annotations = f"several label files fit: {shown}; expected one. Move the others away"
    elif len(rivals) > 1:
        annotations = f"of its label file {readable_path(paths[0])}, {several_reason(rivals)}"
    else:
        annotations = _read(raw, picture, paths[0], layout, found)
    if isinstance(annotations, str):
        found.findings.refuse(picture.path, annotations)
        return
    found.findings.items.append(picture_item(picture, values, annotations))


def _read(
    raw: Path, picture: Picture, path: bytes, layout: TextLayout, found: _Found
) -> bytes | str:
    """The packed objects of a label file, or why they cannot be known."""
    shown = readable_path(path)
    try:
        data = read_bounded(os.path.join(os.fsencode(raw), path))
    except OSError as error:
        return f"its label file {shown} cannot be read: {error.strerror}"
    except ValueError as error:
        return f"its label file {shown} has {error}"
    if pointer_reason(data):
        return f"its label file {shown}: {pointer_reason(data)}"
    if b"\0" in data:
        return f"its label file {shown} is not text (or UTF-16). Save it as UTF-8"
    objects: list[RawObject] = []
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").splitlines(), 1):
        values = line.split()
        if not values:
            continue
        place = f"{shown}, line {number}"
        parsed = layout.parse(values, place)
        if isinstance(parsed, str):
            found.findings.refuse_annotation(picture.path, parsed, place)
        elif parsed is not None:
            label = found.numbers.setdefault(parsed.class_name, len(found.numbers))
            objects.append(msgspec.structs.replace(parsed.object, label=label))
            for part, reason in parsed.lost_parts:
                found.findings.refuse_annotation(picture.path, reason, f"{place}, {part}", part)
    return pack_annotations(Annotations(objects=tuple(objects)))


def _relabel(
    found: _Found, given: tuple[str, ...] | None, listed: tuple[str, ...] | None
) -> tuple[str, ...]:
    """Give the objects their final labels, now that all classes are known, and return the names."""
    names = class_names(found.numbers, given)
    if given is None and listed is not None:
        names = ClassNames(listed)
    labels = {number: names.label(name) for name, number in found.numbers.items()}
    by_number = {number: name for name, number in found.numbers.items()}
    for at, item in enumerate(found.findings.items):
        annotations = unpack_annotations(item.annotations)
        objects = []
        for thing in annotations.objects:
            label = labels[thing.label]
            if label is None:
                reason = names.unknown_reason(by_number[thing.label])
                found.findings.refuse_annotation(item.key, reason, thing.place)
            else:
                objects.append(msgspec.structs.replace(thing, label=label))
        packed = pack_annotations(msgspec.structs.replace(annotations, objects=tuple(objects)))
        found.findings.items[at] = msgspec.structs.replace(item, annotations=packed)
    return names.names


def _missing_notes(found: _Found, splits: tuple[str, ...]) -> list[str]:
    if not found.missing:
        return []
    shown = names_text(readable_path(picture.path) for picture in found.missing)
    count = count_text(len(found.missing), "picture")
    notes = [f"no label file: {count}, taken as background: {shown}"]
    missing = {picture.path for picture in found.missing}
    for at, split in enumerate(splits):
        keys = [item.key for item in found.findings.items if item.values["split"] == at]
        if keys and missing.issuperset(keys):
            notes.append(f"split {split} has no label file at all: nothing is known of its objects")
    return notes


def _ignore_rest(tree: Tree, index: PictureIndex, found: _Found, class_file: bytes) -> None:
    """Account for the files that were not used."""
    findings = found.findings
    findings.ignore(NOT_AMONG_PICTURES, (picture.path for picture in index.rest()))
    label_folders = {split_path(path)[0] for path in found.read}
    for path, folder in tree.folders.items():
        for file in folder.annotation_files:
            if file not in found.read and file != class_file:
                is_label = path in label_folders and file.lower().endswith(b".txt")
                reason = WITHOUT_PICTURE if is_label else NOT_A_PICTURE
                findings.ignore(reason, [file])
    findings.note_ignored(NOT_AMONG_PICTURES)
    findings.note_ignored(WITHOUT_PICTURE, noun="file")
