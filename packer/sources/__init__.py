"""Sources: each turns one layout of raw data into raw items. `scan_source` is the one entry."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

from packer.errors import SourceError
from packer.items.raw_item import Ignored, RawItem, Reject, Scan
from packer.sources.layouts import LAYOUTS
from packer.sources.only_split import only_split
from packer.sources.only_task import check_task, only_task
from packer.sources.settings import check_taken, check_used
from packer.sources.source import AUTO_FORMAT, Source, SourceOptions
from packer.sources.walk import PICTURE_TYPES
from packer.wording import readable_path
from readers.store.layout import MANIFEST_NAME
from readers.store.wording import did_you_mean

__all__ = [
    "LAYOUTS",
    "Ignored",
    "RawItem",
    "Reject",
    "Scan",
    "Source",
    "SourceOptions",
    "scan_source",
    "source_named",
]


def source_named(name: str) -> Source:
    """The source of a name in `LAYOUTS`, loaded now."""
    source: Source = importlib.import_module(LAYOUTS[name].module)
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
    if options.format not in (AUTO_FORMAT, *LAYOUTS):
        raise ValueError(
            f"format must be one of {', '.join((AUTO_FORMAT, *sorted(LAYOUTS)))}; "
            f"got {options.format!r}.{did_you_mean(options.format, LAYOUTS)}"
        )
    try:
        os.stat(raw)
    except OSError as error:
        raise SourceError(
            f"{shown}: {error.strerror}; expected a folder of pictures ({PICTURE_TYPES}) "
            "or a file of annotations. Check the path."
        ) from None
    if (raw / MANIFEST_NAME).is_file() and any(raw.glob("shard-*.lmdb")):
        raise SourceError(
            f"{shown}: this is a store, which a build makes, and not raw data. Are RAW and OUT "
            "swapped? `packer merge` and `packer subset` make stores of stores."
        )
    if options.root is not None and not options.root.is_dir():
        raise SourceError(
            f"root {readable_path(os.fsencode(options.root))}: there is no folder at this path; "
            "expected the folder of the pictures that a list or annotation file names."
        )
    detection = detect(raw, options)
    layout = LAYOUTS[detection.format]
    if not layout.may_be_file and not raw.is_dir():
        raise SourceError(
            f"{shown} is a file; format {detection.format!r} expects a folder of pictures. "
            "Give the folder that it lies in."
        )
    check_taken(detection.format, options, shown)
    check_task(detection.format, options.task, shown)
    scan = source_named(detection.format).scan(raw, options)
    if not scan.items and not scan.rejects:
        raise SourceError(nothing_found(raw))
    notes = stop_at_unread(raw, scan, options)
    check_used(scan, options, shown)
    if options.task is not None:
        scan = only_task(scan, options.task)
    if options.split is not None:
        scan = only_split(scan, options.split)
    scan.notes.insert(0, detection.line)
    scan.notes.extend(notes)
    scan.options.update(options.asked())
    return scan
