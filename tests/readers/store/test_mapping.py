"""Several files lie in one range of addresses, read-only, each at its place."""

from __future__ import annotations

import gc
import mmap
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from readers.store.mapping import FileRange

SIZES = (1, 4096, 4097, 100_000, 3 * 2**20)


def write_files(folder: Path, sizes: tuple[int, ...] = SIZES) -> list[Path]:
    """Files of noise, of these sizes."""
    paths = []
    for number, size in enumerate(sizes):
        paths.append(folder / f"file-{number}")
        paths[-1].write_bytes(np.random.default_rng(number).bytes(size))
    return paths


def map_all(files: FileRange, paths: list[Path], *, read_ahead: bool = True) -> None:
    for number, path in enumerate(paths):
        descriptor = os.open(path, os.O_RDONLY)
        files.map_file(number, descriptor)
        if not read_ahead:
            files.expect_random_reads(number)
        os.close(descriptor)


def mapped(path: Path) -> list[str]:
    """Lines about a file in the list of this process's maps."""
    return [
        line
        for line in Path("/proc/self/maps").read_text().splitlines()
        if line.endswith(f" {path}")
    ]


@pytest.mark.parametrize("read_ahead", [False, True])
def test_each_file_is_read_at_its_place(read_ahead, tmp_path):
    """One gather serves all shards by adding a shard's start to an offset in it."""
    paths = write_files(tmp_path)
    files = FileRange(SIZES)
    map_all(files, paths, read_ahead=read_ahead)
    assert files.starts.dtype == np.int64
    assert files.data.dtype == np.uint8
    assert files.address == files.data.ctypes.data
    end = 0
    for number, path in enumerate(paths):
        start = int(files.starts[number])
        assert start == -(-end // mmap.PAGESIZE) * mmap.PAGESIZE
        end = start + SIZES[number]
        assert files.data[start:end].tobytes() == path.read_bytes()
        assert files.file(number).tobytes() == path.read_bytes()
    assert len(files.data) == -(-end // mmap.PAGESIZE) * mmap.PAGESIZE


def test_what_is_mapped_cannot_be_written(tmp_path):
    """A published file is never written again, by mistake neither."""
    files = FileRange(SIZES)
    map_all(files, write_files(tmp_path))
    assert not files.data.flags.writeable
    assert not files.file(2).flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        files.file(2)[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        files.data.setflags(write=True)
    for path in tmp_path.iterdir():
        assert mapped(path)[0].split()[1] == "r--s"


def test_only_the_files_that_were_asked_for_are_mapped(tmp_path):
    """A store of a thousand shards costs nothing until they are used."""
    paths = write_files(tmp_path)
    files = FileRange(SIZES)
    with open(paths[3], "rb") as stream:
        files.map_file(3, stream.fileno())
    assert [bool(mapped(path)) for path in paths] == [False, False, False, True, False]
    assert files.file(3).tobytes() == paths[3].read_bytes()


def test_the_range_goes_with_the_last_array_over_it(tmp_path):
    """A batch that is a view keeps its shard mapped; with the last view, all of it is unmapped."""
    paths = write_files(tmp_path)
    files = FileRange(SIZES)
    map_all(files, paths)
    view = files.file(3)[10:20]
    del files
    gc.collect()
    assert all(mapped(path) for path in paths)
    assert view.tobytes() == paths[3].read_bytes()[10:20]
    del view
    gc.collect()
    assert not any(mapped(path) for path in paths)


def test_a_file_may_be_deleted_while_it_is_mapped(tmp_path):
    """A job may clear its scratch folder before its last reader is gone."""
    paths = write_files(tmp_path)
    expected = paths[3].read_bytes()
    files = FileRange(SIZES)
    map_all(files, paths)
    paths[3].unlink()
    assert files.file(3).tobytes() == expected


def test_a_descriptor_that_is_none_is_an_os_error():
    """The system's own reason comes out."""
    files = FileRange([10])
    with pytest.raises(OSError, match="Bad file descriptor"):
        files.map_file(0, 10_000)


def test_a_range_of_nothing_is_a_range():
    """A store without samples has no shards."""
    files = FileRange([])
    assert files.starts.tolist() == []
    assert files.starts.dtype == np.int64


@pytest.mark.parametrize(
    "sizes",
    [[2**48 - 1], [2**62, 2**62, 2**62, 2**62, 4096], [2**63 - 1], [2**48 - 1] * 2**16],
    ids=["beyond the machine", "64 bits and a page", "63 bits", "many"],
)
def test_sizes_beyond_all_addresses_are_refused(sizes):
    """The sum must not wrap around: files would be mapped over the memory of the process."""
    with pytest.raises(MemoryError, match=r"cannot reserve [0-9]{15,} bytes of addresses"):
        FileRange(sizes)


LIMITED = """
from readers.store.mapping import FileRange
FileRange([2**20])
try:
    FileRange([2**40])
except MemoryError as error:
    print(error)
"""


def test_a_limit_on_addresses_says_what_to_do():
    """Some clusters set `ulimit -v`; the message names the number and the cure."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (2**33, 2**33)),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "cannot reserve 1099511627776 bytes of addresses for the store ([Errno 12] Cannot allocate "
        "memory); raise the limit on address space: ulimit -v unlimited\n"
    )
