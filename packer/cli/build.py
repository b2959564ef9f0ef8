"""The `build` command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from packer.building.build import build, check_replacement
from packer.cli import Terminated, in_options, printable
from packer.cli.options import (
    RECIPE_OPTIONS,
    SOURCE_OPTIONS,
    read_options,
    with_options,
)
from packer.workspace.folder import Workspace
from packer.workspace.rejects import reject_count_max
from packer.workspace.step import Step


@click.command("build")
@click.argument("raw", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@with_options(SOURCE_OPTIONS, RECIPE_OPTIONS)
@click.option(
    "-j",
    "--workers",
    "worker_count",
    type=click.IntRange(min=1),
    help="Build workers. Default: the cores of this job.",
)
@click.option(
    "--scratch",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder on a local disk to write shards in. Default: beside OUT, or the temporary folder "
    "when OUT is on a network file system.",
)
@click.option(
    "--on-error",
    type=click.Choice(["reject", "fail"]),
    default="reject",
    show_default=True,
    help="Leave out an image that cannot be packed and name it, or stop at the first.",
)
@click.option(
    "--max-rejects",
    "rejects_max",
    default="1%",
    show_default=True,
    help="How many images may be rejected: a count, or a share of those found, rounded down. Past "
    "it nothing is published.",
)
@click.option("--overwrite", is_flag=True, help="Replace a store at OUT once the new one is whole.")
@click.option(
    "--update",
    is_flag=True,
    help="Bring the store at OUT up to date: only shards whose items changed are rebuilt.",
)
@click.option("--rehash", is_flag=True, help="With --update: read every file to see what changed.")
@click.option(
    "--retry-rejects", is_flag=True, help="With --update: try what was rejected once more."
)
@click.option("-q", "--quiet", "is_quiet", is_flag=True, help="Say nothing on stderr but errors.")
@click.option(
    "-v", "--verbose", "is_verbose", is_flag=True, help="Say on stderr when each step is done."
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def build_command(
    raw: Path,
    out: Path,
    worker_count: int | None,
    scratch: Path | None,
    on_error: Any,
    rejects_max: str,
    overwrite: bool,
    update: bool,
    rehash: bool,
    retry_rejects: bool,
    is_quiet: bool,
    is_verbose: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """Compile the images under RAW, and their annotations, into a store at OUT.

    RAW is a folder of images in any of many layouts (see packer detect), an archive, or a file that
    names the images. Interrupted at any moment, the same command goes on where it stopped.
    """
    source, recipe = read_options(settings)
    try:
        reject_count_max(rejects_max, 0)
        check_replacement(update=update, overwrite=overwrite, needs_update=rehash or retry_rejects)
    except ValueError as error:
        raise click.UsageError(in_options(str(error))) from error
    steps: list[Step] = []

    def on_step(step: Step) -> None:
        steps.append(step)
        if is_verbose:
            number = f" {steps.count(step):,}" if step is Step.SHARD_FINISHED else ""
            click.echo(f"{step.value.replace('_', ' ')}{number}", err=True)

    if is_quiet and is_verbose:
        raise click.UsageError("--quiet and --verbose exclude each other.")
    try:
        report = build(
            raw,
            out,
            recipe,
            source=source,
            worker_count=worker_count,
            scratch=scratch,
            on_error=on_error,
            rejects_max=rejects_max,
            overwrite=overwrite,
            update=update,
            rehash=rehash,
            retry_rejects=retry_rejects,
            progress=not is_quiet,
            on_step=on_step,
        )
    except (KeyboardInterrupt, Terminated):
        is_whole = Step.PUBLISHED in steps
        kept = f"{out} is whole." if is_whole else Workspace.of(out).describe_kept()
        click.echo(printable(f"Stopped. {kept}"), err=True)
        raise
    click.echo(json.dumps(report.as_dict()) if as_json else printable(report.summary()))
