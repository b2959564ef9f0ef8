"""Pixels without a file around them: how they lie, as text that an item can carry."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

PixelOrder = Literal["rows", "planes", "bgr-planes"]
"""Channels side by side in each pixel; or a plane for each; or planes of blue, green and red."""

_TEXT = re.compile(r"(\d{1,9})x(\d{1,9})x([134]) (rows|planes|bgr-planes)")

NPY_START_BYTES = 2**11
"""The header of an array of three dimensions takes 128 bytes."""


@dataclass(frozen=True, kw_only=True)
class PixelShape:
    """How pixels of uint8 lie.

    Attributes:
        height: Rows.
        width: Columns.
        channels: 1, 3 or 4.
        order: How channels lie.
    """

    height: int
    width: int
    channels: int
    order: PixelOrder = "rows"

    @property
    def byte_count(self) -> int:
        """Bytes of them."""
        return self.height * self.width * self.channels

    @property
    def text(self) -> str:
        """All of it: `Member.name` of a bare image."""
        return f"{self.height}x{self.width}x{self.channels} {self.order}"

    @classmethod
    def from_text(cls, text: str) -> PixelShape:
        """What `text` says."""
        match = _TEXT.fullmatch(text)
        assert match is not None, text
        height, width, channels = map(int, match.groups()[:3])
        order: PixelOrder = match[4]  # type: ignore[assignment]  # One of the three, as matched.
        return cls(height=height, width=width, channels=channels, order=order)

    def pixels(self, data: bytes) -> NDArray[np.uint8]:
        """The pixels (height, width, channel) of their bytes."""
        found = np.frombuffer(data, np.uint8)
        if self.order == "rows":
            return found.reshape(self.height, self.width, self.channels)
        planes = found.reshape(self.channels, self.height, self.width)
        if self.order == "bgr-planes":
            planes = planes[::-1]
        return np.ascontiguousarray(planes.transpose(1, 2, 0))


def pixel_shape(sides: tuple[int, ...]) -> PixelShape:
    """How an array of a shape lies: (height, width[, channel]), or (channel, height, width).

    Raises:
        ValueError: It is not the shape of an image.
    """
    if len(sides) == 2:
        sides = (*sides, 1)
    if len(sides) == 3 and all(0 < side < 10**9 for side in sides):
        if sides[2] in (1, 3, 4):
            return PixelShape(height=sides[0], width=sides[1], channels=sides[2])
        if sides[0] in (1, 3, 4):
            return PixelShape(height=sides[1], width=sides[2], channels=sides[0], order="planes")
    raise ValueError(f"an array of shape {sides}; expected (height, width) with 1, 3 or 4 channels")


def npy_shape(start: bytes, byte_count: int) -> tuple[PixelShape, int]:
    """How the pixels of a `.npy` lie, and where they begin.

    Args:
        start: Its first bytes, `NPY_START_BYTES` where there are as many.
        byte_count: Its size.

    Raises:
        ValueError: It is not an array of pixels of uint8.
    """
    stream = io.BytesIO(start)
    version = np.lib.format.read_magic(stream)
    read_header = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if read_header is None:
        raise ValueError(f"a .npy of version {version}")
    sides, is_fortran, dtype = read_header(stream)
    if dtype != np.uint8 or is_fortran:
        order = " in Fortran order" if is_fortran else ""
        raise ValueError(f"an array of {dtype}{order}; expected uint8")
    shape, begin = pixel_shape(sides), stream.tell()
    if byte_count - begin != shape.byte_count:
        raise ValueError(f"{byte_count - begin} bytes of an array of shape {sides}")
    return shape, begin
