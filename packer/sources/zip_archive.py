"""Zip archives of pictures, read in place: in class folders, in split folders, or alone."""

from __future__ import annotations

import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Collection
from pathlib import Path

from packer.files.start import pointer_reason_of
from packer.items.raw_item import RawFile, Scan
from packer.sources.archive_folders import (
    Picture,
    mask_folders_text,
    pack,
    read_layout,
)
from packer.sources.beside import (
    Unread,
    files_beside,
    is_annotation_name,
    is_nested,
    name_pictures,
)
from packer.sources.container_files import (
    ContainerFiles,
    find_container_files,
    member_parts,
    member_problem,
    split_of_path,
)
from packer.sources.detection.look import HEAD_BYTES
from packer.sources.detection.unread import says_nothing_by_name
from packer.sources.pairing import stem_of
from packer.sources.source import SourceOptions
from packer.sources.walk import NOT_A_PICTURE, is_picture_name, skip_reason
from packer.wording import names_text, readable_path

name = "zip"

_ENCRYPTED = 0x1
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_LOOKED_INTO_MAX = 20
_UTF_8 = 0x800
_FOLDER_ATTRIBUTE = 0x10
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


def scan(raw: Path, options: SourceOptions) -> Scan:
    """Pictures in zip archives, in the order of their keys.

    Folders in the archives are read as they are on a disk: classes, below splits where all the
    first folders are named like splits. A folder around all the rest of an archive is passed over.
    Without folders, the names of the archives may speak of splits. Folders that hold parts of
    samples are no classes, nor those that name none, and one class alone is not taken for any.

    Args:
        raw: One archive, or a folder with archives at any depth.
        options: `classes` decides the labels of the folders. Under format="zip", archives that
            hold annotation files or parts of samples are read for their pictures alone.

    Raises:
        SourceError: There is no archive, or archives hold annotation files, folders of masks or
            other parts of samples, which this source would drop.
    """
    found = find_container_files(raw, lambda path: path.lower().endswith(b".zip"))
    found.ignore_pictures()
    if not found.files and not found.findings.rejects:
        raise found.findings.nothing(
            raw,
            "no zip archive found",
            "looked for .zip in this folder and all folders below",
        )
    pictures: list[Picture] = []
    annotation_files: list[str] = []
    nested: list[str] = []
    for file in found.files:
        mark = found.findings.mark()
        pictures += _read_archive(file, found, annotation_files, nested)
        # A broken archive is of the split that its name speaks of; folders in it say it better.
        if any(reject.key == file.path for reject in found.findings.rejects[mark[0] :]):
            found.findings.tag_split(mark, split_of_path(file.path))
    inside = _inside(pictures, annotation_files, nested)
    pictures.sort(key=lambda picture: picture.key)

    layout = read_layout(os.fsencode(found.root), pictures, lambda _: "zip", options.classes)
    members = (picture.key for picture in pictures)
    beside, other = files_beside(found, members, are_labelled=bool(layout.classes))
    archive_paths = (file.path for file in found.files)
    unread = Unread(inside=inside, layout=layout.parts, beside=beside, other=other)
    found.findings.notes += unread.notes(raw, archive_paths, options, name)
    return pack(name, found, layout, pictures, lambda _: "zip", options.classes)


def _read_archive(
    file: RawFile, found: ContainerFiles, annotation_files: list[str], nested: list[str]
) -> list[Picture]:
    """The pictures of one archive, from its directory; all other members are accounted for."""
    shown = readable_path(file.path)
    try:
        with zipfile.ZipFile(found.full_path(file.path)) as archive:
            members = archive.infolist()
    except _ERRORS as error:
        reason = pointer_reason_of(found.full_path(file.path)) or (
            f"the archive's directory cannot be read: {error}. Get the archive anew"
        )
        found.findings.refuse(file.path, reason)
        return []
    pictures: dict[bytes, Picture] = {}
    others: list[zipfile.ZipInfo] = []
    for info in members:
        written = _written(info)
        if _is_folder(info, written):
            continue
        parts = member_parts(written)
        path = b"/".join(parts)
        place = f"{shown}, member {readable_path(written)}"
        # ".." begins with a dot, but is no hidden name: it is refused below.
        skipped = next(filter(None, (skip_reason(part) for part in parts if part != b"..")), None)
        if skipped is not None:
            found.findings.ignored.add(skipped, place)
            continue
        if not is_picture_name(path):
            found.findings.ignored.add(NOT_A_PICTURE, place)
            if is_nested(path):
                nested.append(place)
            elif is_annotation_name(path):
                annotation_files.append(place)
            elif parts and not says_nothing_by_name(parts[-1]):
                others.append(info)
            continue
        key = stem_of(file.path) + b"/" + path
        problem = _problem(info, written, parts)
        if not problem and key in pictures:
            problem = "the archive has two members of this name; the first was taken"
        if problem:
            found.findings.refuse(key, problem, place)
            continue
        folders = tuple(parts[:-1])
        pictures[key] = Picture(file, key, folders, info.header_offset, info.file_size)
    annotation_files += _naming(file, found, others, pictures)
    return list(pictures.values())


def _naming(
    file: RawFile,
    found: ContainerFiles,
    others: list[zipfile.ZipInfo],
    pictures: Collection[bytes],
) -> list[str]:
    """Members of no known extension that name pictures of the archive."""
    naming: list[str] = []
    if not others:
        return naming
    with zipfile.ZipFile(found.full_path(file.path)) as archive:
        for info in others[:_LOOKED_INTO_MAX]:
            try:
                with archive.open(info) as member:
                    head = member.read(HEAD_BYTES)
            except (*_ERRORS, RuntimeError, zlib.error):
                continue  # Encrypted or damaged, and counted.
            if b"\0" not in head and name_pictures(head.splitlines(), pictures):
                naming.append(f"{readable_path(file.path)}, member {info.filename}")
    return naming


def _written(info: zipfile.ZipInfo) -> bytes:
    """The path of a member as the archive has it.

    Names that the archive does not declare as UTF-8 are in the code page of whoever made it, which
    is not told: IBM's 437 by the standard, and UTF-8 all the same by the tools of macOS and Linux.
    """
    if not info.flag_bits & _UTF_8 and not info.filename.isascii():
        try:
            raw = info.filename.encode("cp437")
            raw.decode("utf-8")
            return raw
        except UnicodeError:
            pass
    return info.filename.encode("utf-8", "surrogateescape")


def _is_folder(info: zipfile.ZipInfo, written: bytes) -> bool:
    """Whether a member is a folder, which tools of Windows may say in their own way."""
    if written.endswith((b"/", b"\\")):
        return True
    return bool(info.external_attr & _FOLDER_ATTRIBUTE) and not info.file_size


def _problem(info: zipfile.ZipInfo, written: bytes, parts: list[bytes]) -> str:
    if info.flag_bits & _ENCRYPTED:
        return "encrypted; expected a member without a password. Unpack the archive"
    if info.compress_type not in _METHODS:
        return (
            f"compressed by method {info.compress_type} of zip; expected stored or deflated. "
            "Unpack the archive"
        )
    if stat.S_ISLNK(info.external_attr >> 16):
        return "a link; expected a file. Make the archive with zip without --symlinks"
    return member_problem(written, parts, info.file_size)


def _inside(
    pictures: list[Picture],
    annotation_files: list[str],
    nested: list[str],
) -> list[str]:
    """What archives hold beside pictures to be packed."""
    seen = [f"annotation files ({names_text(annotation_files)})"] if annotation_files else []
    masks = mask_folders_text(pictures)
    if masks:
        seen.append(masks)
    return [*seen, f"archives ({names_text(nested)})"] if nested else seen
