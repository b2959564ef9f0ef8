"""Everything that is evidence for any layout, collected before anything is decided."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

from packer.errors import SourceError
from packer.files.lmdb_file import is_lmdb_file
from packer.sources.detection import files, folders, lists, text_files
from packer.sources.detection.found import DECLARED, STRUCTURAL, TABULAR, UNREAD, Evidence
from packer.sources.detection.look import Look, look_at_file
from packer.sources.detection.unread import file_advice
from packer.sources.layouts import LAYOUTS, Finder
from packer.sources.lists import txt_list
from packer.sources.lists.csv_table import read_columns
from packer.sources.source import SourceOptions
from packer.sources.walk import PICTURE_TYPES, is_picture_name
from packer.wording import readable_path

FINDERS: dict[Finder, Callable[[Look], Iterator[Evidence]]] = {
    "declared": files.declared,
    "json_files": files.json_files,
    "xml_files": files.xml_files,
    "named_kinds": files.named_kinds,
    "texts": text_files.texts,
    "folder_names": folders.folder_names,
    "mask_folders": folders.mask_folders,
    "sidecars": folders.sidecars,
    "masks_beside": folders.masks_beside,
    "archives": files.archives,
    "parquet_lists": files.parquet_lists,
    "pictures": folders.pictures,
}
"""Each looks at one kind of thing; of two that are as sure of a layout, the first is heard."""

LIST_FINDERS: dict[Finder, Callable[[Look, SourceOptions], Iterator[Evidence]]] = {
    "csv_lists": lists.csv_lists,
    "jsonl_lists": lists.jsonl_lists,
    "txt_lists": lists.txt_lists,
}
"""Those that also look where the user says that pictures are."""


def collect_evidence(look: Look, options: SourceOptions) -> list[Evidence]:
    """All that speaks for any format, the strongest first, one entry a format.

    Raises:
        SourceError: A list cannot be read.
    """
    best: dict[str, Evidence] = {}
    everything = chain.from_iterable(find(look) for find in FINDERS.values())
    from_lists = chain.from_iterable(find(look, options) for find in LIST_FINDERS.values())
    for found in chain(everything, from_lists):
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
    found = next(_of_file(raw), None)
    if found is not None:
        if found.format in UNREAD or found.problem:
            return [found]
        layout = LAYOUTS[found.format]
        if layout.may_be_file and not raw.name.lower().endswith(layout.not_alone):
            return [found]
        problem = "one file is not enough. Give the folder that holds it and its pictures"
        return [replace(found, problem=problem)]
    shown = readable_path(os.fsencode(raw))
    expected = f"expected a folder of pictures ({PICTURE_TYPES}) or a file of annotations"
    if is_picture_name(os.fsencode(raw.name)):
        raise SourceError(f"{shown} is one picture; {expected}. Give the folder that it lies in.")
    # Not sent to its folder: a build of that would stop at the file.
    raise SourceError(f"{shown} is a file of no known kind; {expected}. {file_advice(raw)}")


def _of_file(raw: Path) -> Iterator[Evidence]:
    """What speaks for a layout in a file and its name."""
    look = look_at_file(raw)
    seen = f"the file {readable_path(os.fsencode(raw.name))} itself"
    extension = raw.suffix.lower()
    if extension in LAYOUTS["csv"].endings and lists.is_open_images(read_columns(raw).names):
        yield Evidence(format="open-images", score=STRUCTURAL, seen=seen)
    for kind in ("csv", "jsonl"):
        if extension in LAYOUTS[kind].endings:
            yield Evidence(format=kind, score=TABULAR, seen=seen)
    for find in (
        files.declared,
        files.json_files,
        files.xml_files,
        files.named_kinds,
        text_files.texts,
    ):
        yield from find(look)
    if extension in LAYOUTS["parquet"].endings:
        kind = "hf" if files.holds_images(raw) else "parquet"
        yield Evidence(format=kind, score=DECLARED, seen=seen)
    for found in files.archives(look):
        yield replace(found, seen=seen)
    if is_lmdb_file(raw):  # Whatever it is called: with subdir=False any name is as good.
        yield Evidence(format="lmdb", score=STRUCTURAL, seen=seen)
    if extension in LAYOUTS["txt-list"].endings and txt_list.is_list(raw):
        yield Evidence(format="txt-list", score=TABULAR, seen=seen)
