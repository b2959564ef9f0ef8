"""Lists with one column for each class, which hold yes or no."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from packer.sources.lists.labels import cell_text
from packer.sources.lists.table import Table

_ROWS_SAMPLED = 100
"""How many rows decide which columns hold only yes and no; the others must do so as well."""

ZERO_AND_ONE = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "false": 0, "true": 1}
SIGNS = {"-1": 0, "1": 1, "-1.0": 0, "1.0": 1}
"""What CelebA and lists like it write for no and yes."""


def flag_columns(table: Table) -> dict[str, int]:
    """Columns that hold only yes and no, two or more, name to position.

    None where other columns say something about the pictures.
    """
    columns = table.columns
    if columns.says_something or columns.path is None:
        return {}
    aside = {columns.path, columns.split, *(columns.size or ())}
    known = ZERO_AND_ONE.keys() | SIGNS.keys()
    rows = [row for _, row in islice(table.rows(), _ROWS_SAMPLED) if not isinstance(row, str)]
    found = {
        name: n
        for n, name in enumerate(columns.names)
        if n not in aside and rows and {cell_text(row[n]) for row in rows} <= known
    }
    return found if len(found) > 1 else {}


def flag_values(table: Table, flags: Mapping[str, int]) -> dict[str, int]:
    """What the cells of columns of classes may hold, with 1 for yes and 0 for no."""
    rows = [row for _, row in islice(table.rows(), _ROWS_SAMPLED) if not isinstance(row, str)]
    seen = {cell_text(row[n]) for row in rows for n in flags.values()}
    return SIGNS if seen <= SIGNS.keys() and seen & {"-1", "-1.0"} else ZERO_AND_ONE
