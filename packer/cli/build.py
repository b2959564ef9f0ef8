"""The `build` command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from packer.building.build import build
from packer.building.planned import plan_build
from packer.cli import Terminated, in_options, printable
from packer.cli.help_groups import GroupedCommand
from packer.cli.options import (
    ENGINE_OPTIONS,
    OUTCOME_OPTIONS,
    RECIPE_OPTIONS,
    SOURCE_OPTIONS,
    WORK_OPTIONS,
    build_settings,
    with_options,
)
from packer.cli.params import PLACE, QUIET
from packer.engines.choose import EngineName, check_engine
from packer.workspace.step import Step
from packer.workspace.upload import workspace_of
from readers.store.place import Place


@click.command("build", cls=GroupedCommand)
@click.argument("raw", type=click.Path(path_type=Path))
@click.argument("out", type=PLACE)
@with_options(SOURCE_OPTIONS, RECIPE_OPTIONS, WORK_OPTIONS, ENGINE_OPTIONS, OUTCOME_OPTIONS)
@click.option(
    "--plan-only",
    is_flag=True,
    help="Scan and plan, and make no shard: packer work makes them, on any nodes.",
)
@QUIET
@click.option(
    "-v", "--verbose", "is_verbose", is_flag=True, help="Say on stderr when each step is done."
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def build_command(
    raw: Path,
    out: Place,
    workers: int | None,
    scratch: Path | None,
    engine: EngineName,
    scheduler: str | None,
    plan_only: bool,
    is_quiet: bool,
    is_verbose: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """Compile the images under RAW, and their annotations, into a store at OUT.

    RAW is a folder of images in any of many layouts (see packer detect), an archive, or a file that
    names the images. OUT is a folder, or a URL such as s3://bucket/out.lmdb, to which shards are
    uploaded when all are built. Interrupted at any moment, the same command goes on where it
    stopped.
    """
    source, recipe, outcome = build_settings(settings, out)
    try:
        check_engine(engine, scheduler, workers, out)
    except ValueError as error:
        raise click.UsageError(in_options(str(error))) from error
    if plan_only:
        if engine != "local":
            raise click.UsageError("--plan-only makes no shard, so --engine does not apply to it")
        if workers is not None or scratch is not None:
            raise click.UsageError(
                "--workers and --scratch are of those who make shards: give them to packer work"
            )
        if not isinstance(out, Path):
            raise click.UsageError(
                f"{out}: nodes build into a folder that all of them see; copy the finished store "
                "to the bucket"
            )
        planned = plan_build(raw, out, recipe, source=source, progress=not is_quiet, **outcome)
        click.echo(json.dumps(planned.as_dict()) if as_json else printable(planned.summary()))
        return
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
            workers=workers,
            scratch=scratch,
            engine=engine,
            scheduler=scheduler,
            progress=not is_quiet,
            on_step=on_step,
            **outcome,
        )
    except (KeyboardInterrupt, Terminated):
        is_whole = Step.PUBLISHED in steps
        kept = f"{out} is whole." if is_whole else workspace_of(out, scratch).describe_kept()
        click.echo(printable(f"Stopped. {kept}"), err=True)
        raise
    click.echo(json.dumps(report.as_dict()) if as_json else printable(report.summary()))
