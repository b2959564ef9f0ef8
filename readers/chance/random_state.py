"""Random numbers that depend on which sample they are for, and on nothing else.

The generator is Philox4x32-10: J. K. Salmon, M. A. Moraes, R. O. Dror and D. E. Shaw, "Parallel
random numbers: as easy as 1, 2, 3", SC11 (2011). It has no state to carry along: it is a block
cipher on a 128-bit counter, so the numbers of any sample are found at once, in any order, in any
process. It passes BigCrush, and as each key permutes the counters, no two counters of one seed
meet in the same block.

    key      seed, low word first                             2 x 32 bits
    counter  position // 2 | index, low word first | epoch    4 x 32 bits
    block    4 words: 0 and 1 make the number at the even position, 2 and 3 the odd one's

A number is the upper 53 of its 64 bits (the first word is the upper one), times 2**-53. This is
part of what a seed means: a release that changed it would change every training run.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

_ROUNDS = 10
_MULTIPLIERS = np.array([[0xD2511F53], [0xCD9E8D57]], np.uint64)
_KEY_STEPS = np.array([[0x9E3779B9], [0xBB67AE85]], np.uint64)
_LOW_WORD = np.uint64(0xFFFFFFFF)
_WORD_BITS = np.uint64(32)
_UNUSED_BITS = np.uint64(11)
_POSITION_MAX = 2**33


def uniforms(
    seed: int, epoch: int, indices: ArrayLike, count: int, *, first: int = 0
) -> NDArray[np.float64]:
    """Numbers in [0, 1) for each sample, by position.

    The number at a position depends on seed, epoch, index and position alone: not on which other
    samples are asked for, nor on `first` and `count`. An index that is asked for twice gets the
    same numbers twice.

    Args:
        seed: In [0, 2**64).
        epoch: In [0, 2**32).
        indices: Of the samples, whole numbers in [0, 2**63).
        count: Numbers for each sample.
        first: Position of the first of them.

    Returns:
        (sample, count) float64, the positions [first, first + count).

    Raises:
        ValueError: An argument is out of its range.
    """
    for name, value, limit in (("seed", seed, 2**64), ("epoch", epoch, 2**32)):
        if not 0 <= value < limit:
            raise ValueError(f"{name} must be in [0, {limit}); got {value!r}")
    if first < 0 or count < 0 or first + count > _POSITION_MAX:
        raise ValueError(
            f"first and first + count must be in [0, {_POSITION_MAX}]; "
            f"got first={first!r}, count={count!r}"
        )
    samples = np.asarray(indices)
    if samples.ndim != 1 or (samples.size and samples.dtype.kind not in "iu"):
        raise ValueError(
            f"indices must be whole numbers in one row; got {samples.dtype} {samples.shape}"
        )
    if samples.size and not 0 <= samples.min() <= samples.max() < 2**63:
        raise ValueError(f"indices must be in [0, {2**63}); got {samples.min()} to {samples.max()}")
    samples = samples.astype(np.uint64)
    first_block = first // 2
    blocks = np.arange(first_block, (first + count + 1) // 2, dtype=np.uint64)
    even = np.empty((2, len(samples), len(blocks)), np.uint64)
    odd = np.empty_like(even)
    even[0] = blocks
    even[1] = (samples >> _WORD_BITS)[:, None]
    odd[0] = (samples & _LOW_WORD)[:, None]
    odd[1] = epoch
    key = np.array([[seed & 0xFFFFFFFF], [seed >> 32]], np.uint64)
    # Axes are small here, and each numpy call has its price: words 0 and 2 go together through
    # the rounds, and so do words 1 and 3.
    even, odd = philox(even.reshape(2, -1), odd.reshape(2, -1), key)
    even <<= _WORD_BITS
    even |= odd
    even >>= _UNUSED_BITS
    numbers: NDArray[np.float64] = even.astype(np.float64)
    numbers *= 2.0**-53
    by_word = numbers.reshape(2, len(samples), len(blocks))
    rows = by_word.transpose(1, 2, 0).reshape(len(samples), 2 * len(blocks))
    skipped = first - 2 * first_block
    return rows[:, skipped : skipped + count]


def philox(
    even: NDArray[np.uint64], odd: NDArray[np.uint64], key: NDArray[np.uint64]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Philox4x32-10 of many counters. All words are 32 bits, kept in 64.

    Args:
        even: (2, counter): words 0 and 2 of each counter.
        odd: (2, counter): words 1 and 3.
        key: (2, 1).

    Returns:
        Words 0 and 2, and words 1 and 3, of each block.
    """
    for _ in range(_ROUNDS):
        # The product of word 2 makes the new words 0 and 1, that of word 0 the new 2 and 3.
        products = (even * _MULTIPLIERS)[::-1]
        even = products >> _WORD_BITS
        even ^= odd
        even ^= key
        odd = products & _LOW_WORD
        key = (key + _KEY_STEPS) & _LOW_WORD
    return even, odd
