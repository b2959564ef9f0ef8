"""FFCV's `.beton`, version 2: a record of each sample, and pages of what has sizes of its own.

    header       24 bytes: version u16, fields u16, page size u32, samples u64, place of the
                 allocation table u64, which is written last
    fields       1041 bytes each: kind u8, name of 16 bytes, arguments of 1024
    records      one a sample: the fields' own parts, aligned as C aligns them
    pages        the bytes of images and alike, where the records point to
    allocations  24 bytes each, to the end of the file: sample u64, place u64, size u64

A record's part is, by the field's kind: a number of 64 bits (float, int); an image's mode u8 (0 a
JPEG, 1 pixels), width u16, height u16, place u64, with nothing between them; place and size (bytes,
JSON); the place of an array, whose type and shape the field's arguments have.
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from packer.files.blocks import FileBlocks
from packer.files.start import pointer_reason
from readers.store.pictures.signatures import START_BYTES

FieldKind = Literal["float", "int", "image", "bytes", "array", "json"]

IS_PIXELS = 1
"""The mode of an image that is not a JPEG."""

_VERSION = 2
_HEADER = struct.Struct("<HHIQQ")
_FIELD = struct.Struct("<B16s1024s")
_ARRAY_ARGUMENTS = struct.Struct("<32QQ")
_ALLOCATION = np.dtype([("sample", "<u8"), ("place", "<u8"), ("size", "<u8")])
_KINDS: dict[int, FieldKind] = {
    0: "float",
    1: "int",
    2: "image",
    3: "bytes",
    4: "array",
    5: "json",
    6: "array",  # Of torch, in the same form.
}
_RECORD_PARTS: dict[FieldKind, Any] = {
    "float": "<f8",
    "int": "<i8",
    "image": np.dtype([("mode", "<u1"), ("width", "<u2"), ("height", "<u2"), ("place", "<u8")]),
    "bytes": np.dtype([("place", "<u8"), ("size", "<u8")]),
    "json": np.dtype([("place", "<u8"), ("size", "<u8")]),
    "array": "<u8",
}
_FIELDS_MAX = 1000


class BetonError(ValueError):
    """The file is not a `.beton` that can be read. The text is why, with what to do."""


@dataclass(frozen=True, kw_only=True)
class BetonField:
    """A field of the samples.

    Attributes:
        name: As its writer called it, up to 16 letters of it.
        kind: What it is.
        dtype: Of an array.
        shape: Of an array.
    """

    name: str
    kind: FieldKind
    dtype: np.dtype[Any] | None = None
    shape: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Beton:
    """What a file says of its samples.

    Attributes:
        fields: In the order of the records.
        records: By field: its part of each sample.
        places: Where each allocation begins, sorted.
        sizes: Of the allocations, in that order.
    """

    fields: tuple[BetonField, ...]
    records: tuple[NDArray[Any], ...]
    places: NDArray[np.uint64]
    sizes: NDArray[np.uint64]

    def sizes_at(self, places: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Bytes of the allocation that begins at each place; -1 where none does."""
        if not len(self.places):
            return np.full(len(places), -1, np.int64)
        at = np.minimum(np.searchsorted(self.places, places), len(self.places) - 1)
        sizes: NDArray[np.int64] = np.where(self.places[at] == places, self.sizes[at], -1)
        return sizes.astype(np.int64)


def read_beton(path: Path) -> Beton:
    """Read all but what is in the pages.

    Raises:
        BetonError: It is not such a file, or damaged.
        OSError: It cannot be read.
    """
    file = FileBlocks(path)
    try:
        return _read(file)
    finally:
        file.close()


def _read(file: FileBlocks) -> Beton:
    if len(file) < _HEADER.size:
        raise BetonError(f"{len(file)} bytes are too few for a .beton")
    version, field_count, _, sample_count, table = _HEADER.unpack(file[: _HEADER.size])
    if version != _VERSION or not 0 < field_count <= _FIELDS_MAX:
        pointer = pointer_reason(bytes(file[:START_BYTES]))
        raise BetonError(
            pointer or f"version {version} with {field_count} fields; expected version {_VERSION}"
        )
    records_at = _HEADER.size + field_count * _FIELD.size
    if records_at > len(file):
        raise BetonError(f"cut short within its fields, after {len(file):,} bytes")
    fields = tuple(_field(file, number) for number in range(field_count))
    # Names that are empty are f0, f1, ... in the order of the fields.
    record = np.dtype([("", _RECORD_PARTS[field.kind]) for field in fields], align=True)
    if not table:
        raise BetonError("its writing did not end: it has no allocation table. Write it again")
    records_end = records_at + sample_count * record.itemsize
    if not records_end <= table <= len(file):
        raise BetonError(
            f"cut short or damaged: {sample_count:,} records and an allocation table at "
            f"{table:,} do not fit in {len(file):,} bytes"
        )
    records = np.frombuffer(bytes(file[records_at:records_end]), record)
    end = len(file) - (len(file) - table) % _ALLOCATION.itemsize
    allocations = np.frombuffer(bytes(file[table:end]), _ALLOCATION)
    order = np.argsort(allocations["place"], kind="stable")
    return Beton(
        fields=fields,
        records=tuple(records[f"f{number}"] for number in range(field_count)),
        places=allocations["place"][order],
        sizes=allocations["size"][order],
    )


def _field(file: FileBlocks, number: int) -> BetonField:
    at = _HEADER.size + number * _FIELD.size
    code, written, arguments = _FIELD.unpack(file[at : at + _FIELD.size])
    name = written.split(b"\0")[0].decode("ascii", "replace")
    kind = _KINDS.get(code)
    if kind is None:
        raise BetonError(
            f"field {name!r} is of kind {code}, which only the program that wrote it knows"
        )
    if kind != "array":
        return BetonField(name=name, kind=kind)
    *sides, length = _ARRAY_ARGUMENTS.unpack_from(arguments)
    try:
        ((_, code_text),) = json.loads(arguments[_ARRAY_ARGUMENTS.size :][:length])
        dtype = np.dtype(code_text)
    except (ValueError, TypeError, RecursionError) as error:
        raise BetonError(f"field {name!r} is an array of no known type: {error}") from error
    while sides and not sides[-1]:
        sides.pop()
    shape = tuple(sides)
    if math.prod(shape) * dtype.itemsize > len(file) or dtype.hasobject:
        raise BetonError(f"field {name!r} is an array of shape {shape} of {dtype}")
    return BetonField(name=name, kind=kind, dtype=dtype, shape=shape)
