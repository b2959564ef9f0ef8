"""What every source must hold, whatever layout it reads.

A source's test class inherits `SourceConformance` and says its `format`: each tree of that format
in `source_trees.MAKERS` is then held to the laws, but for those whose damage ends a scan.
"""

from __future__ import annotations

import fnmatch
import os
import pickle
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from packer.errors import SourceError
from packer.items.raw_item import RawFile, RawItem, Scan
from packer.plan.arrange import EXCLUDED, NOT_INCLUDED, arranged
from packer.raw.containers import Containers
from packer.raw.files import read_raw_file
from packer.recipe import Recipe
from packer.sources import SourceOptions, scan_source
from packer.sources.walk import NOT_REGULAR
from packer.wording import readable_path
from tests.packer.source_trees import ENDS_SCAN, MAKERS

HANG_S = 20

STRAYS: dict[str, Callable[[bytes], Any]] = {
    "lost link": lambda path: os.symlink(b"nowhere", path),
    "link to itself": lambda path: os.symlink(os.path.basename(path), path),
    "pipe": os.mkfifo,
    "folder": os.mkdir,
}
"""What no program can read as a file, whoever runs it, and how it is made."""


class HangError(BaseException):
    """A scan waits for ever. No OSError, lest it be taken for one of the file's."""


@contextmanager
def no_hang() -> Iterator[None]:
    """Interrupts what waits for ever, such as the opening of a pipe that nobody writes to."""

    def end(number: int, frame: Any) -> None:
        raise HangError(f"it took more than {HANG_S} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, HANG_S, 1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@dataclass(frozen=True, kw_only=True)
class Tree:
    """A raw tree that its source can scan.

    Attributes:
        raw: Its folder.
        format: The source.
        make: Makes the same tree elsewhere.
    """

    raw: Path
    format: str
    make: Callable[[Path], None]

    def scan(self, **changes: Any) -> Scan:
        """Scan it with some options changed."""
        with no_hang():
            return scan_source(self.raw, SourceOptions(**{"format": self.format, **changes}))

    def files(self) -> list[bytes]:
        """The files in it, relative and sorted; broken ones among them."""
        return sorted(
            os.fsencode(path.relative_to(self.raw))
            for path in self.raw.rglob("*")
            if not path.is_dir()
        )


def told(found: Scan) -> set[bytes]:
    """Paths and keys of all that a scan accounts for."""
    names = {name for item in found.items for name in (item.key, item.path)}
    names |= {mask.path for item in found.items for mask in item.masks.values()}
    for reject in (*found.rejects, *found.annotation_rejects):
        names |= {reject.key, os.fsencode(reject.path), os.fsencode(reject.path.split(", ")[0])}
    for group in found.ignored.groups:
        names |= {os.fsencode(path) for path in group.paths}
    return names


def shown(path: bytes) -> bytes:
    """A path as messages have it."""
    return readable_path(path).encode()


def met_count(found: Scan) -> int:
    """Items, rejects and ignored files, together."""
    return len(found.items) + len(found.rejects) + found.ignored.total


class _Shuffled:
    """What `os.scandir` gives, in another order."""

    def __init__(self, entries: list[Any]) -> None:
        self._entries = iter(entries)

    def __enter__(self) -> _Shuffled:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def __iter__(self) -> Iterator[Any]:
        return self._entries

    def __next__(self) -> Any:
        return next(self._entries)

    def close(self) -> None:
        return


def shuffle_folders(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """From now on folders list their entries in an order of that seed."""
    scandir, listdir, rng = os.scandir, os.listdir, random.Random(seed)

    def entries_of(path: Any = ".") -> Any:
        with scandir(path) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
        rng.shuffle(entries)
        return _Shuffled(entries)

    def names_of(path: Any = ".") -> Any:
        names = sorted(listdir(path))
        rng.shuffle(names)
        return names

    monkeypatch.setattr(os, "scandir", entries_of)
    monkeypatch.setattr(os, "listdir", names_of)


class SourceConformance:
    """Laws of a source.

    Attributes:
        format: Its name.
        reads: Patterns of the files that it reads about pictures, which are not counted.
    """

    format: str
    reads: tuple[str, ...] = ()

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "case" in metafunc.fixturenames:
            cases = [case for case, (name, _) in MAKERS.items() if name == self.format]
            metafunc.parametrize("case", [case for case in cases if case not in ENDS_SCAN])

    @pytest.fixture
    def tree(self, case: str, tmp_path: Path) -> Tree:
        raw, make = tmp_path / "raw", MAKERS[case][1]
        make(raw)
        return Tree(raw=raw, format=self.format, make=make)

    def is_read(self, path: bytes) -> bool:
        """Whether a file is one that the source reads about pictures."""
        return any(fnmatch.fnmatch(os.fsdecode(path), pattern) for pattern in self.reads)

    def test_every_file_is_accounted_for(self, tree):
        """As an item, a mask, a reject or ignored by name, unless the source reads it; once."""
        found, files = tree.scan(), tree.files()
        assert found.format == self.format
        assert found.items
        assert [name for name in files if not self.is_read(name) and name not in told(found)] == []
        keys = [item.key for item in found.items]
        assert len(set(keys)) == len(keys)
        ignored = [os.fsencode(path) for group in found.ignored.groups for path in group.paths]
        assert len(set(ignored)) == len(ignored)
        assert not {item.path for item in found.items if item.member is None} & set(ignored)
        assert found.ignored.total == sum(group.count for group in found.ignored.groups)
        assert all(reject.path and reject.reason for reject in found.rejects)

    def test_a_scan_is_the_same_each_time(self, tree, monkeypatch):
        """In whatever order the folders list their entries, as file systems differ in that."""
        first = tree.scan()
        assert tree.scan() == first
        shuffle_folders(monkeypatch, 3)
        assert tree.scan() == first

    def test_a_scan_crosses_to_other_processes(self, tree):
        """Pickled whole, and its items as the workspace has them."""
        found = tree.scan()
        assert pickle.loads(pickle.dumps(found)) == found
        packed = msgspec.msgpack.encode(found.items[:])
        assert msgspec.msgpack.decode(packed, type=list[RawItem]) == found.items

    def test_every_item_can_be_read(self, tree):
        """From its file and at its place, with its masks, as it was scanned."""
        found = tree.scan()
        root = os.fsencode(found.root)
        with closing(Containers(root)) as containers:
            for item in found.items:
                if item.member is None:
                    file = RawFile(item.path, item.byte_count, item.mtime_ns)
                    assert len(read_raw_file(root, file, 2**20)) == item.byte_count > 0
                else:
                    content = containers.read(item)
                    # In a scan, the size of an image in Parquet is a mean.
                    if isinstance(content, np.ndarray):
                        assert content.ndim == 3
                    else:
                        assert content or not item.byte_count
                for mask in item.masks.values():
                    assert read_raw_file(root, mask, 2**20)

    def test_a_split_that_is_not_there_is_refused(self, tree):
        """With the names of those that are."""
        found = tree.scan()
        with pytest.raises(SourceError, match="nowhere") as caught:
            tree.scan(split="nowhere")
        for name in found.splits:
            assert repr(name) in str(caught.value)

    def test_patterns_choose_items_by_their_keys(self, tree):
        """What is left out is counted, and the rest stays as it is, in its order."""
        found = tree.scan()
        for item in found.items[:3]:
            pattern = os.fsdecode(item.key)
            alone = arranged(found, Recipe(include=(pattern,)))
            assert alone.items == [item]
            assert met_count(alone) == met_count(found)
            if len(found.items) == 1:
                continue
            assert alone.ignored.counts[NOT_INCLUDED] >= len(found.items) - 1
            rest = arranged(found, Recipe(exclude=(pattern,)))
            assert rest.items == [other for other in found.items if other.key != item.key]
            # A list may name a picture twice, of which the second is a reject.
            again = [reject for reject in found.rejects if reject.key == item.key]
            assert rest.ignored.counts[EXCLUDED] == 1 + len(again)
            assert met_count(rest) == met_count(found)

    @pytest.mark.parametrize("kind", STRAYS)
    def test_what_cannot_be_read_is_told_and_nothing_else_suffers(self, tree, kind):
        """Of the name of a picture, or of any file that is there; in each folder."""
        before = tree.scan()
        places = {(os.path.dirname(name), os.path.splitext(name)[1]) for name in tree.files()}
        strays = [
            os.path.join(folder, b"stray" + extension)
            for folder, extension in sorted({*places, (b"", b".png")})
        ]
        for stray in strays:
            STRAYS[kind](os.path.join(os.fsencode(tree.raw), stray))
        found = tree.scan()
        assert [(i.path, i.values) for i in found.items] == [
            (i.path, i.values) for i in before.items
        ]
        if kind != "folder":
            assert set(strays) <= told(found)
            assert met_count(found) == met_count(before) + len(strays)
        if kind == "pipe":
            assert found.ignored.counts[NOT_REGULAR] == len(strays)

    @pytest.mark.parametrize("kind", STRAYS)
    def test_a_file_in_whose_place_lies_what_cannot_be_read_ends_no_scan_unsaid(
        self, tree, kind, tmp_path
    ):
        """It is named, or the whole is refused; asked for by name or not, it is not waited for."""
        names = [name for name in tree.files() if not name.endswith(b".png")]
        for number, name in enumerate(names or tree.files()):
            other = Tree(raw=tmp_path / str(number), format=self.format, make=tree.make)
            tree.make(other.raw)
            place = os.path.join(os.fsencode(other.raw), name)
            os.unlink(place)
            STRAYS[kind](place)
            for format_name in (self.format, "auto") if kind == "pipe" else (self.format,):
                try:
                    found = other.scan(format=format_name)
                except SourceError:
                    continue
                names_told = told(found)
                assert kind == "folder" or any(name in told_name for told_name in names_told)
            shutil.rmtree(other.raw)

    def test_names_that_are_not_utf8_are_kept(self, tree):
        """As keys they have the bytes of the file system; in messages they can be printed."""
        before = tree.scan()
        items = before.items
        copied = {os.path.dirname(item.path): item.path for item in items}
        strays = []
        for folder, path in copied.items():
            stray = os.path.join(folder, b"na\xefve" + os.path.splitext(path)[1])
            root = os.fsencode(tree.raw)
            shutil.copyfile(os.path.join(root, path), os.path.join(root, stray))
            strays.append(stray)
        found = tree.scan()
        texts = [text for r in found.rejects for text in (r.path, r.reason)]
        texts += [path for group in found.ignored.groups for path in group.paths]
        for text in (*texts, *found.notes, *found.classes):
            text.encode()
        names = told(found)
        assert [s for s in strays if s not in names and shown(s) not in names] == []
        assert {item.key for item in items} <= {item.key for item in found.items}
