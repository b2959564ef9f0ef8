"""IDX files, as of MNIST: `train-images-idx3-ubyte` and `train-labels-idx1-ubyte`, .gz or not.

What their bytes are: idx_file.py.
"""

from __future__ import annotations

import os
import re
import zlib
from pathlib import Path

from packer.files.idx import (
    IMAGES_HEADER_BYTES,
    IMAGES_MAX,
    IdxHeader,
    open_idx,
    read_images_header,
    read_labels,
)
from packer.files.start import pointer_reason_of
from packer.items.raw_item import Member, RawFile, RawItem, Scan, only_size
from packer.sources.class_names import ClassNames
from packer.sources.container_files import ContainerFiles, find_container_files, split_of_path
from packer.sources.pairing import split_path
from packer.sources.source import SourceOptions
from packer.sources.splits import ordered_splits, split_field
from packer.wording import names_text, readable_path
from readers.store.schema import Field

name = "idx"

_NAME = re.compile(rb"idx\d[-_.]?ubyte(\.gz)?$|-ubyte(\.gz)?$", re.IGNORECASE)
_IMAGES = re.compile(rb"^(.*)images([-_.])idx3(.*)$", re.IGNORECASE)
_GZIP_RATIO_MAX = 1032
"""How many bytes deflate can make of one, at most: a header that promises more lies."""


def scan(raw: Path, options: SourceOptions) -> Scan:
    """Images and labels of IDX files, in the order of the files' paths and of the images.

    Keys are the file's path without .gz and the number of the image, such as
    `train-images-idx3-ubyte/00017`. `t10k` in a name means the split test.

    Args:
        raw: The folder, or one file of images with its labels beside it.
        options: `classes` names the labels. None calls them "0", "1", ...

    Raises:
        SourceError: There is no file of images.
    """
    found = find_container_files(raw, lambda path: _NAME.search(path) is not None)
    found.ignore_pictures()
    if raw.is_file():
        _add_labels_beside(raw, found)
    by_path = _without_copies(found)
    image_paths = [path for path in by_path if _IMAGES.match(split_path(path)[1])]
    if not image_paths and not found.findings.rejects:
        raise found.findings.nothing(
            raw,
            "no IDX images found",
            "looked for files named like train-images-idx3-ubyte or train-images-idx3-ubyte.gz",
        )
    labels_by_path = {path: _labels_path(path) for path in image_paths}
    is_labelled = any(labels in by_path for labels in labels_by_path.values())
    parts: list[tuple[bytes, RawFile, IdxHeader, bytes]] = []
    for path, labels_path in labels_by_path.items():
        part, problem = _read_pair(by_path, path, labels_path, is_labelled, found)
        if part is not None:
            parts.append((path, by_path[path], *part))
        else:
            file = by_path[path]
            found.findings.refuse(file.path, problem, split=_split(path))
    used = {*labels_by_path, *(labels_by_path.values() if is_labelled else ())}
    unused = (by_path[path].path for path in sorted(by_path.keys() - used))
    found.findings.ignore("IDX file that belongs to no images", unused)

    class_count = 1 + max((max(labels) for *_, labels in parts if labels), default=-1)
    names = options.classes or tuple(str(number) for number in range(class_count))
    classes = ClassNames(names if is_labelled else ())
    split_names = {path: _split(path) for path, *_ in parts}
    has_splits = bool(parts) and None not in split_names.values()
    splits = ordered_splits(s for s in split_names.values() if s) if has_splits else ()
    for path, file, header, labels in parts:
        split = {"split": splits.index(split_names[path] or "")} if splits else {}
        mark = found.findings.mark()
        _add_items(path, file, header, labels, classes, split, found)
        found.findings.tag_split(mark, split_names[path])
    fields = []
    if is_labelled:
        fields.append(Field(name="label", kind="label", dtype="int64", names=classes.names))
    if splits:
        fields.append(split_field(splits))
    notes = found.findings.notes
    if is_labelled and options.classes is None and parts:
        notes.append("the data does not name the classes; to name them, give --classes")
    if not is_labelled:
        notes.append("unlabelled: there is no file of labels (named like train-labels-idx1-ubyte)")
    return found.findings.as_scan(
        name,
        found.root,
        classes=classes.names,
        splits=splits,
        fields=tuple(fields),
        image_size=only_size((header.height, header.width) for _, _, header, _ in parts),
    )


def _without_gz(path: bytes) -> bytes:
    return path[:-3] if path.lower().endswith(b".gz") else path


def _labels_path(images_path: bytes) -> bytes:
    """Path of the labels of a file of images, both without .gz."""
    folder, slash, base = images_path.rpartition(b"/")
    match = _IMAGES.match(base)
    assert match is not None
    start, dash, end = match.groups()
    return folder + slash + start + b"labels" + dash + b"idx1" + end


def _add_labels_beside(raw: Path, found: ContainerFiles) -> None:
    """With one file of images, its labels are read as well."""
    path = _without_gz(os.fsencode(raw.name))
    if not _IMAGES.match(path):
        return
    for labels in (_labels_path(path), _labels_path(path) + b".gz"):
        beside = raw.with_name(os.fsdecode(labels))
        if beside.is_file():
            found.files += find_container_files(beside, lambda _: True).files
            return


def _without_copies(found: ContainerFiles) -> dict[bytes, RawFile]:
    """Files by path without .gz; of a file and its compressed copy, the file."""
    by_path: dict[bytes, RawFile] = {}
    for file in found.files:  # Sorted, so that the copy comes after the file.
        path = _without_gz(file.path)
        if path in by_path:
            found.findings.ignore("compressed copy of a file that is there", [file.path])
        else:
            by_path[path] = file
    return by_path


def _read_pair(
    by_path: dict[bytes, RawFile],
    path: bytes,
    labels_path: bytes,
    is_labelled: bool,
    found: ContainerFiles,
) -> tuple[tuple[IdxHeader, bytes] | None, str]:
    """Header and labels of a file of images, or why they cannot be had."""
    try:
        header = _read_header(by_path[path], found)
    except (ValueError, OSError, EOFError, zlib.error) as error:
        return None, str(error)
    if not is_labelled:
        return (header, b""), ""
    if labels_path not in by_path:
        return None, f"no labels: {readable_path(labels_path)} is not there, with .gz or without"
    try:
        labels = _read_labels(by_path[labels_path], header.image_count, found)
    except (ValueError, OSError, EOFError, zlib.error) as error:
        return None, f"its labels {readable_path(by_path[labels_path].path)}: {error}"
    return (header, labels), ""


def _read_header(file: RawFile, found: ContainerFiles) -> IdxHeader:
    _refuse_pointer(file, found)
    with open(found.full_path(file.path), "rb") as raw:
        stream = open_idx(raw)
        header = read_images_header(stream)
        need = IMAGES_HEADER_BYTES + header.image_count * header.height * header.width
        if stream is raw and need != file.byte_count:
            raise ValueError(
                f"{file.byte_count:,} bytes; expected {need:,} for {header.image_count:,} images "
                f"of {header.width}x{header.height} pixels"
            )
        if need > file.byte_count * _GZIP_RATIO_MAX:
            raise ValueError(
                f"{file.byte_count:,} compressed bytes cannot hold {header.image_count:,} images "
                f"of {header.width}x{header.height} pixels"
            )
        if header.image_count > IMAGES_MAX:
            raise ValueError(f"{header.image_count:,} images; expected at most {IMAGES_MAX:,}")
    return header


def _refuse_pointer(file: RawFile, found: ContainerFiles) -> None:
    """Raise ValueError where Git LFS has not fetched the file."""
    problem = pointer_reason_of(found.full_path(file.path))
    if problem:
        raise ValueError(problem)


def _read_labels(file: RawFile, count: int, found: ContainerFiles) -> bytes:
    _refuse_pointer(file, found)
    with open(found.full_path(file.path), "rb") as raw:
        return read_labels(open_idx(raw), count)


def _split(path: bytes) -> str | None:
    is_test = re.match(rb"t10k\b", split_path(path)[1], re.IGNORECASE) is not None
    return "test" if is_test else split_of_path(path)


def _add_items(
    path: bytes,
    file: RawFile,
    header: IdxHeader,
    labels: bytes,
    classes: ClassNames,
    split: dict[str, int],
    found: ContainerFiles,
) -> None:
    digits = max(5, len(str(header.image_count - 1)))
    # One dict for all images of a label, which nobody changes.
    values = [{"label": label, **split} for label in range(len(classes.names))]
    for number in range(header.image_count):
        key = b"%s/%0*d" % (path, digits, number)
        if labels and labels[number] >= len(values):
            reason = f"label {labels[number]} is not in [0, {len(values)}): {_shown(classes)}"
            place = f"{readable_path(file.path)}, image {number}"
            found.findings.refuse(key, reason, place)
            continue
        found.findings.items.append(
            RawItem(
                key,
                file.path,
                header.height * header.width,
                file.mtime_ns,
                values[labels[number]] if labels else split,
                member=Member("idx", file.byte_count, number),
            )
        )


def _shown(classes: ClassNames) -> str:
    return f"--classes gives {names_text(classes.names)}"
