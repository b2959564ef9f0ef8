"""Batches of fields that have one size in the whole store, with nothing worked out twice.

A batch of small samples is copied faster than Python finds out how. So what does not change from
one batch to the next is worked out once for a view: where every record begins, the bytes of the
store as rows of each field, what becomes of the bytes. Left for a batch are one look-up, one gather
a field, and one look-up a scalar; several batches share them, and are cut out of what they bring.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from readers.reading.buffers import SMALL_BYTES, take_plain
from readers.reading.gather import bytes_of
from readers.reading.show import images_shown
from readers.reading.view import ImageAs, StoreView
from readers.store.mapped_bytes import MappedBytes
from readers.store.sample_table import SampleTable
from readers.store.schema import Field, field_bytes


class _Rows(NamedTuple):
    """A field of fixed size.

    Attributes:
        name: Its name.
        rows: (start of a record, byte) uint8: the field of a record that begins there.
        byte_count: Bytes of a value.
        dtype: Of its elements; None for bytes as they are.
        shape: Of a value, as it is shown.
        strides: Elements from one to the next along each axis of many values.
        is_listed: Whether the values are pictures, which make a list.
    """

    name: str
    rows: torch.Tensor
    byte_count: int
    dtype: torch.dtype | None
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    is_listed: bool


class FixedBatches:
    """Reads batches of a view by one look-up and one gather a field.

    Args:
        view: Its store is one that `serves`.
        scalars: The view's scalar fields.
        fixed: The others, all of fixed size.
    """

    def __init__(self, view: StoreView, scalars: Sequence[Field], fixed: Sequence[Field]) -> None:
        store = view.store
        assert isinstance(store.bytes, MappedBytes)
        self._names = view.fields
        self._bytes = store.bytes
        self._table = SampleTable(store, [field.name for field in scalars])
        self._scalars = list(scalars)
        offsets = store.layout.fixed_offsets
        data = bytes_of(store.bytes.memory)
        self._rows = [_rows(data, field, offsets[field.name], view.image_as) for field in fixed]
        # What the fields take up of a record, from the first to the last.
        self._first = min((offsets[field.name] for field in fixed), default=0)
        ends = [offsets[field.name] + field_bytes(field) for field in fixed]
        self._byte_count = max(ends, default=0) - self._first

    @staticmethod
    def serves(view: StoreView, fixed: Sequence[Field]) -> bool:
        """Whether batches of these fields of a view can be read so."""
        if not SampleTable.fits(view.store):
            return False
        # As rows, the bytes of the store have more elements than torch can count, where it is one
        # of terabytes with rows of megabytes.
        most = 2**63 // max(1, len(view.store.bytes.memory))
        return all(0 < field_bytes(field) < most for field in fixed)

    def read(
        self,
        positions: NDArray[np.int64],
        counts: Sequence[int],
        take: Callable[[int], torch.Tensor],
    ) -> tuple[list[dict[str, Any]], bool]:
        """The fields of some samples, cut into batches.

        Args:
            positions: Of the samples in the store.
            counts: Samples of each batch.
            take: Gives memory for what is large in it.

        Returns:
            The batches, by name; and whether a disk or server had to be waited for, as far as that
            is known.

        Raises:
            ShardError: A shard is missing or damaged.
        """
        starts, count, waited = self._table.starts(positions), len(positions), False
        batch: dict[str, Any] = dict.fromkeys(self._names)
        for field in self._scalars:
            column = self._table.columns[field.name].take(positions)  # As that of the table.
            batch[field.name] = scalar_column(field, column)
        if self._rows:
            waited = self._bytes.bring_in(starts, self._first, self._byte_count)
        index, count_max = torch.from_numpy(starts), max(counts)
        for name, rows, byte_count, dtype, shape, strides, is_listed in self._rows:
            # NOTE [ a small tensor keeps no batch ] in batch_reader.py.
            is_small = byte_count * count_max < SMALL_BYTES
            memory = (take_plain if is_small else take)(count * byte_count)
            torch.index_select(rows, 0, index, out=memory.view(count, byte_count))
            if dtype is not None:
                memory = memory.view(dtype)
            # One step in place of three: element type, shape, order of the axes.
            values = memory.as_strided((count, *shape), strides)
            batch[name] = images_shown(values, "pil") if is_listed else values
        return ([batch] if len(counts) == 1 else parts_of_batch(batch, counts)), waited


def _rows(data: torch.Tensor, field: Field, offset: int, image_as: ImageAs) -> _Rows:
    """A field, as the store's bytes have it: overlapping rows, so that an index is an address."""
    byte_count = field_bytes(field)
    count = len(data) - offset - byte_count + 1
    rows = torch.as_strided(data, (count, byte_count), (1, 1), offset)
    dtype: torch.dtype = getattr(torch, field.dtype or "")
    # Strides and shape of two values are those of many.
    values = torch.empty((2, *(side or 0 for side in field.shape)), dtype=dtype)
    is_image = field.kind == "image"
    is_listed = is_image and image_as == "pil"
    if is_image and not is_listed:
        values = images_shown(values, image_as)
    kept = None if dtype == torch.uint8 else dtype
    shape = tuple(values.shape[1:])
    return _Rows(field.name, rows, byte_count, kept, shape, values.stride(), is_listed)


def scalar_column(field: Field, values: NDArray[Any]) -> Any:
    """A scalar field of many samples: a tensor, or a list of names."""
    if field.kind == "scalar" and field.names is not None:
        return [field.names[value] for value in values.tolist()]
    return torch.from_numpy(values)


def parts_of_batch(batch: dict[str, Any], counts: Sequence[int]) -> list[dict[str, Any]]:
    """Several batches out of one, of so many samples each."""
    bounds = list(pairwise(accumulate(counts, initial=0)))
    fields = {name: _cut(values, bounds) for name, values in batch.items()}
    return [{name: values[turn] for name, values in fields.items()} for turn in range(len(counts))]


def _cut(values: Any, bounds: list[tuple[int, int]]) -> list[Any]:
    """Parts of a field: NOTE [ a small tensor keeps no batch ] in batch_reader.py."""
    if not isinstance(values, torch.Tensor):
        return [values[start:end] for start, end in bounds]
    # Slices of the tensor would have all of its storage.
    array = values.numpy()
    parts = [array[start:end] for start, end in bounds]
    if max(part.nbytes for part in parts) < SMALL_BYTES:
        parts = [part.copy(order="K") for part in parts]
    return [torch.from_numpy(part) for part in parts]
