"""How large a store will be, before it is built; and the policy that fills a budget.

Estimates are a pure function of the data and the recipe: they decide where shards are cut.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from packer.errors import BuildError
from packer.files.sizes import picture_bytes_max
from packer.items.item_columns import are_plain_files, byte_counts
from packer.items.raw_item import Scan
from packer.pictures.forms import drawn
from packer.pictures.geometry import known_size, plan_fit
from packer.plan.sampling import ENCODED, HEADERS, Sampled, SampleSize, sample_of
from packer.policies import POLICIES
from packer.recipe import Recipe
from packer.wording import size_text
from readers.machine import core_count
from readers.store.errors import ImageError
from readers.store.pictures.image_header import read_header
from readers.store.pictures.orientation import upright_size

CHANNEL_COUNTS = {"rgb": 3, "gray": 1, "rgba": 4, "unchanged": None}

_RECORD_OVERHEAD_BYTES = 200
_INDEX_BYTES = 130
"""Of a sample in the index and among the keys, with their share of half-full pages."""

_PAGE_BYTES = 4096
_LEAF_BYTES_MAX = 2000
"""A longer record has pages of its own, and 16 bytes before it."""

_QUALITIES = (90, 80, 70, 60, 50, 40, 30)
"""Tried for a budget, from the recipe's own downwards. Below 30 blocks are seen at a glance."""

_TARGET_MARGIN = 0.97
"""The part of a budget that is planned with: estimates are that good; see `Recipe.target_bytes`."""

_FILE_PIXELS_RATE = 8.0
"""Pixels for each byte of a file where none can be read: those of a JPEG of middling quality."""


class Estimator:
    """Estimates of one scan for many recipes; its sample is read once.

    Args:
        scan: What the source found.
    """

    def __init__(self, scan: Scan) -> None:
        self._scan = scan
        self._samples: dict[SampleSize, list[Sampled]] = {}
        self._found: dict[Recipe, NDArray[np.int64]] = {}
        self._file_bytes = byte_counts(scan.items)

    @functools.cached_property
    def _draws(self) -> NDArray[np.float64]:
        """What decides under "proportion" whether an item is raw; see `form_of`."""
        items = self._scan.items
        return np.fromiter((drawn(b"proportion", i.key) for i in items), np.float64, len(items))

    def sample(self, size: SampleSize) -> list[Sampled]:
        """Some items of the scan, read."""
        if size not in self._samples:
            self._samples[size] = sample_of(self._scan, size)
        return self._samples[size]

    def record_bytes(self, recipe: Recipe) -> NDArray[np.int64]:
        """Bytes that each item's record will take, about, as int64.

        Exact but for a few bytes where every record is as long as the others or keeps its file's
        bytes. Otherwise from a sample; see `packer.plan.sampling`.
        """
        # In place, since at a hundred million items each array that lies about takes 0.8 GB.
        found = self._image_bytes(recipe) + self._mask_bytes(recipe)
        found += _RECORD_OVERHEAD_BYTES
        items = self._scan.items
        if not are_plain_files(items):
            found += np.fromiter((len(item.annotations) for item in items), np.int64, len(items))
        # What is too large is going to be rejected, whatever it claims to hold.
        found[self._file_bytes > picture_bytes_max(recipe.pixels_max)] = 0
        return found

    def _image_bytes(self, recipe: Recipe) -> NDArray[np.int64]:
        if recipe.image == "proportion":  # A budget tries many, all of the same two.
            return self._estimated(recipe)
        if recipe not in self._found:
            self._found[recipe] = self._estimated(recipe)
        return self._found[recipe]

    def _estimated(self, recipe: Recipe) -> NDArray[np.int64]:
        policy = recipe.image
        if policy == "original":
            return self._file_bytes
        if policy == "raw":
            return self._pixel_counts(recipe) * (CHANNEL_COUNTS[recipe.mode] or 3)
        if policy == "proportion":
            plain = dataclasses.replace(recipe, image="raw", quality=None, raw_share=None)
            coded = dataclasses.replace(recipe, image="jpeg", raw_share=None)
            is_raw = self._draws < (recipe.raw_share or 0.0)
            return np.where(is_raw, self._image_bytes(plain), self._image_bytes(coded))
        if policy == "smart":
            return self._smart_bytes(recipe)
        sample = self.sample(ENCODED)
        with ThreadPoolExecutor(core_count()) as pool:
            sizes = pool.map(lambda sampled: _stored_size(sampled, recipe), sample)
        found = [
            (sampled.item.byte_count, size)
            for sampled, size in zip(sample, sizes, strict=True)
            if size is not None
        ]
        if not found:
            rate = POLICIES[policy].pixel_rate
            assert rate is not None, policy
            return (self._pixel_counts(recipe) * rate).astype(np.int64)
        return _by_file_size(found, self._file_bytes)

    def _smart_bytes(self, recipe: Recipe) -> NDArray[np.int64]:
        """Under "smart". Headers tell which images are raw, since more of them can be read."""
        assert recipe.raw_below is not None
        coded = self._image_bytes(dataclasses.replace(recipe, image="jpeg", raw_below=None))
        channel_count = CHANNEL_COUNTS[recipe.mode] or 3
        found = []
        for sampled in self.sample(HEADERS):
            pixels = stored_pixels(sampled, recipe)
            if pixels is not None:
                byte_count = pixels * channel_count
                is_raw = byte_count <= recipe.raw_below
                size = byte_count if is_raw else int(coded[sampled.position])
                found.append((sampled.item.byte_count, size))
        return _by_file_size(found, self._file_bytes) if found else coded

    def _mask_bytes(self, recipe: Recipe) -> NDArray[np.int64] | int:
        masks = [field for field in self._scan.fields if field.kind == "mask"]
        if not masks:
            return 0
        if recipe.image != "raw":
            # They are stored as PNG, which most of their files are too.
            return np.fromiter(
                (sum(f.byte_count for f in item.masks.values()) for item in self._scan.items),
                np.int64,
                len(self._scan.items),
            )
        pixel_bytes = sum(np.dtype(field.dtype).itemsize for field in masks)
        return self._pixel_counts(recipe) * pixel_bytes

    def _pixel_counts(self, recipe: Recipe) -> NDArray[np.int64]:
        """Pixels of each item's image as it will be stored, about."""
        count = len(self._scan.items)
        height, width = known_size(self._scan.image_size, recipe)
        if height is not None and width is not None:
            return np.full(count, height * width, np.int64)
        found = [
            (sampled.item.byte_count, pixels)
            for sampled in self.sample(HEADERS)
            if (pixels := stored_pixels(sampled, recipe)) is not None
        ]
        if isinstance(recipe.size, int):
            # A side is given, so the size does not depend on the file's.
            return np.resize([pixels for _, pixels in found] or recipe.size**2, count)
        rate = sum(p for _, p in found) / max(1, sum(b for b, _ in found)) if found else 0
        return (self._file_bytes * (rate or _FILE_PIXELS_RATE)).astype(np.int64)


def estimate_record_bytes(scan: Scan, recipe: Recipe) -> NDArray[np.int64]:
    """Bytes that each item's record will take, about, as int64; see `Estimator.record_bytes`."""
    return Estimator(scan).record_bytes(recipe)


def store_bytes(record_bytes: NDArray[np.int64]) -> int:
    """Bytes of a store with records of these sizes: whole pages of LMDB, and the index."""
    pages = -(-(record_bytes + 16) // _PAGE_BYTES) * _PAGE_BYTES
    sizes = np.where(record_bytes > _LEAF_BYTES_MAX, pages, record_bytes)
    return int(sizes.sum()) + _INDEX_BYTES * len(record_bytes)


def recipe_for_target(
    scan: Scan,
    recipe: Recipe,
    store_size: Callable[[Recipe], int] | None = None,
) -> Recipe:
    """The recipe that makes a store as large as `recipe.target_bytes` allows, and no larger.

    All raw where that fits; else as large a share raw as fits, beside JPEG of the recipe's quality;
    where even JPEG alone is too large, of the best quality that fits.

    Args:
        scan: What the source found.
        recipe: With a budget; without one it is returned as it is.
        store_size: Estimates a store's bytes. None makes it of the scan.

    Raises:
        BuildError: Nothing fits.
    """
    if recipe.target_bytes is None:
        return recipe
    if store_size is None:
        estimator = Estimator(scan)

        def store_size(one: Recipe) -> int:
            return store_bytes(estimator.record_bytes(one))

    budget = recipe.target_bytes * _TARGET_MARGIN
    top = recipe.quality or _QUALITIES[0]
    raw = dataclasses.replace(recipe, target_bytes=None, quality=None)
    if store_size(raw) <= budget:
        return raw
    smallest = 0
    for quality in (top, *(each for each in _QUALITIES if each < top)):
        jpeg = dataclasses.replace(raw, image="jpeg", quality=quality)
        smallest = store_size(jpeg)
        if smallest > budget:
            continue
        if quality < top:
            return jpeg
        mixed = [
            dataclasses.replace(jpeg, image="proportion", raw_share=thousandth / 1000)
            for thousandth in range(1001)
        ]
        # The store grows with the share; which images are raw follows from their keys.
        fitting = bisect.bisect_right(mixed, budget, key=store_size)
        return mixed[fitting - 1] if fitting > 1 else jpeg
    raise BuildError(
        f"a store of {size_text(recipe.target_bytes)} was asked for, but even JPEG of quality "
        f"{quality} takes about {size_text(smallest)}. Store fewer pixels (--size, --max-side), or "
        "allow more with --target-size."
    )


def _by_file_size(
    found: Sequence[tuple[int, int]], file_bytes: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Sizes that follow those of files by a straight line, and scatter around it as in a sample.

    Without the scatter all would round to the same number of pages.
    """
    x, y = np.array(found, np.float64).T
    count = len(file_bytes)
    if len(x) < 8 or x.var() == 0:
        # A line through few points, or points above each other, says nothing.
        return np.resize(y.astype(np.int64), count)
    slope = max(0.0, ((x - x.mean()) * (y - y.mean())).mean() / x.var())
    scatter = y - (y.mean() + slope * (x - x.mean()))
    line = y.mean() + slope * (file_bytes - x.mean()) + np.resize(scatter, count)
    sizes: NDArray[np.int64] = np.clip(line, y.min() / 2, None).astype(np.int64)
    return sizes


def _stored_size(sampled: Sampled, recipe: Recipe) -> int | None:
    """Bytes of the image as it is stored; None when it cannot be."""
    prepared = sampled.prepared(recipe)
    if prepared is None:
        return None
    return len(prepared.image) if isinstance(prepared.image, bytes) else prepared.image.nbytes


def stored_pixels(sampled: Sampled, recipe: Recipe) -> int | None:
    """Pixels of the image as it will be stored; None when the file cannot be read."""
    if not isinstance(sampled.data, bytes):
        height, width = sampled.data.shape[:2]
    else:
        try:
            header = read_header(sampled.data, pixels_max=recipe.pixels_max)
        except ImageError:
            return None
        height, width = upright_size(header.height, header.width, header.orientation)
    plan = plan_fit(width, height, recipe.size, recipe.fit, recipe.max_side)
    return plan.final[0] * plan.final[1]
