"""A raw tree becomes a store: scan, plan, make the shards, publish."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from inspect import signature
from pathlib import Path
from typing import Any

from packer.building.begin import Begun, Run, begin, check_replacement, scan_raw
from packer.building.finish import OnError, finish
from packer.building.reject_limits import stop_at
from packer.building.spooling import check_forward, spooled
from packer.engines.choose import EngineName, check_engine, make_engine
from packer.engines.engine import Engine
from packer.items.item_columns import byte_counts
from packer.plan.gray import gray_ahead_text
from packer.plan.shards import BuildPlan, make_plan
from packer.progress import Progress, Waiting, is_notebook, say
from packer.recipe import Recipe
from packer.report import BuildReport, make_report
from packer.sources import SourceOptions
from packer.sources.dataset import is_dataset
from packer.sources.walk import walks_told
from packer.workspace.lock import TargetLock
from packer.workspace.publish import is_taken
from packer.workspace.scratch import scratch_folder
from packer.workspace.space import disk_named
from packer.workspace.step import OnStep, Step, untold
from packer.workspace.unfinished import is_published
from packer.workspace.upload import connected, workspace_of
from readers.store.manifest import Manifest, read_manifest
from readers.store.place import Place, place_of
from readers.store.wording import did_you_mean


def build(
    raw: str | Path | Any,
    out: str | Place,
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
    storage_options: Mapping[str, Any] | None = None,
    workers: int | None = None,
    max_rejects: str | int | None = None,
    progress: bool | None = None,
    **settings: Any,
) -> BuildReport:
    """Compile the images under `raw`, and their annotations, into a store at `out`.

    Interrupted at any moment, the same call goes on where it stopped. Nothing exists at `out`
    until the store is whole.

    Args:
        raw: Folder of images and annotations, or a file that names them, see `packer.sources`; or a
            map-style torch Dataset, see `packer.sources.dataset`.
        out: Where the store is to be: a folder, or a URL such as "s3://bucket/out.lmdb". For a URL
            it is built in `scratch`, which must have room for all of it, and then uploaded.
        recipe: The settings that decide its bytes. None means the defaults, but for `settings`.
        source: How to read `raw`. None detects it.
        scratch: Folder on a local disk in which shards are written before they are moved into
            place. None means beside the store, or the system's temporary folder when the store is
            to be on a network file system.
        engine: Who makes the shards: "local", processes of this machine, or "dask", the workers of
            a Dask cluster, which all see `raw` and `out` under the same paths.
        scheduler: With "dask": the address of its scheduler, or a Client or a Cluster of
            `distributed`. None starts a `LocalCluster` of `worker_count` threads.
        on_error: "reject" leaves out a raw item that cannot be packed and names it; "fail" stops.
        overwrite: Replace a store at `out`, in one step once the new one is whole, and discard an
            unfinished build of other settings.
        update: Bring the store at `out` up to date with the raw data: make those shards anew whose
            items changed, keep the others; see `packer.building.update`. Where there is none,
            build it.
        rehash: With `update`, read every raw file, rather than only those whose size or time of
            change is another.
        retry_rejects: With `update`, try rejects again, though their files are unchanged.
        on_step: Told of each step as it is done.
        storage_options: Of a URL: keys and other settings, as fsspec has them.
        workers: Build workers. None means the cores that this job may use.
        max_rejects: How many raw items may be rejected: a count, or a share of those found such as
            "1%", rounded down. One must be left to store in any case. None means "1%".
        progress: Say on stderr what was decided and how far the work is: a bar on a terminal or in
            a notebook, else a line every 30 s. None does so in a notebook alone.
        worker_count: The older name of `workers`.
        rejects_max: The older name of `max_rejects`.
        shows_progress: The older name of `progress`.
        settings: Settings of a `Recipe` by name, in place of a recipe: `size=224, fit="crop"`.

    Returns:
        The report. The store's manifest keeps what matters of it.

    Raises:
        ValueError: An argument is out of its range.
        RemoteError: The server of a URL refuses, fails or does not answer.
        TypeError: One of `settings` is no setting.
        SourceError: `raw` is not there, holds nothing to pack, or is of no known layout.
        TargetExistsError: Something is at `out`.
        TargetBusyError: Another build is writing there.
        BuildMismatchError: An unfinished build of other settings or data is in the way.
        TooManyRejectsError: Past `rejects_max`; the message says what was rejected and why.
        RejectedItemError: An item was rejected under on_error="fail".
        NoSpaceError: A disk is full.
        DiskError: A disk or a file server fails where the store is written.
        WorkerError: Build workers died, over and over.
        NodeError: A Dask worker has other libraries, or does not see `raw` or `out`.
    """
    started = time.monotonic()
    recipe = _recipe_of(recipe, settings)
    if workers is not None and worker_count is not None:
        raise ValueError("workers and worker_count are one setting; give one of them")
    worker_count = worker_count if workers is None else workers
    out = place_of(out, storage_options)
    if isinstance(out, Path):
        out = Path(os.path.abspath(out))
    check_engine(engine, scheduler, worker_count, out)
    if engine != "local" and is_dataset(raw):
        raise ValueError("a Dataset cannot be handed to a cluster; build it with engine='local'")
    check_replacement(out, update=update, overwrite=overwrite, needs_update=rehash or retry_rejects)
    with connected(out), contextlib.ExitStack() as stack:
        run = Run(
            out=out,
            workspace=workspace_of(out, scratch),
            was_there=is_taken(out),
            worker_count=worker_count,
            scratch=scratch,
            on_error=on_error,
            rejects_max=rejects_max if max_rejects is None else max_rejects,
            overwrite=overwrite,
            update=update,
            rehash=rehash,
            retry_rejects=retry_rejects,
            shows_progress=shows_progress or (is_notebook() if progress is None else progress),
            on_step=on_step,
            is_shared=engine != "local",
        )
        maker = stack.enter_context(
            make_engine(
                engine,
                run.workspace,
                scheduler=scheduler,
                worker_count=worker_count,
                scratch=scratch,
            )
        )
        with Waiting("scanning", shows=run.shows_progress) as waiting, walks_told(waiting.count):
            scan = scan_raw(raw, source or SourceOptions(), run, maker, stack)
            plan = make_plan(scan, recipe)
        if run.is_shared:
            check_forward(plan)
        if run.shows_progress:
            # Before hours of work, which may be for nothing if one of them is wrong.
            say([*plan.scan.notes, *filter(None, [gray_ahead_text(plan.scan, plan.recipe)])])
        if on_error == "fail":
            # Of what the recipe chooses: what it leaves out is no reason to stop.
            stop_at([*plan.scan.rejects, *plan.scan.annotation_rejects])
        made = _carry_out(plan, run, maker)
    raw_bytes = int(byte_counts(plan.scan.items).sum())
    return make_report(
        out,
        made.manifest,
        started,
        maker.worker_count,
        kept=made.kept,
        done=made.done,
        making_s=made.making_s,
        raw_bytes=raw_bytes,
        notices=run.notices,
    )


def _recipe_of(recipe: Recipe | None, settings: dict[str, Any]) -> Recipe:
    """The recipe that was given, whole or by its settings."""
    known = [each.name for each in fields(Recipe)]
    for name in settings:
        if name not in known:
            if name in (each.name for each in fields(SourceOptions)):
                raise TypeError(
                    f"build has no argument {name!r}: it says how raw data is read, so it goes "
                    f"there: source=SourceOptions({name}={settings[name]!r})"
                )
            raise TypeError(
                f"build has no argument {name!r}, and a Recipe no setting of that name."
                f"{did_you_mean(name, [*known, *signature(build).parameters])}"
            )
    if recipe is not None and settings:
        raise ValueError(
            f"{', '.join(settings)} and a recipe were given; put all settings into the recipe, or "
            "give them by name alone"
        )
    return recipe or Recipe(**settings)


# --- from a plan to a store, step by step ---------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Made:
    """A store that is published.

    Attributes:
        manifest: Its manifest.
        kept: Shards that were there already.
        done: Items that were worked on.
        making_s: For how long.
    """

    manifest: Manifest
    kept: int
    done: int = 0
    making_s: float = 0.0


def _carry_out(plan: BuildPlan, run: Run, engine: Engine) -> _Made:
    """Make the shards of a plan and publish them, or see that this is done already."""
    workspace, out = run.workspace, run.out
    with disk_named(out, workspace.has_finished, plan.byte_count), TargetLock(workspace, out):
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
        making = time.monotonic()
        _make_shards(begun, run, engine)
        making_s = time.monotonic() - making
        run.on_step(Step.SHARDS_FINISHED)
        manifest = finish(
            begun.plan,
            workspace,
            out,
            begun.plan_id,
            on_error=run.on_error,
            rejects_max=run.rejects_max,
            on_step=run.on_step,
            shows_progress=run.shows_progress,
        )
    return _Made(manifest=manifest, kept=len(begun.kept), done=begun.item_count, making_s=making_s)


def _as_it_is(out: Place) -> _Made:
    """The store at the target, which is what this build would make."""
    manifest = read_manifest(out)
    return _Made(manifest=manifest, kept=len(manifest.shards))


def _make_shards(begun: Begun, run: Run, engine: Engine) -> None:
    """Have the engine make what is missing."""
    plan, workspace = begun.plan, run.workspace
    total = len(plan.scan.items)
    with (
        scratch_folder(workspace, run.scratch) as folder,
        Progress(
            total=total, done=total - begun.item_count, shows=run.shows_progress, verb="built"
        ) as bar,
        spooled(workspace, plan, begun.numbers, run.scratch, bar.say),
    ):
        bar.reject(len(plan.scan.rejects) + begun.reject_count)

        def on_progress(count: int, finished: int | None) -> None:
            bar.add(count)
            if finished is not None:
                report = workspace.read_report(finished, begun.plan_id)
                bar.reject(len(report.rejects) if report is not None else 0)
                run.on_step(Step.SHARD_FINISHED)

        def on_notice(text: str) -> None:
            run.notices.append(text)
            bar.say(text)

        if begun.numbers:
            numbers = begun.largest_first() if run.is_shared else begun.numbers
            engine.map(numbers, folder, on_progress, on_notice)
