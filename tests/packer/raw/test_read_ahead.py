"""Files come in order, each once, and where storage is slow many are waited for at a time."""

from __future__ import annotations

import os
import threading
import time

import pytest

from packer.items.raw_item import Member, RawFile, RawItem
from packer.raw import read_ahead
from packer.raw.files import RawFileError
from packer.raw.read_ahead import AHEAD_BYTES_MAX, ReadAhead, files_of, read_files
from packer.slow_storage import THREAD_COUNT

COUNT = 120


@pytest.fixture
def items(tmp_path):
    """Items of small files, some with a mask."""
    found = []
    for at in range(COUNT):
        masks = {}
        for name in (f"{at}.jpg", f"{at}.png"):
            (tmp_path / name).write_bytes(name.encode() * (at + 1))
        status, mask = os.stat(tmp_path / f"{at}.jpg"), os.stat(tmp_path / f"{at}.png")
        if at % 3 == 0:
            masks = {"mask": RawFile(b"%d.png" % at, mask.st_size, mask.st_mtime_ns)}
        name = b"%d.jpg" % at
        found.append(RawItem(name, name, status.st_size, status.st_mtime_ns, masks=masks))
    return found


@pytest.fixture
def slow(monkeypatch):
    """Each file takes 5 ms, as on a file server; says how many were waited for at once."""
    now, most = [0], [0]
    lock = threading.Lock()
    read = read_ahead.read_raw_file

    def slowly(root, file, bytes_max):
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.005)
        with lock:
            now[0] -= 1
        return read(root, file, bytes_max)

    monkeypatch.setattr(read_ahead, "read_raw_file", slowly)
    return most


def check(reader, items, skipped=()):
    for at, item in enumerate(items):
        if at in skipped:
            continue
        files = reader.files(at)
        assert set(files) == set(files_of(item))
        for file, data in files.items():
            assert data == file.path * (at + 1)


def test_quick_files_are_read_by_nobody_else(tmp_path, items):
    """Handing them over would cost more than it saves."""
    with ReadAhead(os.fsencode(tmp_path), items) as reader:
        check(reader, items)
        assert not reader.is_ahead


def test_slow_files_are_read_ahead_by_threads(tmp_path, items, slow):
    """The same files in the same order, in far less time than one after the other."""
    started = time.monotonic()
    with ReadAhead(os.fsencode(tmp_path), items) as reader:
        check(reader, items)
        assert reader.is_ahead
    one_by_one = 0.005 * sum(len(files_of(item)) for item in items)
    assert time.monotonic() - started < one_by_one / 2
    assert 4 < slow[0] <= THREAD_COUNT


def test_items_that_are_not_to_be_touched_are_not_read(tmp_path, items, slow):
    """A file that ends a build worker must not be opened again."""
    skipped = {0, 5, 6, 7, 100, COUNT - 1}
    for at in skipped:
        (tmp_path / f"{at}.jpg").unlink()
    with ReadAhead(os.fsencode(tmp_path), items, skipped) as reader:
        check(reader, items, skipped)


def test_memory_ahead_is_bounded(tmp_path, items, slow, monkeypatch):
    """By bytes, whatever the number of files; one larger than the bound still comes."""
    assert AHEAD_BYTES_MAX == 2**26
    monkeypatch.setattr(read_ahead, "AHEAD_BYTES_MAX", 2000)
    with ReadAhead(os.fsencode(tmp_path), items) as reader:
        for at in range(COUNT):
            reader.files(at)
            ahead = sum(byte_count for _, byte_count, _ in reader._waiting)
            assert ahead <= 2000 or len(reader._waiting) == 1


def test_a_file_that_cannot_be_read_is_told_at_its_turn(tmp_path, items, slow):
    """The items before and after it come as they are."""
    (tmp_path / "30.jpg").unlink()
    (tmp_path / "60.png").write_bytes(b"changed")
    with ReadAhead(os.fsencode(tmp_path), items) as reader:
        for at, item in enumerate(items):
            files = reader.files(at)
            wrong = {file.path for file, data in files.items() if isinstance(data, RawFileError)}
            assert wrong == {30: {b"30.jpg"}, 60: {b"60.png"}}.get(at, set())
            assert len(files) == len(files_of(item))


def test_leaving_early_does_not_wait(tmp_path, items, monkeypatch):
    """A file server that is gone may hold its readers for minutes."""
    hold = threading.Event()
    read = read_ahead.read_raw_file

    def held(root, file, bytes_max):
        time.sleep(0.005)
        if threading.current_thread() is not threading.main_thread():
            hold.wait(20)
        return read(root, file, bytes_max)

    monkeypatch.setattr(read_ahead, "read_raw_file", held)
    started = time.monotonic()
    try:
        with ReadAhead(os.fsencode(tmp_path), items) as reader:
            # One slow call alone may have waited for the processor.
            reader.files(0)
            reader.files(1)
            reader._fill(reader._pool, 2)
    finally:
        hold.set()
    assert time.monotonic() - started < 5


def test_members_of_a_container_have_no_file_of_their_own(tmp_path):
    """Containers are read by who prepares them, forwards."""
    item = RawItem(b"k", b"x.tar", 5, 0, member=Member("range", 10))
    assert files_of(item) == ()
    assert read_files(os.fsencode(tmp_path), item) == {}
