"""Offsets -> one batch, in one native call, with no Python for each sample."""

from __future__ import annotations

import ctypes

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import get_worker_info

from readers.store.record_bytes import Pieces


def bytes_of(memory: NDArray[np.uint8]) -> torch.Tensor:
    """Memory, such as the mapped files of a store, as a uint8 tensor, which keeps it alive.

    It is for reading alone.
    """
    # torch warns of read-only buffers since it cannot guard them; this one is guarded by the
    # system, and is never handed out.
    window = (ctypes.c_ubyte * len(memory)).from_address(memory.ctypes.data)
    window.owner = memory  # type: ignore[attr-defined]
    return torch.frombuffer(window, dtype=torch.uint8)


class Gatherer:
    """Puts pieces of one length where they are wanted."""

    def __init__(self) -> None:
        # Of mapped files there is one memory for all batches.
        self._known: tuple[NDArray[np.uint8], torch.Tensor] | None = None

    def __call__(self, pieces: Pieces, out: torch.Tensor) -> torch.Tensor:
        """Rows of bytes.

        Args:
            pieces: As many as rows, and as long.
            out: (row, byte) uint8, contiguous, to copy into; the `out` that they were asked with.

        Returns:
            `out`.
        """
        if pieces.in_out or not out.nbytes:
            return out
        if pieces.memory.flags.writeable:  # Read for this batch alone.
            return gather(torch.from_numpy(pieces.memory), pieces.starts, out.shape[1], out)
        known = self._known  # Other threads may set it to theirs.
        if known is None or known[0] is not pieces.memory:
            self._known = known = pieces.memory, bytes_of(pieces.memory)
        return gather(known[1], pieces.starts, out.shape[1], out)


def gather(
    data: torch.Tensor, starts: NDArray[np.int64], byte_count: int, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Rows of bytes from anywhere in `data`.

    Args:
        data: All bytes, uint8.
        starts: Where each row begins.
        byte_count: Bytes of each row.
        out: (row, byte) uint8, contiguous, to copy into. None makes one; in a DataLoader's worker
            it is made in shared memory, so that it crosses to the main process without a copy.

    Returns:
        `out`: (row, byte) uint8.
    """
    shape = (len(starts), byte_count)
    if out is None:
        out = empty_batch(shape)
    if byte_count == 0 or not len(starts):
        return out
    if len(data) * byte_count >= 2**63:
        # The view below would have more elements than torch can count: a store of terabytes, with
        # rows of megabytes, which are long enough to be copied one by one.
        for row, start in zip(out, starts.tolist(), strict=True):
            row.copy_(data[start : start + byte_count])
        return out
    # Overlapping rows, one for each byte of the data: an index then is an address.
    rows = torch.as_strided(data, (len(data) - byte_count + 1, byte_count), (1, 1))
    return torch.index_select(rows, 0, torch.from_numpy(starts), out=out)


def empty_batch(shape: tuple[int, ...]) -> torch.Tensor:
    """Uninitialised uint8 memory for a batch: shared memory in a DataLoader's worker process."""
    if get_worker_info() is None:
        return torch.empty(shape, dtype=torch.uint8)
    size = int(np.prod(shape))
    # torch's own collation takes its memory the same way (torch/utils/data/_utils/collate.py).
    storage = torch.UntypedStorage._new_shared(size, device="cpu")  # type: ignore[no-untyped-call]
    return torch.empty(0, dtype=torch.uint8).set_(storage, 0, shape)  # type: ignore[call-overload,no-any-return]
