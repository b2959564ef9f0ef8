"""A dataset's transform: whether it can be right for the samples, and its errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from readers.reading.view import StoreView

Transform = Callable[[Any], Any]

_GEOMETRY = "torchvision.transforms.v2._geometry"
"""Where torchvision has its transforms that move pixels."""

_OF_PLACES = ("boxes", "mask", "polygons", "keypoints")
"""Kinds of fields that say where something is on the image."""

_DEPTH_MAX = 16
"""Of transforms in transforms; more are a circle."""


def check_transform(transform: Transform | None, view: StoreView) -> None:
    """Refuse a transform that is known to move the image and to leave what is on it behind.

    Args:
        transform: As given.
        view: The samples that it is for.

    Raises:
        TypeError: It cannot be called.
        ValueError: Boxes, masks or points would stay where they were.
    """
    if transform is None:
        return
    if not callable(transform):
        raise TypeError(f"a transform is called with each sample, or None; got {transform!r}")
    schema = view.store.manifest.schema
    places = [name for name in view.result_names if schema[name].kind in _OF_PLACES]
    kind = type(transform).__module__.partition(".")[0]
    if kind == "albumentations":
        raise ValueError(
            "transform is one of albumentations', which is called in a way of its own. Give its "
            "list of transforms to the adapter: transform=Albumented([...]), of readers"
        )
    if view.image_as == "tv_tensor" or not places:
        return
    for part in _parts(transform):
        if type(part).__module__ == _GEOMETRY:
            shown = ", ".join(places)
            raise ValueError(
                f"transform has {type(part).__name__}, which would move the image and leave "
                f"{shown} where they were: to torchvision these are numbers like any other. "
                "Take image_as='tv_tensor', without transform_field; or move all in a loader, "
                f"make_loader(..., ops=...); or leave {shown} out with fields="
            )


def _parts(transform: Any, depth: int = 0) -> Iterator[Any]:
    """A transform and those in it."""
    yield transform
    inside = getattr(transform, "transforms", None)
    if isinstance(inside, (list, tuple)) and depth < _DEPTH_MAX:
        for one in inside:
            yield from _parts(one, depth + 1)
