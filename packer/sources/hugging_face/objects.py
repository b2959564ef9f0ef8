"""Objects of a row of a Hugging Face table: boxes and categories."""

from __future__ import annotations

import math
from typing import Any

from packer.sources.annotations import Annotations, RawObject, pack_annotations
from packer.sources.hugging_face.account import Account
from packer.sources.hugging_face.columns import ObjectColumns
from packer.sources.hugging_face.labels import Labels
from packer.sources.hugging_face.rows import Row
from packer.sources.items import Reject
from packer.wording import count_text

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
    areas = listed(value, names.area) if names.area else [None] * len(boxes)
    crowds = listed(value, names.iscrowd) if names.iscrowd else [None] * len(boxes)
    if not len(boxes) == len(labels) == len(areas) == len(crowds):
        return b"", (
            f"{names.column} has {count_text(len(boxes), 'box')} and {len(labels)} categories; "
            "expected as many of each"
        )
    objects = []
    for number, (box, raw_label) in enumerate(zip(boxes, labels, strict=True)):
        label, problem = categories.label(raw_label)
        numbers = _numbers_of(box)
        if numbers is None:
            problem = f"box {box!r:.100}; expected 4 finite numbers: x, y, width, height"
        if numbers is None or problem:
            at = f"{place}, object {number}"
            account.annotation_rejects.append(Reject(key=key, path=at, reason=problem))
            continue
        x, y, width, height = numbers
        account.box_count += 1
        account.corner_like_count += width > x and height > y
        area = areas[number]
        objects.append(
            RawObject(
                place=f"object {number}",
                label=label,
                box=(x, y, x + width, y + height),
                area=float(area) if isinstance(area, (int, float)) else None,
                iscrowd=bool(crowds[number]),
            )
        )
    size = (row.values["width"], row.values["height"]) if account.columns.has_size else (0, 0)
    is_known = all(isinstance(side, int) and 0 < side < 2**31 for side in size)
    return pack_annotations(
        Annotations(objects=tuple(objects), size=size if is_known else None)
    ), ""


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
