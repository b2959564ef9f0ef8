"""What a source finds on its way through raw data, of which it makes its scan in the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from packer.items.raw_item import Ignored, RawItem, Reject, Scan, tag_split
from readers.store.schema import Field


@dataclass(kw_only=True)
class Findings:
    """The account of a source: each thing that it meets goes into one of these.

    A walk or a look for archives has met things already; its `rejects` and `ignored` are taken
    over, so that what is added comes after them.

    Attributes:
        items: Raw items.
        rejects: Raw items that the source had to refuse.
        annotation_rejects: Annotations that it had to refuse.
        ignored: Files that are no raw items.
        notes: One line each: what was seen, chosen or odd.
        choices: What the source decided where the data leaves it open; see `Scan`.
    """

    items: list[RawItem] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    annotation_rejects: list[Reject] = field(default_factory=list)
    ignored: Ignored = field(default_factory=Ignored)
    notes: list[str] = field(default_factory=list)
    choices: dict[str, str] = field(default_factory=dict)

    def mark(self) -> tuple[int, int]:
        """How many rejects there are, of items and of annotations, for `tag_split`."""
        return len(self.rejects), len(self.annotation_rejects)

    def tag_split(self, mark: tuple[int, int], split: str | None) -> None:
        """Say of which split the rejects since a mark are, where that is not said yet."""
        tag_split(self.rejects, mark[0], split)
        tag_split(self.annotation_rejects, mark[1], split)

    def as_scan(
        self,
        name: str,
        root: Path,
        *,
        classes: tuple[str, ...] = (),
        splits: tuple[str, ...] = (),
        fields: tuple[Field, ...] = (),
    ) -> Scan:
        """All of it; the items as they stand, which is the order of the store.

        Args:
            name: The source's name.
            root: Folder that the items' paths are relative to.
            classes: Names of the classes; see `Scan`.
            splits: Names of the splits.
            fields: What the store holds beside key and image.
        """
        return Scan(
            format=name,
            root=root,
            items=self.items,
            classes=classes,
            splits=splits,
            fields=fields,
            rejects=self.rejects,
            annotation_rejects=self.annotation_rejects,
            ignored=self.ignored,
            notes=self.notes,
            choices=self.choices,
        )
