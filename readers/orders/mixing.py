"""Several groups of samples in one order, each with a share of its own: stores, or classes.

An epoch has a set number of samples from each group, at random places. A group is gone through in a
random order, and in another one when it is used up, from one epoch to the next: none of its samples
comes again before each has come once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from readers.chance.permutation import permuted, permuted_in_groups
from readers.chance.streams import Purpose

_ROUND_COUNT_MAX = 2**32


def mixed(
    positions: NDArray[np.int64],
    sizes: NDArray[np.int64],
    counts: NDArray[np.int64],
    *,
    seed: int,
    epoch: int,
) -> NDArray[np.int64]:
    """What stands at some positions of a mixture; groups lie one after the other.

    Args:
        positions: In [0, sum of counts).
        sizes: Samples of each group.
        counts: Samples that an epoch has of each group.
        seed: In [0, 2**64).
        epoch: At least 0.
    """
    ends = np.cumsum(counts)
    places = permuted(
        positions, int(ends[-1]), seed=seed, epoch=epoch, purpose=Purpose.MIXTURE_PLACES
    )
    group = np.searchsorted(ends, places, side="right")
    draw = places - (ends - counts)[group] + epoch * counts[group]
    round_number, place = np.divmod(draw, sizes[group])
    within = permuted_in_groups(
        place,
        sizes[group],
        group * _ROUND_COUNT_MAX + round_number,
        seed=seed,
        epoch=0,
        purpose=Purpose.MIXTURE_ROUNDS,
    )
    result: NDArray[np.int64] = (np.cumsum(sizes) - sizes)[group] + within
    return result


def counts_of(shares: Sequence[float] | NDArray[np.float64], total: int) -> NDArray[np.int64]:
    """Whole numbers in proportion to shares, of a sum: the largest remainders are rounded up."""
    exact = np.asarray(shares, np.float64) / np.sum(shares) * total
    counts = np.floor(exact).astype(np.int64)
    missing = total - int(counts.sum())
    rest = counts - exact
    counts[np.argsort(rest, kind="stable")[:missing]] += 1
    result: NDArray[np.int64] = counts
    return result
