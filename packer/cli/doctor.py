"""The `doctor` command."""

from __future__ import annotations

import json
from pathlib import Path

import click

from packer.cli import printable
from packer.cli.params import FOLDER
from packer.doctor.need import PREFETCH_FACTOR


@click.command("doctor")
@click.argument("path", metavar="[STORE|RAW]", required=False, type=FOLDER)
@click.option(
    "--batch-size",
    type=click.IntRange(min=1),
    default=64,
    show_default=True,
    help="Samples of a batch.",
)
@click.option(
    "--workers",
    "worker_count",
    type=click.IntRange(min=0),
    help="Loader workers of each training process. Default: what make_loader takes here.",
)
@click.option(
    "--prefetch",
    "prefetch_factor",
    type=click.IntRange(min=1),
    default=PREFETCH_FACTOR,
    show_default=True,
    help="Batches that each loader worker is ahead.",
)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def doctor_command(
    path: Path | None,
    batch_size: int,
    worker_count: int | None,
    prefetch_factor: int,
    as_json: bool,
) -> None:
    """Check that this machine and job can train fast from STORE or RAW.

    Each line says pass, warn or fail (skip: it cannot be known here), what was found, why it
    matters and what to do. Exit status 1 when anything fails. Run it where training runs: in the
    container, in the job.
    """
    from packer.doctor import doctor

    report = doctor(
        path, batch_size=batch_size, worker_count=worker_count, prefetch_factor=prefetch_factor
    )
    click.echo(json.dumps(report.as_dict()) if as_json else printable(report.summary()))
    if not report.is_good:
        raise click.exceptions.Exit(1)
