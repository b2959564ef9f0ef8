"""One COCO annotation as a raw object: formats turned, nothing repaired."""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Sequence
from typing import Any

import msgspec

from packer.items.annotations import RawObject, pack_points, pack_runs
from packer.sources.coco.document import CocoAnnotation, Rle
from packer.sources.coco.parts import BOX, KEYPOINTS, OUTLINE, AnnotationError, PartProblems
from readers.store.shapes.rle import decode_counts

Box = tuple[float, float, float, float]


def make_object(
    entry: CocoAnnotation,
    place: str,
    label: int,
    size: tuple[int, int] | None,
    point_count: int,
    points: bytes,
    problems: PartProblems,
) -> RawObject:
    """The object of an annotation. Its outline and points that cannot be read are left out.

    Args:
        entry: The annotation.
        place: How a report names it.
        label: Of its category.
        size: (width, height) that the file declares for the image; None: it does not.
        point_count: Keypoints that an object has in this data set; 0: none has any.
        points: Packed keypoints from another file, which go before its own; empty: none.
        problems: Takes the parts that are left out.

    Raises:
        AnnotationError: The reason why the annotation is rejected.
    """
    polygons: tuple[bytes, ...] = ()
    runs = b""
    if isinstance(entry.segmentation, Rle):
        try:
            runs = _runs(entry.segmentation, size)
        except AnnotationError as error:
            problems.add(OUTLINE, str(error))
    elif entry.segmentation:
        polygons = _polygons(entry.segmentation, problems)
    box = None
    try:
        box = read_box(entry.bbox)
    except AnnotationError as error:
        problems.add(BOX, str(error))
    if box is None and not runs and not polygons:
        reasons = [reason for part, reason in problems.reasons if part in (BOX, OUTLINE)]
        if reasons:
            raise AnnotationError("; ".join(reasons))
        raise AnnotationError("has neither bbox nor segmentation; expected bbox [x, y, w, h]")
    if entry.keypoints and not points:
        try:
            points = pack_keypoints(entry.keypoints, point_count)
        except AnnotationError as error:
            problems.add(KEYPOINTS, str(error))
    return RawObject(
        place=place,
        label=label,
        box=box,
        polygons=polygons,
        runs=runs,
        keypoints=points,
        area=read_area(entry.area),
        iscrowd=bool(entry.iscrowd),
        attributes=_attributes(entry.attributes),
    )


def read_box(bbox: Sequence[float] | None) -> Box | None:
    """x0, y0, x1, y1 of a bbox of x, y, width, height; None when there is none.

    Raises:
        AnnotationError: It has another count of numbers, or one that is not finite.
    """
    if not bbox:
        return None
    if len(bbox) != 4:
        raise AnnotationError(f"bbox has {_numbers(len(bbox))}; expected 4: x, y, width, height")
    x, y, width, height = bbox
    box = (x, y, x + width, y + height)
    if not math.isfinite(box[2] + box[3]):
        raise AnnotationError(f"bbox {list(bbox)} is not finite; expected x, y, width, height")
    return box


def read_area(area: float | None) -> float | None:
    """An area in square pixels, or None where it must be computed: not given, or no area."""
    return area if area is not None and 0 <= area < math.inf else None


def pack_keypoints(points: Sequence[float], point_count: int) -> bytes:
    """Keypoints of an object as bytes: x, y, visibility of each.

    Raises:
        AnnotationError: They are not as many as the data set has, or not finite.
    """
    if len(points) != 3 * point_count:
        raise AnnotationError(
            f"keypoints has {_numbers(len(points))}; expected {3 * point_count}: x, y, visibility "
            f"of each of {point_count}"
        )
    if not math.isfinite(sum(points)):
        raise AnnotationError("keypoints are not finite; expected x, y, visibility of each")
    return pack_points(points, "<f4")


def _polygons(parts: list[list[float]], problems: PartProblems) -> tuple[bytes, ...]:
    """Packed polygons. An array of doubles takes a quarter of the time of numpy for a list."""
    if len(parts) > 2 and all(len(part) == 2 for part in parts):
        # No outline has two numbers, so these are the points of one.
        parts = [[number for part in parts for number in part]]
        problems.form = "pairs [x, y]"
    packed = []
    for part in parts:
        if not part:
            continue  # Written for no outline by tools that have boxes alone.
        if len(part) < 6 or len(part) % 2:
            problems.add(
                OUTLINE,
                f"segmentation has a polygon of {_numbers(len(part))}; expected x, y of at least "
                "3 points",
            )
            continue
        if not math.isfinite(sum(part)):
            problems.add(OUTLINE, "segmentation is not finite; expected x, y of each point")
            continue
        values = array("d", part)
        if sys.byteorder == "big":
            values.byteswap()
        packed.append(values.tobytes())
    return tuple(packed)


def _runs(rle: Rle, size: tuple[int, int] | None) -> bytes:
    height, width = rle.size
    if size is not None and size != (width, height):
        raise AnnotationError(
            f"segmentation is of {width}x{height} pixels; expected those of the image, "
            f"{size[0]}x{size[1]}"
        )
    pixel_count = height * width
    if height < 0 or width < 0:
        raise AnnotationError(f"segmentation is of {width}x{height} pixels; expected at least 0")
    if isinstance(rle.counts, str):
        try:
            return pack_runs(decode_counts(rle.counts, pixel_count))
        except ValueError as error:
            raise AnnotationError(f"segmentation: {error}{_counts_advice(rle.counts)}") from error
    if min(rle.counts, default=0) < 0 or sum(rle.counts) != pixel_count:
        raise AnnotationError(
            f"segmentation: {len(rle.counts)} counts from {min(rle.counts, default=0)} that add up "
            f"to {sum(rle.counts)}; expected none below 0, and {pixel_count} in all"
        )
    if pixel_count >= 2**32:
        raise AnnotationError(f"segmentation is of {width}x{height} pixels; expected below 2^32")
    return pack_runs(rle.counts)


def _counts_advice(counts: str) -> str:
    """What to do about counts that Python wrote as the text of its bytes."""
    if counts.startswith(("b'", 'b"')):
        return ". They are the text of Python's bytes: write counts.decode() instead of str(counts)"
    return ""


def _attributes(attributes: Any) -> dict[str, Any]:
    """Attributes as a dict; what is none stands in one, so that it is kept."""
    if attributes is msgspec.UNSET or attributes is None:
        return {}
    return attributes if isinstance(attributes, dict) else {"attributes": attributes}


def _numbers(count: int) -> str:
    return "1 number" if count == 1 else f"{count} numbers"
