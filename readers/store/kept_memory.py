"""Memory for what is read, used again once nobody looks at it any more.

Fresh memory comes from the kernel page by page, each at the cost of a fault: 64 for a record of
262 kB. Where the kernel has huge pages that hardly shows. Where it has none and a fault is dear,
512 images of 200 kB over NFS took a core 2.3 s with kept memory, and 4.2 s with fresh one.
"""

from __future__ import annotations

import weakref
from collections import deque

import numpy as np
from numpy.typing import NDArray

_LEAST_BYTES = 2**20
"""What is smaller comes out of memory that the process has anyway."""

_KEPT_BYTES_MAX = 32 * 2**20
"""Bytes that lie ready: a few batches of 32 images of 262 kB."""


class KeptMemory:
    """Gives memory out, and takes it back by itself."""

    def __init__(self) -> None:
        # Its methods are atomic: memory may come back at any point of any thread.
        self._free: deque[NDArray[np.uint8]] = deque()

    def take(self, byte_count: int) -> NDArray[np.uint8]:
        """Uninitialised bytes, the caller's until the last view of them is gone."""
        if not _LEAST_BYTES <= byte_count <= _KEPT_BYTES_MAX:
            return np.empty(byte_count, np.uint8)
        block = self._fitting(byte_count)
        if block is None:
            block = np.empty(-(-byte_count // _LEAST_BYTES) * _LEAST_BYTES, np.uint8)
        # Over a memoryview: arrays that are made of this one keep it, and not the block alone.
        given: NDArray[np.uint8] = np.frombuffer(memoryview(block), np.uint8, byte_count)  # type: ignore[arg-type]
        weakref.finalize(given, _give_back, self._free, block).atexit = False
        return given

    def _fitting(self, byte_count: int) -> NDArray[np.uint8] | None:
        """A block that lies ready and is not much too large."""
        for _ in range(len(self._free)):
            try:
                block = self._free.popleft()
            except IndexError:
                return None
            if byte_count <= len(block) <= 2 * byte_count:
                return block
            self._free.append(block)
        return None


def _give_back(free: deque[NDArray[np.uint8]], block: NDArray[np.uint8]) -> None:
    """Nobody looks at a block any more; those that were not asked for lately make room."""
    free.append(block)
    while sum(map(len, free.copy())) > _KEPT_BYTES_MAX:
        try:
            free.popleft()
        except IndexError:
            return
