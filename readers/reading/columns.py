"""What the index of a store knows of every sample, as arrays that compare with names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from readers.reading.names import unknown
from readers.reading.selection import Selection
from readers.store.errors import SchemaMismatchError
from readers.store.reader import StoreReader

_COMPARISONS = (np.equal, np.not_equal)


class Column(np.ndarray[Any, np.dtype[Any]]):
    """One number of every sample: an array like any other, which compares with names as well.

    `columns["split"] == "train"`, `columns["label"] != "cat"` and `np.isin(columns["label"],
    ["cat", "dog"])` are by the names that the numbers stand for. A name that there is not, or any
    text where numbers have no names, is an error: nothing would ever be equal to it.

    Attributes:
        names: What the values 0, 1, 2, ... are called, or None.
        title: Where it is from, for messages.
    """

    names: tuple[str, ...] | None
    title: str

    @classmethod
    def of(cls, values: NDArray[Any], names: tuple[str, ...] | None, title: str) -> Column:
        """The values as a column."""
        column = values.view(cls)
        column.names, column.title = names, title
        return column

    def __array_finalize__(self, parent: NDArray[Any] | None) -> None:
        self.names = getattr(parent, "names", None)
        self.title = getattr(parent, "title", "a column")

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **settings: Any
    ) -> Any:
        if ufunc in _COMPARISONS:
            inputs = tuple(self._numbers(value) for value in inputs)
        elif any(_text(value) is not None for value in inputs):
            raise TypeError(
                f"{self.title}: a name is equal to a value or not, and nothing else can be done "
                f"with it; got np.{ufunc.__name__}"
            )
        if out is not None:
            settings["out"] = tuple(map(_plain, out))
        return getattr(ufunc, method)(*map(_plain, inputs), **settings)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func is np.isin:
            args = tuple(self._numbers(value) for value in args)
            kwargs = {
                name: self._numbers(value) if name in ("element", "test_elements") else value
                for name, value in kwargs.items()
            }
            return func(*args, **kwargs)
        return super().__array_function__(func, types, args, kwargs)

    def _numbers(self, value: Any) -> Any:
        """Texts as the numbers that they stand for; all else as it is.

        Raises:
            TypeError: The column has no names, or the value is neither a text nor a number.
            SchemaMismatchError: No value has this name.
        """
        texts = _text(value)
        if texts is None:
            return _plain(value)
        found = [self._number(text) for text in texts.ravel().tolist()]
        return np.array(found, np.int64).reshape(texts.shape)

    def _number(self, text: Any) -> int:
        if not isinstance(text, str):
            raise TypeError(f"{self.title} compares with numbers and names; got {text!r}")
        if self.names is None:
            raise TypeError(
                f"{self.title} has numbers without names, which are never equal to {text!r}. "
                "Compare it with a number"
            )
        if text not in self.names:
            raise SchemaMismatchError(unknown("name", text, self.names, self.title))
        return self.names.index(text)


def _plain(value: Any) -> Any:
    return value.view(np.ndarray) if isinstance(value, Column) else value


def _text(value: Any) -> NDArray[Any] | None:
    """A value as an array of texts or other objects; None where it is numbers."""
    if isinstance(value, (int, float, np.number, np.bool_, Column)):
        return None
    array = np.asarray(value)
    if array.dtype.kind in "US":
        return array.astype(object)
    return array if array.dtype.kind == "O" else None


class Columns(Mapping[str, Column]):
    """Numbers that the index of a store keeps of every sample, by name: no record is read.

    Scalar fields have their own names (`label`, `split`); an image whose size differs between
    samples has `image.height` and `image.width`. Each value is an array with one row a sample of
    the dataset, in its order; it is made when it is asked for. See `Column` about names.
    """

    def __init__(self, store: StoreReader, selection: Selection) -> None:
        self._store = store
        self._selection = selection
        self._dtypes = {item.name: item.dtype for item in store.layout.columns}

    def __getitem__(self, name: str) -> Column:
        if name not in self._dtypes:
            raise SchemaMismatchError(
                unknown("column", name, tuple(self._dtypes), self._store.path)
            )
        parts = [shard.columns[name] for shard in self._store.shards()]
        # A store without samples has no shards to say the element type.
        values = np.concatenate(parts) if parts else np.empty(0, self._dtypes[name])
        chosen = values[self._selection.all_positions()]
        return Column.of(chosen, self._names(name), f"{self._store.path}, column {name!r}")

    def _names(self, name: str) -> tuple[str, ...] | None:
        schema = self._store.layout.schema
        if name not in schema:  # Such as image.height.
            return None
        names = schema[name].names
        is_class = names is None and schema[name].kind == "label"
        return (self._store.manifest.classes or None) if is_class else names

    def __contains__(self, name: object) -> bool:
        return name in self._dtypes

    def __iter__(self) -> Iterator[str]:
        return iter(self._dtypes)

    def __len__(self) -> int:
        return len(self._dtypes)

    def __repr__(self) -> str:
        facts = []
        for name, dtype in self._dtypes.items():
            names = self._names(name)
            facts.append(f"{name} {dtype}" + (f" ({_listed(names)})" if names else ""))
        return f"Columns of {len(self._selection):,} samples: {', '.join(facts) or 'none'}"


def _listed(names: tuple[str, ...]) -> str:
    """Some of the names, and how many there are besides."""
    shown = ", ".join(map(repr, names[:_SHOWN_COUNT]))
    return shown + (f", ... {len(names)} in all" if len(names) > _SHOWN_COUNT else "")


_SHOWN_COUNT = 4
