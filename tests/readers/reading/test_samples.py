"""A batch read at once is, to whoever looks at its samples, the samples read one by one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import default_collate

from readers.dataset import LMDBDataset
from readers.reading.collate import collate

FORMS = ("tensor", "numpy", "pil")
# PIL has no mode for most element types; stock collation joins neither PIL images nor what differs
# in shape between samples.
PIL_FIELDS = ("key", "gray", "sized", "photo", "uint8_image", "int16_array", "float32_scalar")
STOCK_FIELDS = ("key", "caption", "blob", "weather", "gray", "empty")


@pytest.mark.parametrize("image_as", FORMS)
@pytest.mark.parametrize("as_tuples", [False, True])
@given(data=st.data())
def test_samples_of_a_batch_equal_samples_read_one_by_one(
    every_kind, same, image_as, as_tuples, data
):
    """Any indices in any order, repeated or negative; any fields in any order."""
    dataset = LMDBDataset(every_kind.path)
    known = PIL_FIELDS if image_as == "pil" else dataset.schema.names
    names = data.draw(st.lists(st.sampled_from(known), min_size=1, unique=True))
    indices = data.draw(st.lists(st.integers(-11, 10), max_size=20))
    settings = {"returns" if as_tuples else "fields": names, "image_as": image_as}
    dataset = LMDBDataset(every_kind.path, **settings)
    samples = dataset.__getitems__(indices)
    expected = [dataset[index] for index in indices]
    assert len(samples) == len(indices)
    assert same(list(samples), expected)
    assert same([samples[at] for at in range(-len(indices), 0)], expected)
    assert same(samples[1:-1], expected[1:-1])


@pytest.mark.parametrize("image_as", ["tensor", "numpy"])
@given(indices=st.lists(st.integers(0, 10), min_size=1, max_size=20))
def test_all_ways_to_a_batch_give_the_same(every_kind, same, image_as, indices):
    """Read at once or one by one, joined by torch or by us: the same fields and values."""
    names = [
        name
        for name in LMDBDataset(every_kind.path).schema.names
        if name in STOCK_FIELDS or name.endswith(("_array", "_image", "_scalar"))
    ]
    dataset = LMDBDataset(every_kind.path, fields=names, image_as=image_as)
    at_once, one_by_one = dataset.__getitems__(indices), [dataset[index] for index in indices]
    stock = default_collate(one_by_one)
    assert same(default_collate(at_once), stock)
    assert same(collate(one_by_one), stock)
    ours = collate(at_once)
    for name in names:
        field = dataset.schema[name]
        if field.is_scalar and field.names is None:
            # A number alone has lost its element type; the store has not.
            assert ours[name].dtype == getattr(torch, field.dtype)
            assert ours[name].tolist() == stock[name].tolist()
        else:
            assert same(ours[name], stock[name])


def test_values_of_unequal_sizes_are_listed_in_a_batch(every_kind, same):
    """Images of their own sizes, originals and JSON come as lists, in order."""
    names = ["sized", "photo", "free", "float32_ragged", "extra"]
    dataset = LMDBDataset(every_kind.path, fields=names)
    for samples in (dataset.__getitems__([0, 1, 2]), [dataset[at] for at in (0, 1, 2)]):
        batch = collate(samples)
        assert list(batch) == names
        for name in names:
            assert isinstance(batch[name], list)
            assert same(batch[name], [dataset[at][name] for at in (0, 1, 2)])
    # Those that happen to be of one size are stacked, however they were read.
    same_size = [0, 6]
    for samples in (dataset.__getitems__(same_size), [dataset[at] for at in same_size]):
        batch = collate(samples)
        assert batch["sized"].shape == (2, 3, 1, 2)
        assert same(list(batch["sized"]), [dataset[at]["sized"] for at in same_size])


@pytest.mark.parametrize("image_as", ["tensor", "numpy"])
def test_fields_of_fixed_size_take_one_gather_each(shapes, image_as):
    """However many samples and shards: one native call into the memory of the batch."""
    dataset = LMDBDataset(
        shapes.path, returns=("image", "transform", "label", "key"), image_as=image_as
    )
    dataset.__getitems__([0])
    indices = [11, 0, 5, 5, 3, 8, 6, 1, 0, 10]
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        samples = dataset.__getitems__(indices)
    counts = {event.key: event.count for event in profiled.key_averages()}
    assert counts["aten::index_select"] == 2
    image, transform, _, _ = collate(samples)
    # Memory of its own for each field, and no more than it fills.
    assert image.untyped_storage().nbytes() == 10 * 72
    assert transform.untyped_storage().nbytes() == 10 * 24
    addresses = [torch.as_tensor(sample[0]).data_ptr() for sample in samples]
    assert addresses == [image.data_ptr() + at * 72 for at in range(10)]


def test_a_batch_of_images_is_channels_last_in_memory(shapes):
    """A convolution needs no transpose of it; numpy images stay (batch, height, width, channel)."""
    dataset = LMDBDataset(shapes.path, fields=["image"])
    image = collate(dataset.__getitems__([3, 1]))["image"]
    assert image.shape == (2, 3, 4, 6)
    assert image.is_contiguous(memory_format=torch.channels_last)
    expected = np.stack([shapes.samples[at]["image"] for at in (3, 1)])
    assert np.array_equal(image.permute(0, 2, 3, 1).numpy(), expected)
    dataset = LMDBDataset(shapes.path, fields=["image"], image_as="numpy")
    assert np.array_equal(collate(dataset.__getitems__([3, 1]))["image"].numpy(), expected)


def test_repeated_samples_of_a_batch_have_memory_of_their_own(shapes):
    """To change one in place must not change the other."""
    first, second = LMDBDataset(shapes.path).__getitems__([2, 2])
    assert torch.equal(first["image"], second["image"])
    first["image"].add_(1)
    assert not torch.equal(first["image"], second["image"])


def test_an_empty_batch_has_no_samples(shapes):
    """A batch sampler may yield one; its fields have no rows, and keep shape and element type."""
    samples = LMDBDataset(shapes.path, returns=("image", "label", "key", "transform")).__getitems__(
        []
    )
    assert len(samples) == 0
    assert list(samples) == []
    image, label, key, transform = collate(samples)
    assert image.shape == (0, 3, 4, 6)
    assert (label.dtype, label.shape) == (torch.int64, (0,))
    assert key == []
    assert (transform.dtype, transform.shape) == (torch.float32, (0, 2, 3))


def test_samples_of_a_batch_end_where_they_end(shapes):
    """Past the end is an IndexError: code that loops without a length must stop."""
    samples = LMDBDataset(shapes.path).__getitems__([4, 5])
    for at in (2, -3):
        with pytest.raises(IndexError):
            samples[at]
