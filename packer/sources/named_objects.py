"""Objects whose labels are not known yet: classes are sorted only when all files have been read."""

from __future__ import annotations

import math

import msgspec

from packer.items.annotations import RawObject, pack_points
from packer.items.findings import Findings
from packer.sources.class_names import ClassNames


class NamedObject(msgspec.Struct, frozen=True, array_like=True):
    """An object, and the name of its class. Its own label is not used."""

    class_name: str
    object: RawObject


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(list[NamedObject])


def pack_named(objects: list[NamedObject]) -> bytes:
    """The objects of an image in a tenth of their memory."""
    return _ENCODER.encode(objects)


def label_objects(
    data: bytes, key: bytes, classes: ClassNames, findings: Findings
) -> tuple[RawObject, ...]:
    """The packed objects of an image with their labels; those of no class are refused."""
    objects = []
    for named in _DECODER.decode(data):
        label = classes.label(named.class_name)
        if label is None:
            reason = classes.unknown_reason(named.class_name)
            findings.refuse_annotation(key, reason, named.object.place)
        else:
            objects.append(msgspec.structs.replace(named.object, label=label))
    return tuple(objects)


def ellipse(
    x: float, y: float, radius_x: float, radius_y: float, degrees: float = 0.0
) -> tuple[tuple[float, float, float, float], bytes]:
    """Bounds of an ellipse, and a polygon that departs from it by less than a quarter pixel.

    Args:
        x: The centre's x.
        y: The centre's y.
        radius_x: Half of its width before it is turned.
        radius_y: Half of its height before it is turned.
        degrees: By how much it is turned, clockwise.
    """
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    half_width = math.hypot(radius_x * cos, radius_y * sin)
    half_height = math.hypot(radius_x * sin, radius_y * cos)
    radius = max(abs(radius_x), abs(radius_y), 1.0)
    # An arc bulges by r (1 - cos(pi / n)) over its chord. No picture needs more than 720 points.
    point_count = min(max(math.ceil(math.pi / math.acos(1 - 0.25 / radius)), 16), 720)
    points = []
    for number in range(point_count):
        angle = 2 * math.pi * number / point_count
        across, down = radius_x * math.cos(angle), radius_y * math.sin(angle)
        points += [x + across * cos - down * sin, y + across * sin + down * cos]
    bounds = (x - half_width, y - half_height, x + half_width, y + half_height)
    return bounds, pack_points(points)
