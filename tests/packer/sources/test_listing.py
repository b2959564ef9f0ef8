"""Folders are listed in full and in order, and where the server is slow many calls wait at once."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter

import pytest

from packer.slow_storage import THREAD_COUNT, Pace
from packer.sources.detection.look import look_at
from packer.sources.listing import FolderLister, Listed
from packer.sources.walk import walk

DELAY_S = 0.003


class Waiting:
    """How many calls wait, how many did at most, and how many there were, not alone."""

    def __init__(self):
        self.now = self.most = self.count = self.together_count = 0
        self._lock = threading.Lock()

    def wait(self):
        with self._lock:
            self.now += 1
            self.count += 1
            self.most = max(self.most, self.now)
            self.together_count += self.now > 1
        time.sleep(DELAY_S)
        with self._lock:
            self.now -= 1


@pytest.fixture
def slow(monkeypatch):
    """Each call takes 3 ms, as on a file server."""
    waiting = Waiting()
    ask, statuses, listed = FolderLister._ask, FolderLister._statuses, FolderLister._listed

    def ask_slowly(self, entry):
        waiting.wait()
        ask(self, entry)

    def statuses_slowly(self, paths):
        found = []
        for path in paths:
            waiting.wait()
            found += statuses(self, [path])
        return found

    def listed_slowly(self, path):
        waiting.wait()
        return listed(self, path)

    monkeypatch.setattr(FolderLister, "_ask", ask_slowly)
    monkeypatch.setattr(FolderLister, "_statuses", statuses_slowly)
    monkeypatch.setattr(FolderLister, "_listed", listed_slowly)
    return waiting


@pytest.fixture
def tree(tmp_path):
    """30 folders of 4 files, one of 200, a wrapper, links that lead nowhere or in a circle."""
    root = tmp_path / "raw"
    for number in range(30):
        folder = root / f"{number:02d}"
        folder.mkdir(parents=True)
        for name in ("a.jpg", "b.png", "notes.txt", ".hidden"):
            (folder / name).write_bytes(name.encode())
    (root / "many").mkdir()
    for number in range(200):
        (root / "many" / f"{number}.jpg").write_bytes(b"x" * number)
    (root / "many" / "lost.jpg").symlink_to("nowhere.jpg")
    (root / "05" / "again").symlink_to(root, target_is_directory=True)
    (root / "deep" / "er" / "still").mkdir(parents=True)
    (root / "deep" / "er" / "still" / "c.jpg").write_bytes(b"c")
    return root


def test_where_calls_return_at_once_nobody_else_makes_them(tree):
    """Handing them over would cost more than it saves."""
    with FolderLister(os.fsencode(tree)) as lister:
        names = [entry.name for entry in lister.entries(b"")]
        lister.ahead(names)
        assert names == sorted(map(os.fsencode, os.listdir(tree)))
        assert not lister._coming
        assert lister._pool is None


def test_a_slow_tree_is_the_same_tree(tree, request):
    """The walk and the look find what they find on a quick disk, in the same order."""
    quick, look = walk(tree, (b".txt",)), look_at(tree)
    waiting = request.getfixturevalue("slow")
    found = walk(tree, (b".txt",))
    assert list(found.folders.items()) == list(quick.folders.items())
    assert found.findings == quick.findings
    assert [reject.key for reject in found.findings.rejects] == [b"many/lost.jpg"]
    assert sum(len(folder.pictures) for folder in found.folders.values()) == 261
    assert 4 < waiting.most <= THREAD_COUNT
    assert waiting.together_count > 0.8 * waiting.count
    assert look_at(tree) == look


def test_a_picture_costs_one_stat_and_a_folder_one_listing(tree, monkeypatch):
    """On a file server each is a round trip; what the listing says of a file is not asked again."""
    stats, listings = Counter(), Counter()
    stat, scandir = os.stat, os.scandir

    def counted_stat(path, *args, **kwargs):
        stats[os.path.relpath(os.fsencode(path), os.fsencode(tree))] += 1
        return stat(path, *args, **kwargs)

    def counted_scandir(path):
        listings[os.path.relpath(os.fsencode(path), os.fsencode(tree))] += 1
        return scandir(path)

    monkeypatch.setattr(os, "stat", counted_stat)
    monkeypatch.setattr(os, "scandir", counted_scandir)
    found = walk(tree)
    pictures = [p.path for folder in found.folders.values() for p in folder.pictures]
    assert stats == Counter([b".", *pictures, b"many/lost.jpg"])
    del listings[b"."]  # Which is opened first of all, to see that it can be listed.
    assert listings == Counter(path for path in found.folders if path)


def test_a_call_that_waits_for_the_processor_starts_no_threads():
    """On a busy machine one call in hundreds takes 50 ms, and the disk is as quick as before."""
    pace = Pace()
    for number in range(1000):
        pace.add(0.05 if number % 20 == 0 else 0.00001)
        assert not pace.is_slow
    for _ in range(8):
        pace.add(0.002)
    assert pace.is_slow


def test_a_folder_that_cannot_be_listed_is_told_at_its_turn(tree, slow):
    """Those before and after it come as they are."""
    with FolderLister(os.fsencode(tree)) as lister:
        names = [entry.name for entry in lister.entries(b"")]
        paths = [*names[:5], b"missing", *names[5:]]
        for at, path in enumerate(paths):
            lister.ahead(paths[at:])
            if path == b"missing":
                assert path in lister._coming
                with pytest.raises(FileNotFoundError):
                    lister.entries(path)
            else:
                found = [entry.name for entry in lister.entries(path)]
                assert found == sorted(map(os.fsencode, os.listdir(tree / os.fsdecode(path))))


def test_what_is_listed_ahead_is_bounded(tmp_path, slow):
    """A tree of a million folders takes no memory for all of them at once."""
    for number in range(100):
        (tmp_path / f"{number:03d}").mkdir()
    with FolderLister(os.fsencode(tmp_path)) as lister:
        names = [entry.name for entry in lister.entries(b"")]
        for at, name in enumerate(names):
            lister.ahead(names[at:])
            assert len(lister._coming) <= 4 * THREAD_COUNT
            assert lister.entries(name) == []
        assert not lister._coming


def test_leaving_does_not_wait_for_the_server(tmp_path, monkeypatch):
    """A build that is stopped ends, also while a file server does not answer."""
    for number in range(40):
        (tmp_path / f"{number}").mkdir()
    gone = threading.Event()
    ask = FolderLister._ask

    def ask_slowly(self, entry):
        time.sleep(DELAY_S)
        ask(self, entry)

    def hang(self, path):
        gone.wait(20)
        return Listed([], [], [])

    monkeypatch.setattr(FolderLister, "_ask", ask_slowly)
    lister = FolderLister(os.fsencode(tmp_path))
    names = [entry.name for entry in lister.entries(b"")]
    monkeypatch.setattr(FolderLister, "_listed", hang)
    lister.ahead(names)
    started = time.monotonic()
    lister.close()
    assert time.monotonic() - started < 5
    gone.set()
