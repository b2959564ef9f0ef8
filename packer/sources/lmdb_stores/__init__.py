"""LMDB maps that others wrote: of tutorials, Caffe, LSUN, BasicSR and mmcv, of text recognition.

    old.lmdb/data.mdb   17 -> a picture file     17_label -> 3          __len__ -> 100
    train.lmdb          image-000000001 -> ...   label-000000001 -> hi  num-samples -> 100

In: a raw path. Out: a scan whose items say where in the file each image lies, so that build workers
read it as they read an archive. Nothing is unpickled, and the file is never opened for writing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from packer.files.text import read_text
from packer.items.raw_item import RawFile, Scan
from packer.sources.archive_folders import Picture, pack, read_layout
from packer.sources.beside import Unread
from packer.sources.container_files import ContainerFiles, find_container_files, splits_of_paths
from packer.sources.held_images import HeldImage, pack_held
from packer.sources.imagefolder import NO_CLASSES
from packer.sources.lmdb_stores.keys import labels_in_keys
from packer.sources.lmdb_stores.maps import ABOUT_ALL, NOT_AN_IMAGE, FoundMap, read_map
from packer.sources.pairing import split_path, stem_of
from packer.sources.source import SourceOptions
from packer.wording import count_text, names_text, readable_path
from readers.store.schema import Field

name = "lmdb"

MAP_NAME = b"data.mdb"
MAP_EXTENSION = b".lmdb"
_META_INFO = b"meta_info.txt"
_LOCKS = re.compile(rb"lock\.mdb|.*-lock")
_LSUN = re.compile(rb"(?:(.+)_)?(train|val|test)_lmdb")
LOCK = "lock file of LMDB"


def scan(raw: Path, options: SourceOptions) -> Scan:
    """Images of LMDB files, by the order of their paths and in each by that of the samples.

    A key is an image, its label or text, or about all of them: see `keys.py`. Values are picture
    files, `.npy` of uint8, Caffe's Datum, or bare pixels whose shape another key has. Maps of
    picture files without labels are read as archives of pictures are: folders in the keys are
    classes and splits. Maps called like LSUN's, `bedroom_train_lmdb`, are a class and a split each.

    Keys are the file's path, without `data.mdb` or extension, and the map's key.

    Args:
        raw: The LMDB file, its folder, or a folder with some.
        options: `classes` and `label_is_index` say what labels mean.

    Raises:
        SourceError: There is no LMDB file, or the values of one can only be unpickled.
    """
    found = find_container_files(raw, _is_of_map)
    found.ignore_pictures()
    meta_infos = [f for f in found.files if split_path(f.path)[1] == _META_INFO]
    locks = [f for f in found.files if _LOCKS.fullmatch(split_path(f.path)[1])]
    files = [f for f in found.files if f not in meta_infos and f not in locks]
    found.findings.ignore(LOCK, (f.path for f in locks))
    if not files and not found.findings.rejects:
        raise found.findings.nothing(
            raw,
            "no LMDB file found",
            "looked for data.mdb and *.lmdb here and in all folders below",
        )
    splits, _ = splits_of_paths(file.path for file in files)
    maps: dict[bytes, FoundMap] = {}
    for file in files:
        mark = found.findings.mark()
        held = read_map(file, _prefix(file.path), found, are_classes=options.classes is not None)
        if held is not None:
            maps[file.path] = held
        found.findings.tag_split(mark, splits.get(file.path))
    _check_meta_infos(meta_infos, maps, found)
    found.findings.note_ignored(NOT_AN_IMAGE, noun="value")
    images = [image for held in maps.values() for image in held.images]
    if not images and not found.findings.rejects:
        raise found.findings.nothing(
            raw, "no image in the LMDB files", "expected picture files, arrays or Datums as values"
        )
    if any(image.shape is not None and image.shape.order == "bgr-planes" for image in images):
        found.findings.notes.append(
            "Datums of 3 channels are taken for blue, green and red, as Caffe's tools write them"
        )
    has_labels = any(held.has_labels for held in maps.values())
    has_texts = any(held.has_texts for held in maps.values())
    if not has_labels and not has_texts and all(image.shape is None for image in images):
        return _pack_folders(raw, found, maps, options)
    if has_texts:
        images = _with_texts(images, found)
    fields = [Field(name="text", kind="text")] if has_texts else []
    class_names = next((held.class_names for held in maps.values() if held.class_names), ())
    return pack_held(name, found, images, options, fields=fields, class_names=class_names)


def _is_of_map(path: bytes) -> bool:
    base = split_path(path)[1]
    is_map = base.lower().endswith((MAP_NAME, MAP_EXTENSION))
    return is_map or base == _META_INFO or base == b"lock.mdb" or base.endswith(b".lmdb-lock")


def _prefix(path: bytes) -> bytes:
    """What keys of a map begin with: its path, without what is the same for all maps."""
    folder, base = split_path(path)
    stem = folder if base == MAP_NAME else stem_of(path)
    return stem + b"/" if stem else b""


def _with_texts(images: Sequence[HeldImage], found: ContainerFiles) -> list[HeldImage]:
    """The images that have a text; the others are rejected, since some have one."""
    kept = []
    for image in images:
        if image.values is not None and "text" in image.values:
            kept.append(image)
            continue
        place = f"{readable_path(image.file.path)}, {readable_path(image.key)}"
        found.findings.refuse(image.key, "no text, which other images here have", place)
    return kept


def _pack_folders(
    raw: Path, found: ContainerFiles, maps: dict[bytes, FoundMap], options: SourceOptions
) -> Scan:
    """Pictures without labels: folders in their keys, or the names of maps, may be classes."""
    classes = _lsun_classes(maps)
    if classes:
        return _pack_lsun(found, maps, classes, options)
    pictures = [
        Picture(
            image.file,
            image.key,
            held.folders[image.key],
            image.position,
            image.byte_count,
        )
        for held in maps.values()
        for image in held.images
    ]

    def container(_: Picture) -> str:
        return "range"

    images = [image for held in maps.values() for image in held.images]
    words = [] if any(p.folders for p in pictures) else labels_in_keys(_names(images))
    notes = found.findings.notes
    if words:
        for image, word in zip(images, words, strict=True):
            image.label = word
        notes.append(f"labels are words in the keys, such as {words[0]!r} in {_names(images)[0]!r}")
        return pack_held(name, found, images, options)
    layout = read_layout(os.fsencode(found.root), pictures, container, options.classes)
    notes += Unread(layout=layout.parts).notes(raw, maps, options, name)
    if not layout.classes:
        notes.append("unlabelled: no key of a label, and no folders in keys that could be classes")
    return pack(name, found, layout, pictures, container, options.classes)


def _names(images: Sequence[HeldImage]) -> list[bytes]:
    """Keys of images as their maps have them."""
    return [image.key.removeprefix(_prefix(image.file.path)) for image in images]


def _lsun_classes(maps: dict[bytes, FoundMap]) -> dict[bytes, str]:
    """The class of each map, where all are called like LSUN's, of at least two classes.

    Empty of a map without a class: the one for testing, of all classes.
    """
    classes: dict[bytes, str] = {}
    for path in maps:
        match = _LSUN.fullmatch(split_path(_prefix(path)[:-1])[1])
        if match is None:
            return {}
        classes[path] = readable_path(match[1] or b"")
    return classes if len(set(classes.values()) - {""}) > 1 else {}


def _pack_lsun(
    found: ContainerFiles,
    maps: dict[bytes, FoundMap],
    classes: dict[bytes, str],
    options: SourceOptions,
) -> Scan:
    """Images of maps that are a class each; those of maps without one are left out."""
    images = []
    for path, held in maps.items():
        if not classes[path]:
            found.findings.ignore(NO_CLASSES, (image.key for image in held.images))
            continue
        for image in held.images:
            image.label = classes[path]
            images.append(image)
    found.findings.note_ignored(NO_CLASSES)
    found.findings.notes.append("labels are the names of maps, as LSUN has them")
    return pack_held(name, found, images, options)


def _check_meta_infos(
    files: Sequence[RawFile], maps: dict[bytes, FoundMap], found: ContainerFiles
) -> None:
    """Hold each map against the list that BasicSR and mmcv write beside it.

    A line is a name with its extension, the size and the compression: `0801.png (480,480,3) 1`. The
    key is the name up to its first dot.
    """
    for file in files:
        folder, _ = split_path(file.path)
        held = maps.get(folder + b"/" + MAP_NAME if folder else MAP_NAME)
        if held is None:
            continue
        shown, prefix = readable_path(file.path), folder + b"/" if folder else b""
        keys = {image.key for image in held.images}
        told = {reject.key for reject in found.findings.rejects}
        named = set()
        for number, line in enumerate(read_text(found.full_path(file.path)).splitlines(), 1):
            if not line.strip():
                continue
            written = prefix + re.sub(r"\s*\(.*", "", line.strip()).encode()
            key = written if written in keys else prefix + _until_dot(written[len(prefix) :])
            named.add(key)
            if key not in keys and key not in told:
                place = f"{shown}, line {number}"
                found.findings.refuse(key, "not among the keys of the map", place)
        others = sorted(keys - named)
        if others:
            found.findings.notes.append(
                f"{shown} does not name {count_text(len(others), 'image')} of its map, which are "
                f"packed: {names_text(map(readable_path, others))}"
            )


def _until_dot(path: bytes) -> bytes:
    folder, base = split_path(path)
    stem = base.split(b".")[0]
    return folder + b"/" + stem if folder else stem


__all__ = ["ABOUT_ALL", "LOCK", "name", "scan"]
