"""The `build` command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import click

from packer.build import build
from packer.cli import Terminated, printable
from packer.cli.params import BYTE_SIZE, CLASS_NAMES
from packer.recipe import ColorMode, Fit, ImagePolicy, Recipe
from packer.rejects import reject_count_max
from packer.sources import SOURCES, SourceOptions
from packer.sources.source import Task, VocOrigin

_DEFAULTS = Recipe()


@click.command("build")
@click.argument("raw", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "format_name",
    type=click.Choice(["auto", *SOURCES]),
    default="auto",
    show_default=True,
    help="Layout of RAW.",
)
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder that the paths in a list are relative to. Default: the list's own.",
)
@click.option(
    "--classes",
    "classes",
    type=CLASS_NAMES,
    help="Class names in the order of their labels: a file with one a line, or names with commas.",
)
@click.option("--split", help="Take this split alone, such as train.")
@click.option(
    "--task",
    type=click.Choice(get_args(Task)),
    help="What annotations are for, where their files cannot say: outlines or turned boxes.",
)
@click.option("--label-is-index", is_flag=True, help="Labels in a list are numbers, not names.")
@click.option(
    "--voc-origin",
    type=click.Choice(get_args(VocOrigin)),
    default=SourceOptions.voc_origin,
    show_default=True,
    help="The first pixel of Pascal VOC's coordinates. auto is 1, the official rule, unless one is "
    "0.",
)
@click.option(
    "--size", type=int, help="Side in pixels that --fit is about. Default: each image's own size."
)
@click.option(
    "--fit",
    type=click.Choice(get_args(Fit)),
    default=_DEFAULTS.fit,
    show_default=True,
    help="How an image comes to --size: scale the short or the long side; letterbox pads to a "
    "square, stretch makes one, crop cuts one from the middle.",
)
@click.option(
    "--image",
    type=click.Choice(get_args(ImagePolicy)),
    default=_DEFAULTS.image,
    show_default=True,
    help="Store decoded pixels, or the files' own bytes.",
)
@click.option(
    "--mode",
    type=click.Choice(get_args(ColorMode)),
    default=_DEFAULTS.mode,
    show_default=True,
    help="Colour of the pixels. unchanged keeps channels and bit depth.",
)
@click.option(
    "--shard-size",
    "shard_bytes_max",
    type=BYTE_SIZE,
    default="1GiB",
    show_default=True,
    help="Largest size of a shard. Small stores are cut finer.",
)
@click.option(
    "--max-pixels",
    "pixels_max",
    type=click.IntRange(min=1),
    default=_DEFAULTS.pixels_max,
    show_default=True,
    help="Reject an image whose header declares more pixels.",
)
@click.option(
    "--clip-boxes", is_flag=True, help="Cut boxes off at the edge of their picture. Default: keep."
)
@click.option(
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
    help="How many rejects there may be: a count or a share. Past it nothing is published.",
)
@click.option("--overwrite", is_flag=True, help="Replace a store at OUT once the new one is whole.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def build_command(
    raw: Path,
    out: Path,
    format_name: str,
    root: Path | None,
    classes: tuple[str, ...] | None,
    split: str | None,
    task: Any,
    label_is_index: bool,
    voc_origin: Any,
    worker_count: int | None,
    scratch: Path | None,
    on_error: Any,
    rejects_max: str,
    overwrite: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """Compile the images under RAW into a store at OUT.

    RAW is a folder of images (class folders, train/ and val/, or flat) or a list (CSV, TSV).
    Interrupted at any moment, the same command goes on where it stopped.
    """
    try:
        recipe = Recipe(**settings)
        source = SourceOptions(
            format=format_name,
            root=root,
            classes=classes,
            split=split,
            task=task,
            label_is_index=label_is_index,
            voc_origin=voc_origin,
        )
        reject_count_max(rejects_max, 0)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
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
            shows_progress=True,
        )
    except (KeyboardInterrupt, Terminated):
        click.echo("Stopped. Finished shards are kept: run the same command to go on.", err=True)
        raise
    click.echo(json.dumps(report.as_dict()) if as_json else printable(report.summary()))
