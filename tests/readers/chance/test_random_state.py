"""Random numbers depend on the sample alone, never change, and are as good as random."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from readers.chance.random_state import philox, uniforms

seeds = st.integers(0, 2**64 - 1)
epochs = st.integers(0, 2**32 - 1)
indices = st.integers(0, 2**63 - 1)
positions = st.integers(0, 2**33 - 1)


def philox_by_hand(counter: list[int], key: list[int]) -> list[int]:
    """One block of Philox4x32-10, as the paper writes it."""
    (c0, c1, c2, c3), (k0, k1) = counter, key
    for _ in range(10):
        first, second = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (
            second >> 32 ^ c1 ^ k0,
            second & 0xFFFFFFFF,
            first >> 32 ^ c3 ^ k1,
            first & 0xFFFFFFFF,
        )
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return [c0, c1, c2, c3]


def uniform_by_hand(seed: int, epoch: int, index: int, position: int) -> float:
    block, half = divmod(position, 2)
    words = philox_by_hand([block, index % 2**32, index >> 32, epoch], [seed % 2**32, seed >> 32])
    high, low = words[2 * half : 2 * half + 2]
    return (high * 2**32 + low >> 11) / 2**53


@pytest.mark.parametrize(
    ("counter", "key", "block"),
    [
        ("00000000 00000000 00000000 00000000", "00000000 00000000",
         "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff",
         "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0",
         "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)  # fmt: skip
def test_the_cipher_is_philox(counter, key, block):
    """Blocks are those that the authors of Philox publish (Random123, tests/kat_vectors)."""
    c, k, expected = ([int(word, 16) for word in text.split()] for text in (counter, key, block))
    even, odd = philox(
        np.array([[c[0]], [c[2]]], np.uint64),
        np.array([[c[1]], [c[3]]], np.uint64),
        np.array([[k[0]], [k[1]]], np.uint64),
    )
    assert [even[0, 0], odd[0, 0], even[1, 0], odd[1, 0]] == expected
    assert philox_by_hand(c, k) == expected


def test_numbers_never_change():
    """A seed means the same in every release: these numbers stay as they are."""
    # The first published block of the cipher, its upper 53 bits of 64.
    assert uniforms(0, 0, [0], 2).tolist() == [
        [(0x6627E8D5E169C58D >> 11) / 2**53, (0xBC57AC4C9B00DBD8 >> 11) / 2**53]
    ]
    numbers = uniforms(2**64 - 59, 90, [7, 2**40 + 1], 2, first=5)
    assert [[number.hex() for number in row] for row in numbers.tolist()] == [
        ["0x1.c18d0b8ff2a85p-1", "0x1.d18b335eb825fp-1"],
        ["0x1.a875cd350b2f6p-1", "0x1.163d01f34b2e0p-5"],
    ]


@given(seeds, epochs, indices, positions)
def test_each_number_is_the_one_of_the_specification(seed, epoch, index, position):
    """The counter is laid out as the module says, for values of all sizes."""
    number = uniforms(seed, epoch, [index], 1, first=position)
    assert number.shape == (1, 1)
    assert number.dtype == np.float64
    assert number[0, 0] == uniform_by_hand(seed, epoch, index, position)


@given(
    seeds,
    epochs,
    st.lists(indices, max_size=8),
    st.integers(0, 9),
    st.integers(0, 9),
    st.randoms(use_true_random=False),
)
def test_a_number_does_not_depend_on_what_else_is_asked_for(
    seed, epoch, batch, first, count, random
):
    """Any batch in any order, and any range of positions, gives each sample its own numbers."""
    whole = {index: uniforms(seed, epoch, [index], first + count)[0, first:] for index in batch}
    random.shuffle(batch)
    numbers = uniforms(seed, epoch, batch, count, first=first)
    assert numbers.shape == (len(batch), count)
    for index, row in zip(batch, numbers, strict=True):
        assert row.tolist() == whole[index].tolist()


def families(count: int) -> dict[str, np.ndarray]:
    """Rows of numbers whose neighbours differ in one coordinate alone."""
    return {
        "index": uniforms(1, 2, np.arange(count), 1)[:, 0],
        "distant index": uniforms(1, 2, np.arange(count) << 32, 1)[:, 0],
        "position": uniforms(1, 2, [3], count)[0],
        "epoch": np.concatenate([uniforms(1, e, [3], 1)[0] for e in range(count // 50)]),
        "seed": np.concatenate([uniforms(s, 2, [3], 1)[0] for s in range(count // 50)]),
        "high seed": np.concatenate([uniforms(s << 32, 2, [3], 1)[0] for s in range(count // 50)]),
    }


FAMILIES = families(200_000)


def spread(counts: np.ndarray) -> float:
    """Chi-square of counts against equal ones, in standard deviations from what it should be."""
    expected = counts.sum() / counts.size
    chi_square = ((counts - expected) ** 2 / expected).sum()
    freedom = counts.size - 1
    return float((chi_square - freedom) / np.sqrt(2 * freedom))


@pytest.mark.parametrize("family", FAMILIES)
def test_numbers_fill_the_interval_evenly(family):
    """Counts in 100 parts of [0, 1), in parts of their lower digits, and of pairs, are even."""
    numbers = FAMILIES[family]
    assert numbers.min() >= 0
    assert numbers.max() < 1
    for scale in (1, 2**20, 2**40):
        digits = (numbers * scale) % 1
        assert abs(spread(np.bincount((digits * 100).astype(int), minlength=100))) < 4.5
    cells = (numbers[:-1] * 8).astype(int) * 8 + (numbers[1:] * 8).astype(int)
    assert abs(spread(np.bincount(cells[::2], minlength=64))) < 4.5
    assert abs(spread(np.bincount(cells[1::2], minlength=64))) < 4.5


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("lag", [1, 2, 3, 8, 64, 256])
def test_neighbours_are_independent(family, lag):
    """Neighbours in index, position, epoch or seed do not correlate, near or some way off."""
    numbers = FAMILIES[family] - 0.5
    for signal in (numbers, np.abs(numbers) - 0.25):
        pairs = len(signal) - lag
        correlation = (signal[:-lag] * signal[lag:]).sum() / (pairs * signal.var())
        assert abs(correlation) * np.sqrt(pairs) < 4.5


def test_each_coordinate_moves_half_of_the_bits():
    """To change any bit of seed, epoch or index changes each bit of the number in half of cases."""
    rng = np.random.default_rng(5)
    flips = np.zeros((64 + 32 + 63, 52))
    rounds = 200
    for _ in range(rounds):
        index = int(rng.integers(2**63))
        seed, epoch = int(rng.integers(2**64, dtype=np.uint64)), int(rng.integers(2**32))
        base = uniforms(seed, epoch, [index], 1)[0, 0]
        others = [uniforms(seed ^ 1 << bit, epoch, [index], 1)[0, 0] for bit in range(64)]
        others += [uniforms(seed, epoch ^ 1 << bit, [index], 1)[0, 0] for bit in range(32)]
        changed = np.array([index ^ 1 << bit for bit in range(63)], np.int64)
        others += uniforms(seed, epoch, changed, 1)[:, 0].tolist()
        bits = (np.array(others) * 2**53).astype(np.uint64) ^ np.uint64(base * 2**53)
        flips += bits[:, None] >> np.arange(1, 53, dtype=np.uint64) & np.uint64(1)
    # 8,268 shares of 200 rounds each, of which none may be further than 5 deviations from a half.
    assert np.abs(flips / rounds - 0.5).max() < 5 * 0.5 / np.sqrt(rounds)
    assert abs(flips.mean() / rounds - 0.5) < 0.001


def test_no_number_comes_twice():
    """A million neighbours in all coordinates have a million different numbers."""
    parts = [
        uniforms(seed, epoch, np.arange(5000), 4)
        for seed in (0, 1, 2**32, 2**63, 2**64 - 1)
        for epoch in range(10)
    ]
    numbers = np.concatenate(parts).ravel()
    assert numbers.size == 1_000_000
    assert np.unique(numbers).size == numbers.size


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1, 0, [0], 1, 0), r"seed must be in \[0, 18446744073709551616\); got -1"),
        ((2**64, 0, [0], 1, 0), r"seed must be in \[0, 18446744073709551616\)"),
        ((0, 2**32, [0], 1, 0), r"epoch must be in \[0, 4294967296\); got 4294967296"),
        ((0, 0, [5, -3], 1, 0), r"indices must be in \[0, 9223372036854775808\); got -3 to 5"),
        ((0, 0, [0.5], 1, 0), r"indices must be whole numbers in one row; got float64 \(1,\)"),
        ((0, 0, 3, 1, 0), r"indices must be whole numbers in one row; got int64 \(\)"),
        ((0, 0, [0], -1, 0), r"got first=0, count=-1"),
        ((0, 0, [0], 1, -1), r"got first=-1, count=1"),
        ((0, 0, [0], 1, 2**33), r"must be in \[0, 8589934592\]; got first=8589934592, count=1"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments, message):
    """The message names the argument, its limits and its value."""
    *positional, first = arguments
    with pytest.raises(ValueError, match=message):
        uniforms(*positional, first=first)
