"""A dataset gives each sample as it was stored, in the form asked for, by any kind of index."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Subset

from readers.dataset import LMDBDataset, TransformError
from readers.store.errors import (
    ManifestError,
    SchemaMismatchError,
    ShardError,
    StoreError,
    StoreIncompleteError,
    StoreNotFoundError,
    UnknownKeyError,
)
from readers.store.schema import Field

KEY = Field(name="key", kind="text")


def as_tensors(values):
    """What a dataset gives of stored arrays: images with the channel first, all else as it is."""
    return {
        name: value if not isinstance(value, np.ndarray) else as_tensor(value)
        for name, value in values.items()
    }


def as_tensor(array):
    tensor = torch.from_numpy(array.copy())
    return tensor.permute(2, 0, 1) if tensor.ndim == 3 else tensor


def test_a_sample_is_a_dict_of_all_fields_in_their_order(shapes, same):
    """Every value comes back with its type, and an image as (channel, height, width)."""
    dataset = LMDBDataset(shapes.path)
    assert len(dataset) == 12
    for at, values in enumerate(shapes.samples):
        assert same(dataset[at], as_tensors(values))
    image = dataset[0]["image"]
    assert image.shape == (3, 4, 6)
    # Channels-last in memory: a row of pixels, each with its three channels.
    assert image.stride() == (1, 18, 3)


def test_every_kind_and_element_type_comes_back(every_kind, same):
    """No kind of field and no element type is changed on its way through a store."""
    dataset = LMDBDataset(every_kind.path)
    for at, values in enumerate(every_kind.samples):
        assert same(dataset[at], as_tensors(values))


def test_images_can_be_numpy_arrays(every_kind, same):
    """With image_as="numpy", images are (height, width, channel) and arrays are numpy's too."""
    dataset = LMDBDataset(every_kind.path, image_as="numpy")
    for at, values in enumerate(every_kind.samples):
        assert same(dataset[at], values)


def test_images_can_be_pil_images(every_kind):
    """With image_as="pil", each image has the mode and the pixels of what was stored."""
    names = ("photo", "gray", "sized", "uint8_image")
    dataset = LMDBDataset(every_kind.path, returns=names, image_as="pil")
    for at, values in enumerate(every_kind.samples):
        for name, image in zip(names, dataset[at], strict=True):
            assert isinstance(image, Image.Image)
            assert image.mode == ("L" if name == "gray" else "RGB")
            pixels = np.asarray(image).reshape(values[name].shape)
            assert np.array_equal(pixels, values[name])


def test_what_pillow_has_no_mode_for_is_refused_with_a_way_out(every_kind):
    """16-bit colour cannot be a PIL image; the message says what can be taken instead."""
    dataset = LMDBDataset(every_kind.path, returns=["uint16_image"], image_as="pil")
    with pytest.raises(ValueError, match=r"3 channels of uint16; take 'tensor' or 'numpy'"):
        dataset[0]


def test_returns_makes_tuples_in_any_order(shapes, same):
    """A tuple has the fields named, in the order named."""
    dataset = LMDBDataset(shapes.path, returns=("label", "key", "image"))
    expected = as_tensors(shapes.samples[7])
    assert same(dataset[7], (expected["label"], expected["key"], expected["image"]))


def test_fields_may_come_in_any_order_and_returns_may_be_fewer(shapes, same):
    """A dict has the fields in the order asked for; a tuple takes some of them."""
    dataset = LMDBDataset(shapes.path, fields=["transform", "image"])
    expected = as_tensors(shapes.samples[3])
    assert same(dataset[3], {name: expected[name] for name in ("transform", "image")})
    dataset = LMDBDataset(shapes.path, fields=["key", "image"], returns=["image"])
    assert same(dataset[3], (expected["image"],))
    assert same(list(dataset.__getitems__([3])), [(expected["image"],)])


@pytest.mark.parametrize("argument", ["fields", "returns"])
def test_an_unknown_field_is_refused_with_the_nearest_name(shapes, argument):
    """A mistyped name is found out when the dataset is made, and the right one is named."""
    with pytest.raises(SchemaMismatchError) as caught:
        LMDBDataset(shapes.path, **{argument: ["imag"]})
    assert str(caught.value) == (
        f"{shapes.path}: no field 'imag'; it has key, image, label, split, original_size, "
        "transform. Did you mean 'image'?"
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"returns": "image"}, r"returns is a list of names; got 'image'. One: \['image'\]"),
        ({"fields": ["key", "key"]}, "fields: 'key' is named twice"),
        ({"fields": ["key"], "returns": ["image"]}, r"returns names 'image'.*fields=\('key',\)"),
        ({"image_as": "jax"}, "image_as must be one of tensor, numpy, pil, tv_tensor; got 'jax'"),
    ],
)
def test_a_wrong_argument_is_named(shapes, settings, message):
    """The message names the argument, what it may be and what it was."""
    with pytest.raises(ValueError, match=message):
        LMDBDataset(shapes.path, **settings)


def test_indices_count_from_either_end(shapes, same):
    """A negative index counts from the end, and one past either end is an IndexError."""
    dataset = LMDBDataset(shapes.path, returns=("key",))
    keys = [sample["key"] for sample in shapes.samples]
    assert [dataset[at - 12] for at in range(12)] == [(key,) for key in keys]
    # Without an end, `for sample in dataset` would not stop either.
    assert list(dataset) == [(key,) for key in keys]
    for at in (12, -13, 2**70):
        with pytest.raises(IndexError, match=rf"sample {at} of .*shapes.lmdb, expected \[0, 12\)"):
            dataset[at]
        with pytest.raises(IndexError, match=rf"sample {at} of .*shapes.lmdb, expected \[0, 12\)"):
            dataset.__getitems__([0, at])


@pytest.mark.parametrize(
    "index",
    [np.int64(3), np.uint8(3), np.int32(-9), torch.tensor(3), torch.tensor(-9, dtype=torch.int32)],
)
def test_whole_numbers_of_numpy_and_torch_are_indices(shapes, index):
    """Samplers yield numbers of several libraries; each is the sample that its value says."""
    dataset = LMDBDataset(shapes.path, returns=("key",))
    assert dataset[index] == (shapes.samples[3]["key"],)
    assert list(dataset.__getitems__([index, 0])) == [dataset[3], dataset[0]]
    assert dataset.key_of(index) == shapes.samples[3]["key"]


@pytest.mark.parametrize("index", [True, np.bool_(True), 1.0, b"1", None, [1, 2], np.array([1])])
def test_what_is_no_whole_number_is_no_index(shapes, index):
    """A bool is a mask by mistake, a list a selection: neither may be taken for sample 1."""
    dataset = LMDBDataset(shapes.path)
    for read in (dataset.__getitem__, dataset.key_of, lambda i: dataset.__getitems__([i])):
        with pytest.raises(TypeError, match=r"an index is a whole number; got .*select"):
            read(index)


def test_a_split_goes_by_its_raw_name_and_by_the_usual_one(shapes):
    """The raw data says "valid"; who asks for "val" or "validation" means the same."""
    keys = [sample["key"] for sample in shapes.samples]
    for name in ("valid", "val", "validation", "dev"):
        dataset = LMDBDataset(shapes.path, split=name, returns=("key", "split"))
        assert len(dataset) == 4
        assert list(dataset) == [(key, "valid") for key in keys[8:]]
        assert [dataset.index_of(key) for key in keys[8:]] == [0, 1, 2, 3]
    train = LMDBDataset(shapes.path, split="train", returns=("key",))
    assert list(train) == [(key,) for key in keys[:8]]
    assert train[-1] == (keys[7],)


def test_a_split_whose_samples_lie_scattered_is_found_whole(tmp_path, write_store):
    """A split keeps the order of the store, wherever its samples lie."""
    turns = [0, 1, 1, 0, 1, 0, 0, 1, 0]
    fields = [KEY, Field(name="split", kind="scalar", dtype="uint8", names=("dev", "train"))]
    samples = [{"key": f"{at}", "split": turn} for at, turn in enumerate(turns)]
    path = write_store(tmp_path / "s", fields, samples, (4, 5), (), {"dev": 5, "train": 4})
    dataset = LMDBDataset(path, split="train", fields=["key"])
    assert [sample["key"] for sample in dataset] == ["1", "2", "4", "7"]
    assert [sample["key"] for sample in dataset.__getitems__([3, 0, 2])] == ["7", "1", "4"]
    assert dataset.columns["split"].tolist() == [1, 1, 1, 1]
    assert LMDBDataset(path, split="val").index_of("5") == 2


def test_an_unknown_split_is_refused_with_those_there_are(shapes):
    """A store has the splits it has; another name is an error, not an empty dataset."""
    with pytest.raises(SchemaMismatchError, match=r"no split 'test'; it has train, valid"):
        LMDBDataset(shapes.path, split="test")
    with pytest.raises(SchemaMismatchError, match=r"Did you mean 'train'"):
        LMDBDataset(shapes.path, split="tarin")


def test_two_splits_of_one_meaning_need_their_own_names(tmp_path, write_store):
    """Of "val" and "dev", none is guessed for "valid"."""
    fields = [KEY, Field(name="split", kind="scalar", dtype="uint8", names=("dev", "val"))]
    samples = [{"key": f"{at}", "split": at} for at in range(2)]
    path = write_store(tmp_path / "s", fields, samples, splits={"dev": 1, "val": 1})
    assert LMDBDataset(path, split="val")[0]["key"] == "1"
    with pytest.raises(SchemaMismatchError, match="no split 'valid'"):
        LMDBDataset(path, split="valid")


def test_splits_of_a_manifest_that_the_samples_contradict_are_an_error(tmp_path, write_store):
    """A changed manifest cannot make a dataset that says one length and has another."""
    fields = [KEY, Field(name="split", kind="scalar", dtype="uint8", names=("train", "val"))]
    samples = [{"key": f"{at}", "split": at % 2} for at in range(4)]
    path = write_store(tmp_path / "a", fields, samples, splits={"train": 3, "val": 1})
    with pytest.raises(ManifestError, match=r"2 samples of split 'train', expected 3"):
        LMDBDataset(path, split="train")[0]
    path = write_store(tmp_path / "b", [KEY], samples, splits={"train": 4})
    with pytest.raises(ManifestError, match=r"split 'train' is none of its field 'split'"):
        LMDBDataset(path, split="train")[0]


def test_a_transform_gets_the_whole_sample(shapes, same):
    """What the transform returns takes the sample's place, one by one and in batches."""
    plain = LMDBDataset(shapes.path)
    dataset = LMDBDataset(shapes.path, transform=lambda sample: (sample["key"], len(sample)))
    assert dataset[2] == (plain[2]["key"], 6)
    assert dataset.__getitems__([2, -1]) == [dataset[2], dataset[11]]
    tuples = LMDBDataset(shapes.path, returns=("label", "key"), transform=lambda pair: pair[::-1])
    assert tuples[4] == (plain[4]["key"], plain[4]["label"])


def test_a_transform_that_raises_is_an_error_of_that_sample(shapes):
    """The message names index, key and cause, and the cause itself can be looked at."""

    def divide(sample):
        return 1 // sample["label"]

    dataset = LMDBDataset(shapes.path, split="valid", transform=divide)
    assert dataset[0] == 0
    key = shapes.samples[9]["key"]
    for read in (lambda: dataset[1], lambda: dataset.__getitems__([0, 1])):
        with pytest.raises(TransformError) as caught:
            read()
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        assert str(caught.value) == (
            f"{shapes.path}, sample 1 ({key!r}): the transform raised "
            "ZeroDivisionError: integer division or modulo by zero"
        )
    unpickled = pickle.loads(pickle.dumps(caught.value))
    assert (type(unpickled), str(unpickled)) == (TransformError, str(caught.value))


def test_a_store_without_keys_still_says_which_sample_a_transform_failed_on(tmp_path, write_store):
    """The format asks no store for a key; an error of the transform must not turn into ours."""
    field = Field(name="label", kind="label", dtype="int64")
    path = write_store(tmp_path / "s", [field], [{"label": 1}, {"label": 0}])
    dataset = LMDBDataset(path, transform=lambda sample: 1 // sample["label"])
    with pytest.raises(TransformError, match=r"s, sample 1: the transform raised ZeroDivision"):
        dataset[1]
    with pytest.raises(SchemaMismatchError, match="no field 'key'; it has label"):
        dataset.key_of(0)


def test_it_says_what_the_store_says(shapes):
    """Classes, schema and manifest are the store's own."""
    dataset = LMDBDataset(shapes.path, split="train")
    assert dataset.classes == ["disk", "ring", "star"]
    dataset.classes.append("not the store's")
    assert dataset.classes == ["disk", "ring", "star"]
    assert dataset.schema.names == (
        "key",
        "image",
        "label",
        "split",
        "original_size",
        "transform",
    )
    assert dataset.manifest.sample_count == 12
    assert repr(dataset) == (
        f"LMDBDataset({str(shapes.path)!r}, split='train'): 8 samples of "
        "key, image (3, 4, 6) uint8, label (3 classes), split, original_size, transform"
    )


def test_columns_have_one_row_for_each_sample_of_the_dataset(every_kind, shapes):
    """Columns follow the dataset's own order, and name every number that the index keeps."""
    labels = np.array([sample["label"] for sample in shapes.samples])
    dataset = LMDBDataset(shapes.path)
    assert list(dataset.columns) == ["label", "split"]
    assert len(dataset.columns) == 2
    assert dataset.columns["label"].dtype == np.int64
    assert np.array_equal(dataset.columns["label"], labels)
    assert np.array_equal(LMDBDataset(shapes.path, split="val").columns["label"], labels[8:])
    order = [11, 0, 5, 5]
    assert np.array_equal(dataset.select(order).columns["label"], labels[order])
    with pytest.raises(SchemaMismatchError, match=r"no column 'labels'.*Did you mean 'label'"):
        dataset.columns["labels"]
    sizes = LMDBDataset(every_kind.path).columns
    for side, axis in (("height", 0), ("width", 1)):
        expected = [sample["photo"].shape[axis] for sample in every_kind.samples]
        assert sizes[f"photo.{side}"].tolist() == expected


def test_columns_outlive_their_dataset(shapes):
    """An array taken from a column may be kept and changed; the store does not notice."""
    dataset = LMDBDataset(shapes.path)
    labels = dataset.columns["label"]
    before = labels.copy()
    dataset.close()
    del dataset
    gc.collect()
    assert np.array_equal(labels, before)
    labels[:] = -1
    assert np.array_equal(LMDBDataset(shapes.path).columns["label"], before)


ODD_KEYS = [
    "a.png",
    "train/ä b\n.png",
    b"latin-\xe9.png".decode("utf-8", "surrogateescape"),
    b"\xff\xfe/\x80".decode("utf-8", "surrogateescape"),
    "long/" + "x" * 600,
    "long/" + "x" * 601,
    " ",
]


def test_a_key_leads_to_its_sample_whatever_it_is_made_of(tmp_path, write_store):
    """Keys that are no UTF-8, or longer than LMDB's own may be, are found like any other."""
    samples = [{"key": key.encode("utf-8", "surrogateescape")} for key in ODD_KEYS]
    path = write_store(tmp_path / "s", [KEY], samples, (3, 4))
    dataset = LMDBDataset(path)
    assert [dataset.index_of(key) for key in ODD_KEYS] == list(range(7))
    assert [dataset.key_of(at) for at in range(7)] == ODD_KEYS
    assert [sample["key"] for sample in dataset] == ODD_KEYS
    chosen = dataset.select([5, 2, 5])
    assert chosen.index_of(ODD_KEYS[2]) == 1
    assert chosen.index_of(ODD_KEYS[5]) == 0
    assert chosen.key_of(-1) == ODD_KEYS[5]


def test_an_unknown_key_is_told_from_one_of_another_selection(shapes):
    """A key that the store has, but not this dataset, is another mistake than a wrong key."""
    dataset = LMDBDataset(shapes.path, split="val")
    for key in ("nowhere.png", "\ud800"):
        with pytest.raises(UnknownKeyError, match="no sample with the key") as caught:
            dataset.index_of(key)
        assert "but not this selection" not in str(caught.value)
    assert isinstance(caught.value, KeyError)
    with pytest.raises(UnknownKeyError, match="has it, but not this selection"):
        dataset.index_of(shapes.samples[0]["key"])


@pytest.mark.parametrize(
    "choose",
    [
        list,
        tuple,
        np.array,
        torch.tensor,
        iter,
        lambda indices: np.array(indices, np.int8),
        lambda indices: [np.int64(index) for index in indices],
        lambda indices: [torch.tensor(index) for index in indices],
    ],
)
def test_select_takes_any_row_of_whole_numbers(shapes, choose):
    """Samples come in the order chosen, repeated where they are chosen twice."""
    dataset = LMDBDataset(shapes.path, returns=("key",))
    chosen = dataset.select(choose([-1, 3, 4, 5, 0, 3]))
    assert list(chosen) == [dataset[at] for at in (11, 3, 4, 5, 0, 3)]
    assert len(dataset) == 12


def test_select_takes_ranges_and_nothing(shapes):
    """A range is cheap to keep, and a selection may be empty."""
    dataset = LMDBDataset(shapes.path, returns=("key",))
    assert list(dataset.select(range(10, 0, -3))) == [dataset[at] for at in (10, 7, 4, 1)]
    for empty in ([], range(0), np.array([]), torch.tensor([])):
        chosen = dataset.select(empty)
        assert len(chosen) == 0
        assert list(chosen) == []
        assert len(chosen.columns["label"]) == 0
        with pytest.raises(IndexError):
            chosen[0]


def test_selections_of_selections_compose(shapes):
    """An index of a selection is one of what it was made of, split and all."""
    dataset = LMDBDataset(shapes.path, split="val", returns=("key",))
    once = dataset.select([3, 1, 0])
    twice = once.select([-1, 0, 0])
    assert list(twice) == [dataset[0], dataset[3], dataset[3]]
    assert twice.filter(twice.columns["label"] == 8 % 3)[0] == dataset[0]
    assert list(Subset(twice, [2, 0])) == [dataset[3], dataset[0]]


@pytest.mark.parametrize("index", [12, -13])
def test_select_refuses_what_is_not_there(shapes, index):
    """A selection is checked when it is made, not when training reaches the sample."""
    dataset = LMDBDataset(shapes.path)
    with pytest.raises(IndexError, match=rf"sample {index} of .*, expected \[0, 12\)"):
        dataset.select([0, index])
    with pytest.raises(IndexError, match="sample 18446744073709551615"):
        dataset.select(np.array([2**64 - 1], np.uint64))


@pytest.mark.parametrize("indices", [[True, False], np.ones(12, bool), torch.ones(12) > 0])
def test_select_refuses_masks(shapes, indices):
    """True and False as indices would be samples 1 and 0."""
    with pytest.raises(TypeError, match=r"a mask goes to filter\(\)"):
        LMDBDataset(shapes.path).select(indices)


@pytest.mark.parametrize("indices", [[0.5], np.zeros((2, 2), int), ["a"], torch.tensor(1)])
def test_select_refuses_what_is_no_row_of_whole_numbers(shapes, indices):
    """Nothing is rounded or flattened in silence."""
    with pytest.raises(TypeError, match="indices must be whole numbers in one row"):
        LMDBDataset(shapes.path).select(indices)


def test_filter_takes_a_mask_or_a_function_of_the_columns(shapes):
    """Both choose the samples for which they are true, in order."""
    dataset = LMDBDataset(shapes.path, returns=("key",))
    expected = [dataset[at] for at in (1, 4, 7, 10)]
    mask = dataset.columns["label"] == 1
    for chosen in (mask, torch.from_numpy(mask), mask.tolist(), lambda c: c["label"] == 1):
        assert list(dataset.filter(chosen)) == expected
    both = dataset.filter(lambda c: c["label"] == 1).filter(lambda c: c["split"] == 1)
    assert list(both) == [dataset[10]]
    assert len(both.filter(np.zeros(1, bool))) == 0


@pytest.mark.parametrize("mask", [np.ones(11, bool), np.ones(12), [1] * 12, np.ones((12, 1), bool)])
def test_filter_refuses_what_is_no_mask_of_all_samples(shapes, mask):
    """A mask of another length or of numbers is a mistake."""
    with pytest.raises(ValueError, match="mask must be 12 bools, one for each sample; got"):
        LMDBDataset(shapes.path).filter(mask)


def test_a_store_without_samples_can_be_looked_at(tmp_path, write_store):
    """A store may be empty; asking it for its columns is not an error, reading sample 0 is."""
    fields = [KEY, Field(name="label", kind="label", dtype="int64")]
    dataset = LMDBDataset(write_store(tmp_path / "s", fields, [], []))
    assert len(dataset) == 0
    assert list(dataset) == []
    assert len(dataset.__getitems__([])) == 0
    assert dataset.columns["label"].dtype == np.int64
    assert len(dataset.filter(lambda columns: columns["label"] == 0)) == 0
    with pytest.raises(IndexError):
        dataset[0]
    with pytest.raises(UnknownKeyError):
        dataset.index_of("a")


def is_mapped(path):
    """Whether this process has a file of a folder mapped."""
    return str(path) in Path("/proc/self/maps").read_text()


def test_it_reads_again_after_it_was_closed(shapes, copy_store, same):
    """close() lets go of the files; the next read opens them again, in a selection as well."""
    path = copy_store(shapes.path)
    dataset = LMDBDataset(path, split="val")
    chosen = dataset.select([2, 0])
    first = dataset[0]
    assert same(chosen.__getitems__([1])[0]["key"], first["key"])
    for _ in range(2):
        dataset.close()
        dataset.close()
        assert is_mapped(path)
        chosen.close()
        assert not is_mapped(path)
        assert len(dataset) == 4
        assert same(dataset[0], first)
        assert same(chosen[1], first)
        assert same(dataset.__getitems__([0])[0]["key"], first["key"])


def test_samples_belong_to_who_took_them(shapes, copy_store, same, contents):
    """Samples stay as they are once the dataset is closed and gone, may be written to, and the
    store is none the wiser."""
    path = copy_store(shapes.path)
    before = contents(path)
    dataset = LMDBDataset(path)
    alone = [dataset[at] for at in range(12)]
    together = list(dataset.__getitems__(range(12)))
    twice = list(dataset.__getitems__([3, 3]))
    copies = copy.deepcopy((alone, together))
    dataset.close()
    del dataset
    gc.collect()
    assert not is_mapped(path)
    other = LMDBDataset(path)
    expected = [as_tensors(values) for values in shapes.samples]
    for at in range(12):
        assert same(other[at], expected[at])
        assert same(alone[at], expected[at])
    assert same((alone, together), copies)

    twice[0]["image"].zero_()
    assert same(twice[1]["image"].contiguous(), expected[3]["image"].contiguous())
    for sample in (*alone, *together):
        sample["image"].fill_(9)
        sample["transform"] *= 0
        sample["original_size"][0] = -1
    assert same([other[at] for at in range(12)], expected)
    assert contents(path) == before


def test_numpy_samples_may_be_written_to(shapes, same):
    """In place is how augmentation works; nothing is read-only, and no warning is given."""
    dataset = LMDBDataset(shapes.path, image_as="numpy")
    for sample in (dataset[1], dataset.__getitems__([0, 1])[1]):
        assert same(sample, shapes.samples[1])
        sample["image"][:] = 0
        torch.from_numpy(sample["transform"]).zero_()
    assert same(dataset[1], shapes.samples[1])


@pytest.mark.parametrize("split", [None, "val"])
def test_it_pickles_small_before_and_after_reads(shapes, same, split):
    """What crosses to a loader worker is paths and settings, however much was read."""
    dataset = LMDBDataset(shapes.path, split=split, returns=("image", "label"))
    fresh = pickle.dumps(dataset)
    first, columns = dataset[0], dataset.columns["label"]
    dataset.__getitems__([0, 1, 2])
    used = pickle.dumps(dataset)
    assert len(used) == len(fresh) < 1000
    for copied in (pickle.loads(fresh), pickle.loads(used), copy.deepcopy(dataset)):
        assert len(copied) == len(dataset)
        assert same(copied[0], first)
        assert np.array_equal(copied.columns["label"], columns)
    assert same(dataset[0], first)


def test_a_selection_pickles_with_what_it_chose(shapes):
    """Each run of neighbours takes two numbers, so a part of a large store stays small."""
    dataset = LMDBDataset(shapes.path, split="val", returns=("key",))
    chosen = dataset.select([3, 1, 2])
    for copied in (pickle.loads(pickle.dumps(chosen)), copy.deepcopy(chosen)):
        assert list(copied) == [dataset[3], dataset[1], dataset[2]]
        copied.close()
        assert list(copied) == [dataset[3], dataset[1], dataset[2]]


def test_a_dataset_notices_that_its_store_was_replaced(shapes, copy_store, write_store, tmp_path):
    """A copy that is unpickled later must not read other samples by the same numbers."""
    path = copy_store(shapes.path)
    dataset = LMDBDataset(path)
    dataset.close()
    pickled = pickle.dumps(dataset)
    path.rename(tmp_path / "old")
    write_store(path, [KEY], [{"key": "other"}])
    for read in (dataset.__getitem__, pickle.loads(pickled).__getitem__):
        with pytest.raises(StoreError, match=r"copy.lmdb: the store was replaced since"):
            read(0)
    assert LMDBDataset(path)[0]["key"] == "other"


def test_a_path_may_be_relative_and_mean_the_same_later(shapes, monkeypatch):
    """The folder is the one that the path meant when the dataset was made."""
    monkeypatch.chdir(shapes.path.parent)
    dataset = LMDBDataset(shapes.path.name, returns=("key",))
    monkeypatch.chdir("/")
    assert dataset[11] == (shapes.samples[11]["key"],)
    assert pickle.loads(pickle.dumps(dataset))[0] == dataset[0]
    dataset.close()
    assert dataset[0] == (shapes.samples[0]["key"],)


def test_what_is_no_store_is_refused_when_the_dataset_is_made(tmp_path):
    """A wrong path must not wait for the first batch."""
    with pytest.raises(StoreNotFoundError, match="nowhere: nothing there"):
        LMDBDataset(tmp_path / "nowhere")
    with pytest.raises(StoreIncompleteError, match=r"no manifest\.json in it"):
        LMDBDataset(tmp_path)


def test_a_truncated_shard_is_an_error_that_names_it(shapes, copy_store):
    """A file that was cut short must not end the process with a signal."""
    path = copy_store(shapes.path)
    dataset = LMDBDataset(path)
    shard = path / "shard-00002.lmdb"
    os.truncate(shard, shard.stat().st_size - 4096)
    assert dataset[5]["key"] == shapes.samples[5]["key"]
    for read in (lambda: dataset[6], lambda: dataset.__getitems__([0, 6])):
        with pytest.raises(ShardError, match=r"shard-00002.lmdb: .* bytes, expected") as caught:
            read()
        assert caught.value.path == shard


def test_a_damaged_record_is_an_error_that_names_the_sample(tmp_path, write_store):
    """Bytes that are no record give the shard, the sample in it and what to run."""
    fields = [KEY, Field(name="box", kind="array", dtype="float32", shape=(None, 4))]
    samples = [{"key": f"k{at}", "box": np.full((2, 4), at, np.float32)} for at in range(3)]
    path = write_store(tmp_path / "s", fields, samples, (1, 2))
    shard = path / "shard-00001.lmdb"
    data = bytearray(shard.read_bytes())
    # The header of sample 1 of the shard: ends of `key` and `box`, then how many boxes.
    place = data.index((18).to_bytes(4, "little") + (50).to_bytes(4, "little"), 8192)
    start = data.index(b"k2") - 16
    assert data[start : start + 4] == data[place : place + 4]
    data[start + 4 : start + 8] = (60).to_bytes(4, "little")
    shard.write_bytes(data)
    dataset = LMDBDataset(path)
    assert dataset[1]["key"] == "k1"
    for read in (lambda: dataset[2], lambda: list(dataset.__getitems__([1, 2]))):
        with pytest.raises(ShardError, match=r"sample 1 of the shard: .*packer verify") as caught:
            read()
        assert (caught.value.path, caught.value.position) == (shard, 1)


def test_threads_may_share_a_dataset_that_is_still_closed(many_shards):
    """Shards are opened by whoever comes first; nobody gets another's sample or half a shard."""
    dataset = LMDBDataset(many_shards, returns=("key", "label", "image"))
    wrong, start = [], threading.Barrier(8)

    def read(seed):
        order = np.random.default_rng(seed).permutation(600)
        start.wait(60)
        for at in order.tolist():
            key, label, image = dataset[at]
            if (key, label, int(image[2, 1, 1])) != (f"{at:03d}", at % 10, at % 251):
                wrong.append(at)
        for part in np.split(order, 6):
            for at, (key, label, image) in zip(part, dataset.__getitems__(part), strict=True):
                if (key, label, int(image[2, 1, 1])) != (f"{at:03d}", at % 10, at % 251):
                    wrong.append(at)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong
    assert not any(thread.is_alive() for thread in threads)


def reads_at_random(path) -> list[bool]:
    """For each shard that this process has mapped: whether the kernel reads no neighbours."""
    found, is_ours = [], False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if line.startswith("VmFlags:"):
            if is_ours:
                found.append(" rr" in line)
            is_ours = False
        elif line.endswith(".lmdb"):
            is_ours = str(path) in line
    return found


def test_the_kernel_reads_neighbours_only_when_asked_to(shapes, copy_store):
    """A shuffled pass does not want them; a pass in order does, whichever shards are open."""
    path = copy_store(shapes.path)
    shuffled = LMDBDataset(path)
    assert shuffled.key_of(0)
    assert reads_at_random(path) == [True]
    in_order = LMDBDataset(path, io="read-ahead")
    assert [in_order[at]["key"] for at in range(12)] == [shuffled.key_of(at) for at in range(12)]
    assert reads_at_random(path) == [False, False, False]
    assert pickle.loads(pickle.dumps(in_order)).view.io == "read-ahead"
    with pytest.raises(ValueError, match="one of auto, map, read, read-ahead; got 'direct'"):
        LMDBDataset(path, io="direct")
