"""What one core can do at most: copy bytes, and bring images out of the store one by one."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from readers.dataset import LMDBDataset

_COPIED_BYTES = 32 * 2**20
"""More than caches hold, so that memory is measured."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Of one core.

    Attributes:
        copied_bytes_per_s: Copied from one kept buffer to another.
        copied_images_per_s: The same, in images as they lie in a batch.
        is_decoded: Whether images are encoded in the store.
        whole_images_per_s: Whole images read, and decoded if they are encoded. None without images.
    """

    copied_bytes_per_s: float
    copied_images_per_s: float
    is_decoded: bool
    whole_images_per_s: float | None


def find_limits(dataset: LMDBDataset[Any], sample_bytes: float, seconds: float) -> Limits:
    """Measure them.

    Args:
        dataset: Of the store.
        sample_bytes: Bytes of a sample in a batch.
        seconds: How long this may take.
    """
    copied = _copied_bytes_per_s(seconds / 4)
    has_images = "image" in dataset.schema.names
    return Limits(
        copied_bytes_per_s=copied,
        copied_images_per_s=copied / max(1.0, sample_bytes),
        is_decoded=has_images and not dataset.schema["image"].holds_elements,
        whole_images_per_s=_whole_images_per_s(dataset, seconds / 2) if has_images else None,
    )


def _copied_bytes_per_s(seconds: float) -> float:
    """The best of several: what else the machine does only takes away from it."""
    source, target = np.ones(_COPIED_BYTES, np.uint8), np.ones(_COPIED_BYTES, np.uint8)
    best, end = np.inf, time.perf_counter() + seconds
    while best == np.inf or time.perf_counter() < end:
        begun = time.perf_counter()
        np.copyto(target, source)
        best = min(best, time.perf_counter() - begun)
    return float(_COPIED_BYTES / best)


def _whole_images_per_s(dataset: LMDBDataset[Any], seconds: float) -> float:
    with LMDBDataset(dataset.view.path, returns=("image",), image_as="numpy") as images:
        order = np.random.default_rng(0).permutation(len(images))
        count, begun = 0, time.perf_counter()
        while True:
            images[int(order[count % len(order)])]
            count += 1
            elapsed_s = time.perf_counter() - begun
            if elapsed_s >= seconds:
                return count / elapsed_s
