"""The `stage` command."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import click

from packer.cli import printable
from packer.cli.params import BYTE_RATE, BYTE_SIZE, PLACE, QUIET
from readers.store.place import Place


@click.command("stage")
@click.argument("stores", metavar="[STORE]...", nargs=-1, type=PLACE)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--limit",
    "limit_bytes",
    type=BYTE_SIZE,
    help="What all copies in DIR may take, such as 500GiB: those that were used least recently go, "
    "unless a process reads them. Default: what the disk has.",
)
@click.option(
    "--rate",
    "rate_bytes",
    type=BYTE_RATE,
    help="How much to copy a second at most, such as 200MB/s. Default: no limit.",
)
@click.option("--status", "shows_status", is_flag=True, help="Print what is in DIR; copy nothing.")
@click.option("--evict", "evicts", is_flag=True, help="Remove copies that no process uses.")
@QUIET
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def stage_command(
    stores: tuple[Place, ...],
    folder: Path,
    limit_bytes: int | None,
    rate_bytes: int | None,
    shows_status: bool,
    evicts: bool,
    is_quiet: bool,
    as_json: bool,
) -> None:
    """Copy the shards of each STORE to DIR, a folder on a local disk of this node.

    LMDBDataset(STORE, cache_dir=DIR) reads them there, and copies what is missing in the
    background. Each digest is checked. What another process copies is waited for. Without STORE,
    --status and --evict are about all stores in DIR. Exit status 1 if shards are missing, unless
    --limit is why.
    """
    from packer.stores import stage as library

    if shows_status and evicts:
        raise click.UsageError("--status and --evict exclude each other.")
    if (shows_status or evicts) and (limit_bytes is not None or rate_bytes is not None):
        raise click.UsageError("--limit and --rate are about copying.")
    if shows_status:
        status = library.stage_status(stores, folder)
        _print(status, library.describe_status(status), as_json)
    elif evicts:
        evicted = library.stage_evict(stores, folder)
        _print(evicted, library.describe_evicted(evicted), as_json)
    else:
        _stage(stores, folder, limit_bytes, rate_bytes, is_quiet, as_json)


def _print(facts: Any, text: str, as_json: bool) -> None:
    click.echo(json.dumps(dataclasses.asdict(facts)) if as_json else printable(text))


def _stage(
    stores: tuple[Place, ...],
    folder: Path,
    limit_bytes: int | None,
    rate_bytes: int | None,
    is_quiet: bool,
    as_json: bool,
) -> None:
    from packer.stores.stage import stage

    if not stores:
        raise click.UsageError("Give a STORE to copy, and DIR.")
    try:
        report = stage(
            stores,
            folder,
            limit_bytes=limit_bytes,
            rate_bytes=rate_bytes,
            progress=not is_quiet,
        )
    except ValueError as error:
        raise click.UsageError(printable(str(error))) from error
    click.echo(json.dumps(report.as_dict()) if as_json else printable(report.summary()))
    if not report.is_good:
        raise click.exceptions.Exit(1)
