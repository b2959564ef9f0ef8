"""Shards of MosaicML Streaming: `index.json` and `shard.00000.mds`, in a folder for each split."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from packer.errors import SourceError
from packer.files.mds import Cell, MdsColumn, MdsError, MdsShard
from packer.items.raw_item import RawFile, Scan
from packer.sources.container_files import ContainerFiles, find_container_files, splits_of_paths
from packer.sources.held_images import HeldImage, pack_held
from packer.sources.pairing import split_path, stem_of
from packer.sources.source import SourceOptions
from packer.sources.store_fields import (
    IMAGE_COLUMNS,
    StoreFields,
    ValueForm,
    image_column,
    store_fields,
)
from packer.wording import names_text, readable_path
from readers.store.pictures.signatures import START_BYTES, signed_format

name = "mds"

_EXTENSION = b".mds"
_INDEX = b"index.json"
_COMPRESSED = re.compile(rb"\.mds\.(zstd|zst|gz|bz2|br|snappy)$", re.IGNORECASE)
_UNPACKERS = {
    b"zstd": "zstd -d",
    b"zst": "zstd -d",
    b"gz": "gzip -d",
    b"bz2": "bzip2 -d",
    b"br": "brotli -d",
    b"snappy": "python -m snappy -d",
}
_INDEX_BYTES_MAX = 2**28
_PICTURES = frozenset(("jpeg", "png", "jpeg_array", "jpegarray"))
_PIXELS = frozenset(("pil", "ndarray"))
_INTEGERS = {
    "int": "<i8",
    **{f"{sign}int{bits}": f"<{sign or 'i'}{bits // 8}" for sign in ("", "u") for bits in (8, 16)},
    **{f"{sign}int{bits}": f"<{sign or 'i'}{bits // 8}" for sign in ("", "u") for bits in (32, 64)},
}
_FLOATS = {"float16": "<f2", "float32": "<f4", "float64": "<f8"}
_FORMS: dict[str, ValueForm] = {
    **dict.fromkeys((*_INTEGERS, "str_int"), "int"),
    **dict.fromkeys((*_FLOATS, "str_float"), "float"),
    **dict.fromkeys(("str", "str_decimal"), "text"),
    "json": "json",
}
_VALUE_BYTES_MAX = 2**24


def scan(raw: Path, options: SourceOptions) -> Scan:
    """Samples of shards, in the order of the shards' paths and of the samples.

    The image is a column of JPEG, PNG or PIL; else one of arrays of uint8 or of bytes that begin
    like a picture. A column `label` of numbers or texts is the label; numbers, texts and JSON are
    fields of their names. Other columns are not read (`pkl` among them: nothing is unpickled), and
    a note names them. Each shard says itself what its columns are; `index.json` is held against
    what is there.

    Keys are the shard's path without extension and the number of the sample.

    Args:
        raw: One shard, or a folder with shards at any depth.
        options: `classes` and `label_is_index` say what labels mean.

    Raises:
        SourceError: There is no shard, none of its columns is an image, or shards differ.
    """
    found = find_container_files(raw, _is_of_mds)
    found.ignore_pictures()
    indices = [f for f in found.files if split_path(f.path)[1] == _INDEX]
    compressed = [f for f in found.files if _COMPRESSED.search(f.path)]
    files = [f for f in found.files if f not in indices and f not in compressed]
    if not files and not compressed and not found.findings.rejects:
        raise found.findings.nothing(
            raw, "no shard found", "looked for .mds in this folder and all folders below"
        )
    splits, _ = splits_of_paths(file.path for file in (*files, *compressed))
    whole = {file.path for file in files}
    for file in compressed:
        mark = found.findings.mark()
        if _COMPRESSED.sub(_EXTENSION, file.path) in whole:
            found.findings.ignore("compressed copy of a shard that is there", [file.path])
        else:
            unpack = _UNPACKERS[file.path.lower().rpartition(b".")[2]]
            reason = f"compressed: images in it cannot be read one by one. Unpack it ({unpack})"
            found.findings.refuse(file.path, reason)
        found.findings.tag_split(mark, splits.get(file.path))
    images: list[HeldImage] = []
    common: StoreFields | None = None
    counts: dict[bytes, int] = {}
    for file in files:
        mark = found.findings.mark()
        shown = readable_path(file.path)
        try:
            with closing(MdsShard(found.full_path(file.path))) as shard:
                chosen = _fields_of(shard, shown)
                if common is not None and chosen != common:
                    raise SourceError(
                        f"{shown}: other columns than {readable_path(files[0].path)}. Give the "
                        "shards of one data set."
                    )
                common, counts[file.path] = chosen, shard.sample_count
                for image, problem in _samples(file, shard, chosen):
                    if problem:
                        place = f"{shown}, {readable_path(image.key)}"
                        found.findings.refuse(image.key, problem, place)
                    else:
                        images.append(image)
        except (OSError, MdsError) as error:
            text = error.strerror if isinstance(error, OSError) else str(error)
            found.findings.refuse(file.path, f"not a shard that can be read: {text}")
        found.findings.tag_split(mark, splits.get(file.path))
    _check_indices(indices, counts, found)
    if common is not None:
        found.findings.notes += common.notes()
    return pack_held(
        name, found, images, options, fields=common.fields if common is not None else ()
    )


def _is_of_mds(path: bytes) -> bool:
    base = split_path(path)[1]
    is_shard = base.lower().endswith(_EXTENSION) or _COMPRESSED.search(base) is not None
    return is_shard or base == _INDEX


def _fields_of(shard: MdsShard, shown: str) -> StoreFields:
    """Which column is the image, and what the others become."""
    columns = shard.columns
    able = [c.name for c in columns if c.kind in _PICTURES or c.kind == "pil"]
    if not able:
        able = [c.name for c in columns if c.kind == "ndarray" and c.name in IMAGE_COLUMNS]
    if not able and shard.sample_count:
        try:
            first = shard.cells(0)
        except ValueError:
            first = []
        able = [
            column.name
            for column, cell in zip(columns, first, strict=False)
            if column.kind == "bytes" and signed_format(shard.read(cell, START_BYTES)) is not None
        ]
    if not able:
        names = names_text(f"{column.name} ({column.encoding})" for column in columns)
        raise SourceError(
            f"{shown}: no column is an image; its columns are {names}. Expected one of jpeg, png "
            "or pil, or of bytes of pictures. What is pickled is not read: it would run code that "
            "the file brings. Build from Python: packer.build(dataset, out)."
        )
    forms = [(column.name, _FORMS.get(column.kind)) for column in columns]
    labels = [name for name, form in forms if form in ("int", "text")]
    return store_fields(image_column(able), forms, labels)


def _samples(
    file: RawFile, shard: MdsShard, chosen: StoreFields
) -> Iterator[tuple[HeldImage, str]]:
    """Each sample, with why it is not packed; empty where it is."""
    digits = max(5, len(str(shard.sample_count - 1)))
    stem = stem_of(file.path)
    for number in range(shard.sample_count):
        image = HeldImage(
            file=file, key=b"%s/%0*d" % (stem, digits, number), position=0, byte_count=0
        )
        problem = ""
        try:
            cells = dict(zip(shard.columns, shard.cells(number), strict=True))
            for column, cell in cells.items():
                _take(image, column, cell, shard, chosen)
        except (ValueError, RecursionError) as error:
            problem = str(error)
        yield image, problem


def _take(
    image: HeldImage, column: MdsColumn, cell: Cell, shard: MdsShard, chosen: StoreFields
) -> None:
    """Note a value. Raises ValueError where it is not of its kind."""
    if column.name == chosen.image:
        image.position, image.byte_count = cell
        if column.kind in _PIXELS:
            image.shape, image.position = shard.pixels(column, cell)
            image.byte_count = image.shape.byte_count
    elif column.name == chosen.label:
        image.label = str(_value(column, cell, shard))
    else:
        for name, field_name in chosen.others:
            if name == column.name:
                image.set_value(field_name, _value(column, cell, shard))


def _value(column: MdsColumn, cell: Cell, shard: MdsShard) -> Any:
    """A number, a text or JSON. Raises ValueError where it is none."""
    if cell.byte_count > _VALUE_BYTES_MAX:
        raise ValueError(f"{column.name}: {cell.byte_count:,} bytes of {column.encoding}")
    data = shard.read(cell)
    dtype = _INTEGERS.get(column.kind) or _FLOATS.get(column.kind)
    try:
        if dtype is not None:
            (number,) = np.frombuffer(data, dtype).tolist()
            if isinstance(number, int) and number >= 2**63:
                raise ValueError(f"{number} does not fit into 64 bits with a sign")
            return number
        text = data.decode()
        if column.kind == "str_int":
            return int(text)
        if column.kind == "str_float":
            return float(text)
        return json.loads(text) if column.kind == "json" else text
    except ValueError as error:
        raise ValueError(f"{column.name}: not {column.encoding}: {error}") from error


def _check_indices(
    files: Sequence[RawFile], counts: dict[bytes, int], found: ContainerFiles
) -> None:
    """Hold the shards of each index against those that are there."""
    refused = {reject.key for reject in found.findings.rejects}
    for file in files:
        folder, _ = split_path(file.path)
        shown = readable_path(file.path)
        try:
            with open(found.full_path(file.path), "rb") as stream:
                index = json.loads(stream.read(_INDEX_BYTES_MAX))
            entries = [(e["raw_data"]["basename"], e["samples"]) for e in index["shards"]]
        except (OSError, ValueError, TypeError, LookupError, RecursionError) as error:
            found.findings.notes.append(f"{shown} names no shards: {error}")
            continue
        for base, sample_count in entries:
            path = (folder + b"/" if folder else b"") + str(base).encode()
            is_refused = any(key.startswith(path) for key in refused)
            if path not in counts and not is_refused:
                reason = f"not there, and {shown} names it with {sample_count} samples"
                found.findings.refuse(path, reason)
            elif path in counts and counts[path] != sample_count:
                found.findings.notes.append(
                    f"{shown} says {sample_count} samples of {readable_path(path)}, which has "
                    f"{counts[path]}"
                )
