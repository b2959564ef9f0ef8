"""The commands of a build that many nodes carry out: `submit`, `work`, `publish`, `status`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

import click

from packer.cli import Terminated, printable
from packer.cli.options import (
    OUTCOME_OPTIONS,
    RECIPE_OPTIONS,
    SOURCE_OPTIONS,
    WORK_OPTIONS,
    build_settings,
    with_options,
)
from packer.cli.params import PART, QUIET
from packer.cluster.publish import publish_planned
from packer.cluster.slurm import dry_run_text, make_jobs, packer_command, submit
from packer.cluster.status import status
from packer.cluster.work import work
from packer.errors import SourceError
from packer.workspace.folder import Workspace
from packer.workspace.publish import check_target


class _RemembersArguments(click.Command):
    """A command that keeps its arguments as they were typed, to hand them on."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse, and keep what is parsed."""
        ctx.meta[_TYPED] = list(args)
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List its own options alone: those of `packer build` fill a page there already."""
        shown = [param for param in self.get_params(ctx) if param.name in _OWN]
        help_option = self.get_help_option(ctx)
        if help_option is not None:
            shown.append(help_option)
        with formatter.section("Options, beside all those of packer build"):
            formatter.write_dl([row for row in (one.get_help_record(ctx) for one in shown) if row])


_TYPED = "packer.cli.cluster.typed"
_OWN = ("task_count", "cpus_per_task", "sbatch", "dry_run", "as_json")
_OF_WORK = ("workers", "scratch")


def _typed_options(ctx: click.Context, names: Collection[str], *, others: bool) -> list[str]:
    """The options that were typed, of these names or of all others, one word each."""
    values, _, order = ctx.command.make_parser(ctx).parse_args(args=list(ctx.meta[_TYPED]))
    words = []
    for param in dict.fromkeys(order):
        if not isinstance(param, click.Option) or (param.name in names) == others:
            continue
        name, value = param.opts[0], values[param.name or ""]
        if param.is_flag:
            words.append(name)
        else:
            words += [f"{name}={one}" for one in (value if param.multiple else [value])]
    return words


@click.command("submit", cls=_RemembersArguments)
@click.argument("raw", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--tasks",
    "task_count",
    type=click.IntRange(min=1),
    required=True,
    help="Tasks of the job array, each with build workers of its own.",
)
@click.option(
    "--cpus-per-task",
    type=click.IntRange(min=1),
    help="Cores, and build workers, of each task. Default: what Slurm gives a task.",
)
@click.option(
    "--sbatch",
    default="",
    metavar="OPTIONS",
    help="More options of sbatch for all three jobs, in one word: '-p cpu --time=4:00:00'.",
)
@click.option("--dry-run", is_flag=True, help="Show the scripts and submit nothing.")
@with_options(SOURCE_OPTIONS, RECIPE_OPTIONS, WORK_OPTIONS, OUTCOME_OPTIONS)
@click.option("--json", "as_json", is_flag=True, help="Print what was submitted as JSON.")
@click.pass_context
def submit_command(
    ctx: click.Context,
    /,
    raw: Path,
    out: Path,
    task_count: int,
    cpus_per_task: int | None,
    sbatch: str,
    dry_run: bool,
    workers: int | None,
    scratch: Path | None,
    as_json: bool,
    **settings: Any,
) -> None:
    """Build a store of RAW at OUT on a Slurm cluster, and return at once.

    Three jobs: one scans and plans, an array makes the shards, and one publishes the store. RAW and
    OUT must be there under the same paths on all nodes. Scripts and logs are kept in OUT.slurm.
    The same command again goes on where an earlier one stopped.
    """
    _, _, outcome = build_settings(settings, out)
    raw, out = Path(os.path.abspath(raw)), Path(os.path.abspath(out))
    if not raw.exists():
        raise SourceError(f"{raw}: no such file or folder.")
    if not Workspace.of(out).folder.exists():
        check_target(out, overwrite=outcome["overwrite"] or outcome["update"])
    try:
        jobs = make_jobs(
            out,
            packer_command(),
            [str(raw), str(out), *_typed_options(ctx, (*_OWN, *_OF_WORK), others=True)],
            task_count=task_count,
            cpus_per_task=cpus_per_task,
            sbatch=sbatch,
            work_arguments=_typed_options(ctx, _OF_WORK, others=False),
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if dry_run:
        click.echo(printable(dry_run_text(jobs)), nl=False)
        return
    done = submit(out, jobs)
    click.echo(json.dumps(done.as_dict()) if as_json else printable(done.summary()))


@click.command("work")
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--part",
    type=PART,
    metavar="I/N",
    help="Begin with this part of the shards, from 1/N to N/N, then help with the others. Default: "
    "take any.",
)
@with_options(WORK_OPTIONS)
@click.option("--name", default="", help="What packer status calls this process: its job, say.")
@QUIET
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def work_command(
    out: Path,
    part: tuple[int, int] | None,
    workers: int | None,
    scratch: Path | None,
    name: str,
    is_quiet: bool,
    as_json: bool,
) -> None:
    """Make shards of the build of OUT that packer build --plan-only has planned.

    Run it on as many nodes as you like, at any time. It ends when no shard is left to make, and
    cleanly when it is told to (SIGTERM): finished shards stay, and it can be run again.
    """
    try:
        report = work(
            out,
            part=part,
            workers=workers,
            scratch=scratch,
            name=name,
            progress=not is_quiet,
        )
    except (KeyboardInterrupt, Terminated):
        click.echo(printable(f"Stopped. {Workspace.of(out).describe_kept()}"), err=True)
        raise
    click.echo(json.dumps(report.as_dict()) if as_json else printable(report.summary()))


@click.command("publish")
@click.argument("out", type=click.Path(path_type=Path))
@with_options(WORK_OPTIONS)
@click.option(
    "--make-missing",
    type=click.IntRange(min=0),
    metavar="COUNT",
    help="Make up to so many shards here that nobody has finished. Default: a twentieth of all, or "
    "one for each build worker.",
)
@QUIET
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def publish_command(
    out: Path,
    workers: int | None,
    scratch: Path | None,
    make_missing: int | None,
    is_quiet: bool,
    as_json: bool,
) -> None:
    """Publish the store at OUT once packer work has made its shards.

    A few that are missing are made here; where many are, it says which and why, and fails.
    """
    try:
        report = publish_planned(
            out,
            workers=workers,
            scratch=scratch,
            make_missing=make_missing,
            progress=not is_quiet,
        )
    except (KeyboardInterrupt, Terminated):
        click.echo(printable(f"Stopped. {Workspace.of(out).describe_kept()}"), err=True)
        raise
    click.echo(json.dumps(report.as_dict()) if as_json else printable(report.summary()))


@click.command("status")
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--watch", is_flag=True, help="Show it again and again, until OUT is published.")
@click.option(
    "--every",
    "every_s",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    metavar="SECONDS",
    help="How often, with --watch.",
)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON, a line each time.")
def status_command(out: Path, watch: bool, every_s: int, as_json: bool) -> None:
    """Say how far the build of OUT has come: which shards are done, running, lost, and where.

    From any node that sees OUT; it asks the file system little and Slurm nothing.
    """
    while True:
        found = status(out)
        if watch and not as_json:
            click.clear()  # Nothing where stdout is not a terminal.
        click.echo(json.dumps(found.as_dict()) if as_json else printable(found.summary()))
        if not watch or found.state == "published":
            return
        time.sleep(every_s)
