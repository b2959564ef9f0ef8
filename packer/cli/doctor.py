"""The `doctor` command."""

from __future__ import annotations

import json
from pathlib import Path

import click

from packer.cli import printable
from packer.cli.params import BATCH_SIZE, FOLDER
from readers.machine import PREFETCH_FACTOR


@click.command("doctor")
@click.argument("path", metavar="[STORE|RAW]", required=False, type=FOLDER)
@BATCH_SIZE
@click.option(
    "-j",
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
@click.option(
    "--images-per-s",
    type=click.FloatRange(min=0, min_open=True),
    help="What training is to get, held against what the disk or server gives.",
)
@click.option(
    "--target",
    type=click.Path(path_type=Path),
    metavar="OUT",
    help="Check that a store can be built at OUT: lock, sync, rename, room. Writes 4 MiB there.",
)
@click.option(
    "--watch",
    "watched",
    type=click.IntRange(min=1),
    metavar="PID",
    help="Watch a running training job: a line every few seconds, until it ends.",
)
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=0.1),
    default=5.0,
    show_default=True,
    help="Seconds between the lines of --watch.",
)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def doctor_command(
    path: Path | None,
    batch_size: int,
    worker_count: int | None,
    prefetch_factor: int,
    images_per_s: float | None,
    target: Path | None,
    watched: int | None,
    interval_s: float,
    as_json: bool,
) -> None:
    """Check that this machine and job can train fast from STORE or RAW.

    Each line says pass, warn or fail (skip: it cannot be known here), what was found, why it
    matters and what to do. Exit status 1 when anything fails. Run it where training runs: in the
    container, in the job.
    """
    from packer.doctor import doctor, watch

    if watched is not None:
        _refuse_beside_watch(path, target, as_json)
        try:
            for line in watch(watched, interval_s=interval_s):
                click.echo(line)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--watch") from error
        return
    report = doctor(
        path,
        batch_size=batch_size,
        worker_count=worker_count,
        prefetch_factor=prefetch_factor,
        images_per_s=images_per_s,
        target=target,
    )
    click.echo(json.dumps(report.as_dict()) if as_json else printable(report.summary()))
    if not report.is_good:
        raise click.exceptions.Exit(1)


def _refuse_beside_watch(path: Path | None, target: Path | None, as_json: bool) -> None:
    given = {"STORE|RAW": path is not None, "--target": target is not None, "--json": as_json}
    for name, is_given in given.items():
        if is_given:
            raise click.UsageError(f"--watch looks at a process alone; leave out {name}")
