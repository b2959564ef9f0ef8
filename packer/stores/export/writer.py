"""What the module of a layout offers: a writer of its files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, Protocol

from packer.stores.export.files import ExportFiles
from packer.stores.export.parts import Part, PartReport
from packer.stores.export.samples import Sample


class Writer(Protocol):
    """Writes the files of one layout. Several threads use it, each for a part of its own.

    Attributes:
        carried: Fields of the store that the layout has a place for. Others are lost, and counted.
        reads: Fields that it reads of each sample, besides the picture and those that are lost.
        changes: What it may have to change in a sample: a word, and the sentence that says it.
        notes: What else a user should know, a line each.
        names_by: What tells two pictures' files apart: their whole path, or their path without its
            extension. "key": pictures have no files of their own.
        holds_many: Whether a part is one file, of one split: an archive, a table.
    """

    carried: frozenset[str]
    reads: tuple[str, ...]
    changes: dict[str, str]
    notes: Sequence[str]
    names_by: Literal["path", "stem", "key"]
    holds_many: bool

    def stems(self, stem: bytes, split: str, label: int | None) -> Sequence[bytes]:
        """Where a picture may lie, without extension, the best place first.

        Args:
            stem: Its key without extension, safe as a path.
            split: Its split; empty where the store has none.
            label: Its class; None where pictures have none.
        """

    def write(self, part: Part, samples: Iterable[Sample], out: ExportFiles) -> None:
        """Write the files of some samples."""

    def finish(self, out: ExportFiles, reports: Iterable[PartReport]) -> None:
        """Write what is about all of them.

        Args:
            out: Takes the files.
            reports: Of all parts, in order; each time it is gone through they are read anew.
        """
