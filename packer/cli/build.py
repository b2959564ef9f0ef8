"""The `build` command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from packer.building.build import build
from packer.building.planned import plan_build
from packer.cli import Terminated, printable
from packer.cli.options import (
    ENGINE_OPTIONS,
    OUTCOME_OPTIONS,
    RECIPE_OPTIONS,
    SOURCE_OPTIONS,
    WORK_OPTIONS,
    build_settings,
    with_options,
)
from packer.engines.choose import EngineName, check_engine
from packer.workspace.folder import Workspace
from packer.workspace.step import Step


@click.command("build")
@click.argument("raw", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@with_options(SOURCE_OPTIONS, RECIPE_OPTIONS, WORK_OPTIONS, ENGINE_OPTIONS, OUTCOME_OPTIONS)
@click.option(
    "--plan-only",
    is_flag=True,
    help="Scan and plan, and make no shard: packer work makes them, on any nodes.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def build_command(
    raw: Path,
    out: Path,
    worker_count: int | None,
    scratch: Path | None,
    engine: EngineName,
    scheduler: str | None,
    plan_only: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """Compile the images under RAW, and their annotations, into a store at OUT.

    RAW is a folder of images in any of many layouts (see packer detect), an archive, or a file that
    names the images. Interrupted at any moment, the same command goes on where it stopped.
    """
    source, recipe, outcome = build_settings(settings)
    try:
        check_engine(engine, scheduler, worker_count)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if plan_only:
        if engine != "local":
            raise click.UsageError("--plan-only makes no shard, so --engine does not apply to it")
        if worker_count is not None or scratch is not None:
            raise click.UsageError(
                "--workers and --scratch are of those who make shards: give them to packer work"
            )
        planned = plan_build(raw, out, recipe, source=source, **outcome)
        click.echo(json.dumps(planned.as_dict()) if as_json else printable(planned.summary()))
        return
    steps: list[Step] = []
    try:
        report = build(
            raw,
            out,
            recipe,
            source=source,
            worker_count=worker_count,
            scratch=scratch,
            engine=engine,
            scheduler=scheduler,
            shows_progress=True,
            on_step=steps.append,
            **outcome,
        )
    except (KeyboardInterrupt, Terminated):
        is_whole = Step.PUBLISHED in steps
        kept = f"{out} is whole." if is_whole else Workspace.of(out).describe_kept()
        click.echo(printable(f"Stopped. {kept}"), err=True)
        raise
    click.echo(json.dumps(report.as_dict()) if as_json else printable(report.summary()))
