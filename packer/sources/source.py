"""What a source is, and the settings that sources take."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

from packer.items.raw_item import Scan

AUTO_FORMAT = "auto"


Task = Literal["detect", "segment", "pose", "obb"]
VocOrigin = Literal["auto", "0", "1"]


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """How raw data is to be read. The defaults are the command line's.

    Args:
        format: Name of a source, or "auto" to look at the data and decide.
        root: Folder that the paths of a list or annotation file are relative to, where they are not
            found beside it.
        classes: Class names in the order of their labels. None takes those of the raw data. A class
            of the data that is not among them is rejected, annotation by annotation; where classes
            are folders, their pictures are left out and counted.
        split: Take this split alone, by its name in the raw data or by its meaning (train, val,
            test). None takes all.
        task: What annotations are for. "detect" takes boxes alone, "segment" masks or objects with
            outlines, "pose" keypoints, "obb" the corners of turned boxes; what else objects have is
            left aside and counted. YOLO's lines of 9 numbers are turned boxes under "obb" and
            outlines under "segment". Data that has nothing for the task is refused. None takes all
            that objects have, and decides where it can.
        path_column: Name of the column of a list that names the pictures, by path, by file name or
            by its stem. None goes by the names of the columns, and of unusual ones by the values.
        label_column: Name of the column of a list that has the labels. None goes by the names.
        label_is_index: Labels of a list are positions in `classes`, not names.
        voc_origin: Which pixel Pascal VOC's coordinates count from. "auto" follows the official
            rule, 1, unless a coordinate of 0 proves otherwise.

    Raises:
        ValueError: A setting is not one of its values, a class is listed twice, or one column is to
            be path and label.
    """

    format: str = AUTO_FORMAT
    root: Path | None = None
    classes: tuple[str, ...] | None = None
    split: str | None = None
    task: Task | None = None
    path_column: str | None = None
    label_column: str | None = None
    label_is_index: bool = False
    voc_origin: VocOrigin = "auto"

    def __post_init__(self) -> None:
        for name, value, choices in (
            ("task", self.task, (None, *get_args(Task))),
            ("voc_origin", self.voc_origin, get_args(VocOrigin)),
        ):
            if value not in choices:
                known = ", ".join(str(choice) for choice in choices)
                raise ValueError(f"{name} must be one of {known}; got {value!r}")
        if self.path_column is not None and self.path_column == self.label_column:
            raise ValueError(
                f"path_column={self.path_column!r} and label_column={self.label_column!r} are one "
                "column; give the one that names the pictures, and the one that has the labels"
            )
        if self.classes is not None:
            object.__setattr__(self, "classes", tuple(self.classes))
            twice = sorted({name for name in self.classes if self.classes.count(name) > 1})
            if twice or not self.classes:
                raise ValueError(f"classes must be different names, at least one; got {twice}")

    def asked(self) -> dict[str, Any]:
        """The settings that were given, by name, as the manifest keeps them.

        The format is kept as what it was found to be, and a folder has no meaning elsewhere.
        """
        given = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name not in ("format", "root") and getattr(self, field.name) != field.default
        }
        if self.classes is not None:
            given["classes"] = list(self.classes)
        return given


class Source(Protocol):
    """One layout of raw data that can be read. A module with these two names is one.

    Attributes:
        name: What `--format` calls it.
    """

    name: str

    def scan(self, raw: Path, options: SourceOptions) -> Scan:
        """Find all raw items under `raw`, without reading a pixel.

        Raises:
            SourceError: The data is not of this layout.
        """
        ...
