"""What a source is, and the settings that sources take."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from packer.sources.items import Scan

AUTO_FORMAT = "auto"


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """How raw data is to be read. The defaults are the command line's.

    Args:
        format: Name of a source, or "auto" to look at the data and decide.
        root: Folder that the paths of a list are relative to, where they are not found beside the
            list. Only sources that read a list take it.
    """

    format: str = AUTO_FORMAT
    root: Path | None = None


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
