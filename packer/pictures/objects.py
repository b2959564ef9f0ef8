"""Annotated objects of an image -> what its sample stores: turned, scaled and cut with the image.

    what the file says --> pixels of the picture it is about --> upright --> the stored image
      shares or pixels     as the file has it, or upright          prepare.py says how

An object that cannot be kept as it is written is rejected with the reason; none is repaired. A part
of it that is wrong is left out and reported, and does not take the rest with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from packer.items.annotations import Annotations, RawObject
from packer.pictures.geometry import orientation_affine
from packer.pictures.mask_grid import place_mask
from packer.pictures.prepare import Prepared
from packer.sources.turned_boxes import CORNERS
from readers.store.errors import ImageError
from readers.store.schema import Field
from readers.store.shapes.affine import Affine, compose, map_boxes, map_points
from readers.store.shapes.polygons import Outline, Polygons, Runs

ROUNDING_PX = 0.01
"""A box that sticks out of its picture by less was cut off at the border and then rounded."""

COORDINATE_MAX = 10_000_000
"""What float32 still has to a pixel, and more than any picture has."""


@dataclass
class PlacedObjects:
    """The objects of one image.

    Attributes:
        values: Value of each field of objects, by name.
        rejects: (place, reason) of each object that is not among them.
        lost_parts: (place, part, reason) of each part of those that are, which they are without.
        overhang_count: Boxes that stick out of the picture.
    """

    values: dict[str, Any]
    rejects: list[tuple[str, str]] = field(default_factory=list)
    lost_parts: list[tuple[str, str, str]] = field(default_factory=list)
    overhang_count: int = 0


def place_objects(
    annotations: Annotations,
    prepared: Prepared,
    fields: Iterable[Field],
    *,
    clips_boxes: bool = False,
) -> PlacedObjects:
    """The objects of an image in pixels of the stored image, in the order of the raw data.

    Args:
        annotations: As the source found them.
        prepared: The image they are on.
        fields: Of the store; those of objects get their values.
        clips_boxes: Whether to cut boxes off at the border of the picture.

    Raises:
        ImageError: The annotations are about a picture of another size.
    """
    fields = tuple(fields)
    frame = _frame(annotations, prepared)
    result = PlacedObjects({})
    columns = next((f.shape[2] or 0 for f in fields if f.kind == "keypoints"), 2)
    boxes = _raw_boxes(annotations.objects, frame, columns)
    objects, kept = _kept(annotations, boxes, frame, result)
    boxes = boxes[kept]
    limits = np.tile(np.asarray(frame.size, np.float64), 2)
    inside = np.clip(boxes, 0, limits)
    overhang = np.abs(boxes - inside).max(axis=1, initial=0)
    result.overhang_count = int((overhang > ROUNDING_PX).sum())
    if clips_boxes:
        boxes = inside
    else:
        boxes = np.where((overhang <= ROUNDING_PX)[:, None], inside, boxes)

    moved = map_boxes(boxes, frame.affine)
    width, height = prepared.plan.final
    if prepared.plan.offset[0] < 0 or prepared.plan.offset[1] < 0:
        # Where the image was cut there are no pixels, so there is no box either.
        moved = np.clip(moved, 0, [width, height, width, height])
    stored = moved.astype(np.float32)
    is_left = (stored[:, 0] < stored[:, 2]) & (stored[:, 1] < stored[:, 3])
    for at in np.flatnonzero(~is_left).tolist():
        reason = "nothing of its box is left in the stored image (--fit, --size)"
        result.rejects.append((objects[at].place, reason))
    chosen = np.flatnonzero(is_left).tolist()
    objects = [objects[at] for at in chosen]
    boxes, moved = boxes[chosen], moved[chosen]
    for wanted in fields:
        value = _value(wanted, objects, boxes, moved, frame, prepared)
        if value is not None:
            result.values[wanted.name] = value
    return result


@dataclass(frozen=True, eq=False)
class _Frame:
    """The picture that coordinates are on.

    Attributes:
        size: (width, height) in pixels.
        affine: To the stored image.
        turn: EXIF orientation that is still to be applied to it.
        is_relative: Whether coordinates are shares of its sides.
    """

    size: tuple[int, int]
    affine: Affine
    turn: int
    is_relative: bool

    def points(self, data: bytes, dtype: str, columns: int) -> NDArray[np.float64]:
        """Packed points in pixels of the picture, (point, columns) float64."""
        points = np.frombuffer(data, dtype).reshape(-1, columns).astype(np.float64)
        if self.is_relative:
            points[:, :2] *= self.size
        return points


def _frame(annotations: Annotations, prepared: Prepared) -> _Frame:
    height, width = prepared.original_size
    is_turned = prepared.turn >= 5
    upright = (height, width) if is_turned else (width, height)
    said = annotations.size
    if annotations.is_relative or said is None or tuple(said) == upright:
        return _Frame(upright, prepared.plan.affine, 1, annotations.is_relative)
    if tuple(said) != (width, height):
        turned = f" ({upright[0]}x{upright[1]} upright)" if is_turned else ""
        raise ImageError(
            f"its annotations are about a picture of {said[0]}x{said[1]} pixels; the file has "
            f"{width}x{height}{turned}. One of them belongs to another picture"
        )
    turn = orientation_affine(prepared.turn, width, height)
    return _Frame((width, height), compose(turn, prepared.plan.affine), prepared.turn, False)


def _raw_boxes(objects: Sequence[RawObject], frame: _Frame, columns: int) -> NDArray[np.float64]:
    """Boxes as written, or the bounds of what the objects have instead: (object, 4) float64.

    They are in pixels of the picture.
    """
    boxes = np.empty((len(objects), 4))
    for box, thing in zip(boxes, objects, strict=True):
        if thing.box is not None:
            box[:] = thing.box
            continue
        points = np.concatenate(
            [
                np.zeros((0, 2)),
                *(np.frombuffer(part, "<f8").reshape(-1, 2) for part in thing.polygons),
                _visible(thing.keypoints, columns),
            ]
        )
        if len(points):
            box[:] = *points.min(axis=0), *points.max(axis=0)
        elif thing.runs:
            box[:] = _bounds_of_runs(np.frombuffer(thing.runs, "<u4"), frame.size)
        else:
            box[:] = np.nan
    return boxes * np.tile(frame.size, 2) if frame.is_relative else boxes


def _visible(keypoints: bytes, columns: int) -> NDArray[np.float64]:
    """The packed points that are marked, (point, 2) float64."""
    points = np.frombuffer(keypoints, "<f4").reshape(-1, columns).astype(np.float64)
    return points[points[:, 2] > 0, :2] if columns == 3 else points


def _bounds_of_runs(runs: NDArray[np.uint32], size: tuple[int, int]) -> NDArray[np.float64]:
    from readers.store.shapes.rle import fill

    width, height = size
    if int(runs.sum(dtype=np.uint64)) != width * height:
        return np.full(4, np.nan)
    mask = fill(runs, height, width)
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    if not len(rows):
        return np.zeros(4)
    return np.array([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1], np.float64)


def _kept(
    annotations: Annotations,
    boxes: NDArray[np.float64],
    frame: _Frame,
    result: PlacedObjects,
) -> tuple[list[RawObject], list[int]]:
    """The objects that can be kept, and their positions; the others become rejects.

    Parts of them that cannot be kept are taken out, and a box that is one of those becomes the
    bounds of the outline.
    """
    kept: list[RawObject] = []
    positions: list[int] = []
    first: dict[Any, str] = {}
    for at, (thing, box) in enumerate(zip(annotations.objects, boxes, strict=True)):
        whole, lost, reason = thing, None, _problem(thing, box, frame.size)
        if reason is not None:
            whole, lost = _without_bad_part(thing, box, frame)
            reason = None if lost else reason
        if reason is None:
            identity = (
                thing.label,
                thing.box,
                thing.polygons,
                thing.runs,
                thing.keypoints,
                thing.iscrowd,
            )
            if identity in first:
                reason = f"the same as {first[identity]}: label and coordinates are equal"
            else:
                first[identity] = thing.place
        if reason is not None:
            result.rejects.append((thing.place, reason))
            continue
        kept.append(whole)
        positions.append(at)
        if lost:
            result.lost_parts.append((thing.place, *lost))
    return kept, positions


def _without_bad_part(
    thing: RawObject, box: NDArray[np.float64], frame: _Frame
) -> tuple[RawObject, tuple[str, str] | None]:
    """The object without the one part that is wrong with it, and (part, reason).

    The reason is None where nothing can be kept of it. `box` becomes the bounds of the outline
    where it is the part that is wrong.
    """
    if thing.box is None or not (thing.polygons or thing.runs):
        return thing, None
    problem = _box_problem(box, frame.size)
    if problem is None:
        problem = _problem(thing, box, frame.size)
        bare = msgspec.structs.replace(thing, runs=b"")
        return bare, ("outline", f"{problem}. The object is stored with its box alone")
    bare = msgspec.structs.replace(thing, box=None)
    bounds = _raw_boxes((msgspec.structs.replace(bare, keypoints=b""),), frame, 2)[0]
    if _problem(thing, bounds, frame.size) is not None:
        return thing, None
    box[:] = bounds
    return bare, ("box", f"{problem}. The object is stored with the box around its outline")


def _problem(thing: RawObject, box: NDArray[np.float64], size: tuple[int, int]) -> str | None:
    """Why an object cannot be kept, or None when it can."""
    width, height = size
    if thing.runs:
        pixel_count = int(np.frombuffer(thing.runs, "<u4").sum(dtype=np.uint64))
        if pixel_count != width * height:
            return (
                f"its runs are over {pixel_count} pixels; the picture has {width}x{height} = "
                f"{width * height}"
            )
    return _box_problem(box, size)


def _box_problem(box: NDArray[np.float64], size: tuple[int, int]) -> str | None:
    """Why a box cannot be kept, or None when it can."""
    width, height = size
    if not np.isfinite(box).all():
        return f"box {_shown(box)} is not four numbers"
    if np.abs(box).max() > COORDINATE_MAX:
        return f"box {_shown(box)} lies beyond any picture; at most {COORDINATE_MAX:,} pixels"
    if box[0] >= box[2] or box[1] >= box[3]:
        sides = f"{box[2] - box[0]:g} wide and {box[3] - box[1]:g} high"
        return f"box {_shown(box)} has no area: {sides}"
    if box[0] >= width or box[1] >= height or box[2] <= 0 or box[3] <= 0:
        return f"box {_shown(box)} lies outside of the picture of {width}x{height} pixels"
    return None


def _shown(box: NDArray[np.float64]) -> str:
    return "[" + ", ".join(f"{value:.6g}" for value in box) + "]"


def _value(
    wanted: Field,
    objects: Sequence[RawObject],
    boxes: NDArray[np.float64],
    moved: NDArray[np.float64],
    frame: _Frame,
    prepared: Prepared,
) -> Any:
    """The value of one field; None when it is not a field of objects."""
    if wanted.kind == "boxes":
        return moved.astype(np.float32)
    if wanted.kind == "polygons":
        return _outlines(objects, frame, prepared)
    if wanted.kind == "keypoints":
        values = _keypoints(wanted, objects, frame)
        if wanted.name == CORNERS:
            _add_upright_corners(values, objects, boxes, frame)
        return values
    if wanted.kind == "label" and wanted.shape:
        return np.array([thing.label for thing in objects], wanted.dtype)
    if wanted.name == "area":
        return _areas(objects, boxes, moved, frame)
    if wanted.name in ("iscrowd", "difficult", "truncated"):
        return np.array([getattr(thing, wanted.name) for thing in objects], bool)
    if wanted.name == "attributes":
        return [thing.attributes for thing in objects]
    return None


def _outlines(objects: Sequence[RawObject], frame: _Frame, prepared: Prepared) -> Polygons:
    width, height = prepared.plan.final
    outlines: list[Outline] = []
    for thing in objects:
        if thing.runs:
            outlines.append(_placed_runs(thing.runs, frame, prepared))
        else:
            parts = (frame.points(part, "<f8", 2) for part in thing.polygons)
            outlines.append(tuple(_moved(part, frame.affine) for part in parts))
    try:
        return Polygons(outlines, height, width)
    except ValueError as error:
        raise ImageError(str(error)) from error


_IDENTITY = np.array([[1.0, 0, 0], [0, 1, 0]])


def _moved(points: NDArray[np.float64], affine: Affine) -> NDArray[np.float64]:
    # Exactly what the file says where nothing moves: the rule for pixels of polygons rounds.
    return points if np.array_equal(affine, _IDENTITY) else map_points(points, affine)


def _placed_runs(data: bytes, frame: _Frame, prepared: Prepared) -> Runs:
    from readers.store.shapes.rle import fill, mask_runs

    runs = np.frombuffer(data, "<u4").astype(np.uint32)
    if np.array_equal(frame.affine, _IDENTITY):
        return Runs(runs)
    width, height = frame.size
    mask = fill(runs, height, width)
    return Runs(mask_runs(place_mask(mask, prepared.plan, frame.turn, 0)))


def _keypoints(wanted: Field, objects: Sequence[RawObject], frame: _Frame) -> NDArray[np.float32]:
    point_count, columns = wanted.shape[1], wanted.shape[2]
    assert point_count is not None
    assert columns is not None
    values = np.zeros((len(objects), point_count, columns), np.float32)
    for value, thing in zip(values, objects, strict=True):
        if not thing.keypoints:
            continue
        points = frame.points(thing.keypoints, "<f4", columns)
        moved = map_points(points[:, :2], frame.affine)
        # A point that was not marked stands at 0, 0, which is no place in the picture.
        is_marked = points[:, 2] != 0 if columns == 3 else np.ones(len(points), bool)
        is_marked |= (points[:, :2] != 0).any(axis=1)
        value[:, :2] = np.where(is_marked[:, None], moved, 0)
        value[:, 2:] = points[:, 2:]
    return values


def _add_upright_corners(
    values: NDArray[np.float32],
    objects: Sequence[RawObject],
    boxes: NDArray[np.float64],
    frame: _Frame,
) -> None:
    """Give objects that are not turned the corners of their boxes: they are turned by 0."""
    upright = [at for at, thing in enumerate(objects) if not thing.keypoints]
    corners = boxes[upright][:, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(-1, 4, 2)
    values[upright] = map_points(corners, frame.affine)


def _areas(
    objects: Sequence[RawObject],
    boxes: NDArray[np.float64],
    moved: NDArray[np.float64],
    frame: _Frame,
) -> NDArray[np.float32]:
    """Areas in pixels of the stored image; of what was cut, at most that of the box."""
    scale = abs(float(np.linalg.det(frame.affine[:, :2])))
    areas = [
        thing.area if thing.area is not None else _area(thing, box, frame)
        for thing, box in zip(objects, boxes, strict=True)
    ]
    # Not of the stored boxes: float32 makes some of those smaller that were not cut.
    box_areas = np.prod(moved[:, 2:] - moved[:, :2], axis=1)
    whole = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1) * scale
    scaled = np.array(areas, np.float64) * scale
    is_cut = box_areas < whole * (1 - 1e-6)
    return np.where(is_cut, np.minimum(scaled, box_areas), scaled).astype(np.float32)


def _area(thing: RawObject, box: NDArray[np.float64], frame: _Frame) -> float:
    """Area of an object whose annotation does not say it: of its outline, or else of its box."""
    if thing.runs:
        return float(np.frombuffer(thing.runs, "<u4")[1::2].sum(dtype=np.uint64))
    if thing.polygons:
        return sum(polygon_area(frame.points(part, "<f8", 2)) for part in thing.polygons)
    return float((box[2] - box[0]) * (box[3] - box[1]))


def polygon_area(points: NDArray[np.float64]) -> float:
    """Area inside a polygon that does not cross itself (the shoelace formula)."""
    x, y = points[:, 0], points[:, 1]
    return abs(float(x @ np.roll(y, -1) - y @ np.roll(x, -1))) / 2
