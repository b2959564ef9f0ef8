"""Ops give what torchvision's transforms of version 2 give, with the same numbers.

torchvision is not among what the project needs. Where it is not installed these tests are skipped;
those of test_geometry.py and test_colors.py hold ops against plain formulas.
"""

from __future__ import annotations

import cv2
import numpy as np
import pytest
import torch

from readers.ops import (
    CenterCrop,
    ColorJitter,
    Pad,
    RandomAffine,
    RandomFlip,
    RandomRotation90,
    RandomVerticalFlip,
)
from readers.ops.boxes import cut, hulls
from readers.ops.image_plan import compile_ops
from readers.ops.table import COLOR_ORDERS
from tests.vision import need_torchvision

need_torchvision()

from torchvision import tv_tensors  # noqa: E402
from torchvision.transforms import v2 as transforms  # noqa: E402
from torchvision.transforms.v2 import functional as v2  # noqa: E402

SIZE = (44, 60)
AFFINES = [
    RandomAffine(40),
    RandomAffine((90, 90)),
    RandomAffine(0, translate=(0.3, 0.2), fill=50),
    RandomAffine(0, scale=(0.5, 1.6), fill=(9, 200, 77)),
    RandomAffine(0, shear=30),
    RandomAffine(180, (0.1, 0.1), (0.7, 1.3), (-20, 10, -15, 25), fill=114),
]


def smooth(channel_count=3, size=SIZE):
    small = np.random.default_rng(3).integers(0, 256, (6, 8, channel_count)).astype(np.uint8)
    return cv2.resize(small, size[::-1], interpolation=cv2.INTER_CUBIC).reshape(*size, -1)


def result_of(ops, pixels, seed):
    plan = compile_ops(ops, pixels.shape[2], image_size=SIZE)
    params = plan.draw(*SIZE, seed, 0, [0])
    out = np.empty(plan.shape, np.uint8)
    plan.apply(pixels, params, 0, out)
    return plan, params, out


def arguments_of(op, seed):
    """torchvision's arguments for what was drawn: angle, translate, scale and shear."""
    from readers.chance.streams import AFFINE, Numbers

    drawn = Numbers([AFFINE], seed, 0, [0])[AFFINE][0]

    def between(low, high, at):
        return low + (high - low) * drawn[at]

    shares = op.translate or (0, 0)
    moved = [
        round(between(-share * side, share * side, at))
        for share, side, at in ((shares[0], SIZE[1], 1), (shares[1], SIZE[0], 2))
    ]
    shear = (*(op.shear or (0, 0)), 0, 0)[:4]
    return {
        "angle": between(*op.degrees, 0),
        "translate": moved,
        "scale": between(*(op.scale or (1, 1)), 3),
        "shear": [between(*shear[:2], 4), between(*shear[2:], 5)],
    }


@pytest.mark.parametrize("op", AFFINES, ids=range(len(AFFINES)))
@pytest.mark.parametrize("seed", range(4))
def test_an_affine_is_torchvisions(op, seed):
    """Pixels, what lies beside them, masks and boxes, for the same angle, shift, scale, shear."""
    pixels = smooth()
    plan, params, out = result_of([op], pixels, seed)
    arguments = arguments_of(op, seed)
    image = torch.from_numpy(pixels).permute(2, 0, 1)
    fill = list(op.fill) if isinstance(op.fill, tuple) else [op.fill] * 3
    expected = v2.affine(image, **arguments, interpolation=v2.InterpolationMode.BILINEAR, fill=fill)
    difference = np.abs(expected.permute(1, 2, 0).numpy().astype(int) - out).max(axis=2)
    # torchvision takes the share of a pixel that lies half on the border twice, and darkens it.
    white = torch.full((1, *SIZE), 255, dtype=torch.uint8)
    shares = v2.affine(white, **arguments, interpolation=v2.InterpolationMode.BILINEAR, fill=None)[
        0
    ].numpy()
    is_border = (shares > 0) & (shares < 255)
    assert difference[~is_border].max() <= 1
    assert difference.max() <= 65

    boxes = np.array([[5, 6, 30, 20], [0, 0, 60, 44], [40, 30, 58, 43]], np.float32)
    theirs = v2.affine(
        tv_tensors.BoundingBoxes(boxes, format="XYXY", canvas_size=SIZE), **arguments
    )
    affines = np.repeat(plan.affine(params, 0)[None], len(boxes), axis=0)
    ours, _ = cut(hulls(boxes, affines), np.array([0, 0, *SIZE[::-1]]))
    assert np.abs(theirs.numpy() - ours).max() < 1e-3

    ids = (np.arange(SIZE[0] * SIZE[1]).reshape(SIZE) % 251).astype(np.uint8)
    mask = np.empty(SIZE, np.uint8)
    plan.apply_mask(ids, params, 0, 255, mask)
    theirs = v2.affine(torch.from_numpy(ids)[None], **arguments, fill=[255])[0]
    assert (theirs.numpy() != mask).mean() < 0.01  # Middles that lie between two pixels.


def test_flips_turns_and_borders_are_torchvisions():
    """Every pixel is the same."""
    pixels = smooth()
    image = torch.from_numpy(pixels).permute(2, 0, 1)
    for ops, expected in (
        ([RandomFlip(1)], v2.horizontal_flip(image)),
        ([RandomVerticalFlip(1)], v2.vertical_flip(image)),
        ([RandomRotation90(turns=(2,))], v2.rotate(image, 180)),
        ([Pad(3, fill=8)], v2.pad(image, [3], fill=8)),
        ([Pad((3, 5), fill=(1, 2, 3))], v2.pad(image, [3, 5], fill=[1, 2, 3])),
        ([Pad((1, 2, 3, 4))], v2.pad(image, [1, 2, 3, 4])),
        ([CenterCrop((20, 80))], v2.center_crop(image, [20, 80])),
    ):
        _, _, out = result_of(ops, pixels, 0)
        assert np.array_equal(out, expected.permute(1, 2, 0).numpy()), ops


@pytest.mark.parametrize("turns", range(4))
def test_quarter_turns_go_the_way_of_torchvisions_rotate(turns):
    """Counter-clockwise."""
    pixels = smooth(size=(40, 40))
    plan = compile_ops([RandomRotation90(turns=(turns,))], image_size=(40, 40))
    out = np.empty(plan.shape, np.uint8)
    plan.apply(pixels, plan.draw(40, 40, 0, 0, [0]), 0, out)
    expected = v2.rotate(torch.from_numpy(pixels).permute(2, 0, 1), 90 * turns)
    assert np.array_equal(out, expected.permute(1, 2, 0).numpy())


@pytest.mark.parametrize("channel_count", [1, 3])
@pytest.mark.parametrize("seed", range(12))
def test_colors_are_torchvisions(channel_count, seed):
    """In the same order by the same factors, to one or two levels."""
    op = ColorJitter(0.4, (0.5, 1.8), 0.9)
    pixels = smooth(channel_count)
    _, params, out = result_of([op], pixels, seed)
    *factors, order = params.colors[0].tolist()
    image = torch.from_numpy(pixels).permute(2, 0, 1)
    steps = (v2.adjust_brightness, v2.adjust_contrast, v2.adjust_saturation)
    for step in COLOR_ORDERS[int(order)]:
        image = steps[step](image, factors[step])
    difference = np.abs(image.permute(1, 2, 0).numpy().astype(int) - out)
    assert difference.max() <= 2
    assert difference.mean() < 0.6


def test_numbers_are_drawn_from_torchvisions_ranges():
    """Read from torchvision's own transforms: what a number in place of a range means."""
    theirs = transforms.RandomAffine(30, (0.1, 0.2), (0.5, 2), 10)
    ours = RandomAffine(30, (0.1, 0.2), (0.5, 2), 10)
    assert list(ours.degrees) == theirs.degrees
    assert list(ours.shear) == theirs.shear
    assert (
        list(RandomAffine(0, shear=(1, 2)).shear) == transforms.RandomAffine(0, shear=(1, 2)).shear
    )
    for value in (0.3, 1.5, (0.2, 1.1)):
        jitter = transforms.ColorJitter(value, value, value)
        expected = [jitter.brightness, jitter.contrast, jitter.saturation]
        found = ColorJitter(value, value, value)
        assert [found.brightness, found.contrast, found.saturation] == [
            tuple(ends) for ends in expected
        ]
