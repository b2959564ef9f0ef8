"""How a build begins: what it was asked for, the raw items, and the plan written in its workspace.

The same for a build of this machine and for one that other nodes carry out.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from packer.building.finish import OnError
from packer.building.spooling import check_spool_space
from packer.building.update import plan_update, seed_workspace
from packer.engines.engine import Engine
from packer.errors import BuildError, NoSpaceError, TargetExistsError
from packer.items.raw_item import Scan
from packer.plan.cost import missing_space
from packer.plan.shards import BuildPlan, library_versions
from packer.sources import SourceOptions, scan_source
from packer.sources.dataset import is_dataset, scan_dataset
from packer.workspace.folder import TaskReport, Workspace
from packer.workspace.nodes import check_nobody_works
from packer.workspace.publish import check_target, is_taken
from packer.workspace.rejects import reject_count_max
from packer.workspace.scratch import spool_folder
from packer.workspace.step import OnStep, Step
from packer.workspace.tasks import TaskPlan, plan_id
from packer.workspace.unfinished import goes_on
from readers.store.place import Place, Url


@dataclass(frozen=True, kw_only=True)
class Run:
    """How a build runs: what its store does not depend on.

    Attributes:
        out: The target.
        workspace: The folder beside it; of a URL, one here.
        was_there: Whether something was at the target when the build began.
        is_shared: Whether several nodes make the shards.
        notices: What happened to this run and not to the store, a line each; it grows.

    The others are arguments of `build`.
    """

    out: Place
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
    is_shared: bool = False
    notices: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.on_error not in get_args(OnError):
            raise ValueError(f"on_error must be 'reject' or 'fail'; got {self.on_error!r}")
        if self.worker_count is not None and self.worker_count < 1:
            raise ValueError(f"workers must be at least 1; got {self.worker_count!r}")
        reject_count_max(self.rejects_max, 0)

    @property
    def may_replace(self) -> bool:
        """Whether a store at the target may become another."""
        return self.overwrite or self.update


def check_replacement(out: Place, *, update: bool, overwrite: bool, needs_update: bool) -> None:
    """See that what is to become of a store at the target is said in one way, and can be done.

    Raises:
        ValueError: It is not.
    """
    if update and overwrite:
        raise ValueError("update and overwrite are two ways to replace a store; give one of them")
    if needs_update and not update:
        raise ValueError("rehash and retry_rejects are about an update; give update as well")
    if update and isinstance(out, Url):
        raise ValueError("update works on a store in a folder: copy it here, update it, upload it")


def scan_raw(
    raw: str | Path | Any,
    source: SourceOptions,
    run: Run,
    engine: Engine | None,
    stack: contextlib.ExitStack,
) -> Scan:
    """Find the raw items, while the engine gets ready. The stack ends what they need."""
    if not is_dataset(raw):
        _check_apart(Path(raw), run.workspace.folder if isinstance(run.out, Url) else run.out)
    if not run.workspace.folder.exists():
        known = None if is_dataset(raw) else Path(raw)
        check_target(run.out, overwrite=run.may_replace, raw=known)
    if is_dataset(raw):
        spool = stack.enter_context(spool_folder(run.workspace, run.scratch))
        return scan_dataset(raw, spool, source)
    if engine is not None and os.path.exists(raw):
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


@dataclass(frozen=True, kw_only=True)
class Begun:
    """A build whose plan and tasks are written.

    Attributes:
        plan: What is built; an update cuts it into the shards that the old store has.
        plan_id: See `TaskPlan.id`.
        kept: Numbers of the shards that are there already.
        reject_count: Raw items that were rejected as these were made.
    """

    plan: BuildPlan
    plan_id: str
    kept: set[int]
    reject_count: int = 0

    @property
    def numbers(self) -> list[int]:
        """The shards that are to be made."""
        return [number for number in range(len(self.plan.cuts)) if number not in self.kept]

    def largest_first(self) -> list[int]:
        """The same, so that no large one is begun last.

        Those of about one size stay in order: a file that can only be read forward wants that.
        """
        cuts, sizes = self.plan.cuts, self.plan.record_bytes

        def magnitude(number: int) -> int:
            first, end = cuts[number]
            return int(sizes[first:end].sum()).bit_length()

        return sorted(self.numbers, key=magnitude, reverse=True)

    @property
    def item_count(self) -> int:
        """The items in them."""
        return sum(end - first for first, end in map(self.plan.cuts.__getitem__, self.numbers))


def begin(plan: BuildPlan, run: Run) -> Begun | None:
    """Begin a build, or take up an unfinished one; None where an update has nothing to do."""
    workspace, out = run.workspace, run.out
    if not (run.was_there or run.overwrite) and is_taken(out):
        raise TargetExistsError(
            f"{out}: another build was running here, and has just finished this store. "
            "Use it, build to another path, or replace it with --overwrite."
        )
    check_target(out, overwrite=run.may_replace)
    run.on_step(Step.LOCKED)
    stays: dict[int, TaskReport] = {}
    if run.update and run.was_there and isinstance(out, Path):
        found = plan_update(plan, out, retries_rejects=run.retry_rejects, rehashes=run.rehash)
        run.notices.append(found.notice)
        if not found.is_needed:
            workspace.remove_unless_begun()
            return None
        plan, stays = found.plan, found.kept
    facts = plan.facts()
    tasks = (plan.scan.items[first:end] for first, end in plan.cuts)
    numbers = range(len(plan.cuts))
    if goes_on(workspace, facts, out, overwrite=run.overwrite):
        # They are not synced one by one, so a power cut may have emptied some.
        workspace.write_tasks(tasks, plan.names)
    else:
        check_nobody_works(workspace, out)
        _check_space(plan, run, [number for number in numbers if number not in stays])
        workspace.begin(tasks, facts, plan.names)
        if isinstance(out, Path):
            seed_workspace(workspace, out, stays, plan_id(facts))
    # Nodes may still be at work on a build that this machine goes on with.
    is_shared = run.is_shared or workspace.is_shared()
    task_plan = _task_plan(plan, run, facts, is_shared=is_shared)
    workspace.write_task_plan(task_plan)
    kept: dict[int, int] = {}
    for number in numbers:
        report = workspace.read_report(number, task_plan.id)
        if report is not None and not report.may_pass:
            kept[number] = len(report.rejects)
    return Begun(plan=plan, plan_id=task_plan.id, kept=set(kept), reject_count=sum(kept.values()))


def _task_plan(plan: BuildPlan, run: Run, facts: dict[str, Any], *, is_shared: bool) -> TaskPlan:
    """What the tasks need. The root may have moved, and on_error may be another than before."""
    return TaskPlan(
        id=plan_id(facts),
        is_shared=is_shared,
        versions=library_versions(),
        shard_count=len(plan.cuts),
        item_count=len(plan.scan.items),
        root=os.fsencode(os.path.abspath(plan.scan.root)),
        schema=plan.schema.as_builtins(),
        recipe=plan.recipe.as_dict(),
        mask_colors=plan.scan.mask_colors,
        stops_at_reject=run.on_error == "fail",
    )


def _check_space(plan: BuildPlan, run: Run, numbers: Sequence[int]) -> None:
    """See that the store will fit, and what is copied for it, before hours of work."""
    built_at = run.workspace.folder if isinstance(run.out, Url) else run.out
    reason = missing_space(plan.byte_count, built_at)
    if reason is not None:
        raise NoSpaceError(reason)
    check_spool_space(run.workspace, plan, numbers, run.scratch)
