"""Samples -> shards, by their sizes: for builds, and for stores that are made of stores."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SHARD_COUNT_AIM = 64
"""A store that would have fewer shards is cut finer, so that many build workers have work."""

SHARD_BYTES_LEAST = 4 * 2**20
"""... but no finer than this: a shard costs an open, and up to one page of waste in each tree."""


def shard_bytes_limit(total: int, most: int, least: int = SHARD_BYTES_LEAST) -> int:
    """The size that a shard is not to grow past.

    Args:
        total: Bytes of all samples.
        most: As the recipe says, which holds in any case.
        least: A shard is cut no finer than this for the sake of work for many.
    """
    return min(max(least, total // SHARD_COUNT_AIM), most)


def cut_items(sizes: NDArray[np.int64], bytes_max: int) -> tuple[tuple[int, int], ...]:
    """(first, end) of runs of items whose sizes add up to at most `bytes_max`, or of one item."""
    ends = np.cumsum(sizes)
    cuts: list[tuple[int, int]] = []
    first = 0
    while first < len(sizes):
        before = int(ends[first - 1]) if first else 0
        end = max(first + 1, int(np.searchsorted(ends, before + bytes_max, side="right")))
        cuts.append((first, end))
        first = end
    return tuple(cuts)
