"""What each random number of a seed is for: one table, so that no two uses ever share numbers.

Two kinds of numbers come from a seed. Orders take words and permutations by a `Purpose`. What is
done to a sample takes numbers by position (`readers.chance.random_state.uniforms`), in spans that
have names here. Purposes and positions are part of what a seed means: one that was given out once
is never given to another use, and a new use takes new ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, unique

import numpy as np
from numpy.typing import ArrayLike, NDArray

from readers.chance.random_state import uniforms


@unique
class Purpose(IntEnum):
    """What words and permutations of a seed are for; see `derived_words`."""

    SHUFFLE = 0
    """The order of an epoch: each sample once."""
    BLOCK_ROTATION = 16
    """Where in the store the first block begins."""
    BLOCKS = 17
    """The order of blocks."""
    BLOCK_WINDOWS = 18
    """The order within a window of some blocks."""
    WEIGHTED_DRAWS = 32
    """Draws by weight, with replacement."""
    WEIGHTED_KEYS = 33
    """Draws by weight, without replacement."""
    MIXTURE_PLACES = 48
    """Which part of a mixture comes at a position."""
    MIXTURE_ROUNDS = 49
    """The order of the samples of each part, round after round."""
    BUCKET_MEMBERS = 64
    """The order within a bucket."""
    BUCKET_BATCHES = 65
    """The order of batches."""


@dataclass(frozen=True)
class Span:
    """Positions [first, first + count) of the numbers of a sample."""

    first: int
    count: int


CROP_TRY_COUNT = 10

CROP_PLACE = Span(0, 2)
FLIP = Span(2, 1)
VERTICAL_FLIP = Span(3, 1)
CROP_TRIES = Span(4, 2 * CROP_TRY_COUNT)
QUARTER_TURNS = Span(24, 1)
AFFINE = Span(26, 6)
COLORS = Span(32, 4)

SPANS: dict[str, Span] = {
    "RandomResizedCrop: top and left": CROP_PLACE,
    "RandomFlip: whether": FLIP,
    "RandomVerticalFlip: whether": VERTICAL_FLIP,
    "RandomResizedCrop: area, and width over height, of ten tries": CROP_TRIES,
    "RandomRotation90: whether, and by how many quarters": QUARTER_TURNS,
    "RandomAffine: degrees, right, down, scale, shear of x, shear of y": AFFINE,
    "ColorJitter: brightness, contrast, saturation, their order": COLORS,
}
"""All spans. Each op reads its own, so that what is drawn for one depends on no other."""


class Numbers:
    """Numbers in [0, 1) for the samples of a batch, by span.

    Args:
        spans: Which are needed.
        seed: In [0, 2**64).
        epoch: In [0, 2**32).
        indices: Of the samples, (sample,) whole numbers in [0, 2**63).

    Raises:
        ValueError: An argument is out of its range.
    """

    def __init__(self, spans: Sequence[Span], seed: int, epoch: int, indices: ArrayLike) -> None:
        # In one call from the first to the last: each call has its price, and numbers between
        # that nobody needs are cheaper.
        self._first = min((span.first for span in spans), default=0)
        end = max((span.first + span.count for span in spans), default=0)
        self._values = uniforms(seed, epoch, indices, end - self._first, first=self._first)

    def __getitem__(self, span: Span) -> NDArray[np.float64]:
        """(sample, span.count)."""
        start = span.first - self._first
        return self._values[:, start : start + span.count]
