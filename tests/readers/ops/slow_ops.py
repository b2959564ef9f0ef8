"""Ops by plain formulas: an image as a function of points, one function around another.

Nothing is composed here and nothing is shared with `readers.ops` but the random numbers and the
windows of crops, which have tests of their own.
"""

from __future__ import annotations

import numpy as np

from readers.chance import streams
from readers.chance.streams import Numbers

IMAGE, BESIDE = 0, 1
"""What is at a point: the image, or what lies beside it at first, or for an op (2, 3, ...)."""


def numbers_of(seed, index):
    """The numbers of one sample, by span."""
    numbers = Numbers(list(streams.SPANS.values()), seed, 0, [index])
    return lambda span: numbers[span][0].tolist()


def between(ends, number):
    return ends[0] + (ends[1] - ends[0]) * number


def placed(window, placement, size, pad, read):
    """The window where the op that fixes the size puts it; points -> values and what they are."""
    top, left, height, width = placement

    def at(x, y):
        u = (x - left) / width * window.shape[1]
        v = (y - top) / height * window.shape[0]
        inside = (u >= 0) & (u < window.shape[1]) & (v >= 0) & (v < window.shape[0])
        values = read(window, u, v)
        return np.where(inside[..., None], values, pad), np.where(inside, IMAGE, BESIDE)

    return at, size


def flipped(canvas, is_flipped, axis):
    """Left and right (0) or top and bottom (1) changed over."""
    inner, (height, width) = canvas
    if not is_flipped:
        return canvas
    if axis == 0:
        return (lambda x, y: inner(width - x, y)), (height, width)
    return (lambda x, y: inner(x, height - y)), (height, width)


def turned(canvas, count):
    """Counter-clockwise by quarters, one after the other."""
    for _ in range(count):
        canvas = _turned_once(canvas)
    return canvas


def _turned_once(canvas):
    inner, (height, width) = canvas
    # The right border becomes the top one.
    return (lambda x, y: inner(width - y, x)), (width, height)


def padded(canvas, padding, fill, number):
    """A border around it."""
    inner, size = canvas
    left, top, right, bottom = padding

    def at(x, y):
        return _cut(inner, size, x - left, y - top, fill, number)

    return at, (size[0] + top + bottom, size[1] + left + right)


def warped(canvas, op, drawn, number):
    """RandomAffine."""
    inner, size = canvas
    back = np.linalg.inv(affine_matrix(op, size, drawn))

    def at(x, y):
        u = back[0, 0] * x + back[0, 1] * y + back[0, 2]
        v = back[1, 0] * x + back[1, 1] * y + back[1, 2]
        return _cut(inner, size, u, v, op.fill, number)

    return at, size


def affine_matrix(op, size, drawn):
    """(3, 3), as the product of its parts, by torchvision's description."""
    height, width = size
    shear = (*(op.shear or (0, 0)), 0, 0)[:4]
    share_x, share_y = op.translate or (0, 0)
    angle = np.radians(between(op.degrees, drawn[0]))
    right = round(between((-share_x * width, share_x * width), drawn[1]))
    down = round(between((-share_y * height, share_y * height), drawn[2]))
    scale = between(op.scale or (1, 1), drawn[3])
    by_x = np.tan(np.radians(between(shear[:2], drawn[4])))
    by_y = np.tan(np.radians(between(shear[2:], drawn[5])))
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    linear = scale * turn @ np.array([[1, 0], [-by_y, 1]]) @ np.array([[1, -by_x], [0, 1]])
    matrix = np.eye(3)
    matrix[:2, :2] = linear
    middle = np.array([width / 2, height / 2])
    matrix[:2, 2] = middle + np.array([right, down]) - linear @ middle
    return matrix


def _cut(inner, size, x, y, fill, number):
    inside = (x >= 0) & (x < size[1]) & (y >= 0) & (y < size[0])
    values, found = inner(x, y)
    values = np.where(inside[..., None], values, np.broadcast_to(fill, values.shape))
    return values, np.where(inside, found, number)


def linear(window, u, v):
    """Between the 2 x 2 pixels around each point; beyond the outermost middles it is level."""
    x, y = np.clip(u - 0.5, 0, window.shape[1] - 1), np.clip(v - 0.5, 0, window.shape[0] - 1)
    x0, y0 = np.floor(x).astype(int), np.floor(y).astype(int)
    x1, y1 = np.minimum(x0 + 1, window.shape[1] - 1), np.minimum(y0 + 1, window.shape[0] - 1)
    x, y = (x - x0)[..., None], (y - y0)[..., None]
    upper = window[y0, x0] * (1 - x) + window[y0, x1] * x
    lower = window[y1, x0] * (1 - x) + window[y1, x1] * x
    return upper * (1 - y) + lower * y


def nearest(window, u, v):
    """The pixel that each point lies in."""
    x = np.clip(np.floor(u).astype(int), 0, window.shape[1] - 1)
    y = np.clip(np.floor(v).astype(int), 0, window.shape[0] - 1)
    return window[y, x].astype(float)


def carried_out(size, ops, params, window, seed, index, read=linear, pad=0):
    """The result of a sequence as a function of points, and its size.

    Args:
        size: (height, width) of the first canvas.
        ops: Those that follow the one that fixes the size.
        params: What the op that fixes the size makes of this one sample, alone.
        window: The part of the image that is used.
        seed: Of `params`.
        index: Of the sample.
        read: `linear` or `nearest`.
        pad: Value beside the placement.
    """
    drawn = numbers_of(seed, index)
    canvas = placed(window, params.placements[0].tolist(), size, pad, read)
    for number, op in enumerate(ops, BESIDE + 1):
        match type(op).__name__:
            case "RandomFlip":
                canvas = flipped(canvas, drawn(streams.FLIP)[0] < op.p, 0)
            case "RandomVerticalFlip":
                canvas = flipped(canvas, drawn(streams.VERTICAL_FLIP)[0] < op.p, 1)
            case "RandomRotation90":
                (share,) = drawn(streams.QUARTER_TURNS)
                count = op.turns[int(share / op.p * len(op.turns))] if share < op.p else 0
                canvas = turned(canvas, count)
            case "RandomAffine":
                canvas = warped(canvas, op, drawn(streams.AFFINE), number)
            case "Pad":
                canvas = padded(canvas, op.padding, op.fill, number)
            case name:
                raise AssertionError(name)
    return canvas
