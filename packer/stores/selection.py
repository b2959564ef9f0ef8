"""Which samples of a store are meant: by split, class and key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from packer.errors import BuildError
from packer.stores.keys import key_bytes, key_text, store_keys
from packer.wording import names_text
from readers.store.errors import SchemaMismatchError, UnknownKeyError
from readers.store.reader import StoreReader
from readers.store.record import RecordReader
from readers.store.wording import did_you_mean


def chosen_indices(
    store: StoreReader,
    splits: Sequence[str] = (),
    classes: Sequence[str] = (),
    keys: Iterable[str] | None = None,
) -> NDArray[np.int64]:
    """Positions of the samples that fit all that is asked for, in their order.

    Args:
        store: The store.
        splits: Samples of these splits. Empty takes any.
        classes: Samples of these classes, or with an object of one of them. Empty takes any.
        keys: Samples of these keys. None takes any.

    Raises:
        SchemaMismatchError: The store has no such split or class.
        UnknownKeyError: No sample has one of the keys.
        StoreError: The store cannot be read.
    """
    indices = np.arange(store.manifest.sample_count)
    if splits:
        indices = indices[_is_in_splits(store, splits)[indices]]
    if classes:
        indices = indices[_has_class(store, classes, indices)]
    if keys is not None:
        indices = np.intersect1d(indices, _positions_of(store, list(keys)))
    return indices


def check_any_left(store: StoreReader, indices: NDArray[np.int64], what: str) -> None:
    """See that a choice has samples. Raises BuildError.

    Args:
        store: The store.
        indices: The choice.
        what: What is to be made of it: "a store".
    """
    if not len(indices):
        raise BuildError(
            f"{store.path}: none of its {store.manifest.sample_count:,} samples fits all that is "
            f"asked for, and {what} of none is of no use. Ask for less."
        )


def read_key_list(path: Path) -> list[str]:
    """The keys of a file with one a line; empty lines are none.

    Raises:
        OSError: It cannot be read.
    """
    lines = path.read_bytes().splitlines()
    return [key_text(line) for line in lines if line.strip()]


def _column(store: StoreReader, name: str) -> NDArray[Any]:
    """A scalar field of all samples."""
    shards = [shard.columns[name] for shard in store.shards()]
    return np.concatenate(shards) if shards else np.empty(0, np.int64)


def _numbers(
    store: StoreReader, what: str, wanted: Sequence[str], names: Sequence[str]
) -> list[int]:
    for name in wanted:
        if name not in names:
            has = f"it has {names_text(names)}" if names else "it has none"
            hint = did_you_mean(name, names)
            raise SchemaMismatchError(f"{store.path}: no {what} {name!r}; {has}.{hint}")
    return [at for at, name in enumerate(names) if name in wanted]


def _is_in_splits(store: StoreReader, wanted: Sequence[str]) -> NDArray[np.bool_]:
    schema = store.manifest.schema
    names = (schema["split"].names or ()) if "split" in schema else ()
    numbers = _numbers(store, "split", wanted, names)
    return np.isin(_column(store, "split"), numbers)


def _has_class(
    store: StoreReader, wanted: Sequence[str], indices: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Of some samples, whether each is of one of these classes, or has an object that is."""
    schema = store.manifest.schema
    field = next((schema[name] for name in ("label", "labels") if name in schema), None)
    names = (field.names or ()) if field is not None else ()
    numbers = _numbers(store, "class", wanted, names)
    assert field is not None
    if field.is_scalar:
        return np.isin(_column(store, field.name)[indices], numbers)
    reader = RecordReader(store.layout, [field.name], copies=False)
    found = np.zeros(len(indices), bool)
    for at, index in enumerate(indices.tolist()):
        shard, position = store.locate(index)
        labels = reader.unpack(shard.record(position))[field.name]
        found[at] = bool(np.isin(labels, numbers).any())
    return found


def _positions_of(store: StoreReader, keys: Sequence[str]) -> NDArray[np.int64]:
    places = {key: at for at, key in enumerate(store_keys(store))}
    unknown = [key for key in keys if key_bytes(key) not in places]
    if unknown:
        raise UnknownKeyError(
            f"{store.path}: no sample has the key {names_text(unknown)} ({len(unknown):,} of "
            f"{len(keys):,} keys). A key is the path relative to the raw folder, with / between "
            "folders."
        )
    return np.array(sorted({places[key_bytes(key)] for key in keys}), np.int64)
