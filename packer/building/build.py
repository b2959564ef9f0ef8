"""Plan, map, publish: a raw tree becomes a store."""

from __future__ import annotations

import contextlib
import enum
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from packer.building.account import make_manifest
from packer.building.spooling import check_spool_space, spooled
from packer.building.update import plan_update, seed_workspace, write_update_cache
from packer.engines.local import Crew, map_tasks
from packer.engines.worker import NO_SPACE
from packer.errors import (
    BuildError,
    DiskError,
    NoSpaceError,
    RejectedItemError,
    TargetExistsError,
    TooManyRejectsError,
)
from packer.items.raw_item import Reject
from packer.plan.cost import missing_space
from packer.plan.shards import BuildPlan, facts_that_differ, make_plan
from packer.progress import Progress
from packer.recipe import Recipe
from packer.report import BuildReport, make_report
from packer.sources import SourceOptions, scan_source
from packer.sources.dataset import is_dataset, scan_dataset
from packer.workspace.folder import TargetLock, TaskPlan, TaskReport, Workspace
from packer.workspace.publish import check_target, publish_folder
from packer.workspace.rejects import (
    Rejects,
    describe_rejects,
    reject_count_max,
    too_many_text,
    write_rejects,
)
from packer.workspace.scratch import scratch_folder, spool_folder
from packer.workspace.unfinished import goes_on
from readers.machine import core_count, local_rank_count
from readers.store.layout import MANIFEST_NAME, REJECTS_NAME
from readers.store.manifest import (
    Manifest,
    manifest_bytes,
    publish_manifest,
    read_manifest,
    write_synced,
)

OnError = Literal["reject", "fail"]


class Step(enum.Enum):
    """What a build does, in order. A build that dies at any of them can be run again."""

    LOCKED = "the target is held by this build"
    PLANNED = "the plan and its tasks are written"
    SHARD_FINISHED = "a shard is in place"
    SHARDS_FINISHED = "all shards are in place"
    MANIFEST_WRITTEN = "the manifest is written"
    PUBLISHED = "the store has its name"
    CLEANED = "the workspace is gone"


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
    on_step: Callable[[Step], None] = lambda step: None,
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
    recipe = recipe or Recipe()
    source = source or SourceOptions()
    if on_error not in ("reject", "fail"):
        raise ValueError(f"on_error must be 'reject' or 'fail'; got {on_error!r}")
    if worker_count is not None and worker_count < 1:
        raise ValueError(f"worker_count must be at least 1; got {worker_count!r}")
    check_replacement(update=update, overwrite=overwrite, needs_update=rehash or retry_rejects)
    reject_count_max(rejects_max, 0)
    replaces = _Replacement(overwrite, update, rehash, retry_rejects)
    workers = worker_count or max(1, core_count() // local_rank_count())
    workspace = Workspace.of(out)
    was_there = os.path.lexists(out)
    with contextlib.ExitStack() as stack:
        crew = stack.enter_context(Crew(workspace))
        if is_dataset(raw):
            if not workspace.folder.exists():
                check_target(out, overwrite=replaces.anything)
            spool = stack.enter_context(spool_folder(workspace, scratch))
            scan = scan_dataset(raw, spool, source)
        else:
            _check_apart(Path(raw), out)
            if not workspace.folder.exists():
                check_target(out, overwrite=replaces.anything)
            if os.path.exists(raw):
                crew.start_ahead()
            scan = scan_source(Path(raw), source)
        plan = make_plan(scan, recipe)
        if on_error == "fail":
            # Of what the recipe chooses: what it leaves out is no reason to stop.
            _stop_at([*plan.scan.rejects, *plan.scan.annotation_rejects])
        notices: list[str] = []
        manifest, kept, done = _carry_out(
            plan,
            workspace,
            out,
            crew,
            workers,
            scratch=scratch,
            on_error=on_error,
            rejects_max=rejects_max,
            replaces=replaces,
            was_there=was_there,
            shows_progress=shows_progress,
            on_step=on_step,
            notices=notices,
        )
    return make_report(out, manifest, started, workers, kept=kept, done=done, notices=notices)


def check_replacement(*, update: bool, overwrite: bool, needs_update: bool) -> None:
    """See that what is to become of a store at the target is said in one way.

    Raises:
        ValueError: It is not.
    """
    if update and overwrite:
        raise ValueError("update and overwrite are two ways to replace a store; give one of them")
    if needs_update and not update:
        raise ValueError("rehash and retry_rejects are about an update; give update as well")


@dataclass(frozen=True)
class _Replacement:
    """What is to become of a store that stands at the target."""

    overwrites: bool
    updates: bool
    rehashes: bool
    retries_rejects: bool

    @property
    def anything(self) -> bool:
        """Whether there may be one."""
        return self.overwrites or self.updates


def _carry_out(
    plan: BuildPlan,
    workspace: Workspace,
    out: Path,
    crew: Crew,
    workers: int,
    *,
    scratch: str | Path | None,
    on_error: OnError,
    rejects_max: str | int,
    replaces: _Replacement,
    was_there: bool,
    shows_progress: bool,
    on_step: Callable[[Step], None],
    notices: list[str],
) -> tuple[Manifest, int, int]:
    """Make the shards of a plan and publish them; see `build`.

    What happened to this run and not to the store is added to `notices`.

    Returns:
        The manifest, how many shards were there already, and how many items were worked on.
    """
    with _disk_named(out, plan), TargetLock(workspace, out):
        try:
            if _is_published(workspace, out, None if replaces.updates else plan):
                # Killed between the last two steps: all that is left is to clean up.
                manifest = read_manifest(out)
                workspace.remove()
                return manifest, len(manifest.shards), 0
            if not (was_there or replaces.overwrites) and os.path.lexists(out):
                raise TargetExistsError(
                    f"{out}: another build was running here, and has just finished this store. "
                    "Use it, build to another path, or replace it with --overwrite."
                )
            check_target(out, overwrite=replaces.anything)
            on_step(Step.LOCKED)
            stays: dict[int, TaskReport] = {}
            if replaces.updates and was_there:
                found = plan_update(
                    plan,
                    out,
                    retries_rejects=replaces.retries_rejects,
                    rehashes=replaces.rehashes,
                )
                notices.append(found.notice)
                if not found.is_needed:
                    _remove_if_unused(workspace)
                    manifest = read_manifest(out)
                    return manifest, len(manifest.shards), 0
                plan, stays = found.plan, found.kept
            kept = _prepare(
                workspace,
                plan,
                out,
                stays,
                scratch=scratch,
                overwrite=replaces.overwrites,
                stops_at_reject=on_error == "fail",
            )
        except BaseException:  # A signal as well: what was not begun leaves nothing behind.
            _remove_if_unused(workspace)
            raise
        on_step(Step.PLANNED)
        numbers = [n for n in range(len(plan.cuts)) if n not in kept]
        done = sum(end - first for n, (first, end) in enumerate(plan.cuts) if n not in kept)
        with (
            scratch_folder(workspace, scratch) as folder,
            Progress(
                total=len(plan.scan.items), done=len(plan.scan.items) - done, shows=shows_progress
            ) as bar,
            spooled(workspace, plan, numbers, scratch, bar.say),
        ):

            def on_progress(count: int, finished: int | None) -> None:
                bar.add(count)
                if finished is not None:
                    on_step(Step.SHARD_FINISHED)

            def on_notice(text: str) -> None:
                notices.append(text)
                bar.say(text)

            if numbers:
                map_tasks(crew, numbers, folder, workers, on_progress, on_notice)
        on_step(Step.SHARDS_FINISHED)
        reports = _reports(workspace, plan)
        rejects = Rejects(
            items=[*plan.scan.rejects, *(r for report in reports for r in report.rejects)],
            annotations=[
                *plan.scan.annotation_rejects,
                *(r for report in reports for r in report.annotation_rejects),
            ],
        )
        _check_rejects(rejects, plan, reports, workspace, out, on_error, rejects_max)
        manifest = make_manifest(plan, reports, rejects)
        workspace.keep_only({shard.file for shard in manifest.shards})
        write_update_cache(workspace.store, plan, reports)
        write_rejects(workspace.store / REJECTS_NAME, rejects)
        write_synced(workspace.folder / MANIFEST_NAME, manifest_bytes(manifest))
        publish_manifest(workspace.store, manifest)
        on_step(Step.MANIFEST_WRITTEN)
        publish_folder(workspace.store, out)
        on_step(Step.PUBLISHED)
        workspace.remove()
        on_step(Step.CLEANED)
    return manifest, len(kept), done


def _check_apart(raw: Path, out: Path) -> None:
    """See that the store will not lie among the raw data."""
    folder, target = Path(os.path.realpath(raw)), Path(os.path.realpath(out))
    if folder.is_dir() and folder in target.parents:
        raise BuildError(
            f"{out}: it lies inside the raw folder {raw}, where the next build would find it among "
            "the raw data. Build to a path outside."
        )


def _stop_at(rejects: Sequence[Reject]) -> None:
    """Raise the first reject of a build that is to stop at it."""
    if rejects:
        raise RejectedItemError(
            f"{rejects[0].path}: {rejects[0].reason}\n"
            "The build was told to stop at the first reject. Mend or remove it, or leave it out "
            "with --on-error reject."
        )


@contextlib.contextmanager
def _disk_named(out: Path, plan: BuildPlan) -> Iterator[None]:
    """Say of which store a disk had no room for, or could not be read or written."""
    try:
        yield
    except OSError as error:
        place = error.filename2 or error.filename or "a file"
        where = f"{out}: {os.fsdecode(place)}: {error.strerror or error}"
        if error.errno not in NO_SPACE:
            raise DiskError(
                f"{where}. Finished shards are kept: run the same command once that is mended."
            ) from error
        raise NoSpaceError(
            f"{where}. The store takes about {plan.byte_count:,} bytes. Free some, raise the limit "
            "on file sizes (ulimit -f), or write the shards elsewhere with --scratch; then run the "
            "same command: finished shards are kept."
        ) from error


def _is_published(workspace: Workspace, out: Path, plan: BuildPlan | None) -> bool:
    """Whether the store at `out` is the one that this workspace was to publish, and we too.

    An update has no plan to compare: what it would publish depends on what is there.
    """
    facts = workspace.read_facts()
    if plan is not None and facts is not None and facts_that_differ(plan.facts(), facts):
        return False
    try:
        ours = (workspace.folder / MANIFEST_NAME).read_bytes()
        return ours == (out / MANIFEST_NAME).read_bytes() and not _is_same(workspace.store, out)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _is_same(store: Path, out: Path) -> bool:
    """Whether the same manifest still waits in the workspace: then `out` is an older equal."""
    return (store / MANIFEST_NAME).exists() and (
        (store / MANIFEST_NAME).read_bytes() == (out / MANIFEST_NAME).read_bytes()
    )


def _remove_if_unused(workspace: Workspace) -> None:
    if workspace.read_facts() is None:
        workspace.remove()


def _prepare(
    workspace: Workspace,
    plan: BuildPlan,
    out: Path,
    stays: dict[int, TaskReport],
    *,
    scratch: str | Path | None,
    overwrite: bool,
    stops_at_reject: bool,
) -> set[int]:
    """Begin a build, or take up an unfinished one. Numbers of the shards that are finished."""
    facts = plan.facts()
    is_unfinished = goes_on(workspace, facts, out, overwrite=overwrite)
    items = plan.scan.items
    tasks = [items[first:end] for first, end in plan.cuts]
    if not is_unfinished:
        _check_space(out, plan)
        made = [number for number in range(len(plan.cuts)) if number not in stays]
        check_spool_space(workspace, plan, made, scratch)
        workspace.begin(tasks, facts)
        seed_workspace(workspace, out, stays)
    else:
        # They are not synced one by one, so a power cut may have emptied some.
        workspace.write_tasks(tasks)
    # The root may have moved, and on_error may be another: neither changes the store.
    workspace.write_task_plan(
        TaskPlan(
            root=os.fsencode(os.path.abspath(plan.scan.root)),
            schema=plan.schema.as_builtins(),
            recipe=plan.recipe.as_dict(),
            mask_colors=plan.scan.mask_colors,
            names=plan.names,
            stops_at_reject=stops_at_reject,
        )
    )
    reports = ((number, workspace.read_report(number)) for number in range(len(plan.cuts)))
    return {number for number, report in reports if report is not None and not report.may_pass}


def _check_space(out: Path, plan: BuildPlan) -> None:
    """See that the store will fit, before hours of work."""
    reason = missing_space(plan.byte_count, out)
    if reason is not None:
        raise NoSpaceError(reason)


def _reports(workspace: Workspace, plan: BuildPlan) -> list[TaskReport]:
    reports = [workspace.read_report(number) for number in range(len(plan.cuts))]
    assert None not in reports
    return [report for report in reports if report is not None]


def _check_rejects(
    rejects: Rejects,
    plan: BuildPlan,
    reports: list[TaskReport],
    workspace: Workspace,
    out: Path,
    on_error: OnError,
    rejects_max: str | int,
) -> None:
    if on_error == "fail":
        _stop_at([*rejects.items, *rejects.annotations])
    found = len(plan.scan.items) + len(plan.scan.rejects)
    count = len(rejects.items)
    if count <= reject_count_max(rejects_max, found) and count < found:
        _check_annotations(rejects, reports, workspace, out)
        return
    write_rejects(workspace.reject_list, rejects)
    if count == found:
        # There is no work to lose, and what is put right next is often the command itself.
        workspace.forget()
        advice = "Mend them, or choose another --format or --root."
    else:
        advice = (
            "Mend or remove them and begin anew with --overwrite, or accept them with "
            f"--max-rejects {count} or more: the finished shards are kept for that."
        )
        if any(report.may_pass for report in reports):
            advice += (
                " Those that could not be read, or on which a build worker died, are tried again "
                "by the same command."
            )
    raise TooManyRejectsError(
        f"{out}: {too_many_text(count, found, rejects_max)}.\n"
        f"{describe_rejects(rejects, workspace.reject_list)}\n"
        f"Nothing was published. {advice}"
    )


def _check_annotations(
    rejects: Rejects, reports: list[TaskReport], workspace: Workspace, out: Path
) -> None:
    """Refuse a store of which every annotation was rejected: they were read in a wrong way."""
    count = len(rejects.annotations) - rejects.part_count
    if not count or any(report.object_count for report in reports):
        return
    write_rejects(workspace.reject_list, rejects)
    workspace.forget()
    raise TooManyRejectsError(
        f"{out}: all {count:,} annotations were rejected.\n"
        f"{describe_rejects(rejects, workspace.reject_list)}\n"
        "Nothing was published. Their format is another one than it seemed, or they belong to "
        "other pictures."
    )
