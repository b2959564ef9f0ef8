"""A raw tree becomes a store: scan, plan, make the shards, publish."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packer.building.begin import Begun, Run, begin, scan_raw
from packer.building.finish import OnError, finish
from packer.building.reject_limits import stop_at
from packer.building.spooling import check_forward, spooled
from packer.engines.choose import EngineName, check_engine, make_engine
from packer.engines.engine import Engine
from packer.plan.shards import BuildPlan, make_plan
from packer.progress import Progress
from packer.recipe import Recipe
from packer.report import BuildReport, make_report
from packer.sources import SourceOptions
from packer.sources.dataset import is_dataset
from packer.workspace.folder import Workspace
from packer.workspace.lock import TargetLock
from packer.workspace.scratch import scratch_folder
from packer.workspace.space import disk_named
from packer.workspace.step import OnStep, Step, untold
from packer.workspace.unfinished import is_published
from readers.store.manifest import Manifest, read_manifest


def build(
    raw: str | Path | Any,
    out: str | Path,
    recipe: Recipe | None = None,
    *,
    source: SourceOptions | None = None,
    worker_count: int | None = None,
    scratch: str | Path | None = None,
    engine: EngineName = "local",
    scheduler: Any = None,
    on_error: OnError = "reject",
    rejects_max: str | int = "1%",
    overwrite: bool = False,
    update: bool = False,
    rehash: bool = False,
    retry_rejects: bool = False,
    shows_progress: bool = False,
    on_step: OnStep = untold,
) -> BuildReport:
    """Compile the images under `raw`, and their annotations, into a store at `out`.

    Interrupted at any moment, the same call goes on where it stopped. Nothing exists at `out`
    until the store is whole.

    Args:
        raw: Folder of images and annotations, or a file that names them, see `packer.sources`; or a
            map-style torch Dataset, see `packer.sources.dataset`.
        out: Where the store is to be.
        recipe: The settings that decide its bytes. None means the defaults.
        source: How to read `raw`. None detects it.
        worker_count: Build workers. None means the cores that this job may use.
        scratch: Folder on a local disk in which shards are written before they are moved into
            place. None means beside the store, or the system's temporary folder when the store is
            to be on a network file system.
        engine: Who makes the shards: "local", processes of this machine, or "dask", the workers of
            a Dask cluster, which all see `raw` and `out` under the same paths.
        scheduler: With "dask": the address of its scheduler, or a Client or a Cluster of
            `distributed`. None starts a `LocalCluster` of `worker_count` threads.
        on_error: "reject" leaves out a raw item that cannot be packed and names it; "fail" stops.
        rejects_max: How many raw items may be rejected: a count, or a share of those found such as
            "1%", rounded down. One must be left to store in any case.
        overwrite: Replace a store at `out`, in one step once the new one is whole, and discard an
            unfinished build of other settings.
        update: Bring the store at `out` up to date with the raw data: make those shards anew whose
            items changed, keep the others; see `packer.building.update`. Where there is none,
            build it.
        rehash: With `update`, read every raw file, rather than only those whose size or time of
            change is another.
        retry_rejects: With `update`, try rejects again, though their files are unchanged.
        shows_progress: Draw a progress bar on stderr, when that is a terminal.
        on_step: Told of each step as it is done.

    Returns:
        The report. The store's manifest keeps what matters of it.

    Raises:
        ValueError: An argument is out of its range.
        SourceError: `raw` is not there, holds nothing to pack, or is of no known layout.
        TargetExistsError: Something is at `out`.
        TargetBusyError: Another build is writing there.
        BuildMismatchError: An unfinished build of other settings or data is in the way.
        TooManyRejectsError: Past `rejects_max`; the message names every reject.
        RejectedItemError: An item was rejected under on_error="fail".
        NoSpaceError: A disk is full.
        DiskError: A disk or a file server fails where the store is written.
        WorkerError: Build workers died, over and over.
        NodeError: A Dask worker has other libraries, or does not see `raw` or `out`.
    """
    started = time.monotonic()
    check_engine(engine, scheduler, worker_count)
    if engine != "local" and is_dataset(raw):
        raise ValueError("a Dataset cannot be handed to a cluster; build it with engine='local'")
    out = Path(os.path.abspath(out))
    run = Run(
        out=out,
        workspace=Workspace.of(out),
        was_there=os.path.lexists(out),
        worker_count=worker_count,
        scratch=scratch,
        on_error=on_error,
        rejects_max=rejects_max,
        overwrite=overwrite,
        update=update,
        rehash=rehash,
        retry_rejects=retry_rejects,
        shows_progress=shows_progress,
        on_step=on_step,
        is_shared=engine != "local",
    )
    with contextlib.ExitStack() as stack:
        maker = stack.enter_context(
            make_engine(
                engine,
                run.workspace,
                scheduler=scheduler,
                worker_count=worker_count,
                scratch=scratch,
            )
        )
        scan = scan_raw(raw, source or SourceOptions(), run, maker, stack)
        plan = make_plan(scan, recipe or Recipe())
        if run.is_shared:
            check_forward(plan)
        if on_error == "fail":
            # Of what the recipe chooses: what it leaves out is no reason to stop.
            stop_at([*plan.scan.rejects, *plan.scan.annotation_rejects])
        made = _carry_out(plan, run, maker)
    return make_report(
        out,
        made.manifest,
        started,
        maker.worker_count,
        kept=made.kept,
        done=made.done,
        notices=run.notices,
    )


# --- from a plan to a store, step by step ---------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Made:
    """A store that is published.

    Attributes:
        manifest: Its manifest.
        kept: Shards that were there already.
        done: Items that were worked on.
    """

    manifest: Manifest
    kept: int
    done: int = 0


def _carry_out(plan: BuildPlan, run: Run, engine: Engine) -> _Made:
    """Make the shards of a plan and publish them, or see that this is done already."""
    workspace, out = run.workspace, run.out
    with disk_named(out, plan.byte_count), TargetLock(workspace, out):
        with workspace.removed_unless_begun():
            if is_published(workspace, out, None if run.update else plan.facts()):
                # Killed between the last two steps: all that is left is to clean up.
                workspace.remove()
                return _as_it_is(out)
            begun = begin(plan, run)
        if begun is None:
            return _as_it_is(out)
        if run.is_shared:
            workspace.open_to_nodes()
        run.on_step(Step.PLANNED)
        _make_shards(begun, run, engine)
        run.on_step(Step.SHARDS_FINISHED)
        manifest = finish(
            begun.plan,
            workspace,
            out,
            begun.plan_id,
            on_error=run.on_error,
            rejects_max=run.rejects_max,
            on_step=run.on_step,
        )
    return _Made(manifest=manifest, kept=len(begun.kept), done=begun.item_count)


def _as_it_is(out: Path) -> _Made:
    """The store at the target, which is what this build would make."""
    manifest = read_manifest(out)
    return _Made(manifest=manifest, kept=len(manifest.shards))


def _make_shards(begun: Begun, run: Run, engine: Engine) -> None:
    """Have the engine make what is missing."""
    plan, workspace = begun.plan, run.workspace
    total = len(plan.scan.items)
    with (
        scratch_folder(workspace, run.scratch) as folder,
        Progress(total=total, done=total - begun.item_count, shows=run.shows_progress) as bar,
        spooled(workspace, plan, begun.numbers, run.scratch, bar.say),
    ):

        def on_progress(count: int, finished: int | None) -> None:
            bar.add(count)
            if finished is not None:
                run.on_step(Step.SHARD_FINISHED)

        def on_notice(text: str) -> None:
            run.notices.append(text)
            bar.say(text)

        if begun.numbers:
            numbers = begun.largest_first() if run.is_shared else begun.numbers
            engine.map(numbers, folder, on_progress, on_notice)
