"""Columns of the index compare by the names that their numbers stand for, or refuse to."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

from readers import LMDBDataset
from readers.store.errors import SchemaMismatchError


@pytest.fixture
def dataset(shapes):
    return LMDBDataset(shapes.path)


@pytest.mark.parametrize(
    ("mask", "kept"),
    [
        (lambda c: c["split"] == "train", range(8)),
        (lambda c: c["split"] == "valid", range(8, 12)),
        (lambda c: c["split"] != np.str_("train"), range(8, 12)),
        (lambda c: c["label"] == "ring", (1, 4, 7, 10)),
        (lambda c: c["label"] == 1, (1, 4, 7, 10)),
        (lambda c: np.equal(c["label"], "ring"), (1, 4, 7, 10)),
        (lambda c: np.isin(c["label"], ["ring", "star"]), (1, 2, 4, 5, 7, 8, 10, 11)),
        (lambda c: np.isin(element=c["label"], test_elements=[1, 2]), (1, 2, 4, 5, 7, 8, 10, 11)),
        (lambda c: np.isin(c["label"], ["ring"], invert=True), (0, 2, 3, 5, 6, 8, 9, 11)),
        (lambda c: (c["label"] == "ring") & (c["split"] == "valid"), (10,)),
        (lambda c: c["label"] >= 2, (2, 5, 8, 11)),
        (lambda c: c["label"] == np.array(["disk", "ring", "star"] * 4), range(12)),
    ],
)
def test_samples_are_chosen_by_name(dataset, mask, kept):
    """What a person writes selects what it says, in numbers and in names."""
    chosen = dataset.filter(mask)
    assert [sample["key"] for sample in chosen] == [dataset.key_of(at) for at in kept]


@pytest.mark.parametrize(
    ("mask", "error", "message"),
    [
        (lambda c: c["split"] == "trian", SchemaMismatchError, "no name 'trian'.*mean 'train'"),
        (lambda c: c["label"] == ["cat"], SchemaMismatchError, "no name 'cat'; it has disk, ring"),
        (lambda c: np.isin(c["label"], ["cat"]), SchemaMismatchError, "column 'label': no name"),
        (lambda c: c["label"] == None, TypeError, "numbers and names; got None"),  # noqa: E711
        (lambda c: c["label"] == b"cat", TypeError, "numbers and names; got b'cat'"),
        (lambda c: c["label"] < "disk", TypeError, "equal to a value or not.*np.less"),
        (lambda c: c["labels"] == "disk", SchemaMismatchError, "no column 'labels'"),
    ],
)
def test_what_nothing_can_be_equal_to_is_an_error(dataset, mask, error, message):
    """An empty selection would say nothing of the mistake."""
    with pytest.raises(error, match=message):
        dataset.filter(mask)


def test_numbers_without_names_do_not_compare_with_texts(every_kind):
    """A height is never "224"."""
    columns = LMDBDataset(every_kind.path).columns
    assert (columns["sized.height"] == 1).any()
    with pytest.raises(TypeError, match=r"column 'sized\.height' has numbers without names"):
        columns["sized.height"] == "1"  # noqa: B015
    # A copy that came through a pickle has lost its names, and says so.
    copied = pickle.loads(pickle.dumps(columns["weather"]))
    with pytest.raises(TypeError, match="numbers without names"):
        copied == "sun"  # noqa: B015


def test_a_column_is_an_array_like_any_other(dataset):
    """Parts of it keep the names; what is computed of it is plain."""
    labels = dataset.columns["label"]
    assert (labels[3:5] == "ring").tolist() == [False, True]
    assert type(labels == "ring") is np.ndarray
    assert type(labels + 1) is np.ndarray
    assert labels.sum() == 12
    assert np.unique(labels).tolist() == [0, 1, 2]
    assert torch.from_numpy(labels).sum() == 12
    np.add(labels, 1, out=labels)
    assert labels.tolist() == [1, 2, 3] * 4
    assert np.bincount(dataset.columns["label"]).tolist() == [4, 4, 4]


def test_a_column_is_there_or_not(dataset):
    """Asking is no error."""
    assert "label" in dataset.columns
    assert "labels" not in dataset.columns


def test_columns_say_what_they_hold(dataset, many_shards):
    """Names, element types and what the numbers are called."""
    assert repr(dataset.columns) == (
        "Columns of 12 samples: label int64 ('disk', 'ring', 'star'), "
        "split uint8 ('train', 'valid')"
    )
    assert repr(LMDBDataset(many_shards).columns) == (
        "Columns of 600 samples: label int64 ('a', 'b', 'c', 'd', ... 10 in all)"
    )
