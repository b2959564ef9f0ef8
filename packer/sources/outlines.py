"""Outlines as Python objects and JSON have them: lists of polygons, and runs (COCO's RLE)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from packer.items.annotations import pack_points, pack_runs
from readers.store.shapes.rle import decode_counts


def read_outline(value: Any) -> tuple[tuple[bytes, ...], bytes]:
    """Packed polygons and packed runs of an outline; both are empty where there is none.

    Args:
        value: Polygons as lists of x, y, x, y, ...; one such list; or a dict of size and counts.

    Raises:
        ValueError: It is something else.
    """
    if value is None or (isinstance(value, (list, tuple)) and not value):
        return (), b""
    if isinstance(value, dict):
        return (), _runs(value)
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"outline is a {type(value).__name__}; expected lists of x, y, x, y, ...")
    parts = value if isinstance(value[0], (list, tuple)) else [value]
    return tuple(_polygon(part) for part in parts), b""


def _polygon(part: Any) -> bytes:
    if not isinstance(part, Sequence) or len(part) < 6 or len(part) % 2:
        count = len(part) if isinstance(part, Sequence) else 0
        raise ValueError(f"a polygon of {count} numbers; expected x, y of at least 3 points")
    try:
        numbers = list(map(float, part))
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError("a polygon of something else than numbers; expected x, y, ...") from error
    if not math.isfinite(sum(numbers)):
        raise ValueError("a polygon with a point that is not finite")
    return pack_points(numbers)


def _runs(value: dict[str, Any]) -> bytes:
    try:
        height, width = (int(side) for side in value["size"])
        counts = value["counts"]
        if isinstance(counts, bytes):
            counts = counts.decode("ascii")
        pixel_count = height * width
        if height < 0 or width < 0 or pixel_count >= 2**32:
            raise ValueError(f"{width}x{height} pixels")
        if isinstance(counts, str):
            return pack_runs(decode_counts(counts, pixel_count))
        counts = [int(count) for count in counts]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"runs cannot be read ({error}); expected size and counts") from error
    if min(counts, default=0) < 0 or sum(counts) != pixel_count:
        raise ValueError(f"runs of {sum(counts)} pixels; expected {width}x{height}")
    return pack_runs(counts)
