"""What every source yields: light raw items, and an account of all that it met."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from readers.store.schema import Field


class RawItem(msgspec.Struct, frozen=True, array_like=True):
    """One image as the source found it: a path and numbers, no pixels.

    Attributes:
        key: Identity of the sample: its path relative to the raw folder, POSIX form, as the bytes
            that the file system holds (`os.fsencode`), since a name need not be UTF-8.
        path: File to read, relative to the source's root, as bytes.
        byte_count: Size of the file.
        mtime_ns: When the file was last changed.
        values: Value of each field that the source knows, by name: label, split.
    """

    key: bytes
    path: bytes
    byte_count: int
    mtime_ns: int
    values: dict[str, int] = {}


class Reject(msgspec.Struct, frozen=True, kw_only=True):
    """A raw item that was not packed, and why.

    Attributes:
        key: Key that its sample would have had, as bytes.
        path: Where it is, as a person would write it (`list.csv, line 7` for a row).
        reason: Why it was not packed.
    """

    key: bytes
    path: str
    reason: str


@dataclass
class Ignored:
    """Files that are no raw items, by reason: how many, and the first few by name."""

    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)

    def add(self, reason: str, path: str) -> None:
        """Count one more file, remembering the first five of each reason."""
        self.counts[reason] = self.counts.get(reason, 0) + 1
        names = self.examples.setdefault(reason, [])
        if len(names) < 5:
            names.append(path)

    @property
    def total(self) -> int:
        """How many files in all."""
        return sum(self.counts.values())


@dataclass(frozen=True, kw_only=True)
class Scan:
    """All that a source found under a raw path.

    Attributes:
        format: Name of the source.
        root: Folder that the items' paths are relative to.
        items: In the order of the store.
        classes: Class names; a label is a position in it. Empty without labels.
        splits: Split names as the raw data has them; a `split` value is a position in it.
        fields: What the store holds beside key, image, original_size and transform.
        rejects: Raw items that the source itself had to refuse.
        ignored: Files that are no raw items.
        notes: One line each: what was seen, chosen or odd.
    """

    format: str
    root: Path
    items: list[RawItem]
    classes: tuple[str, ...] = ()
    splits: tuple[str, ...] = ()
    fields: tuple[Field, ...] = ()
    rejects: list[Reject] = field(default_factory=list)
    ignored: Ignored = field(default_factory=Ignored)
    notes: list[str] = field(default_factory=list)
