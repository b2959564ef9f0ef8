"""The `export` command."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import click

from packer.cli import Terminated, printable
from packer.cli.params import BYTE_SIZE, FOLDER, QUIET
from packer.stores.export.formats import EXPORT_FORMATS

_FORMATS = "; ".join(f"{name}: {row.text}" for name, row in EXPORT_FORMATS.items())


@click.command("export")
@click.argument("store", type=FOLDER)
@click.argument("out", type=FOLDER)
@click.option(
    "--as",
    "as_",
    type=click.Choice(list(EXPORT_FORMATS)),
    required=True,
    help=f"Layout of the files. {_FORMATS}.",
)
@click.option("--split", "splits", multiple=True, help="Samples of this split; may be repeated.")
@click.option(
    "--keys",
    "key_list",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Samples whose keys stand in this file, one a line.",
)
@click.option("--limit", type=click.IntRange(min=1), help="Of those, no more than so many.")
@click.option(
    "--shard-size",
    "shard_bytes_max",
    type=BYTE_SIZE,
    default="500MiB",
    show_default=True,
    help="Largest archive or table, by the size of the records in the store.",
)
@click.option(
    "-j",
    "--workers",
    "workers",
    type=click.IntRange(min=1),
    help="Threads. Default: the cores of this job.",
)
@click.option(
    "--dry-run", is_flag=True, help="Print what would be written and lost; write nothing."
)
@QUIET
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def export_command(
    store: Path,
    out: Path,
    as_: str,
    splits: tuple[str, ...],
    key_list: Path | None,
    limit: int | None,
    shard_bytes_max: int,
    workers: int | None,
    dry_run: bool,
    is_quiet: bool,
    as_json: bool,
) -> None:
    """Write the samples of STORE into the folder OUT as files that other tools read.

    Image files that the store holds come out byte for byte, pixels as PNG. What the layout cannot
    carry is printed first and counted last. OUT must not be there yet; run again, the same command
    goes on where it was interrupted.
    """
    from packer.progress import Progress, say
    from packer.stores.export.report import ExportPlan
    from packer.stores.export.run import describe_kept, export, plan_export
    from packer.stores.selection import read_key_list

    keys = read_key_list(key_list) if key_list is not None else None
    if dry_run:
        plan = plan_export(store, as_=as_, splits=splits, keys=keys, limit=limit)
        click.echo(json.dumps(plan.as_dict()) if as_json else printable(plan.summary()))
        return
    bars: list[Progress] = []
    with contextlib.ExitStack() as stack:

        def begin(plan: ExportPlan) -> None:
            if not is_quiet:
                say(map(printable, plan.lines()))
            bar = Progress(
                total=plan.sample_count, shows=not is_quiet, unit="samples", verb="exported"
            )
            bars.append(stack.enter_context(bar))

        try:
            report = export(
                store,
                out,
                as_=as_,
                splits=splits,
                keys=keys,
                limit=limit,
                shard_bytes_max=shard_bytes_max,
                workers=workers,
                on_plan=begin,
                on_progress=lambda count: bars[0].add(count),
            )
        except (KeyboardInterrupt, Terminated):
            click.echo(printable(f"Stopped. {describe_kept(out)}"), err=True)
            raise
    click.echo(json.dumps(report.as_dict()) if as_json else printable(report.summary()))
