"""Fields that follow their image through a loader's operations: boxes, points, outlines, masks.

An object of which nothing is left in the result is dropped, from all fields that have one entry for
each object alike. `transform` goes on to the result, so predictions still lead back to raw pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from readers.ops.boxes import cut, hulls
from readers.ops.moves import Affines, compose
from readers.store.schema import OBJECT_NAMES, Field, Schema
from readers.store.shapes.affine import as_affine
from readers.store.shapes.polygons import Outline, Polygons, Runs

if TYPE_CHECKING:
    # It loads OpenCV, which a dataset without operations has no use for.
    from readers.ops.image_plan import ImagePlan, Params


class Followers:
    """Which of the fields follow, and how they are moved.

    Args:
        schema: The store's schema.
        names: Fields of a batch.
        plan: What is done to the images.

    Attributes:
        masks: Fields of masks, which become `plan.size`.
        extra: Fields that have to be read beside `names`: without the boxes nobody could say which
            labels belong to objects that are left.
    """

    def __init__(self, schema: Schema, names: Sequence[str], plan: ImagePlan) -> None:
        self._plan = plan
        fields = [schema[name] for name in names]
        self.masks = [field for field in fields if field.kind == "mask"]
        self._objects = [field for field in fields if field.name in OBJECT_NAMES]
        self._has_transform = "transform" in names
        boxes = [field.name for field in schema.fields if field.kind == "boxes"]
        self._boxes = boxes[0] if boxes and self._objects else None
        self.extra = [self._boxes] if self._boxes is not None and self._boxes not in names else []

    def move(self, batch: dict[str, Any], params: Params) -> None:
        """Move the fields of a batch, in place, to where `params` takes its images.

        Args:
            batch: Field -> values of all samples: lists of tensors or arrays for what has a size of
                its own, one tensor for the rest. Masks are done by `mask`.
            params: What is done to each image.
        """
        if self._has_transform:
            self._compose(batch, params)
        if not self._objects or self._boxes is None:
            return
        values = batch[self._boxes]
        counts = [len(value) for value in values]
        flat = np.concatenate([np.zeros((0, 4), np.float32), *map(np.asarray, values)])
        owners = np.repeat(np.arange(len(counts)), counts)
        moved = _MovedBoxes(flat, params, owners, self._plan.size)
        is_kept = np.split(moved.kept, np.cumsum(counts)[:-1]) if counts else []
        for field in self._objects:
            batch[field.name] = self._field(field, batch[field.name], moved, is_kept, params)

    def _compose(self, batch: dict[str, Any], params: Params) -> None:
        """`transform`: from raw pixels to the stored image, and on to the result."""
        stored = np.asarray(batch["transform"])
        stored[:] = compose(stored.astype(np.float64), params.affines)

    def _field(
        self,
        field: Field,
        old: list[Any],
        moved: _MovedBoxes,
        is_kept: list[NDArray[np.bool_]],
        params: Params,
    ) -> list[Any]:
        """One field of objects, after the move, without those that are gone."""
        if field.kind == "polygons":
            rows = enumerate(zip(old, is_kept, strict=True))
            return [
                _moved_outlines(value, kept, params, row, self._plan) for row, (value, kept) in rows
            ]
        if field.kind == "json":
            return [
                [entry for entry, stays in zip(value, kept, strict=True) if stays]
                for value, kept in zip(old, is_kept, strict=True)
            ]
        arrays = [np.asarray(value) for value in old]
        flat = np.concatenate(arrays) if arrays else np.zeros((0,))
        if field.kind == "boxes":
            flat = moved.boxes.astype(np.float32)
        elif field.kind == "keypoints":
            flat = _moved_points(flat, moved.affines)
        elif field.name == "area":
            flat = _moved_areas(flat, moved)
        ends = np.cumsum([len(array) for array in arrays])[:-1]
        parts = [
            part[kept]
            for part, kept in zip(np.split(flat, ends) if arrays else [], is_kept, strict=True)
        ]
        if parts and isinstance(old[0], torch.Tensor):
            return [torch.from_numpy(part) for part in parts]
        return parts

    def mask(self, ids: Any, params: Params, row: int, field: Field, out: NDArray[Any]) -> None:
        """Write the mask of one sample where its image goes: ids as they are, never mixed.

        Args:
            ids: (height, width), the stored mask.
            params: What is done to each image.
            row: Place of the sample in `params`.
            field: Of the mask; what lies beside the image gets its `ignore`, or 0.
            out: (height, width) of the result.
        """
        self._plan.apply_mask(np.asarray(ids), params, row, field.ignore or 0, out)


class _MovedBoxes:
    """The boxes of a batch where its images went.

    Args:
        boxes: (object, 4), of all samples.
        params: What is done to each image.
        owners: (object,), the sample of each.
        size: (height, width) of the results.

    Attributes:
        affines: (object, 2, 3), from points of the object's image to points of its result.
        boxes: (object, 4) float64, cut to the result.
        kept: (object,), whether anything is left.
        is_cut: (object,), whether anything was cut off.
    """

    def __init__(
        self, boxes: NDArray[Any], params: Params, owners: NDArray[np.int64], size: tuple[int, int]
    ) -> None:
        self.affines = params.affines[owners]
        self.boxes = boxes
        self.kept = np.ones(len(boxes), bool)
        self.is_cut = np.zeros(len(boxes), bool)
        for affines, limits in params.stages:
            self._move(affines[owners], limits[owners])
        height, width = size
        self._move(params.last_link[owners], np.array([0, 0, width, height]))

    def _move(self, affines: Affines, limits: NDArray[Any]) -> None:
        whole = hulls(self.boxes, affines)
        self.boxes, has_area = cut(whole, limits)
        self.kept &= has_area
        # Not of float32 boxes: rounding makes some of those smaller that were not cut.
        self.is_cut |= _areas(self.boxes) < _areas(whole) * (1 - 1e-6)


def _areas(boxes: NDArray[np.float64]) -> NDArray[np.float64]:
    areas: NDArray[np.float64] = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    return areas


def _moved_points(points: NDArray[Any], affines: Affines) -> NDArray[Any]:
    """(object, point, 2 or 3): x and y are moved, but for points that are not marked."""
    moved = points.copy()
    moved[:, :, :2] = (
        points[:, :, 0:1] * affines[:, None, :, 0]
        + points[:, :, 1:2] * affines[:, None, :, 1]
        + affines[:, None, :, 2]
    )
    if points.shape[2] == 3:
        moved[(points == 0).all(axis=2)] = 0
    return moved


def _moved_areas(areas: NDArray[Any], moved: _MovedBoxes) -> NDArray[Any]:
    """Areas in pixels of the result; of what was cut, at most that of the box that is left."""
    linear = moved.affines[:, :, :2]
    scaled = areas * np.abs(linear[:, 0, 0] * linear[:, 1, 1] - linear[:, 0, 1] * linear[:, 1, 0])
    limits = np.where(moved.is_cut, _areas(moved.boxes), np.inf)
    found: NDArray[Any] = np.minimum(scaled, limits).astype(areas.dtype)
    return found


def _moved_outlines(
    value: Polygons, kept: NDArray[np.bool_], params: Params, row: int, plan: ImagePlan
) -> Polygons:
    """The outlines of one sample."""
    affine = as_affine(params.affines[row])
    outlines: list[Outline] = []
    for outline, stays in zip(value, kept, strict=True):
        if not stays:
            continue
        if isinstance(outline, Runs):
            outlines.append(_moved_runs(outline, value, params, row, plan))
        else:
            linear, offset = affine[:, :2].T, affine[:, 2]
            outlines.append(tuple(part @ linear + offset for part in outline))
    return Polygons(outlines, *plan.size)


def _moved_runs(runs: Runs, value: Polygons, params: Params, row: int, plan: ImagePlan) -> Runs:
    from readers.store.shapes.rle import fill, mask_runs

    mask = np.zeros(plan.size, np.uint8)
    plan.apply_mask(fill(runs.counts, value.height, value.width), params, row, 0, mask)
    return Runs(mask_runs(mask))
