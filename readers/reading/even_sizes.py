"""Images and masks of one size, where the schema leaves their size open: read like fixed fields.

Who builds a store does not always know beforehand that all pictures have one size (MNIST, a torch
Dataset of equal arrays). The index has the extents of every sample, so it shows batch by batch; and
where raw elements end a record, their place follows from its length:

    +--------+-------+-----------------+-------------+
    | header | fixed | variable fields | image  mask |   start of image = length - mask - image
    +--------+-------+-----------------+-------------+
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from readers.reading.view import StoreView
from readers.store.codecs import free_axes
from readers.store.reader import Located, StoreReader
from readers.store.record import RecordLayout
from readers.store.schema import Field

_LOOKED_AT = 4
"""Shards that are looked at to guess whether a store's images have one size."""

_CHUNK = 2**16


class Even(NamedTuple):
    """A field that has one size in all samples of a batch.

    Attributes:
        shape: Of each value.
        start: Where it begins in each record.
        byte_count: Of each value.
    """

    shape: tuple[int, ...]
    start: NDArray[np.int64]
    byte_count: int


class EvenFields:
    """Finds the fields that have one size in a batch, and a place that follows from it.

    Args:
        layout: Of the store's records.
        names: The fields that may be.
    """

    def __init__(self, layout: RecordLayout, names: Sequence[str]) -> None:
        self._layout = layout
        self._fields = [layout.schema[name] for name in names if _has_place(layout, name)]
        last = layout.variable_fields
        # Of each, what lies behind it in the record.
        self._behind = {
            field.name: [layout.schema[name] for name in last[last.index(field.name) + 1 :]]
            for field in self._fields
        }

    def of(self, located: Located) -> dict[str, Even]:
        """Those of a batch, by name."""
        found: dict[str, Even] = {}
        for field in self._fields:
            shape = _shape(field, located)
            if shape is None:
                continue
            byte_count = math.prod(shape) * np.dtype(field.dtype).itemsize
            start = located.lengths() - byte_count
            for other in self._behind[field.name]:
                start = start - _bytes(other, located)
            # Where a record says otherwise, it is damaged, and reading it whole says how.
            if (start >= self._layout.variable_start).all():
                found[field.name] = Even(shape, start, byte_count)
        return found


def _has_place(layout: RecordLayout, name: str) -> bool:
    """Whether a field's place follows from the extents of what ends the record."""
    if name not in layout.variable_fields or layout.schema[name].kind not in ("image", "mask"):
        return False
    last = layout.variable_fields[layout.variable_fields.index(name) :]
    fields = [layout.schema[one] for one in last]
    return all(field.holds_elements and field.dtype is not None for field in fields)


def _shape(field: Field, located: Located) -> tuple[int, ...] | None:
    """The shape that all values have, or None."""
    shape = list(field.shape)
    for axis_name, axis in free_axes(field):
        extents = located.column(f"{field.name}.{axis_name}")
        if not len(extents) or (extents != extents[0]).any():
            return None
        shape[axis] = int(extents[0])
    return tuple(side or 0 for side in shape)


def _bytes(field: Field, located: Located) -> NDArray[np.int64]:
    """Bytes of each value of a field of elements."""
    known = math.prod(side for side in field.shape if side is not None)
    sizes = np.array(known * np.dtype(field.dtype).itemsize, np.int64)
    for axis_name, _ in free_axes(field):
        sizes = sizes * located.column(f"{field.name}.{axis_name}").astype(np.int64)
    return sizes


def likely_shape(store: StoreReader, field: Field) -> tuple[int, ...] | None:
    """The shape that all values of an image or mask seem to have, by a look at some shards.

    None where they differ, or where single samples have element types of their own.
    """
    if field.dtype is None or field.kind not in ("image", "mask"):
        return None
    count = len(store.manifest.shards)
    shape = list(field.shape)
    spread = np.linspace(0, count - 1, min(count, _LOOKED_AT)).astype(int)
    for number in spread.tolist():
        columns = store.shard(number).columns
        for axis_name, axis in free_axes(field):
            extents = columns[f"{field.name}.{axis_name}"]
            if shape[axis] is None:
                shape[axis] = int(extents[0])
            if (extents != shape[axis]).any():
                return None
    return None if None in shape else tuple(side or 0 for side in shape)


def likely_bytes(store: StoreReader, field: Field) -> int | None:
    """Bytes of each value of a field that is likely to be read like a fixed one, or None."""
    if not _has_place(store.layout, field.name):
        return None
    shape = likely_shape(store, field)
    return None if shape is None else math.prod(shape) * np.dtype(field.dtype).itemsize


def shape_of_all(view: StoreView, field: Field) -> tuple[int, ...] | None:
    """The shape that this field has in all samples of a view, or None where they differ."""
    if likely_shape(view.store, field) is None:
        return None
    found, selection = None, view.selection
    for first in range(0, len(selection), _CHUNK):
        indices = np.arange(first, min(first + _CHUNK, len(selection)), dtype=np.int64)
        shape = _shape(field, view.store.located(selection.positions(indices)))
        if shape is None or found not in (None, shape):
            return None
        found = shape
    return found
