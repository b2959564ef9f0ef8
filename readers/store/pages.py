"""LMDB's own pages, read without LMDB.

A sealed shard never changes, so its B+trees can be read straight from the mapped file: no handle,
no descriptor, no reader table, nothing that a fork or a second opening could break. Writing goes
through LMDB alone (`shard.py`); the tests hold every answer here against LMDB's own.

The layout is that of LMDB 0.9 (data version 1), as its `mdb.c` defines it:

    page    header of 16 bytes: number u64, pad u16, flags u16, lower u16, upper u16
            (overflow pages: the count of pages, u32, in place of lower and upper)
    meta    pages 0 and 1: magic, version, address, map size, two database descriptions,
            last page, transaction number; the newer of the two counts
    branch  lower - 16 bytes of node offsets u16; a node: child's page number in 48 bits, key
    leaf    the same; a node: size of the value in 32 bits, flags u16, size of the key u16, key,
            value - or, with flag BIGDATA, the number of the overflow page where the value starts,
            16 bytes in

Nothing in the file is trusted: each page number, offset and size is checked before it is used, and
no walk visits more pages than the file has.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from readers.store.errors import CodecError
from readers.store.record_bytes import FileBytes

MAGIC = 0xBEEFC0DE
DATA_VERSION = 1

_PAGE_HEADER_BYTES = 16
_META = struct.Struct("<IIQQ")
_DATABASE = struct.Struct("<IHHQQQQQ")
_META_TAIL = struct.Struct("<QQ")
_META_BYTES = _PAGE_HEADER_BYTES + _META.size + 2 * _DATABASE.size + _META_TAIL.size
_NODE = struct.Struct("<HHHH")
_PAGE_NUMBER = struct.Struct("<Q")
_PAGE_FLAGS_LOWER = struct.Struct("<HH")

_BRANCH, _LEAF, _OVERFLOW = 0x01, 0x02, 0x04
_BIGDATA, _SUBDATA, _DUPDATA = 0x01, 0x02, 0x04
_NO_PAGE = 2**64 - 1
_DEPTH_MAX = 32
_PAGE_SIZES = frozenset(2**n for n in range(9, 17))


@dataclass(frozen=True)
class Database:
    """One B+tree of the file: its root page (None when empty), depth and count of entries."""

    root: int | None
    depth: int
    entry_count: int


class PageFile:
    """The B+trees of one sealed LMDB file.

    Args:
        data: The whole file. It is asked for one page at a time.

    Raises:
        CodecError: It is not an LMDB file of the known version, or its pages contradict each other.
    """

    def __init__(self, data: FileBytes) -> None:
        self._data = data
        first = self._meta(0)
        self.page_bytes = first[0]
        second = self._meta(self.page_bytes)
        newer = second if second[2] > first[2] else first
        if second[0] != self.page_bytes:
            raise CodecError(f"page sizes {first[0]} and {second[0]} in the two meta pages")
        self._page_count = len(data) // self.page_bytes
        self.main = newer[1]

    def _meta(self, start: int) -> tuple[int, Database, int]:
        """(page size, main database, transaction number) of the meta page at `start`."""
        if len(self._data) < start + _META_BYTES:
            raise CodecError(f"{len(self._data)} bytes are too few for an LMDB file")
        page, at = self._data[start : start + _META_BYTES], _PAGE_HEADER_BYTES
        magic, version, _, _ = _META.unpack_from(page, at)
        if magic != MAGIC or version != DATA_VERSION:
            raise CodecError(
                f"magic {magic:08x} and version {version}, expected {MAGIC:08x} and {DATA_VERSION}"
            )
        at += _META.size
        page_bytes = _DATABASE.unpack_from(page, at)[0]
        if page_bytes not in _PAGE_SIZES:
            raise CodecError(f"page size {page_bytes}, expected a power of two in [512, 65536]")
        main = self._database(page[at + _DATABASE.size :])
        at += 2 * _DATABASE.size
        return page_bytes, main, _META_TAIL.unpack_from(page, at)[1]

    @staticmethod
    def _database(description: memoryview) -> Database:
        if len(description) < _DATABASE.size:
            raise CodecError(f"{len(description)} bytes are too few for a database")
        _, _, depth, _, _, _, entry_count, root = _DATABASE.unpack_from(description)
        return Database(None if root == _NO_PAGE else root, depth, entry_count)

    def database(self, name: bytes) -> Database:
        """The named database. Raises CodecError when the file has none of that name."""
        for key, flags, start, size in self._leaves(self.main):
            if key == name and flags & _SUBDATA:
                return self._database(self._data[start : start + size])
        raise CodecError(f"no database {name.decode()!r}")

    def foreign_entries(
        self, database: Database
    ) -> Iterator[tuple[bytes, int, int, Database | None]]:
        """The same as `entries`, of a file that others wrote: with the database that an entry is.

        Raises:
            CodecError: The pages contradict each other, or a key has several values.
        """
        for key, flags, start, size in self._leaves(database):
            if flags & _DUPDATA:
                raise CodecError(f"several values of one key, {key!r:.80} (dupsort)")
            is_database = bool(flags & _SUBDATA)
            held = self._database(self._data[start : start + size]) if is_database else None
            yield key, start, size, held

    def entries(self, database: Database) -> Iterator[tuple[bytes, int, int]]:
        """(key, offset of the value in the file, its bytes) of each entry, in key order."""
        for key, _, start, size in self._leaves(database):
            yield key, start, size

    def find(self, database: Database, key: bytes) -> tuple[int, int] | None:
        """(offset in the file, bytes) of the value of `key`, or None when there is none."""
        page = database.root
        for _ in range(_DEPTH_MAX):
            if page is None:
                return None
            start, view, flags, nodes = self._page(page)
            if flags & _LEAF:
                # The first node whose key is not below `key`.
                low, high = 0, len(nodes)
                while low < high:
                    middle = (low + high) // 2
                    if self._leaf_node(start, view, nodes[middle])[0] < key:
                        low = middle + 1
                    else:
                        high = middle
                if low == len(nodes):
                    return None
                found, _, value, size = self._leaf_node(start, view, nodes[low])
                return (value, size) if found == key else None
            # The last child whose key is not above `key`; the first child's key counts as lowest.
            low, high = 1, len(nodes)
            while low < high:
                middle = (low + high) // 2
                if self._branch_node(view, nodes[middle])[0] <= key:
                    low = middle + 1
                else:
                    high = middle
            page = self._branch_node(view, nodes[low - 1])[1]
        raise CodecError(f"a tree deeper than {_DEPTH_MAX}")

    def _leaves(self, database: Database) -> Iterator[tuple[bytes, int, int, int]]:
        """(key, flags, offset of the value, bytes of the value) of each entry, in key order."""
        if database.root is None:
            return
        budget = self._page_count
        stack = [database.root]
        while stack:
            if len(stack) > budget:
                raise CodecError(f"a tree with more pages than the file's {self._page_count}")
            budget -= 1
            start, view, flags, nodes = self._page(stack.pop())
            if flags & _LEAF:
                for node in nodes:
                    yield self._leaf_node(start, view, node)
            else:
                stack += [self._branch_node(view, node)[1] for node in reversed(nodes)]

    def _page(self, number: int) -> tuple[int, memoryview, int, tuple[int, ...]]:
        """(offset, bytes, flags, node offsets) of a branch or leaf page."""
        if not 2 <= number < self._page_count:
            raise CodecError(f"page {number}, expected [2, {self._page_count})")
        start = number * self.page_bytes
        page = self._data[start : start + self.page_bytes]
        flags, lower = _PAGE_FLAGS_LOWER.unpack_from(page, 10)
        kind = flags & 0xFF
        if kind not in (_BRANCH, _LEAF):
            raise CodecError(f"page {number} has flags {flags:#x}, expected a branch or a leaf")
        if not _PAGE_HEADER_BYTES < lower <= self.page_bytes or lower % 2:
            raise CodecError(f"page {number} has its nodes end at {lower}")
        count = (lower - _PAGE_HEADER_BYTES) // 2
        nodes = struct.unpack_from(f"<{count}H", page, _PAGE_HEADER_BYTES)
        return start, page, kind, nodes

    def _branch_node(self, page: memoryview, node: int) -> tuple[bytes, int]:
        """(key, child's page number) of a branch node."""
        if node + _NODE.size > self.page_bytes:
            raise CodecError(f"a node at {node} of a page of {self.page_bytes} bytes")
        low, high, flags, key_size = _NODE.unpack_from(page, node)
        if node + _NODE.size + key_size > self.page_bytes:
            raise CodecError(f"a key of {key_size} bytes at {node} leaves its page")
        at = node + _NODE.size
        return bytes(page[at : at + key_size]), low | high << 16 | flags << 32

    def _leaf_node(self, start: int, page: memoryview, node: int) -> tuple[bytes, int, int, int]:
        """(key, flags, offset of the value in the file, bytes of the value) of a leaf node."""
        page_bytes = self.page_bytes
        if node + 8 > page_bytes:
            raise CodecError(f"a node at {node} of a page of {page_bytes} bytes")
        low, high, flags, key_size = _NODE.unpack_from(page, node)
        size = low | high << 16
        at = node + 8
        end = node + 8 + key_size + (8 if flags & _BIGDATA else size)
        if end > page_bytes:
            raise CodecError(f"an entry of {end - node} bytes at {node} leaves its page")
        key = bytes(page[at : at + key_size])
        value = start + at + key_size
        if flags & _BIGDATA:
            number = _PAGE_NUMBER.unpack_from(page, at + key_size)[0]
            value = number * page_bytes + _PAGE_HEADER_BYTES
            if not 2 <= number < self._page_count or value + size > len(self._data):
                raise CodecError(
                    f"a value of {size} bytes at page {number} leaves the file of "
                    f"{self._page_count} pages"
                )
        return key, flags, value, size
