"""Samples become a batch field by field: what can be stacked is, what cannot stays a list."""

from __future__ import annotations

from collections import OrderedDict, UserDict
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image

from readers.reading.collate import collate


def test_equal_tensors_are_stacked_in_dicts_and_tuples(same):
    """A batch has the form of its samples, with one more axis in front."""
    a, b = torch.arange(6).view(2, 3), torch.arange(6, 12).view(2, 3)
    stacked = torch.arange(12).view(2, 2, 3)
    assert same(collate([{"x": a, "n": 1}, {"x": b, "n": 2}]), {"x": stacked, "n": _ints(1, 2)})
    assert same(collate([(a, 1), (b, 2)]), (stacked, _ints(1, 2)))
    assert same(collate([[a, 1], [b, 2]]), [stacked, _ints(1, 2)])
    assert same(collate([a, b]), stacked)
    assert same(collate([(a,)]), (stacked[:1],))


def _ints(*numbers):
    return torch.tensor(numbers)


def test_arrays_become_tensors(same):
    """numpy's arrays and numbers are joined as torch's own collation does it."""
    a, b = np.ones((2, 1), np.float32), np.zeros((2, 1), np.float32)
    assert same(collate([(a,), (b,)]), (torch.tensor([[[1.0], [1.0]], [[0.0], [0.0]]]),))
    assert same(collate([np.int16(3), np.int16(4)]), torch.tensor([3, 4], dtype=torch.int16))
    assert same(collate([np.bool_(True), np.bool_(False)]), torch.tensor([True, False]))


def test_numbers_become_tensors(same):
    """Bools, whole numbers and fractions have torch's usual element types."""
    assert same(collate([(True, 1, 0.5), (False, 2, 1.5)])[0], torch.tensor([True, False]))
    assert same(collate([1, 2]), torch.tensor([1, 2]))
    assert same(collate([0.5, 2]), torch.tensor([0.5, 2.0], dtype=torch.float64))


def test_what_cannot_be_stacked_stays_a_list(same):
    """Other shapes or element types, texts, pictures and nothing at all are no error."""
    a, b = torch.zeros(2, 3), torch.zeros(2, 4)
    assert same(collate([{"x": a}, {"x": b}]), {"x": [a, b]})
    assert same(collate([(a,), (a.int(),)]), ([a, a.int()],))
    assert same(collate([(a.numpy(),), (b.numpy(),)]), ([a.numpy(), b.numpy()],))
    assert same(collate([(a,), (a.numpy(),)]), ([a, a.numpy()],))
    assert collate([("ä",), ("b",)]) == (["ä", "b"],)
    assert collate([(b"a",), (b"b",)]) == ([b"a", b"b"],)
    assert collate([(None,), (1,)]) == ([None, 1],)
    assert collate([(1,), (None,)]) == ([1, None],)
    assert same(collate([(a,), (None,)]), ([a, None],))
    image = Image.new("L", (2, 2))
    assert collate([(image,), (image,)]) == ([image, image],)


def test_what_lies_deeper_is_joined_in_the_same_way(same):
    """Dicts and tuples within a sample, unequal boxes within those: a detection target."""
    boxes = [torch.zeros(2, 4), torch.ones(3, 4)]
    samples = [
        {"target": {"boxes": boxes[at], "id": at, "size": (at, 2)}, "pair": (at, "x")}
        for at in range(2)
    ]
    assert same(
        collate(samples),
        {
            "target": {"boxes": boxes, "id": _ints(0, 1), "size": (_ints(0, 1), _ints(2, 2))},
            "pair": (_ints(0, 1), ["x", "x"]),
        },
    )


def test_dicts_and_tuples_that_differ_stay_a_list():
    """JSON has whatever each sample had; nothing of it is lost or made up."""
    assert collate([{"extra": {"a": 1}}, {"extra": {"b": 2}}]) == {"extra": [{"a": 1}, {"b": 2}]}
    assert collate([{"extra": {"a": 1}}, {"extra": None}]) == {"extra": [{"a": 1}, None]}
    assert collate([((1,),), ((1, 2),)]) == ([(1,), (1, 2)],)
    assert collate([{"list": [1, 2]}, {"list": []}]) == {"list": [[1, 2], []]}


class Pair(NamedTuple):
    image: torch.Tensor
    label: int


def test_a_named_tuple_keeps_its_names(same):
    """Whoever asks for batch.label still may."""
    batch = collate([Pair(torch.zeros(2), 1), Pair(torch.ones(2), 2)])
    assert isinstance(batch, Pair)
    assert same(batch.label, _ints(1, 2))
    assert same(batch.image, torch.tensor([[0.0, 0.0], [1.0, 1.0]]))


@dataclass(frozen=True)
class Target:
    boxes: torch.Tensor
    label: int


def test_a_dataclass_is_joined_by_its_fields(same):
    """As a sample and within one; of other classes beside it, each stays what it is."""
    targets = [Target(torch.zeros(2, 4), 1), Target(torch.ones(3, 4), 2)]
    for batch in (collate(targets), collate([{"target": one} for one in targets])["target"]):
        assert isinstance(batch, Target)
        assert same(batch.label, _ints(1, 2))
        assert same(batch.boxes, [targets[0].boxes, targets[1].boxes])
    other = Pair(torch.zeros(2), 1)
    assert collate([(targets[0],), (other,)])[0] == [targets[0], other]


def test_a_dict_keeps_its_type(same):
    """One of another library's that is none of Python's becomes one."""
    ordered = collate([OrderedDict(b=1, a=2), OrderedDict(b=3, a=4)])
    assert type(ordered) is OrderedDict
    assert list(ordered) == ["b", "a"]
    assert same(dict(ordered), {"b": _ints(1, 3), "a": _ints(2, 4)})
    user = collate([UserDict(a=1), UserDict(a=2)])
    assert type(user) is dict
    assert same(user, {"a": _ints(1, 2)})
