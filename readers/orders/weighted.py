"""Draws by weight: which sample comes at a position, when some are to come more often."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from readers.chance.permutation import derived_words
from readers.chance.random_state import uniforms
from readers.chance.streams import Purpose


def checked_weights(weights: ArrayLike) -> NDArray[np.float64]:
    """Weights of samples, as float64.

    Raises:
        ValueError: They are not one row of finite numbers, at least 0, and not all of them 0.
    """
    array = np.asarray(weights, np.float64)
    if array.ndim != 1 or not len(array):
        raise ValueError(f"weights must be one number for each sample; got shape {array.shape}")
    wrong = ~(np.isfinite(array) & (array >= 0))
    if wrong.any():
        at = int(wrong.argmax())
        raise ValueError(f"weights must be finite and at least 0; sample {at} has {array[at]}")
    if not array.any():
        raise ValueError("weights are all 0, so there is nothing to draw")
    return array


def drawn(
    cumulative: NDArray[np.float64], positions: NDArray[np.int64], *, seed: int, epoch: int
) -> NDArray[np.int64]:
    """Samples drawn independently of each other, each in proportion to its weight.

    Args:
        cumulative: Sums of the weights up to and with each sample.
        positions: Of the draws, at least 0.
        seed: In [0, 2**64).
        epoch: In [0, 2**32).
    """
    # A seed of its own: operations on the sample at `position` use the numbers of `seed` itself.
    own_seed = int(derived_words(seed, 0, Purpose.WEIGHTED_DRAWS, 1)[0])
    places = uniforms(own_seed, epoch, positions, 1)[:, 0] * cumulative[-1]
    found = np.searchsorted(cumulative, places, side="right")
    # A product may be rounded up to the sum itself.
    last = np.searchsorted(cumulative, cumulative[-1], side="left")
    result: NDArray[np.int64] = np.minimum(found, last).astype(np.int64)
    return result


def drawn_once(
    weights: NDArray[np.float64], count: int, *, seed: int, epoch: int
) -> NDArray[np.int64]:
    """Samples as they are drawn: each in proportion to its weight among those that are left.

    P. S. Efraimidis and P. G. Spirakis, "Weighted random sampling with a reservoir" (2006): who
    waits an exponential time of a rate that is its weight comes in this order. It takes a pass over
    all weights.

    Args:
        weights: One for each sample.
        count: Draws; at most as many as there are weights above 0.
        seed: In [0, 2**64).
        epoch: In [0, 2**32).
    """
    own_seed = int(derived_words(seed, 0, Purpose.WEIGHTED_KEYS, 1)[0])
    candidates = np.flatnonzero(weights)
    times = -np.log1p(-uniforms(own_seed, epoch, candidates, 1)[:, 0]) / weights[candidates]
    if count < len(candidates):
        nearest = np.sort(np.argpartition(times, count - 1)[:count])
        candidates, times = candidates[nearest], times[nearest]
    return candidates[np.argsort(times, kind="stable")].astype(np.int64)
