"""LabelMe: a JSON file for each picture, or the XML of the old web tool of MIT."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from packer.errors import SourceError
from packer.items.annotations import Annotations, object_fields, pack_annotations
from packer.items.findings import Findings
from packer.items.raw_item import Scan
from packer.sources.class_names import class_names
from packer.sources.labelme.files import read_labelme
from packer.sources.named_objects import label_objects, pack_named
from packer.sources.pairing import PictureIndex, split_path
from packer.sources.picture_item import picture_item
from packer.sources.sidecars import (
    NO_PICTURE_HERE,
    Pairs,
    lost_reason,
    pair_files,
    splits_by_folder,
)
from packer.sources.source import SourceOptions
from packer.sources.splits import ordered_splits, split_field
from packer.sources.turned_boxes import corners_field, is_turned, stores_corners, turned_notes
from packer.sources.walk import Picture, Tree, walk
from packer.wording import count_text, readable_path

name = "labelme"

OTHER_FILE = "file without a picture that is not LabelMe"


def scan(raw: Path, options: SourceOptions) -> Scan:
    """Pictures with the shapes of their files, in order of their paths.

    A file and its picture have the same name; what `imagePath` says is not used. Polygons and
    circles keep their outlines, a circle as a polygon within a quarter pixel, and masks their
    pixels. Of a rectangle that is turned, `boxes` has the upright box around it and `corners` its
    corners. Points and lines have no area and are rejected one by one.

    Classes are sorted by code point; folders that all have names of splits are splits. A picture
    without a file, where others have one, is one without objects.

    Raises:
        SourceError: No picture has a file of LabelMe.
    """
    tree = walk(raw, (b".json", b".xml"))
    findings = tree.findings
    index = PictureIndex(tree)
    files = [file for folder in tree.folders.values() for file in folder.annotation_files]
    pairs = pair_files(tree, index, files)
    if not pairs.folders:
        raise _nothing_found(raw, files, pairs, findings)
    pictures = _pictures(tree, index, pairs)
    content = _read_files(raw, pictures, pairs, findings)
    _lost_files(raw, pairs, findings)

    classes = class_names(content.classes, options.classes)
    split_of = splits_by_folder({split_path(picture.path)[0] for picture in pictures})
    splits = ordered_splits(split_of.values())
    background = pack_annotations(Annotations())
    background_count = 0
    for picture in pictures:
        path = picture.path
        if path in pairs.file_of and path not in content.found:
            continue  # Its file is rejected.
        annotations = background
        if path in content.found:
            objects, size = content.found[path]
            labelled = label_objects(objects, path, classes, findings)
            annotations = pack_annotations(Annotations(objects=labelled, size=size))
        else:
            background_count += 1
        values = {"split": splits.index(split_of[split_path(path)[0]])} if splits else {}
        findings.items.append(picture_item(picture, values, annotations))
    if background_count:
        findings.notes.append(
            f"{count_text(background_count, 'picture')} without a file of LabelMe: packed as "
            "pictures without objects"
        )
    findings.note_ignored(NO_PICTURE_HERE)
    names = ["boxes", "labels"]
    if content.has_outlines:
        names.append("masks")
    if content.has_attributes:
        names.append("attributes")
    corners = corners_field() if stores_corners(options.task, content.turned_count) else None
    findings.notes += turned_notes(options.task, content.turned_count, content.object_count)
    return findings.as_scan(
        name,
        raw,
        classes=classes.names,
        splits=splits,
        fields=(
            *object_fields(classes.names, tuple(names), keypoints=corners),
            *((split_field(splits),) if splits else ()),
        ),
    )


@dataclass
class _Content:
    """What all files say; objects of each picture are packed, and stand beside its size."""

    found: dict[bytes, tuple[bytes, tuple[int, int] | None]] = field(default_factory=dict)
    classes: set[str] = field(default_factory=set)
    has_outlines: bool = False
    has_attributes: bool = False
    object_count: int = 0
    turned_count: int = 0


def _pictures(tree: Tree, index: PictureIndex, pairs: Pairs) -> list[Picture]:
    """Pictures that become samples; the others, such as masks, become ignored files."""
    pictures = []
    for picture in index.rest():
        if split_path(picture.path)[0] in pairs.folders:
            pictures.append(picture)
        else:
            tree.findings.ignore(NO_PICTURE_HERE, [picture.path])
    return pictures


def _read_files(raw: Path, pictures: list[Picture], pairs: Pairs, findings: Findings) -> _Content:
    content = _Content()
    deleted_count = mask_file_count = 0
    for picture in pictures:
        file = pairs.file_of.get(picture.path)
        if file is None:
            continue
        place = readable_path(file)
        try:
            found = read_labelme(os.path.join(os.fsencode(raw), file), place)
        except ValueError as error:
            findings.refuse(picture.path, str(error), place)
            continue
        for path, reason in found.rejects:
            findings.refuse_annotation(picture.path, reason, path)
        findings.annotation_rejects += [
            msgspec.structs.replace(part, key=picture.path) for part in found.lost_parts
        ]
        content.object_count += len(found.objects)
        for named in found.objects:
            content.classes.add(named.class_name)
            content.has_outlines |= bool(named.object.polygons or named.object.runs)
            content.turned_count += is_turned(named.object)
            content.has_attributes |= bool(named.object.attributes)
        deleted_count += found.deleted_count
        mask_file_count += found.mask_file_count
        content.found[picture.path] = (pack_named(found.objects), found.size)
    if deleted_count:
        deleted = count_text(deleted_count, "object")
        findings.notes.append(f"{deleted} marked as deleted in the tool: not packed")
    if mask_file_count:
        masked = count_text(mask_file_count, "object")
        findings.notes.append(
            f"{masked} with a mask file for an outline: packed without it, with box or polygon"
        )
    return content


def _lost_files(raw: Path, pairs: Pairs, findings: Findings) -> None:
    """Reject files whose picture is not there; files of another kind are ignored."""
    for file, looked in pairs.lost.items():
        place = readable_path(file)
        try:
            found = read_labelme(os.path.join(os.fsencode(raw), file), place)
        except ValueError:
            findings.ignore(OTHER_FILE, [file])
            continue
        reason = lost_reason(file, looked, found.object_count)
        if found.holds_picture:
            reason += (
                ". The picture is inside of the file (imageData), which is not read from there: "
                "export it beside the file"
            )
        findings.refuse(b"", reason, place)


def _nothing_found(raw: Path, files: list[bytes], pairs: Pairs, findings: Findings) -> SourceError:
    if not files:
        expected = "expected one of LabelMe beside each picture"
        return findings.nothing(raw, "no JSON or XML file", expected)
    file, looked = next(iter(pairs.lost.items()))
    found = f"{count_text(len(files), 'JSON or XML file')} such as {readable_path(file)}"
    return findings.nothing(
        raw,
        f"{found}, and no picture of the same name",
        f"looked in {looked}. Expected the picture there, or in a folder such as images/ beside it",
    )
