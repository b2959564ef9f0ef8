"""What a source finds on its way through raw data, of which it makes its scan in the end."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from packer.errors import SourceError
from packer.items.raw_item import Ignored, RawItem, Reject, Scan, tag_split
from packer.wording import count_text, names_text, readable_path
from readers.store.schema import Field


@dataclass(kw_only=True)
class Findings:
    """The account of a source: each thing that it meets goes into one of these.

    A walk or a look for archives begins it, and the source goes on with the same one, so that what
    it adds comes after what was met on the way.

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

    def add(self, other: Findings) -> None:
        """Take over what another account holds, after what is here.

        Where the data may be read twice, each time needs one of its own. Ignored files, which
        cannot be told apart later, are counted in one account alone.
        """
        assert not other.ignored.total
        self.items += other.items
        self.rejects += other.rejects
        self.annotation_rejects += other.annotation_rejects
        self.notes += other.notes
        self.choices |= other.choices

    def refuse(self, key: bytes, reason: str, place: str = "", split: str | None = None) -> None:
        """Note a raw item that is not packed.

        Args:
            key: Key of its sample; empty when it is not known.
            reason: Why it is not packed.
            place: Where it is, as a person would write it. Empty: at its key.
            split: Split that it is of, where that is known.
        """
        self.rejects.append(_reject(key, reason, place, "", split))

    def refuse_annotation(
        self, key: bytes, reason: str, place: str, part: str = "", split: str | None = None
    ) -> None:
        """Note an annotation, or a part of one, that is not packed; see `Reject`."""
        self.annotation_rejects.append(_reject(key, reason, place, part, split))

    def ignore(self, reason: str, paths: Iterable[bytes]) -> None:
        """Count files that are no raw items."""
        for path in paths:
            self.ignored.add(reason, readable_path(path))

    def note_ignored(self, *reasons: str, noun: str = "picture") -> None:
        """Say how many files are not packed for some reasons, and which, where there are any."""
        for reason in reasons:
            count = self.ignored.counts.get(reason, 0)
            if count:
                shown = names_text(self.ignored.examples[reason], count)
                self.notes.append(f"{count_text(count, noun)} not packed, {reason}: {shown}")

    def mark(self) -> tuple[int, int]:
        """How many rejects there are, of items and of annotations, for `tag_split`."""
        return len(self.rejects), len(self.annotation_rejects)

    def tag_split(self, mark: tuple[int, int], split: str | None) -> None:
        """Say of which split the rejects since a mark are, where that is not said yet."""
        tag_split(self.rejects, mark[0], split)
        tag_split(self.annotation_rejects, mark[1], split)

    def nothing(self, raw: Path, found: str, expected: str) -> SourceError:
        """The error where there is nothing to pack. What was refused may be why, and is named.

        Args:
            raw: The raw path.
            found: What is not there: "no list of faces".
            expected: What was looked for, and what to do: "expected ... Give the folder above it".
        """
        message = f"{readable_path(os.fsencode(raw))}: {found}; {expected}."
        if self.rejects:
            first = self.rejects[0]
            count = count_text(len(self.rejects), "raw item")
            message += f" {count} refused, such as {first.path}: {first.reason}."
        return SourceError(message)

    def as_scan(
        self,
        name: str,
        root: Path,
        *,
        items: Sequence[RawItem] | None = None,
        classes: tuple[str, ...] = (),
        splits: tuple[str, ...] = (),
        fields: tuple[Field, ...] = (),
        mask_colors: tuple[tuple[int, int, int], ...] = (),
        image_size: tuple[int, int] | None = None,
    ) -> Scan:
        """All of it; the items as they stand, which is the order of the store.

        Args:
            name: The source's name.
            root: Folder that the items' paths are relative to.
            items: They, where the source has not gathered them here.
            classes: Names of the classes; see `Scan`.
            splits: Names of the splits.
            fields: What the store holds beside key and image.
            mask_colors: Colour of each value of the masks, where their files hold colours.
            image_size: (height, width) of every image, where it is known; see `Scan`.
        """
        return Scan(
            format=name,
            root=root,
            items=self.items if items is None else items,
            classes=classes,
            splits=splits,
            fields=fields,
            mask_colors=mask_colors,
            rejects=self.rejects,
            annotation_rejects=self.annotation_rejects,
            ignored=self.ignored,
            notes=self.notes,
            choices=self.choices,
            image_size=image_size,
        )


def _reject(key: bytes, reason: str, place: str, part: str, split: str | None) -> Reject:
    place = place or readable_path(key)
    return Reject(key=key, path=place, reason=reason, part=part, split=split or "")
