"""One shard file, read through its pages: LMDB is not needed for that.

Nothing that the file says is believed: all of its index is held against the file itself first.
"""

from __future__ import annotations

import errno
import math
import os
import stat
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from readers.store.errors import ChecksumError, CodecError, ShardError
from readers.store.layout import (
    IDENTITY_BYTES,
    INDEX_DB,
    INDEX_PARTS_MAX,
    KEYS_DB,
    POSITION_BYTES,
    column_key,
    digest_from_key,
    index_from_key,
)
from readers.store.manifest import ShardInfo
from readers.store.npy import npy_view
from readers.store.pages import PageFile
from readers.store.place import Place
from readers.store.read_policy import ReadPolicy, tried
from readers.store.record import RecordLayout
from readers.store.record_bytes import FileBytes
from readers.store.schema import ITEM_DTYPES, Field
from readers.store.window import Window

_INDEX_GAP_BYTES_MAX = 16 * 2**10
"""Parts of an index with no more bytes between them count as one: they are read by one call."""

_INDEX_ARRAYS = (("offset", "uint64"), ("length", "uint32"), ("crc32", "uint32"))


def open_shard_file(path: Path, info: ShardInfo, policy: ReadPolicy | None = None) -> int:
    """A descriptor of a shard file. See `open_and_look`."""
    return open_and_look(path, info, policy)[0]


def open_and_look(
    path: Path, info: ShardInfo, policy: ReadPolicy | None = None
) -> tuple[int, os.stat_result]:
    """A shard file that is the one its manifest means, as far as its size says.

    Args:
        path: Of the file.
        info: Its entry in the manifest.
        policy: How often it is tried again when its server fails. None: never.

    Returns:
        Its descriptor, and what was found out about it by it.

    Raises:
        ShardError: It is missing, no plain file, or of another size.
    """
    try:
        descriptor, found = tried(partial(_opened, path), policy)
    except OSError as error:
        reason = "is a symbolic link" if error.errno == errno.ELOOP else error.strerror
        raise ShardError.at(
            path, f"{reason}; expected a file of {info.bytes} bytes. Copy the store again."
        ) from error
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        kind = "a folder" if stat.S_ISDIR(found.st_mode) else "a pipe or device"
        raise ShardError.at(
            path, f"is {kind}; expected a file of {info.bytes} bytes. Copy the store again."
        )
    try:
        check_size(path, found.st_size, info)
    except ShardError:
        os.close(descriptor)
        raise
    return descriptor, found


def check_size(path: Place, size: int, info: ShardInfo) -> None:
    """See that a shard file is of the size that its manifest says. Raises ShardError."""
    if size != info.bytes:
        raise ShardError.at(
            path,
            f"{size} bytes, expected {info.bytes}. The file was cut short, changed or replaced "
            "after the store was published; copy the store again.",
        )


def _opened(path: Path) -> tuple[int, os.stat_result]:
    """A file, and what the server says of it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return descriptor, os.fstat(descriptor)
    except BaseException:
        os.close(descriptor)
        raise


class ShardReader:
    """A checked view of one shard.

    All that the index says is held against the file before anything is read by it: offsets,
    lengths, extents, element types, positions among names. So no read leaves the file, whoever
    wrote it.

    Args:
        path: The shard file, for messages.
        file: All its bytes.
        info: Its entry in the manifest.
        layout: Of the store's schema.

    Attributes:
        file: As given.
        offsets: Where each record begins in the file, uint64.
        lengths: Bytes of each record, uint32.
        checksums: CRC-32 of each record, uint32.
        columns: One array for each scalar and each extent, by name.
        identity: What it says of itself, as the manifest does.

    Raises:
        ShardError: The file is damaged, crafted or another shard's.
    """

    def __init__(self, path: Place, file: FileBytes, info: ShardInfo, layout: RecordLayout) -> None:
        self.path = path
        self.file = file
        self.layout = layout
        try:
            self._walked = file if isinstance(file, memoryview) else _window(file, info, layout)
            self._pages = PageFile(self._walked)
            self._keys = self._pages.database(KEYS_DB)
            index = {
                bytes(key): (start, size)
                for key, start, size in self._pages.entries(self._pages.database(INDEX_DB))
            }
            self.identity = self._array(index, "identity", "uint8", IDENTITY_BYTES).tobytes()
            if self.identity.hex() != info.identity:
                raise CodecError(
                    f"identity {self.identity.hex()[:16]}..., expected "
                    f"{info.identity[:16]}...: it is another shard, or of another build"
                )
            count = info.sample_count
            self.offsets, self.lengths, self.checksums = (
                self._array(index, name, dtype, count) for name, dtype in _INDEX_ARRAYS
            )
            self.columns = {
                item.name: self._array(index, column_key(item.name), item.dtype, count)
                for item in layout.columns
            }
            _check_extents(self.offsets, self.lengths, layout, len(self.file))
            for field in layout.schema.fields:
                _check_columns(field, self.columns, self.lengths)
            if isinstance(self._walked, Window):
                self._walked.close()
        except CodecError as error:
            raise ShardError.at(
                path, f"{error}. The file was damaged or replaced; copy the store again."
            ) from error

    def _array(
        self, index: dict[bytes, tuple[int, int]], name: str, dtype: str, count: int
    ) -> NDArray[Any]:
        try:
            start, size = index[name.encode()]
        except KeyError:
            raise CodecError(f"no array {name!r} in its index") from None
        try:
            return npy_view(self._walked[start : start + size], dtype, count)
        except CodecError as error:
            raise CodecError(f"index array {name!r}: {error}") from error

    def find(self, key: bytes) -> int | None:
        """Position in the shard of the sample with this text key, or None."""
        try:
            found = self._pages.find(self._keys, digest_from_key(key))
            if found is None:
                return None
            start, size = found
            if size != POSITION_BYTES:
                raise CodecError(f"a key's position in {size} bytes, expected {POSITION_BYTES}")
            position = index_from_key(self.file[start : start + size])
            if position >= len(self.offsets):
                raise CodecError(f"key at position {position}, expected [0, {len(self.offsets)})")
        except CodecError as error:
            raise ShardError.at(self.path, f"{error}. The file was damaged.") from error
        return position

    def record(self, position: int) -> memoryview:
        """The bytes of one record."""
        start = int(self.offsets[position])
        return self.file[start : start + int(self.lengths[position])]

    def check_record(self, position: int, record: memoryview | None = None) -> None:
        """Hold a record, which may be at hand, against its checksum. Raises ChecksumError."""
        from zlib import crc32

        record = self.record(position) if record is None else record
        found, expected = crc32(record), int(self.checksums[position])
        if found != expected:
            raise ChecksumError.at(
                self.path,
                f"checksum {found:08x}, expected {expected:08x}. The record changed after it was "
                "built.",
                position,
            )


def _window(file: FileBytes, info: ShardInfo, layout: RecordLayout) -> Window:
    """The file while its index is walked, with those parts of it that the walk will need."""
    dtypes = [dtype for _, dtype in _INDEX_ARRAYS] + [item.dtype for item in layout.columns]
    array_bytes = info.sample_count * sum(np.dtype(dtype).itemsize for dtype in dtypes)
    return Window(file, info.index_parts, array_bytes)


class _Noted:
    """The bytes of a file, and which of them were asked for."""

    def __init__(self, data: memoryview) -> None:
        self.parts: list[tuple[int, int]] = []
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, part: slice, /) -> memoryview:
        start, stop, _ = part.indices(len(self._data))
        self.parts.append((start, stop))
        return self._data[start:stop]


def index_places(data: memoryview) -> tuple[int, ...]:
    """Where the index of a sealed shard lies, as its entry in the manifest says: found by a walk.

    Args:
        data: The whole file.
    """
    noted = _Noted(data)
    pages = PageFile(noted)
    pages.database(KEYS_DB)
    for _, start, size in pages.entries(pages.database(INDEX_DB)):
        noted.parts.append((start, start + size))
    merged: list[list[int]] = []
    for start, stop in sorted(noted.parts):
        if merged and start - merged[-1][1] <= _INDEX_GAP_BYTES_MAX:
            merged[-1][1] = max(merged[-1][1], stop)
        else:
            merged.append([start, stop])
    if len(merged) > INDEX_PARTS_MAX:
        return ()
    return tuple(number for start, stop in merged for number in (start, stop - start))


def _check_extents(
    offsets: NDArray[np.uint64], lengths: NDArray[np.uint32], layout: RecordLayout, byte_count: int
) -> None:
    """Every record lies in the file and is long enough for the fields of fixed size."""
    least = layout.variable_start
    for rows in _blocks(len(offsets)):
        ends = offsets[rows] + lengths[rows]
        # An offset near 2**64 wraps around when its length is added, so it is checked by itself.
        wrong = (offsets[rows] >= byte_count) | (ends > byte_count) | (lengths[rows] < least)
        if not layout.variable_fields:
            wrong |= lengths[rows] != least
        if wrong.any():
            at = rows.start + int(wrong.argmax())
            raise CodecError(
                f"sample {at} of the shard at {offsets[at]} with {lengths[at]} bytes, expected at "
                f"least {least} bytes inside the file's {byte_count}"
            )


def _check_columns(
    field: Field, columns: Mapping[str, NDArray[Any]], lengths: NDArray[np.uint32]
) -> None:
    """Each sample's extents, element type and position among names can be what they claim."""
    if field.is_scalar and field.names is not None:
        _check_range(f"field {field.name!r}", columns[field.name], 0, len(field.names))
    if field.is_scalar or field.is_fixed:
        return
    dtypes = columns.get(f"{field.name}.dtype")
    if dtypes is not None:
        _check_range(f"field {field.name!r}, element type", dtypes, 0, len(ITEM_DTYPES))
    turns = columns.get(f"{field.name}.orientation")
    if turns is not None:
        # 0 tells pixels from a file's bytes.
        least = 0 if field.codec == "mixed" else 1
        _check_range(f"field {field.name!r}, orientation", turns, least, 9)
    if not (field.holds_elements or field.codec == "mixed"):
        return
    free = [array for name, array in columns.items() if _is_extent(field, name)]
    known = float(math.prod(side for side in field.shape if side is not None))
    item_bytes = 1 if field.dtype is None else np.dtype(field.dtype).itemsize
    for rows in _blocks(len(lengths)):
        # float64 cannot overflow here, and is exact far beyond the largest record.
        need = np.full(rows.stop - rows.start, known * item_bytes)
        for extents in free:
            need *= extents[rows]
        wrong = need > lengths[rows]
        if field.codec == "mixed" and turns is not None:
            wrong &= turns[rows] == 0
        if wrong.any():
            at = rows.start + int(wrong.argmax())
            raise CodecError(
                f"sample {at} of the shard, field {field.name!r}: "
                f"{need[at - rows.start]:.0f} bytes of elements in a record of {lengths[at]}"
            )


def _is_extent(field: Field, name: str) -> bool:
    owner, _, item = name.partition(".")
    return owner == field.name and item not in ("dtype", "orientation")


def _check_range(what: str, values: NDArray[Any], low: int, high: int) -> None:
    for rows in _blocks(len(values)):
        wrong = (values[rows] < low) | (values[rows] >= high)
        if wrong.any():
            at = rows.start + int(wrong.argmax())
            raise CodecError(
                f"sample {at} of the shard, {what}: {values[at]}, expected [{low}, {high})"
            )


def _blocks(count: int) -> Iterator[slice]:
    """Slices of [0, count): checks of a million samples keep no arrays of a million."""
    step = 2**16
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))
