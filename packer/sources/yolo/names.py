"""The class names of YOLO data without a data.yaml: in a file of them that lies among the data."""

from __future__ import annotations

import json
import os
from pathlib import Path

from packer.errors import SourceError
from packer.files.start import pointer_reason_of
from packer.files.text import read_bounded
from packer.sources.class_names import read_class_names
from packer.sources.walk import Tree
from packer.wording import names_text, readable_path

CLASS_FILES = (b"classes.txt", b"names.txt", b"obj.names", b"_darknet.labels", b"notes.json")
"""What tools call the file, in lower case; any other `.names` is one as well."""


def class_files(tree: Tree) -> list[bytes]:
    """The files of class names in a tree, the uppermost first."""
    found = [
        path
        for folder in tree.folders.values()
        for path in folder.annotation_files
        if (name := path.split(b"/")[-1].lower()) in CLASS_FILES or name.endswith(b".names")
    ]
    return sorted(found, key=lambda path: (path.count(b"/"), path))


def find_class_names(
    base: Path, tree: Tree, used: set[bytes]
) -> tuple[tuple[str, ...] | None, list[str]]:
    """Class names from a file among the data, and a note on where they are from.

    Args:
        base: Folder of the data.
        tree: Of `base`.
        used: Gains the paths of all such files.

    Raises:
        SourceError: A file cannot be read, or two of them name other classes.
    """
    paths = class_files(tree)
    used.update(paths)
    names, path = read_class_files(base, paths)
    if names is not None:
        return names, [f"class names are from {readable_path(path)}"]
    wanted = ", ".join(name.decode() for name in CLASS_FILES)
    note = (
        f"no list of class names (looked for data.yaml, {wanted}): classes are named by their "
        "numbers, unless --classes names them"
    )
    return None, [note]


def read_class_files(base: Path, paths: list[bytes]) -> tuple[tuple[str, ...] | None, bytes]:
    """The names in the files, which must all say the same, and the first file. None without one.

    Raises:
        SourceError: A file cannot be read, or two of them name other classes.
    """
    first: tuple[bytes, tuple[str, ...]] | None = None
    for path in paths:
        file = base / os.fsdecode(path)
        names = _read_notes(file) if path.lower().endswith(b".json") else read_class_names(file)
        if first is None:
            first = (path, names)
        elif names != first[1]:
            raise SourceError(
                f"{readable_path(os.fsencode(base))}: {readable_path(first[0])} and "
                f"{readable_path(path)} name different classes: {names_text(first[1])}; "
                f"{names_text(names)}. Remove one, or build each data set by itself."
            )
    return (first[1], first[0]) if first is not None else (None, b"")


def _read_notes(path: Path) -> tuple[str, ...]:
    """The names in Label Studio's notes.json."""
    place = readable_path(os.fsencode(path))
    problem = pointer_reason_of(path)
    if problem:
        raise SourceError(f"{place}: {problem}.")
    try:
        categories = json.loads(read_bounded(path))["categories"]
        names = {entry["id"]: entry["name"] for entry in categories}
    except OSError as error:
        raise SourceError(f"{place}: cannot be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SourceError(
            f"{place}: expected the categories of a Label Studio export, each with id and name."
        ) from error
    ordered = tuple(names.get(number) for number in range(len(names)))
    if not names or not all(isinstance(name, str) and name for name in ordered):
        raise SourceError(
            f"{place}: expected categories with the ids 0 to {max(len(names) - 1, 0)} and a name "
            "each. Give the classes as --classes instead, and remove the file."
        )
    if len(set(ordered)) < len(categories):
        raise SourceError(
            f"{place}: a category is listed twice. Give every class a name of its own."
        )
    return tuple(str(name) for name in ordered)
