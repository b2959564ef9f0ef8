"""What is done to each sample of a batch, as numbers.

    image --window--> placement on the first canvas --moves--> edge --moves--> edge --> result

A canvas is an image on its way. An edge is one beside which something lies: it is turned or moved
within a canvas of its size, or gets a border. What sticks out of an edge is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from readers.ops import moves, reduced
from readers.ops import windows as places
from readers.ops.moves import Affines, Size
from readers.ops.operations import Fill
from readers.ops.windows import Rows


@dataclass(frozen=True, kw_only=True)
class Edge:
    """A canvas beside which something lies in the next one.

    Attributes:
        size: (height, width) of the canvas.
        fill: Value of what lies beside it.
        is_upright: Whether all moves from here on take whole pixels to whole pixels.
    """

    size: Size
    fill: Fill
    is_upright: bool


@dataclass(frozen=True, eq=False)
class Params:
    """What is done to each sample of a batch.

    Windows and placements are (top, left, height, width) in pixels. A decoder that can do so may
    decode the window alone, and hand it to `ImagePlan.apply_window`.

    Attributes:
        sizes: (sample, 2) int64, height and width of the images.
        windows: (sample, 4) int64, the part of each image that is used.
        placements: (sample, 4) int64, the part of the result that it fills; of the first canvas,
            where the samples are warped.
        orientations: (sample,) int64, how it lies there; see `readers.ops.windows.TRANSPOSED`.
        methods: (sample,) int64, how the window is resized, as a number of OpenCV's.
        sides: (sample, 2) int64, height and width that the window is resized to, before it turns.
        edges: See `Edge`.
        links: Moves from the first canvas to the first edge, on to the next, and to the result:
            one more than there are edges. Empty where there are none.
        is_warped: Whether the moves leave the grid of pixels.
        colors: (sample, 4) float64, factors of brightness, contrast and saturation, and the number
            of their order; None where colours stay.
        is_exact: Whether every pixel of a window counts; see `readers.ops.operations.Scaling`.
    """

    sizes: Rows
    windows: Rows
    placements: Rows
    orientations: Rows
    methods: NDArray[np.int64]
    sides: Rows
    edges: tuple[Edge, ...] = ()
    links: tuple[Affines, ...] = ()
    is_warped: bool = False
    colors: NDArray[np.float64] | None = None
    is_exact: bool = False

    def __len__(self) -> int:
        return len(self.orientations)

    @property
    def flips(self) -> NDArray[np.bool_]:
        """(sample,) bool, whether left and right are changed over, after any transposition."""
        flips: NDArray[np.bool_] = (self.orientations & places.LEFT_RIGHT) != 0
        return flips

    @cached_property
    def affines(self) -> Affines:
        """(sample, 2, 3) float64, from points of each image to points of the result.

        Coordinates are continuous: pixel i covers [i, i + 1).
        """
        placed = places.affines_of(self.windows, self.placements, self.orientations)
        if not self.is_warped:
            return placed
        return moves.compose(placed, self._moved)

    @cached_property
    def _moved(self) -> Affines:
        """From the first canvas to the result."""
        return moves.all_of(self.links, len(self))

    @cached_property
    def stages(self) -> list[tuple[Affines, NDArray[np.float64]]]:
        """How boxes follow up to the last edge: affines, and what they are cut to after each.

        An object is cut where its image is: what one stage cuts off, the next does not bring back.
        Limits are (sample, 4), x0 y0 x1 y1. What leads from the last stage to the result comes
        after them.
        """
        if not self.edges:
            return []
        if not self.is_warped:
            # The edges lie within one another; cut to the innermost one.
            top, bottom, left, right = np.array(self.edge_rows[0]).reshape(len(self), 4).T
            return [(self.affines, np.stack([left, top, right, bottom], axis=1, dtype=float))]
        placed = places.affines_of(self.windows, self.placements, self.orientations)
        stages: list[tuple[Affines, NDArray[np.float64]]] = []
        for edge, link in zip(self.edges, self.links, strict=False):
            affines = link if stages else moves.compose(placed, link)
            stages.append(
                (affines, np.tile([0.0, 0.0, edge.size[1], edge.size[0]], (len(self), 1)))
            )
        return stages

    @property
    def last_link(self) -> Affines:
        """From where the last of `stages` ends to the result."""
        if not self.edges:
            return self.affines
        return self.links[-1] if self.is_warped else moves.unmoved(len(self))

    @cached_property
    def rows(self) -> list[list[int]]:
        """All of each sample as plain numbers, which Python reads ten times faster than arrays.

        Height and width; top, bottom, left and right of the window; the same of the placement;
        method; orientation.
        """
        columns = (
            self.sizes,
            _edges(self.windows),
            _edges(self.placements),
            self.methods[:, None],
            self.orientations[:, None],
        )
        rows: list[list[int]] = np.concatenate(columns, axis=1).tolist()
        return rows

    @cached_property
    def reductions(self) -> list[int]:
        """By how much both sides of each image may be divided as it is decoded: 1, 2, 4 or 8."""
        if self.is_exact:
            return [1] * len(self)
        found: list[int] = reduced.reductions(self.windows, self.sides).tolist()
        return found

    @cached_property
    def _tails(self) -> list[Affines]:
        """From each edge to the result."""
        return [moves.all_of(self.links[at + 1 :], len(self)) for at in range(len(self.edges))]

    @cached_property
    def edge_rows(self) -> list[list[list[int]]]:
        """For each upright edge and sample: its top, bottom, left and right in the result."""
        found: list[list[list[int]]] = []
        for edge, tail in zip(self.edges, self._tails, strict=True):
            whole = np.tile(np.array([0, 0, *edge.size], np.int64), (len(self), 1))
            rows = _edges(moves.moved_windows(whole, tail)) if edge.is_upright else whole[:0]
            found.append(rows.tolist())
        return found

    @cached_property
    def edge_samplings(self) -> list[Affines]:
        """For each edge: from indices of pixels of the result to indices of its own."""
        return [_samplings(tail) for tail in self._tails]

    @cached_property
    def window_samplings(self) -> Affines:
        """(sample, 2, 3): from indices of pixels of the result to indices of the window's."""
        return _samplings(_after_corner(self.affines, self.windows))

    @cached_property
    def placement_samplings(self) -> Affines:
        """The same, to a window that has been resized to its placement."""
        return _samplings(_after_corner(self._moved, self.placements))


def _edges(boxes: Rows) -> Rows:
    """(top, left, height, width) -> (top, bottom, left, right)."""
    top, left, height, width = boxes.T
    return np.stack([top, top + height, left, left + width], axis=1)


def _after_corner(affines: Affines, rectangles: Rows) -> Affines:
    """Affines of points that are counted from the corner of a rectangle (top, left, ...)."""
    corners = np.zeros((len(rectangles), 2, 3))
    corners[:, :, :2] = np.eye(2)
    corners[:, :, 2] = rectangles[:, 1::-1]
    return moves.compose(corners, affines)


def _samplings(affines: Affines) -> Affines:
    """From index to index, where the middle of pixel i is at i: what OpenCV wants inverted."""
    inverse = moves.invert(affines)
    inverse[:, :, 2] += inverse[:, :, :2].sum(axis=2) / 2 - 0.5
    return inverse


def split_moves(
    canvases: Sequence[Affines], ends: Sequence[int], count: int
) -> tuple[Affines, ...]:
    """Moves in turn, joined to one from each end to the next.

    Args:
        canvases: The affines of each move.
        ends: Numbers of the moves that begin at an edge.
        count: Samples.
    """
    starts = [0, *ends, len(canvases)]
    return tuple(moves.all_of(canvases[start:end], count) for start, end in pairwise(starts))
