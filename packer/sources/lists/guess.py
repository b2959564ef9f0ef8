"""Lists whose columns have names of their own, as competitions write them: `id,breed`.

Which column names the pictures is told by its values: nearly all of them are names of pictures,
with or without extension, beside the list or in folders below it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from packer.sources.listing import is_folder
from packer.sources.lists.columns import Columns, columns_of
from packer.sources.lists.csv_table import read_columns, read_rows
from packer.sources.lists.named import named_columns
from packer.sources.lists.pictures import posix_form
from packer.sources.pairing import composed, stem_of
from packer.sources.source import SourceOptions
from packer.sources.splits import are_all_splits
from packer.sources.walk import is_picture_name, skip_reason
from packer.wording import readable_path
from readers.store.wording import few_text

_ROWS_SAMPLED = 50
_ROWS_MAX = 1_000_000
_FOLDERS_MAX = 200
_NAMED_SHARE_MIN = 0.9
_LABEL_SHARE_MAX = 0.5
"""A label is the same for two pictures or more on average; a date or an address is not."""


@dataclass(frozen=True, kw_only=True)
class Guess:
    """What the columns of a list mean by their values.

    Attributes:
        columns: With the names as they are written.
        folders: Where the pictures lie, relative to the folder of the list, which is not among
            them.
        note: What was taken for what.
    """

    columns: Columns
    folders: tuple[bytes, ...]
    note: str


def guess_columns(list_path: Path, options: SourceOptions) -> Guess | None:
    """What a list says whose header names no column of paths; None where that is not clear.

    Args:
        list_path: The list.
        options: Which may name its columns. Then it is only to be found where the pictures lie.

    Raises:
        SourceError: It cannot be read.
    """
    columns = named_columns(read_columns(list_path), options)
    is_named = options.path_column in columns.names
    if (columns.path is not None and not is_named) or len(columns.names) < 2:
        return None
    rows = [row for _, row in islice(read_rows(list_path, columns.delimiter), _ROWS_SAMPLED)]
    rows = [row for row in rows if len(row) == len(columns.names)]
    if not rows:
        return None
    places = _picture_places(os.fsencode(list_path.parent))
    if not is_named and any(_word(name) in places for name in columns.names):
        return None  # The first line is a picture as well: there is no header.
    naming = [
        n
        for n in range(len(columns.names))
        if (not is_named or n == columns.path)
        and sum(bool(places.get(_word(row[n]))) for row in rows) >= _NAMED_SHARE_MIN * len(rows)
    ]
    if len(naming) != 1:
        return None
    path = naming[0]
    found: set[bytes] = set()
    for _, row in islice(read_rows(list_path, columns.delimiter), _ROWS_MAX):
        folders = places.get(_word(row[path])) if path < len(row) else None
        if folders is not None and len(folders) > 1:
            return None  # It is not known which of them is meant.
        found.update(folders or ())
    tops = {folder.split(b"/")[0] for folder in found}
    if len(tops) > 1 and are_all_splits(tops):
        return None  # Which picture is of which split would be lost.
    names = [*columns.names]
    names[path] = "path"
    label = None
    understood = columns
    if not is_named:
        understood = named_columns(columns_of(names, columns.delimiter), options)
    if not understood.says_something:
        label = _label_column(rows, path)
        if label is None and not is_named:
            return None
    if label is not None:
        split = None if understood.split == label else understood.split
        understood = replace(understood, label=label, split=split)
    if understood.label is not None and _are_number_lists([row[understood.label] for row in rows]):
        return None  # Several labels in a cell.
    note = f"column {columns.names[path]!r} names the pictures"
    if label is not None:
        note += f", and {columns.names[label]!r}, the only other one, is taken for the label"
    if found - {b""}:
        note += f"; they lie in {few_text(sorted(found - {b''}), 5, readable_path)}"
    return Guess(
        columns=replace(understood, names=columns.names),
        folders=tuple(sorted(found - {b""})),
        note=note,
    )


def _picture_places(root: bytes) -> dict[bytes, set[bytes]]:
    """Folders in which each name is that of a picture, with extension and without."""
    places: dict[bytes, set[bytes]] = {}
    pending = [b""]
    for count, folder in enumerate(pending):  # Which grows.
        if count == _FOLDERS_MAX:
            break
        try:
            with os.scandir(os.path.join(root, folder)) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            if skip_reason(entry.name) is not None:
                continue
            if is_picture_name(entry.name):
                name = composed(entry.name)
                for written in (name, stem_of(name)):
                    places.setdefault(written, set()).add(folder)
            elif is_folder(entry):
                pending.append(folder + b"/" + entry.name if folder else entry.name)
    return places


def _word(cell: str) -> bytes:
    """A cell as names are written; a path is none, since it says itself where its picture lies."""
    return composed(posix_form(cell.strip()).encode("utf-8", "surrogateescape"))


def _label_column(rows: Sequence[Sequence[str]], path: int) -> int | None:
    """The only other column, where its values may be labels."""
    others = [n for n in range(len(rows[0])) if n != path]
    if len(others) != 1:
        return None
    values = [row[others[0]].strip() for row in rows]
    are_few = len(set(values)) <= max(3, _LABEL_SHARE_MAX * len(values))
    are_measures = any(re.fullmatch(r"[-+]?\d*\.\d+([eE][-+]?\d+)?", value) for value in values)
    return others[0] if all(values) and are_few and not are_measures else None


def _are_number_lists(values: Sequence[str]) -> bool:
    return any(re.fullmatch(r"\d+([\s|;,]+\d+)+", value.strip()) for value in values)
