"""Samples as torchvision's tv_tensors: its v2 transforms move all of them, not the image alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from readers.reading.samples import Sample
from readers.store.schema import Field, Schema

VISIBILITY = "visibility"
"""Name of what keypoints have as a third number, which tv_tensors have no place for."""


class TvTensors:
    """Makes tv_tensors of a sample whose images are tensors.

    Args:
        schema: The store's schema.
        names: The fields of a sample; see `check_fields`.

    Raises:
        ImportError: torchvision is not installed.
    """

    def __init__(self, schema: Schema, names: Sequence[str]) -> None:
        self._types = _tv_tensors()
        fields = [schema[name] for name in names]
        (self._image,) = [field.name for field in fields if field.kind == "image"]
        kinds = ("boxes", "mask", "polygons", "keypoints")
        self._rest = [field for field in fields if field.kind in kinds]

    def __call__(self, sample: Sample) -> Sample:
        """The same dict, with its values changed."""
        pixels = sample[self._image]
        size = tuple(pixels.shape[-2:])
        types = self._types
        sample[self._image] = types.Image(pixels)
        for field in self._rest:
            value = sample[field.name]
            if field.kind == "boxes":
                made = types.BoundingBoxes(value, format="XYXY", canvas_size=size)
            elif field.kind == "mask":
                made = types.Mask(value)
            elif field.kind == "polygons":
                made = types.Mask(torch.from_numpy(value.to_masks()))
            else:
                made = types.KeyPoints(value[..., :2], canvas_size=size)
                if value.shape[-1] == 3:
                    sample[VISIBILITY] = value[..., 2]
            sample[field.name] = made
        return sample


def check_fields(fields: Sequence[Field], returns: Sequence[str] | None) -> None:
    """See whether fields can be tv_tensors.

    Args:
        fields: Of a sample.
        returns: Names of those that make a tuple of a sample, or None for dicts.

    Raises:
        ImportError: torchvision is not installed.
        ValueError: There is not one image, or keypoints have more numbers than a tuple has places.
    """
    _tv_tensors()
    images = [field.name for field in fields if field.kind == "image"]
    if len(images) != 1:
        raise ValueError(
            "image_as='tv_tensor' needs one image among the fields, whose size boxes and points "
            f"are in; got {images!r}. Choose with fields="
        )
    for field in fields:
        has_visibility = field.kind == "keypoints" and field.shape[-1] == 3
        if has_visibility and returns is not None and field.name in returns:
            raise ValueError(
                f"image_as='tv_tensor': {field.name!r} has a visibility, which becomes the field "
                f"{VISIBILITY!r} of a dict, and has no place in a tuple. Leave returns out"
            )


def _tv_tensors() -> Any:
    try:
        from torchvision import tv_tensors
    except ImportError as error:
        raise ImportError(
            "image_as='tv_tensor' needs torchvision, from 0.23 on: pip install torchvision"
        ) from error
    if not hasattr(tv_tensors, "KeyPoints"):
        raise ImportError(
            "image_as='tv_tensor' needs torchvision from 0.23 on, which has KeyPoints: "
            "pip install -U torchvision"
        )
    return tv_tensors
