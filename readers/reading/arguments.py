"""What the arguments of a dataset take."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, TypedDict

from readers.arguments import FLAG, FUNCTION, NAMES, TEXT, WHOLE, Takes
from readers.reading.view import ImageAs, Io
from readers.store.read_policy import ReadPolicy


class Settings(TypedDict, total=False):
    """Arguments of a dataset that do not change what kind of thing a sample is."""

    split: str | Sequence[str] | None
    fields: Iterable[str] | None
    image_as: ImageAs
    transform_field: str | None
    io: Io
    read_policy: ReadPolicy | None
    checks_files: bool
    storage_options: Mapping[str, Any] | None
    cache_dir: str | Path | None
    cache_limit: int | None
    cache_rate: int | None


def _path_hint(value: Any) -> str:
    if hasattr(value, "__getitem__") and hasattr(value, "view"):
        return "It is a dataset already"
    if isinstance(value, bytes):
        return f"As a text: {os.fsdecode(value)!r}"
    if isinstance(value, Iterable):
        return "Several: torch.utils.data.ConcatDataset([LMDBDataset(path) for path in paths])"
    return ""


RULES: dict[str, Takes] = {
    "path": Takes(
        "the folder of a store, a text or Path",
        lambda value: isinstance(value, (str, os.PathLike)),
        _path_hint,
    ),
    "split": Takes("the name of a split, or a list of them", NAMES.accepts).or_none(),
    "fields": NAMES.or_none(),
    "returns": Takes(
        "a list of names, in the order that they are to come in",
        lambda value: NAMES.accepts(value) and not isinstance(value, Set),
    ).or_none(),
    "image_as": TEXT,
    "transform": FUNCTION.or_none(),
    "transform_field": TEXT.or_none(),
    "io": TEXT,
    "read_policy": Takes(
        "a ReadPolicy, such as ReadPolicy(retry_count=9)",
        lambda value: isinstance(value, ReadPolicy),
    ).or_none(),
    "checks_files": FLAG,
    "storage_options": Takes(
        "settings by their names, such as {'anon': True}",
        lambda value: isinstance(value, Mapping),
    ).or_none(),
    "cache_dir": Takes(
        "a folder on a local disk, a text or Path",
        lambda value: isinstance(value, (str, os.PathLike)),
    ).or_none(),
    "cache_limit": WHOLE.or_none(),
    "cache_rate": WHOLE.or_none(),
}
