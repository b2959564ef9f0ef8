"""Zip archives of pictures, read in place: in class folders, in split folders, or alone."""

from __future__ import annotations

import os
import re
import stat
import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path

from packer.errors import SourceError
from packer.sources.class_names import ClassNames, class_names
from packer.sources.container_files import (
    ContainerFiles,
    find_container_files,
    member_problem,
    splits_of_paths,
)
from packer.sources.file_start import pointer_reason_of
from packer.sources.items import Member, RawFile, RawItem, Reject, Scan
from packer.sources.pairing import stem_of
from packer.sources.source import SourceOptions
from packer.sources.splits import are_all_splits, ordered_splits, split_field
from packer.sources.walk import NOT_A_PICTURE, is_picture_name, readable_path, skip_reason
from packer.wording import count_text, names_text
from readers.store.schema import Field

name = "zip"

_ENCRYPTED = 0x1
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ANNOTATIONS = re.compile(
    rb"\.(json|jsonl|xml|csv|tsv|ya?ml|parquet|mat|npy|npz|txt)$", re.IGNORECASE
)
_PROSE = re.compile(rb"(readme|licen[cs]e|copying|notice|changelog|authors)", re.IGNORECASE)
_MASK_FOLDERS = frozenset(
    b"masks mask labels label annotations annotation annots gt groundtruth ground_truth gtfine "
    b"segmentation segmentations segmentationclass segmentationobject".split()
)
_ERRORS = (
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    NotImplementedError,
    OSError,
    EOFError,
    ValueError,
    OverflowError,
    LookupError,
    struct.error,
    MemoryError,
)


@dataclass
class _Picture:
    """A picture in an archive."""

    archive: RawFile
    key: bytes
    folders: tuple[bytes, ...]
    position: int
    byte_count: int


def scan(raw: Path, options: SourceOptions) -> Scan:
    """Pictures in zip archives, in the order of their keys.

    Folders in the archives are read as they are on a disk: classes if every picture lies in a
    folder and there are two or more, below splits where all the first folders are named like
    splits. A folder around all the rest of an archive is passed over. Without folders, the names of
    the archives may speak of splits.

    Args:
        raw: One archive, or a folder with archives at any depth.
        options: `classes` decides the labels of the folders. Under format="zip", archives that
            hold annotation files as well are read for their pictures alone.

    Raises:
        SourceError: There is no archive, or archives hold annotation files or folders of masks,
            which this source would drop.
    """
    found = find_container_files(raw, lambda path: path.lower().endswith(b".zip"))
    found.ignore_pictures()
    if not found.files and not found.rejects:
        raise SourceError(
            f"{readable_path(os.fsencode(raw))}: no zip archive found; looked for .zip in this "
            "folder and all folders below."
        )
    pictures: list[_Picture] = []
    annotation_files: list[str] = []
    for file in found.files:
        pictures += _read_archive(file, found, annotation_files)
    notes = _annotation_notes(raw, pictures, annotation_files, options)
    pictures.sort(key=lambda picture: picture.key)

    splits_by_picture, class_depth, folder_notes = _layout(pictures)
    notes += folder_notes
    classes: ClassNames | None = None
    if class_depth is not None:
        texts = (readable_path(picture.folders[class_depth]) for picture in pictures)
        classes = class_names(texts, options.classes)
    splits = ordered_splits(splits_by_picture.values())
    items = []
    for picture in pictures:
        values = {}
        if classes is not None:
            assert class_depth is not None
            class_name = readable_path(picture.folders[class_depth])
            label = classes.label(class_name)
            if label is None:
                reason = classes.unknown_reason(class_name)
                shown = readable_path(picture.key)
                found.rejects.append(Reject(key=picture.key, path=shown, reason=reason))
                continue
            values["label"] = label
        if splits:
            values["split"] = splits.index(splits_by_picture[picture.key])
        archive = picture.archive
        items.append(
            RawItem(
                picture.key,
                archive.path,
                picture.byte_count,
                archive.mtime_ns,
                values,
                member=Member("zip", archive.byte_count, picture.position),
            )
        )
    fields = []
    if classes is not None:
        fields.append(Field(name="label", kind="label", dtype="int64", names=classes.names))
    if splits:
        fields.append(split_field(splits))
    return Scan(
        format=name,
        root=found.root,
        items=items,
        classes=classes.names if classes is not None else (),
        splits=splits,
        fields=tuple(fields),
        rejects=found.rejects,
        ignored=found.ignored,
        notes=notes,
    )


def _read_archive(
    file: RawFile, found: ContainerFiles, annotation_files: list[str]
) -> list[_Picture]:
    """The pictures of one archive, from its directory; all other members are accounted for."""
    shown = readable_path(file.path)
    try:
        with zipfile.ZipFile(found.full_path(file.path)) as archive:
            members = archive.infolist()
    except _ERRORS as error:
        reason = pointer_reason_of(found.full_path(file.path)) or (
            f"the archive's directory cannot be read: {error}. Get the archive anew"
        )
        found.rejects.append(Reject(key=file.path, path=shown, reason=reason))
        return []
    pictures: dict[bytes, _Picture] = {}
    for info in members:
        if info.is_dir():
            continue
        written = info.filename.encode("utf-8", "surrogateescape")
        parts = [part for part in written.split(b"/") if part not in (b"", b".")]
        path = b"/".join(parts)
        place = f"{shown}, member {readable_path(written)}"
        # ".." begins with a dot, but is no hidden name: it is refused below.
        skipped = next(filter(None, (skip_reason(part) for part in parts if part != b"..")), None)
        if skipped is not None:
            found.ignored.add(skipped, place)
            continue
        if not is_picture_name(path):
            found.ignored.add(NOT_A_PICTURE, place)
            if _ANNOTATIONS.search(path) and not _PROSE.match(parts[-1]):
                annotation_files.append(place)
            continue
        key = stem_of(file.path) + b"/" + path
        problem = _problem(info, written, parts)
        if not problem and key in pictures:
            problem = "the archive has two members of this name; the first was taken"
        if problem:
            found.rejects.append(Reject(key=key, path=place, reason=problem))
            continue
        folders = tuple(parts[:-1])
        pictures[key] = _Picture(file, key, folders, info.header_offset, info.file_size)
    wrappers = _wrapper_count([picture.folders for picture in pictures.values()])
    for picture in pictures.values():
        picture.folders = picture.folders[wrappers:]
    return list(pictures.values())


def _problem(info: zipfile.ZipInfo, written: bytes, parts: list[bytes]) -> str:
    if info.flag_bits & _ENCRYPTED:
        return "encrypted; expected a member without a password. Unpack the archive"
    if info.compress_type not in _METHODS:
        return (
            f"compressed by method {info.compress_type} of zip; expected stored or deflated. "
            "Unpack the archive"
        )
    if stat.S_ISLNK(info.external_attr >> 16):
        return "a link; expected a file"
    return member_problem(written, parts, info.file_size)


def _wrapper_count(all_folders: list[tuple[bytes, ...]]) -> int:
    """How many folders lie around everything; one that is named like a split is none of them."""
    count = 0
    for level in zip(*all_folders, strict=False):  # As deep as the flattest picture.
        if len(set(level)) > 1 or are_all_splits(level[:1]):
            break
        count += 1
    return count


def _layout(pictures: list[_Picture]) -> tuple[dict[bytes, str], int | None, list[str]]:
    """(split of each key, position of the class in the folders or None, notes)."""
    tops = {picture.folders[0] for picture in pictures if picture.folders}
    all_in_folders = bool(pictures) and all(picture.folders for picture in pictures)
    splits: dict[bytes, str] = {}
    notes: list[str] = []
    depth = 0
    if all_in_folders and are_all_splits(tops):
        splits = {picture.key: readable_path(picture.folders[0]) for picture in pictures}
        depth = 1
    else:
        by_path, notes = splits_of_paths({picture.archive.path: None for picture in pictures})
        splits = {p.key: by_path[p.archive.path] for p in pictures if by_path}
    class_folders = {p.folders[depth] for p in pictures if len(p.folders) > depth}
    if pictures and all(len(picture.folders) > depth for picture in pictures):
        if len(class_folders) > 1:
            return splits, depth, notes
    elif class_folders:
        count = sum(len(picture.folders) <= depth for picture in pictures)
        notes.append(
            f"unlabelled: {count_text(count, 'picture')} of {len(pictures):,} lie in no class "
            "folder, so that folders were not taken for classes"
        )
    return splits, None, notes


def _annotation_notes(
    raw: Path, pictures: list[_Picture], annotation_files: list[str], options: SourceOptions
) -> list[str]:
    """A note on annotations that are left aside, which only a user may decide.

    Raises:
        SourceError: There are some, and the format was not asked for.
    """
    seen = [f"annotation files ({names_text(annotation_files)})"] if annotation_files else []
    masks = sorted({f for p in pictures for f in p.folders if f.lower() in _MASK_FOLDERS})
    if masks:
        seen.append(f"folders of masks or labels ({names_text(map(readable_path, masks))})")
    if not seen:
        return []
    if options.format != name:
        raise SourceError(
            f"{readable_path(os.fsencode(raw))}: the archives hold {' and '.join(seen)} beside "
            "pictures, and only pictures are read inside of an archive. Unpack it and give the "
            "folder, or give --format zip to pack the pictures without them."
        )
    return [f"not read: {' and '.join(seen)}; unpack the archive to have them read"]
