"""Samples -> batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import default_collate, get_worker_info

from readers.nesting import parts_of, rebuilt
from readers.reading.gather import empty_batch
from readers.reading.samples import GatheredSamples

_NUMBERS = (bool, int, float, np.number, np.bool_)
_ALIGNMENT_BYTES = 64

_TV_TENSORS = "torchvision.tv_tensors"
"""Where torchvision has tensors that say what they are."""


def collate(samples: Sequence[Any]) -> Any:
    """One batch of many samples, for any DataLoader.

    Samples that were gathered together are a batch already and are not copied. Else, field by
    field: tensors and arrays of one shape are stacked, (sample, ...); those of several shapes,
    texts, pictures and whatever differs in kind stay a list; numbers become a tensor; dicts, tuples
    and dataclasses within a sample are joined in the same way.

    Args:
        samples: Dicts, tuples, dataclasses or lists, all of the same fields, or single values.

    Returns:
        The joined fields in a container of the samples' kind, or the joined values.
    """
    if isinstance(samples, GatheredSamples):
        return samples.collated(_joined)
    first = samples[0]
    if isinstance(first, list):
        return [_joined(list(values)) for values in zip(*samples, strict=True)]
    if _has_fields(first):
        return _fields_joined(samples)
    return _joined(list(samples))


def _fields_joined(samples: Sequence[Any]) -> Any:
    """Containers of the same fields, field by field; dataclasses and named tuples keep theirs."""
    first = samples[0]
    if isinstance(first, tuple):
        columns = enumerate(zip(*samples, strict=True))
        fields = {at: _joined(list(values)) for at, values in columns}
        return rebuilt(first, fields) if hasattr(first, "_fields") else tuple(fields.values())
    if isinstance(first, Mapping):
        fields = {name: _joined([sample[name] for sample in samples]) for name in first}
        return rebuilt(first, fields) if isinstance(first, dict) else fields
    names = parts_of(first) or {}
    return rebuilt(first, {name: _joined([getattr(s, name) for s in samples]) for name in names})


def _has_fields(value: Any) -> bool:
    """Whether a value of a field has fields itself; a list is of as many as it happens to have."""
    return not isinstance(value, list) and parts_of(value) is not None


def _has_same_fields(value: Any, first: Any) -> bool:
    if isinstance(first, Mapping):
        return isinstance(value, Mapping) and value.keys() == first.keys()
    if isinstance(first, tuple):
        return isinstance(value, tuple) and len(value) == len(first)
    return type(value) is type(first)


def _joined(values: Any) -> Any:
    """Values of one field, one for each sample."""
    if not isinstance(values, list) or not values:
        return values
    first = values[0]
    if isinstance(first, (torch.Tensor, np.ndarray)):
        return _tensors_joined(values)
    if _has_fields(first):
        is_alike = all(_has_same_fields(value, first) for value in values)
        return _fields_joined(values) if is_alike else values
    if all(isinstance(value, _NUMBERS) for value in values):
        return default_collate(values)
    return values


def _tensors_joined(values: list[Any]) -> Any:
    if any(type(value).__module__.startswith(_TV_TENSORS) for value in values):
        return _tv_tensors_joined(values)
    if all(isinstance(value, (torch.Tensor, np.ndarray)) for value in values):
        kinds = {(tuple(value.shape), value.dtype) for value in values}
        if len(kinds) == 1:
            return default_collate(values)
        if get_worker_info() is not None and all(_is_plain(value) for value in values):
            return _in_one_piece(values)
    return values


def _tv_tensors_joined(values: list[Any]) -> Any:
    """Images of one size, and masks of classes, are one of their kind; objects stay lists.

    Boxes and points are in the size of their own image, which a stack of them has no place for.
    """
    kind, first = type(values[0]), values[0]
    is_stacked = kind.__name__ == "Image" or (kind.__name__ == "Mask" and first.ndim == 2)
    alike = all(
        type(value) is kind and value.shape == first.shape and value.dtype == first.dtype
        for value in values
    )
    if not (is_stacked and alike):
        return values
    return default_collate([value.as_subclass(torch.Tensor) for value in values]).as_subclass(kind)


def _is_plain(value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.layout == torch.strided
        and value.device.type == "cpu"
        and not value.requires_grad
    )


def _in_one_piece(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """The same tensors in one piece of shared memory.

    On its way to the main process each piece takes a file descriptor and a map of its own; images
    of several sizes would soon take as many as a process may have. They would be copied to shared
    memory anyway.
    """
    rooms = [-(-tensor.nbytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES for tensor in tensors]
    piece, start = empty_batch((sum(rooms),)), 0
    placed = []
    for tensor, room in zip(tensors, rooms, strict=True):
        place = piece[start : start + tensor.nbytes].view(tensor.dtype)
        # An image stays channels-last in memory: the strides are those that a copy of it has.
        strides = torch.empty_like(tensor, device="meta").stride()
        placed.append(place.as_strided(tensor.shape, strides, place.storage_offset()))
        placed[-1].copy_(tensor)
        start += room
    return placed
