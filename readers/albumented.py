"""albumentations' transforms as a dataset's: boxes, masks and points move with their image.

dataset = LMDBDataset(path, image_as="numpy", transform=Albumented([A.HorizontalFlip()]))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from readers.store.schema import OBJECT_NAMES
from readers.store.shapes.polygons import Polygons

_POINT_NAMES = ("keypoints", "corners")

_HALF = 0.5
"""albumentations has points where the middle of the first pixel is 0; here its edge is."""


class Albumented:
    """Carries out a list of albumentations' transforms on samples, with all that lies on the image.

    An object whose box is gone is dropped from all fields of objects alike, and boxes are cut off
    at the border, as with a loader's `ops`. Outlines come out as pixels, (object, height, width)
    uint8. `area` shrinks and grows with its box. `transform`, which leads back to the raw file, is
    left out: nobody says what was done. What is random follows torch's global random numbers, and
    so seed, epoch and batch in a loader.

    Args:
        transforms: A list of them, such as `[A.RandomCrop(200, 200), A.HorizontalFlip()]`; not a
            Compose, which would have settings for boxes of its own.
        image: Name of the field of images.

    Raises:
        ImportError: albumentations is not installed.
        TypeError: `transforms` is not a list.
    """

    def __init__(self, transforms: Sequence[Any], *, image: str = "image") -> None:
        import albumentations

        if not isinstance(transforms, (list, tuple)):
            raise TypeError(
                f"transforms is a list of albumentations' transforms; got {transforms!r}. Of a "
                "Compose give what is in it: compose.transforms"
            )
        self._image = image
        self._compose = albumentations.Compose(
            list(transforms),
            bbox_params=albumentations.BboxParams("pascal_voc", label_fields=["rows"], clip=True),
            keypoint_params=albumentations.KeypointParams(
                "xy", label_fields=["places"], remove_invisible=False
            ),
        )

    def __call__(self, sample: Mapping[str, Any]) -> dict[str, Any]:
        """The sample after the transforms.

        Args:
            sample: A dict of fields, its arrays numpy's.

        Raises:
            TypeError: It is of another kind.
        """
        if not isinstance(sample, Mapping) or not isinstance(sample.get(self._image), np.ndarray):
            raise TypeError(
                "Albumented takes dicts whose image is a numpy array: LMDBDataset(..., "
                f"image_as='numpy'), without returns=; got {type(sample).__name__}"
            )
        result = {name: value for name, value in sample.items() if name != "transform"}
        objects = [name for name in result if name in OBJECT_NAMES]
        count = len(result[objects[0]]) if objects else 0
        given: dict[str, Any] = {"image": sample[self._image]}
        given["bboxes"] = np.asarray(result.get("boxes", np.zeros((0, 4))), np.float32)
        given["rows"] = np.arange(len(given["bboxes"]))
        points = {name: result[name] for name in _POINT_NAMES if name in result}
        flat = [value[..., :2].reshape(-1, 2) for value in points.values()]
        given["keypoints"] = np.concatenate([np.zeros((0, 2), np.float32), *flat]) - _HALF
        given["places"] = np.arange(len(given["keypoints"]))
        if "mask" in result:
            given["mask"] = _as_pixels(result["mask"])
        outlines = result.get("masks")
        if isinstance(outlines, Polygons) and len(outlines):
            given["masks"] = list(outlines.to_masks())

        # Of its own, its random numbers are the same in all forked workers.
        self._compose.set_random_seed(int(torch.randint(2**31, ())))
        done = self._compose(**given)

        result[self._image] = done["image"]
        height, width = _size(done["image"])
        kept = np.asarray(done["rows"], np.int64) if "boxes" in result else np.arange(count)
        if "mask" in result:
            result["mask"] = np.asarray(done["mask"]).astype(result["mask"].dtype)
        if isinstance(outlines, Polygons):
            masks = [np.asarray(done["masks"][row], np.uint8) for row in kept] if count else []
            result["masks"] = np.stack(masks) if masks else np.zeros((0, height, width), np.uint8)
        if points:
            moved = np.empty_like(given["keypoints"])
            moved[np.asarray(done["places"], np.int64)] = np.asarray(done["keypoints"])[:, :2]
            result.update(_points(points, moved + _HALF, kept))
        if "boxes" in result:
            boxes = np.asarray(done["bboxes"], np.float32).reshape(-1, 4)
            if "area" in result:
                scale = _areas(boxes) / _areas(np.asarray(result["boxes"])[kept])
                result["area"] = (result["area"][kept] * scale).astype(np.float32)
            result["boxes"] = boxes
        for name in objects:
            if name not in ("boxes", "masks", "area", *_POINT_NAMES):
                value = result[name]
                of_array = isinstance(value, np.ndarray)
                result[name] = value[kept] if of_array else [value[row] for row in kept]
        return result


def _as_pixels(mask: NDArray[Any]) -> NDArray[Any]:
    """Ids in an element type that OpenCV moves; float32 has all that a mask may hold."""
    return mask.astype(np.float32) if mask.dtype == np.int32 else mask


def _size(image: Any) -> tuple[int, int]:
    """Height and width of an array, or of the tensor that ToTensorV2 makes."""
    shape = image.shape[-2:] if isinstance(image, torch.Tensor) else image.shape[:2]
    return int(shape[0]), int(shape[1])


def _areas(boxes: NDArray[Any]) -> NDArray[Any]:
    areas: NDArray[Any] = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    return areas


def _points(
    points: Mapping[str, NDArray[Any]], moved: NDArray[Any], kept: NDArray[np.int64]
) -> dict[str, NDArray[Any]]:
    """The fields of points after the move; points that are not marked stay 0."""
    found, first = {}, 0
    for name, value in points.items():
        count = value[..., 0].size
        places = moved[first : first + count].reshape(*value.shape[:-1], 2)
        first += count
        result = np.concatenate([places, value[..., 2:]], axis=-1).astype(np.float32)
        if name == "keypoints":
            result[(value == 0).all(axis=-1)] = 0
        found[name] = result[kept]
    return found
