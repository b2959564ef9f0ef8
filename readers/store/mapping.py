"""All shards of a store in one range of addresses.

A range as long as the store is reserved without memory behind it, and each shard's file is mapped
at its place when it is first used. So one gather serves any number of shards, and a mapped shard
costs no descriptor. The maps are read-only and shared: a forked child goes on using its parent's.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

# <sys/mman.h>; Python's mmap module has no MAP_FIXED, and MAP_NORESERVE only since 3.12.
_MAP_FIXED = 0x10
_MAP_NORESERVE = 0x4000

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int64,
]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_MAP_FAILED = ctypes.c_void_p(-1).value


class FileRange:
    """A reserved range of addresses with a place for each of several files.

    Reading a place before its file is mapped ends the process (SIGSEGV), as does reading a page
    that a truncation took away after it was mapped (SIGBUS): `ShardReader` checks sizes first.

    Args:
        sizes: Bytes of each file.

    Attributes:
        starts: Offset of each file's place in the range, in bytes, int64.
        data: The whole range, uint8, read-only. It keeps the range alive.

    Raises:
        MemoryError: The process may not reserve that many addresses (`ulimit -v`).
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        steps = [-(-size // mmap.PAGESIZE) * mmap.PAGESIZE for size in sizes]
        # Python's integers: a wrapped sum of crafted sizes would map files over other memory.
        ends = list(accumulate(steps, initial=0))
        length = max(ends[-1], mmap.PAGESIZE)
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
        try:
            # NOTE [ lifetime of the range ]: the Python object owns the addresses and unmaps them
            # all, shards included, when the last array over them is gone. It is never closed.
            owner = mmap.mmap(-1, length, flags=flags, prot=0)
        except (OSError, ValueError, OverflowError) as error:
            raise MemoryError(
                f"cannot reserve {length} bytes of addresses for the store ({error}); "
                "raise the limit on address space: ulimit -v unlimited"
            ) from error
        self.starts: NDArray[np.int64] = np.array(ends[:-1], np.int64)
        self._sizes = tuple(sizes)
        self.data: NDArray[np.uint8] = np.frombuffer(owner, np.uint8)
        self.address = int(self.data.ctypes.data)

    def map_file(self, number: int, descriptor: int) -> None:
        """Map an open file at its place, which nobody reads at this moment.

        Args:
            number: Which of the files.
            descriptor: The open file; it may be closed afterwards.
        """
        address = self.address + int(self.starts[number])
        size = self._sizes[number]
        found = _libc.mmap(
            address, size, mmap.PROT_READ, mmap.MAP_SHARED | _MAP_FIXED, descriptor, 0
        )
        if found != address:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))

    def expect_random_reads(self, number: int, *, are_random: bool = True) -> None:
        """Have the kernel read no neighbours of a page that is asked for, or do so again.

        A shuffled pass does not want them. What it does want in one piece, `will_need` says.
        """
        address = self.address + int(self.starts[number])
        advice = mmap.MADV_RANDOM if are_random else mmap.MADV_NORMAL
        _libc.madvise(address, self._sizes[number], advice)

    def will_need(self, start: int, byte_count: int) -> None:
        """Have the kernel read a part of a mapped file ahead of use, in large pieces.

        Args:
            start: Where it begins in the range, in bytes.
            byte_count: Its length.
        """
        first = start // mmap.PAGESIZE * mmap.PAGESIZE
        length = start + byte_count - first
        _libc.madvise(self.address + first, length, mmap.MADV_WILLNEED)

    def file(self, number: int) -> NDArray[np.uint8]:
        """The bytes of one file's place, read-only."""
        start = int(self.starts[number])
        return self.data[start : start + self._sizes[number]]
