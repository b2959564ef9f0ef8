"""Folders that are splits rather than classes."""

from __future__ import annotations

from collections.abc import Iterable

from readers.store.splits import canonical_split


def are_all_splits(names: Iterable[bytes]) -> bool:
    """Whether there are folder names and each is one of a split.

    A class may be called `test`, so one other name among them makes all of them classes.
    """
    found = [canonical_split(name.decode("utf-8", "replace")) for name in names]
    return bool(found) and None not in found
