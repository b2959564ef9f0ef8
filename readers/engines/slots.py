"""Batches in memory that processes share, without a name in any file system.

A slot is a memfd: nothing of it is left behind however its processes end, it does not count against
the size of /dev/shm, and whoever has its descriptor may map it. It grows to the largest batch it
ever held and is then filled again and again.

NOTE [ what is kept of a slot ]: a process that takes a batch out of a slot has each tensor over
storage of its own: a small one is copied, a large one is a window that ends where it ends. So one
that is kept, saved or sent does not take the others along. The slot is free when the last window
over it is gone; until then the pages of those that are gone can be given back.
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from readers.reading.buffers import SMALL_BYTES, Memory

_ALIGNMENT_BYTES = 64

_STAND_INS = {"bfloat16": "uint16"}
"""Element types that numpy does not have, and what moves their bytes in their stead."""


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
        # A large piece has pages of its own: NOTE [ what is kept of a slot ].
        alignment = _ALIGNMENT_BYTES if byte_count < SMALL_BYTES else mmap.PAGESIZE
        start = -(-self.byte_count // alignment) * alignment
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


class Window(NamedTuple):
    """A large tensor over a slot.

    Attributes:
        start: Where it begins in the slot, in bytes.
        stop: Where it ends.
        bytes: What its storage holds on to.
    """

    start: int
    stop: int
    bytes: weakref.ref[np.ndarray[Any, Any]]


class SlotReader:
    """Takes tensors out of a slot, each with storage of its own: NOTE [ what is kept of a slot ].

    Args:
        memory: The slot's.
        on_release: Called when this object and the last window are gone, in whatever thread and at
            whatever moment that happens.
        is_pinned: Whether copies are pinned.
        copies: Whether all tensors are copied, so that nothing is kept of the slot.

    Attributes:
        windows: Over the slot, so far.
    """

    def __init__(
        self,
        memory: Memory,
        on_release: Callable[[], None],
        *,
        is_pinned: bool = False,
        copies: bool = False,
    ) -> None:
        view = memory.window()
        weakref.finalize(view, on_release).atexit = False
        self._data = np.frombuffer(memoryview(view), np.uint8)
        self._is_pinned = is_pinned
        self._copies = copies
        self.windows: list[Window] = []

    def at(self, place: Place) -> torch.Tensor | np.ndarray[Any, Any]:
        """The tensor or array at a place."""
        dtype = getattr(torch, place.dtype)
        if 0 in place.shape:
            empty = torch.empty(place.shape, dtype=dtype)
            return empty.numpy() if place.is_array else empty
        last = sum((n - 1) * step for n, step in zip(place.shape, place.strides, strict=True))
        stop = place.start + (last + 1) * dtype.itemsize
        data = self._data[place.start : stop]
        is_window = not self._copies and len(data) >= SMALL_BYTES
        if not is_window:
            data = data.copy()
        strides = [step * dtype.itemsize for step in place.strides]
        known = _STAND_INS.get(place.dtype, place.dtype)
        array = np.ndarray(place.shape, known, data, strides=strides)
        if is_window:
            # Views of what is handed out are views of the tensor's, and so keep it: numpy's own
            # would know the slot alone.
            self.windows.append(Window(place.start, stop, weakref.ref(array)))
        tensor = torch.from_numpy(array)
        if known != place.dtype:
            tensor = tensor.view(dtype)
        if self._is_pinned and not is_window:
            tensor = tensor.pin_memory()
        return tensor.numpy() if place.is_array else tensor


def discard_unused(memory: Memory, windows: list[Window]) -> None:
    """Give back the pages of those windows over a slot that are gone; they leave the list.

    Args:
        memory: The slot's.
        windows: Of a batch in it that is still held. No two of them overlap.
    """
    for window in [window for window in windows if window.bytes() is None]:
        windows.remove(window)
        memory.discard(window.start, window.stop)
