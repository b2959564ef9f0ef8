"""LMDB's pages, read without LMDB, say what LMDB itself says."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from readers.store.errors import CodecError
from readers.store.pages import PageFile
from tests.readers.store.making import open_plain

SIZES = (
    *(0, 1, 2, 7, 8, 100, 1000),
    *range(2010, 2051),  # A leaf of 4096 bytes takes nodes up to 2038: two must fit.
    *range(4070, 4100),
    *(8160, 8176, 8177, 12_271, 12_288, 65_520, 65_536, 2**20),
)
"""Sizes of values, in bytes, about each place where LMDB stores them otherwise."""

MAP_BYTES = 2**28
"""Addresses for each file: none is longer."""

Databases = Mapping[bytes, Mapping[bytes, bytes]]


def filled(size: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(size)


def write_file(path: Path, databases: Databases) -> Path:
    with open_plain(path, map_size=MAP_BYTES, sync=False) as env:
        for name, entries in databases.items():
            handle = env.open_db(name)
            with env.begin(write=True, db=handle) as transaction:
                for key, value in entries.items():
                    transaction.put(key, value)
    return path


def lmdb_places(path: Path) -> dict[bytes, list[tuple[bytes, int, int]]]:
    """By database, (key, offset in the file, bytes) of each entry as LMDB itself finds it.

    A value read with `buffers=True` lies in LMDB's own map of the file, so its address tells its
    offset.
    """
    places = {}
    with open_plain(path, readonly=True, map_size=MAP_BYTES) as env, env.begin() as names:
        for name in [bytes(key) for key, _ in names.cursor()]:
            with env.begin(db=env.open_db(name, create=False), buffers=True) as transaction:
                base = _map_start(path)
                places[name] = [
                    (bytes(key), np.frombuffer(value, np.uint8).ctypes.data - base, len(value))
                    for key, value in transaction.cursor()
                ]
    return places


def _map_start(path: Path) -> int:
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, _, offset, *_, name = line.split(maxsplit=5)
        if name == str(path) and int(offset, 16) == 0:
            return int(addresses.split("-")[0], 16)
    raise AssertionError(f"{path} is not mapped")


def assert_says_what_lmdb_says(path: Path) -> None:
    """Entries, their order, places and sizes, and the same by a search for each key."""
    data = memoryview(path.read_bytes())
    pages = PageFile(data)
    for name, expected in lmdb_places(path).items():
        database = pages.database(name)
        assert database.entry_count == len(expected)
        assert list(pages.entries(database)) == expected
        for key, start, size in expected:
            assert pages.find(database, key) == (start, size)


@pytest.mark.parametrize("database_count", [1, 3])
def test_values_of_every_size_are_where_lmdb_has_them(database_count, tmp_path):
    """Small values lie in leaves and large ones in pages of their own; both are found."""
    values = {struct.pack(">Q", at): filled(size, at) for at, size in enumerate(SIZES)}
    names = (b"samples", b"keys", b"index")[:database_count]
    path = write_file(tmp_path / "file", dict.fromkeys(names, values))
    assert_says_what_lmdb_says(path)
    data = memoryview(path.read_bytes())
    pages = PageFile(data)
    for name in names:
        entries = list(pages.entries(pages.database(name)))
        assert {key: bytes(data[at : at + size]) for key, at, size in entries} == values


@pytest.mark.parametrize("size", [0, 12, 700, 2200])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 100, 2000])
def test_trees_of_every_depth_are_walked_in_order(count, size, tmp_path):
    """No entry is left out or met twice, from an empty tree to one of several levels."""
    values = {struct.pack(">Q", at): filled(size, at) for at in range(count)}
    path = write_file(tmp_path / "file", {b"samples": values, b"other": {b"k": b"v"}})
    assert_says_what_lmdb_says(path)


def test_a_tree_of_several_levels_is_walked_in_order(tmp_path):
    """Digests as keys, in no order, as the database `keys` of a shard of 20,000 samples."""
    keys = [filled(16, at) for at in range(20_000)]
    path = write_file(
        tmp_path / "file", {b"keys": {key: struct.pack(">Q", at) for at, key in enumerate(keys)}}
    )
    pages = PageFile(memoryview(path.read_bytes()))
    assert pages.database(b"keys").depth >= 3
    assert_says_what_lmdb_says(path)


def test_long_keys_make_branches_of_few_children(tmp_path):
    """Keys may have 511 bytes, of any lengths side by side."""
    rng = random.Random(3)
    keys = {filled(rng.choice((1, 2, 50, 510, 511)), at) for at in range(1500)}
    path = write_file(tmp_path / "file", {b"long": {key: key[:9] for key in keys}})
    assert_says_what_lmdb_says(path)


def test_pages_that_were_freed_and_used_again_are_not_confused(tmp_path):
    """Any LMDB file is read, also one whose pages are in no order and in part unused."""
    path = tmp_path / "file"
    rng = random.Random(4)
    with open_plain(path, map_size=MAP_BYTES, sync=False) as env:
        handles = [env.open_db(name) for name in (b"a", b"b", b"emptied")]
        for turn in range(12):
            with env.begin(write=True) as transaction:
                for at in range(300):
                    key = struct.pack(">Q", rng.randrange(500))
                    handle = handles[rng.randrange(3)]
                    if rng.random() < 0.4:
                        transaction.delete(key, db=handle)
                    else:
                        value = filled(rng.choice((0, 30, 900, 2022, 2023, 5000)), turn * 300 + at)
                        transaction.put(key, value, db=handle)
        with env.begin(write=True) as transaction:
            transaction.drop(handles[2], delete=False)
    assert_says_what_lmdb_says(path)
    pages = PageFile(memoryview(path.read_bytes()))
    assert list(pages.entries(pages.database(b"emptied"))) == []
    assert pages.find(pages.database(b"emptied"), b"k") is None


@pytest.mark.parametrize("count", [1, 2, 150, 5000])
def test_a_key_that_is_not_there_is_not_found(count, tmp_path):
    """Below all keys, between each two, above all, shorter and longer than one."""
    keys = [struct.pack(">Q", 2 * at + 1) for at in range(count)]
    path = write_file(tmp_path / "file", {b"keys": dict.fromkeys(keys, b"value")})
    pages = PageFile(memoryview(path.read_bytes()))
    database = pages.database(b"keys")
    for at in range(count + 1):
        assert pages.find(database, struct.pack(">Q", 2 * at)) is None
    for key in (b"", keys[0][:-1], keys[-1] + b"\0", b"\0", b"\xff" * 8, b"\xff" * 511):
        assert pages.find(database, key) is None
    assert all(pages.find(database, key) is not None for key in keys)


def test_the_newer_of_the_two_meta_pages_counts(tmp_path):
    """LMDB writes them in turns; the older one describes what was before the last transaction."""
    path = tmp_path / "file"
    for at in range(5):
        with open_plain(path, map_size=MAP_BYTES) as env, env.begin(write=True) as transaction:
            transaction.put(b"k", b"v" * at, db=env.open_db(b"d", transaction))
        pages = PageFile(memoryview(path.read_bytes()))
        found = pages.find(pages.database(b"d"), b"k")
        assert found is not None
        assert found[1] == at


def test_a_database_that_is_not_there_is_named(tmp_path):
    """Neither an absent name nor a plain value of that name in the main database is a database."""
    path = write_file(tmp_path / "file", {b"samples": {b"k": b"v"}})
    with open_plain(path, map_size=MAP_BYTES) as env, env.begin(write=True) as transaction:
        transaction.put(b"index", bytes(48))
    pages = PageFile(memoryview(path.read_bytes()))
    for name in ("keys", "sample", "samples\0", "index"):
        with pytest.raises(CodecError, match="no database "):
            pages.database(name.encode())


# Files that are none, and damaged ones.


@pytest.mark.parametrize("data", [b"", b"\0", bytes(100), bytes(8192), b"manifest" * 2000])
def test_what_is_no_lmdb_file_is_refused(data):
    """The first thing a reader sees of a wrong file."""
    with pytest.raises(CodecError, match=r"too few|expected beefc0de and 1"):
        PageFile(memoryview(data))


@pytest.mark.parametrize(
    ("at", "value", "reason"),
    [
        (16, struct.pack("<I", 0xDEC0EFBE), "magic dec0efbe"),
        (20, struct.pack("<I", 2), "version 2, expected beefc0de and 1"),
        (40, struct.pack("<I", 0), "page size 0"),
        (40, struct.pack("<I", 4095), "page size 4095"),
        (40, struct.pack("<I", 2**17), "page size 131072"),
        (4096 + 40, struct.pack("<I", 8192), "page sizes 4096 and 8192"),
    ],
)
def test_a_meta_page_of_another_kind_is_refused(at, value, reason, tmp_path):
    """A later LMDB may arrange its pages otherwise; guessing would give wrong pixels."""
    path = write_file(tmp_path / "file", {b"samples": {b"k": b"v"}})
    data = bytearray(path.read_bytes())
    data[at : at + len(value)] = value
    with pytest.raises(CodecError, match=reason):
        PageFile(memoryview(data))


@pytest.fixture(scope="module")
def small_file(tmp_path_factory) -> tuple[bytes, int]:
    """A file with every kind of page: (its bytes, size of a page)."""
    path = write_file(
        tmp_path_factory.mktemp("pages") / "file",
        {
            b"samples": {struct.pack(">Q", at): filled((9, 3000)[at % 2], at) for at in range(12)},
            b"keys": {filled(16, at): struct.pack(">Q", at) for at in range(300)},
            b"index": {b"offset": filled(9000, 0), b"length": filled(40, 1)},
        },
    )
    data = path.read_bytes()
    return data, PageFile(memoryview(data)).page_bytes


def read_all(data: memoryview, keys: list[bytes]) -> None:
    """Everything that a reader does; only CodecError may come, and no place outside of `data`."""
    try:
        pages = PageFile(data)
    except CodecError:
        return
    for name in (b"samples", b"keys", b"index", b"none"):
        places: list[tuple[int, int] | None] = []
        try:
            database = pages.database(name)
            places += [(start, size) for _, start, size in pages.entries(database)]
            places += [pages.find(database, key) for key in keys]
        except CodecError:
            pass
        for place in places:
            assert place is None or 0 <= place[0] <= place[0] + place[1] <= len(data)


@pytest.mark.parametrize("block", range(8))
def test_damaged_bytes_never_lead_out_of_the_file(block, small_file):
    """A crafted file must not make a reader crash, hang or read what is not its own."""
    data, page_bytes = small_file
    rng = random.Random(block)
    keys = [struct.pack(">Q", 5), filled(16, 7), b"offset", b"~"]
    for _ in range(800):
        damaged = bytearray(data)
        for _ in range(rng.choice((1, 1, 2, 8))):
            page = rng.randrange(len(data) // page_bytes)
            # Headers and node offsets, nodes (they fill a page from its end), or anything.
            low, high = rng.choice(((0, 40), (page_bytes - 200, page_bytes), (0, page_bytes)))
            at = page * page_bytes + rng.randrange(low, high)
            if rng.random() < 0.5:
                damaged[at] ^= 1 << rng.randrange(8)
            else:
                damaged[at] = rng.choice((0, 1, 2, 0x10, 0x7F, 0xFF))
        began = time.process_time()
        read_all(memoryview(damaged), keys)
        assert time.process_time() - began < 5


def test_a_file_cut_short_anywhere_is_safe_to_read(small_file):
    """Copies break off: what is gone is an error, at every length."""
    data, page_bytes = small_file
    rng = random.Random(1)
    ends = [
        *range(0, len(data), page_bytes),
        *range(0, 2 * page_bytes, 97),
        *(rng.randrange(len(data)) for _ in range(200)),
    ]
    for end in ends:
        read_all(memoryview(data[:end]), [struct.pack(">Q", 5), filled(16, 7)])


def test_what_is_left_of_a_file_is_read_as_it_was_or_not_at_all(small_file):
    """A walk over a file that lacks pages must not take less for all."""
    data, page_bytes = small_file

    def contents(end: int) -> list[list[tuple[bytes, int, int]]]:
        pages = PageFile(memoryview(data[:end]))
        return [list(pages.entries(pages.database(name))) for name in (b"samples", b"index")]

    whole, refused = contents(len(data)), 0
    for end in range(0, len(data), page_bytes):
        try:
            assert contents(end) == whole
        except CodecError:
            refused += 1
    assert refused > len(data) // page_bytes // 2


def crafted_branch(children: int, page_count: int) -> bytes:
    """A file whose main tree is a branch page with `children` children, each the page itself."""
    page_bytes = 4096
    data = bytearray(page_count * page_bytes)
    for number in (0, 1):
        database = struct.pack("<IHHQQQQQ", page_bytes, 0, 2, 1, 1, 0, 9, 2)
        struct.pack_into("<IIQQ", data, number * page_bytes + 16, 0xBEEFC0DE, 1, 0, 2**20)
        data[number * page_bytes + 40 : number * page_bytes + 136] = database * 2
    lower = 16 + 2 * children
    struct.pack_into("<QHHHH", data, 2 * page_bytes, 2, 0, 1, lower, lower)
    struct.pack_into(f"<{children}H", data, 2 * page_bytes + 16, *[page_bytes - 8] * children)
    struct.pack_into("<HHHH", data, 3 * page_bytes - 8, 2, 0, 0, 0)
    return bytes(data)


def test_a_branch_that_is_its_own_child_comes_to_an_end(tmp_path):
    """A circle of pages must not hold a reader up, nor take memory for all ways around it."""
    pages = PageFile(memoryview(crafted_branch(2000, 5000)))
    began = time.process_time()
    with pytest.raises(CodecError, match="more pages than the file's 5000"):
        pages.database(b"samples")
    with pytest.raises(CodecError, match="deeper than 32"):
        pages.find(pages.main, b"samples")
    assert time.process_time() - began < 1


def leaf_of(data: bytes, page: int, page_bytes: int) -> int:
    """The first leaf under a page."""
    while struct.unpack_from("<H", data, page * page_bytes + 10)[0] & 1:
        node = page * page_bytes + struct.unpack_from("<H", data, page * page_bytes + 16)[0]
        page = struct.unpack_from("<I", data, node)[0]
    return page


CRAFTED = {
    # Database, its root or its first leaf, node of it, offset in the node (None: behind the key),
    # what is put there, reason.
    "a key of a branch": (b"keys", "root", -1, 6, 0xFFFF, "a key of 65535 bytes at"),
    "a child above 32 bits": (b"keys", "root", -1, 4, 1, r"page 42949\d+, expected \[2, "),
    "a child above 16 bits": (b"keys", "root", -1, 2, 1, r"page 65\d+, expected \[2, "),
    "a key of a leaf": (b"keys", "leaf", 0, 6, 0xFFFF, "an entry of 65551 bytes at"),
    "a value of a leaf": (b"keys", "leaf", 0, 2, 1, "an entry of 65568 bytes at"),
    "a page of a value": (b"index", "leaf", -1, None, 0xFFFF, r"at page \d+ leaves the file"),
    "a meta page of a value": (
        b"index",
        "leaf",
        -1,
        None,
        0,
        r"a value of 9000 bytes at page 0 leaves",
    ),
    "a size of a value": (b"index", "leaf", -1, 2, 0xFFFF, r"a value of 42949\d+ bytes at page"),
    "a description": (None, "leaf", 0, 0, 47, "47 bytes are too few for a database"),
}


@pytest.mark.parametrize("kind", CRAFTED)
def test_numbers_of_a_node_are_checked_before_they_are_used(kind, small_file):
    """A slice beyond the end would be short and be taken for a shorter key or value."""
    data, page_bytes = small_file
    name, where, which, offset, value, reason = CRAFTED[kind]
    pages = PageFile(memoryview(data))
    root = (pages.main if name is None else pages.database(name)).root
    assert root is not None
    page = root if where == "root" else leaf_of(data, root, page_bytes)
    count = (struct.unpack_from("<H", data, page * page_bytes + 12)[0] - 16) // 2
    nodes = struct.unpack_from(f"<{count}H", data, page * page_bytes + 16)
    node = page * page_bytes + nodes[which]
    if offset is None:
        offset = 8 + struct.unpack_from("<H", data, node + 6)[0]
    damaged = bytearray(data)
    struct.pack_into("<H", damaged, node + offset, value)
    pages = PageFile(memoryview(damaged))
    with pytest.raises(CodecError, match=reason):
        list(pages.entries(pages.database(name or b"index")))
    if name == b"keys":
        keys = [filled(16, at) for at in range(300)]
        with pytest.raises(CodecError, match=reason):
            [pages.find(pages.database(name), key) for key in keys]


@pytest.mark.parametrize(
    ("at", "values", "reason"),
    [
        (10, (0, 3, 4, 8, 0x22, 0x42), r"page \d+ has flags 0x[0-9a-f]+, expected a branch or a"),
        (12, (0, 15, 16, 19, 4098, 0xFFFF), r"page \d+ has its nodes end at \d+"),
    ],
    ids=["flags", "nodes"],
)
def test_a_page_of_another_kind_is_refused(at, values, reason, small_file):
    """Pages of duplicates, of values and of meta data have no nodes as we know them."""
    data, page_bytes = small_file
    root = PageFile(memoryview(data)).database(b"keys").root
    assert root is not None
    for page in (root, leaf_of(data, root, page_bytes)):
        for value in values:
            damaged = bytearray(data)
            struct.pack_into("<H", damaged, page * page_bytes + at, value)
            pages = PageFile(memoryview(damaged))
            with pytest.raises(CodecError, match=reason):
                list(pages.entries(pages.database(b"keys")))
