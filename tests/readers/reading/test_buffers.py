"""A buffer comes back when nothing looks at it any more, and not before."""

from __future__ import annotations

import errno
import gc
import mmap
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch

from readers.reading.buffers import BufferPool, Memory


@pytest.fixture
def pool():
    """Buffers of 1000 bytes, of which 4 are kept."""
    return BufferPool(1000, kept_count=4, is_pinned=False)


VIEWS = {
    "the tensor": lambda tensor: tensor,
    "a slice": lambda tensor: tensor[8:16],
    "another element type": lambda tensor: tensor[:800].view(torch.float32),
    "one sample": lambda tensor: tensor.view(10, 100)[3],
    "rows": lambda tensor: tensor.view(10, 100).unbind(0)[7],
    "detached": lambda tensor: tensor.detach(),
    "numpy's": lambda tensor: tensor.numpy(),
    "numpy's of a part": lambda tensor: tensor.numpy()[5:].reshape(5, 199)[2],
    "memory": lambda tensor: memoryview(tensor.numpy()),
    "numpy and back": lambda tensor: torch.from_numpy(tensor.numpy()[3:9]),
}


def bytes_of(view):
    return (view.numpy() if isinstance(view, torch.Tensor) else np.asarray(view)).tobytes()


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_whatever_looks_at_a_buffer_keeps_it(pool, view):
    """It is not handed out again while a view lives, and at once when the last one is gone."""
    tensor = pool.take()
    tensor.fill_(1)
    kept = view(tensor)
    before = bytes_of(kept)
    del tensor
    for _ in range(6):
        pool.take().fill_(2)
    assert bytes_of(kept) == before
    assert (pool.made_count, pool.free_count) == (2, 1)
    del kept
    assert (pool.made_count, pool.free_count) == (2, 2)


def test_a_thousand_batches_need_as_many_buffers_as_are_held_at_once(pool):
    """A training loop that looks at two batches at a time makes two buffers in its life."""
    addresses, last = set(), None
    for number in range(1000):
        tensor = pool.take()
        tensor.fill_(number % 251)
        assert last is None or int(last[999]) == (number - 1) % 251
        addresses.add(tensor.data_ptr())
        last = tensor
    assert len(addresses) == pool.made_count == 2


def test_a_thousand_batches_take_no_more_memory(run_python):
    """Pages are used again: 10 GB go through 40 MB."""
    code = """
import json
from readers.reading.buffers import BufferPool
pages = lambda: int(open("/proc/self/statm").read().split()[1])
pool, last = BufferPool(10_000_000, is_pinned=False), None
counts = []
for number in range(1000):
    last = pool.take()
    last[::4096] = number % 251
    if number in (10, 999):
        counts.append(pages())
print(json.dumps([pool.made_count, (counts[1] - counts[0]) * 4096]))
"""
    made_count, growth = run_python(code)
    assert made_count == 2
    assert growth < 1_000_000


def test_a_user_may_hold_fifty_and_the_pool_shrinks_again(pool):
    """None of them changes; afterwards four are kept."""
    held = [pool.take().fill_(number) for number in range(50)]
    assert [set(tensor.tolist()) for tensor in held] == [{number} for number in range(50)]
    assert len({tensor.data_ptr() for tensor in held}) == pool.made_count == 50
    del held
    assert pool.free_count == 4
    again = [pool.take() for _ in range(4)]
    assert pool.made_count == 50
    assert len(again) == 4


def test_a_buffer_may_come_back_in_another_thread(pool):
    """Where the last view dies says nothing about where the next buffer is taken."""
    box = [pool.take().view(10, 100)[1]]
    thread = threading.Thread(target=box.clear)
    thread.start()
    thread.join()
    assert pool.free_count == 1


def test_a_buffer_may_come_back_in_the_middle_of_taking_one(pool):
    """The garbage collector runs when it likes, so there must be nothing for it to wait on."""
    threshold = gc.get_threshold()
    gc.set_threshold(1)  # At nearly every new object.
    try:
        for number in range(300):
            ring = [pool.take().fill_(number % 251)]
            ring.append(ring)  # Only the collector finds that nothing refers to it.
            kept = ring[0]
            del ring
            assert set(pool.take().fill_(251).tolist()) == {251}
            assert set(kept.tolist()) == {number % 251}
            del kept
    finally:
        gc.set_threshold(*threshold)
    gc.collect()
    assert pool.free_count == min(4, pool.made_count)
    assert pool.made_count < 20


def test_threads_that_take_and_let_go_never_get_the_same_buffer(pool):
    """Each finds what it wrote, whatever the others do."""
    wrong = []

    def work(number):
        for _ in range(300):
            tensor = pool.take()
            tensor.fill_(number)
            if not bool((tensor == number).all()):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert pool.free_count == min(4, pool.made_count)


def test_a_forked_child_gives_nothing_back_to_its_parent(pool):
    """It has copies: lets go of them, takes its own, and the parent's stay as they are."""
    held = [pool.take().fill_(number) for number in range(3)]
    child = os.fork()
    if child == 0:
        del held
        own = [pool.take().fill_(9) for _ in range(5)]
        os._exit(pool.made_count * 10 + len(own))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 85  # In the child nothing came back, and 5 new ones were made.
    assert pool.free_count == 0
    assert [set(tensor.tolist()) for tensor in held] == [{0}, {1}, {2}]
    del held
    assert pool.free_count == 3


def test_buffers_outlive_their_pool_and_their_program():
    """Whoever still has a batch goes on with it; at the end of the program nothing is said."""
    code = """
from readers.reading.buffers import BufferPool
pool = BufferPool(100_000, is_pinned=False)
kept, other = pool.take().fill_(7), pool.take()
del pool
del other
print(int(kept.sum()))
kept.ring = kept  # Left to the end of the interpreter.
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert (done.stdout, done.stderr) == ("700000\n", "")


@pytest.mark.parametrize("byte_count", [1, 4095, 4097, 2**21, 2**21 + 5])
def test_memory_is_page_aligned_and_of_the_size_asked_for(byte_count):
    """Every byte may be written, also those of the last page and of huge pages."""
    memory = Memory(byte_count)
    assert memory.address % 4096 == 0
    tensor = memory.tensor()
    assert tensor.shape == (byte_count,)
    assert tensor.data_ptr() == memory.address
    tensor.fill_(7)
    assert bytes(memory.window()) == b"\7" * byte_count


def test_an_empty_buffer_is_a_buffer():
    """A batch without a number in it has no bytes."""
    pool = BufferPool(0, is_pinned=False)
    pool.take()
    assert (pool.made_count, pool.free_count) == (1, 1)


@pytest.mark.gpu
def test_buffers_are_pinned_beside_a_gpu():
    """A copy to the GPU needs no staging; the pool asks for that by itself."""
    tensor = BufferPool(2**22).take()
    assert tensor.is_pinned()
    tensor.fill_(3)
    assert int(tensor.to("cuda", non_blocking=True).sum()) == 3 * 2**22


def test_a_kernel_without_huge_pages_will_do(monkeypatch):
    """It refuses to be told of them (EINVAL), as that of a small virtual machine."""

    class Refusing(mmap.mmap):
        def madvise(self, *arguments):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr("readers.reading.buffers.mmap.mmap", Refusing)
    memory = Memory(2**23)
    assert memory.byte_count == 2**23
    assert len(memory.window()) == 2**23
