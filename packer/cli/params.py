"""Kinds of values that options take."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from packer.sources.class_names import read_class_names

_UNITS = {
    "": 1,
    "b": 1,
    **{f"{p}b": 1000**n for n, p in enumerate("kmgt", 1)},
    **{f"{p}ib": 1024**n for n, p in enumerate("kmgt", 1)},
}
_LIST_ENDINGS = (".csv", ".json", ".list", ".lst", ".names", ".txt", ".yaml", ".yml")
"""Of names that are meant for files of class names."""

_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)\s*", re.IGNORECASE)


if TYPE_CHECKING:
    _Size = click.ParamType[int]
    _Names = click.ParamType[tuple[str, ...]]
    _Shares = click.ParamType[tuple[tuple[str, float], ...]]
else:  # It says what it gives only in the newest versions of click.
    _Size = _Names = _Shares = click.ParamType


class ByteSize(_Size):
    """A size such as 500MB, 1GiB or 1048576."""

    name = "size"

    def convert(
        self, value: str | int, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """The size in bytes."""
        if isinstance(value, int):
            return value
        found = _SIZE.fullmatch(value)
        if not found or found[2].lower() not in _UNITS:
            self.fail(
                f"{value!r} is no size; expected a number with B, kB, MB, GB, KiB, MiB or GiB"
            )
        return int(float(found[1]) * _UNITS[found[2].lower()])


BYTE_SIZE = ByteSize()


class ClassNamesParam(_Names):
    """Class names: a file with one a line, or names with commas between them."""

    name = "names"

    def convert(
        self,
        value: str | tuple[str, ...],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> tuple[str, ...]:
        """The names, in order."""
        if isinstance(value, tuple):
            return value
        if Path(value).is_file():
            return read_class_names(Path(value))
        if "," not in value and ("/" in value or Path(value).suffix.lower() in _LIST_ENDINGS):
            self.fail(
                f"{value!r}: there is no file at this path; expected a file with a class name a "
                "line, or names with commas. Check the path, or put a comma behind a class that is "
                "really called so"
            )
        names = tuple(name.strip() for name in value.removesuffix(",").split(","))
        if "" in names:
            self.fail(f"{value!r} is not a file and has an empty name; expected cat,dog or a file")
        return names


CLASS_NAMES = ClassNamesParam()


class SplitShares(_Shares):
    """Names and shares of splits, such as train=0.9,val=0.1."""

    name = "shares"

    def convert(
        self,
        value: str | tuple[tuple[str, float], ...],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> tuple[tuple[str, float], ...]:
        """The pairs, in order."""
        if isinstance(value, tuple):
            return value
        pairs = []
        for part in value.split(","):
            name, _, share = part.partition("=")
            try:
                pairs.append((name.strip(), float(share)))
            except ValueError:
                self.fail(f"{part!r} is not a split with its share; expected train=0.9,val=0.1")
        return tuple(pairs)


SPLIT_SHARES = SplitShares()
