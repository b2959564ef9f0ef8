"""Which samples of a store a dataset shows, as runs of neighbours: small for a split."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_TABLE_COUNT = 2**20
"""Up to so many positions are also kept one by one, 8 MiB: a look-up in place of a search among the
runs, which takes longer than to copy a batch of small samples. Beyond, where the runs are so short
that they take more memory."""


class Selection:
    """An order of positions in a store, kept as runs [start, stop).

    A split of a store in path order is one run, so a hundred million samples take some bytes.

    Args:
        starts: First position of each run.
        stops: End of each run, int64.

    Attributes:
        only_start: Where the samples begin when they are one run; None when they are several.
    """

    def __init__(self, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> None:
        self._starts = starts
        # Samples before each run, and the count of all.
        self._before = np.concatenate([[0], np.cumsum(stops - starts)]).astype(np.int64)
        self._count = int(self._before[-1])
        # The only run of a whole store or of a split in path order needs no search.
        self.only_start = int(starts[0]) if len(starts) == 1 else None
        self._table: NDArray[np.int64] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """The runs alone: positions are worked out again from them."""
        return {**self.__dict__, "_table": None}

    @classmethod
    def of_all(cls, count: int) -> Selection:
        """All of `count` samples."""
        return cls(np.array([0]), np.array([count]))

    @classmethod
    def of(cls, positions: NDArray[np.int64]) -> Selection:
        """The given positions, in their order."""
        if not len(positions):
            return cls(np.zeros(0, np.int64), np.zeros(0, np.int64))
        breaks = np.flatnonzero(np.diff(positions) != 1) + 1
        starts = positions[np.concatenate([[0], breaks])]
        stops = positions[np.concatenate([breaks - 1, [len(positions) - 1]])] + 1
        return cls(starts.astype(np.int64), stops.astype(np.int64))

    def __len__(self) -> int:
        return self._count

    def position(self, index: int) -> int:
        """Position in the store of the sample at `index` in [0, len)."""
        if self.only_start is not None:
            return self.only_start + index
        run = int(self._before.searchsorted(index, side="right")) - 1
        return int(self._starts[run] + index - self._before[run])

    def positions(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Positions in the store of many samples, indices in [0, len)."""
        start = self.only_start
        if start is not None:
            return indices + start if start else indices
        if self._table is None and self._count <= max(_TABLE_COUNT, 2 * len(self._starts)):
            self._table = self.all_positions()
        if self._table is not None:
            found: NDArray[np.int64] = self._table.take(indices)
            return found
        runs = np.searchsorted(self._before, indices, side="right") - 1
        return self._starts[runs] + indices - self._before[runs]

    def all_positions(self) -> NDArray[np.int64]:
        """Positions of all samples, in order."""
        if self.only_start is not None:
            return np.arange(self.only_start, self.only_start + self._count, dtype=np.int64)
        counts = np.diff(self._before)
        # What is to be added to an index is the same for all of a run.
        return np.arange(self._count) + np.repeat(self._starts - self._before[:-1], counts)

    def index_of(self, position: int) -> int | None:
        """Where the sample at `position` in the store stands here, or None."""
        runs = np.flatnonzero(
            (self._starts <= position) & (position < self._starts + np.diff(self._before))
        )
        if not len(runs):
            return None
        return int(self._before[runs[0]] + position - self._starts[runs[0]])
