"""A table of rows with named columns, whatever kind of file it is from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from packer.sources.lists.columns import Columns

Row: TypeAlias = "tuple[int, list[Any] | str]"
"""Number of the row, and its values, one a column; or why it cannot be read."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A file that lists pictures.

    Attributes:
        path: The file.
        columns: What its columns mean.
        unit: What the number of a row counts, from 1: "line" or "row".
        rows: Begins to read the rows, in order; they are not kept.
    """

    path: Path
    columns: Columns
    unit: str
    rows: Callable[[], Iterator[Row]]


def flat_record(record: dict[str, Any]) -> dict[str, Any]:
    """A record without records inside: `{"objects": {"bbox": [...]}}` gives `objects.bbox`.

    A list of records gives one list for each of their keys, with None where one lacks the key, so
    that `{"objects": [{"bbox": ..., "label": ...}, ...]}` has the same columns.
    """
    flat: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, dict):
            flat.update({f"{name}.{key}": inner for key, inner in value.items()})
        elif isinstance(value, list) and value and all(isinstance(v, dict) for v in value):
            for key in dict.fromkeys(key for inner in value for key in inner):
                flat[f"{name}.{key}"] = [inner.get(key) for inner in value]
        else:
            flat[name] = value
    return flat
