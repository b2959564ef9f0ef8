"""A raw tree becomes a store: scan, plan, make the shards, publish."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from packer.building.account import make_manifest
from packer.building.reject_limits import check_rejects, stop_at
from packer.building.spooling import check_spool_space, spooled
from packer.building.update import plan_update, seed_workspace, update_cache_parts
from packer.engines.engine import Engine
from packer.engines.local import LocalEngine
from packer.errors import BuildError, NoSpaceError, TargetExistsError
from packer.items.raw_item import Scan
from packer.plan.cost import missing_space
from packer.plan.shards import BuildPlan, make_plan
from packer.progress import Progress
from packer.recipe import Recipe
from packer.report import BuildReport, make_report
from packer.sources import SourceOptions, scan_source
from packer.sources.dataset import is_dataset, scan_dataset
from packer.workspace.folder import TaskPlan, TaskReport, Workspace
from packer.workspace.lock import TargetLock
from packer.workspace.publish import check_target, publish
from packer.workspace.rejects import Rejects, reject_count_max, reject_list_bytes
from packer.workspace.scratch import scratch_folder, spool_folder
from packer.workspace.space import disk_named
from packer.workspace.step import OnStep, Step, untold
from packer.workspace.unfinished import goes_on, is_published
from readers.machine import core_count, local_rank_count
from readers.store.layout import REJECTS_NAME, UPDATE_CACHE_NAME
from readers.store.manifest import Manifest, read_manifest

OnError = Literal["reject", "fail"]


def build(
    raw: str | Path | Any,
    out: str | Path,
    recipe: Recipe | None = None,
    *,
    source: SourceOptions | None = None,
    worker_count: int | None = None,
    scratch: str | Path | None = None,
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
    """
    started = time.monotonic()
    out = Path(os.path.abspath(out))
    run = _Run(
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
    )
    workers = worker_count or max(1, core_count() // local_rank_count())
    with contextlib.ExitStack() as stack:
        engine = stack.enter_context(LocalEngine(run.workspace, workers))
        scan = _scan(raw, source or SourceOptions(), run, engine, stack)
        plan = make_plan(scan, recipe or Recipe())
        if on_error == "fail":
            # Of what the recipe chooses: what it leaves out is no reason to stop.
            stop_at([*plan.scan.rejects, *plan.scan.annotation_rejects])
        made = _carry_out(plan, run, engine)
    return make_report(
        out, made.manifest, started, workers, kept=made.kept, done=made.done, notices=run.notices
    )


@dataclass(frozen=True, kw_only=True)
class _Run:
    """How a build runs: what its store does not depend on.

    Attributes:
        out: The target.
        workspace: The folder beside it.
        was_there: Whether something was at the target when the build began.
        notices: What happened to this run and not to the store, a line each; it grows.

    The others are arguments of `build`.
    """

    out: Path
    workspace: Workspace
    was_there: bool
    worker_count: int | None
    scratch: str | Path | None
    on_error: OnError
    rejects_max: str | int
    overwrite: bool
    update: bool
    rehash: bool
    retry_rejects: bool
    shows_progress: bool
    on_step: OnStep
    notices: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.on_error not in get_args(OnError):
            raise ValueError(f"on_error must be 'reject' or 'fail'; got {self.on_error!r}")
        if self.worker_count is not None and self.worker_count < 1:
            raise ValueError(f"worker_count must be at least 1; got {self.worker_count!r}")
        check_replacement(
            update=self.update,
            overwrite=self.overwrite,
            needs_update=self.rehash or self.retry_rejects,
        )
        reject_count_max(self.rejects_max, 0)

    @property
    def may_replace(self) -> bool:
        """Whether a store at the target may become another."""
        return self.overwrite or self.update


def check_replacement(*, update: bool, overwrite: bool, needs_update: bool) -> None:
    """See that what is to become of a store at the target is said in one way.

    Raises:
        ValueError: It is not.
    """
    if update and overwrite:
        raise ValueError("update and overwrite are two ways to replace a store; give one of them")
    if needs_update and not update:
        raise ValueError("rehash and retry_rejects are about an update; give update as well")


def _scan(
    raw: str | Path | Any,
    source: SourceOptions,
    run: _Run,
    engine: Engine,
    stack: contextlib.ExitStack,
) -> Scan:
    """Find the raw items, while the engine gets ready. The stack ends what they need."""
    if not is_dataset(raw):
        _check_apart(Path(raw), run.out)
    if not run.workspace.folder.exists():
        check_target(run.out, overwrite=run.may_replace)
    if is_dataset(raw):
        spool = stack.enter_context(spool_folder(run.workspace, run.scratch))
        return scan_dataset(raw, spool, source)
    if os.path.exists(raw):
        engine.start_ahead()
    return scan_source(Path(raw), source)


def _check_apart(raw: Path, out: Path) -> None:
    """See that the store will not lie among the raw data."""
    folder, target = Path(os.path.realpath(raw)), Path(os.path.realpath(out))
    if folder.is_dir() and folder in target.parents:
        raise BuildError(
            f"{out}: it lies inside the raw folder {raw}, where the next build would find it among "
            "the raw data. Build to a path outside."
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


@dataclass(frozen=True, kw_only=True)
class _Begun:
    """A build whose plan and tasks are written.

    Attributes:
        plan: What is built; an update cuts it into the shards that the old store has.
        kept: Numbers of the shards that are there already.
    """

    plan: BuildPlan
    kept: set[int]

    @property
    def numbers(self) -> list[int]:
        """The shards that are to be made."""
        return [number for number in range(len(self.plan.cuts)) if number not in self.kept]

    @property
    def item_count(self) -> int:
        """The items in them."""
        return sum(end - first for first, end in map(self.plan.cuts.__getitem__, self.numbers))


def _carry_out(plan: BuildPlan, run: _Run, engine: Engine) -> _Made:
    """Make the shards of a plan and publish them, or see that this is done already."""
    workspace, out = run.workspace, run.out
    with disk_named(out, plan.byte_count), TargetLock(workspace, out):
        with workspace.removed_unless_begun():
            if is_published(workspace, out, None if run.update else plan.facts()):
                # Killed between the last two steps: all that is left is to clean up.
                workspace.remove()
                return _as_it_is(out)
            begun = _begin(plan, run)
        if begun is None:
            return _as_it_is(out)
        run.on_step(Step.PLANNED)
        _make_shards(begun, run, engine)
        run.on_step(Step.SHARDS_FINISHED)
        reports, rejects = _collect(begun.plan, run)
        manifest = make_manifest(begun.plan, reports, rejects)
        files: dict[str, bytes | Iterable[bytes]] = {
            UPDATE_CACHE_NAME: update_cache_parts(begun.plan, reports),
            REJECTS_NAME: reject_list_bytes(rejects),
        }
        publish(workspace, out, manifest, files, run.on_step)
    return _Made(manifest=manifest, kept=len(begun.kept), done=begun.item_count)


def _as_it_is(out: Path) -> _Made:
    """The store at the target, which is what this build would make."""
    manifest = read_manifest(out)
    return _Made(manifest=manifest, kept=len(manifest.shards))


def _begin(plan: BuildPlan, run: _Run) -> _Begun | None:
    """Begin a build, or take up an unfinished one; None where an update has nothing to do."""
    workspace, out = run.workspace, run.out
    if not (run.was_there or run.overwrite) and os.path.lexists(out):
        raise TargetExistsError(
            f"{out}: another build was running here, and has just finished this store. "
            "Use it, build to another path, or replace it with --overwrite."
        )
    check_target(out, overwrite=run.may_replace)
    run.on_step(Step.LOCKED)
    stays: dict[int, TaskReport] = {}
    if run.update and run.was_there:
        found = plan_update(plan, out, retries_rejects=run.retry_rejects, rehashes=run.rehash)
        run.notices.append(found.notice)
        if not found.is_needed:
            workspace.remove_unless_begun()
            return None
        plan, stays = found.plan, found.kept
    # One at a time: the items of all tasks at once would take more memory than all the rest.
    tasks = (plan.scan.items[first:end] for first, end in plan.cuts)
    if goes_on(workspace, plan.facts(), out, overwrite=run.overwrite):
        # They are not synced one by one, so a power cut may have emptied some.
        workspace.write_tasks(tasks)
    else:
        _check_space(plan, run, [number for number in range(len(plan.cuts)) if number not in stays])
        workspace.begin(tasks, plan.facts())
        seed_workspace(workspace, out, stays)
    workspace.write_task_plan(_task_plan(plan, run))
    reports = ((number, workspace.read_report(number)) for number in range(len(plan.cuts)))
    kept = {number for number, report in reports if report is not None and not report.may_pass}
    return _Begun(plan=plan, kept=kept)


def _task_plan(plan: BuildPlan, run: _Run) -> TaskPlan:
    """What the tasks need. The root may have moved, and on_error may be another than before."""
    return TaskPlan(
        root=os.fsencode(os.path.abspath(plan.scan.root)),
        schema=plan.schema.as_builtins(),
        recipe=plan.recipe.as_dict(),
        mask_colors=plan.scan.mask_colors,
        names=plan.names,
        stops_at_reject=run.on_error == "fail",
    )


def _check_space(plan: BuildPlan, run: _Run, numbers: Sequence[int]) -> None:
    """See that the store will fit, and what is copied for it, before hours of work."""
    reason = missing_space(plan.byte_count, run.out)
    if reason is not None:
        raise NoSpaceError(reason)
    check_spool_space(run.workspace, plan, numbers, run.scratch)


def _make_shards(begun: _Begun, run: _Run, engine: Engine) -> None:
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
            engine.map(begun.numbers, folder, on_progress, on_notice)


def _collect(plan: BuildPlan, run: _Run) -> tuple[list[TaskReport], Rejects]:
    """The reports of all shards, and all that was rejected, which must not be too much."""
    found = [run.workspace.read_report(number) for number in range(len(plan.cuts))]
    reports = [report for report in found if report is not None]
    assert len(reports) == len(found), "an engine ended without making every shard"
    rejects = Rejects(
        items=[*plan.scan.rejects, *(r for report in reports for r in report.rejects)],
        annotations=[
            *plan.scan.annotation_rejects,
            *(r for report in reports for r in report.annotation_rejects),
        ],
    )
    if run.on_error == "fail":
        stop_at([*rejects.items, *rejects.annotations])
    check_rejects(rejects, plan, reports, run.workspace, run.out, run.rejects_max)
    return reports, rejects
