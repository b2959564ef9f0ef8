"""One shard file: written through LMDB, read through its pages.

This is the only module that imports lmdb, and only writing and verifying need it.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from readers.store.codecs import little
from readers.store.errors import ChecksumError, CodecError, ShardError
from readers.store.layout import (
    INDEX_DB,
    KEY_DIGEST_BYTES,
    KEYS_DB,
    POSITION_BYTES,
    SAMPLES_DB,
    digest_from_key,
    index_from_key,
    key_from_index,
)
from readers.store.manifest import ShardInfo
from readers.store.npy import npy_bytes, npy_view
from readers.store.pages import PageFile
from readers.store.record import HeaderItem, RecordLayout, pack_record
from readers.store.schema import ITEM_DTYPES, Field, Schema

if TYPE_CHECKING:
    import lmdb

_BATCH_BYTES = 2**20
"""Records are handed to LMDB in transactions of this size, so memory does not grow with a shard.

LMDB gives all of one to the system in one call. At 1 MiB the file's pages in memory are those that
were in use a moment ago; from 2 MiB on the kernel looks for huge ones, which are fresh: writing 1.2
MB took 0.7 ms of the kernel then 2.4 ms, and the whole build a third longer."""

_HASH_BYTES = 2**20

_INDEX_ARRAYS = (("offset", "uint64"), ("length", "uint32"), ("crc32", "uint32"))
_IDENTITY_BYTES = 32


class ShardWriter:
    """Writes the samples of one shard, in order.

    The map grows by itself, before it is full. A shard that is not sealed is not one.

    Args:
        path: File to make. Its file system must carry a live LMDB file: a local one.
        layout: Of the store's schema.

    Raises:
        OSError: The file cannot be made or written; ENOSPC and EFBIG say that space ran out.
    """

    def __init__(self, path: Path, layout: RecordLayout) -> None:
        self._path = path
        self._layout = layout
        self._pending: list[tuple[bytes, bytes | bytearray]] = []
        self._pending_bytes = 0
        self._lengths: list[int] = []
        self._checksums: list[int] = []
        self._digests: list[bytes] = []
        self._columns: list[list[Any]] = [[] for _ in layout.columns]
        self._column_places = [at for at, item in enumerate(layout.items) if item.is_column]
        self._env, self._databases = self._open()

    def _open(self) -> tuple[lmdb.Environment, dict[bytes, Any]]:
        import lmdb

        # LMDB would go on with what a build that was killed has left.
        self._path.unlink(missing_ok=True)
        with _DiskErrors(self._path):
            env = lmdb.open(
                os.fspath(self._path),
                subdir=False,
                lock=False,  # Nobody else knows this file yet.
                max_dbs=3,
                map_size=2**20,
                # Synced once, by seal(). Never writemap: it turns a full disk into a signal and
                # leaves a file as long as its map.
                sync=False,
            )
            return env, {
                name: env.open_db(name) for name in sorted((SAMPLES_DB, KEYS_DB, INDEX_DB))
            }

    @property
    def sample_count(self) -> int:
        """Samples added so far."""
        return len(self._lengths)

    def add(self, key: bytes, values: Mapping[str, Any]) -> None:
        """Add the next sample.

        Args:
            key: Its text key, as bytes.
            values: A value for every field of the schema; see `pack_record`.

        Raises:
            CodecError: A value does not fit its field.
            OSError: The file cannot be written.
        """
        record, header = pack_record(self._layout, values)
        self.add_record(key, record, header)

    def add_record(self, key: bytes, record: bytes | bytearray, header: Sequence[Any]) -> None:
        """Add the next sample, packed already.

        Args:
            key: Its text key, as bytes.
            record: Its bytes, a record of the layout.
            header: The values of its header's items, as the record has them.

        Raises:
            OSError: The file cannot be written.
        """
        from zlib import crc32

        self._pending.append((key_from_index(self.sample_count), record))
        self._pending_bytes += len(record)
        self._lengths.append(len(record))
        self._checksums.append(crc32(record))
        self._digests.append(digest_from_key(key))
        for column, at in zip(self._columns, self._column_places, strict=True):
            column.append(header[at])
        if self._pending_bytes >= _BATCH_BYTES:
            self._flush()

    def _flush(self) -> None:
        self._put(SAMPLES_DB, self._pending, self._pending_bytes)
        self._pending, self._pending_bytes = [], 0

    def _put(
        self, database: bytes, pairs: Sequence[tuple[bytes, bytes | bytearray]], byte_count: int
    ) -> None:
        """Add pairs, in rising order of keys, in one transaction."""
        with _DiskErrors(self._path):
            self._grow(byte_count, len(pairs))
            with self._env.begin(write=True, db=self._databases[database]) as transaction:
                for key, value in pairs:
                    transaction.put(key, value, append=True)

    def _grow(self, byte_count: int, pair_count: int) -> None:
        """Make the map large enough for what comes, so that no transaction is ever lost to it.

        The size is kept in the file, so it follows from the content alone: a power of two.
        """
        info, page_bytes = self._env.info(), self._env.stat()["psize"]
        # The worst value is one just too long for a leaf: 2 KiB in a page of 4. A pair takes its
        # key and node in a leaf, and its share of the branches; 64 pages are for the trees' edges.
        need = (info["last_pgno"] + 64) * page_bytes + 2 * byte_count + 128 * pair_count
        if need > info["map_size"]:
            self._env.set_mapsize(1 << (need - 1).bit_length())

    def seal(self) -> ShardInfo:
        """Write the index, sync and close the file, and say what it is.

        Raises:
            CodecError: Two samples have the same key.
            OSError: The file cannot be written.
        """
        self._flush()
        offsets = self._record_offsets()
        digests = sorted((digest, at) for at, digest in enumerate(self._digests))
        for (a, first), (b, second) in pairwise(digests):
            if a == b:
                raise CodecError(f"samples {first} and {second} of the shard have the same key")
        keys = [(digest, key_from_index(at)) for digest, at in digests]
        self._put(KEYS_DB, keys, len(keys) * (KEY_DIGEST_BYTES + POSITION_BYTES))

        arrays = {
            "offset": np.array(offsets, "<u8"),
            "length": np.array(self._lengths, "<u4"),
            "crc32": np.array(self._checksums, "<u4"),
        }
        for item, column in zip(self._layout.columns, self._columns, strict=True):
            arrays[_column_key(item)] = np.array(column, little(item.dtype))
        identity = _identity(self._layout.schema, arrays["length"], arrays["crc32"], keys)
        arrays["identity"] = np.frombuffer(identity, np.uint8)
        entries = sorted((name.encode(), npy_bytes(array)) for name, array in arrays.items())
        self._put(INDEX_DB, entries, sum(len(value) for _, value in entries))
        with _DiskErrors(self._path):
            self._env.sync(True)
            self._env.close()
        return ShardInfo(
            file=self._path.name,
            sample_count=self.sample_count,
            bytes=self._path.stat().st_size,
            sha256=file_sha256(self._path),
            identity=identity.hex(),
        )

    def _record_offsets(self) -> list[int]:
        """Where LMDB put each record, by a walk over its pages; see NOTE [ offsets stay ].

        NOTE [ offsets stay ]: LMDB never moves a page that a later transaction does not change, and
        the transactions that follow write to the other two databases only.
        """
        import mmap

        with (
            open(self._path, "rb") as stream,
            mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
            memoryview(mapped) as data,
        ):
            pages = PageFile(data)
            entries = list(pages.entries(pages.database(SAMPLES_DB)))
            del pages
        keys = [key for key, _, _ in entries]
        lengths = [length for _, _, length in entries]
        assert keys == [key_from_index(at) for at in range(self.sample_count)]
        assert lengths == self._lengths
        return [offset for _, offset, _ in entries]

    def abort(self) -> None:
        """Close and remove the unfinished file."""
        self._env.close()
        self._path.unlink(missing_ok=True)


def _identity(
    schema: Schema,
    lengths: NDArray[Any],
    checksums: NDArray[Any],
    keys: Iterable[tuple[bytes, bytes]],
) -> bytes:
    """What tells a shard from any other, 32 bytes: of its schema, its records and its keys."""
    digest = hashlib.sha256(json.dumps(schema.as_builtins(), sort_keys=True).encode())
    digest.update(lengths.tobytes() + checksums.tobytes())
    for key, position in keys:
        digest.update(key + position)
    return digest.digest()


class _DiskErrors:
    """Turns LMDB's word for a disk that is full into the system's own.

    LMDB reports a failed commit as a bare "Input/output error", whatever the cause. Whether space
    or a limit ran out is found by writing one block more.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        import lmdb

        if not isinstance(error, lmdb.Error):
            return
        code = _why_not_writable(self._path) or errno.EIO
        raise OSError(code, f"{os.strerror(code)} ({error})", str(self._path)) from error


def _why_not_writable(path: Path) -> int | None:
    """The errno of appending 64 KiB to a file, or None when that works."""
    try:
        with open(path, "ab", buffering=0) as stream:
            end = stream.tell()
            try:
                stream.write(bytes(2**16))
                os.fsync(stream.fileno())
            finally:
                os.ftruncate(stream.fileno(), end)
    except OSError as error:
        return error.errno
    return None


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    digest = hashlib.sha256()
    block = memoryview(bytearray(_HASH_BYTES))
    with open(path, "rb", buffering=0) as stream:
        while count := stream.readinto(block):
            digest.update(block[:count])
    return digest.hexdigest()


def _column_key(item: HeaderItem) -> str:
    """Name in `index` of a header item's array; apart from the three that are about records."""
    return f"column.{item.name}"


def open_shard_file(path: Path, info: ShardInfo) -> int:
    """A descriptor of a shard file that is the one its manifest means, as far as its size says.

    Raises:
        ShardError: It is missing, no plain file, or of another size.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        reason = "is a symbolic link" if error.errno == errno.ELOOP else error.strerror
        raise ShardError.at(
            path, f"{reason}; expected a file of {info.bytes} bytes. Copy the store again."
        ) from error
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        kind = "a folder" if stat.S_ISDIR(found.st_mode) else "a pipe or device"
        raise ShardError.at(
            path, f"is {kind}; expected a file of {info.bytes} bytes. Copy the store again."
        )
    if found.st_size != info.bytes:
        os.close(descriptor)
        raise ShardError.at(
            path,
            f"{found.st_size} bytes, expected {info.bytes}. The file was cut short, changed or "
            "replaced after the store was published; copy the store again.",
        )
    return descriptor


class ShardReader:
    """A checked view of one mapped shard.

    All that the index says is held against the file before anything is read by it: offsets,
    lengths, extents, element types, positions among names. So no read leaves the file, whoever
    wrote it.

    Args:
        path: The shard file, for messages.
        data: All its bytes.
        info: Its entry in the manifest.
        layout: Of the store's schema.

    Attributes:
        offsets: Where each record begins in the file, uint64.
        lengths: Bytes of each record, uint32.
        checksums: CRC-32 of each record, uint32.
        columns: One array for each scalar and each extent, by name.
        identity: What it says of itself, as the manifest does.

    Raises:
        ShardError: The file is damaged, crafted or another shard's.
    """

    def __init__(
        self, path: Path, data: NDArray[np.uint8], info: ShardInfo, layout: RecordLayout
    ) -> None:
        self.path = path
        self._data = memoryview(data)  # type: ignore[arg-type]
        self.layout = layout
        try:
            self._pages = PageFile(self._data)
            self._keys = self._pages.database(KEYS_DB)
            index = {
                bytes(key): (start, size)
                for key, start, size in self._pages.entries(self._pages.database(INDEX_DB))
            }
            self.identity = self._array(index, "identity", "uint8", _IDENTITY_BYTES).tobytes()
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
                item.name: self._array(index, _column_key(item), item.dtype, count)
                for item in layout.columns
            }
            _check_extents(self.offsets, self.lengths, layout, len(self._data))
            for field in layout.schema.fields:
                _check_columns(field, self.columns, self.lengths)
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
            return npy_view(self._data[start : start + size], dtype, count)
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
            position = index_from_key(self._data[start : start + size])
            if position >= len(self.offsets):
                raise CodecError(f"key at position {position}, expected [0, {len(self.offsets)})")
        except CodecError as error:
            raise ShardError.at(self.path, f"{error}. The file was damaged.") from error
        return position

    def record(self, position: int) -> memoryview:
        """The bytes of one record, in the mapped file."""
        start = int(self.offsets[position])
        return self._data[start : start + int(self.lengths[position])]

    def check_record(self, position: int) -> None:
        """Hold a record against its checksum. Raises ChecksumError."""
        from zlib import crc32

        found, expected = crc32(self.record(position)), int(self.checksums[position])
        if found != expected:
            raise ChecksumError.at(
                self.path,
                f"checksum {found:08x}, expected {expected:08x}. The record changed after it was "
                "built.",
                position,
            )


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


def _is_same(a: memoryview, b: memoryview) -> bool:
    """Whether two runs of bytes are the same.

    A memoryview compares byte by byte, 0.2 GB/s; pieces that stay in the cache as bytes, 4 GB/s.
    """
    step = 2**16
    return len(a) == len(b) and all(
        a[at : at + step].tobytes() == b[at : at + step].tobytes() for at in range(0, len(a), step)
    )


def check_against_lmdb(path: Path, reader: ShardReader) -> None:
    """Hold a shard's index against LMDB's own answers: offsets, lengths, order, keys, identity.

    Raises:
        ShardError: LMDB cannot open the file, or says otherwise than its index.
    """
    import lmdb

    count = len(reader.offsets)
    try:
        env = lmdb.open(
            os.fspath(path), subdir=False, readonly=True, lock=False, max_dbs=3, readahead=False
        )
        try:
            samples, keys = (
                env.open_db(SAMPLES_DB, create=False),
                env.open_db(KEYS_DB, create=False),
            )
            with env.begin(buffers=True) as transaction:
                for database, name in ((samples, "samples"), (keys, "keys")):
                    entries = transaction.stat(database)["entries"]
                    if entries != count:
                        raise ShardError.at(path, f"{entries} {name} by LMDB, expected {count}")
                for at, (key, value) in enumerate(transaction.cursor(samples)):
                    if bytes(key) != key_from_index(at) or not _is_same(value, reader.record(at)):
                        raise ShardError.at(path, "LMDB finds another record than the index", at)
                pairs = [(bytes(key), bytes(value)) for key, value in transaction.cursor(keys)]
                if sorted(value for _, value in pairs) != list(map(key_from_index, range(count))):
                    raise ShardError.at(path, "the keys do not lead to every sample once")
                schema = reader.layout.schema
                if reader.identity != _identity(schema, reader.lengths, reader.checksums, pairs):
                    raise ShardError.at(
                        path,
                        "its identity is not that of the manifest's schema and its own records; "
                        "one of the two was changed after the build",
                    )
        finally:
            env.close()
    except lmdb.Error as error:
        raise ShardError.at(path, f"LMDB cannot read it: {error}") from error
