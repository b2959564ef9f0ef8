"""A store with all that can lie on an image, for transforms of others to move."""

from __future__ import annotations

import numpy as np

from readers.store.schema import Field
from readers.store.shapes.polygons import Polygons

FIELDS = [
    Field(name="key", kind="text"),
    Field(name="image", kind="image", dtype="uint8", shape=(None, None, 3), codec="raw"),
    Field(name="boxes", kind="boxes", dtype="float32", shape=(None, 4)),
    Field(name="labels", kind="label", dtype="int64", shape=(None,), names=("a", "b")),
    Field(name="masks", kind="polygons"),
    Field(name="keypoints", kind="keypoints", dtype="float32", shape=(None, 2, 3)),
    Field(name="corners", kind="keypoints", dtype="float32", shape=(None, 4, 2)),
    Field(name="area", kind="array", dtype="float32", shape=(None,)),
    Field(name="attributes", kind="json"),
    Field(name="mask", kind="mask", dtype="int32", shape=(None, None)),
    Field(name="transform", kind="array", dtype="float32", shape=(2, 3)),
]

BOXES = [[4, 6, 20, 18], [1, 2, 7, 9], [30, 20, 36, 28]]
SIZES = [(32, 40), (36, 44), (32, 40)]
COUNTS = [3, 2, 0]


def samples():
    """Three samples with 3, 2 and no objects."""
    noise = np.random.default_rng(5)
    found = []
    for number, ((height, width), count) in enumerate(zip(SIZES, COUNTS, strict=True)):
        boxes = np.array(BOXES, np.float32)[:count]
        x0, y0, x1, y1 = boxes.T
        corners = np.stack([x0, y0, x1, y0, x1, y1, x0, y1], 1).reshape(-1, 4, 2)
        points = np.concatenate([corners[:, ::2], np.full((count, 2, 1), 2)], 2)
        points[:1, 1] = 0  # Not marked.
        found.append(
            {
                "key": f"{number}",
                "image": noise.integers(0, 256, (height, width, 3)).astype(np.uint8),
                "boxes": boxes,
                "labels": np.arange(count) % 2,
                "masks": Polygons([(corner.astype(float),) for corner in corners], height, width),
                "keypoints": points.astype(np.float32),
                "corners": corners.astype(np.float32),
                "area": ((x1 - x0) * (y1 - y0)).astype(np.float32),
                "attributes": [{"at": at} for at in range(count)],
                "mask": noise.integers(0, 2**20, (height, width)).astype(np.int32),
                "transform": np.eye(2, 3, dtype=np.float32),
            }
        )
    return found
