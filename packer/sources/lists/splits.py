"""Which split each picture of a list is of: by a column, the list itself, or the folders."""

from __future__ import annotations

import os
from collections.abc import Sequence

from packer.errors import SourceError
from packer.sources.lists.files import ListFile
from packer.sources.lists.rows import ListImage
from packer.sources.pairing import split_path
from packer.sources.sidecars import splits_by_folder
from packer.sources.splits import ordered_splits
from packer.wording import readable_path
from readers.store.splits import SPLITS_MAX


def _tell_splits(lists: Sequence[ListFile]) -> bool:
    return any(entry.split or entry.table.columns.split is not None for entry in lists)


def take_splits_of_folders(lists: Sequence[ListFile], images: Sequence[ListImage]) -> list[str]:
    """Give pictures the splits that their folders are called after, where lists tell none.

    Every layout takes them so, if all pictures lie in such folders. Notes say what was done.
    """
    if _tell_splits(lists):
        return []
    folders = {split_path(image.key)[0] for image in images}
    found = splits_by_folder(folders)
    if found:
        for image in images:
            image.split = found[split_path(image.key)[0]]
        return [f"splits are those of the folders: {', '.join(ordered_splits(found.values()))}"]
    named = sorted(folder for folder in folders if splits_by_folder([folder]))
    if not named:
        return []
    other = next(folder for folder in sorted(folders) if folder not in named)
    return [
        f"no splits: pictures lie in {readable_path(named[0])}/, but others in "
        f"{readable_path(other) or '.'}/. For splits, add a column called split"
    ]


def splits_of(lists: Sequence[ListFile], images: Sequence[ListImage]) -> tuple[str, ...]:
    """Names of the splits, if the lists or the folders tell any.

    Raises:
        SourceError: There are more than a store can have.
    """
    if not _tell_splits(lists) and not any(image.split for image in images):
        return ()
    splits = ordered_splits(image.split for image in images)
    if len(splits) > SPLITS_MAX:
        columns = lists[0].table.columns
        raise SourceError(
            f"{readable_path(os.fsencode(lists[0].table.path))}: column "
            f"{columns.names[columns.split or 0]!r} names {len(splits)} splits; at most "
            f"{SPLITS_MAX} are possible. Rename the column if it is not about splits."
        )
    return splits
