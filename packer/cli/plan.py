"""The `plan` command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from packer.cli import printable
from packer.cli.help_groups import GroupedCommand
from packer.cli.options import (
    RECIPE_OPTIONS,
    SOURCE_OPTIONS,
    read_options,
    with_options,
)
from packer.cli.params import QUIET
from packer.plan.cost import estimate_costs
from packer.progress import Waiting
from packer.sources.walk import walks_told


@click.command("plan", cls=GroupedCommand)
@click.argument("raw", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path), required=False)
@with_options(SOURCE_OPTIONS, RECIPE_OPTIONS)
@QUIET
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def plan_command(
    raw: Path, out: Path | None, is_quiet: bool, as_json: bool, **settings: Any
) -> None:
    """Say what a store of RAW at OUT would cost, for each way of storing images.

    Size, time to build and speed of reading, from a sample of the images and a trial of this
    machine and of the disk that OUT would be on (default: the current folder's). Nothing is kept.
    """
    source, recipe = read_options(settings)
    with Waiting("scanning", shows=not is_quiet) as waiting, walks_told(waiting.count):
        costs = estimate_costs(raw, out, recipe, source=source)
    click.echo(json.dumps(costs.as_dict()) if as_json else printable(costs.summary()))
