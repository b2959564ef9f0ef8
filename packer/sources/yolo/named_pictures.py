"""Pictures that a YOLO data set names, by folder or in lists, as they are put into its splits."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from packer.errors import SourceError
from packer.files.text import read_listing
from packer.sources.only_split import is_other_split
from packer.sources.pairing import PictureIndex, split_path
from packer.sources.walk import Picture, Tree
from packer.sources.yolo.data_yaml import DataYaml
from packer.sources.yolo.labels import LabelFiles
from packer.sources.yolo.layout import Layout
from packer.sources.yolo.paths import ListedPaths
from packer.wording import count_text, readable_path


@dataclass
class NamedPictures:
    """Pictures of splits as they are collected.

    Attributes:
        base: Folder that everything is relative to.
        tree: Of `base`. Its findings take the lines of lists that lead to no picture.
        splits: Names of the splits, which pictures are put into by position.
        used: Paths of files that were read, or are not to be read as labels.
        index: Pictures of the tree; those that were put into a split are taken.
        order: Position of each picture's split, in the order in which they were named.
        is_listed: Whether a list names pictures, whose order counts then.
        again: How many pictures of a second split are in a first one, by the names of both.
    """

    base: Path
    tree: Tree
    splits: tuple[str, ...]
    used: set[bytes] = field(default_factory=set)
    index: PictureIndex = field(init=False)
    order: dict[Picture, int] = field(default_factory=dict)
    is_listed: bool = False
    again: dict[tuple[str, str], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.index = PictureIndex(self.tree)

    def add(self, picture: Picture, split: int) -> None:
        """Put a picture into a split, unless it is in one already."""
        before = self.order.setdefault(picture, split)
        if before != split:
            names = self.splits[split], self.splits[before]
            self.again[names] = self.again.get(names, 0) + 1
        self.index.take(picture)

    def layout(
        self,
        form: str,
        class_names: tuple[str, ...] | None,
        class_notes: list[str],
        data_yaml: DataYaml | None = None,
    ) -> Layout:
        """The data set, once all of its pictures are here.

        They stand in the order of the lists, or sorted where folders alone name them.
        """
        pictures = list(self.order.items())
        self.tree.findings.notes += [
            f"split {split} names {count_text(count, 'picture')} of split {before} again; each is "
            f"packed once, in {before}"
            for (split, before), count in self.again.items()
        ]
        self.tree.findings.notes += class_notes
        return Layout(
            form=form,
            base=self.base,
            tree=self.tree,
            index=self.index,
            labels=LabelFiles(self.tree, self.used),
            pictures=pictures if self.is_listed else sorted(pictures),
            splits=self.splits,
            class_names=class_names,
            data_yaml=data_yaml,
            used=self.used,
        )


def add_folder(named: NamedPictures, path: bytes, split: int) -> None:
    """All pictures in a folder and below it."""
    prefix = path + b"/" if path else b""
    for folder_path, folder in named.tree.folders.items():
        if folder_path == path or folder_path.startswith(prefix):
            for picture in folder.pictures:
                named.add(picture, split)


def add_list(
    named: NamedPictures,
    path: bytes,
    split: int,
    starts: list[bytes | None],
    wanted: str | None = None,
) -> None:
    """All pictures that a list names; lines that lead to none are rejects.

    So is a list that cannot be read, if it is of another split than the wanted one.

    Raises:
        SourceError: The list cannot be read.
    """
    findings = named.tree.findings
    mark = findings.mark()
    try:
        _add_lines(named, path, split, starts)
    except SourceError as error:
        if not is_other_split(named.splits[split], wanted):
            raise
        findings.refuse(b"", str(error), readable_path(path))
    findings.tag_split(mark, named.splits[split])


def _add_lines(named: NamedPictures, path: bytes, split: int, starts: list[bytes | None]) -> None:
    """The pictures of the lines of a list."""
    named.is_listed = True
    named.used.add(path)
    shown = readable_path(path)
    data = read_listing(named.base / os.fsdecode(path), shown)
    lines = [line.strip() for line in data.removeprefix(b"\xef\xbb\xbf").splitlines()]
    folders = [split_path(path)[0], *(start for start in starts if start is not None), b""]
    paths = ListedPaths([line for line in lines if line], folders, named.base, named.index)
    first_lines: dict[Picture, int] = {}
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        picture = paths.find(line)
        if picture is None:
            reason = f"there is no picture at {readable_path(line)!r} inside of the data"
        elif picture in first_lines:
            reason = f"listed twice (first in line {first_lines[picture]})"
        else:
            if not first_lines and paths.drop_count:
                beginning = readable_path(paths.dropped(line))
                named.tree.findings.notes.append(
                    f"{shown}: paths are taken without their start {beginning!r}"
                )
            first_lines[picture] = number
            named.add(picture, split)
            continue
        # A picture that is listed twice is stored, so the key belongs to its sample.
        key = b"" if picture is None else picture.path
        named.tree.findings.refuse(key, reason, f"{shown}, line {number}")
