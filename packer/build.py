"""Plan, map, publish: a raw tree becomes a store."""

from __future__ import annotations

import contextlib
import enum
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from packer.account import make_manifest
from packer.engines.local import map_tasks
from packer.engines.worker import NO_SPACE
from packer.errors import (
    BuildError,
    BuildMismatchError,
    NoSpaceError,
    RejectedItemError,
    TargetExistsError,
    TooManyRejectsError,
)
from packer.plan import BuildPlan, facts_that_differ, make_plan
from packer.progress import Progress
from packer.publish import check_target, publish_folder
from packer.recipe import Recipe
from packer.rejects import Rejects, describe_rejects, reject_count_max, write_rejects
from packer.report import BuildReport, make_report
from packer.scratch import scratch_folder, spool_folder
from packer.sources import SourceOptions, scan_source
from packer.sources.dataset import is_dataset, scan_dataset
from packer.sources.items import Reject
from packer.workspace import TargetLock, TaskPlan, TaskReport, Workspace
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

_SPACE_MARGIN = 1.05


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
        rejects_max: How many rejects there may be: a count, or a share such as "1%".
        overwrite: Replace a store at `out`, in one step once the new one is whole, and discard an
            unfinished build of other settings.
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
        WorkerError: A build worker died.
    """
    started = time.monotonic()
    out = Path(os.path.abspath(out))
    recipe = recipe or Recipe()
    source = source or SourceOptions()
    if on_error not in ("reject", "fail"):
        raise ValueError(f"on_error must be 'reject' or 'fail'; got {on_error!r}")
    if worker_count is not None and worker_count < 1:
        raise ValueError(f"worker_count must be at least 1; got {worker_count!r}")
    reject_count_max(rejects_max, 0)
    workers = worker_count or max(1, core_count() // local_rank_count())
    workspace = Workspace.of(out)
    was_there = os.path.lexists(out)
    with contextlib.ExitStack() as stack:
        if is_dataset(raw):
            if not workspace.folder.exists():
                check_target(out, overwrite=overwrite)
            spool = stack.enter_context(spool_folder(workspace, scratch))
            scan = scan_dataset(raw, spool, source)
        else:
            _check_apart(Path(raw), out)
            if not workspace.folder.exists():
                check_target(out, overwrite=overwrite)
            scan = scan_source(Path(raw), source)
        if on_error == "fail":
            _stop_at([*scan.rejects, *scan.annotation_rejects])
        manifest, kept, done = _carry_out(
            make_plan(scan, recipe),
            workspace,
            out,
            workers,
            scratch=scratch,
            on_error=on_error,
            rejects_max=rejects_max,
            overwrite=overwrite,
            was_there=was_there,
            shows_progress=shows_progress,
            on_step=on_step,
        )
    return make_report(out, manifest, started, workers, kept=kept, done=done)


def _carry_out(
    plan: BuildPlan,
    workspace: Workspace,
    out: Path,
    workers: int,
    *,
    scratch: str | Path | None,
    on_error: OnError,
    rejects_max: str | int,
    overwrite: bool,
    was_there: bool,
    shows_progress: bool,
    on_step: Callable[[Step], None],
) -> tuple[Manifest, int, int]:
    """Make the shards of a plan and publish them; see `build`.

    Returns:
        The manifest, how many shards were there already, and how many items were worked on.
    """
    with TargetLock(workspace, out), _no_space_named(out, plan):
        try:
            if _is_published(workspace, out, plan):
                # Killed between the last two steps: all that is left is to clean up.
                manifest = read_manifest(out)
                workspace.remove()
                return manifest, len(manifest.shards), 0
            if not (was_there or overwrite) and os.path.lexists(out):
                raise TargetExistsError(
                    f"{out}: another build was running here, and has just finished this store. "
                    "Use it, build to another path, or replace it with --overwrite."
                )
            check_target(out, overwrite=overwrite)
            on_step(Step.LOCKED)
            kept = _prepare(
                workspace, plan, out, overwrite=overwrite, stops_at_reject=on_error == "fail"
            )
        except (BuildError, OSError):
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
        ):

            def on_progress(count: int, finished: int | None) -> None:
                bar.add(count)
                if finished is not None:
                    on_step(Step.SHARD_FINISHED)

            if numbers:
                map_tasks(workspace, numbers, folder, workers, on_progress)
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
def _no_space_named(out: Path, plan: BuildPlan) -> Iterator[None]:
    """Say of which store, and of how much, a disk had no room for."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        raise NoSpaceError(
            f"{out}: {error.filename or 'a file'}: {error.strerror}. The store takes about "
            f"{plan.byte_count:,} bytes. Free some, raise the limit on file sizes (ulimit -f), or "
            "write the shards elsewhere with --scratch; then run the same command: finished "
            "shards are kept."
        ) from error


def _is_published(workspace: Workspace, out: Path, plan: BuildPlan) -> bool:
    """Whether the store at `out` is the one that this workspace was to publish, and we too."""
    facts = workspace.read_facts()
    if facts is not None and facts_that_differ(plan.facts(), facts):
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
    workspace: Workspace, plan: BuildPlan, out: Path, *, overwrite: bool, stops_at_reject: bool
) -> set[int]:
    """Begin a build, or take up an unfinished one. Numbers of the shards that are finished."""
    facts = plan.facts()
    unfinished = workspace.read_facts()
    differences = facts_that_differ(facts, unfinished) if unfinished is not None else []
    if differences and not overwrite:
        raise BuildMismatchError(
            f"{workspace.folder}: an unfinished build of {out.name} is there, of other settings or "
            f"data: {'; '.join(differences)}. Finish it with what it was begun with, or discard it "
            "with --overwrite."
        )
    items = plan.scan.items
    tasks = [items[first:end] for first, end in plan.cuts]
    if unfinished is None or differences:
        _check_space(out, plan)
        workspace.begin(tasks, facts)
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
            stops_at_reject=stops_at_reject,
        )
    )
    return {n for n in range(len(plan.cuts)) if workspace.read_report(n) is not None}


def _check_space(out: Path, plan: BuildPlan) -> None:
    """See that the store will fit, before hours of work."""
    need, free = int(plan.byte_count * _SPACE_MARGIN), shutil.disk_usage(out.parent).free
    if need > free:
        raise NoSpaceError(
            f"{out}: the store will take about {need:,} bytes, and its disk has {free:,} free. "
            "Free some, build to another disk, or make it smaller: --size for fewer pixels, or "
            "--image original for the files' own bytes."
        )


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
    allowed = reject_count_max(rejects_max, found)
    count = len(rejects.items)
    if count <= allowed and count < found:
        _check_annotations(rejects, reports, workspace, out)
        return
    write_rejects(workspace.reject_list, rejects)
    if count == found:
        # There is no work to lose, and what is put right next is often the command itself.
        workspace.forget()
        advice = "Nothing is left to store."
    else:
        advice = (
            "Mend or remove them and begin anew with --overwrite, or accept them with "
            f"--max-rejects {count}: the finished shards are kept for that."
        )
    raise TooManyRejectsError(
        f"{out}: {count:,} of {found:,} raw items rejected; {allowed:,} allowed by "
        f"--max-rejects {rejects_max}.\n{describe_rejects(rejects, workspace.reject_list)}\n"
        f"Nothing was published. {advice}"
    )


def _check_annotations(
    rejects: Rejects, reports: list[TaskReport], workspace: Workspace, out: Path
) -> None:
    """Refuse a store of which every annotation was rejected: they were read in a wrong way."""
    if not rejects.annotations or any(report.object_count for report in reports):
        return
    write_rejects(workspace.reject_list, rejects)
    workspace.forget()
    raise TooManyRejectsError(
        f"{out}: all {len(rejects.annotations):,} annotations were rejected.\n"
        f"{describe_rejects(rejects, workspace.reject_list)}\n"
        "Nothing was published. Their format is another one than it seemed, or they belong to "
        "other pictures."
    )
