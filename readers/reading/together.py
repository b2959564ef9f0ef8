"""Samples that go through Python one by one, out of records that are fetched together.

A transform sees a sample at a time. Its bytes need not come so: a batch of 64 would be 64 round
trips to a server, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from readers.reading.request import RECORDS, Request
from readers.reading.show import SampleReader
from readers.store.record_bytes import RecordBytes

_FIXED = "<fixed>"
"""The part of each record that has all fields of fixed size."""


class SamplesTogether:
    """The samples of a batch.

    Args:
        reader: Of single samples.
        indices: Of the samples.
        positions: Of the samples in the store.
        finish: Makes of a sample and its index what the caller gets.

    Attributes:
        request: What they need of their records.
        indices: As given.
    """

    def __init__(
        self,
        reader: SampleReader,
        indices: NDArray[np.int64],
        positions: NDArray[np.int64],
        finish: Callable[[dict[str, Any], int], Any],
    ) -> None:
        self.indices = indices
        self._reader = reader
        self._positions = positions
        self._finish = finish
        fixed_bytes = reader.fixed_bytes
        self._name = RECORDS if fixed_bytes is None else _FIXED
        located = reader.store.located(positions)
        self.request = Request(located, is_whole=fixed_bytes is None)
        if fixed_bytes is not None:
            self.request.add(_FIXED, 0, fixed_bytes)

    def fetch(self, record_bytes: RecordBytes) -> None:
        """Get the bytes of all."""
        self.request.fetch(record_bytes)

    def __iter__(self) -> Iterator[Any]:
        """The samples, made as they are asked for.

        Raises:
            ShardError: A record is missing or damaged.
        """
        self.fetch(self._reader.store.bytes)
        pieces, lengths = self.request.pieces(self._name), self.request.lengths(self._name)
        memory = memoryview(pieces.memory)  # type: ignore[arg-type]
        ends = (pieces.starts + lengths).tolist()
        rows = zip(
            self.indices.tolist(),
            self._positions.tolist(),
            pieces.starts.tolist(),
            ends,
            strict=True,
        )
        for index, position, start, end in rows:
            yield self._finish(self._reader.of(memory[start:end], position), index)
