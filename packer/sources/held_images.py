"""Images that one file holds many of, with a label each: what maps and stores of others come to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from packer.files.bare_pixels import PixelShape
from packer.items.raw_item import Member, RawFile, RawItem, Scan
from packer.sources.container_files import ContainerFiles, splits_of_paths
from packer.sources.source import SourceOptions
from packer.sources.splits import ordered_splits, split_field
from packer.sources.text_labels import TextLabels
from packer.wording import readable_path
from readers.store.schema import Field


@dataclass(kw_only=True, slots=True)
class HeldImage:
    """One image in a file.

    Attributes:
        file: The file.
        key: Key of its sample.
        position: Where it begins in the file.
        byte_count: Its bytes.
        shape: How its pixels lie; None for a picture file.
        label: Its class as the file has it, a name or a number; None where it has none.
        values: Value of each other field; None where there are none.
    """

    file: RawFile
    key: bytes
    position: int
    byte_count: int
    shape: PixelShape | None = None
    label: str | None = None
    values: dict[str, Any] | None = None

    @property
    def member(self) -> Member:
        """Where the image lies."""
        container, name = ("range", "") if self.shape is None else ("pixels", self.shape.text)
        return Member(container, self.file.byte_count, self.position, name)

    def set_value(self, name: str, value: Any) -> None:
        """Note the value of a field."""
        self.values = {**(self.values or {}), name: value}

    def item(self, values: dict[str, Any]) -> RawItem:
        """Its raw item, with these values beside its own."""
        if self.values is not None:
            values = {**self.values, **values}
        file = self.file
        return RawItem(
            self.key, file.path, self.byte_count, file.mtime_ns, values, member=self.member
        )


def pack_held(
    format_name: str,
    found: ContainerFiles,
    images: Sequence[HeldImage],
    options: SourceOptions,
    *,
    fields: Iterable[Field] = (),
    class_names: tuple[str, ...] = (),
) -> Scan:
    """The scan of the images, in their order; a split where the path of each file speaks of one.

    Where some have labels, those that have none, or a number below 0, are rejected.

    Args:
        format_name: The source's name.
        found: The files, and what was met in and beside them.
        images: Of all files.
        options: `classes` and `label_is_index` say what labels mean.
        fields: Those of `HeldImage.values`.
        class_names: Names of the classes by the data itself, where labels are numbers.
    """
    findings = found.findings
    splits_by_path, notes = splits_of_paths(dict.fromkeys(image.file.path for image in images))
    splits = ordered_splits(splits_by_path.values())
    texts = {image.label for image in images if image.label is not None}
    no_labels = {text for text in texts if text.startswith("-") and text[1:].isdecimal()}
    labels = None
    if texts:
        if options.classes is None and class_names and all(map(str.isdecimal, texts - no_labels)):
            options = replace(options, classes=class_names, label_is_index=True)
        labels = TextLabels(texts - no_labels, options)
        findings.notes += labels.notes
    # One dict for all images of a label, which nobody changes.
    values_of: dict[tuple[int | None, str | None], dict[str, Any]] = {}
    for image in images:
        split = splits_by_path.get(image.file.path)
        label: int | None = None
        if labels is not None:
            problem = "no label, which other images here have"
            if image.label in no_labels:
                problem = f"label {image.label}, the mark of no label"
            elif image.label is not None:
                label = labels.label(image.label)
                problem = labels.problem(image.label)
            if label is None:
                place = f"{readable_path(image.file.path)}, {readable_path(image.key)}"
                findings.refuse(image.key, problem, place, split)
                continue
        shared = values_of.get((label, split))
        if shared is None:
            shared = {} if label is None else {"label": label}
            if split is not None:
                shared["split"] = splits.index(split)
            values_of[label, split] = shared
        findings.items.append(image.item(shared))
    findings.notes += notes
    names = labels.classes.names if labels is not None else ()
    all_fields = [Field(name="label", kind="label", dtype="int64", names=names)] if names else []
    all_fields += fields
    all_fields += [split_field(splits)] if splits else []
    return findings.as_scan(
        format_name, found.root, classes=names, splits=splits, fields=tuple(all_fields)
    )
