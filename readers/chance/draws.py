"""Which draw of its epoch a sample is, beside its index, where an order draws samples repeatedly.

Random operations follow the sample: the same one has the same crop in an epoch, whichever worker
or rank has it. A sample that is drawn fifty times to balance its class would be seen fifty times
through the same crop, so there its draw counts as well: the position in the order of all ranks.
It travels in the upper bits of the index, from the order to whoever fills the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
    # For a batch, values.max() takes twice as long: it goes through Python.
    if not len(values) or np.maximum.reduce(values) <= _INDEX_MASK:
        return values, None
    return values & _INDEX_MASK, values >> INDEX_BITS


class SampleIndex(int):
    """An index that says of which draw it is: what a loader's samplers hand to other loaders.

    To them it is an index like any other. They may cut batches, join them, send them to worker
    processes: whoever fills the batch in the end knows what the loader itself would know.

    Args:
        index: The sample's index.
        epoch: The draw's epoch.
        number: Of its batch in the epoch, over all ranks.
        turn: Its place in the batch.
        draw: As in `split_draws`; 0 where the index alone counts.
        is_valid: Whether it counts, or only fills the batch up.
        is_sent: Whether the batch is sent to other processes byte by byte, as accelerate's
            dispatcher does: then its tensors must lie in memory in the order of their axes.
    """

    epoch: int
    number: int
    turn: int
    draw: int
    is_valid: bool
    is_sent: bool

    def __new__(
        cls,
        index: int,
        epoch: int,
        number: int,
        turn: int,
        draw: int = 0,
        is_valid: bool = True,
        is_sent: bool = False,
    ) -> SampleIndex:
        """An int cannot be changed once it is there, so its other facts are added here."""
        self = super().__new__(cls, index)
        self.epoch, self.number, self.turn = epoch, number, turn
        self.draw, self.is_valid, self.is_sent = draw, is_valid, is_sent
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        facts = (self.epoch, self.number, self.turn, self.draw, self.is_valid, self.is_sent)
        return SampleIndex, (int(self), *facts)

    def __copy__(self) -> SampleIndex:
        return self

    def __deepcopy__(self, memo: Any) -> SampleIndex:
        return self


def said(
    indices: NDArray[np.int64],
    epoch: int,
    number: int,
    valid: Sequence[bool] | None = None,
    *,
    is_sent: bool = False,
) -> list[SampleIndex]:
    """The indices of a batch, each saying of which draw it is.

    Args:
        indices: They may carry draws.
        epoch: Its number.
        number: Of the batch in the epoch, over all ranks.
        valid: For each, whether it counts. None: all of them.
        is_sent: Whether the batch is sent to other processes.
    """
    indices, draws = split_draws(indices)
    count = len(indices)
    of_draw = [0] * count if draws is None else draws.tolist()
    counts = [True] * count if valid is None else valid
    rows = zip(indices.tolist(), range(count), of_draw, counts, strict=True)
    return [SampleIndex(at, epoch, number, turn, draw, ok, is_sent) for at, turn, draw, ok in rows]


def unsaid(indices: Sequence[Any]) -> NDArray[np.int64]:
    """Indices as `with_draws` makes them, of some that say their draw, or of plain ones."""
    array = np.asarray(indices, np.int64)
    draws = [index.draw for index in indices if type(index) is SampleIndex]
    if any(draws) and len(draws) == len(array):
        array = array | np.array(draws, np.int64) << INDEX_BITS
    return array


def is_sent(indices: Sequence[Any]) -> bool:
    """Whether the batch of these indices is sent to other processes byte by byte."""
    return len(indices) > 0 and type(indices[0]) is SampleIndex and indices[0].is_sent
