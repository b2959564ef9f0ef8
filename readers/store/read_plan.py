"""Which reads bring all parts that are wanted: sorted, merged when near, cut when large.

A pure function of where the parts lie. Each read is scattered by the kernel into the memory of its
parts (preadv(2)), so that nothing is copied afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

GAP = -1
"""In place of a part: bytes that nobody wants, between two parts of one read."""

_PIECE_COUNT_MAX = 1024
"""Pieces of one read that Linux takes (IOV_MAX); a gap is one as well."""


class Piece(NamedTuple):
    """Consecutive bytes of one read.

    Attributes:
        part: Whose they are, or `GAP`.
        first: Where they begin in the part.
        byte_count: How many.
    """

    part: int
    first: int
    byte_count: int


@dataclass(kw_only=True, slots=True)
class Read:
    """One read of one file.

    Attributes:
        shard: Number of the file.
        offset: Its first byte.
        pieces: What it brings, in order.
        byte_count: All its bytes.
    """

    shard: int
    offset: int
    pieces: list[Piece] = field(default_factory=list)
    byte_count: int = 0

    def append(self, part: int, first: int, byte_count: int) -> None:
        """Have it go on."""
        self.pieces.append(Piece(part, first, byte_count))
        self.byte_count += byte_count


def plan_reads(
    shards: NDArray[np.int64],
    offsets: NDArray[np.int64],
    lengths: NDArray[np.int64],
    *,
    gap_bytes_max: int,
    read_bytes_max: int,
) -> list[Read]:
    """The reads that bring each byte of each part, in the order of the files.

    Parts of no bytes need none. Of parts that overlap, each is read by itself.

    Args:
        shards: (part,) number of the file of each.
        offsets: (part,) first byte of each.
        lengths: (part,) bytes of each.
        gap_bytes_max: Two parts with no more bytes between them are read together.
        read_bytes_max: Bytes of one read. A part that is larger is cut.
    """
    reads: list[Read] = []
    order = np.lexsort((offsets, shards))
    rows = zip(
        order.tolist(),
        shards[order].tolist(),
        offsets[order].tolist(),
        lengths[order].tolist(),
        strict=True,
    )
    last = Read(shard=-1, offset=0)
    for part, shard, offset, length in rows:
        if not length:
            continue
        gap = offset - last.offset - last.byte_count
        is_near = (
            shard == last.shard
            and 0 <= gap <= gap_bytes_max
            and last.byte_count + gap + length <= read_bytes_max
            and len(last.pieces) + 2 <= _PIECE_COUNT_MAX
        )
        if is_near:
            if gap:
                last.append(GAP, 0, gap)
            last.append(part, 0, length)
            continue
        for first in range(0, length, read_bytes_max):
            last = Read(shard=shard, offset=offset + first)
            last.append(part, first, min(read_bytes_max, length - first))
            reads.append(last)
    return reads
