"""Are two samples the same? By their values, whatever numbers their stores give to names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from readers.store.schema import Field, Schema
from readers.store.shapes.polygons import Polygons, Runs


def differing_fields(
    a: Mapping[str, Any], b: Mapping[str, Any], schema_a: Schema, schema_b: Schema
) -> list[str]:
    """Names of the fields whose values differ, of those that both samples have, in order.

    Labels and masks are compared by the names that their numbers stand for.

    Args:
        a: Values of one sample by field name, as `RecordReader` gives them.
        b: Those of the other.
        schema_a: What `a` is made of.
        schema_b: What `b` is made of.
    """
    return [
        name for name in a if name in b and not _is_same(a[name], b[name], schema_a, schema_b, name)
    ]


def _is_same(a: Any, b: Any, schema_a: Schema, schema_b: Schema, name: str) -> bool:
    ours, theirs = schema_a[name], schema_b[name]
    if ours.kind != theirs.kind:
        return False
    if counts_names(ours) and ours.names != theirs.names:
        table = positions_in(theirs.names or (), ours.names or ())
        return _is_same_value(np.asarray(a, np.int64), _translated(np.asarray(b, np.int64), table))
    return _is_same_value(a, b)


def counts_names(field: Field) -> bool:
    """Whether the values of a field are positions among its names, where it has any."""
    return field.kind in ("label", "scalar", "mask")


def positions_in(names: Sequence[str], others: Sequence[str]) -> NDArray[np.int64]:
    """Position of each name among `others`, int64; of one that is not there a number below 0."""
    places = {name: at for at, name in enumerate(others)}
    return np.array([places.get(name, -1 - at) for at, name in enumerate(names)], np.int64)


def _translated(values: NDArray[np.int64], table: NDArray[np.int64]) -> NDArray[np.int64]:
    """Values put through a table, but for those that it does not have."""
    is_known = (values >= 0) & (values < len(table))
    return np.where(is_known, table[np.where(is_known, values, 0)] if len(table) else 0, values)


def _is_same_value(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        # As bytes: a NaN is the same as itself.
        same: bool = a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
        return same
    if isinstance(a, Polygons) and isinstance(b, Polygons):
        if (a.height, a.width, len(a)) != (b.height, b.width, len(b)):
            return False
        return all(map(_is_same_outline, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (a != a and b != b)
    return type(a) is type(b) and bool(a == b)


def _is_same_outline(a: Any, b: Any) -> bool:
    if isinstance(a, Runs) or isinstance(b, Runs):
        return isinstance(a, Runs) and isinstance(b, Runs) and _is_same_value(a.counts, b.counts)
    return len(a) == len(b) and all(map(_is_same_value, a, b))
