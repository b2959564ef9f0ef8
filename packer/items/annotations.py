"""Annotations of an image as a source found them, and the fields that a store makes of them.

A source writes down what the annotation files say, in the coordinates in which they say it. What
becomes of it when the picture is turned, resized and cut is the work of `packer.pictures.objects`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from readers.store.schema import Field


class RawObject(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """One object on an image.

    An object has a box, or an outline or points that give one. Coordinates are continuous: pixel i
    covers [i, i + 1), so that a box that covers one pixel has sides of 1.

    Attributes:
        place: How a report names it, after the image: `annotation 17`, `labels/1.txt, line 3`.
        label: Position in the classes.
        box: x0, y0, x1, y1. None: the bounds of its outline or points.
        polygons: Outline, as float64 x, y pairs of each polygon; see `pack_points`.
        runs: Outline as runs over the pixels of the picture (COCO's RLE, decoded), as uint32; see
            `pack_runs`. The picture is then the one that the annotation's size is of.
        keypoints: float32 x, y, visibility of each point; see `pack_points`. Or x, y alone, as the
            field has them.
        area: In square pixels. None: that of the box, or of the outline.
        iscrowd: Whether it stands for many objects.
        difficult: Whether it is to be left out when results are scored.
        truncated: Whether the object goes on beyond its box.
        attributes: Whatever else is known about it.
    """

    place: str
    label: int
    box: tuple[float, float, float, float] | None = None
    polygons: tuple[bytes, ...] = ()
    runs: bytes = b""
    keypoints: bytes = b""
    area: float | None = None
    iscrowd: bool = False
    difficult: bool = False
    truncated: bool = False
    attributes: dict[str, Any] = {}


class Annotations(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """All objects of one image.

    Attributes:
        objects: In the order in which they stand in the raw data.
        size: (width, height) of the picture that the coordinates are on, as the annotation file
            says. When it is that of the file before its EXIF orientation, the coordinates are
            turned with the picture; when it is neither that nor the upright one, the image is
            rejected. None: the upright picture, whatever its size.
        is_relative: Whether coordinates are shares of the picture's sides rather than pixels.
    """

    objects: tuple[RawObject, ...] = ()
    size: tuple[int, int] | None = None
    is_relative: bool = False


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Annotations)


def pack_annotations(annotations: Annotations) -> bytes:
    """The bytes that a raw item carries: a tenth of the memory of the objects."""
    return _ENCODER.encode(annotations)


def pack_object(raw_object: RawObject) -> bytes:
    """One object, for `join_objects`: where those of an image lie far apart in their file."""
    return _ENCODER.encode(raw_object)


def join_objects(objects: Sequence[bytes], size: tuple[int, int] | None) -> bytes:
    """What `pack_annotations` makes of objects that were packed one by one, in pixels."""
    return _ENCODER.encode(_Packed(objects=list(map(msgspec.Raw, objects)), size=size))


class _Packed(msgspec.Struct, array_like=True, kw_only=True):
    """`Annotations`, attribute for attribute, of objects that are bytes already."""

    objects: list[msgspec.Raw]
    size: tuple[int, int] | None
    is_relative: bool = False


def unpack_annotations(data: bytes) -> Annotations:
    """The annotations of a raw item."""
    return _DECODER.decode(data)


def pack_points(points: ArrayLike, dtype: str = "<f8") -> bytes:
    """Coordinates as bytes: "<f8" for polygons, "<f4" for keypoints."""
    return np.asarray(points, dtype).tobytes()


def pack_runs(runs: ArrayLike) -> bytes:
    """Runs of an outline as bytes."""
    return np.asarray(runs, "<u4").tobytes()


def add_attribute(attributes: dict[str, Any], name: str, value: Any) -> None:
    """Add an attribute; where the name is taken by another value, both are kept, in a list."""
    if name not in attributes:
        attributes[name] = value
        return
    known = attributes[name] if isinstance(attributes[name], list) else [attributes[name]]
    if value not in known:
        attributes[name] = [*known, value]


BOX_FIELDS = ("boxes", "labels")
"""What every source of objects has."""


def object_fields(
    classes: tuple[str, ...], names: tuple[str, ...] = BOX_FIELDS, *, keypoints: Field | None = None
) -> tuple[Field, ...]:
    """Fields of the objects of an image: one row or entry an object, in the same order in all.

    Args:
        classes: Names of the labels.
        names: Which of boxes, labels, area, iscrowd, difficult, truncated, masks (outlines) and
            attributes the source has.
        keypoints: From `keypoint_field`, where the source has points.

    Raises:
        KeyError: A name is none of these.
    """
    fields = {
        "boxes": Field(name="boxes", kind="boxes", dtype="float32", shape=(None, 4)),
        "labels": Field(name="labels", kind="label", dtype="int64", shape=(None,), names=classes),
        "area": Field(name="area", kind="array", dtype="float32", shape=(None,)),
        "iscrowd": Field(name="iscrowd", kind="array", dtype="bool", shape=(None,)),
        "difficult": Field(name="difficult", kind="array", dtype="bool", shape=(None,)),
        "truncated": Field(name="truncated", kind="array", dtype="bool", shape=(None,)),
        "masks": Field(name="masks", kind="polygons"),
        "attributes": Field(name="attributes", kind="json"),
    }
    chosen = tuple(fields[name] for name in names)
    return chosen if keypoints is None else (*chosen, keypoints)


def keypoint_field(
    point_count: int,
    names: tuple[str, ...] | None = None,
    *,
    name: str = "keypoints",
    has_visibility: bool = True,
) -> Field:
    """A field of points for each object: keypoints, or `corners` of boxes that are turned."""
    shape = (None, point_count, 3 if has_visibility else 2)
    return Field(name=name, kind="keypoints", dtype="float32", shape=shape, names=names)
