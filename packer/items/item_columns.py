"""Raw items that are made when they are asked for, from columns; and columns of any raw items."""

from __future__ import annotations

from abc import abstractmethod
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from packer.items.file_table import FileTable
from packer.items.raw_item import RawItem


class _LazyItems(Sequence[RawItem]):
    """What is the same for all items that are made when asked for."""

    @abstractmethod
    def _item(self, at: int) -> RawItem:
        """The item at a position."""

    @abstractmethod
    def _items(self, first: int, end: int) -> Iterator[RawItem]:
        """Items of positions in [first, end)."""

    @overload
    def __getitem__(self, at: int) -> RawItem: ...
    @overload
    def __getitem__(self, at: slice) -> list[RawItem]: ...
    def __getitem__(self, at: int | slice) -> RawItem | list[RawItem]:
        if isinstance(at, slice):
            first, end, step = at.indices(len(self))
            if step == 1:
                return list(self._items(first, max(first, end)))
            return [self._item(position) for position in range(first, end, step)]
        return self._item(range(len(self))[at])

    def __iter__(self) -> Iterator[RawItem]:
        return self._items(0, len(self))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or len(other) != len(self):
            return False
        return all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]


class FileItems(_LazyItems):
    """Raw items of which each is a file of its own, without annotations, key and path the same.

    Runs of rows of a table, one after the other: a run costs 40 bytes, an item nothing.

    Args:
        table: The files.
    """

    def __init__(self, table: FileTable) -> None:
        self._table = table
        self._folders: list[bytes] = []
        self._values: list[dict[str, Any]] = []
        self._first_rows = array("q")
        self._ends = array("q")

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def add(self, folder: bytes, first: int, end: int, values: dict[str, Any]) -> None:
        """Add the files of rows in [first, end), which lie in one folder.

        Args:
            folder: Its path relative to the root.
            first: Row of the first.
            end: Row behind the last.
            values: Those of each of them; nobody changes the dict.
        """
        if first == end:
            return
        count = len(self) + end - first
        self._folders.append(folder + b"/" if folder else b"")
        self._values.append(values)
        self._first_rows.append(first)
        self._ends.append(count)

    def byte_counts(self) -> NDArray[np.int64]:
        """Bytes of each item's file, int64."""
        found = np.empty(len(self), np.int64)
        if not len(self):
            return found
        of_row = self._table.byte_counts()
        begin = 0
        for row, end in zip(self._first_rows, self._ends, strict=True):
            found[begin:end] = of_row[row : row + end - begin]
            begin = end
        return found

    def _item(self, at: int) -> RawItem:
        run = bisect_right(self._ends, at)
        begin = self._ends[run - 1] if run else 0
        name, byte_count, mtime_ns = self._table.file(self._first_rows[run] + at - begin)
        path = self._folders[run] + name
        return RawItem(path, path, byte_count, mtime_ns, self._values[run])

    def _items(self, first: int, end: int) -> Iterator[RawItem]:
        run = bisect_right(self._ends, first)
        while first < end:
            begin = self._ends[run - 1] if run else 0
            run_end = min(end, self._ends[run])
            row = self._first_rows[run] - begin
            folder, values = self._folders[run], self._values[run]
            for name, byte_count, mtime_ns in self._table.files(row + first, row + run_end):
                path = folder + name
                yield RawItem(path, path, byte_count, mtime_ns, values)
            first = run_end
            run += 1


class ChosenItems(_LazyItems):
    """Some items of others, in an order of their own, and with other values where these are given.

    12 bytes an item.

    Args:
        items: The others.
        positions: Of each item among them.
        values: Position of each item's values in `kinds`. None leaves items their own.
        kinds: Values; many items share one dict, which nobody changes.
    """

    def __init__(
        self,
        items: Sequence[RawItem],
        positions: NDArray[np.int64],
        values: NDArray[np.int32] | None = None,
        kinds: Sequence[dict[str, Any]] = (),
    ) -> None:
        self._base: Sequence[RawItem] = items
        self._positions: NDArray[np.int64] = positions
        self._values: NDArray[np.int32] | None = values
        self._kinds: Sequence[dict[str, Any]] = kinds
        if isinstance(items, ChosenItems):  # One step to the base, however often it was chosen.
            self._base, self._positions = items._base, items._positions[positions]
            if values is None and items._values is not None:
                self._values, self._kinds = items._values[positions], items._kinds

    def __len__(self) -> int:
        return len(self._positions)

    def byte_counts(self) -> NDArray[np.int64]:
        """Bytes of each item's image, int64."""
        return byte_counts(self._base)[self._positions]

    @property
    def base(self) -> Sequence[RawItem]:
        """The items that these are among."""
        return self._base

    def _item(self, at: int) -> RawItem:
        item = self._base[int(self._positions[at])]
        if self._values is None:
            return item
        return _with_values(item, self._kinds[self._values[at]])

    def _items(self, first: int, end: int) -> Iterator[RawItem]:
        return map(self._item, range(first, end))


class ItemsWithSplits:
    """Chooses items one by one, and says of which split each is.

    Items share their dicts of values, and a hundred million new ones would take more memory than
    all the rest.

    Args:
        items: Those that there are.
    """

    def __init__(self, items: Sequence[RawItem]) -> None:
        self._items = items
        self._positions = array("q")
        self._values = array("i")
        self._kinds: list[dict[str, Any]] = []
        # The dicts are kept with what was made of them, so that none gets the id of another.
        self._known: dict[tuple[int, int], tuple[int, dict[str, Any]]] = {}

    def add(self, at: int, values: dict[str, Any], split: int) -> None:
        """Take an item.

        Args:
            at: Its position.
            values: Its own.
            split: The number of its split.
        """
        known = self._known.get((id(values), split))
        if known is None:
            known = len(self._kinds), values
            self._known[id(values), split] = known
            self._kinds.append({**values, "split": split})
        self._positions.append(at)
        self._values.append(known[0])

    def chosen(self) -> ChosenItems:
        """The items that were taken."""
        return ChosenItems(
            self._items,
            np.array(self._positions, np.int64),
            np.array(self._values, np.int32),
            self._kinds,
        )


def _with_values(item: RawItem, values: dict[str, Any]) -> RawItem:
    return RawItem(
        item.key,
        item.path,
        item.byte_count,
        item.mtime_ns,
        values,
        item.annotations,
        item.masks,
        item.member,
    )


def byte_counts(items: Sequence[RawItem]) -> NDArray[np.int64]:
    """Bytes of each item's image, int64."""
    if isinstance(items, FileItems | ChosenItems):
        return items.byte_counts()
    return np.fromiter((item.byte_count for item in items), np.int64, len(items))


def are_plain_files(items: Sequence[RawItem]) -> bool:
    """Whether it is known, without a look at each, that all are files and nothing is on them.

    No annotations, no masks, no members of files that hold many.
    """
    return isinstance(items.base if isinstance(items, ChosenItems) else items, FileItems)
