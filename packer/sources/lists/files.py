"""Which files of a raw folder are the lists, and which split each is of."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from packer.errors import SourceError
from packer.sources.lists.flags import flag_columns
from packer.sources.lists.table import Table
from packer.sources.only_split import is_other_split
from packer.sources.walk import skip_reason, unreadable_folder
from packer.wording import readable_path
from readers.store.splits import canonical_split


class ListFile(NamedTuple):
    """A list.

    Attributes:
        table: Its rows.
        folder: Where it lies, relative to the raw folder.
        split: Split that its folder or name tells; None where there is one list.
    """

    table: Table
    folder: bytes
    split: str | None

    @property
    def shown(self) -> str:
        """Its path relative to the raw folder, as a person would write it."""
        return readable_path(os.path.join(self.folder, os.fsencode(self.table.path.name)))


def find_lists(
    raw: Path,
    extensions: tuple[str, ...],
    read: Callable[[Path], Table],
    expected: str,
    is_list: Callable[[Path], bool] = lambda path: True,
    wanted: str | None = None,
) -> list[ListFile]:
    """The list that `raw` is, or that lies in it, or one for each split.

    Lists of splits lie in folders named like splits (`train/_classes.csv`), or have a word in their
    name that is a split of its own each (`train.csv`, `val.csv`; `test-export.csv`).

    Args:
        raw: The list or the raw folder.
        extensions: Of lists, in lower case, with the dot.
        read: Makes a table of a file.
        expected: What is looked for, for a message.
        is_list: Whether a file of these extensions may be a list.
        wanted: The one split that is read: lists of others that cannot be read are left out. None
            reads all.

    Raises:
        SourceError: There is none, or more than one and they are not of different splits.
    """
    if raw.is_file():
        return [ListFile(read(raw), b"", None)]
    paths = [path for path in list_files(raw, extensions) if is_list(path)]
    if paths:
        return _lists_of_one_folder(raw, paths, read, expected, wanted)
    lists = []
    for folder in _split_folders(raw):
        inside = [path for path in list_files(folder, extensions) if is_list(path)]
        if inside:
            try:
                found = _one_list(folder, inside, read, expected)
            except SourceError:
                if is_other_split(folder.name, wanted):
                    continue
                raise
            lists.append(ListFile(found, os.fsencode(folder.name), folder.name))
    if not lists:
        raise SourceError(_not_one(raw, [], expected))
    return lists


def list_files(folder: Path, extensions: tuple[str, ...]) -> list[Path]:
    """The files of these extensions that lie directly in a folder, sorted by name.

    Raises:
        SourceError: The folder cannot be listed.
    """
    try:
        entries = list(folder.iterdir())
    except OSError as error:
        raise unreadable_folder(folder, error) from error
    return sorted(
        (
            path
            for path in entries
            if path.suffix.lower() in extensions
            and skip_reason(os.fsencode(path.name)) is None
            and path.is_file()
        ),
        key=lambda path: os.fsencode(path.name),
    )


def split_in_name(path: Path) -> str | None:
    """The one word in a file's name that is the name of a split, or None."""
    words = [word for word in re.split(r"[^A-Za-z0-9]+", path.stem) if word]
    found = [word for word in words if canonical_split(word) is not None]
    return found[0] if len(found) == 1 else None


def _lists_of_one_folder(
    raw: Path, paths: list[Path], read: Callable[[Path], Table], expected: str, wanted: str | None
) -> list[ListFile]:
    if len(paths) == 1:
        return [_lone_list(read(paths[0]), wanted)]
    found = []
    for path in paths:
        try:
            found.append(read(path))
        except SourceError:
            if not is_other_split(split_in_name(path), wanted):
                raise
    if len(found) == 1 and not is_other_split(split_in_name(found[0].path), wanted):
        # Its split is what tells it from those that cannot be read.
        return [ListFile(found[0], b"", split_in_name(found[0].path))]
    tables = _readable(found)
    splits = [split_in_name(table.path) for table in tables]
    if len(tables) > 1 and None not in splits and len(set(splits)) == len(splits):
        return [ListFile(t, b"", split) for t, split in zip(tables, splits, strict=True)]
    if len(tables) != 1:
        raise SourceError(_not_one(raw, [table.path for table in tables], expected))
    return [_lone_list(tables[0], wanted)]


def _lone_list(table: Table, wanted: str | None) -> ListFile:
    """The only list. Its name tells a split only where that split is asked for."""
    split = split_in_name(table.path) if wanted is not None else None
    return ListFile(table, b"", None if is_other_split(split, wanted) else split)


def _one_list(
    folder: Path, paths: list[Path], read: Callable[[Path], Table], expected: str
) -> Table:
    tables = [read(path) for path in paths]
    tables = _readable(tables) if len(tables) > 1 else tables
    if len(tables) != 1:
        raise SourceError(_not_one(folder, [table.path for table in tables], expected))
    return tables[0]


def _readable(tables: Sequence[Table]) -> list[Table]:
    """Those that name pictures: a file of another kind does not make the list ambiguous."""
    readable = [t for t in tables if t.columns.path is not None and len(t.columns.names) > 1]
    telling = [t for t in readable if t.columns.says_something or flag_columns(t)]
    return telling or readable or list(tables)


def _split_folders(raw: Path) -> list[Path]:
    return sorted(
        (
            path
            for path in raw.iterdir()
            if skip_reason(os.fsencode(path.name)) is None
            and canonical_split(path.name) is not None
            and path.is_dir()
        ),
        key=lambda path: os.fsencode(path.name),
    )


def _not_one(folder: Path, paths: Sequence[Path], expected: str) -> str:
    found = ", ".join(readable_path(os.fsencode(path.name)) for path in paths) or "none"
    return (
        f"{readable_path(os.fsencode(folder))}: found {found}; expected exactly one {expected}, or "
        "one for each split. Give the path of the list itself instead."
    )
