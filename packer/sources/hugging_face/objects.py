"""Objects of a row of a Hugging Face table: boxes and categories."""

from __future__ import annotations

import math
from typing import Any

from packer.items.annotations import Annotations, RawObject, pack_annotations
from packer.sources.hugging_face.account import Account
from packer.sources.hugging_face.columns import ObjectColumns
from packer.sources.hugging_face.labels import Labels
from packer.sources.hugging_face.rows import Row
from packer.sources.turned_boxes import ANGLE_NAMES, turn_degrees
from packer.wording import count_text

_OUTLINE_NAMES = ("segmentation", "segmentations", "mask", "masks", "polygon", "polygons", "rle")
PART_NAMES = frozenset((*_OUTLINE_NAMES, "keypoints", "points"))
"""Names of parts of objects, which tables have in no common form."""

BOX_FORMAT = "xywh"
"""What the numbers of a box are by the convention of Hugging Face; the data does not say."""


def row_annotations(
    row: Row,
    names: ObjectColumns,
    categories: Labels,
    key: bytes,
    place: str,
    account: Account,
) -> tuple[bytes, str]:
    """The objects of a row, or why they are not known."""
    value = row.values[names.column]
    if value is None:
        return b"", f"{names.column} is null; expected a list of objects, empty if there are none"
    boxes, labels = listed(value, names.boxes), listed(value, names.category)
    if len(boxes) != len(labels):
        return b"", (
            f"{names.column} has {count_text(len(boxes), 'box')} and {len(labels)} categories; "
            "expected as many of each"
        )
    angle = next((name for name in names.unread if name.lower() in ANGLE_NAMES), None)
    if angle is not None:
        account.angle_column = f"{names.column}.{angle}"
        account.angle_count += sum(bool(turn_degrees(a)) for a in listed(value, angle))
    for unread in names.unread:
        if unread.lower() in PART_NAMES:
            count = sum(bool(inner) for inner in listed(value, unread))
            path = f"{names.column}.{unread}"
            account.unread_parts[path] = account.unread_parts.get(path, 0) + count
    parts = {}
    for part in filter(None, (names.area, names.iscrowd)):
        parts[part] = listed(value, part)
        if len(parts[part]) != len(boxes):
            found = f"{len(parts[part])} of {part} and {count_text(len(boxes), 'box')}"
            _lose(account, key, place, part, f"{found}; expected as many of each. It is left out")
            parts[part] = [None] * len(boxes)
    none = [None] * len(boxes)
    areas, crowds = parts.get(names.area or "", none), parts.get(names.iscrowd or "", none)
    objects = []
    for number, (box, raw_label) in enumerate(zip(boxes, labels, strict=True)):
        label, problem = categories.label(raw_label)
        numbers = _numbers_of(box)
        if numbers is None:
            problem = f"box {box!r:.100}; expected 4 finite numbers: x, y, width, height"
        if numbers is None or problem:
            at = f"{place}, object {number}"
            account.found.findings.refuse_annotation(key, problem, at)
            continue
        x, y, width, height = numbers
        account.box_count += 1
        account.corner_like_count += width > x and height > y
        area, crowd = areas[number], crowds[number]
        if area is not None and not (isinstance(area, (int, float)) and 0 <= area < math.inf):
            reason = f"area {area!r:.40} is not a number from 0. It is computed"
            _lose(account, key, f"{place}, object {number}", "area", reason)
            area = None
        if not isinstance(crowd, (bool, int, type(None))):
            reason = f"{names.iscrowd} {crowd!r:.40}; expected 0 or 1. It is taken for 0"
            _lose(account, key, f"{place}, object {number}", "iscrowd", reason)
            crowd = None
        objects.append(
            RawObject(
                place=f"object {number}",
                label=label,
                box=(x, y, x + width, y + height),
                area=float(area) if area is not None else None,
                iscrowd=bool(crowd),
            )
        )
    size = (row.values["width"], row.values["height"]) if account.columns.has_size else (0, 0)
    is_known = all(isinstance(side, int) and 0 < side < 2**31 for side in size)
    return pack_annotations(
        Annotations(objects=tuple(objects), size=size if is_known else None)
    ), ""


def _lose(account: Account, key: bytes, place: str, part: str, reason: str) -> None:
    """Take note of a part of an object that is left out of it."""
    account.found.findings.refuse_annotation(key, reason, f"{place}, {part}", part)


def listed(value: Any, key: str) -> list[Any]:
    """The values of one key of objects, which are a dict of lists or a list of dicts."""
    if isinstance(value, dict):
        inner = value.get(key)
        return inner if isinstance(inner, list) else []
    if isinstance(value, list):
        return [entry.get(key) if isinstance(entry, dict) else None for entry in value]
    return []


def _numbers_of(box: Any) -> tuple[float, float, float, float] | None:
    """x, y, width and height of a box, or None when it is not 4 finite numbers."""
    try:
        x, y, width, height = box
        # Their sum is finite only if each is; one question instead of four, a million times.
        is_finite = math.isfinite(x + y + width + height)
        return (float(x), float(y), float(width), float(height)) if is_finite else None
    except (TypeError, ValueError, OverflowError):
        return None
