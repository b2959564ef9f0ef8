"""Which draw of its epoch a sample is, beside its index, where an order draws samples repeatedly.

Random operations follow the sample: the same one has the same crop in an epoch, whichever worker
or rank has it. A sample that is drawn fifty times to balance its class would be seen fifty times
through the same crop, so there its draw counts as well: the position in the order of all ranks.
It travels in the upper bits of the index, from the order to whoever fills the batch.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

INDEX_BITS = 40
_INDEX_MASK = 2**INDEX_BITS - 1
_DRAWS_END = 2**22
"""Draws that are told from each other; after four million the first one's chances come again."""


def with_draws(indices: NDArray[np.int64], positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Indices that carry their position in the order of an epoch, int64 as well."""
    return indices | (positions % (_DRAWS_END - 1) + 1) << INDEX_BITS


def split_draws(
    values: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
    """The indices, and the draws that they carry, in [1, 2**22); None where they carry none."""
    if not len(values) or values.max() <= _INDEX_MASK:
        return values, None
    return values & _INDEX_MASK, values >> INDEX_BITS
