"""One sample's bytes.

    header             fixed fields           variable fields
    ┌────────────────┬──────────────────────┬──────────────────────────┐
    │ scalars, ends, │ each at a multiple   │ one behind the other, in │
    │ extents; to a  │ of 8, in schema      │ schema order; each ends  │
    │ multiple of 8  │ order                │ where the header says    │
    └────────────────┴──────────────────────┴──────────────────────────┘

A field of fixed size lies at the same place in every record of a store, so that one call can gather
it from many. FORMAT.md has the details.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from readers.store.codecs import Codec, codec_of, decode_reduced, fitting_array, little
from readers.store.errors import CodecError, ImageError
from readers.store.layout import PAYLOAD_ALIGNMENT_BYTES
from readers.store.schema import Field, Schema, field_bytes

STRUCT_CODES = {
    "bool": "?",
    "uint8": "B",
    "int8": "b",
    "uint16": "H",
    "int16": "h",
    "uint32": "I",
    "int32": "i",
    "uint64": "Q",
    "int64": "q",
    "float16": "e",
    "float32": "f",
    "float64": "d",
}
"""What a header item of each element type is to `struct`."""

INT_BOUNDS = {
    name: (int(np.iinfo(name).min), int(np.iinfo(name).max) + 1)
    for name in STRUCT_CODES
    if "int" in name
}
"""[low, high) of each whole-number type."""

RECORD_BYTES_MAX = 2**32 - 1
"""LMDB's limit for a value, so that ends and lengths are 32-bit numbers."""


@dataclass(frozen=True)
class HeaderItem:
    """One number of a record's header.

    Attributes:
        name: `field` for a scalar's value; `field.end`, `field.height`, ... for the others.
        dtype: Its element type.
    """

    name: str
    dtype: str

    @property
    def is_column(self) -> bool:
        """Whether the index keeps an array of it. The ends mean nothing outside their record."""
        return not self.name.endswith(".end")


@dataclass(frozen=True)
class RecordLayout:
    """Where everything lies in the records of one schema.

    Attributes:
        schema: The fields.
        items: The numbers of the header, in order.
        header: The header as `struct` packs it, with its padding.
        fixed_offsets: Offset of each field of fixed size from the start of the record, in bytes.
        variable_start: Where the first field of variable size begins: the shortest record's length.
        variable_fields: Names of the fields of variable size, in order.
    """

    schema: Schema
    items: tuple[HeaderItem, ...]
    header: struct.Struct
    fixed_offsets: dict[str, int]
    variable_start: int
    variable_fields: tuple[str, ...]

    @classmethod
    def of(cls, schema: Schema) -> RecordLayout:
        """The layout that follows from a schema."""
        items: list[HeaderItem] = []
        for field in schema.fields:
            if field.is_scalar:
                items.append(HeaderItem(field.name, field.dtype or ""))
            elif not field.is_fixed:
                items.append(HeaderItem(f"{field.name}.end", "uint32"))
                for name, dtype in codec_of(field).item_names(field):
                    items.append(HeaderItem(f"{field.name}.{name}", dtype))
        codes = "".join(STRUCT_CODES[item.dtype] for item in items)
        end = struct.calcsize("<" + codes)
        header = struct.Struct(f"<{codes}{_aligned(end) - end}x")
        end = header.size
        fixed_offsets = {}
        for field in schema.fields:
            if field.is_fixed and not field.is_scalar:
                fixed_offsets[field.name] = end
                end = _aligned(end + field_bytes(field))
        variable = tuple(f.name for f in schema.fields if not f.is_fixed)
        return cls(schema, tuple(items), header, fixed_offsets, end, variable)

    @property
    def columns(self) -> tuple[HeaderItem, ...]:
        """The header items that the index keeps an array of."""
        return tuple(item for item in self.items if item.is_column)


def _aligned(offset: int) -> int:
    return -(-offset // PAYLOAD_ALIGNMENT_BYTES) * PAYLOAD_ALIGNMENT_BYTES


def pack_record(
    layout: RecordLayout, values: Mapping[str, Any]
) -> tuple[bytearray, tuple[Any, ...]]:
    """One sample's bytes, and the values of its header items.

    Args:
        layout: Of the store's schema.
        values: A value for every field: pixels and arrays as numpy arrays, images that are a file's
            bytes as `OriginalImage`, text as str or bytes.

    Raises:
        CodecError: A value is missing or does not fit its field; the text names the field.
    """
    _check_size(layout.variable_start)
    header: list[Any] = []
    # Each value is copied once, to its place: an image may take megabytes.
    parts: list[tuple[int, bytes | memoryview]] = []
    end = layout.variable_start
    for field in layout.schema.fields:
        try:
            value = values[field.name]
        except KeyError:
            raise CodecError(f"field {field.name!r}: no value; found {sorted(values)}") from None
        try:
            if field.is_scalar:
                header.append(_fitting_scalar(field, value))
            elif field.is_fixed:
                array = fitting_array(field, value)
                data = array.reshape(-1).view(np.uint8).data
                parts.append((layout.fixed_offsets[field.name], data))
            else:
                items, payload = codec_of(field).encode(field, value)
                parts.append((end, payload))
                end += len(payload)
                _check_size(end)
                header += [end, *items]
        except CodecError as error:
            raise CodecError(f"field {field.name!r}: {error}") from error
    record = bytearray(end)
    layout.header.pack_into(record, 0, *header)
    # A slice of the bytearray itself would copy what it is given first.
    view = memoryview(record)
    for start, part in parts:
        view[start : start + len(part)] = part
    return record, tuple(header)


def _check_size(byte_count: int) -> None:
    if byte_count > RECORD_BYTES_MAX:
        raise CodecError(f"the record would be {byte_count} bytes; at most {RECORD_BYTES_MAX}")


def _fitting_scalar(field: Field, value: Any) -> Any:
    """The value as the Python number that is stored; of a float, the nearest that its type has."""
    if type(value) is int and (bounds := INT_BOUNDS.get(field.dtype or "")) is not None:
        if not bounds[0] <= value < bounds[1]:
            raise CodecError(f"{value!r} does not fit {field.dtype}")
        return _checked_position(field, value)
    try:
        number = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise CodecError(f"expected one number, found {value!r}") from error
    if number.shape != ():
        raise CodecError(f"expected one number, found shape {number.shape}")
    if number.dtype.kind not in "biuf":
        raise CodecError(f"expected a number of {field.dtype}, found {value!r}")
    with np.errstate(invalid="ignore", over="ignore"):
        stored = number.astype(field.dtype)
    # Python compares numbers of two types exactly; numpy would round one of them first.
    exact, kept = number.item(), stored.item()
    is_near = stored.dtype.kind == "f" and not (math.isinf(kept) and math.isfinite(exact))
    if kept != exact and not is_near:
        raise CodecError(f"{value!r} does not fit {field.dtype}")
    return _checked_position(field, kept)


def _checked_position(field: Field, value: Any) -> Any:
    if field.names is not None and not 0 <= value < len(field.names):
        raise CodecError(f"{value!r}, expected [0, {len(field.names)}): a position among its names")
    return value


class RecordReader:
    """Takes chosen fields out of records of one layout.

    What can be known from the schema is worked out once, here; `unpack` is the per-sample path.

    Args:
        layout: Of the store's schema.
        names: Fields to take, in the order in which they come out. None means all.
        copies: Whether arrays own their memory. Else those that are stored as they are (raw images,
            arrays) are read-only views of the record.
    """

    def __init__(
        self, layout: RecordLayout, names: Iterable[str] | None = None, *, copies: bool = True
    ) -> None:
        self._copies = copies
        self._unpack_header = layout.header.unpack_from
        self._least = layout.variable_start
        place = {item.name: at for at, item in enumerate(layout.items)}
        self._ends = [place[f"{name}.end"] for name in layout.variable_fields]
        self._scalars: list[tuple[str, int]] = []
        self._fixed: list[tuple[str, int, int, np.dtype[Any], tuple[int, ...]]] = []
        self._variable: list[tuple[str, Field, Codec, int, int, int]] = []
        wanted = layout.schema.names if names is None else tuple(names)
        for name in wanted:
            field = layout.schema[name]
            if field.is_scalar:
                self._scalars.append((name, place[name]))
            elif field.is_fixed:
                shape = tuple(side or 0 for side in field.shape)
                start = layout.fixed_offsets[name]
                end = start + field_bytes(field)
                self._fixed.append((name, start, end, little(field.dtype or ""), shape))
            else:
                at = place[f"{name}.end"]
                count = len(codec_of(field).item_names(field))
                turn = layout.variable_fields.index(name)
                self._variable.append((name, field, codec_of(field), turn, at + 1, at + 1 + count))
        self._order = dict.fromkeys(wanted)

    def _parts(self, record: memoryview) -> tuple[tuple[Any, ...], list[int]]:
        """The header's items, and where the variable fields begin and end."""
        if len(record) < self._least:
            raise CodecError(f"the record has {len(record)} bytes, expected at least {self._least}")
        header = self._unpack_header(record)
        bounds = [self._least, *(header[at] for at in self._ends)]
        if bounds[-1] != len(record) or any(a > b for a, b in pairwise(bounds)):
            raise CodecError(f"fields end at {bounds}, expected to rise to {len(record)}")
        return header, bounds

    def encoded(self, record: memoryview) -> tuple[memoryview, int]:
        """An image that is a file's bytes, not decoded, when it is the one chosen field.

        Returns:
            The file's bytes, in the record, and the EXIF orientation to apply; of an image that is
            stored as pixels those, and 0.

        Raises:
            CodecError: The bytes are no record of this layout.
        """
        ((_, field, _, turn, _, last),) = self._variable
        assert field.codec in ("original", "mixed")
        header, bounds = self._parts(record)
        return record[bounds[turn] : bounds[turn + 1]], header[last - 1]

    def reduced(self, record: memoryview, reduction: int) -> NDArray[Any]:
        """An image that is a file's bytes, when it is the one chosen field, of reduced size.

        Args:
            record: One of which `encoded` says that it holds a file.
            reduction: See `decode_reduced`.

        Raises:
            CodecError: The bytes are no record of this layout; the text names the field.
            ImageError: The file cannot be decoded.
        """
        ((name, field, _, turn, first, last),) = self._variable
        header, bounds = self._parts(record)
        payload = record[bounds[turn] : bounds[turn + 1]]
        try:
            return decode_reduced(field, header[first:last], payload, reduction)
        except CodecError as error:
            raise CodecError(f"field {name!r}: {error}") from error
        except ImageError as error:
            raise ImageError(f"field {name!r}: {error}") from error

    def unpack(self, record: memoryview) -> dict[str, Any]:
        """The chosen fields of one record.

        Raises:
            CodecError: The bytes are no record of this layout; the text names the field.
            ImageError: An image that is a file's bytes cannot be decoded.
        """
        header, bounds = self._parts(record)
        values: dict[str, Any] = dict(self._order)
        for name, at in self._scalars:
            values[name] = header[at]
        for name, start, end, dtype, shape in self._fixed:
            array = np.frombuffer(record[start:end], dtype).reshape(shape)
            values[name] = array.copy() if self._copies else array
        for name, field, codec, turn, first, last in self._variable:
            payload = record[bounds[turn] : bounds[turn + 1]]
            try:
                value = codec.decode(field, header[first:last], payload)
                values[name] = value.copy() if self._copies and codec.gives_views else value
            except CodecError as error:
                raise CodecError(f"field {name!r}: {error}") from error
            except ImageError as error:
                raise ImageError(f"field {name!r}: {error}") from error
        return values
