"""What is random in an op depends on the sample alone, is spread evenly, and never changes."""

from __future__ import annotations

import numpy as np

from readers.ops import (
    ColorJitter,
    Pad,
    RandomAffine,
    RandomFlip,
    RandomResizedCrop,
    RandomRotation90,
    RandomVerticalFlip,
)
from readers.ops.image_plan import compile_ops


def test_what_is_drawn_for_an_op_depends_on_no_other():
    """With others before and after it, a flip flips the same samples, and a turn is as far."""
    ops = [RandomVerticalFlip(0.3), RandomRotation90(0.7), RandomAffine(90), ColorJitter(0.5)]
    indices = range(40)

    def drawn(*others):
        return compile_ops([RandomResizedCrop(8), *others]).draw(30, 40, 5, 6, indices)

    bare = drawn()
    for params in (drawn(*ops), drawn(*ops[::-1]), drawn(Pad(1), RandomFlip(), *ops[1:])):
        assert np.array_equal(params.windows, bare.windows)
        assert np.array_equal(params.colors, drawn(ops[3]).colors)
    for op in ops[:2]:
        alone = drawn(op)
        assert 5 < (alone.orientations != 0).sum() < 35
        assert np.array_equal(drawn(op, ops[3]).orientations, alone.orientations)
    # After both flips an affine goes on from another image, but by the same.
    plain, after = drawn(ops[2]), drawn(RandomVerticalFlip(1), ops[2])
    flip = np.array([[1, 0, 0], [0, -1, 8], [0, 0, 1]])
    moved = np.array([[0, 0, 1], [8, 0, 1], [0, 8, 1]]).T

    def through(params, points):
        crops = compile_ops([RandomResizedCrop(8)]).draw(30, 40, 5, 6, indices).affines
        whole = np.concatenate([crops, np.tile([[[0.0, 0, 1]]], (40, 1, 1))], axis=1)
        return params.affines @ np.linalg.inv(whole) @ points

    assert np.allclose(through(after, moved), through(plain, flip @ moved), atol=1e-9)


def test_chances_of_every_op_never_change():
    """A seed means the same in every release: these turns, moves and factors stay as they are."""
    ops = [
        RandomVerticalFlip(),
        RandomRotation90(),
        RandomAffine(30, (0.2, 0.1), (0.5, 2), (-9, 9, -4, 4)),
        ColorJitter(0.4, 0.3, 0.2),
    ]
    params = compile_ops(ops, image_size=(40, 40)).draw(40, 40, 1, 2, range(12))
    upright = compile_ops(ops[:2], image_size=(40, 40)).draw(40, 40, 1, 2, range(12))
    assert upright.orientations.tolist() == [2, 7, 3, 5, 7, 5, 5, 7, 6, 7, 2, 0]
    affines = [
        [
            [0.5664478315, -0.3091742456, 14.8545282819],
            [-0.2474484046, -0.5391172082, 38.7313122574],
        ],
        [
            [0.2749034372, -1.5790550708, 43.0830326714],
            [-1.6265032807, -0.4620036731, 59.7701390763],
        ],
    ]
    assert np.allclose(params.affines[:2], affines, rtol=0, atol=1e-9)
    colors = [
        [0.9674243222, 1.135560137, 1.0320120738, 1],
        [0.9579244726, 1.0165539238, 0.9422907484, 0],
        [1.2086042799, 0.9858203567, 0.8401471405, 3],
    ]
    assert np.allclose(params.colors[:3], colors, rtol=0, atol=1e-9)


def test_quarter_turns_come_equally_often():
    """Each of those given, to 4 standard deviations of 40,000 draws; without p, no turn at all."""
    count = 40_000
    for turns, p in (((0, 1, 2, 3), 1.0), ((1, 3), 1.0), ((1, 2, 3), 0.6), ((2,), 0.0)):
        plan = compile_ops([RandomRotation90(p, turns)], image_size=(4, 4))
        params = plan.draw(4, 4, 9, 0, np.arange(count))
        codes = {0: 0, 1: 6, 2: 3, 3: 5}  # Bits: left and right, up and down, transposed.
        shares = {turn: p * turns.count(turn) / len(turns) for turn in range(4)}
        shares[0] += 1 - p
        for turn, share in shares.items():
            found = (params.orientations == codes[turn]).mean()
            assert abs(found - share) <= 4 * np.sqrt(share * (1 - share) / count)


def test_angles_shifts_scales_and_shears_are_uniform():
    """Means and ends of 20,000 draws, and shifts in whole pixels."""
    plan = compile_ops([RandomAffine((-30, 90), (0.25, 0.5), (0.5, 1.5))], image_size=(40, 80))
    affines = plan.draw(40, 80, 2, 0, np.arange(20_000)).affines
    angles = np.degrees(np.arctan2(affines[:, 1, 0], affines[:, 0, 0]))
    scales = np.hypot(affines[:, 0, 0], affines[:, 1, 0])
    middles = affines[:, :, :2] @ [40, 20] + affines[:, :, 2] - [40, 20]
    assert np.abs(middles - np.rint(middles)).max() < 1e-9
    for values, low, high in (
        (angles, -30, 90),
        (scales, 0.5, 1.5),
        (middles[:, 0], -20, 20),
        (middles[:, 1], -20, 20),
    ):
        assert low - 1e-9 <= values.min() < low + 0.02 * (high - low)
        assert high - 0.02 * (high - low) < values.max() <= high + 1e-9
        assert abs(values.mean() - (low + high) / 2) < 0.02 * (high - low)
