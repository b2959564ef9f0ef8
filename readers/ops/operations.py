"""What a loader may do to an image on its way into the batch. Descriptions: no pixels here.

A sequence of them begins with the one that fixes the size (a crop, a resize or a letterbox), and
may go on with a flip. `readers.ops.image_plan.compile_ops` checks it and carries it out.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import TypeAlias

Size: TypeAlias = int | tuple[int, int]
"""(height, width) in pixels, or the side of a square."""

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

    Raises:
        ValueError: An argument is out of its range.
    """

    size: Size
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)

    def __post_init__(self) -> None:
        _normalise_size(self)
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

    Raises:
        ValueError: `size` is out of its range.
    """

    size: Size

    def __post_init__(self) -> None:
        _normalise_size(self)


@dataclass(frozen=True)
class Letterbox:
    """The whole image, as large as fits into `size` at its own proportions, padded to it.

    It lies in the middle; where an odd number of pixels is padded, the left and top get the
    smaller half. It is the rule of `packer build --fit letterbox`.

    Attributes:
        size: (height, width) of the result in pixels; a single number makes it square.
        pad: Value of the pixels beside the image, in all channels.

    Raises:
        ValueError: An argument is out of its range.
    """

    size: Size
    pad: int = 114

    def __post_init__(self) -> None:
        _normalise_size(self)
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
        if not 0 <= self.p <= 1:
            raise ValueError(f"p must be in [0, 1]; got {self.p!r}")


SizeOp: TypeAlias = RandomResizedCrop | CenterCrop | Resize | Letterbox
"""Fixes the size of the result."""

ImageOp: TypeAlias = SizeOp | RandomFlip


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


def _checked_range(name: str, value: tuple[float, float]) -> tuple[float, float]:
    try:
        low, high = map(float, value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be two numbers, (least, greatest); got {value!r}") from None
    if not 0 < low <= high < math.inf:
        raise ValueError(f"{name} must be two numbers above 0, the lesser first; got {value!r}")
    return low, high
