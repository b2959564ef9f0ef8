"""Commands that take stores and compare or make stores: `merge`, `subset`, `diff`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from packer.cli import printable
from packer.cli.params import CLASS_NAMES, FOLDER, QUIET

_JSON = click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")


def _writes_a_store(command: Callable[..., None]) -> Callable[..., None]:
    """The options of commands that make a store of stores."""
    for option in (
        _JSON,
        QUIET,
        click.option("--overwrite", is_flag=True, help="Replace a store at OUT once it is whole."),
        click.option(
            "--scratch",
            type=click.Path(exists=True, file_okay=False, path_type=Path),
            help="Folder on a local disk to write shards in. Default: beside OUT, or the temporary "
            "folder when OUT is on a network file system.",
        ),
        click.option(
            "-j",
            "--workers",
            type=click.IntRange(min=1),
            help="Shards at once. Default: the cores of this job.",
        ),
    ):
        command = option(command)
    return command


@click.command("merge")
@click.argument("stores", metavar="A B...", nargs=-1, required=True, type=FOLDER)
@click.argument("out", type=FOLDER)
@click.option(
    "--prefix",
    "prefixes",
    multiple=True,
    help="What the keys of a store are to begin with; once for each, in their order.",
)
@click.option(
    "--same-classes", is_flag=True, help="Refuse stores whose class lists differ, or their order."
)
@click.option(
    "--link",
    "links",
    is_flag=True,
    help="Keep shards as hard links: no room, but the stores share files.",
)
@_writes_a_store
def merge_command(
    stores: tuple[Path, ...],
    out: Path,
    prefixes: tuple[str, ...],
    is_quiet: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """Make one store of the stores A, B, ... at OUT.

    Nothing is decoded or encoded again. The stores must have the same fields. Classes are those of
    A and, behind them, the new ones of B; labels follow their names. A key that two stores have is
    an error unless --prefix tells them apart.
    """
    from packer.stores.merge import merge

    if len(stores) < 2:
        raise click.UsageError("Give at least two stores, and OUT.")
    if prefixes and len(prefixes) != len(stores):
        raise click.UsageError(
            f"--prefix was given {len(prefixes)} times; expected once for each of {len(stores)} "
            "stores."
        )
    report = merge(stores, out, prefixes=prefixes or None, progress=not is_quiet, **settings)
    click.echo(json.dumps(report.as_dict()) if as_json else printable(report.summary()))


@click.command("subset")
@click.argument("store", type=FOLDER)
@click.argument("out", type=FOLDER)
@click.option("--split", "splits", multiple=True, help="Samples of this split; may be repeated.")
@click.option(
    "--classes",
    type=CLASS_NAMES,
    help="Samples of these classes, or with an object of one: names with commas, or a file.",
)
@click.option(
    "--keys",
    "key_list",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Samples whose keys stand in this file, one a line.",
)
@click.option(
    "--every",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Of those, the first of each so many.",
)
@click.option("--limit", type=click.IntRange(min=1), help="Of those, no more than so many.")
@_writes_a_store
def subset_command(
    store: Path,
    out: Path,
    splits: tuple[str, ...],
    classes: tuple[str, ...] | None,
    key_list: Path | None,
    is_quiet: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """Make a store of chosen samples of STORE at OUT, in their order, without encoding one again.

    A sample must fit all that is asked for. Classes and splits keep their numbers.
    """
    from packer.stores.selection import read_key_list
    from packer.stores.subset import subset

    keys = read_key_list(key_list) if key_list is not None else None
    report = subset(
        store,
        out,
        splits=splits,
        classes=classes or (),
        keys=keys,
        progress=not is_quiet,
        **settings,
    )
    click.echo(json.dumps(report.as_dict()) if as_json else printable(report.summary()))


@click.command("diff")
@click.argument("a", type=FOLDER)
@click.argument("b", type=FOLDER)
@QUIET
@_JSON
def diff_command(a: Path, b: Path, is_quiet: bool, as_json: bool) -> None:
    """Print what differs between the stores A and B. Exit status 1 when anything does.

    Samples are told by their keys: removed are those that only A has, added those that only B has.
    Where they are in the stores, and in which shards, does not count.
    """
    from packer.stores.diff import diff

    report = diff(a, b, progress=not is_quiet)
    click.echo(json.dumps(report.as_dict()) if as_json else printable(report.summary()))
    if not report.is_same:
        raise click.exceptions.Exit(1)
