"""Commands that look into a store: `info`, `verify`, `get`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from packer.cli import printable

_STORE = click.argument("store", type=click.Path(path_type=Path))
_JSON = click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")


@click.command("info")
@_STORE
@_JSON
def info_command(store: Path, as_json: bool) -> None:
    """Print what STORE holds and how it was made."""
    from packer.info import describe, info

    click.echo(json.dumps(info(store)) if as_json else printable(describe(store)))


@click.command("verify")
@_STORE
@_JSON
def verify_command(store: Path, as_json: bool) -> None:
    """Check every byte of STORE. Exit status 1 when anything is wrong, with each problem named."""
    from packer.progress import Progress
    from packer.verify import verify
    from readers.store.manifest import read_manifest

    total = read_manifest(store).sample_count
    with Progress(total=total, shows=True, unit="samples") as bar:
        report = verify(store, on_progress=bar.add)
    click.echo(json.dumps(report.as_dict()) if as_json else printable(report.summary()))
    if not report.is_good:
        raise click.exceptions.Exit(1)


# "which" may be a negative index, which click would take for an option.
@click.command("get", context_settings={"ignore_unknown_options": True})
@_STORE
@click.argument("which", metavar="INDEX|KEY")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the image to this file; .png keeps every pixel.",
)
@click.option("--field", default="image", show_default=True, help="Which image to write.")
def get_command(store: Path, which: str, output: Path | None, field: str) -> None:
    """Print one sample of STORE as JSON, and write its image with -o."""
    from packer.get import facts_of, get_sample, write_picture

    sample = get_sample(store, which)
    if output is not None:
        write_picture(sample, output, field)
    click.echo(json.dumps(facts_of(sample)))
