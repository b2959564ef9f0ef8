"""Ops write the right pixels at the right place, and say where that is."""

from __future__ import annotations

import pickle

import cv2
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from readers import augment
from readers.chance.random_state import uniforms
from readers.ops import (
    CenterCrop,
    ColorJitter,
    Letterbox,
    Pad,
    RandomAffine,
    RandomFlip,
    RandomResizedCrop,
    RandomRotation90,
    RandomVerticalFlip,
    Resize,
)
from readers.ops.boxes import cut, hulls
from readers.ops.image_plan import compile_ops

sides = st.integers(1, 60)
small_sizes = st.tuples(sides, sides)
seeds = st.integers(0, 2**64 - 1)
flip_shares = st.sampled_from([0, 1])
interpolations = st.sampled_from(["linear", "area", "auto"])


def size_ops(size):
    return [
        RandomResizedCrop(size),
        RandomResizedCrop(size, scale=(0.01, 0.1), ratio=(0.2, 5)),
        CenterCrop(size),
        Resize(size),
        Letterbox(size),
    ]


any_op = small_sizes.flatmap(lambda size: st.sampled_from(size_ops(size)))


def noise(*shape, dtype="uint8", seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, np.iinfo(dtype).max, shape, dtype, endpoint=True)


def applied(plan, pixels, params, i=0):
    """The result of one sample, written into the middle of a batch whose rest must not change."""
    batch = noise(3, *plan.shape, dtype=plan.dtype, seed=1)
    before = batch.copy()
    plan.apply(pixels, params, i, batch[1])
    assert np.array_equal(batch[[0, 2]], before[[0, 2]])
    return batch[1]


def ramps(height, width):
    """(height, width, 2) uint16: 64 times each pixel's x and y."""
    y, x = np.mgrid[:height, :width] * 64
    return np.stack([x, y], axis=2).astype(np.uint16)


def expected_ramps(params, size):
    """What ramps must become, by the affine alone: (*size, 2) and where the image lies.

    Every pixel of the result looks at one point of the image. Interpolated between two pixels, a
    ramp is straight, and beyond the window's outermost ones it is level. Averaged, it is stairs.
    """
    ys, xs = np.mgrid[: size[0], : size[1]] + 0.5
    (a, _, c), (_, e, f) = params.affines[0]
    sources = np.stack([(xs - c) / a, (ys - f) / e], axis=2)
    top, left, height, width = params.windows[0]
    low, span = np.array([left, top]), np.array([width, height])
    inside = ((sources > low) & (sources < low + span)).all(axis=2)
    if params.methods[0] == cv2.INTER_AREA:
        half = 0.5 / np.abs([a, e])
        return 64 * (below(sources + half) - below(sources - half)) / (2 * half), inside
    return 64 * (np.clip(sources, low + 0.5, low + span - 0.5) - 0.5), inside


def below(ends):
    """The area from 0 to `ends` under stairs, whose height over [k, k + 1) is k."""
    whole = np.floor(ends)
    return whole * (whole - 1) / 2 + whole * (ends - whole)


@settings(max_examples=max(300, settings.default.max_examples))
@given(any_op, small_sizes, flip_shares, interpolations, seeds)
def test_every_pixel_comes_from_where_the_affine_says(op, size, share, interpolation, seed):
    """For all ops, flips, odd and tiny sizes and windows at borders, to a 64th of a pixel or so."""
    plan = compile_ops([op, RandomFlip(share)], 2, "uint16", interpolation=interpolation)
    params = plan.draw(*size, seed, 0, [5])
    assert params.flips.tolist() == [share == 1]
    result = applied(plan, ramps(*size), params)
    expected, inside = expected_ramps(params, plan.size)
    place = np.zeros(plan.size, bool)
    top, left, height, width = params.placements[0]
    place[top : top + height, left : left + width] = True
    assert np.array_equal(place, inside)
    assert np.abs(result[inside] - expected[inside]).max() <= 2
    pad = 114 if isinstance(op, Letterbox) else 0
    assert (result[~inside] == pad).all()
    assert np.array_equal(plan.affine(params, 0), params.affines[0])


@given(any_op, st.tuples(st.integers(8, 60), st.integers(8, 60)), flip_shares, seeds)
def test_a_painted_patch_lands_in_its_moved_box(op, size, share, seed):
    """A box around a white patch is, moved, around what became of the patch."""
    height, width = size
    box = [width // 4, height // 3, width // 4 + width // 2, height // 3 + height // 2]
    pixels = np.zeros((height, width, 1), np.uint8)
    pixels[box[1] : box[3], box[0] : box[2]] = 255
    plan = compile_ops([op, RandomFlip(share)], 1)
    params = plan.draw(height, width, seed, 0, [0])
    result = applied(plan, pixels, params)[:, :, 0]
    if isinstance(op, Letterbox):
        top, left, h, w = params.placements[0]
        outside = np.ones(plan.size, bool)
        outside[top : top + h, left : left + w] = False
        assert (result[outside] == 114).all()
        result[outside] = 0
    affine = plan.affine(params, 0)
    limits = np.array([0, 0, *plan.size[::-1]])
    (x0, y0, x1, y1), kept = (
        part[0] for part in cut(hulls(np.array([box], np.float32), affine[None]), limits)
    )
    # An interpolated edge is as wide as a pixel of the image or of the result.
    blur_x, blur_y = max(1, abs(affine[0, 0])), max(1, affine[1, 1])
    y, x = np.mgrid[: plan.size[0], : plan.size[1]] + 0.5
    near = (x > x0 - blur_x) & (x < x1 + blur_x) & (y > y0 - blur_y) & (y < y1 + blur_y)
    assert (result[~near] == 0).all()
    if kept:
        # Where the result ends, the patch goes on: there is no edge to blur.
        within_x = ((x > x0 + blur_x) | (x0 == 0)) & ((x < x1 - blur_x) | (x1 == plan.size[1]))
        within_y = ((y > y0 + blur_y) | (y0 == 0)) & ((y < y1 - blur_y) | (y1 == plan.size[0]))
        assert (result[within_x & within_y] == 255).all()


def by_hand(pixels, params, i, shape, pad):
    """The same by slices, copies and a flip of the whole."""
    top, left, height, width = params.windows[i]
    window = np.ascontiguousarray(pixels[top : top + height, left : left + width])
    at_top, at_left, h, w = params.placements[i]
    resized = cv2.resize(window, (int(w), int(h)), interpolation=int(params.methods[i]))
    resized = resized.reshape(h, w, shape[2])
    out = np.full(shape, pad, pixels.dtype)
    if params.flips[i]:
        resized = resized[:, ::-1]
    out[at_top : at_top + h, at_left : at_left + w] = resized
    return out


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
@pytest.mark.parametrize(
    ("channel_count", "interpolation"),
    [(count, "linear") for count in (1, 2, 3, 4, 5, 9, 128)]
    + [(count, "area") for count in (1, 2, 3, 4)],
)
def test_pixels_are_opencvs(dtype, channel_count, interpolation):
    """Gray, color, alpha and more channels of 8 and 16 bits, exactly as by simple means."""
    for op in size_ops((11, 14)):
        plan = compile_ops([op, RandomFlip()], channel_count, dtype, interpolation=interpolation)
        assert plan.shape == (11, 14, channel_count)
        assert plan.dtype == dtype
        for size in [(11, 14), (22, 28), (30, 41), (5, 40), (1, 1)]:
            params = plan.draw(*size, 4, 0, range(6))
            assert 0 < params.flips.sum() < 6
            pixels = noise(*size, channel_count, dtype=dtype)
            pixels.flags.writeable = False
            for i in range(6):
                pad = op.pad if isinstance(op, Letterbox) else 0
                expected = by_hand(pixels, params, i, plan.shape, pad)
                assert np.array_equal(applied(plan, pixels, params, i), expected)


@given(any_op, small_sizes, seeds)
def test_a_decoded_window_does_as_well_as_the_image(op, size, seed):
    """A decoder that knows the window need not decode the rest."""
    plan = compile_ops([op, RandomFlip()])
    params = plan.draw(*size, seed, 0, [0])
    pixels = noise(*size, 3)
    top, left, height, width = params.windows[0]
    out = np.empty(plan.shape, np.uint8)
    window = pixels[top : top + height, left : left + width].copy()
    plan.apply_window(window, params, 0, out)
    assert np.array_equal(out, applied(plan, pixels, params))


def test_images_may_be_parts_of_larger_ones():
    """Rows of the image, and of its place in the batch, may lie apart in memory."""
    plan = compile_ops([RandomResizedCrop((8, 9)), RandomFlip()])
    params = plan.draw(20, 30, 0, 0, range(8))
    large = noise(40, 60, 3)
    wall = np.zeros((16, 18, 3), np.uint8)
    for i in range(8):
        plan.apply(large[5:25, 7:37], params, i, wall[3:11, 4:13])
        expected = applied(plan, large[5:25, 7:37].copy(), params, i)
        assert np.array_equal(wall[3:11, 4:13], expected)
    wall[3:11, 4:13] = 0
    assert not wall.any()


@pytest.mark.parametrize("op", size_ops((20, 24)))
def test_parameters_depend_on_the_sample_alone(op):
    """Other samples of the batch, their order, and a flip beside the crop change nothing."""
    rng = np.random.default_rng(3)
    heights, widths = rng.integers(1, 90, (2, 50))
    indices = rng.integers(0, 10**12, 50)
    plan, bare = compile_ops([op, RandomFlip(0.4)]), compile_ops([op])
    whole = plan.draw(heights, widths, 7, 3, indices)
    assert len(whole) == 50
    assert 0 < whole.flips.sum() < 50
    for i in rng.permutation(50):
        alone = plan.draw([heights[i]], [widths[i]], 7, 3, [indices[i]])
        for name in ("sizes", "windows", "placements", "flips", "methods", "affines"):
            assert np.array_equal(getattr(alone, name)[0], getattr(whole, name)[i]), name
    unflipped = bare.draw(heights, widths, 7, 3, indices)
    assert np.array_equal(unflipped.windows, whole.windows)
    assert not unflipped.flips.any()
    # Flips are those of any other op as well.
    resized = compile_ops([Resize(5), RandomFlip(0.4)]).draw(heights, widths, 7, 3, indices)
    assert np.array_equal(resized.flips, whole.flips)


def test_epochs_and_seeds_draw_anew():
    """Another epoch, seed or sample has other crops and flips; the same ones have the same."""
    plan = compile_ops([RandomResizedCrop(8), RandomFlip()])

    def drawn(seed, epoch, first):
        params = plan.draw(500, 500, seed, epoch, np.arange(first, first + 64))
        return params.windows.tolist(), params.flips.tolist()

    base = drawn(0, 0, 0)
    assert drawn(0, 0, 0) == base
    for windows, flips in (drawn(1, 0, 0), drawn(0, 1, 0), drawn(0, 0, 64)):
        assert flips != base[1]
        assert sum(a == b for a, b in zip(windows, base[0], strict=True)) == 0


def test_parameters_never_change():
    """A seed means the same in every release: these flips and windows stay as they are."""
    params = compile_ops([RandomResizedCrop(224), RandomFlip()]).draw(256, 341, 1, 2, range(32))
    assert "".join(str(int(flip)) for flip in params.flips) == "11001001101110001001101101101011"
    assert params.windows[:3].tolist() == [
        [22, 46, 139, 172],
        [26, 57, 226, 190],
        [9, 74, 222, 255],
    ]


def test_each_op_reads_its_own_numbers():
    """A flip is decided by the number at position 2, whatever stands before it."""
    numbers = uniforms(6, 7, np.arange(100), 3)
    for op in size_ops(8):
        params = compile_ops([op, RandomFlip(0.3)]).draw(20, 30, 6, 7, range(100))
        assert params.flips.tolist() == (numbers[:, 2] < 0.3).tolist()


@pytest.mark.parametrize("p", [0, 0.1, 0.5, 1])
def test_the_share_of_flips_is_p(p):
    """To 4 standard deviations of 50,000 draws; exactly where it is none or all."""
    params = compile_ops([Resize(4), RandomFlip(p)]).draw(4, 4, 9, 0, np.arange(50_000))
    assert abs(params.flips.mean() - p) <= 4 * np.sqrt(p * (1 - p) / 50_000)


def test_the_middle_of_an_image_is_cut_or_padded():
    """Larger sides lose the smaller half first; smaller ones lie in the middle of zeros."""
    plan = compile_ops([CenterCrop((3, 4))], 1)
    pixels = np.arange(1, 41, dtype=np.uint8).reshape(8, 5, 1)
    result = applied(plan, pixels, plan.draw(8, 5, 0, 0, [0]))
    assert result[:, :, 0].tolist() == pixels[2:5, 0:4, 0].tolist()
    result = applied(plan, pixels[:2, :1], plan.draw(2, 1, 0, 0, [0]))
    assert result[:, :, 0].tolist() == [[0, 1, 0, 0], [0, 6, 0, 0], [0, 0, 0, 0]]
    flipped = compile_ops([CenterCrop((3, 4)), RandomFlip(1)], 1)
    result = applied(flipped, pixels[:2, :1], flipped.draw(2, 1, 0, 0, [0]))
    assert result[:, :, 0].tolist() == [[0, 0, 1, 0], [0, 0, 6, 0], [0, 0, 0, 0]]


def test_averaging_antialiases_and_interpolating_does_not():
    """Stripes shrunk by 4 become gray by "area" and "auto"; "linear" sees some of them alone."""
    stripes = np.zeros((64, 64, 1), np.uint8)
    stripes[:, 1::4] = 255
    results = {}
    for name in ("linear", "area", "auto"):
        plan = compile_ops([Resize(16)], 1, interpolation=name)
        results[name] = applied(plan, stripes, plan.draw(64, 64, 0, 0, [0]))
    assert set(results["area"].ravel()) == {64}
    assert set(results["auto"].ravel()) == {64}
    assert set(results["linear"].ravel()) == {128}


@pytest.mark.parametrize(
    ("size", "linear", "area", "auto"),
    [
        ((20, 20), False, True, False),  # Shrunk by exactly 2.
        ((20, 21), False, True, True),
        ((21, 20), False, True, True),
        ((10, 30), False, True, True),
        ((9, 30), False, False, False),  # One side grows.
        ((5, 5), False, False, False),
    ],
)
def test_averaging_is_for_what_shrinks(size, linear, area, auto):
    """OpenCV's INTER_AREA repeats pixels where a side grows, so it is not used there."""
    for interpolation, expected in (("linear", linear), ("area", area), ("auto", auto)):
        plan = compile_ops([Resize(10)], interpolation=interpolation)
        method = cv2.INTER_AREA if expected else cv2.INTER_LINEAR
        assert plan.draw(*size, 0, 0, [0]).methods.tolist() == [method]


def test_an_empty_batch_is_drawn():
    """No samples, no parameters, no error."""
    for op in size_ops(8):
        params = compile_ops([op, RandomFlip()]).draw([], [], 0, 0, [])
        assert len(params) == 0
        assert params.windows.shape == params.placements.shape == (0, 4)
        assert params.affines.shape == (0, 2, 3)


@pytest.mark.parametrize("op", size_ops(8))
def test_plans_travel_between_processes(op):
    """A plan pickles small, whatever it has done before, and does the same afterwards."""
    plan = compile_ops([op, RandomFlip()], interpolation="auto")
    pixels = noise(20, 30, 3)
    params = plan.draw(20, 30, 1, 0, range(4))
    expected = [applied(plan, pixels, params, i) for i in range(4)]
    data = pickle.dumps(plan)
    assert len(data) < 500
    copy = pickle.loads(data)
    assert repr(copy) == repr(plan)
    again = pickle.loads(pickle.dumps(copy.draw(20, 30, 1, 0, range(4))))
    for i in range(4):
        assert np.array_equal(applied(copy, pixels, again, i), expected[i])


def test_a_plan_says_how_to_make_it():
    """Its repr is the call that makes it."""
    plan = compile_ops([Letterbox(8, pad=3), RandomFlip(0.25)], 4, "uint16", interpolation="area")
    assert repr(plan) == (
        "compile_ops([Letterbox(size=(8, 8), pad=3, scaling='fast'), RandomFlip(p=0.25)], 4, "
        "'uint16', interpolation='area')"
    )
    assert repr(eval(repr(plan))) == repr(plan)


@pytest.mark.parametrize(
    "others",
    [
        [RandomAffine(9, fill=(1, 2, 3)), Pad(1), ColorJitter(0.5), RandomRotation90(0.5)],
        [RandomVerticalFlip(), Pad((1, 2))],
    ],
)
@pytest.mark.parametrize("image_size", [None, (9, 9)])
def test_longer_plans_travel_between_processes(others, image_size):
    """Small, whatever they have done before; also where no op fixes the size."""
    ops = others if image_size else [CenterCrop(9), *others]
    plan = compile_ops(ops, image_size=image_size)
    pixels = noise(9, 9, 3)
    params = plan.draw(9, 9, 1, 0, range(4))
    expected = [applied(plan, pixels, params, i) for i in range(4)]
    data = pickle.dumps(plan)
    assert len(data) < 800
    copy = pickle.loads(data)
    assert repr(copy) == repr(plan) == repr(eval(repr(plan)))
    again = pickle.loads(pickle.dumps(copy.draw(9, 9, 1, 0, range(4))))
    for i in range(4):
        assert np.array_equal(applied(copy, pixels, again, i), expected[i])


CROP, FLIP = CenterCrop(4), RandomFlip()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([],), ValueError, r"ops must begin with the one that fixes the size, one of Random"),
        (([FLIP],), ValueError, r"ops must begin .*got \[RandomFlip\(p=0.5\)\]"),
        (([FLIP, CROP],), ValueError, r"ops must begin with the one that fixes the size"),
        (([CROP, FLIP, CROP],), ValueError, r"ops must fix the size once, at the beginning"),
        (([CROP, FLIP, FLIP],), ValueError, r"ops must hold at most one RandomFlip"),
        (([CROP, "flip"],), TypeError, r"ops must be objects of RandomResizedCrop, .*got 'flip'"),
        (([CenterCrop],), TypeError, r"got the class CenterCrop: write CenterCrop\(...\)"),
        (
            ([augment.RandomFlip()],),
            TypeError,
            r"got readers.augment.RandomFlip, which works on wh",
        ),
        (([torch.nn.Flatten()],), TypeError, r"got torch.nn.modules.flatten.Flatten. Pass it to"),
        ((FLIP,), TypeError, r"ops must be a sequence, such as \[RandomFlip\(\)\]; got RandomFlip"),
        (([CROP, Pad(1), Pad(2)],), ValueError, r"ops must hold at most one Pad; got"),
        (([CenterCrop((4, 6)), RandomRotation90()],), ValueError, r"a square, and works on 4 x 6"),
        (([CROP, Pad((1, 0)), RandomRotation90()],), ValueError, r"a square, and works on 4 x 6"),
        (
            ([CROP, Pad(20_000)],),
            ValueError,
            r"Pad makes images of 40004 x 40004 .* in \[1, 32768\)",
        ),
        (
            ([Resize(32767), RandomAffine(3)],),
            ValueError,
            r"RandomAffine works on sides in \[1, 327",
        ),
        (
            ([CROP, Pad(1, fill=256)],),
            ValueError,
            r"fill must be in \[0, 256\) for uint8 .*got 256",
        ),
        (
            ([CROP, Pad(1, fill=(1, 2))],),
            ValueError,
            r"one for each of the 3 channels; got \(1, 2\)",
        ),
        (([CROP, RandomAffine(3, fill=(1, 2, 999))],), ValueError, r"fill must be .*got 999"),
        (([CROP, ColorJitter(1)], 3, "uint16"), ValueError, r"ColorJitter works .*got 3 of uint16"),
        (([CROP, ColorJitter(1)], 2), ValueError, r"ColorJitter works on gray, .*got 2 of uint8"),
        (([CROP], 0), ValueError, r"channel_count must be in \[1, 129\); got 0"),
        (([CROP], 129), ValueError, r"channel_count must be in \[1, 129\); got 129"),
        (([CROP], 3, "float32"), ValueError, r"dtype must be one of uint8, uint16; got 'float32'"),
        (([Letterbox(4, pad=256)],), ValueError, r"pad must be in \[0, 256\) for uint8 .*got 256"),
    ],
)
def test_a_wrong_sequence_is_refused(arguments, error, message):
    """The message says what a sequence must be and what it is."""
    with pytest.raises(error, match=message):
        compile_ops(*arguments)


def test_an_interpolation_that_there_is_not_is_refused():
    """The message lists the known ones, and says what limits those that average."""
    with pytest.raises(ValueError, match="one of linear, area, auto; got 'cubic'"):
        compile_ops([CROP], interpolation="cubic")
    for averaging in ("area", "auto"):
        with pytest.raises(ValueError, match=r"channel_count must be in \[1, 5\) for .*got 5"):
            compile_ops([CROP], 5, interpolation=averaging)
    assert compile_ops([Letterbox(4, pad=256)], 1, "uint16").size == (4, 4)


def test_arrays_that_do_not_fit_are_refused():
    """OpenCV would write elsewhere in silence, and slices would take less than they say."""
    plan = compile_ops([CROP])
    params = plan.draw(6, 8, 0, 0, [0])
    image, out = np.zeros((6, 8, 3), np.uint8), np.zeros((4, 4, 3), np.uint8)
    plan.apply(image, params, 0, out)
    with pytest.raises(ValueError, match=r"pixels must be \(6, 8, 3\) .*sample 0; got \(6, 8\)"):
        plan.apply(image[:, :, 0], params, 0, out)
    with pytest.raises(ValueError, match=r"pixels must be \(6, 8, 3\) .*got \(6, 7, 3\)"):
        plan.apply(image[:, 1:], params, 0, out)
    with pytest.raises(ValueError, match=r"got uint16 pixels and uint8 \(4, 4, 3\) out"):
        plan.apply(image.astype(np.uint16), params, 0, out)
    with pytest.raises(ValueError, match=r"got uint8 pixels and float32 \(4, 4, 3\) out"):
        plan.apply(image, params, 0, out.astype(np.float32))
    with pytest.raises(ValueError, match=r"out \(4, 4, 3\); got .*\(4, 5, 3\) out"):
        plan.apply(image, params, 0, np.zeros((4, 5, 3), np.uint8))
    with pytest.raises(ValueError, match=r"window must be \(4, 4, 3\) .*got \(6, 8, 3\)"):
        plan.apply_window(image, params, 0, out)
    with pytest.raises(ValueError, match=r"at least 1 pixel; got \[6, 0\]"):
        plan.draw([5, 6], [7, 0], 0, 0, [0, 1])
    with pytest.raises(ValueError, match="seed must be in"):
        plan.draw(6, 8, -1, 0, [0])
