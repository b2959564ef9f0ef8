"""One sample out of a store, as a picture and as facts."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from readers.store.errors import ImageError, SchemaMismatchError, UnknownKeyError
from readers.store.place import Place
from readers.store.reader import StoreReader, open_store
from readers.store.record import RecordReader
from readers.store.shapes.polygons import Outline, Polygons, Runs


def get_sample(path: str | Place, which: str) -> dict[str, Any]:
    """The fields of one sample by name, images as (height, width, channel) arrays in RGB order.

    Args:
        path: The store: a folder, or a URL.
        which: Its index, or its key. A key that looks like an index wins over it.

    Raises:
        StoreError: There is no such store or sample, or it is damaged.
    """
    store = open_store(path)
    index = _index_of(store, which)
    shard, position = store.locate(index)
    shard.check_record(position)
    sample = RecordReader(store.layout).unpack(shard.record(position))
    return {"index": index, **sample}


def _index_of(store: StoreReader, which: str) -> int:
    found = store.find(os.fsencode(which))
    if found is not None:
        return found
    count = store.manifest.sample_count
    if re.fullmatch("-?[0-9]+", which):
        index = int(which)
        if -count <= index < count:
            return index % count
        raise UnknownKeyError(f"{store.path}: no sample {index}; it has {count}: [0, {count})")
    raise UnknownKeyError(
        f"{store.path}: no sample with the key {which!r}. A key is the path relative to the raw "
        "folder, with / between folders; an index is a number."
    )


def facts_of(sample: dict[str, Any]) -> dict[str, Any]:
    """A sample without its pixels, as lists, texts and numbers that JSON can hold."""
    return {name: _plain(value) for name, value in sample.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        if value.ndim == 3 and value.dtype.kind != "f":
            return f"{value.dtype} {list(value.shape)}"
        return value.tolist()
    if isinstance(value, Polygons):
        return [_plain_outline(outline) for outline in value]
    return f"{len(value)} bytes" if isinstance(value, bytes) else value


def _plain_outline(outline: Outline) -> Any:
    if isinstance(outline, Runs):
        return f"{len(outline.counts)} runs"
    return [part.tolist() for part in outline]


def write_picture(sample: dict[str, Any], path: Path, field: str = "image") -> None:
    """Write an image of a sample to a file; PNG keeps every pixel.

    Raises:
        SchemaMismatchError: The sample has no such image.
        ImageError: The file's kind is unknown, or cannot hold such pixels.
        OSError: The file cannot be written.
    """
    import cv2

    pixels = sample.get(field)
    if not isinstance(pixels, np.ndarray) or pixels.ndim != 3:
        raise SchemaMismatchError(f"field {field!r} is not an image; the sample has {list(sample)}")
    channel_count = pixels.shape[2]
    if channel_count == 2:
        raise ImageError(f"{path}: gray with alpha cannot be written; build with --mode rgba")
    if channel_count == 3:
        pixels = cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR)
    elif channel_count == 4:
        pixels = cv2.cvtColor(pixels, cv2.COLOR_RGBA2BGRA)
    try:
        is_encoded, data = cv2.imencode(path.suffix or ".png", pixels)
    except cv2.error as error:
        raise ImageError(f"{path}: unknown kind of picture; end its name in .png") from error
    if not is_encoded:
        raise ImageError(f"{path}: cannot hold {pixels.dtype} {pixels.shape}; end its name in .png")
    path.write_bytes(data.tobytes())
