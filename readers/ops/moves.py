"""Where flips, turns, affines and borders take points, for all samples of a batch. No pixels here.

A move is (sample, 2, 3) float64: an affine for each sample, from points of a canvas (an image on
its way) to points of the next one. Coordinates are continuous: pixel i covers [i, i + 1).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from readers.ops.windows import LEFT_RIGHT, TRANSPOSED, UP_DOWN, Rows

Affines = NDArray[np.float64]
"""(sample, 2, 3)."""

Size = tuple[int, int]
"""(height, width) in pixels."""


def unmoved(count: int) -> Affines:
    """Affines that change nothing."""
    affines: Affines = np.tile(np.eye(2, 3), (count, 1, 1))
    return affines


def compose(first: Affines, second: Affines) -> Affines:
    """The affines that do `first` and then `second`."""
    linear = second[:, :, :2] @ first[:, :, :2]
    offset = second[:, :, :2] @ first[:, :, 2:] + second[:, :, 2:]
    return np.concatenate([linear, offset], axis=2)


def invert(affines: Affines) -> Affines:
    """The affines that undo `affines`, each of which can be undone."""
    linear = np.linalg.inv(affines[:, :, :2])
    return np.concatenate([linear, -linear @ affines[:, :, 2:]], axis=2)


def flips(flipped: NDArray[np.bool_], size: Size, axis: int) -> Affines:
    """Left and right changed over (axis 0), or top and bottom (axis 1)."""
    affines = np.zeros((len(flipped), 2, 3))
    affines[:, 1 - axis, 1 - axis] = 1
    affines[:, axis, axis] = 1.0 - 2.0 * flipped
    affines[:, axis, 2] = flipped * size[1 - axis]
    return affines


def quarter_turns(turns: Rows, size: Size) -> Affines:
    """Turned counter-clockwise by so many quarters. The size stays: a square, if one is odd."""
    height, width = size
    by_turn = np.array(
        [
            [[1, 0, 0], [0, 1, 0]],
            [[0, 1, 0], [-1, 0, width]],
            [[-1, 0, width], [0, -1, height]],
            [[0, -1, height], [1, 0, 0]],
        ],
        np.float64,
    )
    affines: Affines = by_turn[turns]
    return affines


def shifts(count: int, right: int, down: int) -> Affines:
    """Moved by so many pixels, all alike."""
    affines = unmoved(count)
    affines[:, :, 2] = right, down
    return affines


def about_the_middle(
    size: Size,
    *,
    degrees: NDArray[np.float64],
    right: NDArray[np.float64],
    down: NDArray[np.float64],
    scale: NDArray[np.float64],
    shear_x: NDArray[np.float64],
    shear_y: NDArray[np.float64],
) -> Affines:
    """What `affine` of torchvision makes of an image of this size.

    Args:
        size: Of the image and of the result.
        degrees: Clockwise, (sample,).
        right: Pixels by which it is moved.
        down: Pixels by which it is moved.
        scale: Factor.
        shear_x: Degrees.
        shear_y: Degrees.
    """
    turn, by_x, by_y = np.radians(degrees), np.radians(shear_x), np.radians(shear_y)
    affines = np.empty((len(degrees), 2, 3))
    along_x, along_y = np.cos(turn - by_y) / np.cos(by_y), np.sin(turn - by_y) / np.cos(by_y)
    affines[:, 0, 0] = scale * along_x
    affines[:, 0, 1] = scale * (-along_x * np.tan(by_x) - np.sin(turn))
    affines[:, 1, 0] = scale * along_y
    affines[:, 1, 1] = scale * (-along_y * np.tan(by_x) + np.cos(turn))
    middle = np.array([size[1] / 2, size[0] / 2])
    affines[:, :, 2] = middle - affines[:, :, :2] @ middle + np.stack([right, down], axis=1)
    return affines


def orientations(moves: Affines) -> Rows:
    """How moves of flips, quarter turns and shifts leave an image lying; see `TRANSPOSED`."""
    mirrored = moves[:, :, 0] + moves[:, :, 1] < 0  # The one entry in each row that is not 0.
    codes: Rows = mirrored @ np.array([LEFT_RIGHT, UP_DOWN])
    codes += (moves[:, 0, 0] == 0) * TRANSPOSED
    return codes


def moved_windows(rectangles: Rows, moves: Affines) -> Rows:
    """(sample, 4) rectangles (top, left, height, width) after flips, quarter turns and shifts."""
    corners = np.zeros((len(rectangles), 3, 2))  # x, y and 1 of two that lie opposite.
    corners[:, :2, 0] = rectangles[:, 1::-1]
    corners[:, :2, 1] = corners[:, :2, 0] + rectangles[:, :1:-1]
    corners[:, 2] = 1
    moved = moves @ corners
    result = np.empty_like(rectangles)
    result[:, 1::-1] = moved.min(axis=2)
    result[:, :1:-1] = np.abs(moved[:, :, 1] - moved[:, :, 0])
    return result


def all_of(moves: Sequence[Affines], count: int) -> Affines:
    """One move that does all of them in turn."""
    result = None
    for move in moves:
        result = move if result is None else compose(result, move)
    return unmoved(count) if result is None else result
