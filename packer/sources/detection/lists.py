"""What CSV and TSV files say about the layout."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from packer.errors import SourceError
from packer.sources.detection.found import (
    FILES_MAX,
    NAMES_MAX,
    STRUCTURAL,
    TABULAR,
    Evidence,
)
from packer.sources.detection.look import Look, shown_names
from packer.sources.lists import csv_list
from packer.sources.lists.columns import Columns
from packer.sources.lists.csv_table import csv_table
from packer.sources.lists.files import find_lists
from packer.sources.lists.open_images import BOX_COLUMNS
from packer.sources.source import SourceOptions
from packer.sources.walk import readable_path

_PIXEL_COLUMNS_LEAST = 100


def csv_lists(look: Look, options: SourceOptions) -> Iterator[Evidence]:
    """Lists that say something about pictures, and tables of other kinds.

    Raises:
        SourceError: A list cannot be read.
    """
    readable: list[tuple[bytes, Path, Columns]] = []
    for path in look.files(*(e.encode() for e in csv_list.LIST_EXTENSIONS))[:FILES_MAX]:
        list_path = Path(os.fsdecode(os.path.join(look.root, path)))
        columns = csv_list.read_columns(list_path)
        seen = f"{readable_path(path)}: columns {', '.join(map(repr, columns.names[:8]))}"
        lower = {column.lower() for column in columns.names}
        if {column.lower() for column in BOX_COLUMNS} <= lower:
            yield Evidence(format="open-images", score=STRUCTURAL, seen=seen)
        elif columns.path is None:
            if not look.has_pictures and len(columns.names) > _PIXEL_COLUMNS_LEAST:
                seen = f"{readable_path(path)} has {len(columns.names)} columns, and no pictures"
                yield Evidence(format="csv-pixels", score=STRUCTURAL, seen=seen)
        elif columns.says_something or _has_flags(list_path, columns):
            readable.append((path, list_path, columns))
        elif {"imageid", "labelname"} <= lower:
            # Image-level labels of Open Images lie beside the boxes.
            continue
        else:
            yield Evidence(format="csv-other", score=TABULAR, seen=seen)
    if len(readable) == 1:
        yield _one_list(*readable[0], look, options)
    elif readable:
        yield _several_lists([path for path, _, _ in readable], look)


def _has_flags(list_path: Path, columns: Columns) -> bool:
    """Whether at least two columns of the first row are 0 or 1: a class each."""
    first = next(csv_list.read_rows(list_path, columns.delimiter), (0, []))[1]
    return sum(value.strip() in ("0", "1", "-1") for value in first) >= 2


def _several_lists(paths: list[bytes], look: Look) -> Evidence:
    """Lists of one split each are read together; others are not chosen from."""
    seen = f"lists {shown_names(paths)}"
    try:
        raw = Path(os.fsdecode(look.root))
        find_lists(raw, csv_list.LIST_EXTENSIONS, csv_table, ".csv or .tsv file")
    except SourceError:
        problem = "it is not clear which is meant. Give the path of the list itself instead"
        return Evidence(format="csv", score=TABULAR, seen=seen, problem=problem)
    return Evidence(format="csv", score=TABULAR, seen=f"{seen}, one for each split")


def _one_list(
    path: bytes, list_path: Path, columns: Columns, look: Look, options: SourceOptions
) -> Evidence:
    """The one list, and whether the pictures it names are there."""
    assert columns.path is not None
    meanings = (columns.path, columns.label, columns.labels, columns.mask, columns.caption)
    taken = [columns.names[p] for p in meanings if p is not None]
    taken += [name for name in columns.boxes if name not in taken]
    seen = f"{readable_path(path)}: columns {' and '.join(map(repr, taken))}"
    names = [
        row[columns.path]
        for _, row in islice(csv_list.read_rows(list_path, columns.delimiter), FILES_MAX)
        if len(row) > columns.path
    ]
    bases = csv_list.picture_folders(list_path, options)
    there = sum(csv_list.is_there(name, bases) for name in names)
    seen += f", {there} of {len(names)} sampled paths are there"
    if there or not names:
        return Evidence(format="csv", score=TABULAR, seen=seen)
    looked = " and ".join(map(readable_path, bases))
    problem = f"no picture such as {names[0]!r} lies in {looked}"
    for folder in look.listings[0].folders[:NAMES_MAX]:
        base = os.path.join(look.root, folder)
        if csv_list.is_there(names[0], [base]):
            problem += f". It lies in {readable_path(folder)}/: give --root {readable_path(base)}"
            break
    else:
        problem += ". Give the folder of the pictures as --root"
    return Evidence(format="csv", score=TABULAR, seen=seen, problem=problem)
