"""Facts about all samples of a store, gathered while their pixels are at hand."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from readers.store.codecs import dtype_name

EDGES = (0, 32, 64, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 8192)
"""Where the long sides that are counted together begin, in pixels."""

_PIXELS_MAX = 2**16
"""Of a larger image, evenly spaced rows count for its channels: 40 us at most."""

_TOGETHER_COUNT = 256
"""Images whose means are added up at once."""


class Tally(msgspec.Struct, kw_only=True):
    """What the samples of one shard add up to.

    Attributes:
        kinds: (channels, element type) that the pixels have; more than one has no mean.
        image_count: Images.
        sums: Of the images' means, one number a channel, white being 1.
        square_sums: Of their mean squares.
        original: How many raw pictures have a long side from each of `EDGES` to the next.
        stored: The same of the stored images.
        image_sizes: (height, width) of the stored images: the first two that differ.
    """

    kinds: list[tuple[int, str]] = []
    image_count: int = 0
    sums: list[float] = []
    square_sums: list[float] = []
    original: list[int] = msgspec.field(default_factory=lambda: [0] * len(EDGES))
    stored: list[int] = msgspec.field(default_factory=lambda: [0] * len(EDGES))
    image_sizes: list[tuple[int, int]] = []

    def count(self, pixels: NDArray[Any], original_size: tuple[int, int]) -> bool:
        """Count the sizes and the kind of one more sample.

        Args:
            pixels: (height, width, channel) uint8 or uint16, as stored.
            original_size: (height, width) of the raw file's picture.

        Returns:
            Whether its pixels count too.
        """
        height, width, channel_count = pixels.shape
        self.original[_bin(max(original_size))] += 1
        self.stored[_bin(max(height, width))] += 1
        if len(self.image_sizes) < 2 and (height, width) not in self.image_sizes:
            self.image_sizes.append((height, width))
        kind = (channel_count, dtype_name(pixels.dtype))
        if kind not in self.kinds:
            self.kinds.append(kind)
        return len(self.kinds) == 1

    def add_means(self, means: NDArray[np.float64], squares: NDArray[np.float64]) -> None:
        """Add the means and the mean squares of images one after the other, (channel, image)."""
        if not self.image_count:
            self.sums = self.square_sums = [0.0] * len(means)
        self.image_count += means.shape[1]
        self.sums, self.square_sums = _added(self.sums, means), _added(self.square_sums, squares)


class PixelCounter:
    """Counts the samples of one shard.

    OpenCV takes 2 us for the mean and deviation of a tiny image, and Python 40 to add them up; so
    that is done for many images at a time.

    Args:
        tally: Where they add up to; it is not up to date before `flush`.
    """

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._means: list[NDArray[Any]] = []
        self._deviations: list[NDArray[Any]] = []
        self._white = 255

    def add(self, pixels: NDArray[Any], original_size: tuple[int, int]) -> None:
        """Count one more sample; see `Tally.count`."""
        import cv2

        if not self._tally.count(pixels, original_size):
            return
        pixel_count = pixels.shape[0] * pixels.shape[1]
        if pixel_count > _PIXELS_MAX:
            pixels = pixels[:: math.ceil(pixel_count / _PIXELS_MAX)]
        mean, deviation = cv2.meanStdDev(np.ascontiguousarray(pixels))
        self._means.append(mean)
        self._deviations.append(deviation)
        if len(self._means) == 1:
            self._white = int(np.iinfo(pixels.dtype).max)
        elif len(self._means) == _TOGETHER_COUNT:
            self.flush()

    def flush(self) -> None:
        """Add up what was found of images so far."""
        if self._means:
            means = np.concatenate(self._means, axis=1)
            squares = means**2 + np.concatenate(self._deviations, axis=1) ** 2
            self._tally.add_means(means / self._white, squares / self._white**2)
            self._means, self._deviations = [], []


def _added(sums: list[float], more: NDArray[np.float64]) -> list[float]:
    # In turn, as each sum is rounded: so it does not matter how many come at once.
    columns = np.concatenate([np.array(sums)[:, None], more], axis=1)
    found: list[float] = np.add.accumulate(columns, axis=1)[:, -1].tolist()
    return found


def _bin(side: int) -> int:
    return bisect.bisect_right(EDGES, side) - 1


def statistics(tallies: Iterable[Tally]) -> dict[str, Any]:
    """The manifest's statistics of pixels and sizes, of all shards in their order.

    Each image counts alike in the channels' mean and deviation, whatever its size.
    """
    parts = list(tallies)
    found: dict[str, Any] = {}
    kinds = {kind for part in parts for kind in part.kinds}
    count = sum(part.image_count for part in parts)
    if len(kinds) == 1:
        sums = [part for part in parts if part.image_count]
        means = [sum(values) / count for values in zip(*(p.sums for p in sums), strict=True)]
        squares = [sum(v) / count for v in zip(*(p.square_sums for p in sums), strict=True)]
        found["channel_mean"] = [round(mean, 6) for mean in means]
        found["channel_std"] = [
            round(math.sqrt(max(0.0, square - mean**2)), 6)
            for mean, square in zip(means, squares, strict=True)
        ]
    filled = [part for part in parts if any(part.stored)]
    sizes = {size for part in filled for size in part.image_sizes}
    # A shard that an update kept may have been made before sizes were noted.
    if len(sizes) == 1 and all(part.image_sizes for part in filled):
        found["image_size"] = list(*sizes)
    if parts:
        found["sizes"] = {
            "edges": list(EDGES),
            "original": [sum(v) for v in zip(*(part.original for part in parts), strict=True)],
            "stored": [sum(v) for v in zip(*(part.stored for part in parts), strict=True)],
        }
    return found
