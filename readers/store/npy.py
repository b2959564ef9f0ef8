"""The arrays of a shard's index as `.npy` bytes.

NumPy's own reader evaluates the header as a Python literal and takes any element type. The index
only ever holds one-dimensional arrays whose type and length are known beforehand, so reading is a
comparison with the one header that may stand there.

Format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html, version 1.0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from readers.store.codecs import little
from readers.store.errors import CodecError

_MAGIC = b"\x93NUMPY\x01\x00"
_HEADER_ALIGNMENT_BYTES = 64


def _header(dtype: np.dtype[Any], count: int) -> bytes:
    text = f"{{'descr': '{dtype.str}', 'fortran_order': False, 'shape': ({count},), }}"
    fill = -(len(_MAGIC) + 2 + len(text) + 1) % _HEADER_ALIGNMENT_BYTES
    body = text.encode("ascii") + b" " * fill + b"\n"
    return _MAGIC + len(body).to_bytes(2, "little") + body


def npy_bytes(array: NDArray[Any]) -> bytes:
    """A one-dimensional array as the bytes of a `.npy` file."""
    assert array.ndim == 1
    array = np.ascontiguousarray(array, little(array.dtype.name))
    return _header(array.dtype, len(array)) + array.tobytes()


def npy_view(data: memoryview, dtype: str, count: int) -> NDArray[Any]:
    """The array in the bytes of a `.npy` file: a view where its place is aligned, else a copy.

    Raises:
        CodecError: The bytes are not those of `count` elements of `dtype`.
    """
    kind = little(dtype)
    header = _header(kind, count)
    if len(data) != len(header) + count * kind.itemsize or data[: len(header)] != header:
        raise CodecError(
            f"{len(data)} bytes that begin {bytes(data[:10])!r}, expected {count} of {dtype}"
        )
    array = np.frombuffer(data, kind, count, len(header))
    # A short array lies in a leaf page, wherever LMDB had room.
    return array if array.flags.aligned else array.copy()
