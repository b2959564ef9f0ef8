"""A file that is read, by a few large pieces of it while its index is walked.

LMDB puts the index of a shard where there is room: at the end of the file, and into pages that
became free on the way, anywhere in it. A page or an array at a time it would take a dozen reads,
one after the other, which are as many round trips to a server. Where the manifest says in which
parts of the file the index lies, those are read at once. Of an older store that are the first pages
and the end of the file, and what is then missing is read as it comes up. A small file comes whole.
"""

from __future__ import annotations

from collections.abc import Sequence

from readers.store.read_threads import for_each, read_threads
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
        file: The file, of which several threads may ask at once.
        parts: First byte and bytes of each part of it that the index takes; none if that is not
            known.
        index_bytes: Of the arrays in its index.
    """

    def __init__(
        self, file: FileBytes, parts: Sequence[tuple[int, int]] = (), index_bytes: int = 0
    ) -> None:
        self._file = file
        wanted = index_bytes + _PAGES_BYTES
        self._window_bytes = max(_WINDOW_BYTES_LEAST, min(_WINDOW_BYTES_MAX, wanted))
        self._size = len(file)
        # Pieces with where they begin; None when each slice is to be read by itself.
        self._pieces: list[tuple[int, memoryview]] | None = []
        self._read(self._pieces, self._first_parts(parts))

    def _first_parts(self, parts: Sequence[tuple[int, int]]) -> Sequence[tuple[int, int]]:
        """First byte and bytes of what is read to begin with."""
        if parts and sum(count for _, count in parts) <= _WINDOW_BYTES_MAX:
            return parts
        tail = max(0, self._size - self._window_bytes)
        if tail <= _HEAD_BYTES:
            return [(0, self._size)]
        return [(0, _HEAD_BYTES), (tail, self._size - tail)]

    def _read(self, pieces: list[tuple[int, memoryview]], parts: Sequence[tuple[int, int]]) -> None:
        """Read parts of the file, all at once."""

        def read(number: int) -> None:
            start, count = parts[number]
            pieces.append((start, self._file[start : start + count]))

        for_each(read_threads(), read, range(len(parts)))

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice, /) -> memoryview:
        start, stop, _ = part.indices(self._size)
        if self._pieces is None or stop - start > self._window_bytes or stop <= start:
            return self._file[start:stop]
        for first, piece in self._pieces:
            if first <= start and stop <= first + len(piece):
                return piece[start - first : stop - first]
        piece = self._file[start : start + self._window_bytes]
        self._pieces.append((start, piece))
        return piece[: stop - start]

    def close(self) -> None:
        """The index is known: from now on what is asked for is read, and nothing around it."""
        self._pieces = None
