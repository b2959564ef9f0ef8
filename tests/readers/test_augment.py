"""Boxes, flips and levels of a batch are those of the well-known rules, on any device."""

from __future__ import annotations

import math
import pickle
import random

import numpy as np
import pytest
import torch
from torch.nn.functional import interpolate

from readers import ops, resampling
from readers.augment import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    Augment,
    Normalize,
    RandomFlip,
    RandomResizedCrop,
    _Writer,
)
from readers.resampling import flipped, resample_all

SEED = 20
DRAW_COUNT = 20_000


def seeded(seed=SEED):
    return torch.Generator().manual_seed(seed)


def noise(count=6, channel_count=3, height=40, width=56):
    """(count, channel_count, height, width) uint8, channels-last, the same in every run."""
    pixels = torch.randint(
        0, 256, (count, height, width, channel_count), generator=seeded(), dtype=torch.uint8
    )
    return pixels.permute(0, 3, 1, 2)


def crops(images, boxes):
    """The part of each image in its box: (1, channel, height, width) each."""
    return [
        images[at : at + 1, :, top : top + height, left : left + width]
        for at, (top, left, height, width) in enumerate(boxes.tolist())
    ]


def resampled_as_on_a_gpu(images, boxes, flips, size, antialias, normalize=None):
    """The batch by two matrix products, which the CPU alone would not choose."""
    dtype = torch.uint8 if normalize is None else normalize.dtype
    out = torch.empty((*images.shape[:2], *size), dtype=dtype, memory_format=torch.channels_last)
    resample_all(images, boxes, flips, antialias, _Writer(normalize, out), out)
    return out


# --- boxes ----------------------------------------------------------------------------------------


def box_by_rule(height, width, scale, ratio, uniform):
    """One box by the rule as it is written everywhere, one number of `uniform` after the other."""
    area = height * width
    tries = [(uniform(), uniform()) for _ in range(10)]
    place = (uniform(), uniform())
    for area_number, ratio_number in tries:
        target = area * (scale[0] + (scale[1] - scale[0]) * area_number)
        low, high = math.log(ratio[0]), math.log(ratio[1])
        aspect = math.exp(low + (high - low) * ratio_number)
        box_width = round(math.sqrt(target * aspect))
        box_height = round(math.sqrt(target / aspect))
        if 0 < box_width <= width and 0 < box_height <= height:
            top = int(place[0] * (height - box_height + 1))
            left = int(place[1] * (width - box_width + 1))
            return top, left, box_height, box_width
    box_height, box_width = height, width
    if width / height < ratio[0]:
        box_height = round(width / ratio[0])
    elif width / height > ratio[1]:
        box_width = round(height * ratio[1])
    return (height - box_height) // 2, (width - box_width) // 2, box_height, box_width


@pytest.mark.parametrize(
    ("height", "width", "scale", "ratio"),
    [
        (256, 256, (0.08, 1.0), (3 / 4, 4 / 3)),
        (40, 333, (0.08, 1.0), (3 / 4, 4 / 3)),
        (5, 4, (0.3, 0.9), (0.5, 2.0)),
        (2, 3, (0.01, 0.6), (0.25, 4.0)),
        (1, 1, (0.08, 1.0), (3 / 4, 4 / 3)),
    ],
)
def test_boxes_are_those_of_the_rule_for_the_same_random_numbers(height, width, scale, ratio):
    """A batch of draws is the rule applied to each row of numbers, to the pixel."""
    boxes = RandomResizedCrop(224, scale, ratio, generator=seeded()).draw(500, height, width)
    numbers = torch.rand((500, 22), generator=seeded(), dtype=torch.float64).tolist()
    expected = [box_by_rule(height, width, scale, ratio, iter(row).__next__) for row in numbers]
    assert boxes.dtype == torch.int64
    assert boxes.tolist() == [list(box) for box in expected]


def distance(a, b):
    """Kolmogorov and Smirnov's: the most by which the shares below any number differ."""
    places = np.union1d(a, b)
    below_a, below_b = (
        np.searchsorted(np.sort(values), places, side="right") / len(values) for values in (a, b)
    )
    return np.abs(below_a - below_b).max()


@pytest.mark.parametrize(("height", "width"), [(256, 256), (60, 200)])
def test_boxes_are_distributed_as_those_of_one_draw_after_the_other(height, width):
    """Area, ratio and position have the distribution of a plain loop over the rule.

    20,000 boxes of each, from unrelated random numbers. Two samples of one distribution are further
    apart than 1.95 * sqrt(2 / n) one time in a thousand; the seeds are fixed.
    """
    scale, ratio = (0.08, 1.0), (3 / 4, 4 / 3)
    drawn = RandomResizedCrop(224, generator=seeded()).draw(DRAW_COUNT, height, width).numpy()
    uniform = random.Random(SEED).random
    plain = np.array([box_by_rule(height, width, scale, ratio, uniform) for _ in range(DRAW_COUNT)])
    limit = 1.95 * math.sqrt(2 / DRAW_COUNT)
    for place, name in enumerate(("top", "left", "height", "width")):
        assert distance(drawn[:, place], plain[:, place]) < limit, name
    for name, of in {
        "area": lambda boxes: boxes[:, 2] * boxes[:, 3],
        "ratio": lambda boxes: boxes[:, 3] / boxes[:, 2],
        "bottom": lambda boxes: boxes[:, 0] + boxes[:, 2],
    }.items():
        assert distance(of(drawn), of(plain)) < limit, name
        assert of(drawn).mean() == pytest.approx(of(plain).mean(), rel=0.02), name


def test_boxes_that_always_fit_have_the_means_and_variances_of_the_formulas():
    """Where no try can fail, area, log ratio and position are uniform: known mean and variance."""
    side, count = 4000, 20_000  # Large, so that whole pixels do not matter.
    boxes = RandomResizedCrop(224, (0.1, 0.5), (0.5, 2.0), generator=seeded())
    top, left, height, width = boxes.draw(count, side, side).double().unbind(1)
    share = height * width / side**2
    log_ratio = (width / height).log()
    for values, low, high in (
        (share, 0.1, 0.5),
        (log_ratio, -math.log(2), math.log(2)),
        (top / (side - height), 0, 1),
        (left / (side - width), 0, 1),
    ):
        deviation = (high - low) / math.sqrt(12)
        # Four standard errors of the mean; the variance of a uniform one has 0.9 / sqrt(n).
        assert abs(values.mean() - (low + high) / 2) < 4 * deviation / math.sqrt(count)
        assert values.var() == pytest.approx(deviation**2, rel=4 * 0.9 / math.sqrt(count))
        assert values.quantile(0.25) == pytest.approx(low + (high - low) / 4, abs=0.02)
    assert torch.corrcoef(torch.stack([share, log_ratio]))[0, 1].abs() < 4 / math.sqrt(count)


@pytest.mark.parametrize(
    ("height", "width", "ratio", "expected"),
    [
        (10, 1000, (3 / 4, 4 / 3), [0, 493, 10, 13]),
        (1000, 10, (3 / 4, 4 / 3), [493, 0, 13, 10]),
        (3, 1, (9.0, 10.0), [1, 0, 1, 1]),
    ],
)
def test_a_box_that_never_fits_is_the_middle_one(height, width, ratio, expected):
    """After ten tries in vain the box is in the middle, as large as the ratio lets it be."""
    crop = RandomResizedCrop(8, (0.9, 1.0), ratio, generator=seeded())
    assert crop.draw(50, height, width).tolist() == [expected] * 50


def test_the_last_position_is_drawn_too_and_none_past_it():
    """A box may touch every edge, and lies inside the image."""
    boxes = RandomResizedCrop(4, (0.2, 0.9), generator=seeded()).draw(2000, 9, 7)
    top, left, height, width = boxes.unbind(1)
    assert (top.min(), left.min()) == (0, 0)
    assert ((top + height).max(), (left + width).max()) == (9, 7)
    assert (height.min() >= 1) & (width.min() >= 1)


def test_one_seed_gives_the_same_boxes_and_flips_again():
    """A generator, or torch.manual_seed without one, decides all that is random."""
    torch.manual_seed(3)
    first = (RandomResizedCrop(8).draw(4, 50, 60), RandomFlip().draw(16))
    torch.manual_seed(3)
    again = (RandomResizedCrop(8).draw(4, 50, 60), RandomFlip().draw(16))
    other = RandomResizedCrop(8, generator=seeded(4)).draw(4, 50, 60)
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    assert not torch.equal(first[0], other)
    assert torch.equal(RandomResizedCrop(8, generator=seeded(3)).draw(4, 50, 60), first[0])


def test_flips_have_their_probability():
    """p is the share of images that are mirrored; 0 is none and 1 is all."""
    assert not RandomFlip(0.0).draw(1000).any()
    assert RandomFlip(1.0).draw(1000).all()
    share = RandomFlip(0.3, generator=seeded()).draw(DRAW_COUNT).double().mean()
    assert share == pytest.approx(0.3, abs=4 * math.sqrt(0.21 / DRAW_COUNT))


# --- levels ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("size", [(24, 24), (64, 48), (7, 90), (1, 1)])
def test_a_crop_is_torchs_resize_of_each_box(size, antialias):
    """On the CPU every level is that of interpolate(), for larger and smaller boxes."""
    images = noise()
    boxes = RandomResizedCrop(size, generator=seeded()).draw(6, 40, 56)
    cropped = RandomResizedCrop(size, antialias=antialias, generator=seeded())(images)
    for result, part in zip(cropped, crops(images, boxes), strict=True):
        expected = interpolate(part, size, mode="bilinear", antialias=antialias)
        assert torch.equal(result, expected[0])


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("size", [(24, 24), (64, 48), (7, 90), (1, 1)])
def test_matrix_products_give_the_levels_of_torchs_resize(size, antialias):
    """The way of a GPU is exact: interpolate() of the box in float, within a hundredth of a level.

    So it is, rounded, within one level of the uint8 one, which rounds between its two passes.
    """
    images = noise()
    boxes = RandomResizedCrop(size, generator=seeded()).draw(6, 40, 56)
    flips = torch.tensor([False, True] * 3)
    plain = Normalize(0.0, 1 / 255)  # Levels as they are, as float.
    levels = resampled_as_on_a_gpu(images, boxes, flips, size, antialias, plain)
    rounded = resampled_as_on_a_gpu(images, boxes, flips, size, antialias)
    assert torch.equal(rounded, levels.round().to(torch.uint8))
    for at, part in enumerate(crops(images, boxes)):
        exact = interpolate(part.float(), size, mode="bilinear", antialias=antialias)[0]
        whole = interpolate(part, size, mode="bilinear", antialias=antialias)[0]
        if flips[at]:
            exact, whole = exact.flip(2), whole.flip(2)
        assert (levels[at] - exact).abs().max() < 0.01
        assert (rounded[at].int() - whole.int()).abs().max() <= 1


def test_large_shrinking_takes_every_pixel_into_account():
    """With antialias, an image shrunk to a pixel is near its mean; without, it is its middle."""
    images = torch.zeros((1, 1, 64, 64), dtype=torch.uint8)
    images[:, :, ::2, ::2] = 200
    whole = torch.tensor([[0, 0, 64, 64]])
    for antialias, expected in ((True, 50), (False, 50)):
        level = resampled_as_on_a_gpu(images, whole, None, (1, 1), antialias)
        assert level.item() == expected
    images[:, :, 31:33, 31:33] = 0
    assert resampled_as_on_a_gpu(images, whole, None, (1, 1), False).item() == 0
    assert resampled_as_on_a_gpu(images, whole, None, (1, 1), True).item() == 50


def test_a_box_of_the_result_size_is_copied():
    """Without scaling no level changes: cropped and mirrored exactly, either way."""
    images = noise(2)
    boxes = torch.tensor([[3, 5, 16, 20], [24, 36, 16, 20]])
    flips = torch.tensor([True, False])
    first, second = crops(images, boxes)
    expected = torch.cat([first.flip(3), second])
    assert torch.equal(resampled_as_on_a_gpu(images, boxes, flips, (16, 20), True), expected)


def test_nothing_outside_the_box_shines_through():
    """The pixel next to a box is no part of it, also where a bilinear edge would reach it."""
    images = torch.full((1, 3, 12, 12), 255, dtype=torch.uint8)
    images[:, :, 4:8, 4:8] = 10
    box = torch.tensor([[4, 4, 4, 4]])
    for size in ((9, 9), (4, 4), (2, 3)):
        for antialias in (False, True):
            result = resampled_as_on_a_gpu(images, box, None, size, antialias)
            assert (result == 10).all()


def test_white_stays_white_and_black_black():
    """Rounded weights push no level past the ends, where uint8 would begin anew."""
    for level in (0, 255):
        images = torch.full((4, 3, 37, 53), level, dtype=torch.uint8)
        boxes = RandomResizedCrop(31, generator=seeded()).draw(4, 37, 53)
        assert (resampled_as_on_a_gpu(images, boxes, None, (31, 31), True) == level).all()


def test_a_batch_larger_than_the_work_memory_is_the_same(monkeypatch):
    """What goes in parts comes out as if it had gone at once."""
    images = noise(7)
    boxes = RandomResizedCrop(24, generator=seeded()).draw(7, 40, 56)
    flips = torch.arange(7) % 3 == 0
    whole = resampled_as_on_a_gpu(images, boxes, flips, (24, 24), True)
    monkeypatch.setattr(resampling, "_WORK_BYTES_MAX", 150_000)  # Two samples, and a bit.
    assert torch.equal(resampled_as_on_a_gpu(images, boxes, flips, (24, 24), True), whole)
    monkeypatch.setattr(resampling, "_WORK_BYTES_MAX", 1)
    assert torch.equal(resampled_as_on_a_gpu(images, boxes, flips, (24, 24), True), whole)


def test_another_device_is_not_asked_for_a_value():
    """Nothing reads back from the device, which would make this process wait for it.

    A meta tensor has no values: whoever asks for one gets an error.
    """
    augment = Augment(RandomResizedCrop((24, 20)), RandomFlip(), Normalize(0.5, 0.5, torch.float16))
    result = augment(noise().to("meta"))
    assert (result.shape, result.dtype, result.device.type) == ((6, 3, 24, 20), torch.half, "meta")
    assert Augment(flip=RandomFlip(1.0))(noise().to("meta")).shape == (6, 3, 40, 56)


# --- flip and normalisation -----------------------------------------------------------------------


def test_a_flip_mirrors_left_and_right_and_leaves_the_rest():
    """Those drawn are mirrored exactly; the others, and the batch given, are as before."""
    images = noise(20)
    before = images.clone()
    flips = RandomFlip(generator=seeded()).draw(20)
    assert 0 < flips.sum() < 20
    result = RandomFlip(generator=seeded())(images)
    for at in range(20):
        assert torch.equal(result[at], images[at].flip(2) if flips[at] else images[at])
    assert torch.equal(flipped(images, flips), result)  # The way of a GPU, without a crop.
    assert torch.equal(images, before)
    assert result.data_ptr() != images.data_ptr()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_normalize_is_the_formula_channel_by_channel(dtype):
    """(level / 255 - mean) / std in float32, rounded once to the type asked for."""
    images = noise()
    mean, std = (torch.tensor(numbers)[:, None, None] for numbers in (IMAGENET_MEAN, IMAGENET_STD))
    exact = (images.double() / 255 - mean) / std
    result = Normalize(IMAGENET_MEAN, IMAGENET_STD, dtype)(images)
    assert result.dtype == dtype
    # Half the distance of two numbers of this type, and what float32 adds to it.
    assert (
        (result.double() - exact).abs() <= exact.abs() * torch.finfo(dtype).eps / 2 + 1e-6
    ).all()


def test_normalize_takes_one_number_for_all_channels():
    """A gray image and an RGBA one can have the same number throughout."""
    for channel_count in (1, 4):
        images = noise(2, channel_count)
        result = Normalize(0.5, 0.25)(images)
        assert torch.allclose(result, (images / 255 - 0.5) / 0.25, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, None])
def test_one_step_is_its_parts_one_after_the_other(dtype):
    """Augment draws and computes what crop, flip and normalisation do by themselves."""
    images = noise(9)

    def parts():
        generator = seeded()
        return (
            RandomResizedCrop((24, 30), generator=generator),
            RandomFlip(generator=generator),
            None if dtype is None else Normalize(IMAGENET_MEAN, IMAGENET_STD, dtype),
        )

    together = Augment(*parts())(images)
    crop, flip, normalize = parts()
    apart = flip(crop(images))
    assert torch.equal(together, apart if normalize is None else normalize(apart))
    crop, flip, normalize = parts()
    boxes, flips = crop.draw(9, 40, 56), flip.draw(9)
    products = resampled_as_on_a_gpu(images, boxes, flips, (24, 30), True, normalize)
    level = 1 if normalize is None else 1.01 / 255 / min(IMAGENET_STD)
    assert (products.double() - together.double()).abs().max() <= level + 2e-3 * (dtype is not None)


# --- batches of every kind ------------------------------------------------------------------------


@pytest.mark.parametrize("channel_count", [1, 3, 4, 7])
@pytest.mark.parametrize("size", [5, (4, 6)])
def test_any_number_of_channels_and_any_size(channel_count, size):
    """Gray, colour, with alpha and beyond, to a square or not, and channels-last in memory."""
    images = noise(3, channel_count, 9, 8)
    shape = (5, 5) if size == 5 else size
    result = RandomResizedCrop(size, generator=seeded())(images)
    assert result.shape == (3, channel_count, *shape)
    assert result.is_contiguous(memory_format=torch.channels_last)
    boxes = RandomResizedCrop(size, generator=seeded()).draw(3, 9, 8)
    products = resampled_as_on_a_gpu(images, boxes, None, shape, True)
    assert products.is_contiguous(memory_format=torch.channels_last)
    assert (products.int() - result.int()).abs().max() <= 1


def test_an_image_of_one_pixel_fills_the_result():
    """The smallest image there is has one box, and one level."""
    images = torch.tensor([7, 9], dtype=torch.uint8).view(2, 1, 1, 1)
    for result in (
        RandomResizedCrop(3)(images),
        resampled_as_on_a_gpu(images, torch.tensor([[0, 0, 1, 1]] * 2), None, (3, 3), True),
    ):
        assert torch.equal(result, images.expand(2, 1, 3, 3))


def test_a_batch_of_no_images_is_a_batch_of_none():
    """The last part of an epoch may be empty; its shape and type hold."""
    augment = Augment(RandomResizedCrop((5, 4)), RandomFlip(), Normalize(0.5, 0.5, torch.bfloat16))
    result = augment(noise(0))
    assert (result.shape, result.dtype) == ((0, 3, 5, 4), torch.bfloat16)
    nothing = torch.zeros((0, 4), dtype=torch.int64)
    assert resampled_as_on_a_gpu(noise(0), nothing, None, (5, 4), True).shape == (0, 3, 5, 4)


@pytest.mark.parametrize(
    "strided",
    [
        lambda images: images.contiguous(),
        lambda images: images.repeat_interleave(2, dim=3)[:, :, :, ::2],
        lambda images: images.transpose(2, 3).contiguous().transpose(2, 3),
        lambda images: torch.cat([images, images])[:6],
    ],
    ids=["planar", "every second column", "columns first", "part of a batch"],
)
def test_any_strides_give_the_same_levels(strided):
    """How a batch lies in memory is no part of its value."""
    images = noise()
    other = strided(images)
    assert torch.equal(other, images)

    def augment():
        generator = seeded()
        crop = RandomResizedCrop(24, generator=generator)
        return Augment(crop, RandomFlip(generator=generator), Normalize(0.4, 0.2))

    result = augment()(other)
    assert torch.equal(result, augment()(images))
    assert result.is_contiguous(memory_format=torch.channels_last)
    boxes = RandomResizedCrop(24, generator=seeded()).draw(6, 40, 56)
    assert torch.equal(
        resampled_as_on_a_gpu(other, boxes, None, (24, 24), True),
        resampled_as_on_a_gpu(images, boxes, None, (24, 24), True),
    )


def test_an_augmentation_crosses_processes():
    """Pickled and loaded, it goes on with the random numbers where it was."""
    generator = seeded()
    augment = Augment(
        RandomResizedCrop(24, generator=generator), RandomFlip(), Normalize(0.5, 0.5, torch.half)
    )
    copied = pickle.loads(pickle.dumps(augment))
    assert repr(copied) == repr(augment)
    assert torch.equal(copied.crop.draw(9, 40, 50), augment.crop.draw(9, 40, 50))


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (np.zeros((2, 3, 8, 8), np.uint8), r"images is a ndarray; expected a batch"),
        (torch.zeros((3, 8, 8), dtype=torch.uint8), r"\(3, 8, 8\).*for one image: images\[None\]"),
        (torch.zeros((8, 8), dtype=torch.uint8), r"the shape \(8, 8\); expected"),
        (torch.zeros((2, 3, 8, 8)), r"images are torch.float32; expected .* uint8"),
        (torch.zeros((2, 3, 0, 8), dtype=torch.uint8), r"\(2, 3, 0, 8\): they have no pixels"),
    ],
)
@pytest.mark.parametrize("step", [RandomResizedCrop(4), RandomFlip(), Normalize(0.5, 0.5)])
def test_what_is_no_batch_of_images_is_named(step, images, message):
    """The message says what was given and what is expected."""
    with pytest.raises(ValueError, match=message):
        step(images)


def test_means_of_another_number_of_channels_are_refused():
    """Three means do not fit one channel; nothing is broadcast in silence."""
    with pytest.raises(ValueError, match=r"mean has 3 numbers, but the images have 1 channels"):
        Normalize(IMAGENET_MEAN, 0.5)(noise(2, 1))
    with pytest.raises(ValueError, match=r"std has 3 numbers, but the images have 4 channels"):
        Normalize(0.5, IMAGENET_STD)(noise(0, 4))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RandomResizedCrop(0), r"size must be .*; got 0"),
        (lambda: RandomResizedCrop((4, 5, 6)), r"size must be .*; got \(4, 5, 6\)"),
        (lambda: RandomResizedCrop(2.5), r"size must be .*; got 2.5"),
        (lambda: RandomResizedCrop(4, scale=(0.0, 1.0)), r"scale must be .*; got \(0.0, 1.0\)"),
        (lambda: RandomResizedCrop(4, scale=(0.5, 0.1)), r"scale must be .*; got \(0.5, 0.1\)"),
        (lambda: RandomResizedCrop(4, scale=(0.5, 1.1)), r"scale .* greatest <= 1; got"),
        (
            lambda: RandomResizedCrop(4, ratio=(1.0, math.inf)),
            r"ratio must be .*; got \(1.0, inf\)",
        ),
        (lambda: RandomFlip(1.5), r"p must be in \[0, 1\]; got 1.5"),
        (lambda: Normalize((), 1.0), r"mean must be one number for each channel; got \(\)"),
        (lambda: Normalize(0.5, (0.2, 0.0)), r"std must be above 0; got \(0.2, 0.0\)"),
        (lambda: Normalize(0.5, 0.5, torch.int32), r"dtype must be one of .*; got torch.int32"),
    ],
)
def test_a_setting_out_of_its_range_is_refused_when_it_is_made(make, message):
    """Not in the middle of an epoch; the argument, its limit and the value are named."""
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    "arguments",
    [
        {"crop": ops.RandomResizedCrop(4)},
        {"crop": ops.RandomFlip()},
        {"flip": ops.RandomFlip()},
        {"normalize": ops.ColorJitter()},
    ],
)
def test_an_op_of_a_loader_is_refused_by_name(arguments):
    """Some have the names of ours, and would fail in the midst of training."""
    ((name, op),) = arguments.items()
    with pytest.raises(
        TypeError, match=f"{name} is {type(op).__name__}.* of readers.ops.*make_load"
    ):
        Augment(**arguments)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ((Normalize(0.5, 0.5),), "crop is Normalize.*write normalize="),
        ((None, RandomResizedCrop(8)), "flip is RandomResizedCrop.*write crop="),
        ((torch.nn.Identity(),), "crop is Identity.*by itself"),
    ],
)
def test_a_part_in_the_place_of_another_is_told(parts, message):
    """Three parts by position are easily given in another order, or without the first."""
    with pytest.raises(TypeError, match=message):
        Augment(*parts)
