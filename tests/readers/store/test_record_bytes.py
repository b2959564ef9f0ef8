"""The bytes of records are what lies in their files, whichever way they come."""

from __future__ import annotations

import gc
import mmap
import os
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from readers.store.errors import ShardError
from readers.store.mapped_bytes import MappedBytes
from readers.store.read_bytes import ReadBytes
from readers.store.record_bytes import FileBytes, Pieces, RecordBytes, Wanted

SIZES = (100_000, 4096, 3, 8192)
"""Of the files: some end where a page ends."""


def wanted_of(places: list[tuple[int, int, int]], **settings: Any) -> Wanted:
    """A request of (shard, offset, length) for each part."""
    columns = np.array(places, np.int64).reshape(-1, 3).T.copy()
    return Wanted(shards=columns[0], offsets=columns[1], lengths=columns[2], **settings)


def parts_of(pieces: Pieces, wanted: Wanted) -> list[bytes]:
    lengths = np.broadcast_to(wanted.lengths, len(wanted))
    spans = zip(pieces.starts.tolist(), lengths.tolist(), strict=True)
    return [pieces.memory[start : start + length].tobytes() for start, length in spans]


class RecordBytesCases:
    """What every implementation does. A child class says how one is made."""

    def make(self, sizes: tuple[int, ...]) -> RecordBytes:
        raise NotImplementedError

    @pytest.fixture
    def contents(self) -> list[bytes]:
        noise = np.random.default_rng(5)
        return [noise.integers(0, 256, size, np.uint8).tobytes() for size in SIZES]

    @pytest.fixture
    def paths(self, contents: list[bytes], tmp_path: Path) -> list[Path]:
        paths = [tmp_path / f"shard-{number}" for number in range(len(contents))]
        for path, content in zip(paths, contents, strict=True):
            path.write_bytes(content)
        return paths

    def add(self, record_bytes: RecordBytes, number: int, path: Path) -> FileBytes:
        """Take a shard in by a descriptor that is closed at once."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            return record_bytes.add(number, path, descriptor)
        finally:
            os.close(descriptor)

    def assert_open(self, count: int) -> None:
        """So many descriptors are open."""
        assert len(os.listdir("/proc/self/fd")) == count

    @pytest.fixture
    def opened(self, paths: list[Path]) -> Iterator[RecordBytes]:
        """All shards, taken in from the last to the first."""
        record_bytes = self.make(SIZES)
        for number in reversed(range(len(paths))):
            self.add(record_bytes, number, paths[number])
        yield record_bytes
        record_bytes.close()

    # Examples change nothing in the fixture; each child class is to try its own.
    @settings(
        suppress_health_check=[
            HealthCheck.function_scoped_fixture,
            HealthCheck.differing_executors,
        ],
        max_examples=60,
    )
    @given(data=st.data())
    def test_parts_are_the_bytes_of_their_files(
        self, opened: RecordBytes, contents: list[bytes], data: st.DataObject
    ) -> None:
        """In the order asked for, over several shards, with repeats, overlaps and empty ones."""

        def place(number: int) -> st.SearchStrategy[tuple[int, int, int]]:
            size = SIZES[number]
            ends = st.tuples(st.integers(0, size), st.integers(0, size)).map(sorted)
            return ends.map(lambda pair: (number, pair[0], pair[1] - pair[0]))

        places = st.lists(st.sampled_from(range(4)).flatmap(place), max_size=12)
        requests = [wanted_of(data.draw(places)) for _ in range(data.draw(st.integers(0, 3)))]
        found = opened.fetch(requests)
        assert len(found) == len(requests)
        for pieces, wanted in zip(found, requests, strict=True):
            assert pieces.memory.dtype == np.uint8
            assert pieces.starts.dtype == np.int64
            assert parts_of(pieces, wanted) == [
                contents[number][offset : offset + length]
                for number, offset, length in zip(
                    wanted.shards.tolist(),
                    wanted.offsets.tolist(),
                    np.broadcast_to(wanted.lengths, len(wanted)).tolist(),
                    strict=True,
                )
            ]

    def test_parts_of_one_length_may_be_put_where_they_are_wanted(
        self, opened: RecordBytes, contents: list[bytes]
    ) -> None:
        """Either they are there, or the caller finds them where they are; never half of both."""
        offsets = np.array([700, 0, 99_000, 700], np.int64)
        out = np.full((4, 1000), 7, np.uint8)
        wanted = Wanted(shards=np.zeros(4, np.int64), offsets=offsets, lengths=1000, out=out)
        (pieces,) = opened.fetch([wanted])
        expected = [contents[0][offset : offset + 1000] for offset in offsets.tolist()]
        assert parts_of(pieces, wanted) == expected
        if pieces.in_out:
            assert [row.tobytes() for row in out] == expected
            assert np.shares_memory(pieces.memory, out)
        else:
            assert (out == 7).all()

    def test_nothing_may_be_asked_for(self, opened: RecordBytes) -> None:
        """A batch without samples, or one whose fields are all in the index."""
        assert opened.fetch([]) == []
        (pieces,) = opened.fetch([wanted_of([])])
        assert len(pieces.starts) == 0
        assert not pieces.waited
        opened.announce([])
        opened.announce([wanted_of([])])

    def test_what_is_announced_is_read_as_ever(
        self, opened: RecordBytes, contents: list[bytes]
    ) -> None:
        """It is advice: also of whole shards, and however the shard is said to be read."""
        wanted = wanted_of([(0, 5, 99_000), (1, 0, 4096), (2, 3, 0)])
        opened.announce([wanted])
        for in_order in (True, False):
            opened.expect(0, in_order=in_order)
            found = parts_of(opened.fetch([wanted])[0], wanted)
            assert found == [contents[0][5:99_005], contents[1], b""]

    @pytest.mark.parametrize(
        "place",
        [
            (0, 99_999, 2),
            (0, 100_001, 0),
            (1, 4096, 1),
            (2, 0, 4),
            (3, -1, 1),
            (0, 2**62, 2**62),
            (0, 2**63 - 1, 2**63 - 1),
        ],
    )
    def test_what_leaves_its_file_is_refused(
        self, opened: RecordBytes, paths: list[Path], place: tuple[int, int, int]
    ) -> None:
        """Though it be one part among right ones, and lie in the next shard; the place is named."""
        number, offset, length = place
        wanted = wanted_of([(0, 0, 10), place, (3, 0, 8192)])
        text = f"{paths[number].name}.*{length} bytes at offset {offset} leave the file of"
        for ask in (opened.fetch, opened.announce):
            with pytest.raises(ShardError, match=text):
                ask([wanted_of([(0, 0, 5)]), wanted])

    def test_a_shard_that_was_not_taken_in_is_refused(self, paths: list[Path]) -> None:
        """Its bytes are nowhere; to look would end the process."""
        record_bytes = self.make(SIZES)
        self.add(record_bytes, 1, paths[1])
        with pytest.raises(ValueError, match="shard 3 is not open"):
            record_bytes.fetch([wanted_of([(1, 0, 10), (3, 0, 10)])])
        with pytest.raises((ValueError, IndexError)):
            record_bytes.fetch([wanted_of([(4, 0, 10)])])

    def test_after_the_close_pieces_stay_and_nothing_can_be_asked_for(
        self, paths: list[Path], contents: list[bytes]
    ) -> None:
        """Whoever holds bytes holds them; descriptors are given back."""
        before = len(os.listdir("/proc/self/fd"))
        record_bytes = self.make(SIZES)
        file = self.add(record_bytes, 0, paths[0])
        wanted = wanted_of([(0, 10, 20)])
        (pieces,) = record_bytes.fetch([wanted])
        piece = file[5:9]
        record_bytes.close()
        record_bytes.close()
        with pytest.raises(ValueError, match="not open"):
            record_bytes.fetch([wanted])
        with pytest.raises(ValueError, match="closed"):
            self.add(record_bytes, 1, paths[1])
        self.assert_open(before)
        del record_bytes, file
        gc.collect()
        assert parts_of(pieces, wanted) == [contents[0][10:30]]
        assert bytes(piece) == contents[0][5:9]

    def test_descriptors_are_given_back_by_who_forgets_to_close(self, paths: list[Path]) -> None:
        """A store is gone with its last user, and everything of it."""
        before = len(os.listdir("/proc/self/fd"))
        record_bytes = self.make(SIZES)
        self.add(record_bytes, 0, paths[0])
        del record_bytes
        gc.collect()
        self.assert_open(before)

    def test_a_file_is_sliced_like_bytes(self, paths: list[Path], contents: list[bytes]) -> None:
        """The index and the keys are read so: any slice, also past the end, as memory."""
        record_bytes = self.make(SIZES)
        for number, content in enumerate(contents):
            file = self.add(record_bytes, number, paths[number])
            assert len(file) == len(content)
            for start, stop in ((0, 3), (1, 1), (0, len(content)), (2, 10**9), (10**9, 10**9)):
                part = file[start:stop]
                assert isinstance(part, memoryview)
                assert part.tobytes() == content[start:stop]
        record_bytes.close()

    def test_what_is_not_a_file_is_refused(self, tmp_path: Path) -> None:
        """By its path."""
        read_end, write_end = os.pipe()

        def read() -> None:
            record_bytes = self.make((10,))
            record_bytes.add(0, tmp_path / "shard-9", read_end)
            record_bytes.fetch([wanted_of([(0, 0, 10)])])

        try:
            with pytest.raises(ShardError, match="shard-9"):
                read()
        finally:
            os.close(read_end)
            os.close(write_end)

    def test_it_does_not_travel(self, opened: RecordBytes) -> None:
        """To copy the files into a pickle, or what is not open yet, would be the end of both."""
        with pytest.raises(TypeError, match="do not pickle; its path does"):
            pickle.dumps(opened)

    def test_many_threads_may_ask_at_once(self, opened: RecordBytes, contents: list[bytes]) -> None:
        """Each gets what it asked for."""
        wrong: list[int] = []

        def ask(number: int) -> None:
            rng = np.random.default_rng(number)
            for _ in range(100):
                offsets = rng.integers(0, 99_000, 8)
                wanted = Wanted(shards=np.zeros(8, np.int64), offsets=offsets, lengths=1000)
                found = parts_of(opened.fetch([wanted])[0], wanted)
                if found != [contents[0][at : at + 1000] for at in offsets.tolist()]:
                    wrong.append(number)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong

    def test_a_forked_child_goes_on(self, opened: RecordBytes, contents: list[bytes]) -> None:
        """With the shards of its parent, which it does not close for it."""
        wanted = wanted_of([(0, 100, 300), (3, 1, 8191)])
        expected = [contents[0][100:400], contents[3][1:]]
        child = os.fork()
        if child == 0:
            found = parts_of(opened.fetch([wanted])[0], wanted)
            opened.close()
            os._exit(17 if found == expected else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 17
        assert parts_of(opened.fetch([wanted])[0], wanted) == expected


class TestMapped(RecordBytesCases):
    """Out of the mapped files."""

    def make(self, sizes: tuple[int, ...]) -> RecordBytes:
        return MappedBytes(sizes)

    def test_pieces_lie_in_the_files(self, opened: RecordBytes) -> None:
        """Nothing is copied: of all requests there is one memory, a place for each whole file."""
        first = opened.fetch([wanted_of([(0, 5, 10)]), wanted_of([(1, 0, 10)])])
        assert all(pieces.memory is opened.memory for pieces in first)
        assert not opened.memory.flags.writeable
        assert int(first[1].starts[0]) == -(-SIZES[0] // mmap.PAGESIZE) * mmap.PAGESIZE


class TestRead(RecordBytesCases):
    """By reads at known offsets."""

    def make(self, sizes: tuple[int, ...]) -> RecordBytes:
        return ReadBytes(len(sizes))

    def test_a_file_that_was_cut_short_is_an_error(
        self, opened: RecordBytes, paths: list[Path]
    ) -> None:
        """Not a bus error, and not other bytes: shard and offset are named."""
        os.truncate(paths[0], 50_000)
        with pytest.raises(ShardError, match=r"shard-0.*ends at offset 50000, where 500 bytes"):
            opened.fetch([wanted_of([(0, 49_500, 1000)])])

    def test_rows_of_another_size_are_refused(self, opened: RecordBytes) -> None:
        """They would be filled in part."""
        out = np.zeros((1, 5), np.uint8)
        with pytest.raises(ValueError, match="out has 5 bytes, expected 6"):
            opened.fetch([wanted_of([(0, 0, 6)], out=out)])
