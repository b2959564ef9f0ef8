"""Boxes, turned boxes, outlines and keypoints of a sample -> numbers that the page draws.

All are in pixels of the stored image. Outlines are drawn with as few points as look the same.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from packer.sources.turned_boxes import CORNERS
from packer.view.skeletons import joined_points
from readers.store.schema import OBJECT_NAMES, Field, Schema
from readers.store.shapes.polygons import Outline, Polygons, Runs
from readers.store.shapes.rle import fill

_STEPS = (1 / 1500, 1 / 500, 1 / 200, 1 / 80)
"""How far an outline may be from the true one, in shares of the image's long side."""

_MASK_SIDE = 800
_TEXT_MAX = 200
_FLAGS = ("iscrowd", "difficult", "truncated")


def object_count(values: Mapping[str, Any], schema: Schema) -> int:
    """How many objects a sample has."""
    lists: list[Any] = [values.get(field.name) for field in object_fields(schema)]
    return max((len(value) for value in lists if _is_list(value)), default=0)


def object_fields(schema: Schema) -> list[Field]:
    """The fields with an entry for each object of an image."""
    return [
        field
        for field in schema.fields
        if field.kind in ("boxes", "keypoints", "polygons")
        or (field.kind == "label" and field.shape)
        or (field.name in OBJECT_NAMES and field.kind in ("array", "json"))
    ]


def drawn_objects(
    values: Mapping[str, Any], schema: Schema, size: tuple[int, int], bytes_max: int
) -> tuple[list[dict[str, Any]], int]:
    """The objects of a sample as the page draws them, in at most about so many bytes of JSON.

    Args:
        values: Of the sample.
        schema: Its fields.
        size: (height, width) of the image.
        bytes_max: Outlines get coarser, and then objects are left out, until they fit.

    Returns:
        Them, and how many are left out.
    """
    count = object_count(values, schema)
    found: list[dict[str, Any]] = []
    byte_count = 0
    for step in _STEPS:
        found, byte_count = [], 0
        for at in range(count):
            one = _drawn(values, schema, at, size, step)
            byte_count += len(json.dumps(one))
            if byte_count > bytes_max and step != _STEPS[-1]:
                break
            if byte_count > bytes_max and found:
                return found, count - len(found)
            found.append(one)
        else:
            break
    return found, count - len(found)


def _drawn(
    values: Mapping[str, Any], schema: Schema, at: int, size: tuple[int, int], step: float
) -> dict[str, Any]:
    """One object. `c` class, `b` box, `q` corners, `p` outline, `k` points, `f` flags, `t` text."""
    one: dict[str, Any] = {}
    digits = 1 if max(size) > 100 else 2
    for field in object_fields(schema):
        value: Any = values.get(field.name)
        if not _is_list(value) or at >= len(value):
            continue
        mine = value[at]
        if field.kind == "boxes":
            one["b"] = _numbers(mine, digits)
        elif field.kind == "label":
            one["c"] = int(mine)
        elif field.kind == "keypoints" and field.name == CORNERS:
            one["q"] = _numbers(mine, digits)
        elif field.kind == "keypoints":
            points = _points(mine, digits)
            one["k"] = points if any(points) else None
        elif field.kind == "polygons":
            parts = _outline(mine, value, max(size) * step)
            one["p"] = [part for part in (_numbers(p, digits) for p in parts) if part]
        elif field.name in _FLAGS:
            if bool(mine):
                one.setdefault("f", []).append(field.name)
        elif field.name == "area":
            one["s"] = f"{float(mine):,.6g}"
        else:
            text = _short(mine)
            if text:
                one.setdefault("t", []).append([field.name, text])
    return {name: value for name, value in one.items() if value is not None}


def _is_list(value: Any) -> bool:
    """Whether a value has an entry for each object: JSON of a stranger's store may be anything."""
    return isinstance(value, list | np.ndarray | Polygons)


def _numbers(values: Any, digits: int) -> list[float] | None:
    """Coordinates one after the other; None where one of them is not a number."""
    flat = np.asarray(values, np.float64).reshape(-1)
    if not np.isfinite(flat).all():
        return None
    return [_rounded(value, digits) for value in flat.tolist()]


def _rounded(value: float, digits: int) -> float:
    near = round(value, digits)
    return int(near) if near == int(near) else near


def _points(values: NDArray[Any], digits: int) -> list[list[float] | int]:
    """(x, y, visibility) of each point; 0 for one that is not marked."""
    found: list[list[float] | int] = []
    for point in np.asarray(values, np.float64).tolist():
        is_marked = point[2] > 0 if len(point) == 3 else any(point)
        if not is_marked or not all(map(math.isfinite, point)):
            found.append(0)
        else:
            found.append([_rounded(v, digits) for v in point[:2]] + [int(v) for v in point[2:]])
    return found


def _outline(mine: Outline, whole: Polygons, tolerance: float) -> Sequence[NDArray[Any]]:
    """The polygons of an object; of one that is runs of pixels, the edges of its pixels."""
    if isinstance(mine, Runs):
        return _edges(mine, whole.height, whole.width, tolerance)
    return [_simpler(part, tolerance) for part in mine if len(part)]


def _edges(runs: Runs, height: int, width: int, tolerance: float) -> list[NDArray[Any]]:
    mask = fill(runs.counts, height, width)
    step = max(1, math.ceil(max(height, width) / _MASK_SIDE))
    small = np.ascontiguousarray(mask[::step, ::step])
    contours, _ = cv2.findContours(small, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE)
    # A contour goes through the middles of its outermost pixels.
    points = [contour.reshape(-1, 2).astype(np.float64) * step + step / 2 for contour in contours]
    return [_simpler(part, tolerance) for part in points if len(part) > 2]


def _simpler(points: NDArray[Any], tolerance: float) -> NDArray[Any]:
    if len(points) < 8 or not np.isfinite(points).all():
        return points
    near = cv2.approxPolyDP(points.astype(np.float32).reshape(-1, 1, 2), tolerance, True)
    return near.reshape(-1, 2) if len(near) > 2 else points


def _short(value: Any) -> str:
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if value is None or value == {} or value == []:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= _TEXT_MAX else f"{text[: _TEXT_MAX - 3]}..."


def joined(schema: Schema, classes: Sequence[str]) -> dict[str, Any]:
    """Names of the keypoints, and which of them a line joins; empty where there are none."""
    for field in schema.fields:
        if field.kind == "keypoints" and field.name != CORNERS:
            pairs = joined_points(field.names, field.shape[1] or 0, classes)
            return {"points": list(field.names or ()), "limbs": pairs}
    return {}
