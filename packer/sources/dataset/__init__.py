"""Any map-style torch Dataset, given from Python: `packer.build(dataset, out)`.

Images are taken from their files where the dataset says which these are, so that nothing is decoded
and encoded again; what it makes in Python is written to a folder for the time of the build, as PNG,
which loses nothing. torch and torchvision are not imported: their objects are known by what they
have.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from packer.errors import SourceError
from packer.items.findings import Findings
from packer.items.raw_item import RawFile, RawItem, Scan, only_size
from packer.sources.dataset.images import (
    NotAnImageError,
    is_mask,
    pixels_of,
    spool_mask,
    spool_pixels,
)
from packer.sources.dataset.targets import TargetError, Targets
from packer.sources.only_task import check_task, only_task
from packer.sources.settings import check_taken, check_used
from packer.sources.source import SourceOptions
from packer.wording import count_text, readable_path

name = "dataset"


class Row(NamedTuple):
    """One sample of a dataset, before anything is decoded.

    Attributes:
        position: In the dataset that holds it.
        path: File of the image, or None when the dataset makes it.
        image: What the dataset makes; None when there is a path.
        target: What belongs to it, as the dataset has it.
    """

    position: int
    path: Path | None
    image: Any
    target: Any


NO_TARGET = object()


def is_dataset(raw: object) -> bool:
    """Whether an object is a map-style dataset rather than a path."""
    return hasattr(raw, "__getitem__") and hasattr(raw, "__len__") and not isinstance(raw, str)


def scan_dataset(dataset: Any, spool: Path, options: SourceOptions) -> Scan:
    """The samples of a dataset, in its order.

    Args:
        dataset: Map-style: with `len` and integer positions. A sample is an image, a pair of an
            image and a target, or a dict with "image". An image is a file's path, a Pillow image, a
            (height, width) or (height, width, channel) array, or a (channel, height, width)
            tensor, of uint8 or uint16. A target is a class number or name, a mask, a dict of boxes
            and labels, or what torchvision's detection datasets give.
        spool: Empty folder for images that have no file.
        options: `classes` names the labels.

    Raises:
        SourceError: It has no samples, their form is not known, or they have nothing for
            `options.task`.
    """
    shown = type(dataset).__name__
    check_taken(name, options, shown)
    check_task(name, options.task, shown)
    if options.split is not None:
        raise SourceError(
            f"split {options.split!r} was asked for, but a {type(dataset).__name__} has no splits "
            "by name. Build from the dataset of that split, or give shares with splits."
        )
    whole, positions = _unwrapped(dataset)
    findings = Findings()
    kept: list[_Kept] = []
    # One pass: of what the dataset makes, nothing but a file stays.
    for row in _rows(whole, positions):
        try:
            kept.append(_keep(row, spool))
        except (NotAnImageError, OSError) as error:
            place = f"{type(whole).__name__}[{row.position}]"
            findings.refuse(b"%d" % row.position, str(error), place)
    if not kept and not findings.rejects:
        raise SourceError(f"{type(dataset).__name__}: the dataset is empty; expected samples.")
    given = [one.target for one in kept if one.target is not NO_TARGET]
    targets = Targets(whole, given, options, findings)
    root = _root_of(whole, [one.path for one in kept if one.path is not None])
    first: dict[bytes, int] = {}
    for one in kept:
        place = f"{type(whole).__name__}[{one.position}]"
        key = b"%09d" % one.position
        path = one.file.path
        if one.path is not None:
            key = path = os.fsencode(os.path.relpath(one.path, root))
        try:
            values, annotations, masks = targets.of(one.target, one.position)
            if key in first:
                raise TargetError(f"the same image as sample {first[key]}: {readable_path(key)}")
        except TargetError as error:
            findings.refuse(key, str(error), place)
            continue
        first[key] = one.position
        file = one.file
        findings.items.append(
            RawItem(key, path, file.byte_count, file.mtime_ns, values, annotations, masks)
        )
    spooled_count = sum(one.path is None for one in kept)
    count = count_text(len(kept) + len(findings.rejects), "sample")
    findings.notes.insert(
        0,
        f"format: {name} ({type(whole).__name__} of {count}; "
        f"{len(kept) - spooled_count:,} images by their files, {spooled_count:,} as the dataset "
        "makes them)",
    )
    findings.notes += targets.turned_notes()
    if len(kept) > spooled_count and getattr(whole, "transform", None) is not None:
        findings.notes.append(
            "images are taken from their files: the dataset's transform is not applied"
        )
    scan = findings.as_scan(
        name,
        root,
        classes=targets.classes,
        fields=targets.fields,
        image_size=only_size(one.size for one in kept),
    )
    check_used(scan, options, shown)
    return scan if options.task is None else only_task(scan, options.task)


def _unwrapped(dataset: Any) -> tuple[Any, list[int]]:
    """The dataset behind Subsets, and which of its samples are meant."""
    positions = list(range(len(dataset)))
    while hasattr(dataset, "dataset") and hasattr(dataset, "indices"):
        positions = [int(dataset.indices[position]) for position in positions]
        dataset = dataset.dataset
    return dataset, positions


def _rows(dataset: Any, positions: list[int]) -> Iterator[Row]:
    """All samples; by their files where the dataset says which these are."""
    samples: Any = getattr(dataset, "samples", None)
    if _are_pairs(samples, len(dataset)):
        for position in positions:
            path, target = samples[position]
            yield Row(position, Path(os.fspath(path)), None, target)
    elif hasattr(dataset, "coco") and hasattr(dataset, "ids"):
        for position in positions:
            image_id = dataset.ids[position]
            path = Path(dataset.root) / dataset.coco.imgs[image_id]["file_name"]
            yield Row(position, path, None, list(dataset.coco.imgToAnns.get(image_id, [])))
    else:
        for position in positions:
            yield _made_row(dataset, position)


def _are_pairs(samples: Any, count: int) -> bool:
    """Whether these are the (path, class number) pairs of an ImageFolder."""
    if not isinstance(samples, (list, tuple)) or not 0 < count == len(samples):
        return False
    first = samples[0]
    return isinstance(first, tuple) and len(first) == 2 and isinstance(first[0], (str, Path))


def _made_row(dataset: Any, position: int) -> Row:
    sample = dataset[position]
    target: Any = NO_TARGET
    if isinstance(sample, dict):
        if "image" not in sample:
            raise SourceError(
                f"{type(dataset).__name__}[{position}]: a dict of {sorted(map(str, sample))}; "
                "expected 'image' among them."
            )
        rest = {key: value for key, value in sample.items() if key != "image"}
        image = sample["image"]
        target = rest.get("label", rest.get("target", rest or NO_TARGET))
    elif isinstance(sample, (tuple, list)):
        if len(sample) not in (1, 2):
            raise SourceError(
                f"{type(dataset).__name__}[{position}]: {len(sample)} values; expected an image "
                "and a target. Wrap the dataset in one that gives these two."
            )
        image = sample[0]
        target = sample[1] if len(sample) == 2 else NO_TARGET
    else:
        image = sample
    if isinstance(image, (str, Path)):
        return Row(position, Path(image), None, target)
    return Row(position, None, image, target)


def _root_of(dataset: Any, absolute: list[str]) -> Path:
    """Folder that keys are relative to: the dataset's own, or the one that holds all files."""
    if not absolute:
        return Path(os.path.abspath("."))
    root = getattr(dataset, "root", None)
    if isinstance(root, (str, Path)):
        base = os.path.abspath(root)
        if all(path.startswith(base + os.sep) for path in absolute):
            return Path(base)
    if len({os.path.dirname(path) for path in absolute}) == 1:
        return Path(os.path.dirname(absolute[0]))
    return Path(os.path.commonpath([os.path.dirname(path) for path in absolute]))


class _Kept(NamedTuple):
    """A sample whose image is a file.

    Attributes:
        position: In the dataset that holds it.
        path: Absolute path of its own file, or None when the image was written for the build.
        file: The file, by its absolute path.
        target: As the dataset has it; the file of a mask.
        size: (height, width) of the image, where the dataset made it.
    """

    position: int
    path: str | None
    file: RawFile
    target: Any
    size: tuple[int, int] | None = None


def _keep(row: Row, spool: Path) -> _Kept:
    """Write down what is only in memory."""
    target = row.target
    if target is not NO_TARGET and is_mask(target):
        target = spool_mask(target, spool / f"{row.position:09d}-mask.png")
    if row.path is None:
        pixels = pixels_of(row.image)
        file = spool_pixels(pixels, spool / f"{row.position:09d}.png")
        return _Kept(row.position, None, file, target, (pixels.shape[0], pixels.shape[1]))
    path = os.path.abspath(row.path)
    status = os.stat(path)
    file = RawFile(os.fsencode(path), status.st_size, status.st_mtime_ns)
    return _Kept(row.position, path, file, target)
