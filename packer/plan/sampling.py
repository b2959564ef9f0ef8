"""A few raw items, evenly spaced and read before a build: what estimates are made from."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from packer.items.item_columns import byte_counts
from packer.items.raw_item import RawItem, Scan
from packer.pictures.prepare import Prepared, prepare_image, prepare_pixels
from packer.raw.containers import Containers
from packer.raw.files import RawFileError, read_raw_file
from packer.raw.read_ahead import image_file
from packer.recipe import Recipe
from packer.slow_storage import THREAD_COUNT
from readers.store.errors import ImageError

_COUNT_LEAST = 24


@dataclass(frozen=True, slots=True)
class SampleSize:
    """How many items are looked at: a sample is smaller where files are large.

    Attributes:
        count: Items, at most.
        file_bytes: Of their files, about; but at least 24 items.
    """

    count: int
    file_bytes: int


HEADERS = SampleSize(200, 2**28)
"""Items looked at where their headers say enough. Even of photos of all sizes, the mean is within
5%."""

ENCODED = SampleSize(96, 2**26)
"""Items decoded and encoded where not, by threads: 0.15 s for photos of 500 x 375 on two cores, 2 s
for the 25 that 64 MiB hold of 14 megapixels. The mean is within some per cent then; of 48 small
ones it was up to 9% beside."""

SAMPLED_BYTES_MAX = 2**27
_ALL_BYTES_MAX = 2**29
"""Of one file and of all of a sample, which is in memory at once. Few data sets have files of over
20 MB, of which even the 24 that are always looked at would take more."""

_JUMPING = ("range", "zip", "arrow", "cifar")
"""Containers that give one image without reading all before it."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """A raw item that was read.

    Attributes:
        position: Among the items of the scan.
        item: The item.
        data: The bytes of its image's file, or its pixels where it has no file of its own.
    """

    position: int
    item: RawItem
    data: bytes | NDArray[np.uint8]

    def prepared(self, recipe: Recipe) -> Prepared | None:
        """The image as a recipe wants it stored; None when it cannot be."""
        try:
            if isinstance(self.data, bytes):
                return prepare_image(self.data, recipe, self.item.key)
            return prepare_pixels(self.data, recipe, self.item.key)
        except ImageError:
            return None


def sample_of(scan: Scan, size: SampleSize) -> list[Sampled]:
    """Some items, the same ones for the same scan; those that cannot be read are left out.

    Items of a compressed file are left out as well: one in the middle would take reading all before
    it.
    """
    root = os.fsencode(os.path.abspath(scan.root))
    total = int(np.minimum(byte_counts(scan.items), SAMPLED_BYTES_MAX).sum())
    affordable = size.file_bytes * len(scan.items) // max(1, total)
    count = min(len(scan.items), size.count, max(_COUNT_LEAST, affordable))
    positions = np.linspace(0, max(0, len(scan.items) - 1), count, dtype=int)
    chosen: list[tuple[int, RawItem]] = []
    left = _ALL_BYTES_MAX
    for at in np.unique(positions).tolist():
        item = scan.items[at]
        if item.byte_count <= min(left, SAMPLED_BYTES_MAX):
            left -= item.byte_count
            chosen.append((at, item))
    with ThreadPoolExecutor(THREAD_COUNT) as pool:
        files = pool.map(
            lambda pair: _file(root, pair[1]),
            [pair for pair in chosen if pair[1].member is None],
        )
    found = [
        Sampled(position, item, data)
        for (position, item), data in zip(
            [pair for pair in chosen if pair[1].member is None], files, strict=True
        )
        if data is not None
    ]
    return sorted(found + _members(root, chosen), key=lambda sampled: sampled.position)


def _file(root: bytes, item: RawItem) -> bytes | None:
    try:
        return read_raw_file(root, image_file(item), SAMPLED_BYTES_MAX)
    except RawFileError:
        return None


def _members(root: bytes, chosen: list[tuple[int, RawItem]]) -> list[Sampled]:
    containers = Containers(root, SAMPLED_BYTES_MAX)
    found = []
    try:
        for position, item in chosen:
            if item.member is not None and item.member.container in _JUMPING:
                try:
                    found.append(Sampled(position, item, containers.read(item)))
                except ImageError:
                    continue
    finally:
        containers.close()
    return found
