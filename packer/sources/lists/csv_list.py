"""CSV and TSV files that list pictures: with a label, labels, boxes, a mask or a caption each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from packer.items.raw_item import Scan
from packer.sources.layouts import LAYOUTS
from packer.sources.lists.csv_table import csv_table
from packer.sources.lists.files import find_lists
from packer.sources.lists.guess import guess_columns
from packer.sources.lists.named import with_named_columns
from packer.sources.lists.scan import scan_lists
from packer.sources.source import SourceOptions

name = "csv"

LIST_EXTENSIONS = LAYOUTS[name].endings


def scan(raw: Path, options: SourceOptions) -> Scan:
    """The pictures that a CSV or TSV file names, or one for each split; see `scan_lists`.

    Args:
        raw: The list, or a folder with exactly one, or one for each split.
        options: `root` is where pictures are that do not lie beside the list.

    Raises:
        SourceError: There is no list, or more than one, or it is not clear what it says.
    """
    lists = find_lists(
        raw,
        LIST_EXTENSIONS,
        lambda path: with_named_columns(csv_table(path), options),
        ".csv or .tsv file that lists pictures",
        wanted=options.split,
    )
    guess = guess_columns(lists[0].table.path, options) if len(lists) == 1 else None
    if guess is None or lists[0].folder:
        return scan_lists(name, raw, lists, options, extensions=LIST_EXTENSIONS)
    table = with_named_columns(replace(lists[0].table, columns=guess.columns), options)
    found = scan_lists(
        name,
        raw,
        [lists[0]._replace(table=table)],
        options,
        inside=guess.folders,
        extensions=LIST_EXTENSIONS,
    )
    found.notes.insert(0, guess.note)
    return found
