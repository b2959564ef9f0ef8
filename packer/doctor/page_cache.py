"""How much of some files is in memory already, by mincore(2); and having parts forgotten."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

_WINDOW_BYTES = 256 * 2**20
_WINDOW_COUNT_MAX = 128

_FOLIO_BYTES_MAX = 2 * 2**20
"""The page cache holds pages in aligned folios, and forgets a folio only as a whole."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]


@dataclass(frozen=True)
class Residency:
    """How much of some files is in the page cache.

    Attributes:
        seen_bytes: How much was asked about.
        resident_bytes: How much of that is there.
        total_bytes: Size of all the files.
    """

    seen_bytes: int
    resident_bytes: int
    total_bytes: int


def can_map(path: Path) -> bool:
    """Whether a file that is not empty can be mapped where it lies."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        mmap.mmap(descriptor, 1, prot=mmap.PROT_READ).close()
    except OSError as error:
        if error.errno != errno.ENODEV:
            raise
        return False
    finally:
        os.close(descriptor)
    return True


def may_ask(descriptor: int) -> bool:
    """Whether mincore(2) answers for a file. For files of others it says "all of it" since 5.2."""
    owner = os.fstat(descriptor).st_uid
    return os.geteuid() in (0, owner) or os.access(f"/proc/self/fd/{descriptor}", os.W_OK)


def resident_bytes(descriptor: int, start: int, byte_count: int) -> int | None:
    """Bytes of a part of a file that are in the page cache, counted by pages.

    None where files cannot be mapped, as on some network file systems.

    Args:
        descriptor: The open file. It may be closed afterwards.
        start: First byte, at a multiple of the page size.
        byte_count: Length, at least 1; to a page that the file has.
    """
    try:
        mapped = mmap.mmap(descriptor, byte_count, prot=mmap.PROT_READ, offset=start)
    except OSError as error:
        if error.errno != errno.ENODEV:
            raise
        return None
    with mapped:
        pages = np.zeros(-(-byte_count // mmap.PAGESIZE), np.uint8)
        view = np.frombuffer(mapped, np.uint8)
        failed = _libc.mincore(view.ctypes.data, byte_count, pages.ctypes.data)
        code = ctypes.get_errno()
        del view  # The map cannot be closed while somebody looks at it.
    if failed:
        raise OSError(code, os.strerror(code))
    return min(byte_count, int((pages & 1).sum()) * mmap.PAGESIZE)


def residency(paths: Sequence[Path], *, timeout_s: float) -> Residency | None:
    """How much of some files is in the page cache; None when the kernel does not tell us.

    Of much data, evenly spread windows are asked about, as many as the time allows.

    Raises:
        OSError: A file cannot be opened or mapped.
    """
    sizes = [path.stat().st_size for path in paths]
    windows = [
        (number, start)
        for number, size in enumerate(sizes)
        for start in range(0, size, _WINDOW_BYTES)
    ]
    step = -(-len(windows) // _WINDOW_COUNT_MAX)
    chosen = windows[:: max(1, step)]
    # From end to end with growing density, so that what time cuts off is spread as well.
    order = sorted(range(len(chosen)), key=lambda at: int(f"{at:08b}"[::-1], 2))
    until = time.monotonic() + timeout_s
    seen = resident = 0
    for at in order:
        number, start = chosen[at]
        descriptor = os.open(paths[number], os.O_RDONLY | os.O_CLOEXEC)
        try:
            if not may_ask(descriptor):
                return None
            length = min(_WINDOW_BYTES, sizes[number] - start)
            found = resident_bytes(descriptor, start, length)
            if found is None:
                return None
            resident += found
            seen += length
        finally:
            os.close(descriptor)
        if time.monotonic() > until:
            break
    return Residency(seen, resident, sum(sizes))


def forget(descriptor: int, start: int, byte_count: int) -> None:
    """Have a part of a file leave the page cache, and what lies around it in the same 2 MiB.

    Pages that are mapped or not yet written stay.
    """
    first = start - start % _FOLIO_BYTES_MAX
    end = -(-(start + byte_count) // _FOLIO_BYTES_MAX) * _FOLIO_BYTES_MAX
    os.posix_fadvise(descriptor, first, end - first, os.POSIX_FADV_DONTNEED)
