"""How often each value came: counted, and added up over parts."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, MutableMapping
from typing import Any, TypeVar

import numpy as np

Key = TypeVar("Key", bound=Hashable)


def count_values(counts: MutableMapping[Any, int], values: Any) -> None:
    """Count the values of one field of one more sample: a number, or an array of them."""
    if type(values) is int:  # Nearly always; numpy takes 3 us to make an array of it.
        counts[values] = counts.get(values, 0) + 1
        return
    for value in np.atleast_1d(values).tolist():
        counts[value] = counts.get(value, 0) + 1


def summed_counts(parts: Iterable[Mapping[Key, int]]) -> dict[Key, int]:
    """The counts of all parts, by what is counted, in the order in which that first comes."""
    total: dict[Key, int] = {}
    for part in parts:
        for value, count in part.items():
            total[value] = total.get(value, 0) + count
    return total
