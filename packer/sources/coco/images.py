"""The images of COCO files: each with its picture, or why it has none."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from packer.sources.coco.document import CocoFile, CocoImage, Id, known_id
from packer.sources.coco.files import split_name, split_words
from packer.sources.coco.pictures import FoundPictures, find_pictures, picture_folders
from packer.sources.items import Reject
from packer.sources.pairing import PictureIndex, normal_path, split_path
from packer.sources.walk import Picture, Tree
from packer.wording import count_text


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
        folders: That were tried for the pictures.
        found: How the pictures were found.
        split: What split the file is of, or None.
        rejects: Entries that are no images.
        notes: What was odd.
    """

    coco_file: CocoFile
    images: list[Image]
    by_id: dict[Id, Image]
    folders: list[bytes]
    found: FoundPictures
    split: str | None
    rejects: list[Reject]
    notes: list[str]


def read_images(
    coco_file: CocoFile,
    root: bytes | None,
    index: PictureIndex,
    tree: Tree,
) -> FileImages:
    """Read the entries of `images` and find their pictures.

    An id that stands twice is that of no picture: both are rejected, unless they are the same
    entry, since annotations name their image by it.

    Args:
        coco_file: The file.
        root: Folder for pictures that the user gave, relative to the raw folder, or None.
        index: Of all pictures.
        tree: That the index is of.
    """
    rejects: list[Reject] = []
    entries: list[tuple[Id, CocoImage, bytes]] = []
    first_names: dict[Id, bytes] = {}
    twice: set[Id] = set()
    repeated_count = 0
    for position, (entry, problem) in enumerate(coco_file.entries(coco_file.images, CocoImage)):
        image_id = known_id(entry.id) if entry is not None else None
        name = _name_bytes(entry)
        if entry is None or image_id is None or name is None:
            place = f"{coco_file.name}, images[{position}]"
            rejects.append(Reject(key=b"", path=place, reason=problem or _entry_problem(entry)))
        elif first_names.get(image_id) == name:
            repeated_count += 1
        else:
            if first_names.setdefault(image_id, name) != name:
                twice.add(image_id)
            entries.append((image_id, entry, name))

    words = split_words(coco_file)
    folders = picture_folders(coco_file.folder, words, root)
    found = find_pictures([name for _, _, name in entries], folders, index, tree)
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
            image.problem = f"several images have the id {image_id!r}; expected one for each id"
        images.append(image)

    notes = []
    if found.note is not None:
        notes.append(f"{coco_file.name}: pictures {found.note}")
    if repeated_count:
        count = count_text(repeated_count, "image")
        notes.append(f"{coco_file.name}: {count} listed again, word for word; taken once")
    if no_size_count:
        count = count_text(no_size_count, "image")
        notes.append(
            f"{coco_file.name}: {count} without a width and height that can be; annotations are "
            "taken to be on the upright picture"
        )
    split = split_name(coco_file, _common_folder(found))
    by_id = {image.id: image for image in images}
    return FileImages(coco_file, images, by_id, folders, found, split, rejects, notes)


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


def _name_bytes(entry: CocoImage | None) -> bytes | None:
    """`file_name` as the file system may have it, or None when there is none."""
    if entry is None or entry.file_name is None or not entry.file_name.strip():
        return None
    try:
        name = entry.file_name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return None
    return None if b"\0" in name else name


def _entry_problem(entry: CocoImage | None) -> str:
    assert entry is not None
    return f"id {entry.id!r} and file_name {entry.file_name!r}; expected both"


def _size(entry: CocoImage) -> tuple[int, int] | None:
    """(width, height) as declared, or None when they are none that a picture can have."""
    width, height = entry.width, entry.height
    if width is None or height is None:
        return None
    if not (0 < width < 2**31 and 0 < height < 2**31):
        return None
    return (int(width), int(height)) if width == int(width) and height == int(height) else None
