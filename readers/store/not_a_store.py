"""What a path is that is not a store, by what is there: words for errors."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path

from readers.store.layout import MANIFEST_NAME

_LOOKED_AT_MAX = 1000
"""Entries of a folder; raw data may have millions."""

_PICTURES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
"""Names of the usual kinds."""


def hint_for_file(path: Path) -> str:
    """What to do about a file that is given for a store."""
    if (path.parent / MANIFEST_NAME).is_file():
        return f"It lies in one: give its folder, {path.parent}"
    if path.suffix.lower() in _PICTURES:
        folder = path.parent
        return (
            "It is named like a picture, so it is raw data. Build a store of its folder and open "
            f"that: packer build {folder} {os.path.abspath(folder)}.lmdb"
        )
    return f"If it is raw data, build a store of it: packer build {path} {path.stem}.lmdb"


def hint_for_folder(path: Path) -> str:
    """What a folder without a manifest is, and what to do about it."""
    try:
        with os.scandir(path) as entries:
            found = [Path(entry.path) for entry in islice(entries, _LOOKED_AT_MAX)]
    except OSError as error:
        return f"What is in it cannot be seen: {error.strerror}"
    if not found:
        return "It is empty. Copy the store again, or build it: packer build RAW " + str(path)
    if any(one.name.startswith("shard-") and one.suffix == ".lmdb" for one in found):
        return (
            "It has shards, so its copy did not finish. Copy it again, the manifest last, or build "
            f"it: packer build RAW {path}"
        )
    stores = sorted(one for one in found if (one / MANIFEST_NAME).is_file())
    if stores:
        more = f" (and {len(stores) - 1} more)" if len(stores) > 1 else ""
        return f"A store lies in it: {stores[0]}{more}"
    name = f"{os.path.abspath(path)}.lmdb"
    return (
        "It has no shards either, so it may be raw data. Build a store of it and open that: "
        f"packer build {path} {name}"
    )
