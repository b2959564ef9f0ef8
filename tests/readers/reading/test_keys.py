"""Samples by their keys, and keys by their samples."""

from __future__ import annotations

import pytest

from readers import LMDBDataset
from readers.store.errors import SchemaMismatchError, UnknownKeyError
from readers.store.schema import Field


def test_a_key_is_in_a_dataset_and_leads_to_its_sample(shapes, same):
    """`in` and [] take keys; those of another split are not there."""
    dataset = LMDBDataset(shapes.path, split="valid")
    keys = [sample["key"] for sample in shapes.samples]
    assert [key in dataset for key in keys] == [False] * 8 + [True] * 4
    assert "no/such.png" not in dataset
    assert same(dataset[keys[9]], dataset[1])
    with pytest.raises(UnknownKeyError, match="has it, but not this selection"):
        dataset[keys[0]]
    for other in (3, None, b"a"):
        with pytest.raises(TypeError, match="a key is a text"):
            other in dataset  # noqa: B015


def test_keys_come_in_the_order_of_the_samples(shapes):
    """All at once, from either end, by a slice; and they know where they are."""
    dataset = LMDBDataset(shapes.path).select([7, 2, 5])
    expected = [shapes.samples[at]["key"] for at in (7, 2, 5)]
    keys = dataset.keys()
    assert list(keys) == expected
    assert len(keys) == 3
    assert (keys[0], keys[-1], keys[1:]) == (expected[0], expected[2], expected[1:])
    assert [keys.index(key) for key in expected] == [0, 1, 2]
    assert {key: dataset[key]["label"] for key in keys} == {
        key: dataset[at]["label"] for at, key in enumerate(expected)
    }
    assert repr(keys) == f"Keys of 3 samples of {str(shapes.path)!r}"
    with pytest.raises(IndexError):
        keys[3]


def test_a_slice_is_a_dataset_of_those_samples(shapes, same):
    """As select makes one: it keeps what the dataset keeps, and reads nothing."""
    dataset = LMDBDataset(shapes.path, returns=("key",), transform=lambda sample: sample[0])
    keys = list(dataset)
    for piece in (slice(2, 5), slice(None, None, -3), slice(-2, None), slice(50, 60)):
        part = dataset[piece]
        assert isinstance(part, LMDBDataset)
        assert list(part) == keys[piece]
    assert list(dataset[3:][:2]) == keys[3:5]


def test_a_store_without_keys_says_so(tmp_path, write_store):
    """Its samples have no names to be listed."""
    field = Field(name="label", kind="label", dtype="int64")
    path = write_store(tmp_path / "s", [field], [{"label": 1}])
    with pytest.raises(SchemaMismatchError, match="no field 'key'; it has label"):
        list(LMDBDataset(path).keys())
