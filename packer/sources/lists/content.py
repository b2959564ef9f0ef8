"""What lists of pictures hold, decided by the names of their columns; see `scan`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from packer.errors import SourceError
from packer.files.start import content_problem
from packer.sources.lists.columns import LABEL_COLUMNS, PATH_COLUMNS
from packer.sources.lists.files import ListFile
from packer.sources.lists.flags import flag_columns
from packer.sources.lists.named import lacking_text
from packer.sources.lists.objects import label_position
from packer.sources.lists.rows import Content
from packer.sources.only_split import is_other_split
from packer.sources.source import SourceOptions
from packer.wording import readable_path
from readers.store.pictures.signatures import START_BYTES
from readers.store.wording import few_text


@dataclass
class ReadableLists:
    """Lists that hold the same.

    Attributes:
        content: What they hold.
        lists: In their order.
        flags: Of each, its columns of classes.
        left: Lists of splits that were not asked for, which cannot be read with the others, and
            why.
    """

    content: Content
    lists: list[ListFile] = field(default_factory=list)
    flags: list[dict[str, int]] = field(default_factory=list)
    left: list[tuple[ListFile, str]] = field(default_factory=list)


def readable_lists(lists: Sequence[ListFile], options: SourceOptions) -> ReadableLists:
    """What the lists hold, all the same, but for those of other splits than `options.split`.

    Raises:
        SourceError: They hold different things, or something that would be dropped, or nothing.
    """
    # Those that were asked for decide: `test.csv` may lack the labels that `train.csv` has.
    in_turn = sorted(lists, key=lambda entry: is_other_split(entry.split, options.split))
    found: ReadableLists | None = None
    for entry in in_turn:
        try:
            flags = flag_columns(entry.table)
            content = _content_of(entry, flags, options)
            found = found or ReadableLists(content)
            if content != found.content:
                raise SourceError(
                    f"{entry.shown} holds {_CONTENT_TEXT[content]}, and {found.lists[0].shown} "
                    f"{_CONTENT_TEXT[found.content]}; lists of splits must have the same columns. "
                    "Give the path of one list instead."
                )
        except SourceError as error:
            if found is None or not is_other_split(entry.split, options.split):
                raise
            found.left.append((entry, str(error)))
            continue
        found.lists.append(entry)
        found.flags.append(flags)
    assert found is not None
    order = sorted(range(len(found.lists)), key=lambda at: lists.index(found.lists[at]))
    found.lists = [found.lists[at] for at in order]
    found.flags = [found.flags[at] for at in order]
    return found


_CONTENT_TEXT: dict[Content, str] = {
    "objects": "boxes",
    "labels": "lists of labels",
    "label": "one label a picture",
    "flags": "one column for each class",
    "pictures": "no labels",
}


def _content_of(entry: ListFile, flags: dict[str, int], options: SourceOptions) -> Content:
    columns = entry.table.columns
    place = readable_path(os.fsencode(entry.table.path))
    header = few_text(columns.names, 20, repr) or "nothing"
    lacking = lacking_text(columns, options)
    if lacking:
        raise SourceError(f"{place}: {lacking}")
    if columns.path is None:
        with open(entry.table.path, "rb") as file:
            problem = content_problem(file.read(START_BYTES))
        if problem:
            raise SourceError(f"{place}: {problem}; expected a list of pictures.")
        cells = [column for column in columns.names if column.endswith(".bytes")]
        way_out = "Name the column with --path-column, or add a header line."
        if cells:
            way_out = f"If {cells[0]!r} holds the pictures themselves, give --format hf."
        raise SourceError(
            f"{place}: the header has {header}; expected a column of paths, called one of "
            f"{', '.join(PATH_COLUMNS)}. {way_out}"
        )
    if columns.outlines:
        raise SourceError(
            f"{place}: the columns {', '.join(map(repr, columns.outlines))} hold outlines, which "
            "lists have in no common form; expected paths of mask files in a column called "
            "'mask_path'. Without these columns, the rest of the list is read."
        )
    if columns.box_problem:
        raise SourceError(
            f"{place}: {columns.box_problem}; expected xmin, ymin, xmax and ymax in any order, or "
            "x, y, w and h, or one column called bbox_xyxy or bbox_xywh. Rename the columns."
        )
    if columns.box is not None:
        if label_position(columns) is None and (
            options.classes is None or len(options.classes) != 1
        ):
            raise SourceError(
                f"{place}: the header has {header}; expected a column with the class of each box, "
                f"called one of {', '.join(LABEL_COLUMNS)}. Name it with --label-column; or, if "
                "all boxes are of one class, give its name as --classes."
            )
        return "objects"
    if columns.label is not None:
        return "label"
    if columns.labels is not None:
        return "labels"
    if flags:
        return "flags"
    if columns.mask is None and columns.caption is None:
        raise SourceError(
            f"{place}: the header has {header}; expected a column of labels, called one of "
            f"{', '.join(LABEL_COLUMNS)}, or two columns or more that hold only 0 and 1, one for "
            "each class. Name the column with --label-column. To pack the pictures unlabelled, "
            "give their folder and --format flat."
        )
    return "pictures"
