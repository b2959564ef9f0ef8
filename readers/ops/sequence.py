"""Whether a sequence of ops can be carried out, and if not, what is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from readers.ops.moves import Size
from readers.ops.operations import ColorJitter, Fill, ImageOp, MoveOp, Resize, SizeOp, height_width
from readers.ops.table import COLOR_ROWS, KINDS, MOVE_ROWS, SIZE_ROWS

_SIDE_MAX = 2**15 - 1


def checked_sequence(
    ops: Sequence[ImageOp], channel_count: int, dtype: str, image_size: Size | None
) -> tuple[SizeOp | None, tuple[MoveOp | ColorJitter, ...]]:
    """The op that fixes the size, if there is one, and those that follow it.

    Raises:
        ValueError: The sequence cannot be carried out on such images.
        TypeError: `ops` holds something else.
    """
    if isinstance(ops, (*KINDS, str)) or not isinstance(ops, Sequence):
        raise TypeError(f"ops must be a sequence, such as [RandomFlip()]; got {ops!r}")
    for op in ops:
        if not isinstance(op, KINDS):
            raise TypeError(_not_an_op(op))
    sizes = tuple(SIZE_ROWS)
    is_sized = bool(ops) and isinstance(ops[0], sizes)
    if not ops or not (is_sized or image_size is not None):
        raise ValueError(
            f"ops must begin with the one that fixes the size, one of {_names(sizes)}, unless all "
            f"images are of one size; got {list(ops)!r}"
        )
    others: list[Any] = list(ops[1:] if is_sized else ops)
    for op in others:
        if isinstance(op, sizes):
            raise ValueError(f"ops must fix the size once, at the beginning; got {list(ops)!r}")
        if sum(type(other) is type(op) for other in others) > 1:
            raise ValueError(f"ops must hold at most one {type(op).__name__}; got {list(ops)!r}")
    first: Any = ops[0] if is_sized else None
    _check_each(first, others, channel_count, dtype, image_size)
    return first, tuple(others)


def _check_each(
    first: SizeOp | None,
    others: Sequence[Any],
    channel_count: int,
    dtype: str,
    image_size: Size | None,
) -> None:
    """Hold each op against what it is to work on."""
    assert first is not None or image_size is not None
    # Resize checks the size of the images, which are as they come.
    size = height_width(Resize(image_size or (1, 1)) if first is None else first)
    if first is not None:
        _check_fill("pad", SIZE_ROWS[type(first)].pad(first), channel_count, dtype)
    for op in others:
        if type(op) in COLOR_ROWS:
            problem = COLOR_ROWS[type(op)].problem(channel_count, dtype)
        else:
            row = MOVE_ROWS[type(op)]
            problem = row.problem(op, size)
            fill = row.fill(op)
            if fill is not None:
                _check_fill("fill", fill, channel_count, dtype)
            size = row.size(op, size)
        if problem is None and max(size) > _SIDE_MAX:
            problem = (
                f"{type(op).__name__} makes images of {size[0]} x {size[1]} (height x width); "
                f"sides must be in [1, {_SIDE_MAX + 1})"
            )
        if problem is not None:
            raise ValueError(problem)


def _check_fill(name: str, fill: Fill, channel_count: int, dtype: str) -> None:
    values = fill if isinstance(fill, tuple) else (fill,)
    if isinstance(fill, tuple) and len(fill) != channel_count:
        raise ValueError(
            f"{name} must be one number, or one for each of the {channel_count} channels; "
            f"got {fill!r}"
        )
    limit = int(np.iinfo(dtype).max) + 1
    for value in values:
        if value >= limit:
            raise ValueError(f"{name} must be in [0, {limit}) for {dtype} images; got {value!r}")


def _names(kinds: Sequence[type]) -> str:
    return ", ".join(kind.__name__ for kind in kinds)


def _not_an_op(op: object) -> str:
    """What to say of something that is not an op of `readers.ops`, but may have the name of one."""
    expected = f"ops must be objects of {_names(KINDS)}, of readers.ops; got "
    if isinstance(op, type):
        return f"{expected}the class {op.__name__}: write {op.__name__}(...)"
    kind = type(op)
    if kind.__module__ == "readers.augment":
        return (
            f"{expected}readers.augment.{kind.__name__}, which works on whole batches: give it to "
            "readers.augment.Augment"
        )
    if kind.__module__.partition(".")[0] in ("builtins", "__main__"):
        return f"{expected}{op!r}"
    return (
        f"{expected}{kind.__module__}.{kind.__name__}. Pass it to the dataset as its transform, if "
        "that is what it is"
    )
