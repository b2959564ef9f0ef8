"""Batches of fields that have one size in the whole store, with nothing worked out twice.

A batch of small samples is copied faster than Python finds out how. So what does not change from
one batch to the next is worked out once for a view: where every record begins, the bytes of the
store as rows of each field, what becomes of the bytes. Left for a batch are one look-up, one gather
a field, and one look-up a scalar.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from readers.reading.buffers import SMALL_BYTES, take_plain
from readers.reading.gather import bytes_of
from readers.reading.show import images_shown
from readers.reading.view import StoreView
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
        shape: Of a value.
        is_image: Whether they are images.
    """

    name: str
    rows: torch.Tensor
    byte_count: int
    dtype: torch.dtype | None
    shape: tuple[int, ...]
    is_image: bool


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
        self._view = view
        self._bytes = store.bytes
        self._table = SampleTable(store, [field.name for field in scalars])
        self._scalars = list(scalars)
        offsets = store.layout.fixed_offsets
        data = bytes_of(store.bytes.memory)
        self._rows = [_rows(data, field, offsets[field.name]) for field in fixed]
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
        count_max: int,
        take: Callable[[int], torch.Tensor],
        batch: dict[str, Any],
    ) -> bool:
        """Put the fields of some samples into a batch.

        Args:
            positions: Of the samples in the store.
            count_max: Samples of the largest batch that they are cut into.
            take: Gives memory for what is large in it.
            batch: The batch, by name.

        Returns:
            Whether a disk or server had to be waited for, as far as that is known.

        Raises:
            ShardError: A shard is missing or damaged.
        """
        starts, count, waited = self._table.starts(positions), len(positions), False
        for field in self._scalars:
            batch[field.name] = scalar_column(field, self._table.columns[field.name][positions])
        if self._rows:
            waited = self._bytes.bring_in(starts + self._first, self._byte_count)
        index = torch.from_numpy(starts)
        for name, rows, byte_count, dtype, shape, is_image in self._rows:
            # NOTE [ a small tensor keeps no batch ] in batch_reader.py.
            is_small = byte_count * count_max < SMALL_BYTES
            memory = (take_plain if is_small else take)(count * byte_count)
            torch.index_select(rows, 0, index, out=memory.view(count, byte_count))
            values = (memory if dtype is None else memory.view(dtype)).view(count, *shape)
            batch[name] = images_shown(values, self._view.image_as) if is_image else values
        return waited


def _rows(data: torch.Tensor, field: Field, offset: int) -> _Rows:
    """A field, as the store's bytes have it: overlapping rows, so that an index is an address."""
    byte_count = field_bytes(field)
    shape = tuple(side or 0 for side in field.shape)
    count = len(data) - offset - byte_count + 1
    rows = torch.as_strided(data, (count, byte_count), (1, 1), offset)
    dtype: torch.dtype = getattr(torch, field.dtype or "")
    kept = None if dtype == torch.uint8 else dtype
    return _Rows(field.name, rows, byte_count, kept, shape, field.kind == "image")


def scalar_column(field: Field, values: NDArray[Any]) -> Any:
    """A scalar field of many samples: a tensor, or a list of names."""
    if field.kind == "scalar" and field.names is not None:
        return [field.names[value] for value in values.tolist()]
    return torch.from_numpy(values)
