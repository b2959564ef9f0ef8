"""A folder for each class, in one for each split: what torchvision's ImageFolder reads.

    out/train/cat/1.jpg     out/val/cat/7.jpg

A key that begins so already is the path as it is. Pictures without classes lie in the folders of
their splits, or as their keys say.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from packer.stores.export.files import ExportFiles
from packer.stores.export.job import Job
from packer.stores.export.names import safe_names
from packer.stores.export.parts import Part, PartReport
from packer.stores.export.samples import Sample
from packer.wording import names_text
from readers.store.splits import canonical_split


class FormatWriter:
    """Writes pictures into folders; see `packer.stores.export.writer.Writer`."""

    carried = frozenset(("label",))
    reads: tuple[str, ...] = ()
    names_by: Literal["path"] = "path"
    holds_many = False

    def __init__(self, job: Job) -> None:
        self._classes = safe_names(job.picture_classes)
        self._splits = job.split_files
        self._filled = [self._splits[split] for split in job.filled_splits]
        self.changes: dict[str, str] = {}
        self.notes = _notes(job, self._classes)

    def stems(self, stem: bytes, split: str, label: int | None) -> Sequence[bytes]:
        """In the folders of its split and class, but for those that the key begins with."""
        rest = stem.split(b"/")
        folders = [self._splits[split]] if split else []
        if label is not None:
            folders.append(self._classes[label] if self._classes else b"%d" % label)
        for folder in folders:
            if len(rest) > 1 and rest[0] == folder:
                rest = rest[1:]
        return [b"/".join([*folders, *rest])]

    def write(self, part: Part, samples: Iterable[Sample], out: ExportFiles) -> None:
        """Write the pictures."""
        for sample in samples:
            out.write(sample.path, sample.picture.data)

    def finish(self, out: ExportFiles, reports: Iterable[PartReport]) -> None:
        """Make the folders of classes without a picture: readers number classes by folders."""
        for split in self._filled or (b"",):
            for name in self._classes:
                out.folder(split + b"/" + name if split else name)


def _notes(job: Job, folders: Sequence[bytes]) -> list[str]:
    """What a reader of the folders takes otherwise than the store."""
    notes = []
    names = job.picture_classes
    odd = [name for name, folder in zip(names, folders, strict=True) if name.encode() != folder]
    if odd:
        notes.append(
            f"classes whose folders cannot be called so, written as in a URL: {names_text(odd)}"
        )
    if list(folders) != sorted(folders):
        notes.append(
            "readers number classes by the order of their names, which is not that of the store; "
            "to build with its numbers, give its classes with --classes"
        )
    if names:
        counts = job.store.manifest.statistics.get("class_counts") or []
        empty = [name for name, count in zip(names, counts, strict=False) if not count]
        notes += (
            [f"classes without a picture have an empty folder: {names_text(empty)}"]
            if empty
            else []
        )
    if names and not job.splits and all(canonical_split(name) for name in names):
        notes.append(f"classes that readers take for splits by their names: {names_text(names)}")
    return notes
