"""Settings of `SourceOptions` that only some raw data has a use for: honoured, or refused by name.

One rule for all of them: a setting that was given and changes nothing is an error, since whoever
gave it meant something by it. What a layout has no use for is refused before its data is read; what
this data has no use for, as soon as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args

from packer.errors import SourceError
from packer.items.raw_item import Scan
from packer.sources.layouts import LAYOUTS, SourceSetting
from packer.sources.source import SourceOptions

DATASET_TAKES: tuple[SourceSetting, ...] = ("classes",)
"""What the source of torch Datasets, which is not among the layouts, has a use for."""


@dataclass(frozen=True, kw_only=True)
class _Use:
    """What one setting is about.

    Attributes:
        does: What it does, as a message says it after its name.
        lacking: What data lacks that has no use for it.
        is_used: Whether the data of a scan has a use for it; None where each layout that takes it
            has one.
    """

    does: str
    lacking: str
    is_used: Callable[[Scan], bool] | None = None


_USES: dict[SourceSetting, _Use] = {
    "root": _Use(
        does="is the folder of pictures that files name by path",
        lacking="names no pictures by path",
    ),
    "classes": _Use(
        does="names the classes",
        lacking="has no classes",
        is_used=lambda scan: bool(scan.classes),
    ),
    "path_column": _Use(
        does="is the column of a list that names the pictures",
        lacking="has no columns",
    ),
    "label_column": _Use(
        does="is the column of a list that has the labels",
        lacking="has no columns",
    ),
    "label_is_index": _Use(
        does="is about labels in a list",
        lacking="has no labels in a list",
        is_used=lambda scan: any(field.kind == "label" for field in scan.fields),
    ),
    "voc_origin": _Use(
        does="is about the coordinates of Pascal VOC",
        lacking="has no coordinates of Pascal VOC",
        is_used=lambda scan: any(field.name == "boxes" for field in scan.fields),
    ),
}
assert set(_USES) == set(get_args(SourceSetting))


def check_taken(format_name: str, options: SourceOptions, shown: str) -> None:
    """Refuse settings that no data of a format has a use for, before it is read.

    Args:
        format_name: A layout, or what the source of torch Datasets is called.
        options: What was asked for.
        shown: The raw data, as a message names it.

    Raises:
        SourceError: One of them was given.
    """
    takes = LAYOUTS[format_name].takes if format_name in LAYOUTS else DATASET_TAKES
    for name, use in _USES.items():
        if name in takes or not _is_given(options, name):
            continue
        having = sorted(other for other, layout in LAYOUTS.items() if name in layout.takes)
        known = f"; those that do are {', '.join(having)}" if len(having) < len(LAYOUTS) / 2 else ""
        raise SourceError(
            f"{shown}: {_given(options, name)} {use.does}, and format {format_name!r} "
            f"{use.lacking}. Leave it out, or choose another --format{known}."
        )


def check_used(scan: Scan, options: SourceOptions, shown: str) -> None:
    """Refuse settings that the data of a scan had no use for, though others of its layout have.

    Args:
        scan: Of the data.
        options: What was asked for.
        shown: The raw data, as a message names it.

    Raises:
        SourceError: One of them was given.
    """
    if not scan.items:
        return  # What was rejected may be all that had a use for it.
    found = ", ".join(field.name for field in scan.fields) or "pictures alone"
    for name, use in _USES.items():
        if use.is_used is None or use.is_used(scan) or not _is_given(options, name):
            continue
        raise SourceError(
            f"{shown}: {_given(options, name)} {use.does}, and this data, read as {scan.format}, "
            f"{use.lacking}: it gives {found}. Leave it out, or check the path and --format."
        )


def _is_given(options: SourceOptions, name: SourceSetting) -> bool:
    default: Any = getattr(SourceOptions, name)
    return bool(getattr(options, name) != default)


def _given(options: SourceOptions, name: SourceSetting) -> str:
    """The setting as a message begins with it."""
    option = f"--{name.replace('_', '-')}"
    value = getattr(options, name)
    if name == "classes":
        shown = ",".join(value[:3]) + (",..." if len(value) > 3 else "")
        return f"{option} {shown}"
    return option if value is True else f"{option} {value}"
