"""What a layout cannot carry: said before anything is written, and counted afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from packer.stores.export.job import Job
from packer.stores.export.pictures import IMAGE
from packer.stores.keys import KEY_FIELD
from packer.wording import count_text
from readers.store.schema import Field
from readers.store.shapes.polygons import Polygons, Runs

if TYPE_CHECKING:
    from packer.stores.export.writer import Writer

TURNED = "orientation"
RENAMED = "key"
"""What any layout may change: the name of a file, and what its picture is seen as."""

_ABOUT_BUILD = frozenset(("original_size", "transform"))
"""Of each sample: how its image was made of a raw picture that is not exported."""


def lost_fields(job: Job, writer: Writer) -> tuple[str, ...]:
    """Fields of a store that a layout has no place for, in their order."""
    kept = {KEY_FIELD, IMAGE, "split", *_ABOUT_BUILD, *writer.carried}
    return tuple(name for name in job.schema.names if name not in kept)


def count_lost(field: Field, value: Any) -> int:
    """How many values of a field are lost with a sample: objects, or 1; 0 where it says nothing."""
    if field.kind in ("mask", "image") or field.is_scalar:
        return 1
    if isinstance(value, Polygons):
        return sum(isinstance(outline, Runs) or bool(outline) for outline in value)
    if isinstance(value, np.ndarray):
        if value.dtype == bool:
            return int(value.sum())
        return len(value) if value.ndim else 1
    if isinstance(value, list):
        return sum(bool(inner) for inner in value)
    return int(bool(value))


def loss_lines(job: Job, writer: Writer, counts: Mapping[str, int]) -> list[str]:
    """What was lost or changed, and how often, a line each.

    Args:
        job: What was exported.
        writer: Of the layout.
        counts: How often each field was lost, and each thing changed.
    """
    lines = []
    for name in lost_fields(job, writer):
        count = counts.get(name, 0)
        if count:
            lines.append(f"not carried: {name} of {count_text(count, _unit_of(job, name))}")
    for what, text in writer.changes.items():
        if counts.get(what):
            lines.append(f"{count_text(counts[what], 'time')}: {text}")
    if counts.get(RENAMED):
        lines.append(
            f"{count_text(counts[RENAMED], 'picture')} with another path than the key: see "
            ".packer-keys.jsonl"
        )
    if counts.get(TURNED):
        lines.append(
            f"{count_text(counts[TURNED], 'picture')} whose file says how to turn it (EXIF): what "
            "is on it is about the picture as it is seen, so read it upright"
        )
    return lines


def _unit_of(job: Job, name: str) -> str:
    """What is counted of a lost field."""
    return "object" if name in job.object_names else "sample"
