"""COCO: one or several JSON files with lists of images, annotations and categories.

files        which files there are, and which are read; doubles: of those of the same pictures
document     one file, decoded entry by entry
images       its images; pictures: where their pictures lie
classes      its categories, as labels
annotations  its annotations; objects: one of them as an object; parts: one that is partly broken
panoptic     its masks and their segments
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from packer.errors import SourceError
from packer.items.annotations import keypoint_field, object_fields
from packer.items.findings import Findings
from packer.items.raw_item import RawFile, RawItem, Scan
from packer.sources.coco.annotations import (
    Gathered,
    read_captions,
    read_objects,
    read_points,
    reject_left_points,
)
from packer.sources.coco.classes import (
    Classes,
    class_choices,
    read_categories,
    read_classes,
    read_pose,
    unused_note,
)
from packer.sources.coco.doubles import without_doubles
from packer.sources.coco.files import (
    ANNOTATION_FOLDERS,
    COCO_EXTENSIONS,
    LEFT_ASIDE,
    NOT_ASKED_FOR,
    Chosen,
    choose_files,
    read_files,
)
from packer.sources.coco.images import (
    FileImages,
    Image,
    guess_keys,
    image_place,
    read_images,
    reject_shared,
)
from packer.sources.coco.panoptic import PANOPTIC_FIELD, read_panoptic
from packer.sources.coco.pictures import folders_text
from packer.sources.coco.turned import drop_corners
from packer.sources.pairing import PictureIndex
from packer.sources.picture_item import picture_item
from packer.sources.source import SourceOptions
from packer.sources.splits import ordered_splits, split_field
from packer.sources.turned_boxes import corners_field, stores_corners, turned_notes
from packer.sources.walk import Tree, walk
from packer.wording import count_text, readable_path
from readers.store.schema import Field

name = "coco"

NOT_NAMED = "not named by the annotations"
ONLY_KEYPOINTS = "named only by a file of keypoints"


def scan(raw: Path, options: SourceOptions) -> Scan:
    """The pictures that COCO files list, each with its objects.

    Instances are what is read where there are some, with keypoints of other files added by
    annotation id; else keypoints, panoptic masks or captions. What is left aside, a note says. A
    label is the position of its category in the order of category ids.

    Args:
        raw: A folder, or one COCO file: that is then read alone, whatever it holds.
        options: `root` is where pictures are that are not found beside the file.

    Raises:
        SourceError: There is no COCO file, it is broken, its categories contradict each other, or
            none of its pictures is found.
    """
    places = _find_places(raw, options)
    shown = readable_path(os.fsencode(raw))
    tree = walk(places.pictures, COCO_EXTENSIONS)
    findings = tree.findings
    unreadable = {reject.key for reject in findings.rejects}
    chosen = _find_files(shown, places, tree, options)
    index = PictureIndex(tree)
    listed = [read_images(f, places.root, index, tree) for f in chosen.files]
    guess_keys(listed)
    _check_found(shown, listed)
    added = _added_files(listed) if chosen.kind == "instances" else []
    read = [file_images for file_images in listed if file_images not in added]
    read, doubles = without_doubles(shown, places.files, read, options.split)
    added, more = without_doubles(shown, places.files, added, options.split)
    doubles += more
    for file_images in doubles:
        findings.ignored.add(LEFT_ASIDE, file_images.coco_file.name)
    chosen.aside.extend(file_images.coco_file for file_images in doubles)
    _explain_absent(read)
    reject_shared(image for file_images in read for image in file_images.images)

    note = chosen.note()
    findings.notes += [note] if note is not None else []
    findings.notes += [f.note for f in chosen.files if f.note]
    for file_images in read:
        findings.add(file_images.findings)
    gathered = Gathered(findings, task=options.task)
    masks: dict[bytes, RawFile] = {}
    if chosen.kind == "captions":
        classes = read_classes([], None)
        for file_images in read:
            mark = findings.mark()
            read_captions(file_images, gathered)
            findings.tag_split(mark, file_images.split)
        fields: tuple[Field, ...] = (Field(name="captions", kind="json"),)
    else:
        classes = read_classes([file_images.coco_file for file_images in read], options.classes)
        findings.notes += classes.notes
        findings.choices |= class_choices(classes)
        if chosen.kind == "panoptic":
            for file_images in read:
                mark = findings.mark()
                masks |= read_panoptic(file_images, classes, gathered, index, tree)
                findings.tag_split(mark, file_images.split)
            kept = ("boxes", "labels", "area", "iscrowd", "attributes")
            fields = (*object_fields(classes.names.names, kept), PANOPTIC_FIELD)
        else:
            fields = _read_all_objects(read, added, classes, gathered)
        unused = unused_note(classes, gathered.labels)
        findings.notes += [unused] if unused is not None else []

    splits = _splits(read, findings.notes)
    id_field = _id_field(read)
    fields = (*fields, id_field, *((split_field(splits),) if splits else ()))
    for file_images in read:
        split = {"split": splits.index(file_images.split)} if splits and file_images.split else {}
        for image in file_images.images:
            if image.picture is not None:
                index.take(image.picture)
            if not image.problem:
                image_id = str(image.id) if id_field.kind == "text" else image.id
                values: dict[str, Any] = {**split, "image_id": image_id}
                if chosen.kind == "captions":
                    values["captions"] = gathered.captions.get(image.key, [])
                findings.items.append(_item(image, values, masks))
            elif image.key not in unreadable:  # Its file is rejected already, with the reason.
                _refuse_image(image, file_images.split, findings)
    findings.items.sort(key=attrgetter("key"))
    _ignore_rest(added, index, findings)
    findings.notes += _background_notes(read, chosen)
    return findings.as_scan(
        name, places.pictures, classes=classes.names.names, splits=splits, fields=fields
    )


# Where things are.


@dataclass(frozen=True)
class _Places:
    """Where files and pictures are looked for.

    Attributes:
        pictures: Folder of all pictures: the scan's root.
        files: Folder that paths of COCO files are relative to.
        only: Path of the one COCO file, or of the folder of COCO files, relative to `files`.
        root: Folder that the user gave for pictures, relative to `pictures`; None: none given.
    """

    pictures: Path
    files: Path
    only: bytes
    root: bytes | None


def _find_places(raw: Path, options: SourceOptions) -> _Places:
    """Where to look: below the raw folder, and below `options.root` when that lies elsewhere.

    For one COCO file the raw folder is the one that it lies in, or the one above when it is called
    like a folder of annotations.
    """
    folder = raw
    if not raw.is_dir():
        folder = raw.parent
        absolute = Path(os.path.abspath(folder))
        if absolute.name.lower() in ANNOTATION_FOLDERS and absolute.parent != absolute:
            folder = absolute.parent if folder == Path() else Path(os.path.normpath(folder)).parent
    only = _below(raw, folder)
    assert only is not None
    if options.root is None:
        return _Places(folder, folder, only, None)
    root = _below(options.root, folder)
    if root is not None:
        return _Places(folder, folder, only, root)
    from_root = _below(raw, options.root)
    if from_root is not None:
        return _Places(options.root, options.root, from_root, b"")
    return _Places(options.root, folder, only, b"")


def _below(path: Path, folder: Path) -> bytes | None:
    """The path relative to a folder that it lies in, or None when it lies elsewhere."""
    try:
        relative = Path(os.path.abspath(path)).relative_to(os.path.abspath(folder))
    except ValueError:
        return None
    return b"" if relative == Path() else os.fsencode(relative.as_posix())


def _find_files(shown: str, places: _Places, tree: Tree, options: SourceOptions) -> Chosen:
    """The COCO files to read, and an account of all other JSON files."""
    listing = tree
    if places.files != places.pictures:
        listing = walk(places.files, COCO_EXTENSIONS)
    paths = []
    for path in (path for f in listing.folders.values() for path in f.annotation_files):
        if places.only in (b"", path) or path.startswith(places.only + b"/"):
            paths.append(path)
        else:
            tree.findings.ignore(NOT_ASKED_FOR, [path])
    if not paths and (places.files / os.fsdecode(places.only)).is_file():
        paths = [places.only]  # Of another extension, or a hidden name, and asked for all the same.
    files = read_files(places.files, paths, tree.findings.ignored, options.split)
    return choose_files(shown, files, tree.findings.ignored)


def _check_found(shown: str, listed: Sequence[FileImages]) -> None:
    """Stop where no picture at all is found, or no annotation is there."""
    names = ", ".join(file_images.coco_file.name for file_images in listed)
    if not any(file_images.images for file_images in listed):
        rejects = [reject for file_images in listed for reject in file_images.findings.rejects]
        if not rejects:
            raise SourceError(
                f"{shown}: the list images of {names} is empty; expected an entry for each picture."
            )
        raise SourceError(
            f"{shown}: none of the {count_text(len(rejects), 'image')} of {names} can be used. "
            f"{rejects[0].path}: {rejects[0].reason}."
        )
    if not any(file_images.found.found_count for file_images in listed):
        count = sum(len(file_images.images) for file_images in listed)
        folders = dict.fromkeys(f for file_images in listed for f in file_images.folders)
        first = next((readable_path(i.key) for f in listed for i in f.images), "")
        such = f", such as {first}" if first else ""
        raise SourceError(
            f"{shown}: none of the {count_text(count, 'picture')} of {names} is there{such}. "
            f"Looked in {folders_text(folders)}, and for the names alone in all folders. Give the "
            "folder that they lie in with --root, or put them there."
        )
    if not any(len(file_images.coco_file.annotations) for file_images in listed):
        raise SourceError(
            f"{shown}: no annotations in {names}. To pack the pictures unlabelled, give "
            "--format flat."
        )


def _explain_absent(read: Sequence[FileImages]) -> None:
    """Say of the images of a file of which no picture is there that it is so, and what to do.

    It is of a split whose pictures were not fetched, or lie where they were not looked for.
    """
    present = [f for f in read if f.found.found_count]
    splits = sorted({f.split for f in present if f.split is not None})
    names = ", ".join(f.coco_file.name for f in present[:3])
    way = f"give --split {splits[0]}" if len(splits) == 1 else f"give {names} instead of the folder"
    for file_images in read:
        if file_images.found.found_count:
            continue
        count = count_text(len(file_images.images), "picture")
        advice = (
            f"; none of the {count} of {file_images.coco_file.name} is there. Put them there, or "
            f"say with --root where they lie; to take what is there, {way}"
        )
        for image in file_images.images:
            image.problem += advice


def _added_files(listed: Sequence[FileImages]) -> list[FileImages]:
    """Files of keypoints of the same pictures as those of instances."""
    keys = {image.key for f in listed if f.coco_file.kind == "instances" for image in f.images}
    return [
        f
        for f in listed
        if f.coco_file.kind == "keypoints" and any(image.key in keys for image in f.images)
    ]


# What the store holds.


def _read_all_objects(
    read: Sequence[FileImages],
    added: Sequence[FileImages],
    classes: Classes,
    gathered: Gathered,
) -> tuple[Field, ...]:
    """Give images their objects, and return the fields that these have."""
    findings = gathered.findings
    posed = [category for found in classes.by_file.values() for category in found.values()]
    for file_images in added:
        posed += read_categories(file_images.coco_file, findings.notes).values()
    pose = read_pose(posed)
    gathered.point_count = pose.point_count
    stored = {i.key for file_images in read for i in file_images.images if not i.problem}
    points = read_points(added, stored, gathered)
    for file_images in read:
        mark = findings.mark()
        read_objects(file_images, classes, points, gathered)
        findings.tag_split(mark, file_images.split)
    reject_left_points(points, stored, gathered)
    kept = ["boxes", "labels", "area", "iscrowd"]
    kept += ["masks"] if gathered.has_outlines else []
    kept += ["attributes"] if gathered.has_attributes else []
    keypoints = None
    findings.notes += _turned_notes(read, gathered)
    if gathered.has_points and gathered.task != "obb":
        drop_corners(image for file_images in read for image in file_images.images)
        count = gathered.point_count
        names = pose.names if pose.names is not None and len(pose.names) == count else None
        keypoints = keypoint_field(count, names)
        if pose.skeleton:
            findings.choices["skeleton"] = ",".join(
                f"{start}-{end}" for start, end in pose.skeleton
            )
            lines = count_text(len(pose.skeleton), "line")
            findings.notes.append(
                f"keypoints: {count} for each object, with a skeleton of {lines} between points "
                "that count from 1"
            )
    elif stores_corners(gathered.task, gathered.turned_count):
        keypoints = corners_field()
    return object_fields(classes.names.names, tuple(kept), keypoints=keypoints)


def _turned_notes(read: Sequence[FileImages], gathered: Gathered) -> list[str]:
    """What becomes of turned boxes, and of keypoints where their corners are wanted instead."""
    has_points = gathered.has_points and gathered.task != "obb"
    task = "pose" if has_points and gathered.task is None else gathered.task
    count = sum(image.annotation_count for f in read for image in f.images)
    notes = turned_notes(task, gathered.turned_count, count)
    if gathered.points_left_count:
        left = count_text(gathered.points_left_count, "object")
        notes.append(f"task obb, as given: the keypoints of {left} left aside")
    return notes


def _splits(read: Sequence[FileImages], notes: list[str]) -> tuple[str, ...]:
    """Names of the splits, when every file is of one."""
    names = [file_images.split for file_images in read]
    found = [split for split in names if split is not None]
    if len(found) == len(names):
        return ordered_splits(found)
    if len(names) > 1:
        without = ", ".join(f.coco_file.name for f in read if f.split is None)
        notes.append(f"no splits: {without} has the name of none. Rename it, such as to train.json")
    return ()


def _id_field(read: Sequence[FileImages]) -> Field:
    """The field of image ids: numbers, or text when any is not a number of 64 bits."""
    ids = (image.id for file_images in read for image in file_images.images)
    if all(isinstance(i, int) and -(2**63) <= i < 2**63 for i in ids):
        return Field(name="image_id", kind="scalar", dtype="int64")
    return Field(name="image_id", kind="text")


def _item(image: Image, values: dict[str, Any], masks: dict[bytes, RawFile]) -> RawItem:
    picture = image.picture
    assert picture is not None
    return picture_item(
        picture,
        values,
        image.annotations,
        {PANOPTIC_FIELD.name: masks[image.key]} if image.key in masks else {},
    )


# The account.


def _refuse_image(image: Image, split: str | None, findings: Findings) -> None:
    """Refuse an image, which takes its annotations with it."""
    lost = ""
    if image.annotation_count:
        goes = "goes" if image.annotation_count == 1 else "go"
        lost = f"; its {count_text(image.annotation_count, 'annotation')} {goes} with it"
    findings.refuse(image.key, image.problem + lost, image_place(image), split)


def _ignore_rest(added: Iterable[FileImages], index: PictureIndex, findings: Findings) -> None:
    """Count the pictures that no sample is made of."""
    of_keypoints = {image.key for file_images in added for image in file_images.images}
    for picture in index.rest():
        reason = ONLY_KEYPOINTS if picture.path in of_keypoints else NOT_NAMED
        findings.ignore(reason, [picture.path])
    findings.note_ignored(NOT_NAMED, ONLY_KEYPOINTS)


def _background_notes(read: Sequence[FileImages], chosen: Chosen) -> list[str]:
    """How many images have no annotation at all."""
    stored = [i for file_images in read for i in file_images.images if not i.problem]
    empty = sum(not image.annotation_count for image in stored)
    if not empty:
        return []
    what = "without captions" if chosen.kind == "captions" else "without objects, as background"
    return [f"{empty:,} of {count_text(len(stored), 'image')} packed {what}"]
