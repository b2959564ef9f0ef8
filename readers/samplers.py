"""Index arithmetic, no I/O: the order of an epoch, and its cut into batches."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray


def epoch_order(count: int, *, shuffles: bool, seed: int, epoch: int) -> NDArray[np.int64]:
    """The order in which an epoch visits [0, count): a pure function of its arguments.

    Args:
        count: Samples.
        shuffles: Whether they are drawn in random order, each once, or one after the other.
        seed: At least 0.
        epoch: At least 0.
    """
    if not shuffles:
        return np.arange(count, dtype=np.int64)
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, epoch])))
    order: NDArray[np.int64] = generator.permutation(count)
    return order


def batches_of(
    order: NDArray[np.int64], batch_size: int, *, drop_last: bool
) -> Iterator[NDArray[np.int64]]:
    """An order cut into batches; the last may be short, or is dropped."""
    end = len(order) - len(order) % batch_size if drop_last else len(order)
    for start in range(0, end, batch_size):
        yield order[start : start + batch_size]
