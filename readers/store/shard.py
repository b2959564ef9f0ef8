"""One shard file, written through LMDB, and held against what LMDB says of it.

This is the only module that imports lmdb: reading goes by the file's pages, see `shard_reader`.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from readers.store.codecs import little
from readers.store.errors import CodecError, ShardError
from readers.store.layout import (
    INDEX_DB,
    KEY_DIGEST_BYTES,
    KEYS_DB,
    POSITION_BYTES,
    SAMPLES_DB,
    column_key,
    digest_from_key,
    key_from_index,
)
from readers.store.manifest import ShardInfo
from readers.store.npy import npy_bytes
from readers.store.pages import PageFile
from readers.store.record import RecordLayout
from readers.store.record_packer import RecordPacker
from readers.store.schema import Schema
from readers.store.shard_reader import ShardReader, index_places

if TYPE_CHECKING:
    import lmdb

_BATCH_BYTES = 2**20
"""Records are handed to LMDB in transactions of this size, so memory does not grow with a shard.

LMDB gives all of one to the system in one call. At 1 MiB the file's pages in memory are those that
were in use a moment ago; from 2 MiB on the kernel looks for huge ones, which are fresh: writing 1.2
MB took 0.7 ms of the kernel then 2.4 ms, and the whole build a third longer."""

_WRITE_BEHIND_BYTES = 2**22

_HASH_BYTES = 2**20


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
        self._packer = RecordPacker(layout)
        self._pending: list[tuple[bytes, bytes | bytearray]] = []
        self._pending_bytes = 0
        self._lengths: list[int] = []
        self._checksums: list[int] = []
        self._digests: list[bytes] = []
        self._columns: list[list[Any]] = [[] for _ in layout.columns]
        self._column_places = [at for at, item in enumerate(layout.items) if item.is_column]
        self._env, self._databases = self._open()
        self._write_behind = _WriteBehind(path)

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
        record, header = self._packer.pack(values)
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
        self._pending.append((key_from_index(self.sample_count), record))
        self._pending_bytes += len(record)
        self._lengths.append(len(record))
        self._checksums.append(zlib.crc32(record))
        self._digests.append(digest_from_key(key))
        for column, at in zip(self._columns, self._column_places, strict=True):
            column.append(header[at])
        if self._pending_bytes >= _BATCH_BYTES:
            self._flush()

    def _flush(self) -> None:
        self._put(SAMPLES_DB, self._pending, self._pending_bytes)
        self._write_behind.begin()
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
            arrays[column_key(item.name)] = np.array(column, little(item.dtype))
        identity = _identity(self._layout.schema, arrays["length"], arrays["crc32"], keys)
        arrays["identity"] = np.frombuffer(identity, np.uint8)
        entries = sorted((name.encode(), npy_bytes(array)) for name, array in arrays.items())
        self._put(INDEX_DB, entries, sum(len(value) for _, value in entries))
        with _DiskErrors(self._path):
            self._env.sync(True)
            self._env.close()
        self._write_behind.close()
        with self._mapped() as data:
            places = index_places(data)
        return ShardInfo(
            file=self._path.name,
            sample_count=self.sample_count,
            bytes=self._path.stat().st_size,
            sha256=file_sha256(self._path),
            identity=identity.hex(),
            index=places,
        )

    @contextmanager
    def _mapped(self) -> Iterator[memoryview]:
        """The file as it is now."""
        import mmap

        with (
            open(self._path, "rb") as stream,
            mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
            memoryview(mapped) as data,
        ):
            yield data

    def _record_offsets(self) -> list[int]:
        """Where LMDB put each record, by a walk over its pages; see NOTE [ offsets stay ].

        NOTE [ offsets stay ]: LMDB never moves a page that a later transaction does not change, and
        the transactions that follow write to the other two databases only.
        """
        with self._mapped() as data:
            pages = PageFile(data)
            entries = list(pages.entries(pages.database(SAMPLES_DB)))
            del pages
        keys = [key for key, _, _ in entries]
        lengths = [length for _, _, length in entries]
        assert b"".join(keys) == np.arange(self.sample_count, dtype=">u8").tobytes()
        assert lengths == self._lengths
        return [offset for _, offset, _ in entries]

    def abort(self) -> None:
        """Close and remove the unfinished file."""
        self._env.close()
        self._write_behind.close()
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
    digest.update(b"".join([key + position for key, position in keys]))
    return digest.digest()


class _WriteBehind:
    """Has the disk take up what a file has gained, while more of it is made.

    Else all is left to the sync at the end, for which the build worker would wait: 17 ms a shard of
    34 MB, a tenth of its time.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._begun = 0

    def begin(self) -> None:
        """Begin to write what was added since the last call, without waiting for it."""
        end = os.fstat(self._descriptor).st_size
        if end - self._begun >= _WRITE_BEHIND_BYTES:
            # What is dirty is written and stays in memory; only clean pages would be let go.
            length = end - self._begun
            os.posix_fadvise(self._descriptor, self._begun, length, os.POSIX_FADV_DONTNEED)
            self._begun = end

    def close(self) -> None:
        """Close the descriptor; more than once does no harm."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


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
