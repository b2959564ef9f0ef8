"""The raw item of a picture that is a file of its own."""

from __future__ import annotations

from typing import Any

from packer.items.raw_item import RawFile, RawItem
from packer.sources.walk import Picture


def picture_item(
    picture: Picture,
    values: dict[str, Any],
    annotations: bytes = b"",
    masks: dict[str, RawFile] | None = None,
) -> RawItem:
    """The raw item of a picture, whose path is its key as well.

    Args:
        picture: From a walk.
        values: Value of each field that is known outright, by name.
        annotations: Objects on it, from `pack_annotations`; empty when the source has none.
        masks: File of each mask, by field name.
    """
    return RawItem(
        picture.path,
        picture.path,
        picture.byte_count,
        picture.mtime_ns,
        values,
        annotations,
        masks or {},
    )
