"""Operations on images, on their way into a batch: crop, resize, flip, turn; and what follows them.

In: descriptions that users give (the names below). Out: pixels in the batch, with boxes, points,
outlines and masks that follow. Called by `readers.reading`.
"""

from readers.ops.operations import (
    CenterCrop,
    ColorJitter,
    Letterbox,
    Pad,
    RandomAffine,
    RandomFlip,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomRotation90,
    RandomVerticalFlip,
    Resize,
)

__all__ = [
    "CenterCrop",
    "ColorJitter",
    "Letterbox",
    "Pad",
    "RandomAffine",
    "RandomFlip",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomRotation90",
    "RandomVerticalFlip",
    "Resize",
]
