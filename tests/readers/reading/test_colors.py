"""Brightness, contrast and saturation are what plain formulas say, and move nothing."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from readers.ops import ColorJitter, Letterbox, Pad, RandomAffine, RandomFlip, Resize
from readers.ops.colors import jitter
from readers.ops.image_plan import compile_ops
from readers.ops.table import COLOR_ORDERS


def noise(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)


def gray_of(pixels):
    if pixels.shape[2] == 1:
        return pixels[:, :, 0].astype(float)
    return np.floor(pixels[:, :, :3] @ np.array([0.2989, 0.587, 0.114]))


def by_hand(pixels, factors, order):
    """The steps in turn, each cut to [0, 255] and without its decimals; alpha aside."""
    colors = pixels[:, :, :3]
    for step in order:
        if step == 2 and pixels.shape[2] == 1:
            continue
        if step == 0:
            other = 0.0
        elif step == 1:
            other = gray_of(colors).mean()
        else:
            other = gray_of(colors)[:, :, None]
        levels = factors[step] * colors + (1 - factors[step]) * other
        colors = np.clip(levels, 0, 255).astype(np.uint8)
    return np.concatenate([colors, pixels[:, :, 3:]], axis=2)


@pytest.mark.parametrize("channel_count", [1, 3, 4])
@pytest.mark.parametrize("order", COLOR_ORDERS)
@pytest.mark.parametrize("factors", [(0.7, 1.4, 0.5), (1.3, 0.2, 1.9), (1, 1, 0), (0, 1.5, 1)])
def test_colors_are_those_of_the_formulas(channel_count, order, factors):
    """In each order; gray has no saturation, and alpha stays."""
    pixels = noise(30, 40, channel_count)
    found = pixels.copy()
    jitter(found, factors, order)
    difference = np.abs(found.astype(int) - by_hand(pixels, factors, order))
    assert difference.max() <= 3  # Each step may be one off, and contrast makes more of it.
    assert difference.mean() < 0.6
    if channel_count == 4:
        assert np.array_equal(found[:, :, 3], pixels[:, :, 3])


def test_a_factor_of_one_changes_nothing():
    """Not a level."""
    pixels = noise(30, 40, 3)
    found = pixels.copy()
    jitter(found, (1, 1, 1), (2, 1, 0))
    assert np.array_equal(found, pixels)
    plan = compile_ops([ColorJitter()], image_size=(30, 40))
    plan.apply(pixels, plan.draw(30, 40, 0, 0, [0]), 0, found)
    assert np.array_equal(found, pixels)


def test_a_part_of_an_array_is_changed_alone():
    """Rows of an image may lie apart in memory."""
    wall = noise(30, 40, 3)
    before = wall.copy()
    part = wall[5:20, 6:30]
    jitter(part, (0.5, 1.2, 0.3), (0, 1, 2))
    assert (
        np.abs(part.astype(int) - by_hand(before[5:20, 6:30], (0.5, 1.2, 0.3), (0, 1, 2))).max() < 3
    )
    wall[5:20, 6:30] = before[5:20, 6:30]
    assert np.array_equal(wall, before)


DARK = ColorJitter(brightness=(0.5, 0.5))
TURN = RandomAffine((30, 30), fill=200)


@pytest.mark.parametrize(
    ("ops", "border"),
    [
        ([Resize(60), DARK, Pad(4, fill=200)], 200),
        ([Resize(60), Pad(4, fill=200), DARK], 100),
        ([Resize(60), DARK, TURN], 200),
        ([Resize(30), DARK, TURN], 200),
        ([Resize(60), TURN, DARK], 100),
        ([Resize(20), TURN, DARK], 100),
        ([Resize(60), DARK, TURN, Pad(4, fill=200)], 200),
        ([Resize(60), TURN, DARK, Pad(4, fill=200)], 200),
        ([Resize(60), TURN, Pad(4, fill=200), DARK], 100),
        ([Letterbox((60, 90), pad=200), RandomFlip(1), DARK, TURN], 200),
        ([Letterbox((60, 90), pad=200), TURN, DARK], 100),
    ],
)  # fmt: skip
def test_colors_change_what_is_there_when_their_turn_comes(ops, border):
    """What an earlier op wrote beside the image changes with it; what a later one writes stays."""
    white = np.full((40, 40, 3), 240, np.uint8)
    plan = compile_ops(ops)
    out = np.empty(plan.shape, np.uint8)
    plan.apply(white, plan.draw(40, 40, 0, 0, [0]), 0, out)
    height, width = plan.size
    assert (out[0, 0] == border).all()
    assert (out[height // 2, width // 2] == 120).all()


def test_contrast_knows_the_mean_of_what_is_there():
    """Of the canvas of its turn: not of what a later op lays beside it."""
    image = cv2.resize(noise(6, 8, 3), (64, 64), interpolation=cv2.INTER_LINEAR)
    contrast = ColorJitter(contrast=(0, 0))
    mean = gray_of(image).mean()
    for other in (Pad(30), RandomAffine((45, 45), scale=(0.5, 0.5)), RandomAffine((90, 90))):
        plan = compile_ops([contrast, other], image_size=(64, 64))
        out = np.empty(plan.shape, np.uint8)
        plan.apply(image, plan.draw(64, 64, 0, 0, [0]), 0, out)
        height, width = plan.size
        assert abs(int(out[height // 2, width // 2, 0]) - mean) <= 2
