"""Sources: each turns one layout of raw data into raw items. `scan_source` is the one entry."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

from packer.errors import SourceError
from packer.sources import flat, imagefolder
from packer.sources.detection.detect import Detection, detect, nothing_found
from packer.sources.items import Ignored, RawItem, Reject, Scan
from packer.sources.lists import csv_list
from packer.sources.only_split import only_split
from packer.sources.source import AUTO_FORMAT, Source, SourceOptions
from packer.sources.walk import PICTURE_TYPES, readable_path

__all__ = [
    "SOURCES",
    "Detection",
    "Ignored",
    "RawItem",
    "Reject",
    "Scan",
    "Source",
    "SourceOptions",
    "detect",
    "scan_source",
]

_ALL: tuple[Source, ...] = (csv_list, flat, imagefolder)
SOURCES: dict[str, Source] = {source.name: source for source in _ALL}
"""Every layout that can be read, by the name that `--format` gives it."""


def scan_source(raw: Path, options: SourceOptions) -> Scan:
    """Find all raw items at a path, by the source that was asked for or that fits.

    The first note of the scan says which source it was and why.

    Raises:
        SourceError: There is nothing at the path, no picture in it, or no source that reads it.
        ValueError: `options.format` is no source's name.
    """
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
            "or a .csv or .tsv list. Check the path."
        ) from error
    if options.root is not None and not options.root.is_dir():
        raise SourceError(
            f"root {readable_path(os.fsencode(options.root))}: there is no folder at this path; "
            "expected the folder of the pictures that the list names."
        )
    detection = detect(raw, options)
    if detection.format != csv_list.name:
        if not raw.is_dir():
            raise SourceError(
                f"{shown} is a file; format {detection.format!r} expects a folder of pictures. "
                "Give the folder that it lies in."
            )
        if options.root is not None:
            raise SourceError(
                f"root {readable_path(os.fsencode(options.root))} was given, but format "
                f"{detection.format!r} reads no list. Leave it out, or give --format csv."
            )
    scan = SOURCES[detection.format].scan(raw, options)
    if not scan.items and not scan.rejects:
        raise SourceError(nothing_found(raw))
    if options.split is not None:
        scan = only_split(scan, options.split)
    scan.notes.insert(0, detection.line)
    return scan
