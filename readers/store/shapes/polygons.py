"""Outlines of the objects of one image <-> bytes.

An object is outlined by any number of polygons, or by runs over the pixels of the image as COCO's
crowds are. Outlines stay data; `Polygons.to_masks` makes pixels of them when somebody asks.

    ┌──────────────────────────┬─────────┬─────────┬─────────┬──────────────┐
    │ height, width, counts of │ parts   │ lengths │ runs    │ points       │
    │ parts, lengths and runs  │ u32     │ u32     │ u32     │ f64, x and y │
    └──────────────────────────┴─────────┴─────────┴─────────┴──────────────┘
    5 x u32                     an object a polygon  of all    of all
                                each      or RLE each RLEs      polygons
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from readers.store.errors import CodecError

PIXELS_MAX = 2**28
"""Of the image that outlines are drawn on: what masks of a stranger's file may cost, each."""

_HEAD = struct.Struct("<5I")
_IS_RUNS = 2**32 - 1
"""Number of parts of an object that is outlined by runs."""


@dataclass(frozen=True, eq=False)
class Runs:
    """An object as runs of pixels that do not belong and do belong to it, in turn.

    Attributes:
        counts: (run,) uint32, over the columns of the image from the left, each from the top.
    """

    counts: NDArray[np.uint32]


Outline: TypeAlias = "tuple[NDArray[np.float64], ...] | Runs"
"""Polygons, (point, 2) float64 x y in pixels, together one object (none: not outlined); or runs."""


class Polygons(Sequence[Any]):
    """Outlines of the objects of one image, in the order of its boxes.

    Coordinates are continuous: pixel i covers [i, i + 1). They may lie outside of the image.

    Args:
        outlines: One for each object.
        height: Of the image, in pixels.
        width: Of the image, in pixels.

    Raises:
        ValueError: The image has over `PIXELS_MAX` pixels, or an outline another form.
    """

    def __init__(self, outlines: Sequence[Outline], height: int, width: int) -> None:
        if height < 0 or width < 0 or height * width > PIXELS_MAX:
            raise ValueError(
                f"outlines on an image of {width}x{height} pixels; at most {PIXELS_MAX} in all"
            )
        for outline in outlines:
            if isinstance(outline, Runs):
                if int(outline.counts.sum(dtype=np.uint64)) != height * width:
                    raise ValueError(
                        f"runs of {int(outline.counts.sum(dtype=np.uint64))} pixels in all, "
                        f"expected {width}x{height}"
                    )
            elif any(part.ndim != 2 or part.shape[1] != 2 for part in outline):
                raise ValueError("a polygon must be (point, 2), x and y")
        self._outlines = tuple(outlines)
        self.height = height
        self.width = width

    def __len__(self) -> int:
        return len(self._outlines)

    def __getitem__(self, at: Any) -> Any:
        """The outline of an object, or for a slice those of some."""
        if isinstance(at, slice):
            return Polygons(self._outlines[at], self.height, self.width)
        return self._outlines[at]

    def __iter__(self) -> Iterator[Outline]:
        return iter(self._outlines)

    def __repr__(self) -> str:
        return f"<Polygons of {len(self)} objects on {self.width}x{self.height} pixels>"

    def to_masks(self) -> NDArray[np.uint8]:
        """The objects as pixels, by the rule of COCO's own tools: (object, height, width), 0 or 1.

        An object without outline has no pixels.

        Raises:
            ValueError: A point is not finite.
        """
        from readers.store.shapes.rle import fill, fill_polygons

        masks = np.zeros((len(self), self.height, self.width), np.uint8)
        for mask, outline in zip(masks, self._outlines, strict=True):
            if isinstance(outline, Runs):
                mask[:] = fill(outline.counts, self.height, self.width)
            elif outline:
                mask[:] = fill_polygons(outline, self.height, self.width)
        return masks


def encode_polygons(value: Polygons) -> bytes:
    """The bytes that the format keeps."""
    parts: list[int] = []
    lengths: list[int] = []
    runs: list[NDArray[Any]] = []
    points: list[NDArray[Any]] = []
    for outline in value:
        if isinstance(outline, Runs):
            parts.append(_IS_RUNS)
            lengths.append(len(outline.counts))
            runs.append(outline.counts)
        else:
            parts.append(len(outline))
            lengths += map(len, outline)
            points += outline
    run_count = sum(map(len, runs))
    return b"".join(
        [
            _HEAD.pack(value.height, value.width, len(parts), len(lengths), run_count),
            np.array(parts, "<u4").tobytes(),
            np.array(lengths, "<u4").tobytes(),
            *(np.ascontiguousarray(counts, "<u4").tobytes() for counts in runs),
            *(np.ascontiguousarray(part, "<f8").tobytes() for part in points),
        ]
    )


def decode_polygons(payload: memoryview) -> Polygons:
    """Outlines from their bytes, which may be a stranger's.

    Raises:
        CodecError: They are not what the format says.
    """
    if len(payload) < _HEAD.size:
        raise CodecError(f"outlines in {len(payload)} bytes, expected at least {_HEAD.size}")
    height, width, object_count, length_count, run_count = _HEAD.unpack_from(payload)
    numbers = object_count + length_count + run_count
    start = _HEAD.size + 4 * numbers
    if start > len(payload) or (len(payload) - start) % 16:
        raise CodecError(
            f"{object_count} objects, {length_count} outlines and {run_count} runs in "
            f"{len(payload)} bytes"
        )
    table = np.frombuffer(payload, "<u4", numbers, _HEAD.size)
    parts, lengths = table[:object_count].tolist(), table[object_count:][:length_count].tolist()
    runs = table[object_count + length_count :].astype(np.uint32)
    points = np.frombuffer(payload, "<f8", -1, start).reshape(-1, 2).astype(np.float64)
    outlines: list[Outline] = []
    at = run_at = point_at = 0
    for part_count in parts:
        is_runs = part_count == _IS_RUNS
        mine = lengths[at : at + (1 if is_runs else part_count)]
        at += 1 if is_runs else part_count
        if at > length_count:
            break
        if is_runs:
            outlines.append(Runs(runs[run_at : run_at + mine[0]]))
            run_at += mine[0]
        else:
            ends = np.cumsum([point_at, *mine]).tolist()
            outlines.append(tuple(points[a:b] for a, b in pairwise(ends)))
            point_at = ends[-1]
    if (at, run_at, point_at) != (length_count, run_count, len(points)):
        raise CodecError(
            f"outlines of {at} parts, {run_at} runs and {point_at} points, expected "
            f"{length_count}, {run_count} and {len(points)}"
        )
    try:
        return Polygons(outlines, height, width)
    except ValueError as error:
        raise CodecError(str(error)) from error
