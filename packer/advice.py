"""Lines of Python that read a store as it is: its splits, its sizes, and what it has to learn from.

They are printed to be copied, so they run as they stand, with the store that they were made for.
"""

from __future__ import annotations

from typing import Any

from packer.wording import count_text
from readers.store.manifest import Manifest
from readers.store.splits import canonical_split

_BATCH_SIZE = 64
_CROP_SIDE = 224
_LETTERBOX_SIDE = 640

_TARGETS = (("label",), ("boxes", "labels"), ("labels",), ("caption",), ("captions",))
"""What training takes beside the image, where it is not a mask: the first of which it has all."""

_SIZE_STATISTIC = "image_size"


def python_lines(path: str, manifest: Manifest) -> list[str]:
    """What a user types to train from a store.

    Args:
        path: The store.
        manifest: Its manifest, of at least one sample.
    """
    names = manifest.schema.names
    split, count = _training_split(manifest)
    is_training = split is None or canonical_split(split) == "train"
    given = [] if split is None else [f"split={split!r}"]
    is_detection = {"boxes", "labels"} <= set(names)
    targets = _targets(manifest)
    if targets and not is_detection:
        given.append(f"returns={('image', *targets)!r}")
    settings = [f"batch_size={min(_BATCH_SIZE, count)}", f"train={is_training}"]
    imported = ["LMDBDataset", "make_loader"]
    if is_detection:
        imported.insert(1, "detection_targets")
    elif sizes_text(manifest) and _has_one_kind(manifest):
        imported.append("ops")
        settings.append(f"ops=[{_operation(manifest, is_training=is_training)}]")
    lines = [
        f"from readers import {', '.join(imported)}",
        f"dataset = LMDBDataset({', '.join([repr(path), *given])})",
        f"loader = make_loader(dataset, {', '.join(settings)})",
    ]
    if is_detection:
        lines += [
            "for batch in loader:",
            "    # Of Faster and Mask R-CNN; first_label=0 for RetinaNet, FCOS, DETR and YOLO.",
            "    images, targets = detection_targets(batch, first_label=1)",
        ]
    elif targets:
        lines.append(f"for {', '.join(('images', *map(_plural, targets)))} in loader: ...")
    else:
        lines.append('for batch in loader: images = batch["image"]')
    return lines


def sizes_text(manifest: Manifest) -> str:
    """That images differ in size and what to do about it; empty where all have one.

    Of a store whose manifest does not tell, which older releases made, it says that they may.
    """
    shape = manifest.schema["image"].shape or ()
    if None not in shape[:2] or _SIZE_STATISTIC in manifest.statistics:
        return ""
    # What older stores tell of sizes proves a difference, and never that there is none.
    sizes = manifest.statistics.get("sizes")
    ranges = _numbers(sizes.get("stored")) if isinstance(sizes, dict) else []
    differ = "differ" if sum(bool(count) for count in ranges) > 1 else "may differ"
    if not _has_one_kind(manifest):
        return (
            f"images {differ} in size and in channels, so that a batch of them is a list; --size "
            "with --fit crop and --mode rgb make them alike as they are built"
        )
    resized = (
        f"--size {_LETTERBOX_SIDE} --fit letterbox"
        if _has_boxes(manifest)
        else f"--size {_CROP_SIDE} --fit crop"
    )
    return (
        f"images {differ} in size, so that a batch of them is a list: for one tensor, give "
        f"ops=[{_operation(manifest, is_training=True)}] to make_loader, or build with {resized}"
    )


def gray_text(manifest: Manifest) -> str:
    """That gray pictures are stored in colour, where the statistics prove that all are gray."""
    means = _numbers(manifest.statistics.get("channel_mean"))
    deviations = _numbers(manifest.statistics.get("channel_std"))
    if len(means) != 3 or len({*means}) > 1 or len({*deviations}) > 1:
        return ""
    return (
        f"{count_text(manifest.sample_count, 'image')} stored in three channels, which are alike: "
        "--mode gray takes a third of the room"
    )


def _numbers(values: Any) -> list[float]:
    """A list of numbers, or none where it is another thing: a manifest may be a stranger's."""
    is_sound = isinstance(values, list) and all(isinstance(one, int | float) for one in values)
    return values if is_sound else []


def _training_split(manifest: Manifest) -> tuple[str | None, int]:
    """The split to train from, and how many samples it has; None where there are no splits."""
    filled = {name: count for name, count in manifest.splits.items() if count}
    if not filled:
        return None, manifest.sample_count
    training = [name for name in filled if canonical_split(name) == "train"]
    best = max(training or filled, key=filled.__getitem__)
    return best, filled[best]


def _targets(manifest: Manifest) -> tuple[str, ...]:
    names = manifest.schema.names
    masks = tuple(field.name for field in manifest.schema.fields if field.kind == "mask")
    if masks:
        return masks
    return next((wanted for wanted in _TARGETS if set(wanted) <= set(names)), ())


def _operation(manifest: Manifest, *, is_training: bool) -> str:
    if _has_boxes(manifest):
        return f"ops.Letterbox({_LETTERBOX_SIDE})"
    if is_training:
        return f"ops.RandomResizedCrop({_CROP_SIDE})"
    return f"ops.Resize({_CROP_SIDE}), ops.CenterCrop({_CROP_SIDE})"


def _has_boxes(manifest: Manifest) -> bool:
    return "boxes" in manifest.schema.names


def _has_one_kind(manifest: Manifest) -> bool:
    """Whether all images have as many channels, and one element type."""
    image = manifest.schema["image"]
    return None not in (image.shape or ())[2:] and image.dtype is not None


def _plural(name: str) -> str:
    return name if name.endswith("s") else f"{name}s"
