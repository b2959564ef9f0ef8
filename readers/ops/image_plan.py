"""Image ops, checked and made ready to fill batches on the CPU.

Each sample is written once, by OpenCV, straight into its place in the batch. OpenCV starts threads
of its own for larger images; whoever calls this from several workers or threads says
`cv2.setNumThreads(1)` first.

NOTE [ one resampling ]
All that moves pixels is joined to one affine, and pixels are read from the image where it says, so
that nothing is smoothed twice. What the ops do at the border of each canvas on the way is done
afterwards, from the inside out: beside each edge its value is written, by how much a pixel is
covered. Where pixels are averaged ("area"), and where a window is too large for OpenCV to warp, it
is resized first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from readers.chance.streams import Numbers, Span
from readers.ops import colors, moves
from readers.ops import pixels as writing
from readers.ops.moves import Affines, Size
from readers.ops.operations import ColorJitter, Fill, ImageOp, MoveOp, Resize, SizeOp, height_width
from readers.ops.params import Edge, Params, split_moves
from readers.ops.pixels import Pixels
from readers.ops.sequence import checked_sequence
from readers.ops.table import COLOR_ORDERS, COLOR_ROWS, MOVE_ROWS, SIZE_ROWS, WARPED_SIDE_MAX

__all__ = ["ImagePlan", "Interpolation", "Params", "compile_ops"]

Interpolation = Literal["linear", "area", "auto"]

_CHANNEL_COUNT_MAX = 128  # OpenCV 5's CV_CN_MAX.
_AVERAGED_CHANNEL_COUNT_MAX = 4  # Of OpenCV's INTER_AREA.
_SCALAR_COUNT = 4
"""Numbers of OpenCV's border value."""


def compile_ops(
    ops: Sequence[ImageOp],
    channel_count: int = 3,
    dtype: str = "uint8",
    *,
    interpolation: Interpolation = "linear",
    image_size: tuple[int, int] | None = None,
) -> ImagePlan:
    """Check a sequence of ops, and make it ready to be carried out.

    Args:
        ops: First the one that fixes the size (`RandomResizedCrop`, `CenterCrop`, `Resize` or
            `Letterbox`); then any of the others, each at most once, in the order in which they
            work.
        channel_count: Of images and results, in [1, 129); in [1, 5) where pixels are averaged.
        dtype: Of images and results: "uint8" or "uint16".
        interpolation: "linear" reads 2 x 2 pixels for each one written, and so is the quickest; it
            does not antialias: shrunk by more than 2, an image flickers. "area" averages all
            pixels that become one, where neither side grows; where one does it is "linear". "auto"
            is "area" where a side shrinks by more than 2, and "linear" elsewhere.
        image_size: (height, width) of all images, where they are of one size: then the op that
            fixes the size may be left out.

    Raises:
        ValueError: The sequence cannot be carried out, or an argument is out of its range.
        TypeError: `ops` holds something else.

    Example:
        >>> from readers.ops import RandomFlip, RandomResizedCrop
        >>> plan = compile_ops([RandomResizedCrop(224), RandomFlip()])
        >>> plan.shape
        (224, 224, 3)
    """
    if not 1 <= channel_count <= _CHANNEL_COUNT_MAX:
        raise ValueError(
            f"channel_count must be in [1, {_CHANNEL_COUNT_MAX + 1}); got {channel_count!r}"
        )
    if dtype not in ("uint8", "uint16"):
        raise ValueError(f"dtype must be one of uint8, uint16; got {dtype!r}")
    if interpolation not in get_args(Interpolation):
        raise ValueError(
            f"interpolation must be one of {', '.join(get_args(Interpolation))}; "
            f"got {interpolation!r}"
        )
    if interpolation != "linear" and channel_count > _AVERAGED_CHANNEL_COUNT_MAX:
        raise ValueError(
            f"channel_count must be in [1, {_AVERAGED_CHANNEL_COUNT_MAX + 1}) for "
            f"interpolation={interpolation!r}; got {channel_count!r}. Use 'linear'"
        )
    size_op, others = checked_sequence(ops, channel_count, dtype, image_size)
    return ImagePlan(size_op, others, channel_count, dtype, interpolation, image_size)


class ImagePlan:
    """Carries ops out: draws what is random for a whole batch, then writes sample by sample.

    It keeps no state, so that many threads may use one, and it pickles to a few hundred bytes.
    Made by `compile_ops`.

    Attributes:
        size_op: What fixes the size.
        others: What follows it.
        shape: (height, width, channel) of a result.
        dtype: Of images and results.
        interpolation: See `compile_ops`.
    """

    def __init__(
        self,
        size_op: SizeOp | None,
        others: Sequence[MoveOp | ColorJitter],
        channel_count: int,
        dtype: str,
        interpolation: Interpolation,
        image_size: Size | None,
    ) -> None:
        self._given_first = size_op
        self._image_size = image_size
        if size_op is None:
            assert image_size is not None
            size_op = Resize(image_size)
        self.size_op = size_op
        self.others = tuple(others)
        self.dtype = np.dtype(dtype)
        self.interpolation = interpolation
        self._pad = SIZE_ROWS[type(size_op)].pad(size_op)
        self._first_size = height_width(size_op)
        self._find_edges()
        self.shape = (*self._size, channel_count)

    def __reduce__(self) -> tuple[Any, ...]:
        """Settings alone: what follows from them is found again."""
        return ImagePlan, (
            self._given_first,
            self.others,
            self.shape[2],
            self.dtype.name,
            self.interpolation,
            self._image_size,
        )

    def _find_edges(self) -> None:
        """What the sequence means: its canvases, and beside which of them something lies."""
        self._moves: list[tuple[MoveOp, Size]] = []
        self._color: ColorJitter | None = None
        self._color_at = 0  # Edges before it.
        self._edge_at: list[int] = []  # Numbers of the moves that begin at an edge.
        edges: list[tuple[Size, Fill]] = []
        size = self._first_size
        for op in self.others:
            if isinstance(op, ColorJitter):
                self._color, self._color_at = op, len(edges)
                continue
            row = MOVE_ROWS[type(op)]
            fill = row.fill(op)
            if fill is not None:
                edges.append((size, fill))
                self._edge_at.append(len(self._moves))
            self._moves.append((op, size))
            size = row.size(op, size)
        self._size = size
        are_exact = [MOVE_ROWS[type(op)].is_exact for op, _ in self._moves]
        self._is_warped = not all(are_exact)
        self._edges = tuple(
            Edge(size=size, fill=fill, is_upright=all(are_exact[at:]))
            for (size, fill), at in zip(edges, self._edge_at, strict=True)
        )
        spans: list[Span] = list(SIZE_ROWS[type(self.size_op)].spans)
        for op, _ in self._moves:
            spans += MOVE_ROWS[type(op)].spans
        if self._color is not None:
            spans += COLOR_ROWS[type(self._color)].spans
        self._spans = spans

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) of a result."""
        return self.shape[:2]

    def __repr__(self) -> str:
        first = [] if self._given_first is None else [self._given_first]
        size = "" if self._image_size is None else f", image_size={self._image_size!r}"
        return (
            f"compile_ops({[*first, *self.others]!r}, {self.shape[2]}, {self.dtype.name!r}, "
            f"interpolation={self.interpolation!r}{size})"
        )

    def draw(
        self,
        heights: ArrayLike,
        widths: ArrayLike,
        seed: int,
        epoch: int,
        sample_indices: ArrayLike,
    ) -> Params:
        """What is to be done to each sample of a batch.

        It depends on seed, epoch, the sample's index and its size alone: not on the batch, nor on
        which other ops stand beside one. A sample that comes twice in an epoch gets the same twice;
        a caller who draws with replacement passes places in the epoch in place of indices.

        Args:
            heights: Of the images, (sample,), or one number for all.
            widths: Of the images, (sample,), or one number for all.
            seed: In [0, 2**64).
            epoch: In [0, 2**32).
            sample_indices: (sample,) whole numbers in [0, 2**63).

        Raises:
            ValueError: An argument is out of its range.
        """
        indices = np.asarray(sample_indices)
        count = len(indices)
        sizes = np.empty((count, 2), np.int64)
        sizes[:, 0], sizes[:, 1] = heights, widths
        if (sizes < 1).any():
            wrong = sizes[(sizes < 1).any(axis=1)][0].tolist()
            raise ValueError(f"heights and widths must be at least 1 pixel; got {wrong!r}")
        numbers = Numbers(self._spans, seed, epoch, indices)
        row = SIZE_ROWS[type(self.size_op)]
        windows, placements = row.place(self.size_op, sizes, self._first_size, numbers)
        sides = placements[:, 2:]
        methods = _methods(windows[:, 2:], sides, self.interpolation)
        orientations = np.zeros(count, np.int64)
        drawn: list[Affines] = [
            MOVE_ROWS[type(op)].affines(op, size, count, numbers) for op, size in self._moves
        ]
        if drawn and not self._is_warped:
            moved = moves.all_of(drawn, count)
            orientations = moves.orientations(moved)
            # Flips and turns of the whole of a canvas leave it whole.
            if self._edges or not row.is_whole:
                placements = moves.moved_windows(placements, moved)
        links: tuple[Affines, ...] = ()
        if self._edges:
            links = split_moves(drawn, self._edge_at, count)
        factors = None
        if self._color is not None:
            factors = COLOR_ROWS[type(self._color)].draw(self._color, numbers)
        return Params(
            sizes,
            windows,
            placements,
            orientations,
            methods,
            sides,
            self._edges,
            links,
            self._is_warped,
            factors,
            SIZE_ROWS[type(self.size_op)].is_exact(self.size_op),
        )

    def affine(self, params: Params, i: int) -> NDArray[np.float64]:
        """(2, 3) float64, from points of sample `i`'s image to points of its result.

        Coordinates are continuous: pixel i covers [i, i + 1).
        """
        affine: NDArray[np.float64] = params.affines[i]
        return affine

    def apply(self, pixels: Pixels, params: Params, i: int, out: Pixels) -> None:
        """Write one sample.

        Args:
            pixels: The image, (height, width, channel), of the size that `params` was drawn for.
            params: From `draw`.
            i: Place of the sample in `params`.
            out: Where it goes, of the plan's `shape`, each row contiguous. It is written whole.

        Raises:
            ValueError: `pixels` or `out` has another shape or dtype.
        """
        row = params.rows[i]
        height, width, top, bottom, left, right = row[:6]
        if pixels.shape != (height, width, self.shape[2]):
            raise ValueError(
                f"pixels must be {(height, width, self.shape[2])} as params has sample {i}; "
                f"got {pixels.shape}"
            )
        self._write(pixels[top:bottom, left:right], params, i, out)

    def apply_window(self, window: Pixels, params: Params, i: int, out: Pixels) -> None:
        """Write one sample of which there is the window alone. Else as `apply`."""
        row = params.rows[i]
        shape = (row[3] - row[2], row[5] - row[4], self.shape[2])
        if window.shape != shape:
            raise ValueError(f"window must be {shape} as params has sample {i}; got {window.shape}")
        self._write(window, params, i, out)

    def apply_reduced(
        self,
        block: Pixels,
        place: tuple[float, float, float, float],
        params: Params,
        i: int,
        out: Pixels,
    ) -> None:
        """Write one sample of which there is the window at a part of its size. Else as `apply`.

        Args:
            block: The pixels of the reduced image that the window needs.
            place: Where the window lies in it; both are those of `readers.ops.reduced`.
            params: From `draw`.
            i: Place of the sample in `params`.
            out: Where it goes.
        """
        height, width = params.sides[i].tolist()
        window = writing.averaged(block, place, (height, width))
        self._write(window, params, i, out, is_placed=True)

    def apply_mask(
        self, ids: NDArray[Any], params: Params, i: int, fill: int, out: NDArray[Any]
    ) -> None:
        """Write one sample's mask as its image is written: each pixel is the nearest one's id.

        Args:
            ids: (height, width) uint8 or int32, of the size that `params` was drawn for.
            params: From `draw`.
            i: Place of the sample in `params`.
            fill: Id of pixels beside the image.
            out: (height, width) of the result, of the same dtype.

        Raises:
            ValueError: `ids` or `out` has another shape or dtype.
        """
        height, width, top, bottom, left, right = params.rows[i][:6]
        if ids.shape != (height, width) or out.shape != self.size or ids.dtype != out.dtype:
            raise ValueError(
                f"ids must be {(height, width)} and out {self.size}, of one dtype; got {ids.dtype} "
                f"{ids.shape} and {out.dtype} {out.shape}"
            )
        window = ids[top:bottom, left:right]
        placement = params.rows[i][6:10]
        if not params.is_warped:
            writing.lay_ids(window, placement, params.rows[i][11], fill, out)
            return
        sampling = params.window_samplings[i]
        if max(window.shape) > WARPED_SIDE_MAX:
            window = writing.nearest_ids(window, _size_of(placement))
            sampling = params.placement_samplings[i]
        writing.warp(window, sampling, out, (fill,) * _SCALAR_COUNT, cv2.INTER_NEAREST)
        for at, edge in enumerate(self._edges):
            # Before the warp nothing lies beside an edge but what lies beside the image.
            if edge.is_upright:
                writing.fill_around(out, params.edge_rows[at][i], fill)

    def _write(
        self, window: Pixels, params: Params, i: int, out: Pixels, *, is_placed: bool = False
    ) -> None:
        # OpenCV would not complain: it makes an array of its own, and leaves `out` as it was.
        if out.shape != self.shape or out.dtype != self.dtype or window.dtype != self.dtype:
            raise ValueError(
                f"pixels and out must be {self.dtype}, and out {self.shape}; "
                f"got {window.dtype} pixels and {out.dtype} {out.shape} out"
            )
        if params.is_warped:
            self._warp(window, params, i, out, is_placed=is_placed)
            return
        place = params.rows[i][6:]
        inner = out
        if self._edges:
            top, bottom, left, right = params.edge_rows[0][i]
            writing.fill_around(out, (top, bottom, left, right), self._value(self._edges[0].fill))
            inner = out[top:bottom, left:right]
            for at, low in enumerate((top, top, left, left)):
                place[at] -= low
        writing.lay(window, place, self._pad, inner)
        if params.colors is not None:
            self._jitter(inner if self._color_at == 0 else out, params, i)

    def _warp(
        self, window: Pixels, params: Params, i: int, out: Pixels, *, is_placed: bool
    ) -> None:
        """See NOTE [ one resampling ]."""
        row = params.rows[i]
        placement, method = row[6:10], row[10]
        size = _size_of(placement)
        sampling = params.window_samplings[i]
        if method == cv2.INTER_AREA or max(window.shape) > WARPED_SIDE_MAX:
            window = cv2.resize(window, size[::-1], interpolation=method).reshape(*size, -1)
            is_placed = True
        if is_placed:
            sampling = params.placement_samplings[i]
        is_whole = size == self._first_size
        fill: Fill = self._edges[0].fill if is_whole else self._pad
        is_colored_first = params.colors is not None and self._color_at == 0 and is_whole
        scalars = self._scalars(fill)
        # Where the window grows, its pixels are larger than those of the canvas: mixed with what
        # lies beside them, they would make a border that is wider than a pixel.
        if window.shape[0] < size[0] or window.shape[1] < size[1] or is_colored_first:
            scalars = None
        writing.warp(window, sampling, out, scalars)
        done = 0
        if scalars is not None:
            done = int(is_whole)
        elif not is_whole:
            covered = writing.coverage(size, params.placement_samplings[i], self.size)
            writing.fill_beside(out, covered, self._value(fill))
        for at, edge in enumerate(self._edges):
            covered_by = None
            if not edge.is_upright and (at >= done or params.colors is not None):
                covered_by = writing.coverage(edge.size, params.edge_samplings[at][i], self.size)
            if params.colors is not None and self._color_at == at:
                self._jitter_within(out, covered_by, params, at, i)
            if at < done:
                continue
            value = self._value(edge.fill)
            if covered_by is None:
                writing.fill_around(out, params.edge_rows[at][i], value)
            else:
                writing.fill_beside(out, covered_by, value)
        if params.colors is not None and self._color_at == len(self._edges):
            self._jitter(out, params, i)

    def _jitter_within(
        self, out: Pixels, covered: NDArray[np.uint8] | None, params: Params, at: int, i: int
    ) -> None:
        """Change the colours of a canvas that is part of the result."""
        if covered is not None:
            self._jitter(out, params, i, (covered > 127).astype(np.uint8))
            return
        top, bottom, left, right = params.edge_rows[at][i]
        self._jitter(out[top:bottom, left:right], params, i)

    @staticmethod
    def _jitter(out: Pixels, params: Params, i: int, seen: NDArray[np.uint8] | None = None) -> None:
        assert params.colors is not None
        *factors, order = params.colors[i].tolist()
        colors.jitter(out, factors, COLOR_ORDERS[int(order)], seen)

    def _value(self, fill: Fill) -> int | NDArray[Any]:
        """A fill as numpy writes it."""
        return fill if isinstance(fill, int) else np.array(fill, self.dtype)

    def _scalars(self, fill: Fill) -> tuple[int, ...] | None:
        """A fill as OpenCV writes it; None where it has no room for the channels."""
        if isinstance(fill, int):
            return (fill,) * _SCALAR_COUNT
        if len(fill) > _SCALAR_COUNT:
            return None
        return (*fill, *(0,) * (_SCALAR_COUNT - len(fill)))


def _size_of(placement: Sequence[int]) -> Size:
    """(height, width) of top, bottom, left and right."""
    return placement[1] - placement[0], placement[3] - placement[2]


def _methods(
    windows: NDArray[np.int64], placements: NDArray[np.int64], interpolation: Interpolation
) -> NDArray[np.int64]:
    """OpenCV's number of how each window is resized, by heights and widths (sample, 2)."""
    # Where a side grows, OpenCV's INTER_AREA repeats pixels.
    by_area = np.logical_and.reduce(windows >= placements, axis=1)
    if interpolation == "linear":
        by_area[:] = False
    elif interpolation == "auto":
        by_area &= np.logical_or.reduce(windows > 2 * placements, axis=1)
    return np.where(by_area, cv2.INTER_AREA, cv2.INTER_LINEAR)
