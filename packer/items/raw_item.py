"""What every source yields: light raw items, and an account of all that it met."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from packer.wording import readable_path
from readers.store.schema import Field


class RawFile(msgspec.Struct, frozen=True, array_like=True):
    """A file as the source found it.

    Attributes:
        path: Relative to the source's root, or absolute, as bytes.
        byte_count: Size of the file.
        mtime_ns: When it was last changed.
    """

    path: bytes
    byte_count: int
    mtime_ns: int


MEMBER_BYTES_MAX = 2**31 - 1
"""No decoder takes a larger picture file. The build's own limit is far lower:
`packer.files.sizes`."""


class Member(msgspec.Struct, frozen=True, array_like=True):
    """Where an image lies inside a file that holds many.

    Attributes:
        container: What the file is: a name of `packer.raw.containers.CONTAINERS`.
        file_byte_count: Size of the file. The item's own `byte_count` is that of the image.
        position: Which image: an offset in bytes, or a row or record from 0; as the kind has it.
        name: Name of the member or column, where there is one.
    """

    container: str
    file_byte_count: int
    position: int = 0
    name: str = ""


class RawItem(msgspec.Struct, frozen=True, array_like=True):
    """One image as the source found it: a path and annotations, no pixels.

    Attributes:
        key: Identity of the sample: its path relative to the raw folder, POSIX form, as the bytes
            that the file system holds (`os.fsencode`), since a name need not be UTF-8.
        path: File to read, relative to the source's root, or absolute, as bytes.
        byte_count: Size of the image's file, or of the image where the file holds many.
        mtime_ns: When the file was last changed.
        values: Value of each field that the source knows outright, by name: label, split, image_id,
            caption. Numbers, text, lists and dicts, as the field's kind wants them.
        annotations: Objects on the image, from `pack_annotations`; empty when the source has none
            (an image without objects has an empty list of them, which is not empty bytes).
        masks: File of each mask, by field name.
        member: Where in `path` the image lies, when that is not the image's own file.
    """

    key: bytes
    path: bytes
    byte_count: int
    mtime_ns: int
    values: dict[str, Any] = {}
    annotations: bytes = b""
    masks: dict[str, RawFile] = {}
    member: Member | None = None


def item_place(item: RawItem) -> str:
    """Where the picture of an item is, as a person would write it; of an archive, which member."""
    path = readable_path(item.path)
    return path if item.member is None else f"{path}, {readable_path(item.key)}"


class Reject(msgspec.Struct, frozen=True, kw_only=True):
    """A raw item, an annotation of one, or a part of an annotation that was not packed, and why.

    Attributes:
        key: Key that its sample would have had, or has, as bytes; empty when it is not known.
        path: Where it is, as a person would write it (`list.csv, line 7` for a row).
        reason: Why it was not packed.
        part: Which part of an annotation was left out ("outline", "keypoints", "box",
            "attributes"), where the annotation itself is packed without it. Empty: all of it.
        split: Split that it is of, as the raw data calls it; empty when the source does not know.
    """

    key: bytes
    path: str
    reason: str
    part: str = ""
    split: str = ""


def tag_split(rejects: list[Reject], first: int, split: str | None) -> None:
    """Say of which split the rejects from a position on are, where that is not said yet."""
    if split:
        rejects[first:] = [
            reject if reject.split else msgspec.structs.replace(reject, split=split)
            for reject in rejects[first:]
        ]


_ALIKE_MAX = 50
"""How many ignored files of a folder and a kind are remembered by name."""


@dataclass
class AlikeFiles:
    """Ignored files of one reason, folder and extension: how many, and the first by path."""

    reason: str
    extension: str
    count: int = 0
    paths: list[str] = field(default_factory=list)


@dataclass
class Ignored:
    """Files that are no raw items, by reason: how many, and the first few by name."""

    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)
    _alike: dict[tuple[str, str, str], AlikeFiles] = field(default_factory=dict, compare=False)

    @property
    def groups(self) -> list[AlikeFiles]:
        """The files by reason, folder and extension."""
        return list(self._alike.values())

    def add(self, reason: str, path: str) -> None:
        """Count one more file, remembering the first five of each reason."""
        folder, _, name = path.rpartition("/")
        extension = os.path.splitext(name)[1].lower()
        alike = self._alike.get((reason, folder, extension))
        if alike is None:
            alike = AlikeFiles(reason, extension)
            self._alike[reason, folder, extension] = alike
        alike.count += 1
        if alike.count <= _ALIKE_MAX:
            alike.paths.append(path)
        self.counts[reason] = self.counts.get(reason, 0) + 1
        names = self.examples.setdefault(reason, [])
        if len(names) < 5:
            names.append(path)

    @property
    def total(self) -> int:
        """How many files in all."""
        return sum(self.counts.values())


def only_size(sizes: Iterable[tuple[int, int] | None]) -> tuple[int, int] | None:
    """The (height, width) that all images have; None where they differ or one is not known."""
    found = set(sizes)
    return found.pop() if len(found) == 1 else None


@dataclass(frozen=True, kw_only=True)
class Scan:
    """All that a source found under a raw path.

    Attributes:
        format: Name of the source.
        root: Folder that the items' paths are relative to.
        items: In the order of the store; a list, or made when asked for: see
            `packer.items.item_columns`.
        classes: Class names; a label is a position in it. Empty without labels.
        splits: Split names as the raw data has them; a `split` value is a position in it.
        fields: What the store holds beside key, image, original_size and transform.
        mask_colors: Colour of each value of the masks, where their files hold colours.
        rejects: Raw items that the source itself had to refuse.
        annotation_rejects: Annotations that the source itself had to refuse. They are not among the
            objects of `items`; those of which only a part was refused are.
        ignored: Files that are no raw items.
        notes: One line each: what was seen, chosen or odd.
        choices: What the source decided where the data leaves it open, by name; kept in the
            manifest: `{"voc_origin": "1"}`.
        options: What the source was asked for, `SourceOptions.asked`; kept in the manifest.
        image_size: (height, width) of every image, upright, where the source knows that all have
            one.
    """

    format: str
    root: Path
    items: Sequence[RawItem]
    classes: tuple[str, ...] = ()
    splits: tuple[str, ...] = ()
    fields: tuple[Field, ...] = ()
    mask_colors: tuple[tuple[int, int, int], ...] = ()
    rejects: list[Reject] = field(default_factory=list)
    annotation_rejects: list[Reject] = field(default_factory=list)
    ignored: Ignored = field(default_factory=Ignored)
    notes: list[str] = field(default_factory=list)
    choices: dict[str, str] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    image_size: tuple[int, int] | None = None
