"""What a loader may do to an image on its way into the batch. Descriptions: no pixels here.

A sequence of them begins with the one that fixes the size (a crop, a resize or a letterbox); where
all images of a store are of one size, it may be left out. Flips, turns, an affine, a border and a
change of colours may follow, each once, in any order: each works on what the one before it made.
`readers.ops.image_plan.compile_ops` checks a sequence and carries it out: all of it moves pixels
once.

Names and conventions are those of torchvision's transforms of version 2, unless said otherwise.
"""

from __future__ import annotations

import math
import numbers
import operator
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

Scaling: TypeAlias = Literal["fast", "exact"]
"""How a stored JPEG of which a window several times the result is wanted comes to its size. "fast"
has the decoder give it at 1/2, 1/4 or 1/8, still 1.5 times the result at least, and averages that.
"exact" decodes every pixel, and reads them as `readers.ops.image_plan.Interpolation` says. Other
images are read in that way under both, and nothing else follows from it: not where the window lies,
nor what boxes and masks become."""

Size: TypeAlias = int | tuple[int, int]
"""(height, width) in pixels, or the side of a square."""

Fill: TypeAlias = int | tuple[int, ...]
"""Value of pixels beside an image: one for all channels, or one for each."""

_SIDE_MAX = 2**15 - 1
_RATIO_MAX = 10_000


@dataclass(frozen=True)
class RandomResizedCrop:
    """A random part of the image, stretched to `size`: torchvision's crop of the same name.

    Its area is uniform in `scale`, times the image's; the logarithm of width over height is
    uniform in that of `ratio`; sides are rounded; its place is uniform. Ten tries to fit into the
    image are made, then the middle of the image is taken, as much as `ratio` allows.

    Attributes:
        size: (height, width) of the result in pixels; a single number makes it square.
        scale: Least and greatest area, as shares of the image's, in (0, 1].
        ratio: Least and greatest width over height, in [1/10000, 10000].
        scaling: See `Scaling`.

    Raises:
        ValueError: An argument is out of its range.
    """

    size: Size
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    scaling: Scaling = "fast"

    def __post_init__(self) -> None:
        _normalise_size(self)
        _check_scaling(self.scaling)
        low, high = _checked_range("scale", self.scale)
        if high > 1:
            raise ValueError(f"scale must be in (0, 1]; got {self.scale!r}")
        object.__setattr__(self, "scale", (low, high))
        object.__setattr__(self, "ratio", _checked_range("ratio", self.ratio))
        if not 1 / _RATIO_MAX <= self.ratio[0] <= self.ratio[1] <= _RATIO_MAX:
            raise ValueError(f"ratio must be in [1/{_RATIO_MAX}, {_RATIO_MAX}]; got {self.ratio!r}")


@dataclass(frozen=True)
class CenterCrop:
    """The middle of the image, at its own scale.

    Where an odd number of pixels is cut, the left and top lose the smaller half. An image that is
    smaller than `size` lies in the middle of zeros.

    Attributes:
        size: (height, width) of the result in pixels; a single number makes it square.

    Raises:
        ValueError: `size` is out of its range.
    """

    size: Size

    def __post_init__(self) -> None:
        _normalise_size(self)


@dataclass(frozen=True)
class Resize:
    """The whole image, stretched to `size`.

    Attributes:
        size: (height, width) of the result in pixels; a single number makes it square.
        scaling: See `Scaling`.

    Raises:
        ValueError: An argument is out of its range.
    """

    size: Size
    scaling: Scaling = "fast"

    def __post_init__(self) -> None:
        _normalise_size(self)
        _check_scaling(self.scaling)


@dataclass(frozen=True)
class Letterbox:
    """The whole image, as large as fits into `size` at its own proportions, padded to it.

    It lies in the middle; where an odd number of pixels is padded, the left and top get the
    smaller half. It is the rule of `packer build --fit letterbox`.

    Attributes:
        size: (height, width) of the result in pixels; a single number makes it square.
        pad: Value of the pixels beside the image, in all channels.
        scaling: See `Scaling`.

    Raises:
        ValueError: An argument is out of its range.
    """

    size: Size
    pad: int = 114
    scaling: Scaling = "fast"

    def __post_init__(self) -> None:
        _normalise_size(self)
        _check_scaling(self.scaling)
        object.__setattr__(self, "pad", _whole_number("pad", self.pad, 0, 2**16 - 1))


@dataclass(frozen=True)
class RandomFlip:
    """Left and right changed over, in a share of the samples.

    Attributes:
        p: That share, in [0, 1].

    Raises:
        ValueError: `p` is out of its range.
    """

    p: float = 0.5

    def __post_init__(self) -> None:
        _check_share(self.p)


RandomHorizontalFlip = RandomFlip
"""torchvision's name of it."""


@dataclass(frozen=True)
class RandomVerticalFlip:
    """Top and bottom changed over, in a share of the samples.

    Attributes:
        p: That share, in [0, 1].

    Raises:
        ValueError: `p` is out of its range.
    """

    p: float = 0.5

    def __post_init__(self) -> None:
        _check_share(self.p)


@dataclass(frozen=True)
class RandomRotation90:
    """Turned by quarters, in a share of the samples: no pixel changes its value.

    A quarter turn of an image that is not square is of another size, which a batch cannot hold:
    there `turns` may be 0 and 2 alone.

    Attributes:
        p: That share, in [0, 1].
        turns: Counts of quarters, counter-clockwise as numpy's `rot90` has them, each in [0, 4);
            one is drawn for each sample that is turned, each as often as any other.

    Raises:
        ValueError: An argument is out of its range.
    """

    p: float = 1.0
    turns: tuple[int, ...] = (0, 1, 2, 3)

    def __post_init__(self) -> None:
        _check_share(self.p)
        if not isinstance(self.turns, (tuple, list)) or not self.turns:
            raise ValueError(f"turns must be counts of quarters, (0, 1, 2, 3); got {self.turns!r}")
        turns = tuple(_whole_number("turns", turn, 0, 3) for turn in self.turns)
        object.__setattr__(self, "turns", turns)


@dataclass(frozen=True)
class RandomAffine:
    """Turned, moved, scaled and sheared about the middle; the size stays.

    Numbers are drawn and used as torchvision does it. Pixels are interpolated between 2 x 2 of the
    image (torchvision's `InterpolationMode.BILINEAR`), in one step with the op that fixes the size.

    Attributes:
        degrees: Least and greatest angle, clockwise; one number d means (-d, d).
        translate: Greatest shares of width and height, each in [0, 1], by which the image is moved
            to either side, in whole pixels. None moves nothing.
        scale: Least and greatest factor, above 0; 2 shows everything twice as large. None: 1.
        shear: Least and greatest angle in degrees, in (-90, 90), by which x is sheared; one number
            d means (-d, d); four are two for x and two for y. None shears nothing.
        fill: Value of the pixels beside the image: one number, or one for each channel.

    Raises:
        ValueError: An argument is out of its range.
    """

    degrees: float | tuple[float, float]
    translate: tuple[float, float] | None = None
    scale: tuple[float, float] | None = None
    shear: float | tuple[float, float] | tuple[float, float, float, float] | None = None
    fill: Fill = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "degrees", _around_0("degrees", self.degrees, (2,)))
        if self.translate is not None:
            shares = _numbers("translate", self.translate, (2,))
            if not all(0 <= share <= 1 for share in shares):
                raise ValueError(
                    f"translate must be shares of width and height, each in [0, 1]; "
                    f"got {self.translate!r}"
                )
            object.__setattr__(self, "translate", shares)
        if self.scale is not None:
            object.__setattr__(self, "scale", _checked_range("scale", self.scale))
        if self.shear is not None:
            angles = _around_0("shear", self.shear, (2, 4))
            if not all(-90 < angle < 90 for angle in angles):
                raise ValueError(f"shear must be degrees in (-90, 90); got {self.shear!r}")
            object.__setattr__(self, "shear", angles)
        object.__setattr__(self, "fill", _checked_fill(self.fill))


@dataclass(frozen=True)
class Pad:
    """A border around the image, which makes the result larger.

    Attributes:
        padding: Pixels at the left, top, right and bottom. One number is for all four; two are for
            left and right, and for top and bottom.
        fill: Value of the border: one number, or one for each channel.

    Raises:
        ValueError: An argument is out of its range.
    """

    padding: int | tuple[int, int] | tuple[int, int, int, int]
    fill: Fill = 0

    def __post_init__(self) -> None:
        given = self.padding
        sides = tuple(given) if isinstance(given, (tuple, list)) else (given,)
        if len(sides) not in (1, 2, 4):
            raise ValueError(
                "padding must be one number, (left and right, top and bottom) or "
                f"(left, top, right, bottom); got {given!r}"
            )
        whole = tuple(_whole_number("padding", side, 0, _SIDE_MAX) for side in sides)
        object.__setattr__(self, "padding", whole * (4 // len(whole)))
        object.__setattr__(self, "fill", _checked_fill(self.fill))


@dataclass(frozen=True)
class ColorJitter:
    """Brightness, contrast and saturation changed by random factors, in random order. For uint8.

    A factor of 1 changes nothing. Brightness 0 is black, contrast 0 the image's mean gray,
    saturation 0 a gray image. Gray images have no saturation to change, and alpha stays as it is.
    Levels are torchvision's to within one or two.

    Attributes:
        brightness: Least and greatest factor, at least 0; one number b means from 1 - b, but not
            below 0, to 1 + b.
        contrast: Likewise.
        saturation: Likewise.

    Raises:
        ValueError: An argument is out of its range.
    """

    brightness: float | tuple[float, float] = 0
    contrast: float | tuple[float, float] = 0
    saturation: float | tuple[float, float] = 0

    def __post_init__(self) -> None:
        for name in ("brightness", "contrast", "saturation"):
            object.__setattr__(self, name, _checked_factors(name, getattr(self, name)))


SizeOp: TypeAlias = RandomResizedCrop | CenterCrop | Resize | Letterbox
"""Fixes the size of the result."""

MoveOp: TypeAlias = RandomFlip | RandomVerticalFlip | RandomRotation90 | RandomAffine | Pad
"""Takes an image of one size to one of another, by an affine."""

ImageOp: TypeAlias = SizeOp | MoveOp | ColorJitter


def height_width(op: SizeOp) -> tuple[int, int]:
    """(height, width) in pixels of what an op makes."""
    assert isinstance(op.size, tuple), "every op has made its size a pair"
    return op.size


def _normalise_size(op: SizeOp) -> None:
    """Make the size of a new op a checked pair."""
    size = op.size
    sides = size if isinstance(size, (tuple, list)) else (size, size)
    if len(sides) != 2:
        raise ValueError(f"size must be one side or (height, width); got {size!r}")
    pair = tuple(_whole_number("size", side, 1, _SIDE_MAX) for side in sides)
    object.__setattr__(op, "size", pair)


def _whole_number(name: str, value: object, low: int, high: int) -> int:
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise ValueError(f"{name} must be a whole number; got {value!r}") from None
    if not low <= number <= high or isinstance(value, bool):
        raise ValueError(f"{name} must be in [{low}, {high + 1}); got {value!r}")
    return number


def _numbers(name: str, value: object, counts: tuple[int, ...]) -> tuple[float, ...]:
    """So many finite numbers."""
    try:
        found = tuple(map(float, value))  # type: ignore[call-overload]
    except (TypeError, ValueError):
        found = ()
    if len(found) not in counts or not all(map(math.isfinite, found)):
        wanted = " or ".join(map(str, counts))
        raise ValueError(f"{name} must be {wanted} finite numbers; got {value!r}")
    return found


def _around_0(name: str, value: object, counts: tuple[int, ...]) -> tuple[float, ...]:
    """Pairs of least and greatest; one number is the distance of both from 0."""
    if isinstance(value, numbers.Real):
        if not 0 <= float(value) < math.inf:
            raise ValueError(
                f"{name} must be a number of at least 0, or the least and the greatest; "
                f"got {value!r}"
            )
        return -float(value), float(value)
    ends = _numbers(name, value, counts)
    if any(low > high for low, high in zip(ends[::2], ends[1::2], strict=True)):
        raise ValueError(f"{name} must have the lesser first; got {value!r}")
    return ends


def _checked_factors(name: str, value: object) -> tuple[float, ...]:
    """Least and greatest factor; one number is the distance of both from 1."""
    if isinstance(value, numbers.Real):
        distance = float(value)
        ends: tuple[float, ...] = (min(1.0, max(0.0, 1 - distance)), 1 + distance)
        is_right = 0 <= distance < math.inf
    else:
        ends = _numbers(name, value, (2,))
        is_right = 0 <= ends[0] <= ends[1]
    if not is_right:
        raise ValueError(
            f"{name} must be a number of at least 0, or the least and the greatest factor; "
            f"got {value!r}"
        )
    return ends


def _checked_fill(fill: object) -> Fill:
    if isinstance(fill, (tuple, list)):
        if not fill:
            raise ValueError(f"fill must be one number, or one for each channel; got {fill!r}")
        return tuple(_whole_number("fill", value, 0, 2**16 - 1) for value in fill)
    return _whole_number("fill", fill, 0, 2**16 - 1)


def _check_scaling(scaling: str) -> None:
    if scaling not in get_args(Scaling):
        raise ValueError(f"scaling must be fast or exact; got {scaling!r}")


def _check_share(p: float) -> None:
    if not 0 <= p <= 1:
        raise ValueError(f"p must be in [0, 1]; got {p!r}")


def _checked_range(name: str, value: tuple[float, float]) -> tuple[float, float]:
    try:
        low, high = map(float, value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be two numbers, (least, greatest); got {value!r}") from None
    if not 0 < low <= high < math.inf:
        raise ValueError(f"{name} must be two numbers above 0, the lesser first; got {value!r}")
    return low, high
