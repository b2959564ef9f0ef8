"""A random order of any number of samples, without a table: where each position leads, computed.

A Feistel network: the position's bits are two halves, and each round changes one of them by a
random function of the other, which can be undone, so no two positions meet. It permutes a power of
two; a number beyond the count is put through again until it is below (cycle walking), which takes
less than two tries on average.

    position  ->  [ high | low ]    4 times:  high ^= f(low, key), then low ^= f(high, key)

Keys follow from a seed, an epoch and what the order is for. This is part of what a seed means: a
release that changed it would change every training run.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_ROUNDS = 8
_BITS_LEAST = 6
"""Fewer bits do not reach all orders of a handful of samples equally often. With 6 of them and 8
rounds the 720 orders of 6 samples come alike (chi-square over 430,000 of them: p = 0.25; with 5
bits: 3e-27)."""

_CHUNK = 2**14
"""Positions worked on together: their words stay in the cache (15 to 25 ns each; 80 ns in pieces
of 2**20)."""

_WORD = 2**32
_MULTIPLIERS = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93))
_HALF = np.uint64(32)
_WORD_BITS = np.uint64(64)


def derived_words(seed: int, epoch: int, purpose: int, count: int) -> NDArray[np.uint64]:
    """Random 64-bit words that follow from a seed, an epoch and a purpose.

    Args:
        seed: In [0, 2**64).
        epoch: In [0, 2**64).
        purpose: Tells apart what one seed is used for, in [0, 2**32): a `Purpose` of
            `readers.chance.streams`.
        count: How many.
    """
    parts = (seed % _WORD, seed // _WORD, epoch % _WORD, epoch // _WORD, purpose)
    words = np.random.SeedSequence(parts).generate_state(count, np.uint64)
    return words.astype(np.uint64, copy=False)


def permuted(
    positions: NDArray[np.int64], count: int, *, seed: int, epoch: int, purpose: int = 0
) -> NDArray[np.int64]:
    """What stands at some positions of a random order of [0, count).

    Args:
        positions: In [0, count).
        count: How many there are; at most 2**62.
        seed: In [0, 2**64).
        epoch: In [0, 2**64). Each has an order of its own.
        purpose: Tells apart several orders of one seed and epoch.

    Example:
        >>> permuted(np.arange(10), 10, seed=0, epoch=0).tolist()
        [3, 9, 7, 6, 0, 4, 5, 2, 1, 8]
        >>> permuted(np.array([123_456_789]), 10**9, seed=0, epoch=0).tolist()
        [880003986]
    """
    counts = np.full(1, count)
    return permuted_in_groups(
        positions, counts, np.zeros(1, np.int64), seed=seed, epoch=epoch, purpose=purpose
    )


def permuted_in_groups(
    positions: NDArray[np.int64],
    counts: NDArray[np.int64],
    groups: NDArray[np.int64],
    *,
    seed: int,
    epoch: int,
    purpose: int,
) -> NDArray[np.int64]:
    """What stands at some positions, each in the order of a group of its own.

    Args:
        positions: In [0, count of its group).
        counts: Size of the group of each position, or of all of them.
        groups: Number of that group, at least 0: groups of one size have different orders.
        seed: In [0, 2**64).
        epoch: In [0, 2**64).
        purpose: Tells apart several orders of one seed and epoch.
    """
    keys = derived_words(seed, epoch, purpose, _ROUNDS)
    result = np.empty(len(positions), np.int64)
    for start in range(0, len(positions), _CHUNK):
        part = slice(start, start + _CHUNK)
        result[part] = _walked(
            positions[part].astype(np.uint64),
            (counts if len(counts) == 1 else counts[part]).astype(np.uint64),
            _scrambled((groups if len(groups) == 1 else groups[part]).astype(np.uint64)),
            keys,
        )
    return result


def _walked(
    values: NDArray[np.uint64],
    counts: NDArray[np.uint64],
    tweaks: NDArray[np.uint64],
    keys: NDArray[np.uint64],
) -> NDArray[np.uint64]:
    """Values below their counts, put through the network until they are below them again."""
    bits = _bits(counts)
    if len(counts) == 1 and len(tweaks) == 1 and len(values) >= 2 ** (int(bits[0]) // 2 + 1):
        return _walked_by_tables(values, counts, bits, tweaks, keys)
    values = _network(values, bits, tweaks, keys)
    outside = np.flatnonzero(values >= counts)
    while len(outside):
        tried = _network(values[outside], _of(bits, outside), _of(tweaks, outside), keys)
        values[outside] = tried
        outside = outside[tried >= _of(counts, outside)]
    return values


def _walked_by_tables(
    given: NDArray[np.uint64],
    counts: NDArray[np.uint64],
    bits: NDArray[np.uint64],
    tweaks: NDArray[np.uint64],
    keys: NDArray[np.uint64],
) -> NDArray[np.uint64]:
    """The same of one group: a half has so few values that a round can be looked up.

    Of a million numbers a half has a thousand; a look-up takes a third of working it out.
    """
    low_bits = int(bits[0]) // 2
    halves = np.arange(2 ** (int(bits[0]) - low_bits), dtype=np.uint64)
    lows = halves[: 2**low_bits]
    tables = [
        (
            _mixed(lows, tweaks + first, bits - (bits >> np.uint64(1))).astype(np.intp),
            _mixed(halves, tweaks + second, bits >> np.uint64(1)).astype(np.intp),
        )
        for first, second in keys.reshape(-1, 2)
    ]
    count = int(counts[0])
    values = _looked_up(given.astype(np.intp), low_bits, tables)
    outside = np.flatnonzero(values >= count)
    while len(outside):
        tried = _looked_up(values[outside], low_bits, tables)
        values[outside] = tried
        outside = outside[tried >= count]
    return values.view(np.uint64)


def _looked_up(
    values: NDArray[np.intp], low_bits: int, tables: list[tuple[NDArray[np.intp], NDArray[np.intp]]]
) -> NDArray[np.intp]:
    """All rounds, by tables."""
    low, high = values & (2**low_bits - 1), values >> low_bits
    found = np.empty_like(low)
    for of_low, of_high in tables:
        # No half is outside of its table; to be told so, numpy needs no copy of what it finds.
        high ^= np.take(of_low, low, out=found, mode="clip")
        low ^= np.take(of_high, high, out=found, mode="clip")
    high <<= low_bits
    high |= low
    return high


def _of(values: NDArray[np.uint64], places: NDArray[np.intp]) -> NDArray[np.uint64]:
    """The values at some places, or the one that holds for all."""
    return values if len(values) == 1 else values[places]


def _bits(counts: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Bits of a number below each count."""
    exponents = np.frexp((counts - np.uint64(1)).astype(np.float64))[1]
    # A float of a count past 2**53 may be rounded up to the next power of two: a bit too many is
    # as right, and a bit too few cannot happen.
    return np.maximum(exponents, _BITS_LEAST).astype(np.uint64)


def _network(
    values: NDArray[np.uint64],
    bits: NDArray[np.uint64],
    tweaks: NDArray[np.uint64],
    keys: NDArray[np.uint64],
) -> NDArray[np.uint64]:
    """All rounds, on numbers below 2**bits."""
    low_bits = bits >> np.uint64(1)
    high_bits = bits - low_bits
    low = values & ((np.uint64(1) << low_bits) - np.uint64(1))
    high = values >> low_bits
    for first, second in keys.reshape(-1, 2):
        high = high ^ _mixed(low, tweaks + first, high_bits)
        low = low ^ _mixed(high, tweaks + second, low_bits)
    result: NDArray[np.uint64] = (high << low_bits) | low
    return result


def _mixed(
    half: NDArray[np.uint64], key: NDArray[np.uint64], bits: NDArray[np.uint64]
) -> NDArray[np.uint64]:
    """A random function of one half: so many bits."""
    mixed = half + key
    mixed *= _MULTIPLIERS[0]
    mixed ^= mixed >> _HALF
    mixed *= _MULTIPLIERS[1]
    mixed >>= _WORD_BITS - bits
    return mixed


def _scrambled(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Numbers with all bits mixed, so that neighbours have nothing in common; 0 stays 0."""
    for multiplier in _MULTIPLIERS:
        numbers = numbers * multiplier
        numbers = numbers ^ (numbers >> _HALF)
    return numbers
