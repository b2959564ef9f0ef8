"""Found files as columns: a hundred million of them fit one machine where objects would not."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate, islice

import numpy as np
from numpy.typing import NDArray

_AT_ONCE = 4096
"""Rows that an iteration takes out of the columns at a time."""


class FileTable:
    """Names, sizes and times of files, by row, in the order in which they were added.

    24 bytes a row beside the name's own. An object of each file, with its path, would take 400.
    Whoever adds the files of a folder knows the folder: only names are kept.
    """

    def __init__(self) -> None:
        self._names = bytearray()
        self._ends = array("q")
        self._byte_counts = array("q")
        self._times = array("q")
        self._odd_times: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._ends)

    def add(self, names: Sequence[bytes], byte_counts: Sequence[int], times: Sequence[int]) -> None:
        """Add files as the next rows.

        Args:
            names: Their names.
            byte_counts: Bytes of each.
            times: When each was last changed, in nanoseconds.
        """
        begin, row = len(self._names), len(self._ends)
        self._names += b"".join(names)
        self._ends.extend(islice(accumulate(map(len, names), initial=begin), 1, None))
        self._byte_counts.extend(byte_counts)
        try:
            self._times.extend(array("q", times))
        except OverflowError:  # After the year 2262, as a file system may have it.
            odd = {at: time for at, time in enumerate(times, row) if abs(time) >= 2**63}
            self._odd_times.update(odd)
            self._times.extend(0 if at in odd else time for at, time in enumerate(times, row))

    def name(self, row: int) -> bytes:
        """Name of a file."""
        start = self._ends[row - 1] if row else 0
        return bytes(self._names[start : self._ends[row]])

    def file(self, row: int) -> tuple[bytes, int, int]:
        """(name, bytes, nanoseconds) of a file."""
        time = self._times[row]
        if row in self._odd_times:
            time = self._odd_times[row]
        return self.name(row), self._byte_counts[row], time

    def files(self, first: int, end: int) -> Iterator[tuple[bytes, int, int]]:
        """(name, bytes, nanoseconds) of the files of rows in [first, end)."""
        for at in range(first, end, _AT_ONCE):
            rows = slice(at, min(at + _AT_ONCE, end))
            start = self._ends[at - 1] if at else 0
            ends = self._ends[rows].tolist()
            names = bytes(self._names[start : ends[-1]])
            times = self._times[rows].tolist()
            if self._odd_times:
                times = [self._odd_times.get(row, t) for row, t in enumerate(times, at)]
            begin = 0
            byte_counts = self._byte_counts[rows].tolist()
            for name_end, byte_count, time in zip(ends, byte_counts, times, strict=True):
                name_end -= start
                yield names[begin:name_end], byte_count, time
                begin = name_end

    def byte_counts(self) -> NDArray[np.int64]:
        """Bytes of the file of each row, int64. No row can be added as long as it is in use."""
        return np.frombuffer(self._byte_counts, np.int64)
