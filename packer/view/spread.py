"""Some of many: which samples a page draws, and which shards its figures are from."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_SEED = 0


def spread(count: int, most: int) -> NDArray[np.int64]:
    """At most so many positions in [0, count), in rising order, one from each of equal parts.

    Where in its part a position lies is drawn, always the same: every nth of a video or of folders
    of equal size would show the same of each.
    """
    if count <= most:
        return np.arange(count, dtype=np.int64)
    bounds = np.array([at * count // most for at in range(most + 1)], np.int64)
    shares = np.random.default_rng(_SEED).random(most)
    found: NDArray[np.int64] = bounds[:-1] + (shares * np.diff(bounds)).astype(np.int64)
    return found
