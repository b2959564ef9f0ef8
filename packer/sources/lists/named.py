"""Columns of lists that the user has named: `--path-column id --label-column breed`."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any

from packer.sources.lists.columns import Columns
from packer.sources.lists.table import Table
from packer.sources.source import SourceOptions
from packer.wording import names_text
from readers.store.wording import did_you_mean

_ROWS_SAMPLED = 20

_MEANINGS = ("path", "label", "labels", "split", "mask", "caption")
"""What one column may mean, as attributes of `Columns`."""


def named_columns(columns: Columns, options: SourceOptions) -> Columns:
    """The columns of a list with the meanings that the user gave them, in place of those of names.

    What the list does not have is passed over here, since the folder may hold other lists too; see
    `lacking_text`.
    """
    path = _position(columns, options.path_column)
    label = _position(columns, options.label_column)
    named = {columns.names[position] for position in (path, label) if position is not None}
    if not named:
        return columns
    changed: dict[str, Any] = {
        meaning: None
        for meaning in _MEANINGS
        if (position := getattr(columns, meaning)) is not None and columns.names[position] in named
    }
    if path is not None:
        changed["path"] = path
    if label is not None:
        changed |= {"label": label, "labels": None}
        if columns.box is not None:
            changed["box"] = replace(columns.box, label=label)
    for kind in ("masks", "outlines"):
        changed[kind] = tuple(name for name in getattr(columns, kind) if name not in named)
    return replace(columns, **changed)


def with_named_columns(table: Table, options: SourceOptions) -> Table:
    """A list with the meanings that the user gave to its columns.

    A column of labels whose values are lists has several labels for each picture.
    """
    columns = named_columns(table.columns, options)
    label = columns.label
    if options.label_column is not None and label is not None and columns.box is None:
        rows = islice(table.rows(), _ROWS_SAMPLED)
        cells = [row[label] for _, row in rows if not isinstance(row, str)]
        if any(isinstance(cell, list) or str(cell).lstrip().startswith("[") for cell in cells):
            columns = replace(columns, label=None, labels=label)
    return replace(table, columns=columns)


def lacking_text(columns: Columns, options: SourceOptions) -> str:
    """Which column the user named that a list does not have; empty where it has them."""
    for option, name in (
        ("--path-column", options.path_column),
        ("--label-column", options.label_column),
    ):
        if name is not None and _position(columns, name) is None:
            return (
                f"there is no column {name!r}, which {option} names, among "
                f"{names_text(columns.names)}.{did_you_mean(name, columns.names)}"
            )
    return ""


def _position(columns: Columns, name: str | None) -> int | None:
    return columns.names.index(name) if name is not None and name in columns.names else None
