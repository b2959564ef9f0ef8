"""Stores of other tools, written as those write them: LMDB by LMDB, the others by their forms."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
from PIL import Image

from tests.packer.conftest import picture


def encoded(pixels: np.ndarray[Any, Any], kind: str = "PNG") -> bytes:
    """Pixels as the bytes of a picture file."""
    data = io.BytesIO()
    Image.fromarray(pixels).save(data, kind)
    return data.getvalue()


def drawn(count: int, height: int = 6, width: int = 8) -> list[np.ndarray[Any, Any]]:
    """Pictures of noise, no two alike."""
    return [np.ascontiguousarray(picture(str(n))[:height, :width]) for n in range(count)]


def write_lmdb(
    path: Path, entries: Mapping[bytes, bytes], *, subdir: bool = True, database: bytes = b""
) -> Path:
    """An LMDB of entries, with LMDB's own lock file beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    env = lmdb.open(str(path), map_size=2**26, subdir=subdir, max_dbs=4)
    handle = env.open_db(database) if database else None
    with env.begin(write=True, db=handle) as transaction:
        for key, value in entries.items():
            transaction.put(key, value)
    env.close()
    return path


def varint(number: int) -> bytes:
    """A number as protobuf writes it."""
    number &= 2**64 - 1
    parts = b""
    while number > 0x7F:
        parts += bytes([number & 0x7F | 0x80])
        number >>= 7
    return parts + bytes([number])


def datum(
    data: bytes, sides: tuple[int, int, int] = (0, 0, 0), label: int | None = None, **others: bool
) -> bytes:
    """A Caffe Datum of (channels, height, width); `encoded=True` for a picture file."""
    message = b""
    if any(sides):
        message += b"".join(bytes([n << 3]) + varint(s) for n, s in enumerate(sides, 1))
    message += b"\x22" + varint(len(data)) + data
    if label is not None:
        message += b"\x28" + varint(label)
    return message + (b"\x38\x01" if others.get("encoded") else b"")


def caffe_pixels(pixels: np.ndarray[Any, Any], label: int) -> bytes:
    """A Datum as convert_imageset writes it: planes of blue, green and red."""
    height, width, channels = pixels.shape
    planes = pixels[:, :, ::-1].transpose(2, 0, 1)
    return datum(planes.tobytes(), (channels, height, width), label)


# --- FFCV -----------------------------------------------------------------------------------------

KINDS = {"float": 0, "int": 1, "image": 2, "bytes": 3, "array": 4, "json": 5, "own": 255}
_PARTS: dict[str, Any] = {
    "float": "<f8",
    "int": "<i8",
    "image": [("mode", "<u1"), ("width", "<u2"), ("height", "<u2"), ("data_ptr", "<u8")],
    "bytes": [("ptr", "<u8"), ("size", "<u8")],
    "json": [("ptr", "<u8"), ("size", "<u8")],
    "array": "<u8",
    "own": "<u8",
}
PAGE_BYTES = 4096
"""FFCV's own are of 2 MiB at least; readers go by the header."""


def array_arguments(array: np.ndarray[Any, Any]) -> bytes:
    """What the description of a field says of an array's shape and type."""
    described = json.dumps(array.dtype.descr).encode()
    shape = (*array.shape, *[0] * (32 - array.ndim))
    return struct.pack("<32QQ", *shape, len(described)) + described


def write_beton(
    path: Path,
    fields: Mapping[str, str],
    samples: Sequence[Sequence[Any]],
    jpeg: Iterable[int] = (),
) -> Path:
    """A `.beton` of samples.

    Args:
        path: The file.
        fields: Kind of each by name.
        samples: Values by field; images are pixels.
        jpeg: Samples whose images are stored as JPEG.
    """
    descriptions = b""
    for number, (name, kind) in enumerate(fields.items()):
        arguments = array_arguments(samples[0][number]) if kind == "array" else b""
        descriptions += struct.pack("<B16s1024s", KINDS[kind], name.encode(), arguments)
    record = np.dtype([("", np.dtype(_PARTS[kind])) for kind in fields.values()], align=True)
    records = np.zeros(len(samples), record)
    begin = -(-(24 + len(descriptions) + records.nbytes) // PAGE_BYTES) * PAGE_BYTES
    pages, allocations = b"", b""
    for sample, values in enumerate(samples):
        for number, (kind, value) in enumerate(zip(fields.values(), values, strict=True)):
            if kind in ("int", "float"):
                records[sample][number] = value
                continue
            place = begin + len(pages)
            data = bytes(value) if isinstance(value, bytes) else b""
            if kind == "json":
                data = json.dumps(value).encode() + b"\0"
            elif kind == "image":
                as_jpeg = sample in set(jpeg)
                data = encoded(value, "JPEG") if as_jpeg else value.tobytes()
                mode = 0 if as_jpeg else 1
                records[sample][number] = (mode, value.shape[1], value.shape[0], place)
            elif kind == "array":
                data = value.tobytes()
            if kind in ("bytes", "json"):
                records[sample][number] = (place, len(data))
            elif kind in ("array", "own"):
                records[sample][number] = place
            allocations += struct.pack("<QQQ", sample, place, len(data))
            pages += data
    pages += bytes(-len(pages) % PAGE_BYTES)
    header = struct.pack("<HHIQQ", 2, len(fields), PAGE_BYTES, len(samples), begin + len(pages))
    start = header + descriptions + records.tobytes()
    path.write_bytes(start + bytes(begin - len(start)) + pages + allocations)
    return path


# --- MosaicML Streaming ---------------------------------------------------------------------------

_SIZES = {"int": 8, "float32": 4, "float64": 8, "uint8": 1}


def mds_value(encoding: str, value: Any) -> bytes:
    """A value as the encoding writes it."""
    kind = encoding.partition(":")[0]
    if kind == "int":
        return struct.pack("<q", value)
    if kind == "float64":
        return struct.pack("<d", value)
    if kind == "str":
        return str(value).encode()
    if kind == "json":
        return json.dumps(value).encode()
    if kind in ("jpeg", "png"):
        return encoded(value, kind.upper())
    if kind == "pil":
        mode = Image.fromarray(value).mode.encode()
        sides = struct.pack("<III", value.shape[1], value.shape[0], len(mode))
        return sides + mode + value.tobytes()
    if encoding == "ndarray":
        return bytes([8, value.ndim << 2, *value.shape]) + value.tobytes()
    return value.tobytes() if isinstance(value, np.ndarray) else bytes(value)


def write_mds(
    folder: Path, columns: Mapping[str, str], shards: Sequence[Sequence[Mapping[str, Any]]]
) -> Path:
    """A folder of shards and their index."""
    folder.mkdir(parents=True, exist_ok=True)
    names = sorted(columns)
    config = {
        "column_encodings": [columns[name] for name in names],
        "column_names": names,
        "column_sizes": [_SIZES.get(columns[name]) for name in names],
        "compression": None,
        "format": "mds",
        "hashes": [],
        "size_limit": 1 << 26,
        "version": 2,
    }
    text = json.dumps(config, sort_keys=True).encode()
    index = []
    for number, samples in enumerate(shards):
        held = []
        for sample in samples:
            values = [mds_value(columns[name], sample[name]) for name in names]
            own = [len(v) for n, v in zip(names, values, strict=True) if columns[n] not in _SIZES]
            held.append(np.array(own, "<u4").tobytes() + b"".join(values))
        begin = 4 + 4 * (len(held) + 1) + len(text)
        offsets = begin + np.cumsum([0, *map(len, held)])
        data = struct.pack("<I", len(held)) + offsets.astype("<u4").tobytes() + text
        data += b"".join(held)
        path = folder / f"shard.{number:05d}.mds"
        path.write_bytes(data)
        raw_data = {"basename": path.name, "bytes": len(data), "hashes": {}}
        index.append({**config, "raw_data": raw_data, "samples": len(held), "zip_data": None})
    (folder / "index.json").write_text(json.dumps({"version": 2, "shards": index}))
    return folder
