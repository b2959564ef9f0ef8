"""Sources: each turns one layout of raw data into raw items. `scan_source` is the one entry."""

from __future__ import annotations

import difflib
import importlib
import os
from pathlib import Path

from packer.errors import SourceError
from packer.items.raw_item import Ignored, RawItem, Reject, Scan
from packer.sources.only_split import only_split
from packer.sources.only_task import check_task, only_task
from packer.sources.source import AUTO_FORMAT, Source, SourceOptions
from packer.sources.walk import PICTURE_TYPES
from packer.wording import readable_path

__all__ = [
    "SOURCES",
    "Ignored",
    "RawItem",
    "Reject",
    "Scan",
    "Source",
    "SourceOptions",
    "scan_source",
    "source_named",
]

_LISTS = {
    "csv": "packer.sources.lists.csv_list",
    "jsonl": "packer.sources.lists.jsonl_list",
    "parquet": "packer.sources.lists.parquet_list",
    "txt-list": "packer.sources.lists.txt_list",
}
_ARCHIVES = {
    "tar": "packer.sources.tar",
    "zip": "packer.sources.zip_archive",
    "hf": "packer.sources.hugging_face.scan",
    "idx": "packer.sources.idx",
    "cifar": "packer.sources.cifar",
}
SOURCES: dict[str, str] = {
    "imagefolder": "packer.sources.imagefolder",
    "flat": "packer.sources.flat",
    "coco": "packer.sources.coco",
    "voc": "packer.sources.voc",
    "yolo": "packer.sources.yolo",
    "mask-pairs": "packer.sources.masks.mask_pairs",
    **_LISTS,
    **_ARCHIVES,
    "cityscapes": "packer.sources.masks.cityscapes",
    "cvat": "packer.sources.cvat",
    "dota": "packer.sources.dota",
    "kitti": "packer.sources.kitti",
    "labelme": "packer.sources.labelme",
    "open-images": "packer.sources.lists.open_images",
    "wider": "packer.sources.wider",
}
"""Module of every layout that can be read, by the name that `--format` gives it.

Loaded when it is asked for: a build worker, which reads no raw tree, starts without any of them.
"""

_READ_A_FILE = frozenset((*_LISTS, *_ARCHIVES, "coco", "yolo"))
"""Those that take one file for the raw path: a list, an archive, a file of annotations."""

_TAKE_ROOT = frozenset((*_LISTS, "coco", "yolo", "hf"))
"""Those whose files name pictures by path, which may lie elsewhere."""


def source_named(name: str) -> Source:
    """The source of a name in `SOURCES`."""
    source: Source = importlib.import_module(SOURCES[name])
    return source


def scan_source(raw: Path, options: SourceOptions) -> Scan:
    """Find all raw items at a path, by the source that was asked for or that fits.

    The first note of the scan says which source it was and why.

    Raises:
        SourceError: There is nothing at the path, no picture in it, or no source that reads it.
        ValueError: `options.format` is no source's name.
    """
    from packer.sources.detection.detect import detect, nothing_found
    from packer.sources.detection.unread import stop_at_unread

    shown = readable_path(os.fsencode(raw))
    if options.format not in (AUTO_FORMAT, *SOURCES):
        close = difflib.get_close_matches(options.format, SOURCES, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(
            f"format must be one of {', '.join((AUTO_FORMAT, *sorted(SOURCES)))}; "
            f"got {options.format!r}{hint}"
        )
    try:
        os.stat(raw)
    except OSError as error:
        raise SourceError(
            f"{shown}: {error.strerror}; expected a folder of pictures ({PICTURE_TYPES}) "
            "or a file of annotations. Check the path."
        ) from error
    if options.root is not None and not options.root.is_dir():
        raise SourceError(
            f"root {readable_path(os.fsencode(options.root))}: there is no folder at this path; "
            "expected the folder of the pictures that a list or annotation file names."
        )
    detection = detect(raw, options)
    if detection.format not in _READ_A_FILE and not raw.is_dir():
        raise SourceError(
            f"{shown} is a file; format {detection.format!r} expects a folder of pictures. "
            "Give the folder that it lies in."
        )
    if detection.format not in _TAKE_ROOT and options.root is not None:
        raise SourceError(
            f"root {readable_path(os.fsencode(options.root))} was given, but the files of format "
            f"{detection.format!r} name no pictures by path. Leave it out; those that do are "
            f"{', '.join(sorted(_TAKE_ROOT))}."
        )
    check_task(detection.format, options.task, shown)
    scan = source_named(detection.format).scan(raw, options)
    if not scan.items and not scan.rejects:
        raise SourceError(nothing_found(raw))
    notes = stop_at_unread(raw, scan, options)
    if options.task is not None:
        scan = only_task(scan, options.task)
    if options.split is not None:
        scan = only_split(scan, options.split)
    scan.notes.insert(0, detection.line)
    scan.notes.extend(notes)
    scan.options.update(options.asked())
    return scan
