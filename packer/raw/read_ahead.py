"""The raw files of one item after the other, read ahead by threads where storage is slow."""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Container, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeAlias

from packer.files.sizes import picture_bytes_max
from packer.items.raw_item import RawFile, RawItem
from packer.raw.files import RawFileError, read_raw_file
from packer.slow_storage import THREAD_COUNT, Pace

AHEAD_BYTES_MAX = 2**26
"""Bytes of files that wait to be used, of one task: what bounds a build worker's memory."""

_AHEAD_COUNT_MAX = 4 * THREAD_COUNT

BYTES_MAX = picture_bytes_max()
"""Of a file, where no recipe says otherwise."""

DIGEST_BYTES = 16

Files: TypeAlias = dict[RawFile, bytes | RawFileError]
"""What was read of each file of an item, or why it could not be."""


def files_of(item: RawItem) -> tuple[RawFile, ...]:
    """The files that an item is read from, but for those that hold many items."""
    image = () if item.member is not None else (image_file(item),)
    return (*image, *item.masks.values())


def image_file(item: RawItem) -> RawFile:
    """The file of an item's image, which is the image's own."""
    return RawFile(item.path, item.byte_count, item.mtime_ns)


def read_files(root: bytes, item: RawItem, bytes_max: int = BYTES_MAX) -> Files:
    """The files of an item, read now.

    Args:
        root: Folder that their paths are relative to.
        item: The item.
        bytes_max: A file that is larger is not read; see `packer.files.sizes`.
    """
    files: Files = {}
    for file in files_of(item):
        try:
            files[file] = read_raw_file(root, file, bytes_max)
        except RawFileError as error:
            files[file] = error
    return files


def content_digest(files: Files) -> bytes:
    """Digest of what an item's files hold, in `DIGEST_BYTES` bytes.

    Zeros where there are none, or one could not be read.
    """
    if not files:
        return bytes(DIGEST_BYTES)
    digest = hashlib.sha256()
    for data in files.values():
        if isinstance(data, RawFileError):
            return bytes(DIGEST_BYTES)
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.digest()[:DIGEST_BYTES]


class ReadAhead:
    """Reads the files of items in order.

    Args:
        root: Folder that their paths are relative to.
        items: Of one task.
        skipped: Positions of items that are not to be touched.
        bytes_max: A file that is larger is not read; see `packer.files.sizes`.
    """

    def __init__(
        self,
        root: bytes,
        items: Sequence[RawItem],
        skipped: Container[int] = frozenset(),
        *,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        self._root = root
        self._bytes_max = bytes_max
        self._items = items
        self._skipped = skipped
        self._pace = Pace()
        self._pool: ThreadPoolExecutor | None = None
        self._waiting: deque[tuple[int, int, Future[Files]]] = deque()
        self._waiting_bytes = 0
        self._next = 0

    def __enter__(self) -> ReadAhead:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            # Not waited for: a file server that is gone may hold them for minutes.
            self._pool.shutdown(wait=False, cancel_futures=True)

    @property
    def is_ahead(self) -> bool:
        """Whether storage was seen to be slow, and threads read ahead."""
        return self._pool is not None

    def files(self, position: int) -> Files:
        """The files of the item at a position. Each is asked for once, in rising order."""
        if self._pool is None:
            item = self._items[position]
            if item.member is not None and not item.masks:
                return {}
            started = time.monotonic()
            files = read_files(self._root, item, self._bytes_max)
            self._pace.add(time.monotonic() - started)
            if self._pace.is_slow:
                self._pool = ThreadPoolExecutor(THREAD_COUNT, thread_name_prefix="read-ahead")
                self._next = position + 1
            return files
        self._fill(self._pool, position)
        while True:
            at, byte_count, future = self._waiting.popleft()
            self._waiting_bytes -= byte_count
            if at == position:
                files = future.result()
                self._fill(self._pool, position + 1)
                return files

    def _fill(self, pool: ThreadPoolExecutor, position: int) -> None:
        """Have as much read ahead as may be, and the item at `position` in any case."""
        self._next = max(self._next, position)
        while self._next < len(self._items):
            byte_count = sum(file.byte_count for file in files_of(self._items[self._next]))
            is_full = (
                len(self._waiting) >= _AHEAD_COUNT_MAX
                or self._waiting_bytes + byte_count > AHEAD_BYTES_MAX
            )
            if self._waiting and is_full:
                return
            if self._next not in self._skipped:
                item = self._items[self._next]
                future = pool.submit(read_files, self._root, item, self._bytes_max)
                self._waiting.append((self._next, byte_count, future))
                self._waiting_bytes += byte_count
            self._next += 1
