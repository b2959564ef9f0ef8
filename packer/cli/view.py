"""The `view` command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from packer.cli import in_options, printable
from packer.cli.options import LAYOUT_OPTIONS, with_options
from packer.cli.params import CLASS_NAMES, PLACE, QUIET
from packer.progress import Progress
from packer.sources import SourceOptions
from packer.stores.selection import read_key_list
from packer.view.make import LIMIT, PAGE_NAME, is_store, view_raw, view_store
from packer.view.server import ViewServer
from packer.view.store_view import StoreView
from readers.store.place import Place

_OF_RAW = ("format_name", "task", "label_is_index", "voc_origin")
_OF_STORES = ("rejects", "against", "serves", "port")
_OF_PAGES = ("out", "limit", "as_json", "rejects")


@click.command("view")
@click.argument("place", metavar="STORE|RAW", type=PLACE)
@click.option(
    "-o",
    "--output",
    "out",
    type=click.Path(dir_okay=False, path_type=Path),
    default=PAGE_NAME,
    show_default=True,
    help="The page.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=LIMIT,
    show_default=True,
    help="Samples on it, drawn from all that fit.",
)
@click.option("--split", "splits", multiple=True, help="Samples of this split; may be repeated.")
@click.option(
    "--classes",
    type=CLASS_NAMES,
    help="Of STORE: samples of these classes, or with an object of one. Of RAW, as for a build: "
    "the classes in the order of their labels. Names with commas, or a file.",
)
@click.option(
    "--keys",
    "key_list",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Samples whose keys stand in this file, one a line.",
)
@click.option("--rejects", is_flag=True, help="What was not packed, in place of samples.")
@click.option(
    "--against",
    metavar="RAW",
    type=click.Path(path_type=Path),
    help="Show the raw picture beside the stored one, and those of rejects.",
)
@click.option(
    "--serve",
    "serves",
    is_flag=True,
    help="Page through all of STORE in a browser of this machine, rather than write a page.",
)
@click.option(
    "--port", type=click.IntRange(1, 65535), help="With --serve. Default: any that is free."
)
@with_options(LAYOUT_OPTIONS)
@QUIET
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def view_command(
    place: Place,
    out: Path,
    limit: int,
    key_list: Path | None,
    is_quiet: bool,
    as_json: bool,
    serves: bool,
    port: int | None,
    **settings: Any,
) -> None:
    """Draw samples of STORE, or of RAW before it is built, on a page that a browser shows.

    One file, without a network: a contact sheet with boxes, outlines, masks and keypoints; each
    sample large with all its fields; search, figures, rejects, and how the store was made. Of RAW:
    what its layout is taken for, so that a mistake is seen before hours of work.
    """
    is_raw = not is_store(place)
    _refuse_unused(is_raw=is_raw, serves=serves, has_raw=settings["against"] is not None)
    choice: dict[str, Any] = {
        "splits": settings["splits"],
        "classes": settings["classes"] or (),
        "keys": None if key_list is None else read_key_list(key_list),
    }
    beside = {"against": settings["against"], "root": settings["root"]}
    if serves:
        _serve(place, port or 0, choice, beside)
        return
    with Progress(total=0, shows=not is_quiet, unit="samples") as bar:
        if isinstance(place, Path) and is_raw:
            source = _source(settings)
            report = view_raw(
                place, out, source=source, limit=limit, keys=choice["keys"], on_progress=bar.add
            )
        else:
            report = view_store(
                place,
                out,
                limit=limit,
                rejects=settings["rejects"],
                on_progress=bar.add,
                **choice,
                **beside,
            )
    click.echo(json.dumps(report.as_dict()) if as_json else printable(report.summary()))


def _source(settings: dict[str, Any]) -> SourceOptions:
    """How raw data is to be read."""
    names = ("root", "classes", "task", "label_is_index", "voc_origin")
    if len(settings["splits"]) > 1:
        raise click.UsageError("--split: of raw data one split, or all.")
    try:
        return SourceOptions(
            format=settings["format_name"],
            split=settings["splits"][0] if settings["splits"] else None,
            **{name: settings[name] for name in names},
        )
    except ValueError as error:
        raise click.UsageError(in_options(str(error))) from error


def _refuse_unused(*, is_raw: bool, serves: bool, has_raw: bool) -> None:
    """Refuse options that would change nothing."""
    context = click.get_current_context()
    given = {
        str(param.name): max(param.opts, key=len)
        for param in context.command.params
        if context.get_parameter_source(str(param.name)) is ParameterSource.COMMANDLINE
    }

    def refuse(names: tuple[str, ...], why: str) -> None:
        for name in names:
            if name in given:
                raise click.UsageError(f"{given[name]} {why}")

    if is_raw:
        refuse(_OF_STORES, "is about a store, and this is raw data: build it first.")
    else:
        refuse(_OF_RAW, "is about raw data, and this is a store: it was read when it was built.")
        if not has_raw:
            refuse(("root",), "is about the RAW of --against.")
    if serves:
        refuse(_OF_PAGES, "is about a page that is written; --serve shows all samples.")
    else:
        refuse(("port",), "is about --serve.")


def _serve(place: Place, port: int, choice: dict[str, Any], beside: dict[str, Any]) -> None:
    """Answer until Ctrl-C."""
    with ViewServer(StoreView(place, **choice, **beside), port) as server:
        click.echo(f"{server.url}\nThis machine alone reaches it, with this address. End: Ctrl-C")
        server.serve()
