"""What lists of pictures say about the layout: CSV, TSV, JSON lines, text."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

from packer.errors import SourceError
from packer.sources.detection.found import (
    FILES_MAX,
    MENTIONED,
    STRUCTURAL,
    TABULAR,
    Evidence,
)
from packer.sources.detection.look import NAMES_MAX, Look, shown_names
from packer.sources.detection.meaning import tells_more
from packer.sources.detection.text_files import mask_lists
from packer.sources.layouts import LAYOUTS
from packer.sources.lists import txt_list
from packer.sources.lists.columns import PATH_COLUMNS, Columns
from packer.sources.lists.csv_table import csv_table, read_columns, read_rows
from packer.sources.lists.files import find_lists, split_in_name
from packer.sources.lists.guess import guess_columns
from packer.sources.lists.named import named_columns, with_named_columns
from packer.sources.lists.open_images import BOX_COLUMNS
from packer.sources.lists.pictures import is_there, picture_folders
from packer.sources.lists.table import Table
from packer.sources.only_split import is_other_split
from packer.sources.source import SourceOptions
from packer.sources.splits import are_all_splits
from packer.wording import readable_path
from readers.store.splits import canonical_split

_PIXEL_COLUMNS_LEAST = 100


def csv_lists(look: Look, options: SourceOptions) -> Iterator[Evidence]:
    """Lists that say something about pictures, and tables of other kinds.

    Raises:
        SourceError: A list cannot be read.
    """
    readable: list[tuple[bytes, Path, Columns]] = []
    guessed: list[bytes] = []
    for path in look.files(*(e.encode() for e in LAYOUTS["csv"].endings))[:FILES_MAX]:
        list_path = Path(os.fsdecode(os.path.join(look.root, path)))
        try:
            columns = named_columns(read_columns(list_path), options)
        except SourceError:
            split = split_in_name(list_path) or list_path.parent.name
            if canonical_split(split) is not None and is_other_split(split, options.split):
                continue
            raise
        seen = f"{readable_path(path)}: columns {', '.join(map(repr, columns.names[:8]))}"
        lower = {column.lower() for column in columns.names}
        may_be_guessed = columns.path is None or options.path_column in columns.names
        if is_open_images(columns.names):
            yield Evidence(format="open-images", score=STRUCTURAL, seen=seen)
        elif (
            may_be_guessed
            and look.has_pictures
            and b"/" not in path
            and guess_columns(list_path, options) is not None
        ):
            guessed.append(path)
        elif columns.path is None:
            if not look.has_pictures and len(columns.names) > _PIXEL_COLUMNS_LEAST:
                seen = f"{readable_path(path)} has {len(columns.names)} columns, and no pictures"
                yield Evidence(format="csv-pixels", score=STRUCTURAL, seen=seen)
        elif columns.says_something or _has_flags(list_path, columns):
            readable.append((path, list_path, columns))
        elif {"imageid", "labelname"} <= lower:
            # Image-level labels of Open Images lie beside the boxes.
            continue
        elif _is_telling(list_path, columns):
            yield Evidence(format="csv-other", score=TABULAR, seen=seen)
    if len(readable) == 1:
        yield _one_list(*readable[0], look, options)
    elif not readable and len(guessed) == 1:
        guess = guess_columns(Path(os.fsdecode(os.path.join(look.root, guessed[0]))), options)
        assert guess is not None
        seen = f"{readable_path(guessed[0])}: {guess.note}"
        yield Evidence(format="csv", score=TABULAR, seen=seen)
    elif readable:
        paths = [path for path, _, _ in readable]
        read = partial(_named_csv_table, options)
        yield _several_lists("csv", paths, look, LAYOUTS["csv"].endings, read)


def _named_csv_table(options: SourceOptions, path: Path) -> Table:
    return with_named_columns(csv_table(path), options)


def is_open_images(names: Iterable[str]) -> bool:
    """Whether the columns are those of Open Images' boxes."""
    return {name.lower() for name in BOX_COLUMNS} <= {name.lower() for name in names}


def _is_telling(list_path: Path, columns: Columns) -> bool:
    """Whether a list says more of its pictures than their sums, sizes and origins."""
    rows = [row for _, row in islice(read_rows(list_path, columns.delimiter), NAMES_MAX)]
    return any(
        tells_more(name, [row[n] for row in rows if n < len(row)])
        for n, name in enumerate(columns.names)
        if n != columns.path
    )


def _has_flags(list_path: Path, columns: Columns) -> bool:
    """Whether at least two columns of the first row are 0 or 1: a class each."""
    first = next(read_rows(list_path, columns.delimiter), (0, []))[1]
    return sum(value.strip() in ("0", "1", "-1") for value in first) >= 2


def jsonl_lists(look: Look, options: SourceOptions) -> Iterator[Evidence]:
    """JSON lines whose first names a picture."""
    extensions = tuple(extension.encode() for extension in LAYOUTS["jsonl"].endings)
    for path in look.files(*extensions)[:FILES_MAX]:
        first = look.head(path).lstrip().split("\n")[0]
        named = [*PATH_COLUMNS, *filter(None, [options.path_column])]
        if any(f'"{column}"' in first for column in named):
            seen = f"{readable_path(path)} names a picture in each line"
            yield Evidence(
                format="jsonl", score=TABULAR, seen=seen, problem=_problem_of_place(path)
            )


def txt_lists(look: Look, options: SourceOptions) -> Iterator[Evidence]:
    """Text files that name a picture in each line, and perhaps a label."""
    root = Path(os.fsdecode(look.root))
    of_masks = mask_lists(look)
    names = [n for n in look.listings[0].files if n.lower().endswith(b".txt") and n not in of_masks]
    found = [n for n in names[:FILES_MAX] if txt_list.is_list(root / os.fsdecode(n))]
    if look.has_pictures:
        # Names alone, and sums of files, say nothing; but of a split they may.
        paths = [root / os.fsdecode(name) for name in found]
        found = [n for n, p in zip(found, paths, strict=True) if split_in_name(p) or _has_labels(p)]
    if len(found) > 1:
        extensions, read = LAYOUTS["txt-list"].endings, txt_list.txt_table
        several = _several_lists("txt-list", found, look, extensions, read, txt_list.is_list)
        if several.problem:
            yield replace(several, score=MENTIONED)
            return
    if not found:
        return
    seen = f"{shown_names(found)} names a picture in each line"
    rows = islice(txt_list.txt_table(root / os.fsdecode(found[0])).rows(), FILES_MAX)
    written = [row[0] for _, row in rows if not isinstance(row, str)]
    if not written:
        problem = "its lines have no label. For all pictures, unlabelled, give --format flat"
        yield Evidence(format="txt-list", score=MENTIONED, seen=seen, problem=problem)
        return
    folders = [look.root, os.path.join(look.root, txt_list.PICTURE_FOLDER)]
    if options.root is not None:
        folders.append(os.fsencode(options.root))
    there = sum(any(is_there(name, [folder]) for folder in folders) for name in written)
    seen = f"{seen}, {there} of {len(written)} sampled paths are there"
    if there:
        yield Evidence(format="txt-list", score=TABULAR, seen=seen)
        return
    looked = " and ".join(map(readable_path, folders))
    problem = (
        f"no picture such as {written[0]!r} lies in {looked}. "
        "Give the folder of the pictures as --root"
    )
    yield Evidence(format="txt-list", score=MENTIONED, seen=seen, problem=problem)


def _has_labels(list_path: Path) -> bool:
    """Whether a line of a text list says more than a name and the sum of its file."""
    rows = islice(txt_list.txt_table(list_path).rows(), NAMES_MAX)
    labels = [row[1] for _, row in rows if not isinstance(row, str)]
    return bool(labels) and tells_more("", labels)


def _several_lists(
    kind: str,
    paths: list[bytes],
    look: Look,
    extensions: tuple[str, ...],
    read: Callable[[Path], Table],
    is_list: Callable[[Path], bool] = lambda path: True,
) -> Evidence:
    """Lists of one split each are read together; others are not chosen from."""
    seen = f"lists {shown_names(paths)}"
    try:
        find_lists(Path(os.fsdecode(look.root)), extensions, read, "list", is_list)
    except SourceError:
        problem = "it is not clear which is meant. Give the path of the list itself instead"
        return Evidence(format=kind, score=TABULAR, seen=seen, problem=problem)
    return Evidence(format=kind, score=TABULAR, seen=f"{seen}, one for each split")


def _problem_of_place(path: bytes) -> str:
    """Why a list is not found by who gives its folder, or empty."""
    folders = path.split(b"/")[:-1]
    if not folders or (len(folders) == 1 and are_all_splits(folders)):
        return ""
    return "it does not lie in the folder that was given. Give the path of the list itself instead"


def _one_list(
    path: bytes, list_path: Path, columns: Columns, look: Look, options: SourceOptions
) -> Evidence:
    """The one list, and whether the pictures it names are there."""
    assert columns.path is not None
    meanings = (columns.path, columns.label, columns.labels, columns.mask, columns.caption)
    taken = [columns.names[p] for p in meanings if p is not None]
    taken += [name for name in columns.boxes if name not in taken]
    seen = f"{readable_path(path)}: columns {' and '.join(map(repr, taken))}"
    names = [
        row[columns.path]
        for _, row in islice(read_rows(list_path, columns.delimiter), FILES_MAX)
        if len(row) > columns.path
    ]
    bases = picture_folders(list_path, options)
    there = sum(is_there(name, bases) for name in names)
    seen += f", {there} of {len(names)} sampled paths are there"
    if there or not names:
        problem = _problem_of_place(path)
        return Evidence(format="csv", score=TABULAR, seen=seen, problem=problem)
    looked = " and ".join(map(readable_path, bases))
    problem = f"no picture such as {names[0]!r} lies in {looked}"
    for folder in look.listings[0].folders[:NAMES_MAX]:
        base = os.path.join(look.root, folder)
        if is_there(names[0], [base]):
            problem += f". It lies in {readable_path(folder)}/: give --root {readable_path(base)}"
            break
    else:
        problem += ". Give the folder of the pictures as --root"
    return Evidence(format="csv", score=TABULAR, seen=seen, problem=problem)
