"""Names that a user gives a dataset, held against those that there are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from readers.store.errors import SchemaMismatchError
from readers.store.manifest import Manifest
from readers.store.place import Place
from readers.store.splits import canonical_split
from readers.store.wording import did_you_mean

_SETTINGS = ("split", "fields", "returns", "image_as", "transform_field", "io")


def checked_names(
    argument: str, names: Iterable[str] | None, known: tuple[str, ...], path: str
) -> tuple[str, ...] | None:
    """The names of an argument, each of them a field of the store and there once."""
    if names is None:
        return None
    if isinstance(names, str):
        raise ValueError(f"{argument} is a list of names; got {names!r}. One: [{names!r}]")
    wanted = tuple(names)
    for name in wanted:
        if name not in known:
            raise SchemaMismatchError(unknown("field", name, known, path))
        if wanted.count(name) > 1:
            raise ValueError(f"{argument}: {name!r} is named twice in {wanted!r}")
    return wanted


def cannot_set(name: str, known: Iterable[str]) -> str:
    """Why an attribute of a dataset cannot be set, and what can be done.

    Args:
        name: The attribute's name.
        known: Those that a dataset has.
    """
    known = [one for one in known if not one.startswith("_")]
    if name in _SETTINGS:
        return (
            f"{name} is settled when a dataset is made: LMDBDataset(path, {name}=...). Only its "
            "transform can be set later"
        )
    if name in known:
        return f"{name} is the dataset's own, and cannot be set. Only its transform can"
    hint = did_you_mean(name, ["transform", *_SETTINGS, *known])
    return (
        f"an LMDBDataset has no attribute {name!r}, so setting it would change nothing.{hint} "
        "dataset.transform = function is called with each sample; to keep values of your own with "
        "a dataset, make a subclass"
    )


def unknown(what: str, name: str, known: Sequence[str], path: str | Place) -> str:
    """The message that a store has nothing of this name, with the nearest one that it has."""
    has = ", ".join(known) or "none"
    return f"{path}: no {what} {name!r}; it has {has}.{did_you_mean(name, known)}"


def no_fact(attribute: str, what: str, path: str) -> str:
    """The message that a store does not say what an attribute would be."""
    return f"{path}: a dataset of it has no {attribute}, since the store has no {what}"


def split_names(
    splits: str | Sequence[str], manifest: Manifest, path: str
) -> str | tuple[str, ...]:
    """The splits of these names, each as the store has it; of a single one its name."""
    if isinstance(splits, str):
        return _split_name(splits, manifest, path)
    found = tuple(_split_name(split, manifest, path) for split in splits)
    if not found:
        raise ValueError(f"split names no split; got {splits!r}. None means all samples")
    for name in found:
        if found.count(name) > 1:
            raise ValueError(f"split: {name!r} is named twice in {tuple(splits)!r}")
    return found[0] if len(found) == 1 else found


def _split_name(split: str, manifest: Manifest, path: str) -> str:
    """The split of this name, or the only one that goes by it (valid for val)."""
    if split in manifest.splits:
        return split
    found = [name for name in manifest.splits if canonical_split(name) == canonical_split(split)]
    if len(found) == 1 and canonical_split(split) is not None:
        return found[0]
    raise SchemaMismatchError(unknown("split", split, tuple(manifest.splits), path))
