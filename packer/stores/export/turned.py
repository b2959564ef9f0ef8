"""Boxes as other tools write them: inside of the picture, turned by an angle, in short numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from packer.sources.turned_boxes import ROUNDING_PX, turned_corners


def short_numbers(values: NDArray[Any]) -> list[float]:
    """float32 numbers as the shortest decimals that are read back as them: 12.3, not 12.3000002."""
    return [float(str(value)) for value in np.asarray(values, np.float32).reshape(-1)]


@dataclass(frozen=True)
class TurnedBox:
    """A box by its middle and size, turned clockwise about the middle."""

    x: float
    y: float
    width: float
    height: float
    degrees: float

    @property
    def upright(self) -> tuple[float, float, float, float]:
        """x, y, width, height of the box before it is turned."""
        left, top = self.x - self.width / 2, self.y - self.height / 2
        return left, top, self.width, self.height


def turned_box(corners: NDArray[Any]) -> TurnedBox | None:
    """The turned box of four corners, (4, 2) x y; None where they are none of a rectangle.

    A picture that was stretched has boxes with other angles than right ones.
    """
    points = np.asarray(corners, np.float64)
    across, down = points[1] - points[0], points[3] - points[0]
    width, height = math.hypot(*across), math.hypot(*down)
    x, y = points.mean(axis=0).tolist()
    degrees = math.degrees(math.atan2(across[1], across[0]))
    expected = turned_corners(x, y, width, height, degrees)
    if np.abs(points - expected).max() > ROUNDING_PX:
        return None
    return TurnedBox(x, y, width, height, degrees)


def inside(boxes: NDArray[Any], height: int, width: int) -> tuple[NDArray[np.float64], int]:
    """Boxes cut off at the border of their picture, float64, and how many of them were."""
    whole = np.asarray(boxes, np.float64)
    cut = np.clip(whole, 0, np.array([width, height, width, height], np.float64))
    return cut, int((cut != whole).any(axis=1).sum())
