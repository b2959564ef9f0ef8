"""FFCV's `.beton` files: images as JPEGs or pixels, labels, and what else their samples have."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from packer.errors import SourceError
from packer.files.bare_pixels import PixelShape, pixel_shape
from packer.files.beton import IS_PIXELS, Beton, BetonError, BetonField, FieldKind, read_beton
from packer.files.blocks import FileBlocks
from packer.items.raw_item import RawFile, Scan
from packer.sources.container_files import find_container_files, splits_of_paths
from packer.sources.held_images import HeldImage, pack_held
from packer.sources.pairing import stem_of
from packer.sources.source import SourceOptions
from packer.sources.store_fields import StoreFields, ValueForm, image_column, store_fields
from packer.wording import names_text, readable_path
from readers.store.pictures.signatures import START_BYTES, signed_format

name = "ffcv"

_EXTENSION = b".beton"
_FORMS: dict[FieldKind, ValueForm] = {"int": "int", "float": "float", "json": "json"}
_JSON_BYTES_MAX = 2**24


@dataclass(frozen=True, kw_only=True)
class _Images:
    """The images of a file: what is known of all of them at once.

    Attributes:
        places: Where each begins.
        sizes: Bytes of each; -1 where the file does not say.
        shapes: How the pixels of each lie; None for a picture file.
    """

    places: NDArray[np.uint64]
    sizes: NDArray[np.int64]
    shapes: list[PixelShape | None]


def scan(raw: Path, options: SourceOptions) -> Scan:
    """Samples of `.beton` files, in the order of the files' paths and of the samples.

    The image is the field of FFCV's RGBImageField; else an array of uint8 that may be one, or bytes
    that begin like a picture. A whole number called `label` is the label; numbers and JSON are
    fields of their names. Other arrays and bytes are not read, and a note names them.

    Keys are the file's path without extension and the number of the sample.

    Args:
        raw: One file, or a folder with files at any depth.
        options: `classes` and `label_is_index` say what labels mean.

    Raises:
        SourceError: There is no such file, none of its fields is an image, or files differ.
    """
    found = find_container_files(raw, lambda path: path.lower().endswith(_EXTENSION))
    found.ignore_pictures()
    if not found.files and not found.findings.rejects:
        raise found.findings.nothing(
            raw, "no .beton file found", "looked for .beton in this folder and all folders below"
        )
    splits, _ = splits_of_paths(file.path for file in found.files)
    images: list[HeldImage] = []
    common: StoreFields | None = None
    for file in found.files:
        mark = found.findings.mark()
        path = found.full_path(file.path)
        try:
            beton = read_beton(path)
            with closing(FileBlocks(path)) as blocks:
                chosen = _fields_of(beton, blocks, readable_path(file.path))
                if common is not None and chosen != common:
                    raise SourceError(
                        f"{readable_path(file.path)}: other fields than "
                        f"{readable_path(found.files[0].path)}. Give the files of one data set."
                    )
                common = chosen
                for image, problem in _samples(file, beton, blocks, chosen):
                    if problem:
                        place = f"{readable_path(file.path)}, {readable_path(image.key)}"
                        found.findings.refuse(image.key, problem, place)
                    else:
                        images.append(image)
        except (OSError, BetonError) as error:
            text = error.strerror if isinstance(error, OSError) else str(error)
            found.findings.refuse(file.path, f"not a .beton that can be read: {text}")
        found.findings.tag_split(mark, splits.get(file.path))
    if common is not None:
        found.findings.notes += common.notes()
    return pack_held(
        name, found, images, options, fields=common.fields if common is not None else ()
    )


def _fields_of(beton: Beton, blocks: FileBlocks, shown: str) -> StoreFields:
    """Which field is the image, and what the others become."""
    able = [field.name for field in beton.fields if field.kind == "image"]
    if not able:
        able = [field.name for field in beton.fields if _may_be_pixels(field)]
    if not able:
        able = [
            field.name
            for field, record in zip(beton.fields, beton.records, strict=True)
            if field.kind == "bytes" and len(record) and _is_picture(record[0], blocks)
        ]
    if not able:
        names = names_text(f"{field.name} ({field.kind})" for field in beton.fields)
        raise SourceError(
            f"{shown}: no field is an image; its fields are {names}. Expected an RGBImageField, "
            "an array of uint8, or bytes of pictures."
        )
    forms = [(field.name, _FORMS.get(field.kind)) for field in beton.fields]
    labels = [field.name for field in beton.fields if field.kind == "int"]
    return store_fields(image_column(able), forms, labels)


def _may_be_pixels(field: BetonField) -> bool:
    if field.kind != "array" or field.dtype != np.uint8:
        return False
    try:
        pixel_shape(field.shape)
    except ValueError:
        return False
    return True


def _is_picture(record: Any, blocks: FileBlocks) -> bool:
    place = int(record["place"])
    return signed_format(bytes(blocks[place : place + START_BYTES])) is not None


def _samples(
    file: RawFile, beton: Beton, blocks: FileBlocks, chosen: StoreFields
) -> Iterator[tuple[HeldImage, str]]:
    """Each sample, with why it is not packed; empty where it is."""
    columns = {
        field.name: (field, record)
        for field, record in zip(beton.fields, beton.records, strict=True)
    }
    images = _images(beton, *columns[chosen.image])
    count = len(images.places)
    digits = max(5, len(str(count - 1)))
    stem = stem_of(file.path)
    for number in range(count):
        image = HeldImage(
            file=file,
            key=b"%s/%0*d" % (stem, digits, number),
            position=int(images.places[number]),
            byte_count=int(images.sizes[number]),
            shape=images.shapes[number],
        )
        problem = ""
        if image.byte_count < 0:
            problem = f"the file has no image at byte {image.position:,}, where its record points"
        elif image.position + image.byte_count > file.byte_count:
            problem = f"its image leaves the file of {file.byte_count:,} bytes"
        if chosen.label is not None:
            image.label = str(int(columns[chosen.label][1][number]))
        for column, field_name in chosen.others:
            field, record = columns[column]
            try:
                image.set_value(field_name, _value(field, record[number], blocks))
            except ValueError as error:
                problem = problem or f"{column}: {error}"
        yield image, problem


def _images(beton: Beton, field: BetonField, record: NDArray[Any]) -> _Images:
    if field.kind == "array":
        shape = pixel_shape(field.shape)
        sizes = np.full(len(record), shape.byte_count, np.int64)
        return _Images(places=record, sizes=sizes, shapes=[shape] * len(record))
    places = record["place"]
    if field.kind == "bytes":
        sizes = np.minimum(record["size"], 2**62).astype(np.int64)
        return _Images(places=places, sizes=sizes, shapes=[None] * len(record))
    sizes = beton.sizes_at(places)
    shapes: list[PixelShape | None] = []
    for number, part in enumerate(record):
        if part["mode"] != IS_PIXELS:
            shapes.append(None)
            continue
        shape = PixelShape(height=int(part["height"]), width=int(part["width"]), channels=3)
        if sizes[number] != shape.byte_count or not shape.byte_count:
            sizes[number] = -1
        shapes.append(shape)
    return _Images(places=places, sizes=sizes, shapes=shapes)


def _value(field: BetonField, part: Any, blocks: FileBlocks) -> Any:
    """The value of a number or of JSON."""
    if field.kind == "int":
        return int(part)
    if field.kind == "float":
        return float(part)
    place, size = int(part["place"]), int(part["size"])
    if size > _JSON_BYTES_MAX or place + size > len(blocks):
        raise ValueError(f"JSON of {size:,} bytes at byte {place:,}, which the file does not have")
    try:
        return json.loads(bytes(blocks[place : place + size]).rstrip(b"\0"))
    except RecursionError as error:
        raise ValueError(f"JSON that is too deep: {error}") from error
