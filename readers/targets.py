"""Batches of images with objects, in the forms that detectors take.

A batch has its objects as lists, one tensor an image: boxes [(n0, 4), (n1, 4), ...]. These
functions make something else of it, in the training loop or within a DataLoader's `collate_fn`:

    images, targets = detection_targets(batch, first_label=1)  # torchvision's detectors
    packed = pack_objects(batch)  # One tensor of all boxes, and whose they are.
    padded = pad_images(batch, multiple_of=32)  # One tensor of images of several sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from readers.store.schema import OBJECT_NAMES
from readers.store.shapes.polygons import Polygons

Batch = Mapping[str, Any]
"""Field -> values of all samples: one tensor, or a list with one entry a sample."""

_CHANNELS_MAX = 4
"""A last axis of so many, behind a longer first one, is that of channels."""


def detection_targets(
    batch: Batch,
    *,
    first_label: int,
    image: str = "image",
    dtype: torch.dtype | None = torch.float32,
    as_tv_tensors: bool = False,
) -> tuple[list[torch.Tensor], list[dict[str, Any]]]:
    """Images and targets as torchvision's detectors take them: `losses = model(images, targets)`.

    Models count classes in two ways, and the wrong one teaches them nothing, without an error:

    - `first_label=1`, and `len(dataset.classes) + 1` classes: torchvision's Faster, Mask and
      Keypoint R-CNN, SSD and SSDlite, for which 0 is the background.
    - `first_label=0`, and `len(dataset.classes)` classes: torchvision's RetinaNet and FCOS; DETR
      and its family, also in transformers (which want boxes in another form); YOLO.

    Args:
        batch: With boxes and labels, as a loader or `collate` gives it, of a dataset without
            `returns`; images as "tensor".
        first_label: Label of the model's first class, which is 0 in a store. There is no default
            that would be right for all.
        image: Name of the field of images.
        dtype: Element type of the images; with a floating one, whole numbers become [0, 1]. None
            leaves images as they are.
        as_tv_tensors: Whether images, boxes and masks are torchvision's `tv_tensors`, which its v2
            transforms tell apart.

    Returns:
        Images, (channel, height, width) each; and for each of them a dict of every field of objects
        that the batch has: boxes (n, 4) float32, labels (n,) int64, area (n,), iscrowd (n,) int64,
        keypoints (n, points, 3), and masks (n, height, width) uint8, made of the outlines by COCO's
        own rule; and `image_id` where the batch has one. Keypoints without visibility get 2, or 0
        where they are not marked. All are where the images are.

    Raises:
        TypeError: The batch is not a dict, or `first_label` is not a whole number.
        ValueError: The images are not (channel, height, width), or `first_label` is negative.
        KeyError: The batch has no images, boxes or labels.
        ImportError: `as_tv_tensors`, and torchvision is not installed.
    """
    if not isinstance(batch, Mapping):
        raise TypeError(
            f"a batch is a dict of fields; got a {type(batch).__name__}. Leave returns= out of "
            "LMDBDataset, whose samples are dicts then"
        )
    if isinstance(first_label, bool) or not isinstance(first_label, int):
        raise TypeError(
            "first_label is 1 for models whose class 0 is the background, and 0 for others; "
            f"got {first_label!r}"
        )
    if first_label < 0:
        raise ValueError(f"first_label must be at least 0; got {first_label!r}")
    names = [name for name in batch if name in OBJECT_NAMES and name != "attributes"]
    for name in (image, "boxes", "labels"):
        if name not in batch:
            raise KeyError(f"the batch has no {name!r}, which detectors need; it has {list(batch)}")
    images = [_scaled(pixels, dtype) for pixels in _checked_images(batch[image])]
    if "image_id" in batch:
        names.append("image_id")
    targets = [
        {name: _target(name, batch[name][at], first_label, pixels.device) for name in names}
        for at, pixels in enumerate(images)
    ]
    if as_tv_tensors:
        return _as_tv_tensors(images, targets)
    return images, targets


def _checked_images(images: Any) -> list[torch.Tensor]:
    """The images of a batch, with their channels first."""
    for pixels in images:
        is_image = isinstance(pixels, torch.Tensor) and pixels.ndim == 3
        if not is_image or (pixels.shape[0] > _CHANNELS_MAX >= pixels.shape[-1]):
            found = f"{tuple(pixels.shape)}" if hasattr(pixels, "shape") else type(pixels).__name__
            raise ValueError(
                f"images must be tensors, (channel, height, width) each; got {found}. Make the "
                "dataset with image_as='tensor'"
            )
    return list(images)


def _scaled(pixels: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    """An image of an element type: from whole numbers to floating ones, to [0, 1]."""
    if dtype is None or pixels.dtype == dtype:
        return pixels
    if not dtype.is_floating_point or pixels.is_floating_point():
        return pixels.to(dtype)
    # float16 ends before the largest uint16.
    return (pixels.to(torch.float32) / torch.iinfo(pixels.dtype).max).to(dtype)


def _target(name: str, value: Any, first_label: int, device: torch.device) -> Any:
    if isinstance(value, Polygons):
        return torch.from_numpy(value.to_masks()).to(device)
    if not isinstance(value, torch.Tensor):
        return value
    if name == "labels":
        return value.to(torch.int64) + first_label
    if name == "keypoints" and value.shape[-1] == 2:
        is_marked = (value != 0).any(dim=-1, keepdim=True)
        return torch.cat([value, 2 * is_marked.to(value.dtype)], dim=-1)
    # torchvision's reference code computes with the flags.
    if value.dtype == torch.bool:
        return value.to(torch.int64)
    # Targets are kept for a metric, and a row would keep all of its field.
    if value.nbytes < value.untyped_storage().nbytes():
        return value.clone()
    return value


def _as_tv_tensors(
    images: list[torch.Tensor], targets: list[dict[str, Any]]
) -> tuple[list[torch.Tensor], list[dict[str, Any]]]:
    from torchvision import tv_tensors

    for pixels, target in zip(images, targets, strict=True):
        target["boxes"] = tv_tensors.BoundingBoxes(
            target["boxes"], format="XYXY", canvas_size=tuple(pixels.shape[-2:])
        )
        if "masks" in target:
            target["masks"] = tv_tensors.Mask(target["masks"])
    return [tv_tensors.Image(pixels) for pixels in images], targets


def pack_objects(batch: Batch) -> dict[str, Any]:
    """The batch with all its objects in one tensor a field, and whose they are.

    Args:
        batch: As a loader or `collate` gives it.

    Returns:
        The same fields; those of objects are one tensor, (all objects, ...), and `batch_index`
        (all objects,) int64 says which image of the batch each is on. Outlines and attributes stay
        lists, one entry an object.
    """
    packed = dict(batch)
    names = [name for name in batch if name in OBJECT_NAMES]
    for name in names:
        values = batch[name]
        if all(isinstance(value, torch.Tensor) for value in values) and len(values):
            packed[name] = torch.cat(list(values))
        else:
            packed[name] = [entry for value in values for entry in value]
    if names:
        counts = torch.tensor([len(value) for value in batch[names[0]]], dtype=torch.int64)
        packed["batch_index"] = torch.arange(len(counts)).repeat_interleave(counts)
    return packed


def pad_images(
    batch: Batch, *, image: str = "image", fill: int = 0, multiple_of: int = 1
) -> dict[str, Any]:
    """The batch with its images in one tensor, each in the top left corner.

    Boxes and points stay as they are, since the corner is where coordinates begin; masks of classes
    are padded with theirs.

    Args:
        batch: As a loader or `collate` gives it.
        image: Name of the field of images.
        fill: Value of the pixels beside an image.
        multiple_of: Height and width of the result are multiples of this.

    Returns:
        The same fields; the images are (sample, channel, height, width), and `sizes` (sample, 2)
        int64 are their own heights and widths.

    Raises:
        ValueError: Images differ in their channels or element types, or `multiple_of` is below 1.
    """
    if multiple_of < 1:
        raise ValueError(f"multiple_of must be at least 1; got {multiple_of!r}")
    images = list(batch[image])
    kinds = {(pixels.shape[0], pixels.dtype) for pixels in images}
    if len(kinds) > 1:
        raise ValueError(f"images must be of one kind to be padded; got {sorted(map(str, kinds))}")
    sizes = torch.tensor([pixels.shape[-2:] for pixels in images], dtype=torch.int64)
    sizes = sizes.reshape(len(images), 2)
    padded = dict(batch, sizes=sizes)
    if not images:
        return padded
    height, width = (-(-int(side) // multiple_of) * multiple_of for side in sizes.amax(dim=0))
    # Channels last in memory, as every image is: each is then copied row by row.
    rows = images[0].new_full((len(images), height, width, images[0].shape[0]), fill)
    result = rows.permute(0, 3, 1, 2)
    for place, pixels in zip(result, images, strict=True):
        place[:, : pixels.shape[1], : pixels.shape[2]] = pixels
    padded[image] = result
    mask = batch.get("mask")
    if isinstance(mask, (list, torch.Tensor)) and len(mask) == len(images):
        ids = mask[0].new_zeros((len(images), height, width))
        for place, one in zip(ids, mask, strict=True):
            place[: one.shape[0], : one.shape[1]] = one
        padded["mask"] = ids
    return padded
