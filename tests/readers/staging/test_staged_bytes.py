"""Bytes are the same from far, out of copies, and while shards go over to their copies."""

from __future__ import annotations

import gc
import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

from readers.staging import staged_bytes as staged_bytes_module
from readers.staging.cache_folder import CacheFolder, use_key
from readers.staging.staged_bytes import StagedBytes
from readers.store.manifest import ShardInfo
from readers.store.mapped_bytes import MappedBytes
from readers.store.read_bytes import ReadBytes
from readers.store.record_bytes import FileBytes, RecordBytes, Wanted
from tests.readers.store.test_record_bytes import SIZES, RecordBytesCases, parts_of, wanted_of

CONTENTS = [
    bytes(np.random.default_rng(5 + n).integers(0, 256, size, np.uint8))
    for n, size in enumerate(SIZES)
]


def infos(contents):
    return [
        ShardInfo(
            file=f"shard-{number:05d}.lmdb",
            sample_count=1,
            bytes=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
            identity="0" * 64,
        )
        for number, content in enumerate(contents)
    ]


def put(folder: CacheFolder, content: bytes) -> Path:
    """A copy of a shard of these bytes."""
    folder.make()
    path = folder.copy_path(hashlib.sha256(content).hexdigest())
    path.write_bytes(content)
    return path


@pytest.fixture(autouse=True)
def looks_at_once(monkeypatch):
    """Each request looks for new copies."""
    monkeypatch.setattr(staged_bytes_module, "_LOOK_S", 0.0)


class StagedCases(RecordBytesCases):
    """The shards are those of the base class; a child says which have copies."""

    copied: tuple[int, ...]

    @pytest.fixture(autouse=True)
    def _cache(self, tmp_path: Path, contents: list[bytes]) -> None:
        self.folder = CacheFolder(tmp_path / "local")
        self.shards = infos(contents)
        self.contents = contents

    def make(self, sizes: tuple[int, ...]) -> RecordBytes:
        if len(sizes) != len(SIZES):  # Of what is no file.
            return StagedBytes(ReadBytes(1), infos([bytes(sizes[0])]), self.folder)
        for number in self.copied:
            put(self.folder, self.contents[number])
        return StagedBytes(ReadBytes(len(sizes)), self.shards, self.folder)


class TestFar(StagedCases):
    """No copy yet: all goes the far way."""

    copied = ()


class TestBoth(StagedCases):
    """Some shards have copies."""

    copied = (0, 2)

    def test_what_comes_both_ways_is_joined_where_it_is_wanted(self, opened, contents) -> None:
        """Parts of one length that are wanted in rows are put there, from near and far alike."""
        shards = np.array([3, 0, 1, 0, 3], np.int64)
        offsets = np.array([5, 50_000, 0, 0, 100], np.int64)
        out = np.zeros((5, 1000), np.uint8)
        wanted = Wanted(shards=shards, offsets=offsets, lengths=1000, out=out)
        (pieces,) = opened.fetch([wanted])
        assert pieces.in_out
        assert [row.tobytes() for row in out] == [
            contents[shard][offset : offset + 1000]
            for shard, offset in zip(shards.tolist(), offsets.tolist(), strict=True)
        ]
        assert opened.near_count == 2

    def test_what_is_announced_both_ways_is_joined(self, opened, contents) -> None:
        """Parts from far are on their way, those of copies are there; none is read twice."""
        places = [(3, 5, 100), (0, 50_000, 1000), (1, 0, 4096), (2, 0, 3)]
        wanted = wanted_of(places)
        announced = opened.announce([wanted])
        assert announced is not None
        (pieces,) = announced.fetch()
        expected = [contents[shard][at : at + count] for shard, at, count in places]
        assert parts_of(pieces, wanted) == expected
        assert pieces.reads.read_count == 2


class TestNear(StagedCases):
    """All have copies."""

    copied = (0, 1, 2, 3)

    def test_pieces_lie_in_the_copies(self, opened, contents) -> None:
        """Nothing is copied any more: that is what the cache is for."""
        (pieces,) = opened.fetch([wanted_of([(0, 5, 10), (3, 0, 20)])])
        assert pieces.memory is opened.memory
        assert opened.near_count == 4


@pytest.fixture
def folder(tmp_path):
    return CacheFolder(tmp_path / "local")


@pytest.fixture
def far_paths(tmp_path):
    paths = []
    for number, content in enumerate(CONTENTS):
        paths.append(tmp_path / f"shard-{number:05d}.lmdb")
        paths[-1].write_bytes(content)
    return paths


def open_far(staged: StagedBytes, number: int, path: Path) -> FileBytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return staged.add(number, path, descriptor)
    finally:
        os.close(descriptor)


def test_a_copy_that_appears_is_taken_from_then_on(folder, far_paths):
    """Also by slices of the file that were given out before; the far file may go then."""
    staged = StagedBytes(ReadBytes(len(SIZES)), infos(CONTENTS), folder)
    file = open_far(staged, 0, far_paths[0])
    staged.expect(0, in_order=True)
    wanted = wanted_of([(0, 7, 90_000), (0, 0, 10)])
    assert parts_of(staged.fetch([wanted])[0], wanted)[1] == CONTENTS[0][:10]
    assert staged.near_count == 0
    put(folder, CONTENTS[0])
    staged.fetch([wanted])
    assert staged.near_count == 1
    os.truncate(far_paths[0], 0)
    assert parts_of(staged.fetch([wanted])[0], wanted)[0] == CONTENTS[0][7:90_007]
    assert bytes(file[100:200]) == CONTENTS[0][100:200]
    assert bytes(file[:]) == CONTENTS[0]


def test_a_far_way_out_of_mapped_files_is_joined_as_well(folder, far_paths):
    """A store on a slow disk is mapped where it is."""
    put(folder, CONTENTS[0])
    staged = StagedBytes(MappedBytes(SIZES), infos(CONTENTS), folder)
    for number, path in enumerate(far_paths):
        open_far(staged, number, path)
    wanted = wanted_of([(0, 1, 500), (1, 4000, 96), (3, 0, 8192), (2, 1, 0), (0, 99_999, 1)])
    assert parts_of(staged.fetch([wanted])[0], wanted) == [
        CONTENTS[0][1:501], CONTENTS[1][4000:], CONTENTS[3], b"", CONTENTS[0][-1:],
    ]  # fmt: skip


def test_a_shard_with_a_copy_is_not_opened_where_the_store_is(folder):
    """Once all is staged, training asks its server for nothing more."""
    put(folder, CONTENTS[1])
    staged = StagedBytes(ReadBytes(len(SIZES)), infos(CONTENTS), folder)
    assert staged.add_copy(0, Path("shard-0")) is None
    file = staged.add_copy(1, Path("shard-1"))
    assert file is not None
    assert bytes(file[:]) == CONTENTS[1]


@pytest.mark.parametrize("harm", ["shorter", "longer", "link", "folder", "unreadable folder"])
def test_a_copy_that_cannot_be_right_is_left_alone(folder, far_paths, harm, tmp_path):
    """Reading goes on from far."""
    path = put(folder, CONTENTS[0])
    if harm == "shorter":
        path.write_bytes(CONTENTS[0][:-1])
    elif harm == "longer":
        path.write_bytes(CONTENTS[0] + b"x")
    elif harm == "unreadable folder":
        path.unlink()
        (folder.path / "locks").unlink()
    else:
        path.unlink()
        path.symlink_to(far_paths[0]) if harm == "link" else path.mkdir()
    staged = StagedBytes(ReadBytes(len(SIZES)), infos(CONTENTS), folder)
    assert staged.add_copy(0, Path("shard-0")) is None
    open_far(staged, 0, far_paths[0])
    wanted = wanted_of([(0, 7, 100)])
    assert parts_of(staged.fetch([wanted])[0], wanted) == [CONTENTS[0][7:107]]
    assert staged.near_count == 0


def test_whoever_reads_a_copy_shares_its_lock(folder):
    """Until the store is let go of, by this process and by those that it has forked."""
    digest = infos(CONTENTS)[1].sha256
    put(folder, CONTENTS[1])
    staged = StagedBytes(ReadBytes(len(SIZES)), infos(CONTENTS), folder)
    locks = folder.locks(may_hold=True)
    staged.add_copy(1, Path("shard-1"))
    assert locks.is_taken(use_key(digest))
    assert not locks.hold(use_key(digest))
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write_end)
        os.read(read_end, 1)
        os._exit(0)
    os.close(read_end)
    del staged
    gc.collect()
    assert locks.is_taken(use_key(digest))
    os.close(write_end)
    os.waitpid(child, 0)
    assert locks.hold(use_key(digest))
    locks.close()
