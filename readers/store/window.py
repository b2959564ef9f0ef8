"""A file that is read, by a few large pieces of it while its index is walked.

LMDB's index of a shard lies at the end of the file: a page or an array at a time it would take a
dozen reads, one after the other, which are as many round trips to a server. So there are two: one
of the first pages, and one of all that the index can take.
"""

from __future__ import annotations

from readers.store.record_bytes import FileBytes

_HEAD_BYTES = 8192
"""Two pages, which say where everything is."""

_PAGES_BYTES = 128 * 2**10
"""For what lies around the arrays of an index: pages, headers and short arrays."""

_WINDOW_BYTES_LEAST, _WINDOW_BYTES_MAX = 256 * 2**10, 64 * 2**20
"""Of the other pieces. What is larger than a piece is read by itself."""


class Window:
    """The bytes of a file that cannot be looked at in memory.

    Args:
        file: The file.
        index_bytes: Of the arrays in its index, as the manifest says.
    """

    def __init__(self, file: FileBytes, index_bytes: int = 0) -> None:
        self._file = file
        wanted = index_bytes + _PAGES_BYTES
        self._window_bytes = max(_WINDOW_BYTES_LEAST, min(_WINDOW_BYTES_MAX, wanted))
        self._size = len(file)
        # Pieces with where they begin; None when each slice is to be read by itself.
        self._pieces: list[tuple[int, memoryview]] | None = []

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice, /) -> memoryview:
        start, stop, _ = part.indices(self._size)
        if self._pieces is None or stop - start > self._window_bytes or stop <= start:
            return self._file[start:stop]
        for first, piece in self._pieces:
            if first <= start and stop <= first + len(piece):
                return piece[start - first : stop - first]
        # What comes next is as likely to lie before it: the last piece reaches to the end.
        first = min(start, max(0, self._size - self._window_bytes))
        end = _HEAD_BYTES if stop <= _HEAD_BYTES else first + self._window_bytes
        if stop <= _HEAD_BYTES:
            first = 0
        piece = self._file[first:end]
        self._pieces.append((first, piece))
        return piece[start - first : stop - first]

    def close(self) -> None:
        """The index is known: from now on what is asked for is read, and nothing around it."""
        self._pieces = None
