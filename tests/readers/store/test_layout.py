"""Keys of the three databases, and names of files."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from readers.store.layout import (
    digest_from_key,
    index_from_key,
    key_from_index,
    shard_name,
    shard_number,
)

positions = st.integers(0, 2**64 - 1)


@given(positions, positions)
def test_keys_sort_in_the_order_of_their_indices(a, b):
    """LMDB sorts keys as bytes; a scan over a shard must meet the samples in order."""
    assert (key_from_index(a) < key_from_index(b)) == (a < b)
    assert index_from_key(key_from_index(a)) == a


def test_a_key_is_eight_bytes_with_the_largest_first():
    """Readers in other languages must be able to make the key of a position."""
    assert key_from_index(0x0102) == b"\0\0\0\0\0\0\x01\x02"
    assert key_from_index(2**64 - 1) == b"\xff" * 8


@given(st.binary(max_size=5000))
def test_a_digest_is_blake2b_of_16_bytes(key):
    """A text key of any length must become one that LMDB takes, by a rule others can follow."""
    digest = digest_from_key(key)
    assert digest == hashlib.blake2b(key, digest_size=16).digest()
    assert len(digest) == 16


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (0, "shard-00000.lmdb"),
        (99_999, "shard-99999.lmdb"),
        (100_000, "shard-100000.lmdb"),
    ],
)
def test_shards_are_named_by_their_number(number, name):
    """Names have five digits, and more only where five are too few; the number is told again."""
    assert shard_name(number) == name
    assert shard_number(name) == number
