"""Everything that speaks for any layout, collected before anything is decided."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

from packer.errors import SourceError
from packer.sources.detection import files, folders
from packer.sources.detection.found import DECLARED, TABULAR, Evidence
from packer.sources.detection.lists import csv_lists
from packer.sources.detection.look import Listing, Look
from packer.sources.lists import csv_list, jsonl_list, parquet_list
from packer.sources.source import SourceOptions
from packer.sources.walk import PICTURE_TYPES, is_picture_name, readable_path

_FINDERS: tuple[Callable[[Look], Iterator[Evidence]], ...] = (
    files.declared,
    files.json_files,
    files.xml_files,
    folders.folder_names,
    folders.mask_folders,
    folders.sidecars,
    files.archives,
    files.parquet_lists,
    files.texts,
    folders.pictures,
)
"""Each looks at one kind of thing."""

_LIST_EXTENSIONS = {
    **dict.fromkeys(csv_list.LIST_EXTENSIONS, "csv"),
    **dict.fromkeys(jsonl_list.LIST_EXTENSIONS, "jsonl"),
}


def collect_evidence(look: Look, options: SourceOptions) -> list[Evidence]:
    """All that speaks for any format, the strongest first, one entry a format.

    Raises:
        SourceError: A list cannot be read.
    """
    best: dict[str, Evidence] = {}
    everything = chain.from_iterable(find(look) for find in _FINDERS)
    for found in chain(everything, csv_lists(look, options)):
        known = best.get(found.format)
        # What is wrong with a format's own file counts, however else the format was seen.
        if known is None or (found.score, found.problem) > (known.score, known.problem):
            best[found.format] = found
    return sorted(best.values(), key=lambda found: (-found.score, found.format))


def file_evidence(raw: Path) -> list[Evidence]:
    """What a raw path that is a file may be.

    Raises:
        SourceError: It is nothing that holds pictures or names them.
    """
    list_format = _LIST_EXTENSIONS.get(raw.suffix.lower())
    if list_format is not None:
        return [Evidence(format=list_format, score=TABULAR, seen=f"the file {raw.name} itself")]
    look = Look(os.fsencode(raw.parent), [Listing(b"", files=[os.fsencode(raw.name)])])
    for find in (files.declared, files.json_files, files.xml_files, files.archives, files.texts):
        for found in find(look):
            return [found]
    if raw.suffix.lower() in parquet_list.LIST_EXTENSIONS:
        return [Evidence(format="parquet", score=DECLARED, seen=f"the file {raw.name} itself")]
    kind = "one picture" if is_picture_name(os.fsencode(raw.name)) else "a file of no known kind"
    raise SourceError(
        f"{readable_path(os.fsencode(raw))} is {kind}; expected a folder of pictures "
        f"({PICTURE_TYPES}) or a file of annotations. Give the folder that it lies in."
    )
