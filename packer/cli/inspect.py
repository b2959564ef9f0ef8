"""Commands that look into a store: `info`, `rejects`, `verify`, `get`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from packer.cli import printable
from packer.cli.params import PLACE, QUIET
from readers.store.place import Place

_STORE = click.argument("store", type=PLACE)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")


@click.command("info")
@_STORE
@click.option(
    "--manifest-only", is_flag=True, help="Do not look whether the files of all shards are there."
)
@click.option("--fields", is_flag=True, help="Print the fields of a sample, and what each means.")
@click.option(
    "--stats",
    is_flag=True,
    help="Print means, and histograms of splits, classes and sizes.",
)
@_JSON
def info_command(
    store: Place, manifest_only: bool, fields: bool, stats: bool, as_json: bool
) -> None:
    """Print what STORE holds and how it was made. Exit status 1 if shards are missing."""
    from packer.stores.info import describe, describe_fields, describe_statistics, info

    checks_files = not manifest_only
    if as_json:
        if fields or stats:
            raise click.UsageError("--json has fields and statistics already: give it alone.")
        click.echo(json.dumps(info(store, checks_files=checks_files)))
        return
    parts = []
    if fields:
        parts.append(describe_fields(store, checks_files=checks_files))
    if stats:
        parts.append(describe_statistics(store, checks_files=checks_files))
    click.echo(printable("\n\n".join(parts or [describe(store, checks_files=checks_files)])))


@click.command("rejects")
@click.argument("store", metavar="STORE|OUT", type=PLACE)
@_JSON
def rejects_command(store: Place, as_json: bool) -> None:
    """Print what was not packed into STORE and why, by reason and by folder.

    Also of a build of OUT that published nothing, because of them or because it was stopped: then
    of the shards that it finished.
    """
    from packer.stores.rejects import rejects

    found = rejects(store)
    click.echo(json.dumps(found.as_dict()) if as_json else printable(found.summary()))


@click.command("verify")
@_STORE
@click.option("--quick", is_flag=True, help="Read manifest and index alone, in seconds.")
@click.option("--full", is_flag=True, help="Decode every field of every sample as well.")
@click.option(
    "--against",
    "raw",
    metavar="RAW",
    type=click.Path(path_type=Path),
    help="Hold it against the raw data that it was built from: what was added, removed or changed. "
    "Each item is prepared again; with --quick, names and sizes alone are compared.",
)
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder that the paths in RAW are relative to, when it is a list built with --root.",
)
@click.option(
    "-j",
    "--workers",
    type=click.IntRange(min=1),
    help="Shards and samples at once. Default: the cores of this job.",
)
@QUIET
@_JSON
def verify_command(
    store: Place,
    quick: bool,
    full: bool,
    raw: Path | None,
    root: Path | None,
    workers: int | None,
    is_quiet: bool,
    as_json: bool,
) -> None:
    """Check every byte of STORE, and name every damaged sample. Exit status 1 if anything is wrong.

    Digests of all files, checksums of all records, and the index against the records and against
    LMDB's own look-ups, in a process of its own: a crafted file may end LMDB, but not this command.
    """
    from packer.stores.verify import verify

    if quick and full:
        raise click.UsageError("--quick and --full exclude each other.")
    if root is not None and raw is None:
        raise click.UsageError("--root is about the RAW of --against.")
    report = verify(
        store,
        level="quick" if quick else "full" if full else "records",
        against=raw,
        root=root,
        workers=workers,
        progress=not is_quiet,
    )
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
def get_command(store: Place, which: str, output: Path | None, field: str) -> None:
    """Print one sample of STORE as JSON, and write its image with -o."""
    from packer.stores.get import facts_of, get_sample, write_picture

    sample = get_sample(store, which)
    if output is not None:
        write_picture(sample, output, field)
    click.echo(json.dumps(facts_of(sample)))
