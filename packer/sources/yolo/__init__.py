"""YOLO: a label file for each picture, with a line an object: boxes, outlines, poses, turned boxes.

What is where:

    layout.py           which pictures, of which splits, with which classes
    forms.py            which of three forms the data has: it finds the layout
      ultralytics.py    a data.yaml and the splits it names
      darknet.py        an obj.data and the lists it names
      bare.py           neither of them
    named_pictures.py   the folders and lists of pictures that these two name
    data_yaml.py        one data.yaml
    paths.py            what the paths in it and in lists mean
    names.py            files of class names
    labels.py           which label file belongs to a picture
    lines.py            one label file -> objects
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import get_args

from packer.errors import SourceError
from packer.files.start import pointer_reason
from packer.files.text import read_bounded
from packer.items.annotations import (
    Annotations,
    keypoint_field,
    object_fields,
    pack_annotations,
)
from packer.items.findings import Findings
from packer.items.raw_item import Scan
from packer.sources.pairing import several_reason, split_path
from packer.sources.picture_item import picture_item
from packer.sources.source import SourceOptions, Task
from packer.sources.splits import split_field
from packer.sources.turned_boxes import corners_field, turned_notes
from packer.sources.walk import NOT_A_PICTURE, Picture
from packer.sources.yolo.forms import find_layout
from packer.sources.yolo.layout import NOT_AMONG_PICTURES, NOT_NAMED, Layout
from packer.sources.yolo.lines import (
    SHARE_MAX,
    UNNAMED_CLASSES_MAX,
    LabelFile,
    LineRules,
    read_label_file,
)
from packer.wording import count_text, names_text, readable_path
from readers.store.schema import Field

name = "yolo"

WITHOUT_PICTURE = "label file without a picture"

CORNER_SHARE = 0.2
"""A share of boxes that stick out which no tool writes, unless its numbers are corners."""

_EMPTY = pack_annotations(Annotations(is_relative=True))
_LABEL_LINE = re.compile(rb"\s*(\d+(\.0*)?(\s+[-+.\deE]+){4,}\s*)?", re.ASCII)


def scan(raw: Path, options: SourceOptions) -> Scan:
    """The pictures of a YOLO data set and the objects in their label files.

    Args:
        raw: Folder of the data, or the data.yaml or obj.data itself.
        options: `task` says what lines are, where they cannot: 9 numbers are a turned box or an
            outline of four points. `classes` names the classes where no file does; where one does,
            objects of other classes are rejected. `root` is the folder of the data where it is not
            beside the data.yaml.

    Raises:
        SourceError: There is no label file; the data.yaml or a list cannot be read or leads
            nowhere; or lines can be read in two ways and no task says which.
    """
    layout = find_layout(raw, options)
    findings = layout.tree.findings
    task, task_note = _task(layout, options)
    rules = _rules(layout, options, task)
    found = _read_all(layout, rules)
    if layout.pictures and not found.label_paths:
        raise _no_labels(raw, layout)
    if _is_undecided(found, rules):
        task, task_note = _task_by_names(layout, found)
        rules = replace(rules, task=task)
        found = _read_all(layout, rules)
    classes = _classes(options, found, rules)
    fields = _fields(layout, found, rules, classes)
    if layout.splits:
        fields = (*fields, split_field(layout.splits))
    findings.add(found.findings)
    findings.notes += task_note
    findings.notes += _found_notes(layout, found, rules)
    _ignore_rest(layout, found)
    findings.choices["yolo_form"] = layout.form
    findings.choices["task"] = _task_read(found, rules)
    data = layout.data_yaml
    if data is not None and data.flip_indices:
        flip = " ".join(map(str, data.flip_indices))
        findings.choices["flip_idx"] = flip
        findings.notes.append(
            f"flip_idx, the points that change places in a mirrored picture: {flip}"
        )
    return findings.as_scan(name, layout.base, classes=classes, splits=layout.splits, fields=fields)


# Before the label files are read.


def _task(layout: Layout, options: SourceOptions) -> tuple[Task | None, list[str]]:
    """What the lines are: as the user says, or the data; None leaves it to the lines."""
    data = layout.data_yaml
    if options.task == "pose" and (data is None or data.keypoint_shape is None):
        shown = readable_path(os.fsencode(layout.base))
        raise SourceError(
            f"{shown}: task 'pose' needs the number of keypoints; found no kpt_shape. "
            "Write it into data.yaml, such as kpt_shape: [17, 3]."
        )
    if options.task is not None:
        return options.task, []
    if data is None:
        return None, []
    for known in get_args(Task):
        if data.task == known and (known != "pose" or data.keypoint_shape is not None):
            return known, [f"task {known}, as data.yaml says"]
    if data.keypoint_shape is not None:
        return "pose", ["task pose, since data.yaml has kpt_shape"]
    return None, []


def _rules(layout: Layout, options: SourceOptions, task: Task | None) -> LineRules:
    data = layout.data_yaml
    names = layout.class_names
    if names is None:
        names = options.classes
    if names is None and data is not None and data.class_count is not None:
        names = tuple(map(str, range(data.class_count)))
    if names is None:
        labels = {b"%d" % number: number for number in range(UNNAMED_CLASSES_MAX)}
    else:
        wanted = {n: label for label, n in enumerate(options.classes or names)}
        labels = {b"%d" % at: wanted[n] for at, n in enumerate(names) if n in wanted}
    return LineRules(
        task=task,
        class_names=names,
        labels=labels,
        keypoint_shape=data.keypoint_shape if data is not None else None,
    )


# The label files.


class _Found:
    """What the label files of a data set hold. They may be read twice, as one task and another.

    `missing` are pictures without a label file, with their split; `empty` those whose label file is
    empty; `widths` tells where the first line of each number of values is.
    """

    def __init__(self) -> None:
        self.findings = Findings()
        self.label_paths: set[bytes] = set()
        self.missing: list[tuple[Picture, int]] = []
        self.empty: list[Picture] = []
        self.object_count = 0
        self.outline_count = 0
        self.more_count = 0
        self.box_count = 0
        self.outside_count = 0
        self.corner_like_count = 0
        self.label_max = -1
        self.widths: dict[int, str] = {}


def _read_all(layout: Layout, rules: LineRules) -> _Found:
    """Read the label file of every picture."""
    found = _Found()
    values: list[dict[str, int]] = [{"split": at} for at in range(len(layout.splits))] or [{}]
    pairs = [
        (picture, split, layout.labels.of_picture(picture.path))
        for picture, split in layout.pictures
    ]
    owners: dict[bytes, list[Picture]] = {}
    for picture, _, paths in pairs:
        if paths:
            owners.setdefault(paths[0], []).append(picture)
    base = os.fsencode(layout.base)
    for picture, split, paths in pairs:
        found.label_paths.update(paths)
        annotations: bytes | str = _EMPTY
        if not paths:
            found.missing.append((picture, split))
        elif len(paths) > 1:
            shown = ", ".join(map(readable_path, paths))
            annotations = f"several label files fit: {shown}; expected one. Remove the others"
        elif len(owners[paths[0]]) > 1:
            rivals = several_reason(owners[paths[0]])
            annotations = f"of its label file {readable_path(paths[0])}, {rivals}"
        else:
            annotations = _read_one(base, picture, paths[0], rules, found)
        if isinstance(annotations, str):
            name_of_split = layout.splits[split] if layout.splits else ""
            found.findings.refuse(picture.path, annotations, split=name_of_split)
            continue
        found.findings.items.append(picture_item(picture, values[split], annotations))
    return found


def _read_one(
    base: bytes, picture: Picture, path: bytes, rules: LineRules, found: _Found
) -> bytes | str:
    """The packed objects of a picture, or why they cannot be known."""
    place = readable_path(path)
    try:
        data = read_bounded(os.path.join(base, path))
    except OSError as error:
        return f"its label file {place} cannot be read: {error.strerror}"
    except ValueError as error:
        return f"its label file {place} has {error}"
    if pointer_reason(data):
        return f"its label file {place}: {pointer_reason(data)}"
    if b"\0" in data:
        return f"its label file {place} is not text (or UTF-16). Save it as UTF-8"
    read = read_label_file(data, place, rules)
    if not read.objects and not read.rejects:
        found.empty.append(picture)
        return _EMPTY
    _count(read, place, found)
    for line, reason in read.rejects:
        found.findings.refuse_annotation(picture.path, reason, f"{place}, line {line}")
    for line, part, reason in read.lost_parts:
        where = f"{place}, line {line}, {part}"
        found.findings.refuse_annotation(picture.path, reason, where, part)
    return pack_annotations(Annotations(objects=tuple(read.objects), is_relative=True))


def _count(read: LabelFile, place: str, found: _Found) -> None:
    for made in read.objects:
        found.label_max = max(found.label_max, made.label)
        found.outline_count += bool(made.polygons)
        if made.box is not None:
            x0, y0, x1, y1 = made.box
            found.box_count += 1
            found.outside_count += x0 < -0.01 or y0 < -0.01 or x1 > SHARE_MAX or y1 > SHARE_MAX
            # As corners: the third number is over the first, the fourth over the second.
            found.corner_like_count += x1 - x0 > (x0 + x1) / 2 and y1 - y0 > (y0 + y1) / 2
    found.object_count += len(read.objects)
    found.more_count += sum(count for width, count in read.counts.items() if width > 5)
    for width, (line, text) in read.widths.items():
        found.widths.setdefault(width, f"{place}, line {line}: {text!r}")


# After the label files were read.


def _is_undecided(found: _Found, rules: LineRules) -> bool:
    """Whether lines of 9 numbers can be turned boxes or outlines.

    An outline of another number of points proves that the set is one of outlines: in a set of
    turned boxes every line has 9.
    """
    return rules.task is None and 9 in found.widths and not found.widths.keys() - {5, 9}


def _task_by_names(layout: Layout, found: _Found) -> tuple[Task, list[str]]:
    """What lines of 9 numbers are, by the names of data.yaml and of the folders of labels."""
    data = layout.data_yaml
    folders = {split_path(path)[0] for path in found.label_paths}
    names = [*map(readable_path, sorted(folders)), *([data.place, data.root] if data else [])]
    for said in names:
        # The last two parts: the folder of all data sets may be called obb as well.
        end = "/".join(said.lower().split("/")[-2:])
        if re.search(r"(?<![a-z])obb(?![a-z])", end):
            return "obb", [f"9 values a line are turned boxes, as the name {said} says"]
    raise SourceError(
        f"{found.widths[9]}: 9 values are a turned box (class and four corners) or an outline of "
        "four points, and nothing in the data says which. Give --task obb for turned boxes, "
        "--task segment for outlines, or --task detect for the upright boxes around them."
    )


def _no_labels(raw: Path, layout: Layout) -> SourceError:
    """Pictures without one label file are no detection data, but a wrong path."""
    shown = readable_path(os.fsencode(raw))
    for path in layout.tree.folders:
        if path.split(b"/")[-1].lower() == b"labeltxt":
            return SourceError(
                f"{shown}: the labels are in {readable_path(path)}/, which is DOTA's form: corners "
                "in pixels and a class by name. Give --format dota."
            )
    first = layout.pictures[0][0].path
    return layout.tree.findings.nothing(
        raw,
        f"{count_text(len(layout.pictures), 'picture')} and no label file",
        f"of {readable_path(first)} it should be "
        f"{readable_path(layout.labels.expected_path(first))}. Check the paths, or give --format "
        "flat to pack the pictures unlabelled",
    )


def _classes(options: SourceOptions, found: _Found, rules: LineRules) -> tuple[str, ...]:
    if options.classes is not None:
        return options.classes
    if rules.class_names is not None:
        return rules.class_names
    return tuple(map(str, range(found.label_max + 1)))


def _fields(
    layout: Layout, found: _Found, rules: LineRules, classes: tuple[str, ...]
) -> tuple[Field, ...]:
    if rules.task == "obb":
        return object_fields(classes, keypoints=corners_field())
    if rules.task == "pose":
        data = layout.data_yaml
        assert data is not None
        assert data.keypoint_shape is not None
        point_count, size = data.keypoint_shape
        points = keypoint_field(point_count, data.keypoint_names, has_visibility=size == 3)
        return object_fields(classes, keypoints=points)
    if rules.task == "segment" or found.outline_count:
        return object_fields(classes, ("boxes", "labels", "masks"))
    return object_fields(classes)


def _task_read(found: _Found, rules: LineRules) -> str:
    """What annotations were made of the lines."""
    if rules.task is not None or not found.outline_count:
        return rules.task or "detect"
    return "segment" if found.outline_count == found.object_count else "detect and segment"


def _found_notes(layout: Layout, found: _Found, rules: LineRules) -> list[str]:
    notes = []
    if found.missing:
        shown = _some(picture.path for picture, _ in found.missing)
        notes.append(
            f"no label file: {count_text(len(found.missing), 'picture')}, taken as background: "
            f"{shown}"
        )
    for at, split in enumerate(layout.splits):
        count = sum(where == at for _, where in layout.pictures)
        if count and count == sum(where == at for _, where in found.missing):
            notes.append(f"split {split} has no label file at all: nothing is known of its objects")
    if found.empty:
        shown = _some(picture.path for picture in found.empty)
        notes.append(
            f"empty label file: {count_text(len(found.empty), 'picture')}, taken as background: "
            f"{shown}"
        )
    if rules.task == "detect" and found.more_count:
        notes.append(
            f"task detect: {count_text(found.more_count, 'outline')}, turned boxes or sets of "
            "keypoints left aside; the upright boxes of their objects are packed"
        )
    if rules.task == "obb" and found.box_count:
        turned_count = found.object_count - found.box_count
        notes += turned_notes("obb", turned_count, found.object_count)
    is_odd = found.outside_count >= CORNER_SHARE * found.box_count
    if found.box_count > 1 and found.corner_like_count == found.box_count and is_odd:
        notes.append(
            f"{found.outside_count:,} of {count_text(found.box_count, 'box')} stick out of their "
            "pictures, and the numbers of all would fit as x0, y0, x1, y1: check that they are x "
            "centre, y centre, width, height"
        )
    if rules.task is None and found.outline_count:
        box_count = found.object_count - found.outline_count
        if box_count:
            notes.append(
                f"boxes and outlines: {count_text(found.outline_count, 'outline')}, whose bounds "
                f"are their boxes, and {count_text(box_count, 'box')} without an outline. "
                "--task detect takes boxes alone, --task segment outlines alone"
            )
        if 9 in found.widths:
            other = found.widths[min(found.widths.keys() - {5, 9})]
            notes.append(
                f"lines of 9 values are outlines of four points, since others are outlines: {other}"
            )
    return notes


def _ignore_rest(layout: Layout, found: _Found) -> None:
    """Account for the files that were not used."""
    findings = layout.tree.findings
    reason = NOT_AMONG_PICTURES if layout.form == "bare" else NOT_NAMED
    findings.ignore(reason, (picture.path for picture in layout.index.rest()))
    read_paths = found.label_paths | layout.used
    base = os.fsencode(layout.base)
    for folder in layout.tree.folders.values():
        for path in folder.annotation_files:
            if path not in read_paths:
                is_label = path.lower().endswith(b".txt") and _is_label_file(base, path)
                findings.ignore(WITHOUT_PICTURE if is_label else NOT_A_PICTURE, [path])
    findings.note_ignored(reason)
    findings.note_ignored(WITHOUT_PICTURE, noun="file")


def _is_label_file(base: bytes, path: bytes) -> bool:
    """Whether a text file starts like labels, or is empty; others are documents."""
    try:
        with open(os.path.join(base, path), "rb") as file:
            head = file.read(4096)
    except OSError:
        return False
    return _LABEL_LINE.fullmatch(head.partition(b"\n")[0]) is not None


def _some(paths: Iterable[bytes]) -> str:
    return names_text(map(readable_path, paths))
