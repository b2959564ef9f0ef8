"""Batches in memory that processes share, without a name in any file system.

A slot is a memfd: nothing of it is left behind however its processes end, it does not count against
the size of /dev/shm, and whoever has its descriptor may map it. It grows to the largest batch it
ever held and is then filled again and again.
"""

from __future__ import annotations

import mmap
import os
from typing import Any, NamedTuple

import numpy as np
import torch

from readers.buffers import Memory

_ALIGNMENT_BYTES = 64


class Place(NamedTuple):
    """A tensor or array in a slot: what crosses between processes in its stead.

    Attributes:
        start: Where it begins, in bytes.
        shape: Extent of each axis.
        strides: Elements from one to the next along each axis.
        dtype: Name of the element type, as torch has it.
        is_array: Whether it is a numpy array.
    """

    start: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    is_array: bool


class Slot:
    """One slot, as one process sees it.

    Args:
        descriptor: The memfd. It is closed with the slot.
        is_pinned: Whether this process pins what it maps.
    """

    def __init__(self, descriptor: int, *, is_pinned: bool = False) -> None:
        self.descriptor = descriptor
        self._is_pinned = is_pinned
        self._memory: Memory | None = None

    @classmethod
    def make(cls, *, is_pinned: bool = False) -> Slot:
        """A new, empty slot."""
        return cls(os.memfd_create("lmdb-packer-batch", os.MFD_CLOEXEC), is_pinned=is_pinned)

    def memory(self, byte_count: int) -> Memory:
        """At least so many bytes of it, mapped. It grows when it has to."""
        byte_count = max(1, byte_count)  # An empty batch has an address too.
        if self._memory is None or self._memory.byte_count < byte_count:
            size = os.fstat(self.descriptor).st_size
            if size < byte_count:
                # Each growth is a new mapping, so a batch placed piece by piece must not grow it
                # by every piece. Bytes that are never written take no memory.
                size = -(-max(byte_count, size + size // 4) // mmap.PAGESIZE) * mmap.PAGESIZE
                os.ftruncate(self.descriptor, size)
            self._memory = Memory(size, descriptor=self.descriptor, is_pinned=self._is_pinned)
        return self._memory

    def __del__(self) -> None:
        os.close(self.descriptor)


class SlotWriter:
    """Hands out memory of a slot to a batch that is being filled, and says where things are in it.

    Args:
        slot: The slot.
    """

    def __init__(self, slot: Slot) -> None:
        self._slot = slot
        # All mappings that this batch was handed memory of: a slot that grows is mapped anew.
        self._memories: list[Memory] = []
        self.byte_count = 0

    def take(self, byte_count: int) -> torch.Tensor:
        """Uninitialised bytes of the slot, uint8.

        What was taken before stays valid when the slot grows: a mapping of the same pages.
        """
        return self._taken(byte_count)[1]

    def _taken(self, byte_count: int) -> tuple[int, torch.Tensor]:
        start = -(-self.byte_count // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
        self.byte_count = start + byte_count
        memory = self._slot.memory(self.byte_count)
        if memory not in self._memories:
            self._memories.append(memory)
        return start, memory.tensor()[start : start + byte_count]

    def place(self, value: torch.Tensor | np.ndarray[Any, Any]) -> Place:
        """Where a tensor or array is in the slot; it is copied there when it is not yet."""
        if isinstance(value, np.ndarray):
            # By numpy: torch takes no array with negative strides, and warns of a read-only one.
            dtype = value.dtype.name
            start, taken = self._taken(value.nbytes)
            tensor = taken.view(getattr(torch, dtype)).view(value.shape)
            np.copyto(tensor.numpy(), value)
            return Place(start, value.shape, tensor.stride(), dtype, True)
        tensor, found = value, self._start_in_slot(value)
        if found is None:
            found, taken = self._taken(tensor.nbytes)
            # An image stays channels-last in memory: the strides are those that a copy of it has.
            strides = torch.empty_like(tensor, device="meta").stride()
            copy = torch.as_strided(
                taken.view(tensor.dtype), tensor.shape, strides, found // tensor.element_size()
            )
            tensor = copy.copy_(tensor.detach())
        dtype = str(tensor.dtype).removeprefix("torch.")
        return Place(found, tuple(tensor.shape), tensor.stride(), dtype, False)

    def _start_in_slot(self, tensor: torch.Tensor) -> int | None:
        """Offset of a tensor in the slot, or None when it is not there."""
        for memory in self._memories:
            start = tensor.data_ptr() - memory.address
            if 0 <= start < memory.byte_count:
                return start
        return None


def tensor_at(data: torch.Tensor, place: Place) -> torch.Tensor | np.ndarray[Any, Any]:
    """The tensor or array at a place in the bytes of a slot: a view that keeps them alive."""
    dtype = getattr(torch, place.dtype)
    start = place.start // dtype.itemsize
    usable = data[: len(data) // dtype.itemsize * dtype.itemsize].view(dtype)
    tensor = torch.as_strided(usable, place.shape, place.strides, start)
    return tensor.numpy() if place.is_array else tensor
