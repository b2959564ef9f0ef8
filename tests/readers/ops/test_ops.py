"""Descriptions of image ops check themselves."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest

from readers.ops import (
    CenterCrop,
    ColorJitter,
    Letterbox,
    Pad,
    RandomAffine,
    RandomFlip,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomRotation90,
    RandomVerticalFlip,
    Resize,
)
from readers.ops.operations import height_width

SIZE_OPS = [RandomResizedCrop, CenterCrop, Resize, Letterbox]


@pytest.mark.parametrize("op", SIZE_OPS)
def test_a_size_is_a_pair_or_the_side_of_a_square(op):
    """One number means a square; both ways of writing it make equal objects."""
    assert height_width(op(224)) == (224, 224)
    assert op(224) == op((224, 224))
    assert hash(op(224)) == hash(op((224, 224)))
    assert height_width(op((3, 5))) == (3, 5)
    assert op((3, 5)) != op((5, 3))
    sides = height_width(op((np.int64(3), np.uint8(5))))
    assert [type(side) for side in sides] == [int, int]


@pytest.mark.parametrize("op", SIZE_OPS)
@pytest.mark.parametrize(
    ("size", "message"),
    [
        (0, r"size must be in \[1, 32768\); got 0"),
        ((5, -1), r"size must be in \[1, 32768\); got -1"),
        (32768, r"size must be in \[1, 32768\); got 32768"),
        (True, r"size must be in \[1, 32768\); got True"),
        (224.0, r"size must be a whole number; got 224.0"),
        ("224", r"size must be a whole number; got '224'"),
        ((1, 2, 3), r"size must be one side or \(height, width\); got \(1, 2, 3\)"),
    ],
)
def test_a_wrong_size_is_refused(op, size, message):
    """The message says the limit and the value."""
    with pytest.raises(ValueError, match=message):
        op(size)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RandomResizedCrop(8, scale=(0, 1)), r"scale must be two numbers above 0.*got \(0"),
        (lambda: RandomResizedCrop(8, scale=(0.5, 0.4)), r"scale must be .*the lesser first"),
        (lambda: RandomResizedCrop(8, scale=(0.5, 1.1)), r"scale must be in \(0, 1\]; got"),
        (lambda: RandomResizedCrop(8, scale=0.5), r"scale must be two numbers, .*got 0.5"),
        (lambda: RandomResizedCrop(8, scale=(math.nan, 1)), r"scale must be two numbers above 0"),
        (lambda: RandomResizedCrop(8, ratio=(1, math.inf)), r"ratio must be two numbers above 0"),
        (lambda: RandomResizedCrop(8, ratio=(2, 1)), r"ratio must be .*got \(2, 1\)"),
        (lambda: RandomResizedCrop(8, ratio=(1, 2e4)), r"ratio must be in \[1/10000, 10000\]"),
        (lambda: RandomResizedCrop(8, ratio=(1e-5, 1)), r"ratio must be in \[1/10000, 10000\]"),
        (lambda: Letterbox(8, pad=-1), r"pad must be in \[0, 65536\); got -1"),
        (lambda: Letterbox(8, pad=0.5), r"pad must be a whole number; got 0.5"),
        (lambda: RandomVerticalFlip(1.1), r"p must be in \[0, 1\]; got 1.1"),
        (lambda: RandomRotation90(-1), r"p must be in \[0, 1\]; got -1"),
        (lambda: RandomRotation90(turns=()), r"turns must be counts of quarters.*got \(\)"),
        (lambda: RandomRotation90(turns=(4,)), r"turns must be in \[0, 4\); got 4"),
        (lambda: RandomRotation90(turns=2), r"turns must be counts of quarters.*got 2"),
        (lambda: RandomAffine(-1), r"degrees must be a number of at least 0, .*got -1"),
        (lambda: RandomAffine(math.nan), r"degrees must be a number of at least 0, .*got nan"),
        (lambda: RandomAffine((5, -5)), r"degrees must have the lesser first; got \(5, -5\)"),
        (lambda: RandomAffine((1, 2, 3)), r"degrees must be 2 finite numbers; got \(1, 2, 3\)"),
        (lambda: RandomAffine("9"), r"degrees must be 2 finite numbers; got '9'"),
        (lambda: RandomAffine(0, 0.1), r"translate must be 2 finite numbers; got 0.1"),
        (lambda: RandomAffine(0, (0, 1.1)), r"translate must be shares .*\[0, 1\]; got \(0, 1.1"),
        (lambda: RandomAffine(0, scale=(0, 1)), r"scale must be two numbers above 0.*got \(0, 1"),
        (lambda: RandomAffine(0, scale=2), r"scale must be two numbers, .*got 2"),
        (lambda: RandomAffine(0, shear=90), r"shear must be degrees in \(-90, 90\); got 90"),
        (lambda: RandomAffine(0, shear=(1, 2, 3)), r"shear must be 2 or 4 finite numbers; got"),
        (lambda: RandomAffine(0, shear=(1, 2, 4, 3)), r"shear must have the lesser first; got"),
        (lambda: RandomAffine(0, fill=-1), r"fill must be in \[0, 65536\); got -1"),
        (lambda: RandomAffine(0, fill=()), r"fill must be one number, or one for each.*got \(\)"),
        (lambda: Pad(-1), r"padding must be in \[0, 32768\); got -1"),
        (lambda: Pad((1, 2, 3)), r"padding must be one number, .*got \(1, 2, 3\)"),
        (lambda: Pad(0.5), r"padding must be a whole number; got 0.5"),
        (lambda: Pad(1, fill=(0, 0.5)), r"fill must be a whole number; got 0.5"),
        (lambda: ColorJitter(-0.1), r"brightness must be a number of at least 0, .*got -0.1"),
        (lambda: ColorJitter(0, (2, 1)), r"contrast must be .*factor; got \(2, 1\)"),
        (lambda: ColorJitter(0, 0, (-1, 1)), r"saturation must be .*factor; got \(-1, 1\)"),
        (lambda: ColorJitter(math.inf), r"brightness must be .*got inf"),
        (lambda: ColorJitter("a"), r"brightness must be 2 finite numbers; got 'a'"),
        (lambda: RandomFlip(1.1), r"p must be in \[0, 1\]; got 1.1"),
        (lambda: RandomFlip(-0.1), r"p must be in \[0, 1\]; got -0.1"),
        (lambda: RandomFlip(math.nan), r"p must be in \[0, 1\]; got nan"),
    ],
)  # fmt: skip
def test_an_argument_out_of_range_is_refused(make, message):
    """The message names the argument, its limit and its value."""
    with pytest.raises(ValueError, match=message):
        make()


def test_defaults_are_those_that_users_know():
    """torchvision's of the crop and the flip, the usual gray of a letterbox."""
    assert RandomResizedCrop(8) == RandomResizedCrop(8, scale=(0.08, 1.0), ratio=(3 / 4, 4 / 3))
    assert RandomFlip() == RandomFlip(0.5)
    assert Letterbox(8).pad == 114


def test_one_number_stands_for_several():
    """As torchvision has it: around 0 or 1, on all sides, for all channels."""
    assert RandomAffine(9, shear=4) == RandomAffine((-9, 9), shear=(-4, 4))
    assert RandomAffine((1, 2), [0.1, 0.2], [1, 2], [1, 2, 3, 4]) == RandomAffine(
        (1.0, 2.0), (0.1, 0.2), (1.0, 2.0), (1.0, 2.0, 3.0, 4.0)
    )
    assert Pad(3) == Pad((3, 3)) == Pad((3, 3, 3, 3))
    assert Pad((1, 2)) == Pad([1, 2, 1, 2])
    assert ColorJitter(0.5, 2) == ColorJitter((0.5, 1.5), (0, 3), (1, 1))
    assert RandomHorizontalFlip(0.3) == RandomFlip(0.3)


@pytest.mark.parametrize(
    "op",
    [
        *[kind((3, 5)) for kind in SIZE_OPS],
        RandomFlip(0.25),
        RandomVerticalFlip(0.25),
        RandomRotation90(0.5, (1, 3)),
        RandomAffine(5, (0.1, 0.1), (0.5, 2), 3, (1, 2, 3)),
        Pad((1, 2), 7),
        ColorJitter(0.1, 0.2, 0.3),
    ],
)
def test_ops_travel_between_processes(op):
    """They come out of a pickle as they went in, and are small there."""
    data = pickle.dumps(op)
    assert pickle.loads(data) == op
    assert len(data) < 400
    assert eval(repr(op)) == op
    assert hash(pickle.loads(data)) == hash(op)
