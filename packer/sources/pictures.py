"""Pictures of a raw tree, by folder: made when asked for, from columns of the whole tree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, overload

from packer.items.file_table import FileTable


class Picture(NamedTuple):
    """A file that is named like a picture: path relative to the raw folder, bytes, nanoseconds."""

    path: bytes
    byte_count: int
    mtime_ns: int


class PictureNames(Sequence[bytes]):
    """The names of the pictures of one folder; see `Pictures`."""

    __slots__ = ("_pictures",)

    def __init__(self, pictures: Pictures) -> None:
        self._pictures = pictures

    def __len__(self) -> int:
        return len(self._pictures)

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> list[bytes]: ...
    def __getitem__(self, at: int | slice) -> bytes | list[bytes]:
        table, first, end = self._pictures.table, self._pictures.first, self._pictures.end
        rows = range(first, end)[at]
        return table.name(rows) if isinstance(rows, int) else [table.name(row) for row in rows]

    def __iter__(self) -> Iterator[bytes]:
        pictures = self._pictures
        return (name for name, _, _ in pictures.table.files(pictures.first, pictures.end))


class Pictures(Sequence[Picture]):
    """The pictures of one folder, made when they are asked for; those of a tree share one table.

    Attributes:
        table: The files of the whole tree.
        first: Row of the first.
        end: Row behind the last.
    """

    __slots__ = ("_folder", "end", "first", "table")

    def __init__(self, table: FileTable, folder: bytes, first: int, end: int) -> None:
        self.table = table
        self._folder = folder + b"/" if folder else b""
        self.first = first
        self.end = end

    def __len__(self) -> int:
        return self.end - self.first

    @overload
    def __getitem__(self, at: int) -> Picture: ...
    @overload
    def __getitem__(self, at: slice) -> list[Picture]: ...
    def __getitem__(self, at: int | slice) -> Picture | list[Picture]:
        if isinstance(at, slice):
            return [self[position] for position in range(len(self))[at]]
        name, *rest = self.table.file(range(self.first, self.end)[at])
        return Picture(self._folder + name, *rest)

    def __iter__(self) -> Iterator[Picture]:
        folder = self._folder
        for name, byte_count, mtime_ns in self.table.files(self.first, self.end):
            yield Picture(folder + name, byte_count, mtime_ns)

    @property
    def names(self) -> Sequence[bytes]:
        """Their names alone."""
        return PictureNames(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]
