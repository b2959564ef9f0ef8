"""Sequences of ops move pixels, masks and points as plain formulas do, one after the other."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from readers.ops import (
    CenterCrop,
    Letterbox,
    Pad,
    RandomAffine,
    RandomFlip,
    RandomResizedCrop,
    RandomRotation90,
    RandomVerticalFlip,
    Resize,
)
from readers.ops.image_plan import compile_ops
from readers.ops.operations import height_width
from tests.readers.ops.slow_ops import IMAGE, carried_out, linear, nearest

ANY = RandomAffine(180, (0.2, 0.3), (0.6, 1.5), (-20, 20, -10, 25), fill=30)
MOVES = {
    "flip": [RandomFlip(0.5)],
    "flip down": [RandomVerticalFlip(0.5)],
    "both flips": [RandomVerticalFlip(0.6), RandomFlip(0.4)],
    "quarters": [RandomRotation90(0.8)],
    "half turns": [RandomRotation90(turns=(2,))],
    "turned, then flipped": [RandomRotation90(), RandomFlip(), RandomVerticalFlip()],
    "flipped, then turned": [RandomVerticalFlip(), RandomFlip(), RandomRotation90()],
    "pad": [Pad((1, 2, 5, 4), fill=77)],
    "pad, then flipped and turned": [Pad((1, 2, 5, 4), fill=77), RandomFlip(), RandomRotation90()],
    "turn": [RandomAffine(45)],
    "right angle": [RandomAffine((90, 90))],
    "nothing": [RandomAffine(0)],
    "shift": [RandomAffine(0, translate=(0.5, 0.5), fill=200)],
    "shear": [RandomAffine(0, shear=(-30, 30, -30, 30))],
    "affine": [ANY],
    "flipped, turned, affine": [RandomFlip(), RandomRotation90(), ANY],
    "affine, then flipped and turned": [ANY, RandomRotation90(), RandomVerticalFlip()],
    "pad, then affine": [Pad((4, 6, 2, 0), fill=200), ANY],
    "affine, then pad": [ANY, Pad((4, 6, 2, 0), fill=200), RandomFlip()],
}
SIZED = {
    "crop": RandomResizedCrop((50, 50), scale=(0.05, 1)),
    "cut": CenterCrop(50),
    "smaller": CenterCrop((80, 80)),
    "resize": Resize((50, 50)),
    "letterbox": Letterbox((50, 50)),
}
KINDS = [(3, "uint8"), (1, "uint8"), (4, "uint8"), (3, "uint16"), (5, "uint8")]
SEEDS = range(6)


def smooth(height, width, channel_count=3, dtype="uint8"):
    """An image without edges, so that a tenth of a pixel is few levels."""
    small = np.random.default_rng(1).integers(20, 236, (4, 5, channel_count)).astype(np.float32)
    image = np.clip(cv2.resize(small, (width, height), interpolation=cv2.INTER_LINEAR), 0, 255)
    factor = 1 if dtype == "uint8" else 256
    return (image.reshape(height, width, channel_count) * factor).astype(dtype)


def drawn(first, others, image, seed, index=5):
    """The plan, its numbers for this image, and those of the op that fixes the size alone."""
    channel_count, dtype = image.shape[2], image.dtype.name
    plan = compile_ops([first, *others], channel_count, dtype)
    alone = compile_ops([first], channel_count, dtype)
    height, width = image.shape[:2]
    return plan, *(p.draw(height, width, seed, 0, [index]) for p in (plan, alone))


def expected_at(first, others, alone, image, seed, size, read, index=5):
    """Values at the middles of all pixels, what they are of, and where either is certain.

    What they are of is not where something else begins less than a pixel away: there, pixels are
    mixed. Ids are not where another one begins less than a fiftieth of a pixel away.
    """
    top, left, height, width = alone.windows[0]
    window = image[top : top + height, left : left + width]
    pad = first.pad if isinstance(first, Letterbox) else 0
    canvas, found_size = carried_out(
        height_width(first), others, alone, window, seed, index, read, pad
    )
    assert found_size == size
    y, x = np.mgrid[: size[0], : size[1]] + 0.5
    values, found = canvas(x, y)
    certain, same = np.ones(size, bool), np.ones(size, bool)
    for right, down in ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1)):
        certain &= canvas(x + right, y + down)[1] == found
        near = canvas(x + 0.02 * right, y + 0.02 * down)[0]
        same &= (near == values).all(axis=2)
    return values, found, certain, same


@pytest.mark.parametrize("first", SIZED.values(), ids=SIZED)
@pytest.mark.parametrize("others", MOVES.values(), ids=MOVES)
def test_pixels_come_from_where_each_op_says(first, others):
    """For every sequence: interpolated once, and beside the image the value of the op it is of."""
    image = smooth(56, 70)
    seen = set()
    for seed in SEEDS:
        plan, params, alone = drawn(first, others, image, seed)
        out = np.full(plan.shape, 99, np.uint8)
        plan.apply(image, params, 0, out)
        values, found, certain, _ = expected_at(
            first, others, alone, image, seed, plan.size, linear
        )
        assert certain.mean() > 0.3
        assert np.abs(out - values)[certain].max() <= 3
        is_beside = certain & (found != IMAGE)
        assert (out == values)[is_beside].all()
        seen.add(out.tobytes())
    is_random = any(type(op).__name__.startswith("Random") for op in [first, *others])
    fixed = others in (MOVES["half turns"], MOVES["right angle"], MOVES["nothing"])
    assert len(seen) > 1 or not is_random or fixed


@pytest.mark.parametrize(("channel_count", "dtype"), KINDS)
@pytest.mark.parametrize("name", ["quarters", "affine", "affine, then pad", "flipped, then turned"])
def test_all_kinds_of_images_are_moved_alike(channel_count, dtype, name):
    """Gray, colour, alpha, more channels and 16 bits."""
    others = MOVES[name]
    image = smooth(40, 70, channel_count, dtype)
    level = 1 if dtype == "uint8" else 256
    for first in (SIZED["crop"], SIZED["letterbox"]):
        for seed in SEEDS:
            plan, params, alone = drawn(first, others, image, seed)
            out = np.empty(plan.shape, dtype)
            plan.apply(image, params, 0, out)
            values, _, certain, _ = expected_at(
                first, others, alone, image, seed, plan.size, linear
            )
            assert np.abs(out.astype(float) - values)[certain].max() <= 4 * level


@pytest.mark.parametrize("dtype", ["uint8", "int32"])
@pytest.mark.parametrize("first", SIZED.values(), ids=SIZED)
@pytest.mark.parametrize("others", MOVES.values(), ids=MOVES)
def test_masks_have_the_id_of_the_pixel_that_each_middle_lies_in(first, others, dtype):
    """No id arises that was not there, and beside the image stands the given one alone."""
    image = smooth(56, 70)
    ids = np.random.default_rng(2).integers(0, 200, (56, 70)).astype(dtype)
    for seed in SEEDS:
        plan, params, alone = drawn(first, others, image, seed)
        out = np.full(plan.size, 99, dtype)
        plan.apply_mask(ids, params, 0, 255, out)
        values, found, certain, same = expected_at(
            first, others, alone, ids[:, :, None], seed, plan.size, nearest
        )
        expected = np.where(found == IMAGE, values[:, :, 0], 255)
        wrong = expected != out
        assert not wrong[certain & (found != IMAGE)].any()
        assert set(np.unique(out)) <= {*np.unique(ids), 255}
        assert not wrong[same].any()


@pytest.mark.parametrize("first", SIZED.values(), ids=SIZED)
@pytest.mark.parametrize("others", MOVES.values(), ids=MOVES)
def test_a_dot_is_where_its_point_is_taken(first, others):
    """The affine of a sample takes a point to the middle of what was painted around it."""
    found_count = 0
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        height, width = 56, 70
        point = rng.uniform([15, 15], [55, 41])
        y, x = np.mgrid[:height, :width] + 0.5
        spot = np.exp(-((x - point[0]) ** 2 + (y - point[1]) ** 2) / 8)
        image = (250 * spot).astype(np.uint8)[:, :, None]
        others_on_black = [
            type(op)(**{**vars(op), "fill": 0}) if hasattr(op, "fill") else op for op in others
        ]
        plain = Letterbox(first.size, pad=0) if isinstance(first, Letterbox) else first
        plan, params, _ = drawn(plain, others_on_black, image, seed)
        out = np.empty(plan.shape, np.uint8)
        plan.apply(image, params, 0, out)
        top, left, window_height, window_width = params.windows[0]
        inner = point - [left, top]
        is_whole = (inner > 9).all() and (inner < [window_width - 9, window_height - 9]).all()
        affine = plan.affine(params, 0)
        moved = affine[:, :2] @ point + affine[:, 2]
        reach = 8 * max(1, np.abs(np.linalg.svd(affine[:, :2])[1]).max())
        limits = np.array(plan.size[::-1])
        if not is_whole or not ((moved > reach) & (moved < limits - reach)).all():
            continue
        weights = out[:, :, 0].astype(float)
        y, x = np.mgrid[: plan.size[0], : plan.size[1]] + 0.5
        middle = np.array([(x * weights).sum(), (y * weights).sum()]) / weights.sum()
        assert np.abs(middle - moved).max() < 0.25 * max(1, reach / 8)
        found_count += 1
    assert found_count or isinstance(first, RandomResizedCrop) or "shift" in str(others)


def test_an_affine_that_changes_nothing_leaves_every_pixel():
    """Read once, at the middles of pixels, an image that is not resized comes out as it went in."""
    image = np.random.default_rng(0).integers(0, 256, (40, 50, 3)).astype(np.uint8)
    plan = compile_ops([RandomAffine(0)], image_size=(40, 50))
    out = np.empty(plan.shape, np.uint8)
    plan.apply(image, plan.draw(40, 50, 0, 0, [0]), 0, out)
    assert np.array_equal(out, image)


def test_an_enlarged_image_has_a_border_of_one_pixel():
    """Its outermost pixels are not mixed with what lies beside them over their whole width."""
    white = np.full((8, 8, 1), 255, np.uint8)
    for turn in (0, 90):
        plan = compile_ops([Resize(80), RandomAffine((turn, turn))], 1)
        out = np.empty(plan.shape, np.uint8)
        plan.apply(white, plan.draw(8, 8, 0, 0, [0]), 0, out)
        assert (out == 255).all()


@pytest.mark.parametrize("interpolation", ["area", "auto"])
def test_a_shrunk_image_is_averaged_before_it_is_turned(interpolation):
    """Stripes become gray, where 2 x 2 pixels would see some of them alone."""
    stripes = np.zeros((160, 160, 1), np.uint8)
    stripes[:, 1::4] = 255
    plan = compile_ops([Resize(40), RandomAffine((20, 20))], 1, interpolation=interpolation)
    out = np.empty(plan.shape, np.uint8)
    plan.apply(stripes, plan.draw(160, 160, 0, 0, [0]), 0, out)
    assert (np.abs(out[15:25, 15:25].astype(int) - 64) <= 1).all()


def test_an_image_too_large_to_warp_is_resized_first():
    """OpenCV warps sides up to 32,766 pixels; longer images are read all the same, and masks."""
    image = np.full((2, 40_000, 1), 200, np.uint8)
    image[:, :20_000] = 100
    plan = compile_ops([Resize(32), RandomAffine((180, 180))], 1)
    params = plan.draw(2, 40_000, 0, 0, [0])
    out, mask = np.empty(plan.shape, np.uint8), np.empty(plan.size, np.uint8)
    plan.apply(image, params, 0, out)
    plan.apply_mask(image[:, :, 0], params, 0, 255, mask)
    for found in (out[:, :, 0], mask):
        assert (found[:, :15] == 200).all()
        assert (found[:, 17:] == 100).all()


def test_a_decoded_window_does_as_well_as_the_image():
    """A decoder that knows the window need not decode the rest, also where it is warped."""
    image = smooth(56, 70)
    for others in MOVES.values():
        plan, params, _ = drawn(SIZED["crop"], others, image, 3)
        whole, part = np.empty(plan.shape, np.uint8), np.empty(plan.shape, np.uint8)
        top, left, height, width = params.windows[0]
        plan.apply(image, params, 0, whole)
        window = image[top : top + height, left : left + width].copy()
        plan.apply_window(window, params, 0, part)
        assert np.array_equal(whole, part)


def test_results_may_be_parts_of_larger_arrays():
    """Rows of the place in the batch may lie apart in memory, and nothing beside it is written."""
    image = smooth(56, 70)
    for others in MOVES.values():
        plan, params, _ = drawn(SIZED["letterbox"], others, image, 2)
        height, width = plan.size
        wall = np.full((height + 6, width + 9, 3), 7, np.uint8)
        alone = np.empty(plan.shape, np.uint8)
        plan.apply(image, params, 0, alone)
        place = wall[3 : 3 + height, 4 : 4 + width]
        plan.apply(image, params, 0, place)
        assert np.array_equal(place, alone)
        place[:] = 7
        assert (wall == 7).all()
