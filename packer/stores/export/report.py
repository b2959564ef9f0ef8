"""What an export will do, and what one did."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from packer.wording import Summarized, count_text, size_text


@dataclass(frozen=True, kw_only=True)
class ExportPlan(Summarized):
    """What an export would do.

    Attributes:
        store: The store.
        as_: The layout.
        sample_count: Samples.
        bytes: Of their records, which is about what the pictures take; of stores of raw pixels,
            which become PNG, it is more.
        losses: Fields of the store that the layout has no place for.
        notes: What else a user should know, a line each.
    """

    store: str
    as_: str
    sample_count: int
    bytes: int
    losses: list[str]
    notes: list[str]

    def as_dict(self) -> dict[str, Any]:
        """The plan by name, as `--json` prints it."""
        return asdict(self)

    def summary(self) -> str:
        """The same for a person."""
        count = count_text(self.sample_count, "sample")
        head = f"{self.store}: {count}, about {size_text(self.bytes)}, as {self.as_}"
        return "\n".join([*self.lines(), head])

    def lines(self) -> list[str]:
        """What to know before anything is written."""
        lost = [f"not carried by {self.as_}: {', '.join(self.losses)}"] if self.losses else []
        return [*lost, *self.notes]


@dataclass(frozen=True, kw_only=True)
class ExportReport:
    """A finished export.

    Attributes:
        path: The folder.
        store: What it was made of.
        as_: The layout.
        sample_count: Samples in it.
        file_count: Files of pictures, labels, archives and tables.
        bytes: Of these files.
        splits: Split name -> samples.
        losses: What was lost or changed, and how often, a line each.
        notes: What else a user should know, a line each.
        seconds: Wall time.
    """

    path: str
    store: str
    as_: str
    sample_count: int
    file_count: int
    bytes: int
    splits: dict[str, int]
    losses: list[str]
    notes: list[str]
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """The report by name, as `--json` prints it."""
        return asdict(self)

    def summary(self) -> str:
        """The same for a person."""
        lines = list(self.losses)
        lines.append(
            f"{self.path}: {count_text(self.sample_count, 'sample')} as {self.as_}, "
            f"{count_text(self.file_count, 'file')}, {size_text(self.bytes)}, {self.seconds:.1f} s"
        )
        return "\n".join(lines)
