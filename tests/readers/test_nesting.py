"""What a container is, for all that goes through a batch."""

from __future__ import annotations

from collections import OrderedDict, UserDict, namedtuple
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from readers.nesting import mapped, moves_itself, parts_of, rebuilt

Pair = namedtuple("Pair", "left right")


@dataclass(frozen=True)
class Sample:
    image: int
    name: str

    def __post_init__(self):
        assert self.image < 10


class Checked(Pair):
    """A named tuple that takes no parts but its own."""

    def __new__(cls, left, right):
        assert left < 10
        return super().__new__(cls, left, right)


class Closed(dict):
    """A dict that lets nobody fill it, as the outputs of Hugging Face's models."""

    def update(self, *parts):
        raise Exception("no update here")


def doubled(value):
    return value * 10 if type(value) is int else mapped(value, lambda part, _: doubled(part))


CONTAINERS = [
    ({"a": 1, "b": 2}, {"a": 1, "b": 2}),
    (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
    (UserDict(a=1), {"a": 1}),
    ([1, 2], {0: 1, 1: 2}),
    ((1, 2), {0: 1, 1: 2}),
    (Pair(1, 2), {0: 1, 1: 2}),
    (Checked(1, 2), {0: 1, 1: 2}),
    (Sample(1, "s"), {"image": 1, "name": "s"}),
]


@pytest.mark.parametrize(("value", "parts"), CONTAINERS, ids=lambda value: type(value).__name__)
def test_a_container_is_taken_apart_and_made_of_other_parts(value, parts):
    """Of each kind come the parts, and of changed ones one of the same type; the first is left."""
    assert parts_of(value) == parts
    changed = doubled(value)
    assert type(changed) is type(value)
    assert parts_of(changed) == {key: doubled(part) for key, part in parts.items()}
    assert parts_of(value) == parts


@pytest.mark.parametrize(
    "value", ["text", b"bytes", 3, None, np.arange(3), torch.zeros(2), range(3), {1}, Sample, dict]
)
def test_anything_else_is_no_container(value):
    """Texts, arrays, tensors, ranges, sets and classes have no parts, and come back themselves."""
    assert parts_of(value) is None
    assert mapped(value, lambda part, key: None) is value


def test_what_does_not_change_is_the_same_object():
    """So a batch without tensors costs no copy, and a type that cannot be made anew stays."""
    batch = [{"names": ["a", "b"], "size": torch.Size([3, 4])}, Sample(1, "s")]
    assert mapped(batch, lambda part, key: mapped(part, lambda part, key: part)) is batch


def test_a_type_that_cannot_be_made_of_parts_gives_way_to_a_plain_one():
    """A batch comes through whatever a class says of its parts."""

    class Table(Mapping):
        def __init__(self, parts, title):
            self.parts = parts

        def __getitem__(self, key):
            return self.parts[key]

        def __iter__(self):
            return iter(self.parts)

        def __len__(self):
            return len(self.parts)

    class Grid(tuple):
        __slots__ = ()

        def __new__(cls, parts, width):
            return super().__new__(cls, parts)

    for value in (Table({"a": 1}, "title"), Closed(a=1)):
        assert type(rebuilt(value, {"a": 2})) is dict
        assert rebuilt(value, {"a": 2}) == {"a": 2}
    assert type(rebuilt(Grid([1], 1), {0: 2})) is tuple


def test_what_moves_itself_is_not_taken_apart():
    """A packed sequence is a named tuple, and yet one thing."""
    packed = pack_sequence([torch.zeros(2), torch.zeros(1)])
    assert moves_itself(packed)
    assert not any(map(moves_itself, ("to", torch.Tensor, {"to": 1}, None)))
    assert mapped(packed, lambda part, key: None) is packed
