"""Class names: from a file of them, from what the annotations say, or from the user."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from packer.errors import SourceError
from packer.files.text import read_text
from packer.wording import names_text, readable_path
from readers.store.wording import did_you_mean


def read_class_names(path: Path) -> tuple[str, ...]:
    """The names in a file such as `classes.txt` or `obj.names`: one a line, the first is label 0.

    Empty lines at the end are no names.

    Raises:
        SourceError: The file cannot be read, is not UTF-8, holds no name, a name twice, or an empty
            line between names (which would be a class without a name).
    """
    place = readable_path(os.fsencode(path))
    names = [line.strip() for line in read_text(path).rstrip().splitlines()]
    if not names:
        raise SourceError(f"{place}: no class names; expected one a line.")
    first_lines: dict[str, int] = {}
    for line, name in enumerate(names, 1):
        if not name:
            raise SourceError(
                f"{place}, line {line}: empty, between class names; every line is a class. "
                "Remove the line or name the class."
            )
        if name in first_lines:
            raise SourceError(
                f"{place}, line {line}: class {name!r} stands in line {first_lines[name]} already. "
                "Give every class a name of its own."
            )
        first_lines[name] = line
    return tuple(names)


class ClassNames:
    """Class names and the label of each.

    Args:
        names: In the order of their labels.
        are_given: Whether the user gave them, rather than the raw data.
    """

    def __init__(self, names: tuple[str, ...], *, are_given: bool = False) -> None:
        self.names = names
        self.are_given = are_given
        self._labels = {name: label for label, name in enumerate(names)}

    def label(self, name: str) -> int | None:
        """Position of a name, or None when it is none of them."""
        return self._labels.get(name)

    def unknown_reason(self, name: str) -> str:
        """Why an annotation of a class that is not among the names is rejected."""
        where = "--classes" if self.are_given else "the class names"
        return f"class {name!r} is not one of {where}"


def class_names(found: Iterable[str], given: tuple[str, ...] | None) -> ClassNames:
    """The classes of data that names them in its annotations: sorted by code point, or as given."""
    if given is not None:
        return ClassNames(given, are_given=True)
    return ClassNames(tuple(sorted(set(found))))


def check_any_class(raw: Path, given: Sequence[str], folders: Collection[str]) -> None:
    """See that class folders have some of the names that the user gave.

    Raises:
        SourceError: They have none.
    """
    if not set(given) & set(folders):
        raise SourceError(
            f"{readable_path(os.fsencode(raw))}: --classes names {names_text(given)}, and no class "
            f"folder is called so; there are {names_text(sorted(folders))}."
            f"{did_you_mean(given[0], folders)}"
        )
