"""What the arguments of orders take."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sized
from typing import Any

from torch.utils.data import ConcatDataset, DataLoader, Dataset

from readers.arguments import FLAG, TEXT, WHOLE, Takes, is_whole

_NO_ROWS = (str, bytes, os.PathLike, Mapping, Dataset, DataLoader, type)


def _is_row(value: Any) -> bool:
    return isinstance(value, Sized) and not isinstance(value, _NO_ROWS)


def _is_size(value: Any) -> bool:
    return is_whole(value) or _is_row(value) or _is_dataset(value)


def _is_dataset(value: Any) -> bool:
    return isinstance(value, Dataset) and isinstance(value, Sized)


def _is_sizes(value: Any) -> bool:
    if isinstance(value, ConcatDataset):
        return True
    return _is_row(value) and all(map(is_whole, value))


def _size_hint(value: Any) -> str:
    if isinstance(value, (str, os.PathLike)):
        return f"Open the store first: LMDBDataset({os.fspath(value)!r})"
    return "Give the dataset itself" if isinstance(value, DataLoader) else ""


def _weights_hint(value: Any) -> str:
    if not _is_dataset(value):
        return ""
    return (
        "It is a dataset. Weights are made of its columns, such as "
        "np.where(dataset.columns['label'] == 'cat', 3.0, 1.0); for as many of each class: "
        "ClassBalancedSampler(dataset)"
    )


def _buckets_hint(value: Any) -> str:
    return "It is a dataset: size_buckets(dataset)" if _is_dataset(value) else ""


def _sizes_hint(value: Any) -> str:
    is_datasets = _is_row(value) and all(map(_is_dataset, value))
    return "They are datasets: torch's ConcatDataset of them" if is_datasets else ""


_ROW = Takes("a row of numbers, one for each sample", _is_row)
_SHARES = Takes("a row of numbers, one for each dataset", _is_row)

RULES: dict[str, Takes] = {
    "size": Takes("a number of samples, or a dataset", _is_size, _size_hint),
    "sizes": Takes("the sizes of datasets, or a ConcatDataset of them", _is_sizes, _sizes_hint),
    "weights": _ROW.hinting(_weights_hint),
    "buckets": _ROW.hinting(_buckets_hint),
    "labels": Takes("a dataset, or a row of labels", lambda v: _is_row(v) or _is_dataset(v)),
    "num_samples": WHOLE.or_none(),
    "batch_size": WHOLE,
    "seed": WHOLE,
    "rank": WHOLE.or_none(),
    "world_size": WHOLE.or_none(),
    "remainder": TEXT,
    "replacement": FLAG,
    "shuffle": FLAG,
    "drop_last": FLAG,
    "block_size": WHOLE,
    "window": WHOLE,
    "lanes": WHOLE,
    "proportions": _SHARES.or_none(),
    "counts": _SHARES.or_none(),
    "repeats": _SHARES.or_none(),
}
