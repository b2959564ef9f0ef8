"""Zip archives of pictures, read in place: in class folders, in split folders, or alone."""

from __future__ import annotations

import os
import stat
import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path

from packer.errors import SourceError
from packer.files.start import pointer_reason_of
from packer.items.raw_item import Member, RawFile, RawItem, Reject, Scan, tag_split
from packer.sources.beside import (
    ANNOTATION_NAME,
    PROSE_NAME,
    Unread,
    files_beside,
    is_nested,
)
from packer.sources.class_names import ClassNames, class_names
from packer.sources.container_files import (
    ContainerFiles,
    find_container_files,
    member_parts,
    member_problem,
    split_of_path,
    splits_of_paths,
)
from packer.sources.masks.names import role_of
from packer.sources.pairing import split_path, stem_of
from packer.sources.source import SourceOptions
from packer.sources.splits import are_all_splits, ordered_splits, split_field
from packer.sources.walk import NOT_A_PICTURE, is_picture_name, skip_reason
from packer.wording import count_text, names_text, readable_path
from readers.store.schema import Field

name = "zip"

_ENCRYPTED = 0x1
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_MASK_FOLDERS = frozenset(
    b"masks mask labels label annotations annotation annots gt groundtruth ground_truth gtfine "
    b"segmentation segmentations segmentationclass segmentationobject".split()
)
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


@dataclass
class _Picture:
    """A picture in an archive."""

    archive: RawFile
    key: bytes
    folders: tuple[bytes, ...]
    position: int
    byte_count: int

    @property
    def archive_stem(self) -> bytes:
        """Name of the archive without its extension."""
        return split_path(stem_of(self.archive.path))[1]


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
    nested: list[str] = []
    for file in found.files:
        first = len(found.rejects)
        pictures += _read_archive(file, found, annotation_files, nested)
        # A broken archive is of the split that its name speaks of; folders in it say it better.
        broken = [reject for reject in found.rejects[first:] if reject.key == file.path]
        tag_split(found.rejects, first, split_of_path(file.path) if broken else None)
    inside = _inside(found.files, pictures, annotation_files, nested)
    pictures.sort(key=lambda picture: picture.key)

    splits_by_picture, class_depth, notes = _layout(pictures)
    members = (picture.key for picture in pictures)
    beside, other = files_beside(found, members, are_labelled=class_depth is not None)
    archive_paths = (file.path for file in found.files)
    unread = Unread(inside=inside, beside=beside, other=other)
    notes = [*unread.notes(raw, archive_paths, options, name), *notes]
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
                split = splits_by_picture.get(picture.key, "")
                reject = Reject(key=picture.key, path=shown, reason=reason, split=split)
                found.rejects.append(reject)
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
    file: RawFile, found: ContainerFiles, annotation_files: list[str], nested: list[str]
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
        written = _written(info)
        if _is_folder(info, written):
            continue
        parts = member_parts(written)
        path = b"/".join(parts)
        place = f"{shown}, member {readable_path(written)}"
        # ".." begins with a dot, but is no hidden name: it is refused below.
        skipped = next(filter(None, (skip_reason(part) for part in parts if part != b"..")), None)
        if skipped is not None:
            found.ignored.add(skipped, place)
            continue
        if not is_picture_name(path):
            found.ignored.add(NOT_A_PICTURE, place)
            if ANNOTATION_NAME.search(path) and not PROSE_NAME.match(parts[-1]):
                annotation_files.append(place)
            elif is_nested(path):
                nested.append(place)
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


def _inside(
    archives: list[RawFile],
    pictures: list[_Picture],
    annotation_files: list[str],
    nested: list[str],
) -> list[str]:
    """What archives hold beside pictures to be packed."""
    seen = [f"annotation files ({names_text(annotation_files)})"] if annotation_files else []
    masks = {f for p in pictures for f in p.folders if f.lower() in _MASK_FOLDERS}
    # `images.zip` and `masks.zip` are as two folders. One alone holds what it holds.
    stems = {split_path(stem_of(file.path))[1] for file in archives} if archives[1:] else set()
    of_masks = {stem for stem in stems if role_of(stem).holds_masks}
    if of_masks and (of_masks != stems):
        masks |= {split_path(p.archive.path)[1] for p in pictures if p.archive_stem in of_masks}
    if masks:
        shown = names_text(map(readable_path, sorted(masks)))
        seen.append(f"folders of masks or labels ({shown})")
    return [*seen, f"archives ({names_text(nested)})"] if nested else seen
