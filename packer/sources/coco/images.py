"""The images of COCO files: each with its picture, or why it has none."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from packer.items.findings import Findings
from packer.sources.coco.document import CocoFile, CocoImage, Id, known_id
from packer.sources.coco.files import split_name, split_words
from packer.sources.coco.pictures import FoundPictures, find_pictures, picture_folders
from packer.sources.pairing import PictureIndex, normal_path, split_path
from packer.sources.walk import Picture, Tree
from packer.wording import count_text, readable_path
from readers.store.wording import few_text

_OTHER_NAMES = ("filename", "path", "coco_url", "url")
"""Keys that name the picture where there is no file_name: LVIS has coco_url alone. Not flickr_url:
the picture is called otherwise there."""

_FEDERATED = frozenset(("neg_category_ids", "not_exhaustive_category_ids"))
"""Of LVIS: which classes were looked for on an image, for its evaluation."""


@dataclass(slots=True)
class Image:
    """One entry of `images`, and what is gathered for it.

    Attributes:
        coco_file: That lists it.
        id: As the file has it.
        size: (width, height) as declared, or None.
        picture: Its file, or None.
        problem: Why it is rejected; empty when it is not.
        key: Of its sample: the path of its picture, or where that was looked for.
        annotation_count: Entries of `annotations` that name it.
        annotations: Its objects, packed.
    """

    coco_file: CocoFile
    id: Id
    size: tuple[int, int] | None
    picture: Picture | None
    problem: str
    key: bytes
    annotation_count: int = 0
    annotations: bytes = b""


@dataclass(frozen=True)
class FileImages:
    """The images of one file.

    Attributes:
        coco_file: The file.
        images: In the order of the file.
        by_id: The image of each id.
        text_ids: Ids that are written as text, be they numbers or not.
        folders: That were tried for the pictures.
        found: How the pictures were found.
        split: What split the file is of, or None.
        findings: Entries that are no images, and notes. A file that is left aside takes them along.
    """

    coco_file: CocoFile
    images: list[Image]
    by_id: dict[Id, Image]
    text_ids: frozenset[Id]
    folders: list[bytes]
    found: FoundPictures
    split: str | None
    findings: Findings


def read_images(
    coco_file: CocoFile,
    root: bytes | None,
    index: PictureIndex,
    tree: Tree,
) -> FileImages:
    """Read the entries of `images` and find their pictures.

    An id that is listed twice is that of no picture: both are rejected, unless they are the same
    entry, since annotations name their image by it.

    Args:
        coco_file: The file.
        root: Folder for pictures that the user gave, relative to the raw folder, or None.
        index: Of all pictures.
        tree: That the index is of.
    """
    findings = Findings()
    entries: list[tuple[Id, CocoImage, bytes]] = []
    positions: list[int] = []
    first_names: dict[Id, bytes] = {}
    twice: dict[Id, list[bytes]] = {}
    text_ids: set[Id] = set()
    repeated_count = 0
    other_keys: Counter[str] = Counter()
    for position, (entry, problem) in enumerate(coco_file.entries(coco_file.images, CocoImage)):
        image_id = known_id(entry.id) if entry is not None else None
        name = _name_bytes(entry.file_name) if entry is not None else None
        if entry is not None and not entry.file_name:
            name, other_key = _other_name(coco_file, position)
            if image_id is not None and name is not None:
                other_keys[other_key] += 1
        if entry is None or image_id is None or name is None:
            reason = problem or _entry_problem(coco_file, position, entry)
            place = f"{coco_file.name}, images[{position}]"
            findings.refuse(b"", reason, place)
        elif first_names.get(image_id) == name:
            repeated_count += 1
        else:
            if isinstance(entry.id, str):
                text_ids.add(image_id)
            if first_names.setdefault(image_id, name) != name:
                twice.setdefault(image_id, [first_names[image_id]]).append(name)
            entries.append((image_id, entry, name))
            positions.append(position)

    words = split_words(coco_file)
    folders = picture_folders(coco_file.folder, words, root)
    names = [name for _, _, name in entries]
    found = find_pictures(names, folders, index, tree)
    is_renamed = False
    if entries and not found.found_count:
        # LVIS 0.5 has the names of 2014 for pictures that are called as in 2017 since.
        others = [_other_name(coco_file, position)[0] for position in positions]
        if any(others):
            renamed = [other or name for other, name in zip(others, names, strict=True)]
            by_other = find_pictures(renamed, folders, index, tree)
            is_renamed = by_other.found_count > 0
            found = by_other if is_renamed else found
    images: list[Image] = []
    no_size_count = 0
    for (image_id, entry, name), picture in zip(entries, found.pictures, strict=True):
        size = _size(entry)
        no_size_count += size is None
        if isinstance(picture, Picture):
            image = Image(coco_file, image_id, size, picture, "", picture.path)
        else:
            key = normal_path(found.folder + b"/" + name)
            key = b"" if key.startswith(b"..") else key
            image = Image(coco_file, image_id, size, None, picture, key)
        if image_id in twice:
            image.problem = _twice_problem(image_id, twice[image_id])
        images.append(image)

    findings.notes += [
        f"{coco_file.name}: {count_text(named, 'image')} without file_name; named by {other!r}"
        for other, named in other_keys.items()
    ]
    if is_renamed:
        findings.notes.append(
            f"{coco_file.name}: no file_name is there; found by the other name of each"
        )
    federated = sorted(coco_file.keys(coco_file.images) & _FEDERATED)
    if federated:
        findings.notes.append(
            f"{coco_file.name}: {' and '.join(federated)} of its images are not stored; look them "
            "up in the file by image_id"
        )
    if found.note is not None:
        findings.notes.append(f"{coco_file.name}: pictures {found.note}")
    if repeated_count:
        count = count_text(repeated_count, "image")
        findings.notes.append(f"{coco_file.name}: {count} listed again, word for word; taken once")
    if no_size_count:
        count = count_text(no_size_count, "image")
        findings.notes.append(
            f"{coco_file.name}: {count} without a width and height that can be; annotations are "
            "taken to be on the upright picture"
        )
    split = split_name(coco_file, _common_folder(found))
    findings.tag_split((0, 0), split)
    by_id = {image.id: image for image in images}
    return FileImages(
        coco_file, images, by_id, frozenset(text_ids), folders, found, split, findings
    )


def guess_keys(listed: Sequence[FileImages]) -> None:
    """Give images of files whose pictures are all missing the keys that they would have.

    Where those of `train2017` lie in `images/train2017`, those of `val2017` belong in
    `images/val2017`: so patterns of `--exclude` find them.
    """
    found = [
        (each.split, each.found.folder.split(b"/"))
        for each in listed
        if each.found.found_count and each.split
    ]
    for file_images in listed:
        if file_images.found.found_count or file_images.split is None:
            continue
        own = os.fsencode(file_images.split)
        for split, parts in found:
            if os.fsencode(split) in parts:
                folder = b"/".join(own if part == os.fsencode(split) else part for part in parts)
                for image in file_images.images:
                    if image.picture is None and image.key:
                        image.key = normal_path(folder + b"/" + image.key)
                break


def reject_shared(images: Iterable[Image]) -> None:
    """Reject the images of a picture that several are of: annotations are never added up."""
    claims: dict[bytes, list[Image]] = {}
    for image in images:
        if image.picture is not None:
            claims.setdefault(image.key, []).append(image)
    for sharing in claims.values():
        if len(sharing) > 1:
            places = " and ".join(image_place(image) for image in sharing[:5])
            for image in sharing:
                image.problem = image.problem or (
                    f"its picture is that of {places}; expected one, since annotations are never "
                    "added up. Move one of the entries or files away"
                )


def image_place(image: Image) -> str:
    """How a report names an image."""
    return f"{image.coco_file.name}, image {image.id}"


def _common_folder(found: FoundPictures) -> bytes:
    """The folder that all pictures lie in directly, when it is one."""
    folders = {split_path(p.path)[0] for p in found.pictures if isinstance(p, Picture)}
    return folders.pop() if len(folders) == 1 else found.folder


def _name_bytes(name: Any) -> bytes | None:
    """A name as the file system may have it, or None when it is none."""
    if not isinstance(name, str) or not name.strip():
        return None
    try:
        encoded = name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return None
    return None if b"\0" in encoded else encoded


def _other_name(coco_file: CocoFile, position: int) -> tuple[bytes | None, str]:
    """(name of a picture whose entry has no file_name, the key that it stands under)."""
    entry = coco_file.plain(coco_file.images[position])
    for key in _OTHER_NAMES:
        name = _name_bytes(entry.get(key))
        if name is not None:
            return name, key
    return None, ""


def _entry_problem(coco_file: CocoFile, position: int, entry: CocoImage | None) -> str:
    """Why an entry that can be decoded is not an image."""
    assert entry is not None
    if known_id(entry.id) is None:
        return (
            f"has no id (it is {entry.id!r}); expected the number that annotations name as image_id"
        )
    if entry.file_name:
        return f"file_name {entry.file_name!r} is no name that a file can have; expected its path"
    keys = ", ".join(map(repr, coco_file.plain(coco_file.images[position])))
    other = ", ".join(_OTHER_NAMES)
    return (
        f"image {entry.id!r} has no file_name, and none of {other}; expected the path of its "
        f"picture as file_name. It has {keys}: add file_name, or rename the key that has the path"
    )


def _twice_problem(image_id: Id, names: list[bytes]) -> str:
    shown = few_text(names, 5, readable_path)
    return (
        f"several images have the id {image_id!r}: {shown}; expected one for each id, since "
        "annotations name their image by it. Give each its own id"
    )


def _size(entry: CocoImage) -> tuple[int, int] | None:
    """(width, height) as declared, or None when they are none that a picture can have."""
    width, height = entry.width, entry.height
    if width is None or height is None:
        return None
    if not (0 < width < 2**31 and 0 < height < 2**31):
        return None
    return (int(width), int(height)) if width == int(width) and height == int(height) else None
