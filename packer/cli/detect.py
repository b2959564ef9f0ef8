"""The `detect` command."""

from __future__ import annotations

import json
from pathlib import Path

import click

from packer.cli import in_options, printable
from packer.cli.params import QUIET


@click.command("detect")
@click.argument("raw", type=click.Path(path_type=Path))
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder that the paths in a list are relative to. Default: the list's own.",
)
@click.option("--path-column", metavar="NAME", help="Column of a list that names the pictures.")
@click.option("--label-column", metavar="NAME", help="Column of a list that has the labels.")
@QUIET
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def detect_command(
    raw: Path,
    root: Path | None,
    path_column: str | None,
    label_column: str | None,
    is_quiet: bool,
    as_json: bool,
) -> None:
    """Print the evidence for each layout that RAW may have, and which one a build would take.

    Below that, what each of the other layouts needs, and what was found instead.

    Exit status: 1 when no source reads it or its content does not fit, 2 when several layouts fit
    and --format has to say which.
    """
    from packer.progress import Waiting
    from packer.sources import SourceOptions
    from packer.sources.detection.detect import examine
    from packer.sources.walk import walks_told

    try:
        options = SourceOptions(root=root, path_column=path_column, label_column=label_column)
    except ValueError as error:
        raise click.UsageError(in_options(str(error))) from error
    with Waiting("looking", shows=not is_quiet) as waiting, walks_told(waiting.count):
        found = examine(raw, options)
    click.echo(json.dumps(found.as_dict()) if as_json else printable(found.summary()))
    if found.error is not None:
        raise found.error
