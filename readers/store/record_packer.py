"""Samples of one layout -> records, by what the schema says alone, worked out once.

`pack_record` looks at every field anew, 30 us a record: as long as the decoding of a tiny picture.
Here a record of which every value is what its field wants, as builds make them, takes 6; any other
goes to `pack_record`, which packs it the same or says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from readers.store.codecs import codec_of, little
from readers.store.errors import CodecError
from readers.store.record import (
    INT_BOUNDS,
    RECORD_BYTES_MAX,
    RecordLayout,
    pack_record,
)
from readers.store.schema import SIDE_MAX, Field, field_bytes

Packed = tuple[bytearray, tuple[Any, ...]]

_Payload = bytes | memoryview
_Encode = Callable[[Any], tuple[tuple[int, ...], _Payload] | None]


class _Scalar(NamedTuple):
    """A whole number in [low, high)."""

    name: str
    low: int
    high: int


class _Fixed(NamedTuple):
    """An array of one shape, at one place of every record."""

    name: str
    start: int
    end: int
    dtype: np.dtype[Any]
    shape: tuple[int | None, ...]


class _Variable(NamedTuple):
    """A value of which each sample has its own length."""

    name: str
    encode: _Encode


class RecordPacker:
    """Packs samples of one layout.

    Args:
        layout: Of the store's schema.
    """

    def __init__(self, layout: RecordLayout) -> None:
        self._layout = layout
        self._pack_header = layout.header.pack_into
        self._start = layout.variable_start
        fields = [_field_of(layout, field) for field in layout.schema.fields]
        self._fields = [field for field in fields if field is not None]
        self._is_known = len(self._fields) == len(fields)

    def pack(self, values: Mapping[str, Any]) -> Packed:
        """One sample's bytes, and the values of its header items; see `pack_record`.

        Raises:
            CodecError: A value is missing or does not fit its field; the text names the field.
        """
        packed = self._packed(values) if self._is_known else None
        return pack_record(self._layout, values) if packed is None else packed

    def _packed(self, values: Mapping[str, Any]) -> Packed | None:
        """The record, or None where a value is not plainly what its field wants."""
        header: list[Any] = []
        parts: list[tuple[int, int, _Payload]] = []
        end = self._start
        for field in self._fields:
            value = values.get(field.name)
            if isinstance(field, _Scalar):
                if type(value) is not int or not field.low <= value < field.high:
                    return None
                header.append(value)
            elif isinstance(field, _Fixed):
                if (
                    type(value) is not np.ndarray
                    or value.dtype != field.dtype
                    or value.shape != field.shape
                    or not value.flags.c_contiguous
                ):
                    return None
                parts.append((field.start, field.end, value.data.cast("B")))
            else:
                encoded = field.encode(value)
                if encoded is None:
                    return None
                items, payload = encoded
                start, end = end, end + len(payload)
                parts.append((start, end, payload))
                header.append(end)
                header += items
        if end > RECORD_BYTES_MAX:
            return None
        record = bytearray(end)
        self._pack_header(record, 0, *header)
        # A slice of the bytearray itself would copy what it is given first.
        view = memoryview(record)
        for start, stop, part in parts:
            view[start:stop] = part
        return record, tuple(header)


def _field_of(layout: RecordLayout, field: Field) -> _Scalar | _Fixed | _Variable | None:
    """What is known of a field; None where `pack_record` has to look at each value."""
    if field.is_scalar:
        bounds = INT_BOUNDS.get(field.dtype or "")
        if bounds is None:
            return None
        low, high = bounds
        if field.names is not None:
            low, high = max(low, 0), min(high, len(field.names))
        return _Scalar(field.name, low, high)
    if field.is_fixed:
        start, byte_count = layout.fixed_offsets[field.name], field_bytes(field)
        dtype = little(field.dtype or "")
        if not byte_count or not _has_bytes(dtype):
            return None
        return _Fixed(field.name, start, start + byte_count, dtype, field.shape)
    return _Variable(field.name, _encoder(field))


def _encoder(field: Field) -> _Encode:
    """What encodes values of a field of variable size; None is its answer to an odd one."""
    if field.kind == "text":
        return _encoded_text
    is_plain = field.holds_elements and field.dtype is not None and field.names is None
    if is_plain and _has_bytes(little(field.dtype or "")):
        return _element_encoder(field)
    encode = codec_of(field).encode

    def general(value: Any) -> tuple[tuple[int, ...], _Payload] | None:
        try:
            return encode(field, value)
        except CodecError:
            return None

    return general


def _encoded_text(value: Any) -> tuple[tuple[int, ...], _Payload] | None:
    if type(value) is str:
        try:
            return (), value.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            return None
    return ((), value) if type(value) is bytes else None


def _element_encoder(field: Field) -> _Encode:
    """Of arrays whose extents differ from sample to sample."""
    dtype, axis_count = little(field.dtype or ""), len(field.shape)
    free = [axis for axis, side in enumerate(field.shape) if side is None]
    known = [(axis, side) for axis, side in enumerate(field.shape) if side is not None]

    def elements(value: Any) -> tuple[tuple[int, ...], _Payload] | None:
        if type(value) is not np.ndarray or value.ndim != axis_count:
            return None
        shape = value.shape
        for axis, side in known:
            if shape[axis] != side:
                return None
        is_plain = value.dtype == dtype and value.flags.c_contiguous
        # An array without elements has no bytes to be looked at, and may have any side.
        if not is_plain or not 0 < value.nbytes <= SIDE_MAX:
            return None
        return tuple([shape[axis] for axis in free]), value.data.cast("B")

    return elements


def _has_bytes(dtype: np.dtype[Any]) -> bool:
    """Whether Python shows the bytes of arrays of a type: not of halves, nor of turned bytes."""
    return dtype.isnative and dtype != np.float16
