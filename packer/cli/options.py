"""Options that several commands share: how raw data is read, and how it is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar, get_args

import click
from click.core import ParameterSource

from packer.building.begin import check_replacement
from packer.cli import in_options
from packer.cli.params import BYTE_SIZE, CLASS_NAMES, IMAGE_SIZE, SPLIT_SHARES
from packer.engines.choose import EngineName
from packer.policies import POLICIES
from packer.recipe import (
    NEEDS,
    QUALITY,
    RAW_SHARE,
    ColorMode,
    Fit,
    Recipe,
    Scaling,
    needs_text,
)
from packer.sources import LAYOUTS, SourceOptions
from packer.sources.source import Task, VocOrigin
from packer.workspace.rejects import reject_count_max
from readers.store.place import Place

_DEFAULTS = Recipe()
_Command = TypeVar("_Command", bound=Callable[..., Any])

_PLACE_OPTIONS = (
    click.option(
        "--format",
        "format_name",
        type=click.Choice(["auto", *LAYOUTS]),
        metavar="NAME",  # A line of all would be broken by any terminal.
        default="auto",
        show_default=True,
        help=f"Layout of RAW: {', '.join(['auto', *LAYOUTS])}.",
    ),
    click.option(
        "--root",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        help="Folder that the paths in a list are relative to. Default: the list's own.",
    ),
)

_MEANING_OPTIONS = (
    click.option(
        "--task",
        type=click.Choice(get_args(Task)),
        help="What annotations are for: boxes alone, masks or outlines, keypoints, or corners of "
        "turned boxes. Default: all that they have.",
    ),
    click.option(
        "--path-column",
        metavar="NAME",
        help="Column of a list that names the pictures: by path, file name or its stem. Default: "
        "by the names of the columns.",
    ),
    click.option(
        "--label-column",
        metavar="NAME",
        help="Column of a list that has the labels. Default: by the names of the columns.",
    ),
    click.option("--label-is-index", is_flag=True, help="Labels in a list are numbers, not names."),
    click.option(
        "--voc-origin",
        type=click.Choice(get_args(VocOrigin)),
        default=SourceOptions.voc_origin,
        show_default=True,
        help="The first pixel of Pascal VOC's coordinates. auto is 1, the official rule, unless "
        "one is 0.",
    ),
)

LAYOUT_OPTIONS = (*_PLACE_OPTIONS, *_MEANING_OPTIONS)
"""What the layout of RAW is taken for."""

SOURCE_OPTIONS = (
    *_PLACE_OPTIONS,
    click.option(
        "--classes",
        "classes",
        type=CLASS_NAMES,
        help="Class names in the order of their labels: a file with one a line, or names with "
        "commas.",
    ),
    click.option("--split", help="Take this split alone, such as train."),
    *_MEANING_OPTIONS,
)
"""How RAW is read; see `read_options`."""

SOURCE_NAMES = (
    "format_name",
    "root",
    "classes",
    "split",
    "task",
    "path_column",
    "label_column",
    "label_is_index",
    "voc_origin",
)
"""What the values of `SOURCE_OPTIONS` are called."""

RECIPE_OPTIONS = (
    click.option(
        "--size",
        type=IMAGE_SIZE,
        help="Side in pixels that --fit is about, such as 224; or WIDTHxHEIGHT, such as 320x224, "
        "with --fit crop, letterbox or stretch. Default: each image's own size.",
    ),
    click.option(
        "--fit",
        type=click.Choice(get_args(Fit)),
        default=_DEFAULTS.fit,
        show_default=True,
        help="How an image comes to --size: scale the short or the long side; letterbox pads to "
        "the square or rectangle, stretch makes it one, crop cuts one from the middle.",
    ),
    click.option(
        "--max-side",
        type=int,
        help="Scale an image down whose long side has more pixels than this.",
    ),
    click.option(
        "--scaling",
        type=click.Choice(get_args(Scaling)),
        default=_DEFAULTS.scaling,
        show_default=True,
        help="How images are scaled down: exact averages by area, fast does nearly so at half "
        "the cost.",
    ),
    click.option(
        "--image",
        type=click.Choice(list(POLICIES)),
        default=_DEFAULTS.image,
        show_default=True,
        help="How images are stored. "
        + "; ".join(f"{name}: {policy.text}" for name, policy in POLICIES.items())
        + ". Files that need no change are never encoded again.",
    ),
    click.option(
        "--quality",
        type=click.IntRange(1, 100),
        help=f"Of JPEG and WebP. Default: {QUALITY}.",
    ),
    click.option("--raw-share", type=float, help=f"For proportion. Default: {RAW_SHARE}."),
    click.option(
        "--raw-below", type=BYTE_SIZE, help="For smart: bytes of pixels. Default: 256KiB."
    ),
    click.option(
        "--target-size",
        "target_bytes",
        type=BYTE_SIZE,
        help="Choose how images are stored so that the store takes at most this: 60GB.",
    ),
    click.option(
        "--mode",
        type=click.Choice(get_args(ColorMode)),
        default=_DEFAULTS.mode,
        show_default=True,
        help="Colour of the pixels. unchanged keeps channels and bit depth.",
    ),
    click.option(
        "--shard-size",
        "shard_bytes_max",
        type=BYTE_SIZE,
        default="1GiB",
        show_default=True,
        help="Largest size of a shard. Small stores are cut finer.",
    ),
    click.option(
        "--max-pixels",
        "pixels_max",
        type=click.IntRange(min=1),
        default=_DEFAULTS.pixels_max,
        show_default=True,
        help="Reject an image whose header declares more pixels.",
    ),
    click.option(
        "--clip-boxes",
        is_flag=True,
        help="Cut boxes off at the edge of their picture. Default: keep.",
    ),
    click.option(
        "--include",
        multiple=True,
        metavar="GLOB",
        help="Take only images whose path below RAW matches, such as 'train/*'. May be repeated.",
    ),
    click.option(
        "--exclude", multiple=True, metavar="GLOB", help="Leave out images whose path matches."
    ),
    click.option(
        "--limit", type=click.IntRange(min=1), help="Keep this many images, drawn by their paths."
    ),
    click.option(
        "--splits",
        type=SPLIT_SHARES,
        default=(),
        help="Divide the images, drawn by their paths: train=0.9,val=0.1.",
    ),
    click.option(
        "--stratify", is_flag=True, help="Give each class its exact share of --splits and --limit."
    ),
    click.option(
        "--shuffle",
        type=click.IntRange(min=0),
        metavar="SEED",
        help="Store the images in a random order, so that reading in order is random already.",
    ),
)
"""What the store holds: the settings of a `Recipe`, by name."""


WORK_OPTIONS = (
    click.option(
        "-j",
        "--workers",
        type=click.IntRange(min=1),
        help="Build workers. Default: the cores of this job.",
    ),
    click.option(
        "--scratch",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        help="Folder on a local disk to write shards in. Default: beside OUT, or the temporary "
        "folder when OUT is on a network file system, or a URL: there it must have room for the "
        "store.",
    ),
)
"""How shards are made on one machine."""

ENGINE_OPTIONS = (
    click.option(
        "--engine",
        type=click.Choice(get_args(EngineName)),
        default="local",
        show_default=True,
        help="Who makes the shards: processes of this machine, or the workers of a Dask cluster.",
    ),
    click.option(
        "--scheduler",
        metavar="ADDRESS",
        help="With --engine dask: of the cluster's scheduler, such as tcp://10.0.0.1:8786. "
        "Default: a cluster on this machine, of --workers threads.",
    ),
)
"""Where shards are made."""

OUTCOME_OPTIONS = (
    click.option(
        "--on-error",
        type=click.Choice(["reject", "fail"]),
        default="reject",
        show_default=True,
        help="Leave out an image that cannot be packed and name it, or stop at the first.",
    ),
    click.option(
        "--max-rejects",
        default="1%",
        show_default=True,
        help="How many images may be rejected: a count, or a share of those found, rounded down. "
        "Past it nothing is published.",
    ),
    click.option(
        "--overwrite", is_flag=True, help="Replace a store at OUT once the new one is whole."
    ),
    click.option(
        "--update",
        is_flag=True,
        help="Bring the store at OUT up to date: only shards whose items changed are rebuilt.",
    ),
    click.option(
        "--rehash", is_flag=True, help="With --update: read every file to see what changed."
    ),
    click.option(
        "--retry-rejects", is_flag=True, help="With --update: try what was rejected once more."
    ),
)
"""What may be left out, and what becomes of a store that is at OUT."""

OUTCOME_NAMES = ("on_error", "max_rejects", "overwrite", "update", "rehash", "retry_rejects")
"""What the values of `OUTCOME_OPTIONS` are called."""


def with_options(
    *groups: Iterable[Callable[[_Command], _Command]],
) -> Callable[[_Command], _Command]:
    """Gives a command these options, in this order."""

    def decorate(command: _Command) -> _Command:
        for option in reversed([option for group in groups for option in group]):
            command = option(command)
        return command

    return decorate


def read_options(settings: dict[str, Any]) -> tuple[SourceOptions, Recipe]:
    """What the values of `SOURCE_OPTIONS` and `RECIPE_OPTIONS` say, of a command that has both.

    Raises:
        click.UsageError: They are out of their ranges, contradict each other or change nothing.
    """
    source = {name: settings[name] for name in SOURCE_NAMES}
    recipe = {name: value for name, value in settings.items() if name not in source}
    context = click.get_current_context()
    for name, about in NEEDS.items():
        is_given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        # The default itself, given by hand, was meant to do something as well.
        if is_given and not any(recipe[other] for other in about):
            raise click.UsageError(in_options(needs_text(name, recipe[name])))
    try:
        return SourceOptions(format=source.pop("format_name"), **source), Recipe(**recipe)
    except ValueError as error:
        raise click.UsageError(in_options(str(error))) from error


def build_settings(
    settings: dict[str, Any], out: Place
) -> tuple[SourceOptions, Recipe, dict[str, Any]]:
    """What the options of a build ask for: how to read, what to store, what may be left out.

    Args:
        settings: Values of `SOURCE_OPTIONS`, `RECIPE_OPTIONS` and `OUTCOME_OPTIONS`, by name.
        out: The target.

    Raises:
        click.UsageError: They contradict each other, change nothing, or are out of their ranges.
    """
    rest = dict(settings)
    outcome = {name: rest.pop(name) for name in OUTCOME_NAMES}
    source, recipe = read_options(rest)
    try:
        reject_count_max(outcome["max_rejects"], 0)
        check_replacement(
            out,
            update=outcome["update"],
            overwrite=outcome["overwrite"],
            needs_update=outcome["rehash"] or outcome["retry_rejects"],
        )
    except ValueError as error:
        raise click.UsageError(in_options(str(error))) from error
    return source, recipe, outcome
