"""Pictures without labels: in one folder, or in one folder a split."""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path

from packer.items.findings import Findings
from packer.items.raw_item import RawItem, Scan
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
    found = Findings(rejects=tree.rejects, ignored=tree.ignored)
    for path, folder in tree.folders.items():
        if splits and not path:
            for picture in folder.pictures:
                tree.ignored.add(BESIDE_SPLITS, readable_path(picture.path))
            continue
        values = (
            {"split": splits.index(path.split(b"/")[0])}
            if path and splits and folder.pictures
            else {}
        )
        found.items += [
            RawItem(p.path, p.path, p.byte_count, p.mtime_ns, values) for p in folder.pictures
        ]
    found.items.sort(key=attrgetter("key"))
    split_names = tuple(readable_path(split) for split in splits)
    if BESIDE_SPLITS in tree.ignored.counts:
        examples = ", ".join(tree.ignored.examples[BESIDE_SPLITS])
        count = tree.ignored.counts[BESIDE_SPLITS]
        found.notes.append(
            f"{count} not packed, {BESIDE_SPLITS}: {examples}{', ...' if count > 5 else ''}"
        )
    if options.format == name:
        found.notes += sibling_notes(raw, tree)
    return found.as_scan(
        name,
        raw,
        splits=split_names,
        fields=(Field(name="split", kind="scalar", dtype="uint8", names=split_names),)
        if splits
        else (),
    )
