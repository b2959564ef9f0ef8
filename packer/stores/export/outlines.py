"""Outlines of objects as other tools write them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from packer.pictures.objects import polygon_area
from readers.store.shapes.polygons import Outline, Runs
from readers.store.shapes.rle import area, encode_counts, fill

PLAIN, JOINED, TRACED, BOXED = "plain", "joined", "traced", "boxed"
"""How an outline became one polygon: as it was; of several; of runs of pixels; of a box."""


def coco_outline(outline: Outline, height: int, width: int) -> Any:
    """An outline as COCO's `segmentation`: lists of numbers, or runs; empty where there is none."""
    if isinstance(outline, Runs):
        return {"size": [height, width], "counts": encode_counts(outline.counts).decode()}
    return [part.reshape(-1).tolist() for part in outline]


def outline_area(outline: Outline) -> float:
    """Square pixels in an outline."""
    if isinstance(outline, Runs):
        return float(area(outline.counts))
    return sum(polygon_area(part) for part in outline)


def one_polygon(
    outline: Outline, box: NDArray[Any], height: int, width: int
) -> tuple[NDArray[np.float64], str]:
    """An outline as one polygon, (point, 2) float64 x y, and how it became one.

    Several are joined by lines that go there and back, so that the area stays. Runs of pixels are
    followed along their outer edge, which leaves holes out.
    """
    parts = _traced(outline, height, width) if isinstance(outline, Runs) else list(outline)
    parts = [part for part in parts if len(part) > 2]
    if not parts:
        x0, y0, x1, y1 = np.asarray(box, np.float64).tolist()
        return np.array([[x0, y0], [x1, y0], [x1, y1], [x0, y1]]), BOXED
    if len(parts) == 1:
        return parts[0], TRACED if isinstance(outline, Runs) else PLAIN
    start = parts[0][:1]
    pieces = [parts[0], start]
    for part in parts[1:]:
        pieces += [part, part[:1], start]
    return np.concatenate(pieces[:-1]), TRACED if isinstance(outline, Runs) else JOINED


def _traced(outline: Runs, height: int, width: int) -> list[NDArray[np.float64]]:
    """The outer edges of the parts of a mask, along the edges of its pixels."""
    import cv2

    # Each pixel is four, of which one lies at each of its corners: the outermost say where the
    # edge is, also of a part that is one pixel wide.
    mask = fill(outline.counts, height, width).repeat(2, axis=0).repeat(2, axis=1)
    contours, _ = cv2.findContours(mask, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    return [_corners((contour.reshape(-1, 2) + 1) // 2) for contour in contours]


def _corners(points: NDArray[Any]) -> NDArray[np.float64]:
    """A closed line without the points on its way straight on."""
    points = points[(points != np.roll(points, 1, axis=0)).any(axis=1)]
    before, after = points - np.roll(points, 1, axis=0), np.roll(points, -1, axis=0) - points
    turns = before[:, 0] * after[:, 1] != before[:, 1] * after[:, 0]
    back = (before * after).sum(axis=1) < 0
    corners: NDArray[np.float64] = points[turns | back].astype(np.float64)
    return corners
