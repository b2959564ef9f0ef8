"""CVAT: an XML dump beside the pictures, of images or of the frames of a video."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from packer.errors import SourceError
from packer.items.annotations import Annotations, object_fields, pack_annotations
from packer.items.raw_item import Reject, Scan
from packer.sources.class_names import ClassNames, class_names
from packer.sources.cvat.file import CvatFile, CvatImage, read_cvat
from packer.sources.named_objects import label_objects
from packer.sources.pairing import PictureIndex, normal_path, several_reason, split_path, stem_of
from packer.sources.picture_item import picture_item
from packer.sources.source import SourceOptions
from packer.sources.splits import ordered_splits, split_field
from packer.sources.turned_boxes import corners_field, stores_corners, turned_notes
from packer.sources.walk import Picture, Tree, walk
from packer.wording import count_text, names_text, readable_path
from readers.store.schema import Field
from readers.store.splits import canonical_split

name = "cvat"

NOT_NAMED = "not named by the annotations"
OTHER_XML = "XML file that is not a dump of CVAT"

_BESIDE = (b"", b"images", b"data", b"..", b"../images", b"../data")
"""Where pictures may lie, from the folder of a dump."""

_FRAME = re.compile(rb"frame_\d+")


def scan(raw: Path, options: SourceOptions) -> Scan:
    """Pictures that the dumps name, with their shapes, in order of their paths.

    Boxes, polygons, ellipses (as polygons) and masks are objects; points, polylines, skeletons and
    cuboids have no area and are rejected one by one. Of a box that is turned, `boxes` has the
    upright box around it, `corners` its corners and `attributes` its `rotation`. Labels of whole
    images are the field `tags`.

    Of a video, shapes belong to the pictures `frame_000010.*`; a shape marked as outside is not
    there. Frames without a shape are pictures without objects.

    Classes are in the order of `<meta>`, or sorted by code point where it names none. Splits are
    the subsets of the dump, or dumps that all have names of splits.

    Raises:
        SourceError: There is no dump, or none of the pictures that it names.
    """
    tree = walk(raw, (b".xml",))
    index = PictureIndex(tree)
    content = _read_dumps(raw, tree)
    pictures = _find_pictures(content, index)
    if not any(image is not None for _, image, _ in pictures):
        raise SourceError(_nothing_reason(raw, content))
    for picture in index.rest():
        tree.findings.ignored.add(NOT_NAMED, readable_path(picture.path))

    classes = _classes(content, options)
    splits = _splits(pictures)
    has_tags = any(image is not None and image.tags for _, image, _ in pictures)
    background = pack_annotations(Annotations())
    items = []
    for picture, image, split in sorted(pictures, key=lambda found: found[0].path):
        path = picture.path
        annotations = background
        if image is not None:
            objects = label_objects(image.objects, path, classes, content.annotation_rejects)
            annotations = pack_annotations(Annotations(objects=objects, size=image.size))
        values: dict[str, Any] = {"split": splits.index(split)} if splits else {}
        if has_tags:
            values["tags"] = image.tags if image is not None else []
        items.append(picture_item(picture, values, annotations))
    names = ["boxes", "labels"]
    if any(dump.has_outlines for dump in content.dumps.values()):
        names.append("masks")
    if any(dump.has_attributes for dump in content.dumps.values()):
        names.append("attributes")
    turned_count = sum(dump.turned_count for dump in content.dumps.values())
    object_count = sum(dump.object_count for dump in content.dumps.values())
    corners = corners_field() if stores_corners(options.task, turned_count) else None
    content.notes += turned_notes(options.task, turned_count, object_count)
    fields = list(object_fields(classes.names, tuple(names), keypoints=corners))
    if has_tags:
        fields.append(Field(name="tags", kind="json"))
    if splits:
        fields.append(split_field(splits))
    return Scan(
        format=name,
        root=raw,
        items=items,
        classes=classes.names,
        splits=splits,
        fields=tuple(fields),
        rejects=[*tree.findings.rejects, *content.rejects],
        annotation_rejects=content.annotation_rejects,
        ignored=tree.findings.ignored,
        notes=[*content.notes, *_notes(tree, content)],
    )


@dataclass
class _Content:
    """What all dumps say, by the path of each."""

    dumps: dict[bytes, CvatFile] = field(default_factory=dict)
    rejects: list[Reject] = field(default_factory=list)
    annotation_rejects: list[Reject] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


_Found = tuple[Picture, "CvatImage | None", str]
"""A picture, what a dump says of it (None: nothing, of a frame), and its split or ""."""


def _read_dumps(raw: Path, tree: Tree) -> _Content:
    content = _Content()
    for file in (file for folder in tree.folders.values() for file in folder.annotation_files):
        place = readable_path(file)
        path = os.path.join(os.fsencode(raw), file)
        try:
            dump = read_cvat(path, place)
        except ValueError as error:
            reject = Reject(key=b"", path=place, reason=str(error), split=_dump_split(file))
            content.rejects.append(reject)
            continue
        if dump is None:
            tree.findings.ignored.add(OTHER_XML, place)
            continue
        content.dumps[file] = dump
        content.annotation_rejects += [
            Reject(key=b"", path=shape, reason=reason, split=_dump_split(file))
            for shape, reason in dump.rejects
        ]
    return content


# --- which pictures -------------------------------------------------------------------------------


def _find_pictures(content: _Content, index: PictureIndex) -> list[_Found]:
    found: list[_Found] = []
    by_name: list[str] = []
    for file, dump in content.dumps.items():
        dump_split = _dump_split(file)
        frame_folders: dict[bytes, str] = {}
        frames = ((frame, True) for frame in dump.frames)
        for image, is_frame in (*((image, False) for image in dump.images), *frames):
            pictures, is_elsewhere = _pictures_of(image, file, index, is_frame=is_frame)
            problem = _problem(image, pictures, file, index)
            if problem is not None:
                key = pictures[0].path if len(pictures) == 1 else b""
                reject = Reject(key=key, path=image.place, reason=problem)
                content.rejects.append(
                    msgspec.structs.replace(reject, split=image.split or dump_split)
                )
                continue
            picture = pictures[0]
            index.take(picture)
            split = image.split or dump_split
            found.append((picture, image, split))
            for place, reason in image.rejects:
                reject = Reject(key=picture.path, path=place, reason=reason)
                content.annotation_rejects.append(reject)
            content.annotation_rejects += [
                msgspec.structs.replace(part, key=picture.path) for part in image.lost_parts
            ]
            if is_frame:
                frame_folders[split_path(picture.path)[0]] = split
            if is_elsewhere:
                by_name.append(image.place)
        for picture in list(index.rest()) if frame_folders else ():
            folder, file_name = split_path(picture.path)
            if folder in frame_folders and _FRAME.fullmatch(stem_of(file_name)):
                index.take(picture)
                found.append((picture, None, frame_folders[folder]))
    if by_name:
        content.notes.append(
            f"{count_text(len(by_name), 'image')} found by name in another folder than the dump "
            f"says; the first is {by_name[0]}"
        )
    return found


def _dump_split(file: bytes) -> str:
    """The split that a dump is named after, or ""."""
    stem = stem_of(split_path(file)[1]).decode("utf-8", "replace")
    return stem if canonical_split(stem) else ""


def _pictures_of(
    image: CvatImage, file: bytes, index: PictureIndex, *, is_frame: bool
) -> tuple[list[Picture], bool]:
    """Pictures that may be meant: at the path that is written, or else of the name anywhere.

    Returns:
        The pictures, and whether they are elsewhere than written.
    """
    folder = split_path(file)[0]
    written = image.name.replace("\\", "/").encode()
    bases = [normal_path(folder + b"/" + beside) for beside in _BESIDE]
    if image.split:
        split = image.split.encode()
        bases += [base + b"/" + split for base in bases]
    for base in dict.fromkeys(bases):
        if is_frame:
            pictures = index.with_stem(base, written)
        else:
            # A path that leaves the raw folder is none of the index.
            picture = index.at(base + b"/" + written)
            pictures = [picture] if picture is not None else []
        if pictures:
            return pictures, False
    return ([] if is_frame else index.named(split_path(written)[1])), True


def _problem(
    image: CvatImage, pictures: list[Picture], file: bytes, index: PictureIndex
) -> str | None:
    """Why an image of a dump cannot be packed, or None when it can."""
    if not pictures:
        count = image.object_count + len(image.rejects)
        folder = split_path(file)[0]
        looked = [folder, normal_path(folder + b"/images"), normal_path(folder + b"/..")]
        shown = names_text(readable_path(path) + "/" if path else "./" for path in looked)
        return (
            f"annotations of {count_text(count, 'object')} without a picture: expected "
            f"{image.name!r} in {shown}, or one of that name anywhere"
        )
    if len(pictures) > 1:
        return several_reason(pictures)
    if index.is_taken(pictures[0]):
        return (
            f"the annotations name {readable_path(pictures[0].path)} a second time; expected once. "
            "Remove one of the two"
        )
    return None


# --- classes and splits ---------------------------------------------------------------------------


def _classes(content: _Content, options: SourceOptions) -> ClassNames:
    declared = dict.fromkeys(label for dump in content.dumps.values() for label in dump.labels)
    if options.classes is None and declared:
        return ClassNames(tuple(declared))
    found = {class_name for dump in content.dumps.values() for class_name in dump.class_names}
    return class_names(found, options.classes)


def _splits(pictures: list[_Found]) -> tuple[str, ...]:
    """Names of splits, when every picture has one."""
    splits = {split for *_, split in pictures}
    return () if "" in splits else ordered_splits(splits)


def _notes(tree: Tree, content: _Content) -> list[str]:
    notes = []
    outside_count = sum(dump.outside_count for dump in content.dumps.values())
    if outside_count:
        shapes = count_text(outside_count, "shape")
        notes.append(f"{shapes} of tracks marked as outside of the frame: not packed")
    aside = tree.findings.ignored.counts.get(NOT_NAMED, 0)
    if aside:
        shown = names_text(tree.findings.ignored.examples[NOT_NAMED][:1])
        notes.append(f"{count_text(aside, 'picture')} {NOT_NAMED}; the first is {shown}")
    return notes


def _nothing_reason(raw: Path, content: _Content) -> str:
    place = readable_path(os.fsencode(raw))
    if content.rejects:
        first = content.rejects[0]
        return (
            f"{place}: no picture that a dump of CVAT names can be packed. {first.path}: "
            f"{first.reason}. Of a video, export the dump together with its frames."
        )
    if content.dumps:
        return f"{place}: {names_text(map(readable_path, content.dumps))} names no image."
    return (
        f"{place}: no dump of CVAT; expected an XML file with the root element <annotations> "
        "beside its pictures."
    )
