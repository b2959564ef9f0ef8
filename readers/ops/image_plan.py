"""Image ops, checked and made ready to fill batches on the CPU.

Each sample is written once, by OpenCV, straight into its place in the batch. OpenCV starts threads
of its own for larger images; whoever calls this from several workers or threads says
`cv2.setNumThreads(1)` first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from readers.chance.random_state import uniforms
from readers.ops import windows as places
from readers.ops.operations import (
    CenterCrop,
    ImageOp,
    Letterbox,
    RandomFlip,
    RandomResizedCrop,
    Resize,
    SizeOp,
    height_width,
)

Interpolation = Literal["linear", "area", "auto"]

Pixels = NDArray[Any]
"""(height, width, channel) uint8 or uint16."""

_SIZE_OPS = (RandomResizedCrop, CenterCrop, Resize, Letterbox)
_CHANNEL_COUNT_MAX = 128  # OpenCV 5's CV_CN_MAX.
_AVERAGED_CHANNEL_COUNT_MAX = 4  # Of OpenCV's INTER_AREA.


@dataclass(frozen=True, eq=False)
class Params:
    """What is done to each sample of a batch.

    Windows and placements are (top, left, height, width) in pixels. A decoder that can do so may
    decode the window alone, and hand it to `ImagePlan.apply_window`.

    Attributes:
        sizes: (sample, 2) int64, height and width of the images.
        windows: (sample, 4) int64, the part of each image that is used.
        placements: (sample, 4) int64, the part of the result that it fills, after flipping.
        flips: (sample,) bool, whether left and right are changed over.
        methods: (sample,) int64, how the window is resized, as a number of OpenCV's.
    """

    sizes: NDArray[np.int64]
    windows: NDArray[np.int64]
    placements: NDArray[np.int64]
    flips: NDArray[np.bool_]
    methods: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.flips)

    @cached_property
    def affines(self) -> NDArray[np.float64]:
        """(sample, 2, 3) float64, from points of each image to points of the result.

        Coordinates are continuous: pixel i covers [i, i + 1).
        """
        return places.affines_of(self.windows, self.placements, self.flips)

    @cached_property
    def rows(self) -> list[list[int]]:
        """All of each sample as plain numbers, which Python reads ten times faster than arrays.

        Height and width; top, bottom, left and right of the window; the same of the placement;
        method; flip.
        """
        columns = (
            self.sizes,
            _edges(self.windows),
            _edges(self.placements),
            self.methods[:, None],
            self.flips[:, None],
        )
        rows: list[list[int]] = np.concatenate(columns, axis=1).tolist()
        return rows


def _edges(boxes: NDArray[np.int64]) -> NDArray[np.int64]:
    """(top, left, height, width) -> (top, bottom, left, right)."""
    top, left, height, width = boxes.T
    return np.stack([top, top + height, left, left + width], axis=1)


def compile_ops(
    ops: Sequence[ImageOp],
    channel_count: int = 3,
    dtype: str = "uint8",
    *,
    interpolation: Interpolation = "linear",
) -> ImagePlan:
    """Check a sequence of ops, and make it ready to be carried out.

    Args:
        ops: First the one that fixes the size (`RandomResizedCrop`, `CenterCrop`, `Resize` or
            `Letterbox`), then at most one `RandomFlip`.
        channel_count: Of images and results, in [1, 129); in [1, 5) where pixels are averaged.
        dtype: Of images and results: "uint8" or "uint16".
        interpolation: "linear" reads 2 x 2 pixels for each one written, and so is the quickest; it
            does not antialias: shrunk by more than 2, an image flickers. "area" averages all
            pixels that become one, where neither side grows; where one does it is "linear". "auto"
            is "area" where a side shrinks by more than 2, and "linear" elsewhere.

    Raises:
        ValueError: The sequence cannot be carried out, or an argument is out of its range.
        TypeError: `ops` holds something else.

    Example:
        >>> plan = compile_ops([RandomResizedCrop(224), RandomFlip()])
        >>> plan.shape
        (224, 224, 3)
    """
    for op in ops:
        if not isinstance(op, (*_SIZE_OPS, RandomFlip)):
            names = ", ".join(kind.__name__ for kind in (*_SIZE_OPS, RandomFlip))
            raise TypeError(f"ops must be objects of {names}; got {op!r}")
    if not ops or isinstance(ops[0], RandomFlip):
        names = ", ".join(kind.__name__ for kind in _SIZE_OPS)
        raise ValueError(
            f"ops must begin with the one that fixes the size, one of {names}; got {list(ops)!r}"
        )
    for op in ops[1:]:
        if not isinstance(op, RandomFlip):
            raise ValueError(f"ops must fix the size once, at the beginning; got {list(ops)!r}")
    if len(ops) > 2:
        raise ValueError(f"ops must hold at most one RandomFlip; got {list(ops)!r}")
    flip = ops[1] if len(ops) == 2 else None
    assert not isinstance(ops[0], RandomFlip)
    assert flip is None or isinstance(flip, RandomFlip)
    return ImagePlan(ops[0], flip, channel_count, dtype, interpolation)


class ImagePlan:
    """Carries ops out: draws what is random for a whole batch, then writes sample by sample.

    It keeps no state, so that many threads may use one, and it pickles to a few hundred bytes.
    Made by `compile_ops`.

    Attributes:
        size_op: What fixes the size.
        flip: What flips, if anything.
        shape: (height, width, channel) of a result.
        dtype: Of images and results.
        interpolation: See `compile_ops`.
    """

    def __init__(
        self,
        size_op: SizeOp,
        flip: RandomFlip | None,
        channel_count: int,
        dtype: str,
        interpolation: Interpolation,
    ) -> None:
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
        self.size_op = size_op
        self.flip = flip
        self.shape = (*height_width(size_op), channel_count)
        self.dtype = np.dtype(dtype)
        self.interpolation = interpolation
        self._pad = size_op.pad if isinstance(size_op, Letterbox) else 0
        if self._pad > np.iinfo(self.dtype).max:
            limit = np.iinfo(self.dtype).max + 1
            raise ValueError(f"pad must be in [0, {limit}) for {dtype} images; got {self._pad!r}")

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) of a result."""
        return self.shape[:2]

    def __repr__(self) -> str:
        ops = [self.size_op] if self.flip is None else [self.size_op, self.flip]
        return (
            f"compile_ops({ops!r}, {self.shape[2]}, {self.dtype.name!r}, "
            f"interpolation={self.interpolation!r})"
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
        whether there is a flip beside the crop. A sample that comes twice in an epoch gets the
        same twice; a caller who draws with replacement passes places in the epoch in place of
        indices.

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
        sizes = np.empty((len(indices), 2), np.int64)
        sizes[:, 0], sizes[:, 1] = heights, widths
        if (sizes < 1).any():
            wrong = sizes[(sizes < 1).any(axis=1)][0].tolist()
            raise ValueError(f"heights and widths must be at least 1 pixel; got {wrong!r}")
        number_count = 0
        if isinstance(self.size_op, RandomResizedCrop):
            number_count = places.NUMBER_COUNT
        elif self.flip is not None:
            number_count = places.FLIP + 1
        numbers = uniforms(seed, epoch, indices, number_count)
        windows, placements = self._placed(sizes, numbers)
        flips = np.zeros(len(indices), bool)
        if self.flip is not None:
            flips = numbers[:, places.FLIP] < self.flip.p
            # What lies left of the middle lies right of it after a flip.
            mirrored = self.shape[1] - placements[:, 1] - placements[:, 3]
            placements[:, 1] = np.where(flips, mirrored, placements[:, 1])
        methods = _methods(windows[:, 2:], placements[:, 2:], self.interpolation)
        return Params(sizes, windows, placements, flips, methods)

    def _placed(
        self, sizes: NDArray[np.int64], numbers: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Windows and placements before any flip."""
        heights, widths = sizes.T
        size = np.array(self.size)
        whole = np.tile(np.array([0, 0, *self.size], np.int64), (len(sizes), 1))
        op = self.size_op
        if isinstance(op, RandomResizedCrop):
            windows = places.random_windows(heights, widths, op.scale, op.ratio, numbers)
            return windows, whole
        if isinstance(op, CenterCrop):
            sides = np.minimum(sizes, size)
            return places.middles(sides, sizes), places.middles(sides, size)
        if isinstance(op, Letterbox):
            sides = places.letterbox_sides(heights, widths, self.size)
            return places.whole_windows(heights, widths), places.middles(sides, size)
        return places.whole_windows(heights, widths), whole

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
        self._write(pixels[top:bottom, left:right], row, out)

    def apply_window(self, window: Pixels, params: Params, i: int, out: Pixels) -> None:
        """Write one sample of which there is the window alone. Else as `apply`."""
        row = params.rows[i]
        shape = (row[3] - row[2], row[5] - row[4], self.shape[2])
        if window.shape != shape:
            raise ValueError(f"window must be {shape} as params has sample {i}; got {window.shape}")
        self._write(window, row, out)

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
        top, bottom, left, right, _, flip = params.rows[i][6:]
        out.fill(fill)
        rows = _nearest(window.shape[0], bottom - top)
        columns = _nearest(window.shape[1], right - left)
        out[top:bottom, left:right] = window[rows[:, None], columns[::-1] if flip else columns]

    def _write(self, window: Pixels, row: list[int], out: Pixels) -> None:
        # OpenCV would not complain: it makes an array of its own, and leaves `out` as it was.
        if out.shape != self.shape or out.dtype != self.dtype or window.dtype != self.dtype:
            raise ValueError(
                f"pixels and out must be {self.dtype}, and out {self.shape}; "
                f"got {window.dtype} pixels and {out.dtype} {out.shape} out"
            )
        top, bottom, left, right, method, flip = row[6:]
        place = out
        height, width = bottom - top, right - left
        if width != self.shape[1]:
            # All of it: a third of the time that the two strips beside the image take, each of
            # which is many short rows.
            out.fill(self._pad)
            place = out[top:bottom, left:right]
        elif height != self.shape[0]:
            out[:top] = self._pad
            out[bottom:] = self._pad
            place = out[top:bottom]
        if not flip:
            cv2.resize(window, (width, height), place, 0, 0, method)
        elif window.shape == place.shape:
            cv2.flip(window, 1, place)
        else:
            # Flipped in its place, while it is in the cache: a twentieth of the resize, where
            # flipping from one array to another takes half of it.
            cv2.resize(window, (width, height), place, 0, 0, method)
            cv2.flip(place, 1, place)


def _nearest(source: int, target: int) -> NDArray[np.int64]:
    """For each of `target` pixels, which of `source` pixels its middle lies in."""
    # Whole numbers, so that every machine rounds alike: floor((2 i + 1) source / (2 target)).
    return (2 * np.arange(target) + 1) * source // (2 * target)


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
