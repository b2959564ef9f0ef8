"""WIDER FACE: one list a split, `wider_face_split/wider_face_train_bbx_gt.txt`.

    0--Parade/0_Parade_marchingband_1_849.jpg    picture, under WIDER_train/images/
    1                                            how many faces follow
    449 330 122 149 0 0 0 0 0 0                  x, y, width, height and six attributes

A picture without a face has the count 0 and one line of zeros all the same.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from packer.errors import SourceError
from packer.files.text import read_listing
from packer.items.annotations import Annotations, RawObject, object_fields, pack_annotations
from packer.items.findings import Findings
from packer.items.raw_item import Scan
from packer.sources.only_split import is_other_split
from packer.sources.pairing import PictureIndex, split_path
from packer.sources.picture_item import picture_item
from packer.sources.source import SourceOptions
from packer.sources.splits import ordered_splits, split_field
from packer.sources.text_values import number_problem, read_numbers, separator_problem
from packer.sources.walk import NOT_A_PICTURE, Picture, Tree, is_picture_name, walk
from packer.wording import count_text, readable_path

name = "wider"

ATTRIBUTES = ("blur", "expression", "illumination", "invalid", "occlusion", "pose")
CLASS_NAME = "face"
NOT_NAMED = "not named by the annotations"

_LIST_NAME = re.compile(rb"wider_face_(.+)_bbx_gt\.txt", re.IGNORECASE)


class Block(NamedTuple):
    """What a list says about one picture.

    Attributes:
        line: Of the picture's path, from 1.
        path: As written.
        rest: (line, text) of all lines up to the next picture.
    """

    line: int
    path: bytes
    rest: list[tuple[int, bytes]]


def scan(raw: Path, options: SourceOptions) -> Scan:
    """The pictures that the lists name and their faces; blur, pose and so on are `attributes`.

    Args:
        raw: Folder that holds `wider_face_split/` and the folders of pictures.
        options: `classes` of one name calls the class otherwise than "face".

    Raises:
        SourceError: There is no list, two are of one split, or one cannot be read.
    """
    tree = walk(raw, (b".txt",))
    index = PictureIndex(tree)
    lists = _lists(raw, tree)
    classes = _classes(options)
    splits = ordered_splits(lists)
    found = tree.findings
    empty_count = 0
    for split in splits:
        values = {"split": splits.index(split)}
        mark = found.mark()
        try:
            for block in read_blocks(raw, lists[split]):
                empty_count += _add(block, lists[split], split, values, index, found)
        except SourceError as error:
            if not is_other_split(split, options.split):
                raise
            found.refuse(b"", str(error), readable_path(lists[split]))
        found.tag_split(mark, split)
    if empty_count:
        found.notes.append(f"without a face: {count_text(empty_count, 'picture')}")
    found.ignore(NOT_NAMED, (picture.path for picture in index.rest()))
    found.note_ignored(NOT_NAMED)
    files = (path for folder in tree.folders.values() for path in folder.annotation_files)
    found.ignore(NOT_A_PICTURE, (path for path in files if path not in lists.values()))
    return found.as_scan(
        name,
        raw,
        classes=classes,
        splits=splits,
        fields=(
            *object_fields(classes, ("boxes", "labels", "attributes")),
            split_field(splits),
        ),
    )


def read_blocks(raw: Path, path: bytes) -> Iterator[Block]:
    """The lines of a list, by picture: a line that is named like a picture begins a new one.

    Counts are not relied upon here, so that one that is wrong costs one picture and not all the
    pictures after it.

    Raises:
        SourceError: The list cannot be read, or does not begin with a picture.
    """
    shown = readable_path(path)
    data = read_listing(os.path.join(os.fsencode(raw), path), shown)
    block: Block | None = None
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").splitlines(), 1):
        text = line.strip()
        if is_picture_name(text):
            if block is not None:
                yield block
            block = Block(number, text, [])
        elif text and block is None:
            found = text[:40].decode("ascii", "backslashreplace")
            raise SourceError(
                f"{shown}, line {number}: found {found!r}; expected the path of a picture."
            )
        elif text and block is not None:
            block.rest.append((number, text))
    if block is not None:
        yield block


def _lists(raw: Path, tree: Tree) -> dict[str, bytes]:
    """The list of each split."""
    lists: dict[str, bytes] = {}
    for folder in tree.folders.values():
        for path in folder.annotation_files:
            match = _LIST_NAME.fullmatch(split_path(path)[1])
            if match is None:
                continue
            split = readable_path(match[1])
            if split in lists:
                raise SourceError(
                    f"{readable_path(os.fsencode(raw))}: {readable_path(lists[split])} and "
                    f"{readable_path(path)} are both lists of split {split!r}. Remove one."
                )
            lists[split] = path
    if not lists:
        raise tree.findings.nothing(
            raw,
            "no list of faces",
            "expected wider_face_split/wider_face_train_bbx_gt.txt or the like. Give the folder "
            "above it",
        )
    return lists


def _classes(options: SourceOptions) -> tuple[str, ...]:
    if options.classes is not None and len(options.classes) != 1:
        raise SourceError(
            f"WIDER FACE has one class, {CLASS_NAME!r}; --classes names {len(options.classes)}. "
            "Give one name, or none."
        )
    return options.classes or (CLASS_NAME,)


def _add(
    block: Block,
    list_path: bytes,
    split: str,
    values: dict[str, int],
    index: PictureIndex,
    found: Findings,
) -> bool:
    """Add the item of a picture, or its reject; and say whether it is packed without a face."""
    list_shown = readable_path(list_path)
    picture = _picture(block.path, list_path, split, index)
    place = f"{list_shown}, line {block.line}"
    faces = _face_lines(block)
    problem = ""
    if picture is None:
        shown = readable_path(block.path)
        problem = f"there is no picture {shown!r}; looked under WIDER_{split}/images/"
    elif index.is_taken(picture):
        problem = f"{readable_path(picture.path)} is listed twice"
    elif isinstance(faces, str):
        problem = faces
        index.take(picture)
    if problem:
        found.refuse(picture.path if picture is not None else b"", problem, place)
        return False
    assert picture is not None
    assert not isinstance(faces, str)
    index.take(picture)
    objects = []
    for number, text in faces:
        face_place = f"{list_shown}, line {number}"
        lost: list[tuple[str, str]] = []
        made = parse_face(text.split(), face_place, lost)
        for part, reason in lost:
            found.refuse_annotation(picture.path, reason, f"{face_place}, {part}", part)
        if isinstance(made, str):
            found.refuse_annotation(picture.path, made, face_place)
        else:
            objects.append(made)
    annotations = pack_annotations(Annotations(objects=tuple(objects)))
    found.items.append(picture_item(picture, values, annotations))
    return not faces


def _picture(path: bytes, list_path: bytes, split: str, index: PictureIndex) -> Picture | None:
    """The picture of a path in a list."""
    lists = split_path(list_path)[0]
    above = split_path(lists)[0]
    wider = b"WIDER_" + os.fsencode(split)
    for start in (above, lists):
        for folder in (wider + b"/images", wider, b"images", b""):
            picture = index.at(b"/".join((start, folder, path)))
            if picture is not None:
                return picture
    return None


def _face_lines(block: Block) -> list[tuple[int, bytes]] | str:
    """The lines of a picture's faces, or why they cannot be told."""
    if not block.rest:
        return "no number of faces follows"
    number, text = block.rest[0]
    if not re.fullmatch(rb"\d{1,7}", text):
        shown = text[:40].decode("ascii", "backslashreplace")
        return f"line {number} is {shown!r}; expected the number of faces"
    count, lines = int(text), block.rest[1:]
    if count == 0 and all(set(line.split()) <= {b"0"} for _, line in lines):
        return []
    if count != len(lines):
        return f"{count_text(count, 'face')} announced, but {count_text(len(lines), 'line')} follow"
    return lines


def parse_face(
    values: list[bytes], place: str, lost_parts: list[tuple[str, str]]
) -> RawObject | str:
    """The object of a line, or why it is none; attributes that cannot be used are left out of it.

    Args:
        values: The line's values.
        place: What reports call it.
        lost_parts: Takes (part, reason) of what is left out.
    """
    problem = separator_problem(values, lambda count: count == 4 + len(ATTRIBUTES))
    if problem:
        return problem
    if len(values) != 4 + len(ATTRIBUTES):
        return f"{len(values)} values; expected 10: x, y, width, height, {', '.join(ATTRIBUTES)}"
    box = read_numbers(values[:4], 1)
    if isinstance(box, str):
        return box
    x, y, width, height = box
    attributes = {}
    for at, (key, value) in enumerate(zip(ATTRIBUTES, values[4:], strict=True), 5):
        numbers = read_numbers([value], at)
        if isinstance(numbers, str):
            reason = f"{key}: {number_problem(value, at)}. It is left out"
            lost_parts.append(("attributes", reason))
        else:
            (number,) = numbers
            attributes[key] = int(number) if number.is_integer() else number
    return RawObject(place=place, label=0, box=(x, y, x + width, y + height), attributes=attributes)
