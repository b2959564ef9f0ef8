"""CVAT: an XML dump beside the pictures, of images or of the frames of a video."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import msgspec

from packer.errors import SourceError
from packer.items.annotations import Annotations, object_fields, pack_annotations
from packer.items.findings import Findings
from packer.items.raw_item import Scan
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
    findings = tree.findings
    index = PictureIndex(tree)
    mark = findings.mark()
    dumps = _read_dumps(raw, tree)
    pictures = _find_pictures(dumps, index, findings)
    if not any(image is not None for _, image, _ in pictures):
        raise _nothing_found(raw, dumps, findings, mark)
    findings.ignore(NOT_NAMED, (picture.path for picture in index.rest()))

    classes = _classes(dumps, options)
    splits = _splits(pictures)
    has_tags = any(image is not None and image.tags for _, image, _ in pictures)
    background = pack_annotations(Annotations())
    for picture, image, split in sorted(pictures, key=lambda found: found[0].path):
        path = picture.path
        annotations = background
        if image is not None:
            objects = label_objects(image.objects, path, classes, findings)
            annotations = pack_annotations(Annotations(objects=objects, size=image.size))
        values: dict[str, Any] = {"split": splits.index(split)} if splits else {}
        if has_tags:
            values["tags"] = image.tags if image is not None else []
        findings.items.append(picture_item(picture, values, annotations))
    names = ["boxes", "labels"]
    if any(dump.has_outlines for dump in dumps.values()):
        names.append("masks")
    if any(dump.has_attributes for dump in dumps.values()):
        names.append("attributes")
    turned_count = sum(dump.turned_count for dump in dumps.values())
    object_count = sum(dump.object_count for dump in dumps.values())
    corners = corners_field() if stores_corners(options.task, turned_count) else None
    findings.notes += turned_notes(options.task, turned_count, object_count)
    fields = list(object_fields(classes.names, tuple(names), keypoints=corners))
    if has_tags:
        fields.append(Field(name="tags", kind="json"))
    if splits:
        fields.append(split_field(splits))
    outside_count = sum(dump.outside_count for dump in dumps.values())
    if outside_count:
        shapes = count_text(outside_count, "shape")
        findings.notes.append(f"{shapes} of tracks marked as outside of the frame: not packed")
    findings.note_ignored(NOT_NAMED)
    return findings.as_scan(name, raw, classes=classes.names, splits=splits, fields=tuple(fields))


_Dumps = dict[bytes, CvatFile]
"""What each dump says, by its path."""

_Found = tuple[Picture, "CvatImage | None", str]
"""A picture, what a dump says of it (None: nothing, of a frame), and its split or ""."""


def _read_dumps(raw: Path, tree: Tree) -> _Dumps:
    dumps: _Dumps = {}
    for file in (file for folder in tree.folders.values() for file in folder.annotation_files):
        place = readable_path(file)
        path = os.path.join(os.fsencode(raw), file)
        try:
            dump = read_cvat(path, place)
        except ValueError as error:
            tree.findings.refuse(b"", str(error), place, _dump_split(file))
            continue
        if dump is None:
            tree.findings.ignore(OTHER_XML, [file])
            continue
        dumps[file] = dump
        for shape, reason in dump.rejects:
            tree.findings.refuse_annotation(b"", reason, shape, split=_dump_split(file))
    return dumps


# --- which pictures -------------------------------------------------------------------------------


def _find_pictures(dumps: _Dumps, index: PictureIndex, findings: Findings) -> list[_Found]:
    found: list[_Found] = []
    by_name: list[str] = []
    for file, dump in dumps.items():
        dump_split = _dump_split(file)
        frame_folders: dict[bytes, str] = {}
        frames = ((frame, True) for frame in dump.frames)
        for image, is_frame in (*((image, False) for image in dump.images), *frames):
            pictures, is_elsewhere = _pictures_of(image, file, index, is_frame=is_frame)
            problem = _problem(image, pictures, file, index)
            if problem is not None:
                key = pictures[0].path if len(pictures) == 1 else b""
                findings.refuse(key, problem, image.place, image.split or dump_split)
                continue
            picture = pictures[0]
            index.take(picture)
            split = image.split or dump_split
            found.append((picture, image, split))
            for place, reason in image.rejects:
                findings.refuse_annotation(picture.path, reason, place)
            findings.annotation_rejects += [
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
        findings.notes.append(
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


def _classes(dumps: _Dumps, options: SourceOptions) -> ClassNames:
    declared = dict.fromkeys(label for dump in dumps.values() for label in dump.labels)
    if options.classes is None and declared:
        return ClassNames(tuple(declared))
    found = {class_name for dump in dumps.values() for class_name in dump.class_names}
    return class_names(found, options.classes)


def _splits(pictures: list[_Found]) -> tuple[str, ...]:
    """Names of splits, when every picture has one."""
    splits = {split for *_, split in pictures}
    return () if "" in splits else ordered_splits(splits)


def _nothing_found(
    raw: Path, dumps: _Dumps, findings: Findings, mark: tuple[int, int]
) -> SourceError:
    """The error; `mark` is before the dumps were read, whose own rejects explain it best."""
    of_dumps = findings.rejects[mark[0] :]
    if of_dumps:
        first = of_dumps[0]
        return SourceError(
            f"{readable_path(os.fsencode(raw))}: no picture that a dump of CVAT names can be "
            f"packed. {first.path}: {first.reason}. Of a video, export the dump together with its "
            "frames."
        )
    if dumps:
        named = names_text(map(readable_path, dumps))
        return findings.nothing(raw, f"{named} names no image", "expected <image> in it")
    return findings.nothing(
        raw,
        "no dump of CVAT",
        "expected an XML file with the root element <annotations> beside its pictures",
    )
