"""The keys of samples: from an index to its key, and from a key to its index."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

from readers.reading.names import unknown
from readers.reading.show import SampleReader
from readers.reading.view import StoreView
from readers.store.errors import SchemaMismatchError, UnknownKeyError


class Keys(Sequence[str]):
    """The keys of a dataset's samples, in its order; each is read when it is asked for.

    A key is looked up by its digest. The other way leads through the record that holds it.

    Args:
        view: Which samples of which store.
    """

    def __init__(self, view: StoreView) -> None:
        self._view = view
        self._reader: SampleReader | None = None

    def __len__(self) -> int:
        return len(self._view)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> list[str]: ...
    def __getitem__(self, at: int | slice) -> str | list[str]:
        """The key at an index, from the end when negative; of a slice, a list of them.

        Raises:
            IndexError: There is no such sample.
            SchemaMismatchError: The samples of this store keep no key.
        """
        places = range(len(self))[at]
        if isinstance(places, range):
            return [self._at(place) for place in places]
        return self._at(places)

    def _at(self, index: int) -> str:
        store = self._view.store
        if self._reader is None:
            if "key" not in store.manifest.schema:
                known = store.manifest.schema.names
                raise SchemaMismatchError(unknown("field", "key", known, self._view.path))
            self._reader = SampleReader(store, ("key",), "numpy")
        return str(self._reader.at(self._view.selection.position(index))["key"])

    def __iter__(self) -> Iterator[str]:
        return map(self._at, range(len(self)))

    def __contains__(self, key: object) -> bool:
        if not isinstance(key, str):
            raise TypeError(f"a key is a text; got {key!r}")
        position = self._position(key)
        return position is not None and self._view.selection.index_of(position) is not None

    def _position(self, key: str) -> int | None:
        """Position in the store of the sample with a key."""
        try:
            return self._view.store.find(key.encode("utf-8", "surrogateescape"))
        except UnicodeEncodeError:  # No name on disk reads like that, so no sample has it.
            return None

    def index(self, key: str, start: int = 0, stop: int | None = None) -> int:
        """Index of the sample with a key.

        Raises:
            UnknownKeyError: The dataset has no such sample.
        """
        position, view = self._position(key), self._view
        index = None if position is None else view.selection.index_of(position)
        if index is None or not start <= index < (len(self) if stop is None else stop):
            where = view.path if position is None else f"{view.path} has it, but not this selection"
            raise UnknownKeyError(
                f"no sample with the key {key!r}: {where}. A key is the path relative to the raw "
                "folder, with / between folders."
            )
        return index

    def __repr__(self) -> str:
        return f"Keys of {len(self):,} samples of {self._view.path!r}"
