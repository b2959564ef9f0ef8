"""Files that lists name are found one by one, or many at once where the server is slow."""

from __future__ import annotations

import os
import threading
import time

import pytest

from packer.slow_storage import THREAD_COUNT
from packer.sources.lists import pictures
from packer.sources.lists.csv_list import scan
from packer.sources.source import SourceOptions

DELAY_S = 0.004
COUNT = 300


@pytest.fixture
def slow_stat(monkeypatch):
    """Asking about a picture takes 4 ms; says how often that was, and how many waited at once."""
    counts = {"calls": 0, "now": 0, "most": 0, "together": 0}
    lock, stat = threading.Lock(), os.stat

    def slowly(path, *arguments, **options):
        if not os.fsencode(path).endswith(b".png"):
            return stat(path, *arguments, **options)
        with lock:
            counts["calls"] += 1
            counts["now"] += 1
            counts["most"] = max(counts["most"], counts["now"])
            counts["together"] += counts["now"] > 1
        time.sleep(DELAY_S)
        with lock:
            counts["now"] -= 1
        return stat(path, *arguments, **options)

    monkeypatch.setattr(pictures.os, "stat", slowly)
    return counts


@pytest.fixture
def list_file(tmp_path):
    """A list of pictures beside it, under a root, in both, and in neither; and of their masks."""
    beside, root = tmp_path / "lists", tmp_path / "root"
    lines = ["image,mask_path,caption"]
    for number in range(COUNT):
        name = f"{number % 7}/{number:03d}.png"
        for at, folder in enumerate((beside, root)):
            if number % 5 == at or number % 5 > 2:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(b"x" * (number + at))
        written = name.replace("/", "\\") if number % 10 == 3 else name
        lines.append(f"{written},{written},{number}")
    (beside / "list.csv").write_text("\n".join(lines) + "\n")
    return beside / "list.csv", root


def test_files_on_a_slow_server_are_the_same_files(list_file, request):
    """In the order of the list, with the same reasons for those that are not there."""
    path, root = list_file
    quick = scan(path, SourceOptions(root=root))
    assert len(quick.items) == COUNT * 4 // 5
    assert len(quick.rejects) == COUNT // 5
    counts = request.getfixturevalue("slow_stat")
    found = scan(path, SourceOptions(root=root))
    assert found == quick
    assert 4 < counts["most"] <= THREAD_COUNT
    assert counts["together"] > 0.8 * counts["calls"]


def test_where_files_are_found_at_once_nobody_else_looks(list_file, monkeypatch):
    """Threads would cost more than they save."""
    path, root = list_file

    def none(*arguments, **options):
        raise AssertionError("a pool of threads")

    monkeypatch.setattr(pictures, "map_threads", none)
    assert len(scan(path, SourceOptions(root=root)).items) == COUNT * 4 // 5
