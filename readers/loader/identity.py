"""What tells a dataset from another: a place in one means nothing in the other."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np
from torch.utils.data import ConcatDataset, Dataset, Subset

from readers.dataset import LMDBDataset

_CHUNK = 2**20


def identity_of_dataset(dataset: Dataset[Any]) -> str:
    """A digest of which samples a dataset has, in which order; wherever its store lies.

    Of datasets that are not of this package, only kind and size are known.
    """
    digest = blake2b(digest_size=8)
    _add(digest, dataset)
    return digest.hexdigest()


def _add(digest: Any, dataset: Dataset[Any]) -> None:
    count = len(dataset)  # type: ignore[arg-type]
    digest.update(f"{type(dataset).__name__} {count}".encode())
    if isinstance(dataset, LMDBDataset):
        view = dataset.view
        digest.update(view.identity + repr(view.split).encode())
        if view.chosen is not None:
            for start in range(0, count, _CHUNK):
                part = np.arange(start, min(start + _CHUNK, count), dtype=np.int64)
                digest.update(view.chosen.positions(part).tobytes())
    elif isinstance(dataset, Subset):
        digest.update(np.asarray(dataset.indices, np.int64).tobytes())
        _add(digest, dataset.dataset)
    elif isinstance(dataset, ConcatDataset):
        for part_dataset in dataset.datasets:
            _add(digest, part_dataset)
