"""The raw folder as a stock DataLoader of torch reads it, to be held against the store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from readers.store.errors import ImageError

_ENDINGS = (".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")

_FILE_COUNT_MAX = 20_000
"""Enough that their order does not come back within a measurement."""


class RawFolder(Dataset[Any]):
    """Pictures of a folder, decoded and brought to one size.

    Args:
        path: The folder.
        size: (height, width) of what comes out.
        is_cropped: Whether a random part is brought to it, or the whole picture.

    Raises:
        ValueError: There is no picture.
    """

    def __init__(self, path: str, size: tuple[int, int], *, is_cropped: bool) -> None:
        self.files = list(islice(_pictures(path), _FILE_COUNT_MAX))
        if not self.files:
            raise ValueError(
                f"{path}: there is no picture ({', '.join(_ENDINGS)}) in this folder or below it. "
                "Give the folder of raw images, or leave RAW out"
            )
        self._size = size
        self._is_cropped = is_cropped

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> torch.Tensor:
        pixels = cv2.imread(self.files[index], cv2.IMREAD_COLOR)
        if pixels is None:
            raise ImageError(f"{self.files[index]}: OpenCV cannot decode it. Leave RAW out")
        pixels = cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB)
        height, width = self._size
        if self._is_cropped:
            pixels = _random_part(pixels)
        pixels = cv2.resize(pixels, (width, height))
        return torch.from_numpy(pixels).permute(2, 0, 1)


def _random_part(pixels: Any) -> Any:
    """A part of half the area, as a random crop takes in the mean."""
    sides = [max(1, round(side * 0.7)) for side in pixels.shape[:2]]
    top, left = (
        np.random.randint(all_ - side + 1)
        for all_, side in zip(pixels.shape[:2], sides, strict=True)
    )
    return pixels[top : top + sides[0], left : left + sides[1]]


def _pictures(path: str) -> Iterator[str]:
    if not Path(path).is_dir():
        raise ValueError(f"{path} is not a folder; RAW is the folder of the raw images")
    for folder, below, names in os.walk(path):
        below.sort()
        for name in sorted(names):
            if name.lower().endswith(_ENDINGS):
                yield os.path.join(folder, name)


def _one_thread(worker: int) -> None:
    cv2.setNumThreads(0)


def stock_loader(dataset: Dataset[Any], batch_size: int, workers: int) -> DataLoader[Any]:
    """A DataLoader of torch as training has it."""
    return DataLoader(
        dataset,
        batch_size,
        shuffle=True,
        num_workers=workers,
        drop_last=True,
        persistent_workers=workers > 0,
        worker_init_fn=_one_thread,
    )
