"""Pictures without labels: in one folder, or in one folder a split."""

from __future__ import annotations

from pathlib import Path

from packer.items.item_columns import FileItems
from packer.items.raw_item import Scan
from packer.sources.imagefolder import sibling_notes, split_folders
from packer.sources.source import SourceOptions
from packer.sources.walk import walk
from packer.wording import readable_path
from readers.store.schema import Field

name = "flat"

BESIDE_SPLITS = "in no split: lies beside split folders"


def scan(raw: Path, options: SourceOptions) -> Scan:
    """Every picture under a folder, at any depth, unlabelled.

    The level-1 folders are splits if each one that holds pictures has the name of a split.
    Pictures that then lie in no split are ignored, by reason, and a note says so.
    """
    tree = walk(raw)
    splits = split_folders(tree.contents(1))
    found = tree.findings
    for path, folder in tree.folders.items():
        if splits and not path:
            found.ignore(BESIDE_SPLITS, (picture.path for picture in folder.pictures))
    # One dict for all items of a split, which nobody changes.
    values = {split: {"split": number} for number, split in enumerate(splits)}
    items = FileItems(tree.table)
    for path, first, end in tree.runs():
        if not splits:
            items.add(path, first, end, {})
        elif path:
            items.add(path, first, end, values[path.split(b"/")[0]])
    split_names = tuple(readable_path(split) for split in splits)
    found.note_ignored(BESIDE_SPLITS)
    if options.format == name:
        found.notes += sibling_notes(raw, tree)
    return found.as_scan(
        name,
        raw,
        items=items,
        splits=split_names,
        fields=(Field(name="split", kind="scalar", dtype="uint8", names=split_names),)
        if splits
        else (),
    )
