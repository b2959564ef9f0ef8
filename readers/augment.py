"""Random resized crop, flip and normalisation of a whole batch of images, on any device.

    augment = Augment(RandomResizedCrop(224), RandomFlip(), Normalize(IMAGENET_MEAN, IMAGENET_STD))
    images = augment(images)  # (batch, 3, height, width) uint8 -> (batch, 3, 224, 224) float32

Every sample gets its own box and flip. They are drawn on the CPU, so that one seed gives the same
boxes and flips on every device; pixels agree within one level of 255. Crop, resize and flip are one
step, and normalisation is written with its last pass: `readers.resampling`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from readers.ops.operations import ImageOp
from readers.resampling import flipped, resample_all, resample_each

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
"""Red, green, blue, of pixels in [0, 1]."""

_TRY_COUNT = 10
_LEVEL_MAX = 255
_OUTPUT_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


class RandomResizedCrop:
    """A random box of each image, resized: the usual training crop.

    The boxes are those of torchvision's transform of this name, in distribution: the area is
    uniform in `scale` times the image's, the logarithm of width / height is uniform in that of
    `ratio`, sides are rounded to whole pixels and the position is uniform. Where ten tries do not
    fit into the image, it is the largest middle box of a ratio in `ratio`.

    Args:
        size: Of the result in pixels: the side of a square, or (height, width).
        scale: Least and greatest area of the box, as a share of the image.
        ratio: Least and greatest width / height of the box.
        antialias: Whether each pixel of the result is an average over all pixels that it covers,
            where the box is larger than `size`; otherwise it is made of the nearest 2 x 2.
        generator: Where random numbers come from, a CPU generator. None: torch's own, which
            `torch.manual_seed` seeds. Each training process needs another seed.

    Raises:
        ValueError: An argument is out of its range.
    """

    def __init__(
        self,
        size: int | Sequence[int],
        scale: Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3 / 4, 4 / 3),
        *,
        antialias: bool = True,
        generator: torch.Generator | None = None,
    ) -> None:
        self.size = _checked_size(size)
        self.scale = _checked_interval("scale", scale, 1.0)
        self.ratio = _checked_interval("ratio", ratio, math.inf)
        self.antialias = antialias
        self.generator = _checked_generator(generator)

    def draw(self, count: int, height: int, width: int) -> Tensor:
        """Boxes for `count` images of `height` x `width` pixels.

        Returns:
            (count, 4) int64 on the CPU: top, left, height, width in pixels.
        """
        # One call for the batch: a row holds a pair for each try, then one for the position.
        numbers = torch.rand(
            (count, 2 * _TRY_COUNT + 2), generator=self.generator, dtype=torch.float64
        )
        area_numbers, ratio_numbers = numbers[:, :-2].view(count, _TRY_COUNT, 2).unbind(2)
        areas = height * width * _between(*self.scale, area_numbers)
        ratios = _between(math.log(self.ratio[0]), math.log(self.ratio[1]), ratio_numbers).exp()
        widths = (areas * ratios).sqrt().round()
        heights = (areas / ratios).sqrt().round()
        fits = (widths > 0) & (widths <= width) & (heights > 0) & (heights <= height)

        chosen = fits.int().argmax(1, keepdim=True)  # The first that fits.
        sides = torch.cat([heights.gather(1, chosen), widths.gather(1, chosen)], 1)
        room = torch.tensor([height, width]) - sides
        # A number just below 1 times a large room may round up to the next whole pixel.
        places = (numbers[:, -2:] * (room + 1)).floor().minimum(room)
        boxes = torch.cat([places, sides], 1).long()
        boxes[~fits.any(1)] = torch.tensor(self._middle(height, width))
        return boxes

    def _middle(self, height: int, width: int) -> tuple[int, int, int, int]:
        """The box where no try fits: top, left, height, width."""
        low, high = self.ratio
        box_height, box_width = height, width
        if width / height < low:
            box_height = max(1, round(width / low))
        elif width / height > high:
            box_width = max(1, round(height * high))
        return (height - box_height) // 2, (width - box_width) // 2, box_height, box_width

    def __call__(self, images: Tensor) -> Tensor:
        """(batch, channel, height, width) uint8 -> the same with `size`, channels-last."""
        return Augment(self)(images)

    def __repr__(self) -> str:
        return (
            f"RandomResizedCrop({self.size}, scale={self.scale}, ratio={self.ratio}, "
            f"antialias={self.antialias})"
        )


class RandomFlip:
    """Mirrors some of the images, left to right.

    Args:
        p: Probability for each image.
        generator: As of `RandomResizedCrop`.

    Raises:
        ValueError: An argument is out of its range.
    """

    def __init__(self, p: float = 0.5, *, generator: torch.Generator | None = None) -> None:
        if not 0 <= p <= 1:
            raise ValueError(f"p must be in [0, 1]; got {p!r}")
        self.p = p
        self.generator = _checked_generator(generator)

    def draw(self, count: int) -> Tensor:
        """Which of `count` images to mirror: (count,) bool on the CPU."""
        return torch.rand(count, generator=self.generator, dtype=torch.float64) < self.p

    def __call__(self, images: Tensor) -> Tensor:
        """(batch, channel, height, width) uint8 -> the same, channels-last."""
        return Augment(flip=self)(images)

    def __repr__(self) -> str:
        return f"RandomFlip(p={self.p})"


class Normalize:
    """Turns levels into numbers of mean 0 and deviation 1: (level / 255 - mean) / std.

    Args:
        mean: Of pixels in [0, 1]: one number for each channel, or one for all.
        std: Their standard deviation, likewise.
        dtype: Of the result: float32, float16 or bfloat16.

    Raises:
        ValueError: An argument is out of its range, or the images have another number of channels.
    """

    def __init__(
        self,
        mean: float | Sequence[float],
        std: float | Sequence[float],
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.mean = _checked_numbers("mean", mean)
        self.std = _checked_numbers("std", std)
        if not all(number > 0 for number in self.std):
            raise ValueError(f"std must be above 0; got {std!r}")
        if dtype not in _OUTPUT_DTYPES:
            known = ", ".join(str(known) for known in _OUTPUT_DTYPES)
            raise ValueError(f"dtype must be one of {known}; got {dtype!r}")
        self.dtype = dtype

    def factor_and_shift(self, channel_count: int) -> tuple[Tensor, Tensor]:
        """Of `level * factor + shift`: (channel,) float32 each, on the CPU."""
        for name, numbers in (("mean", self.mean), ("std", self.std)):
            if len(numbers) not in (1, channel_count):
                raise ValueError(
                    f"{name} has {len(numbers)} numbers, but the images have {channel_count} "
                    "channels: give one number for each channel, or one for all"
                )
        mean, std = (
            torch.tensor(numbers, dtype=torch.float64).expand(channel_count)
            for numbers in (self.mean, self.std)
        )
        return (1 / (_LEVEL_MAX * std)).float(), (-mean / std).float()

    def __call__(self, images: Tensor) -> Tensor:
        """(batch, channel, height, width) uint8 -> the same of `dtype`, channels-last."""
        return Augment(normalize=self)(images)

    def __repr__(self) -> str:
        return f"Normalize({self.mean}, {self.std}, {self.dtype})"


class Augment:
    """Crop, flip and normalisation as one step over a batch.

    The result is that of the parts called one after the other, with their random numbers, but
    resampled once and, on a GPU, not rounded to whole levels in between.

    On a GPU each part of the batch is read, multiplied twice and written, in float16, or for a
    float32 result in float32 (TF32 where the user's settings allow it). That takes up to 512 MiB of
    memory beside input and output; larger batches go in parts. One core of a CPU does 8,500 images
    a second of 256 x 256 to 224 x 224 uint8, 5,400 to float16 and 2,400 to float32.

    Args:
        crop: Makes all images one size. None keeps theirs.
        flip: Mirrors some. None mirrors none.
        normalize: Turns levels into numbers. None leaves uint8.

    Raises:
        TypeError: A part is one of `readers.ops`, which go to `make_loader`, or in another's place.

    Example:
        >>> augment = Augment(RandomResizedCrop(24), RandomFlip(), Normalize(0.5, 0.25))
        >>> augment(torch.zeros((8, 3, 32, 40), dtype=torch.uint8)).shape
        torch.Size([8, 3, 24, 24])
    """

    def __init__(
        self,
        crop: RandomResizedCrop | None = None,
        flip: RandomFlip | None = None,
        normalize: Normalize | None = None,
    ) -> None:
        for name, part in (("crop", crop), ("flip", flip), ("normalize", normalize)):
            _refuse_op_of_loader(name, part)
            _refuse_part_of_other_kind(name, part)
        self.crop = crop
        self.flip = flip
        self.normalize = normalize

    def __call__(self, images: Tensor) -> Tensor:
        """Augment a batch. The images given are not changed.

        Args:
            images: (batch, channel, height, width) uint8, on any device. Any strides will do;
                channels-last, as batches of a store are, is quickest.

        Returns:
            (batch, channel, height, width) on the same device, channels-last in memory.

        Raises:
            ValueError: `images` is not such a batch, or does not fit `normalize`.
        """
        _check_images(images)
        count, channel_count, height, width = images.shape
        size = (height, width) if self.crop is None else self.crop.size
        boxes = None if self.crop is None else self.crop.draw(count, height, width)
        flips = None if self.flip is None else self.flip.draw(count)
        antialias = self.crop is None or self.crop.antialias
        out = torch.empty(
            (count, channel_count, *size),
            dtype=torch.uint8 if self.normalize is None else self.normalize.dtype,
            device=images.device,
            memory_format=torch.channels_last,
        )
        write = _Writer(self.normalize, out)
        if images.device.type == "cpu":
            resample_each(images, boxes, flips, antialias, write, out)
        elif boxes is None:
            write(flipped(images, flips), out)
        else:
            resample_all(images, boxes, flips, antialias, write, out)
        return out

    def __repr__(self) -> str:
        parts = [part for part in (self.crop, self.flip, self.normalize) if part is not None]
        return f"Augment({', '.join(map(repr, parts))})"


class _Writer:
    """The last pass: resampled levels into the result, normalised or rounded."""

    def __init__(self, normalize: Normalize | None, out: Tensor) -> None:
        self._numbers: Tensor | None = None
        if normalize is not None:
            pair = torch.stack(normalize.factor_and_shift(out.shape[1]))
            # A number for each value of a row, in the order of memory: torch then goes through
            # whole rows at a time, not through the three values of a pixel.
            rows = pair[:, :, None, None].expand(-1, -1, -1, out.shape[3])
            rows = rows.contiguous(memory_format=torch.channels_last)
            self._numbers = rows.to(out.device, non_blocking=True)

    def __call__(self, levels: Tensor, out: Tensor) -> None:
        """Write `levels`, (sample, channel, height, width) uint8 or float, into `out`."""
        if self._numbers is None:
            # No clamp: weights add up to 1 within 2^-11, so that white stays below 255.5.
            out.copy_(levels if levels.dtype == torch.uint8 else levels.round())
            return
        factor, shift = self._numbers
        # In float32, and rounded once; float16 factors alone would err by an eighth of a level.
        if out.device.type == "cpu" and out.dtype != torch.float32:
            out.copy_(torch.addcmul(shift, levels, factor))  # Five times the speed of out=out.
        else:
            torch.addcmul(shift, levels, factor, out=out)


def _between(low: float, high: float, numbers: Tensor) -> Tensor:
    """Numbers in [0, 1) -> [low, high)."""
    return low + (high - low) * numbers


def _refuse_op_of_loader(name: str, part: object) -> None:
    """Some of them have the names of ours."""
    if isinstance(part, ImageOp):
        raise TypeError(
            f"{name} is {part!r} of readers.ops, which works in a loader: pass it to make_loader "
            "as ops, or take a class of readers.augment"
        )


_KINDS = {"crop": RandomResizedCrop, "flip": RandomFlip, "normalize": Normalize}
"""What goes where in `Augment`."""


def _refuse_part_of_other_kind(name: str, part: object) -> None:
    """A part that stands in another's place would be called as what it is not."""
    if part is None or isinstance(part, _KINDS[name]):
        return
    places = [other for other, kind in _KINDS.items() if isinstance(part, kind)]
    remedy = f"write {places[0]}=..." if places else "call it on the batch by itself"
    raise TypeError(
        f"{name} is {part!r}: Augment takes a {_KINDS[name].__name__} or None there; {remedy}"
    )


def _check_images(images: Tensor) -> None:
    expected = "expected a batch of images, (batch, channel, height, width) uint8"
    if not isinstance(images, Tensor):
        raise ValueError(f"images is a {type(images).__name__}; {expected}")
    if images.ndim != 4:
        hint = "; for one image: images[None]" if images.ndim == 3 else ""
        raise ValueError(f"images has the shape {tuple(images.shape)}; {expected}{hint}")
    if images.dtype != torch.uint8:
        raise ValueError(f"images are {images.dtype}; {expected}: levels, before any scaling")
    if 0 in images.shape[1:]:
        raise ValueError(f"images has the shape {tuple(images.shape)}: they have no pixels")


def _checked_size(size: int | Sequence[int]) -> tuple[int, int]:
    sides = tuple(size) if isinstance(size, Sequence) else (size, size)
    if len(sides) != 2 or not all(isinstance(side, int) and side >= 1 for side in sides):
        raise ValueError(
            f"size must be a side or (height, width), at least 1 pixel each; got {size!r}"
        )
    return sides[0], sides[1]


def _checked_interval(name: str, interval: Sequence[float], limit: float) -> tuple[float, float]:
    ends = tuple(interval)
    if len(ends) != 2 or not 0 < ends[0] <= ends[1] <= limit or math.isinf(ends[1]):
        top = "" if math.isinf(limit) else f" <= {limit:g}"
        raise ValueError(
            f"{name} must be (least, greatest) with 0 < least <= greatest{top}; got {interval!r}"
        )
    return float(ends[0]), float(ends[1])


def _checked_numbers(name: str, numbers: float | Sequence[float]) -> tuple[float, ...]:
    values = (numbers,) if isinstance(numbers, (int, float)) else tuple(numbers)
    values = tuple(float(value) for value in values)
    if not values or not all(math.isfinite(value) for value in values):
        raise ValueError(f"{name} must be one number for each channel; got {numbers!r}")
    return values


def _checked_generator(generator: torch.Generator | None) -> torch.Generator | None:
    if generator is not None and generator.device.type != "cpu":
        raise ValueError(
            f"generator is on {generator.device}; expected a CPU generator, so that one seed gives "
            "the same boxes on every device: torch.Generator()"
        )
    return generator
