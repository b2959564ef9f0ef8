"""Indices as users and samplers give them, as places in [0, count)."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray


def checked_index(index: Any, count: int, path: str) -> int:
    """One index in [0, count); it may count from the end.

    Raises:
        IndexError: There is no such sample.
        TypeError: It is not a whole number.
    """
    try:
        at = operator.index(index)
    except TypeError:
        at = None
    # True is an int to Python, and a mask by mistake to everybody else.
    if at is None or isinstance(index, bool):
        raise TypeError(
            f"an index is a whole number; got {index!r}. For several samples: "
            "dataset.select(indices) or dataset.filter(mask)"
        )
    if not -count <= at < count:
        raise IndexError(f"sample {at} of {path}, expected [0, {count})")
    return at + count if at < 0 else at


def checked_indices(indices: Sequence[int], count: int, path: str) -> NDArray[np.int64]:
    """Many indices in [0, count), checked in one step where they are plain numbers.

    Raises:
        IndexError: There is no such sample.
        TypeError: One is not a whole number.
    """
    array = np.array(indices)
    if array.dtype != np.int64 or array.ndim != 1:
        return np.array([checked_index(index, count, path) for index in indices], np.int64)
    if are_in_range(array, count):  # Nearly all are.
        return array
    wrong = (array < -count) | (array >= count)
    if wrong.any():
        checked_index(indices[int(wrong.argmax())], count, path)
    return np.where(array < 0, array + count, array)


def chosen_indices(indices: Iterable[int], count: int, path: str) -> NDArray[np.int64]:
    """A choice of samples, as indices in [0, count).

    Raises:
        IndexError: There is no such sample.
        TypeError: It is a mask, or not a row of whole numbers.
    """
    if not isinstance(indices, (np.ndarray, torch.Tensor, range)):
        indices = list(indices)
    array = np.asarray(indices)
    if array.dtype == bool:
        raise TypeError("a mask goes to filter(); select() takes indices")
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise TypeError(
            f"indices must be whole numbers in one row; got {array.dtype} {array.shape}"
        )
    wrong = (array < -count) | (array >= count)
    if wrong.any():
        raise IndexError(f"sample {array[wrong.argmax()]} of {path}, expected [0, {count})")
    array = array.astype(np.int64)
    return np.where(array < 0, array + count, array)


def are_in_range(indices: NDArray[np.int64], count: int) -> bool:
    """Whether all are in [0, count), in one look: as unsigned, one below 0 is a large number."""
    return not len(indices) or bool(np.maximum.reduce(indices.view(np.uint64)) < count)
