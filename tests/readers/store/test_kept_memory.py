"""Memory for what is read is used again, and not before nobody looks at it any more."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest
import torch

from readers.store.kept_memory import KeptMemory

SIZE = 3 * 2**20

VIEWS = {
    "itself": lambda array: array,
    "a slice": lambda array: array[5:50],
    "rows": lambda array: array.reshape(3, -1)[1],
    "a view of a view": lambda array: array[100:][::2].view(np.uint8)[3:],
    "another element type": lambda array: array[:800].view(np.float32),
    "memory": lambda array: memoryview(array)[7:20],
    "memory of a part": lambda array: memoryview(array[7:20]),
    "as strided": lambda array: np.lib.stride_tricks.as_strided(array, (10, 4), (3, 1)),
    "of a buffer": lambda array: np.frombuffer(memoryview(array), np.uint8, 10, 3),
    "a tensor": lambda array: torch.from_numpy(array)[4:9],
    "a tensor's array": lambda array: torch.from_numpy(array)[4:9].numpy(),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_what_is_looked_at_is_not_given_out_again(view):
    """Through whatever the bytes are seen."""
    memory = KeptMemory()
    first = memory.take(SIZE)
    first[:] = 7
    kept = view(first)
    before = bytes(np.asarray(kept).tobytes())
    place = first.ctypes.data
    del first
    gc.collect()
    for _ in range(3):
        other = memory.take(SIZE)
        assert other.ctypes.data != place
        other[:] = 9
        assert np.asarray(kept).tobytes() == before
    del other, kept
    gc.collect()
    assert place in {memory.take(SIZE - 100).ctypes.data for _ in [0]} or place in {
        array.ctypes.data for array in [memory.take(SIZE) for _ in range(3)]
    }


def test_little_is_kept():
    """At most 32 MiB lie ready; what is small or large is ordinary memory."""
    memory = KeptMemory()
    arrays = [memory.take(SIZE) for _ in range(30)]
    assert [len(array) for array in arrays] == [SIZE] * 30
    del arrays
    gc.collect()
    assert 2**24 < sum(map(len, memory._free)) <= 2**25
    for byte_count in (0, 100, 2**26):
        assert len(memory.take(byte_count)) == byte_count
    count = len(memory._free)
    assert len(memory.take(2**20)) == 2**20  # None of those that lie ready: they are too large.
    assert len(memory._free) >= count


def test_threads_get_memory_of_their_own():
    """Many take, write, look and let go at once."""
    memory, wrong = KeptMemory(), []

    def work(number):
        for turn in range(60):
            array = memory.take(2**20 + 1000 * (turn % 7))
            array[:] = number
            part = array[turn:]
            del array
            if (part != number).any():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
