"""The `bench` command: what `readers.bench` finds, asked in a process of its own.

It needs torch, which the build side does not load; and forked loader workers are best started by a
process that does nothing else.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click

import packer
from packer.cli import printable
from packer.cli.params import BATCH_SIZE, FOLDER, PLACE, QUIET
from readers.store.place import Place

# The readers that belong to this packer, whatever lies in the current folder by that name.
_PROGRAM = """
import sys
sys.path[:] = [sys.argv.pop(1), *filter(None, sys.path)]
from readers.bench.__main__ import main
main()
"""


@click.command("bench")
@click.argument("store", metavar="STORE", type=PLACE)
@click.argument("raw", metavar="[RAW]", required=False, type=FOLDER)
@BATCH_SIZE
@click.option(
    "-j",
    "--workers",
    type=click.IntRange(min=0),
    help="Try this many loader workers alone. Default: from none to one for each core.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=30.0,
    show_default=True,
    help="How long to measure, about.",
)
@click.option(
    "--step-ms",
    type=click.FloatRange(min=0, min_open=True),
    metavar="S",
    help="Tell whether loader or model is the bottleneck with training steps of S ms.",
)
@click.option(
    "--crop",
    type=click.IntRange(min=1),
    metavar="SIDE",
    help="Have a random part of each image at SIDE x SIDE. Default: 224 where images differ in "
    "size (640, letterboxed, with boxes); else the whole image.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the best settings to FILE, for make_loader(..., tuned=FILE).",
)
@click.option(
    "--chart",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Draw a chart: an SVG that stands alone.",
)
@QUIET
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def bench_command(
    store: Place,
    raw: Path | None,
    batch_size: int,
    workers: int | None,
    seconds: float,
    step_ms: float | None,
    crop: int | None,
    output: Path | None,
    chart: Path | None,
    is_quiet: bool,
    as_json: bool,
) -> None:
    """Measure how fast STORE is read on this machine, and with which settings.

    Engines and workers are tried in rounds; those that do best, again. With RAW, the folder that
    the store was made of, a stock DataLoader of torch reads that for comparison. Run it where
    training runs, with nothing beside it.
    """
    for path in (output, chart):
        if path is not None and not path.absolute().parent.is_dir():
            raise click.UsageError(f"{path}: there is no folder {path.absolute().parent}.")
    if not is_quiet:
        click.echo(f"Measuring for about {seconds:g} s ...", err=True)
    found = _ask(
        {
            "store": os.path.abspath(store) if isinstance(store, Path) else str(store),
            "raw": None if raw is None else os.path.abspath(raw),
            "batch_size": batch_size,
            "workers": workers,
            "seconds": seconds,
            "step_ms": step_ms,
            "crop": crop,
            "output": None if output is None else os.path.abspath(output),
            "parent": os.getpid(),
        }
    )
    click.echo(json.dumps(found["report"]) if as_json else printable(found["summary"]))
    if chart is not None:
        chart.write_text(found["chart"], encoding="utf-8")
    if output is not None and not is_quiet:
        click.echo(f"Use them: make_loader(..., tuned={os.fspath(output)!r})", err=True)


def _ask(arguments: dict[str, Any]) -> dict[str, Any]:
    """The child's answer. It ends with this process, in whatever way that ends."""
    root = Path(packer.__file__).parents[1]
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", _PROGRAM, str(root), json.dumps(arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:
        try:
            output, errors = child.communicate()
        finally:
            child.kill()
    try:
        found: dict[str, Any] = json.loads(output)
    except ValueError:
        said = errors.decode("utf-8", "replace").strip().splitlines()
        status = child.returncode
        how = f"was ended by signal {-status}" if status < 0 else f"left with status {status}"
        raise click.ClickException(
            printable(f"the process that measures {how}: {said[-1] if said else 'it said nothing'}")
        ) from None
    if "error" in found:
        raise click.ClickException(printable(found["error"]))
    return found
