"""Recycled, page-aligned, if possible pinned memory for batches.

NOTE [ a kept batch is never overwritten ]: fresh memory is the dominant cost of a loader (a batch
of 38.5 MB into fresh pages takes 16 ms, into kept ones 1.3 ms), so batches live in buffers that are
used again. A buffer is free when the last tensor over it is gone, wherever a user keeps it: each
batch gets a new Python object over the buffer's memory, every tensor over the batch holds on to
that object through its storage, and the end of the object is what gives the buffer back.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import weakref
from collections import deque
from typing import Any

import torch

_HUGE_PAGE_BYTES = 2**21

SMALL_BYTES = 2**14
"""A tensor below this has ordinary memory of its own: NOTE [ a small tensor keeps no batch ] in
filling.py. Copying it takes no longer than to set up a view that can be let go of by itself."""


_POOLED_BYTES_LEAST = 2**16
"""Below this, fresh memory costs less than the object that tells when a buffer is free."""

_POOL_COUNT_MAX = 8


def take_plain(byte_count: int) -> torch.Tensor:
    """Uninitialised ordinary memory, uint8: not shared, not pinned, not used again by us."""
    return torch.empty(byte_count, dtype=torch.uint8)


class Memory:
    """Some pages of this process, for reading and writing, until nothing refers to them.

    Args:
        byte_count: How many bytes, rounded up to whole pages.
        descriptor: A file that backs them, so that other processes may map them too. None: none.
        is_pinned: Whether to pin them for the way to a GPU.

    Attributes:
        byte_count: Bytes that may be used.
        address: Of the first.
    """

    def __init__(
        self, byte_count: int, *, descriptor: int | None = None, is_pinned: bool = False
    ) -> None:
        self.byte_count = max(1, byte_count)
        if descriptor is None:
            self._map = mmap.mmap(-1, self.byte_count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            if self.byte_count >= _HUGE_PAGE_BYTES:
                with contextlib.suppress(OSError):  # Some kernels have none.
                    self._map.madvise(mmap.MADV_HUGEPAGE)
        else:
            self._map = mmap.mmap(descriptor, self.byte_count)
        self._is_pinned = is_pinned
        self._type = ctypes.c_ubyte * self.byte_count
        self.address = ctypes.addressof(self.window())
        if is_pinned:
            _pin(self)

    def window(self) -> ctypes.Array[ctypes.c_ubyte]:
        """A new object over all of the memory, which it keeps alive."""
        return self._type.from_buffer(self._map)

    def discard(self, start: int = 0, stop: int | None = None) -> None:
        """Give pages of shared memory back to the system; they read as zeros from now on.

        Pinned ones stay: the GPU would go on reading those that were there before.

        Args:
            start: First byte; pages that lie wholly from there on are given back.
            stop: Behind the last. None: all.
        """
        first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
        end = self.byte_count if stop is None else stop // mmap.PAGESIZE * mmap.PAGESIZE
        if first < end and not self._is_pinned:
            self._map.madvise(mmap.MADV_REMOVE, first, end - first)

    def tensor(self) -> torch.Tensor:
        """All of the memory as a uint8 tensor."""
        return torch.frombuffer(self.window(), dtype=torch.uint8)


def _pin(memory: Memory) -> None:
    """Register memory with CUDA: copies from it to the GPU need no staging, and run beside compute.

    https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__MEMORY.html, cudaHostRegister.
    """
    cudart = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    torch.cuda.check_error(cudart.cudaHostRegister(memory.address, memory.byte_count, 0))
    weakref.finalize(memory, cudart.cudaHostUnregister, memory.address)


class _Lent(weakref.ref[Any]):
    """Looks after a buffer that is in use: called when the object over its memory is gone.

    A `weakref.finalize` does the same for ten times the calls, for each batch.
    """

    __slots__ = ("memory",)

    memory: Memory


class BufferPool:
    """Buffers of one size.

    It grows when all are in use and shrinks to `kept_count` free ones: a user may hold as many
    batches as memory allows. A forked child that lets go of a batch gives nothing back to its
    parent: it has a copy of the pool, as of everything.

    Args:
        byte_count: Size of each buffer.
        kept_count: Free buffers that are kept.
        is_pinned: Whether to pin them. None: when CUDA is there.
    """

    def __init__(
        self, byte_count: int, *, kept_count: int = 4, is_pinned: bool | None = None
    ) -> None:
        self.byte_count = byte_count
        self._kept_count = kept_count
        self._is_pinned = torch.cuda.is_available() if is_pinned is None else is_pinned
        # A deque's append and pop are atomic: a buffer may come back in any thread, even in the
        # middle of take(), when the garbage collector runs there. So there is no lock to deadlock.
        # So are those of the dict. (It is none of weak references: ctypes' objects have no hash.)
        self._free: deque[Memory] = deque()
        self._lent: dict[int, _Lent] = {}
        self._owner = os.getpid()
        self.made_count = 0

    @property
    def free_count(self) -> int:
        """Buffers that wait to be used."""
        return len(self._free)

    def take(self) -> torch.Tensor:
        """A buffer, uint8, uninitialised; it comes back when the last tensor over it is gone."""
        try:
            memory = self._free.pop()
        except IndexError:
            memory = Memory(self.byte_count, is_pinned=self._is_pinned)
            self.made_count += 1
        window = memory.window()
        if self._is_pinned:
            # Unpinned with the last tensor over it, whatever has become of the pool.
            window.memory = memory  # type: ignore[attr-defined]
        lent = _Lent(window, self._give_back)
        lent.memory = memory
        self._lent[id(lent)] = lent
        return torch.frombuffer(window, dtype=torch.uint8)

    def _give_back(self, lent: _Lent) -> None:
        self._lent.pop(id(lent), None)
        if len(self._free) < self._kept_count and os.getpid() == self._owner:
            self._free.append(lent.memory)


def take_pooled(
    pools: dict[int, BufferPool], byte_count: int, *, kept_count: int, is_pinned: bool | None
) -> torch.Tensor:
    """A buffer out of the pool of its size, uint8, uninitialised; a small one is ordinary memory.

    Args:
        pools: By size. The one that is missing is made.
        byte_count: The buffer's byte count.
        kept_count: Free buffers that a new pool keeps.
        is_pinned: Whether those of a new pool are pinned. None: when CUDA is there.
    """
    if byte_count < _POOLED_BYTES_LEAST:
        return take_plain(byte_count)
    pool = pools.get(byte_count)
    if pool is None:
        pool = BufferPool(byte_count, kept_count=kept_count, is_pinned=is_pinned)
        # Sizes that differ from batch to batch must not pile up pools that nobody asks again.
        if len(pools) >= _POOL_COUNT_MAX:
            pools.pop(next(iter(pools)), None)
        pools[byte_count] = pool
    return pool.take()
