"""Splits: folders that are splits rather than classes, and the field that tells them apart."""

from __future__ import annotations

from collections.abc import Iterable

from readers.store.schema import Field
from readers.store.splits import canonical_split


def are_all_splits(names: Iterable[bytes]) -> bool:
    """Whether there are folder names and each is one of a split.

    A class may be called `test`, so one other name among them makes all of them classes.
    """
    found = [canonical_split(name.decode("utf-8", "replace")) for name in names]
    return bool(found) and None not in found


def split_field(splits: tuple[str, ...]) -> Field:
    """The field that says which split a sample is of, as a position in the names."""
    return Field(name="split", kind="scalar", dtype="uint8", names=splits)


def ordered_splits(names: Iterable[str]) -> tuple[str, ...]:
    """Each name once: train, val and test by meaning, then others, each sorted by code point."""
    meanings = {"train": 0, "val": 1, "test": 2}
    return tuple(sorted(set(names), key=lambda n: (meanings.get(canonical_split(n) or "", 3), n)))
