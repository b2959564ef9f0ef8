"""A gather copies rows of bytes from anywhere in a store into one batch."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from readers.reading.gather import bytes_of, empty_batch, gather
from readers.store.mapping import FileRange

NOISE = np.random.default_rng(3).integers(0, 256, 300).astype(np.uint8)


@given(st.data())
def test_each_row_is_the_bytes_from_its_start(data):
    """Rows may overlap, repeat and come in any order, and start at any byte."""
    byte_count = data.draw(st.integers(0, len(NOISE)))
    starts = data.draw(st.lists(st.integers(0, len(NOISE) - byte_count), max_size=20))
    rows = gather(torch.from_numpy(NOISE), np.array(starts, np.int64), byte_count)
    assert rows.dtype == torch.uint8
    assert rows.shape == (len(starts), byte_count)
    for row, start in zip(rows, starts, strict=True):
        assert np.array_equal(row.numpy(), NOISE[start : start + byte_count])


def test_rows_are_put_where_they_are_wanted():
    """A batch's memory may be there already; nothing around it is touched."""
    memory = torch.full((50,), 7, dtype=torch.uint8)
    out = memory[10:40].view(3, 10)
    rows = gather(torch.from_numpy(NOISE), np.array([0, 290, 5]), 10, out=out)
    assert rows.data_ptr() == out.data_ptr() == memory.data_ptr() + 10
    assert np.array_equal(memory[20:30].numpy(), NOISE[290:])
    assert memory[:10].eq(7).all()
    assert memory[40:].eq(7).all()


def test_files_are_read_as_one_range(tmp_path):
    """One gather serves rows of several files, each mapped at its place."""
    sizes = [5000, 4096, 1]
    contents = [np.full(size, at + 1, np.uint8) for at, size in enumerate(sizes)]
    files = FileRange(sizes)
    for number, content in enumerate(contents):
        path = tmp_path / str(number)
        path.write_bytes(content.tobytes())
        with open(path, "rb") as stream:
            files.map_file(number, stream.fileno())
    starts = np.array([files.starts[2], files.starts[0] + 4999, files.starts[1] + 4095])
    rows = gather(bytes_of(files.data), starts, 1)
    assert rows.tolist() == [[3], [1], [2]]


def test_long_rows_of_an_enormous_store_are_gathered_too(tmp_path):
    """A view of one row for each byte has more elements than torch can count: 4 TiB x 24 MiB."""
    path, size, byte_count, start = tmp_path / "sparse", 2**42, 24 * 2**20, 2**41 + 5
    with open(path, "wb+") as stream:
        try:
            os.truncate(path, size)
        except OSError:
            pytest.skip("this file system has no files of 4 TiB")
        stream.seek(start)
        stream.write(bytes(range(256)) * 4)
        stream.flush()
        files = FileRange([size])
        files.map_file(0, stream.fileno())
    rows = gather(bytes_of(files.data), np.array([start, start - 1]), byte_count)
    assert rows[0, :1024].tolist() == list(range(256)) * 4
    assert rows[1, :1025].tolist() == [0, *range(256), *range(256), *range(256), *range(256)]
    assert rows[:, 1025:].count_nonzero() == 0


def test_a_batch_outside_of_workers_is_ordinary_memory():
    """Shared memory costs a descriptor; only what crosses processes needs it."""
    for shape in ((3, 5), (0, 5), (3, 0)):
        batch = empty_batch(shape)
        assert batch.shape == shape
        assert not batch.is_shared()
