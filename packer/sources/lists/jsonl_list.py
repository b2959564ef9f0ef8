"""JSON lines files that list pictures, also as `metadata.jsonl` beside them (Hugging Face)."""

from __future__ import annotations

from pathlib import Path

from packer.items.raw_item import Scan
from packer.sources.layouts import LAYOUTS
from packer.sources.lists.files import find_lists
from packer.sources.lists.jsonl_table import jsonl_table
from packer.sources.lists.named import with_named_columns
from packer.sources.lists.scan import scan_lists
from packer.sources.source import SourceOptions

name = "jsonl"

LIST_EXTENSIONS = LAYOUTS[name].endings


def scan(raw: Path, options: SourceOptions) -> Scan:
    """The pictures that a JSON lines file names, or one for each split; see `scan_lists`.

    Args:
        raw: The list, or a folder with exactly one, or one for each split.
        options: `root` is where pictures are that do not lie beside the list.

    Raises:
        SourceError: There is no list, or more than one, or it is not clear what it says.
    """
    lists = find_lists(
        raw,
        LIST_EXTENSIONS,
        lambda path: with_named_columns(jsonl_table(path), options),
        ".jsonl file that lists pictures",
        wanted=options.split,
    )
    return scan_lists(name, raw, lists, options, extensions=LIST_EXTENSIONS)
