"""What a batch needs of its records: asked for at once, or announced before it is asked for."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from readers.store.reader import Located
from readers.store.record_bytes import NO_READS, Announced, Pieces, RecordBytes, Wanted

Extent = NDArray[np.int64] | int
"""Of each sample, or of all."""

RECORDS = "<records>"
"""The whole records, among what is asked for by the names of fields, which have no such letters."""


class Request:
    """What a batch needs of its records.

    Args:
        located: The samples.
        is_whole: Whether the records are needed whole. Then all parts are taken out of them.

    Attributes:
        is_announced: Whether its bytes are on their way, or here by that way.
        waited: Whether a disk or server had to be waited for, as far as that is known.
        reads: What it took by reads.
    """

    def __init__(self, located: Located, *, is_whole: bool) -> None:
        self._located = located
        self._is_whole = is_whole
        # Where each part begins in its record; and what is asked for, and was found.
        self._firsts: dict[str, Extent] = {}
        self._lengths: dict[str, Extent] = {}
        self._wanted: dict[str, Wanted] = {}
        self._found: dict[str, Pieces] = {}
        self._announced: Announced | None = None
        self.is_announced = False
        self.waited = False
        self.reads = NO_READS
        if is_whole:
            self._lengths[RECORDS] = located.lengths()
            self._wanted[RECORDS] = located.within(0, self._lengths[RECORDS])

    def add(self, name: str, first: Extent, lengths: Extent) -> None:
        """A part of each record is needed.

        Args:
            name: By which it is found again.
            first: Where it begins in the record.
            lengths: Its bytes.
        """
        self._lengths[name] = lengths
        if self._is_whole:
            self._firsts[name] = first
        else:
            self._wanted[name] = self._located.within(first, lengths)

    def announce(self, record_bytes: RecordBytes) -> bool:
        """Have all of it read. Whether there was room for it, or nothing to do."""
        wanted = [*self._wanted.values()]
        self._announced = record_bytes.announce(wanted)
        self.is_announced = self._announced is not None
        return self.is_announced or not any(part.byte_count for part in wanted)

    def put(self, name: str, rows: torch.Tensor) -> None:
        """Where a part is to go, if it is not on its way to somewhere else.

        Args:
            name: The part, of one length in all records.
            rows: (sample, byte) uint8.
        """
        if not self._is_whole and not self.is_announced:
            self._wanted[name].out = rows.numpy()

    def fetch(self, record_bytes: RecordBytes) -> None:
        """Get all of it, once."""
        if self._found:
            return
        if self._announced is not None:
            found = self._announced.fetch()
            self._announced = None
        else:
            found = record_bytes.fetch([*self._wanted.values()])
        self._found = dict(zip(self._wanted, found, strict=True))
        self.waited = any(pieces.waited for pieces in found)
        self.reads = found[0].reads if found else NO_READS

    def pieces(self, name: str) -> Pieces:
        """Where a part is."""
        if name in self._found:
            return self._found[name]
        whole = self._found[RECORDS]
        return whole._replace(starts=whole.starts + self._firsts[name])

    def lengths(self, name: str) -> Extent:
        """Bytes of a part."""
        return self._lengths[name]
