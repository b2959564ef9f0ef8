"""Samples of a store by position, as numpy arrays and plain values: reading without torch.

>>> from readers.store.samples import Samples
>>> samples = Samples("shapes.lmdb", ["image", "label"])
>>> samples[0]["image"].shape  # (height, width, channel), uint8
(48, 64, 3)
"""

from __future__ import annotations

import math
import operator
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from readers.store.codecs import little
from readers.store.errors import CodecError, ImageError, ShardError
from readers.store.place import Place
from readers.store.reader import StoreReader, open_store
from readers.store.record import STRUCT_CODES, RecordReader
from readers.store.record_bytes import FileBytes
from readers.store.sample_table import SampleTable


class Samples(Sequence[dict[str, Any]]):
    """All samples of a store, each a dict of field -> value; arrays own their memory.

    The manifest is read here, and each shard is opened when a sample of it is first asked for.

    Args:
        store: Folder or URL of the store, or a store that is open.
        names: Fields to read, in any order. None means all.
        checks_files: See by one stat a shard that all are there. False leaves that out, for a store
            of thousands of shards on a slow mount; what is missing is then an error where it is
            read.
        shows: Fields whose values are given in another form, and what makes it of each.

    Raises:
        ShardError: Shards are missing or of another size.
        StoreError: See `readers.store.reader.open_store`.
        KeyError: The store has no field of a name.
    """

    def __init__(
        self,
        store: str | Place | StoreReader,
        names: Iterable[str] | None = None,
        *,
        checks_files: bool = True,
        shows: Mapping[str, Callable[[Any], Any]] = MappingProxyType({}),
    ) -> None:
        if not isinstance(store, StoreReader):
            store = open_store(store, checks_files=checks_files)
        self.store = store
        layout = self.store.layout
        self.names = layout.schema.names if names is None else tuple(names)
        fields = [layout.schema[name] for name in self.names]
        self._count = self.store.manifest.sample_count
        self._reader = RecordReader(layout, self.names)
        self._fixed = None
        if not any(name in layout.variable_fields for name in self.names) and fields:
            self._fixed = _FixedReader(self.store, self.names, shows)
        self._has_rows = self._fixed is not None and self._fixed.has_rows()
        self._fixed_at: Callable[[int], dict[str, Any]] | None = None
        if self._fixed is not None:
            self._fixed_at = self._fixed.dicts() if self._has_rows else self._fixed.at
        self._shows = list(shows.items())

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        """The sample at `index`, from the end when negative; for a slice, a list of them.

        Raises:
            IndexError: There is no such sample.
            ShardError: A shard or record is missing or damaged; the message names the sample.
        """
        # What samplers ask for, before all that a person may write.
        if type(index) is int and 0 <= index < self._count:
            return self.at(index) if self._fixed_at is None else self._fixed_at(index)
        if isinstance(index, slice):
            return [self.at(at) for at in range(*index.indices(self._count))]
        at = operator.index(index)
        if not -self._count <= at < self._count:
            raise IndexError(f"sample {at} of {self.store.path}, expected [0, {self._count})")
        return self.at(at % self._count)

    def at(self, position: int) -> dict[str, Any]:
        """The sample at a position in [0, len), which is not checked again."""
        if self._fixed_at is not None:
            return self._fixed_at(position)
        shard, place = self.store.locate(position)
        return self._unpacked(shard.record(place), position)

    @property
    def quickest(self) -> Callable[[int], dict[str, Any]]:
        """What `at` comes down to for these fields: a call less for each sample."""
        return self._fixed_at or self.at

    def tuples(self, names: Sequence[str]) -> Callable[[int], tuple[Any, ...]]:
        """What gives values of these fields, which are among `names`, at a position: see `at`."""
        if self._fixed is not None and self._has_rows:
            return self._fixed.tuples(names)
        pick, quickest = tuple_of(names), self.quickest
        return lambda position: pick(quickest(position))

    @property
    def fixed_bytes(self) -> int | None:
        """Bytes at the start of a record that are enough for the fields; None: it takes all."""
        return None if self._fixed is None else self._fixed.byte_count

    def of(self, record: memoryview, position: int) -> dict[str, Any]:
        """The sample at a position, out of its record, or of the bytes that are enough."""
        if self._fixed is not None:
            return self._fixed.values(record, 0)
        return self._unpacked(record, position)

    def _unpacked(self, record: memoryview, position: int) -> dict[str, Any]:
        try:
            sample = self._reader.unpack(record)
        except (CodecError, ImageError) as error:
            shard, place = self.store.locate(position)
            raise ShardError.at(
                shard.path,
                f"{error}. The record is damaged; list every damaged sample with: "
                f"packer verify {self.store.path}",
                place,
            ) from error
        for name, show in self._shows:
            sample[name] = show(sample[name])
        return sample


def tuple_of(names: Sequence[Any]) -> Callable[[Any], tuple[Any, ...]]:
    """What takes these values out of a dict, or of a list by their places."""
    if len(names) == 1:
        (name,) = names
        return lambda sample: (sample[name],)
    return operator.itemgetter(*names) if names else lambda sample: ()


class _FixedReader:
    """Takes fields out of records in which they all have a fixed place.

    A record's place and length were checked when its shard was opened, so nothing but arithmetic is
    left: a fifth of the time that `RecordReader` takes.

    Attributes:
        byte_count: Bytes of a record that have all of its fields of fixed size.
    """

    def __init__(
        self,
        store: StoreReader,
        names: Sequence[str],
        shows: Mapping[str, Callable[[Any], Any]],
    ) -> None:
        layout = store.layout
        self._store = store
        self._first = store.first_samples.tolist()
        # Filled as shards are opened: a shard's bytes, and its offsets.
        self._files: list[FileBytes | None] = [None] * (len(self._first) - 1)
        self._offsets: list[memoryview] = [memoryview(b"")] * len(self._files)
        self.byte_count = layout.variable_start
        self._order = tuple(names)
        scalars = [name for name in names if layout.schema[name].is_scalar]
        codes, at, self._scalars = "<", 0, tuple(scalars)
        for item in layout.items:
            size = struct.calcsize("<" + STRUCT_CODES[item.dtype])
            codes += STRUCT_CODES[item.dtype] if item.name in scalars else f"{size}x"
            at += size
        self._unpack = struct.Struct(codes).unpack_from
        # In the order of the header, which may be another than the one that was asked for.
        self._header_order = tuple(i.name for i in layout.items if i.name in scalars)
        self._arrays = []
        for name in names:
            field = layout.schema[name]
            if not field.is_scalar:
                start = layout.fixed_offsets[name]
                dtype = little(field.dtype or "")
                shape = tuple(side or 0 for side in field.shape)
                self._arrays.append((name, start, dtype, shape, shows.get(name)))
        self._scalar_shows = [(name, shows[name]) for name in scalars if name in shows]
        self._is_in_order = self._order == (*self._header_order, *(a[0] for a in self._arrays))

    def at(self, position: int) -> dict[str, Any]:
        """The fields of the sample at a position of the store."""
        number = bisect_right(self._first, position) - 1
        file = self._files[number]
        if file is None:
            file = self._open(number)
        start = self._offsets[number][position - self._first[number]]
        # Of a mapped file it is looked at where it is: a slice takes a twentieth of all the time.
        if isinstance(file, memoryview):
            return self.values(file, start)
        return self.values(file[start : start + self.byte_count], 0)

    def values(self, record: memoryview, start: int) -> dict[str, Any]:
        """The fields of the record that begins there."""
        values: dict[str, Any] = {} if self._is_in_order else dict.fromkeys(self._order)
        values.update(zip(self._header_order, self._unpack(record, start), strict=False))
        for name, shown in self._scalar_shows:
            values[name] = shown(values[name])
        for name, first, dtype, shape, show in self._arrays:
            array = np.ndarray(shape, dtype, record, start + first).copy()
            values[name] = array if show is None else show(array)
        return values

    # NOTE [ rows of a mapped store ]: seen as rows, one for each address, an array field of any
    # sample is an index and a copy; where each record begins is one look-up. So a sample takes
    # two thirds of the time of `at`, as a tuple half, since no dict is made.

    def has_rows(self) -> bool:
        """Whether `dicts` and `tuples` serve: NOTE [ rows of a mapped store ]."""
        if not SampleTable.fits(self._store):
            return False
        # As rows, the bytes of the store have more elements than numpy can count, where it is one
        # of terabytes with rows of megabytes.
        memory = self._store.bytes.memory
        return self.byte_count < min(len(memory), 2**63 // len(memory))

    def dicts(self) -> Callable[[int], dict[str, Any]]:
        """What does the same as `at`."""
        names, values_at = self._order, self._values_at(self._order)
        # To say `strict` takes a tenth of all the time.
        return lambda position: dict(zip(names, values_at(position)))  # noqa: B905

    def tuples(self, names: Sequence[str]) -> Callable[[int], tuple[Any, ...]]:
        """What gives values of some of the fields."""
        return self._values_at(names)

    def _values_at(self, names: Sequence[str]) -> Callable[[int], tuple[Any, ...]]:
        """What gives values of some fields, in this order: all that it needs is at hand in it."""
        table = SampleTable(self._store, ())
        starts, take_in, unpack = table.each, table.start, self._unpack
        data = self._store.bytes.memory
        memory = memoryview(data)  # type: ignore[arg-type]
        shows = [(self._header_order.index(name), show) for name, show in self._scalar_shows]
        arrays = [
            (_rows(data, first, dtype, shape), show)
            for name, first, dtype, shape, show in self._arrays
            if name in names
        ]
        found = [*self._header_order, *(a[0] for a in self._arrays if a[0] in names)]
        places = [found.index(name) for name in names]
        order = tuple if places == [*range(len(found))] else tuple_of(places)

        def values_at(position: int) -> tuple[Any, ...]:
            # No record begins at 0.
            start = starts[position] or take_in(position)
            values = [*unpack(memory, start)]
            for at, show in shows:
                values[at] = show(values[at])
            for rows, shown in arrays:
                array = rows[start].copy()
                values.append(array if shown is None else shown(array))
            return order(values)

        return values_at

    def _open(self, number: int) -> FileBytes:
        shard = self._store.shard(number)
        # As native integers: indexing a memoryview of them is twice as quick as numpy's.
        self._offsets[number] = memoryview(np.ascontiguousarray(shard.offsets, np.uint64))  # type: ignore[arg-type]
        self._files[number] = shard.file
        return shard.file


def _rows(
    memory: NDArray[np.uint8], first: int, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> NDArray[Any]:
    """(start of a record, *shape): an array of the record that begins there, not to be written."""
    strides = np.empty(shape, dtype).strides
    last = first + math.prod(shape) * dtype.itemsize
    return np.ndarray((len(memory) - last + 1, *shape), dtype, memory, first, (1, *strides))
