"""Kinds of values that options take, and the option that all long work has."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from packer.recipe import Size
from packer.sources.class_names import read_class_names
from readers.store.place import Place, is_url, place_of

_UNITS = {
    "": 1,
    "b": 1,
    **{f"{p}b": 1000**n for n, p in enumerate("kmgt", 1)},
    **{f"{p}ib": 1024**n for n, p in enumerate("kmgt", 1)},
}
_LIST_ENDINGS = (".csv", ".json", ".list", ".lst", ".names", ".txt", ".yaml", ".yml")
"""Of names that are meant for files of class names."""

_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)\s*", re.IGNORECASE)
_PIXELS = re.compile(r"\s*([0-9]+)(?:\s*[xX\u00d7]\s*([0-9]+))?\s*")


if TYPE_CHECKING:
    _Size = click.ParamType[int]
    _ImageSize = click.ParamType[Size]
    _Names = click.ParamType[tuple[str, ...]]
    _Shares = click.ParamType[tuple[tuple[str, float], ...]]
    _Part = click.ParamType[tuple[int, int]]
    _Place = click.ParamType[Place]
    _Folder = click.ParamType[Path]
else:  # It says what it gives only in the newest versions of click.
    _Size = _ImageSize = _Names = _Shares = _Part = _Place = _Folder = click.ParamType


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


class ByteRate(ByteSize):
    """A rate such as 200MB/s."""

    name = "rate"

    def convert(
        self, value: str | int, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """The bytes a second."""
        return super().convert(
            value if isinstance(value, int) else value.removesuffix("/s"), param, ctx
        )


BYTE_RATE = ByteRate()


class ImageSizeParam(_ImageSize):
    """A side in pixels, such as 224, or WIDTHxHEIGHT, such as 320x224."""

    name = "pixels"

    def convert(
        self,
        value: str | Size,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Size:
        """The side, or (height, width), as a recipe has it."""
        if not isinstance(value, str):
            return value
        found = _PIXELS.fullmatch(value)
        if not found:
            self.fail(
                f"{value!r} is not a size; expected a side in pixels such as 224, or "
                "WIDTHxHEIGHT such as 320x224"
            )
        width, height = int(found[1]), int(found[2] or found[1])
        return height if height == width else (height, width)


IMAGE_SIZE = ImageSizeParam()


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


class PlaceParam(_Place):
    """Where a store lies: a folder, or a URL such as s3://bucket/out.lmdb."""

    name = "path"

    def convert(
        self, value: str | Place, param: click.Parameter | None, ctx: click.Context | None
    ) -> Place:
        """The place."""
        try:
            return place_of(value)
        except ValueError as error:
            self.fail(str(error))


PLACE = PlaceParam()


class FolderParam(_Folder):
    """A path, of commands that need files."""

    name = "path"

    def convert(
        self, value: str | Path, param: click.Parameter | None, ctx: click.Context | None
    ) -> Path:
        """The path."""
        if isinstance(value, str) and is_url(value):
            self.fail(f"{value}: this command needs stores in folders; copy the store here first")
        return Path(value)


FOLDER = FolderParam()


class PartParam(_Part):
    """Which of how many parts, such as 3/64; the first is 1."""

    name = "part"

    def convert(
        self,
        value: str | tuple[int, int],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> tuple[int, int]:
        """(which, of how many)."""
        if isinstance(value, tuple):
            return value
        which, slash, count = value.partition("/")
        if not (slash and which.isdecimal() and count.isdecimal()):
            self.fail(f"{value!r} is not a part; expected I/N, such as 3/64, with I from 1 to N")
        if not 1 <= int(which) <= int(count):
            self.fail(f"{value!r} is not a part: I must be in [1, {count}]; counting from 1")
        return int(which), int(count)


PART = PartParam()

QUIET = click.option(
    "-q", "--quiet", "is_quiet", is_flag=True, help="Say nothing on stderr but errors."
)
"""Of commands that show how far their work is."""

BATCH_SIZE = click.option(
    "--batch-size",
    type=click.IntRange(min=1),
    default=64,
    show_default=True,
    help="Samples of a batch.",
)
"""Of commands that read as training does."""
