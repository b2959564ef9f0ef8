"""A build whose plan is written and whose shards other processes make, on any nodes.

`plan_build` leaves in the workspace all that it takes: files of the shard tasks, for those who make
shards, and `build-plan`, for whoever publishes. Nobody scans the raw data again.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from packer.building.begin import Run, begin, scan_raw
from packer.building.finish import OnError
from packer.building.reject_limits import stop_at
from packer.building.spooling import check_forward
from packer.errors import BuildError
from packer.items.raw_item import Ignored, Reject, Scan
from packer.plan.shards import BuildPlan, make_plan
from packer.progress import Waiting, is_wanted
from packer.recipe import Recipe
from packer.sources import SourceOptions
from packer.sources.walk import walks_told
from packer.wording import Summarized, count_text
from packer.workspace.folder import Workspace
from packer.workspace.lock import TargetLock
from packer.workspace.space import disk_named
from packer.workspace.step import OnStep, untold
from packer.workspace.unfinished import is_published
from readers.store.manifest import write_synced
from readers.store.schema import Field, Schema


class _StoredScan(msgspec.Struct, kw_only=True):
    """A `Scan` without its items, which are in the files of the tasks."""

    format: str
    root: bytes
    classes: tuple[str, ...]
    splits: tuple[str, ...]
    fields: tuple[Field, ...]
    mask_colors: tuple[tuple[int, int, int], ...]
    rejects: list[Reject]
    annotation_rejects: list[Reject]
    ignored: dict[str, int]
    notes: list[str]
    choices: dict[str, str]
    options: dict[str, Any]


class StoredPlan(msgspec.Struct, kw_only=True):
    """What it takes to publish a build: its plan, but for the items, and how it was asked for.

    Attributes:
        recipe: The settings, by name.
        scan: What the source found.
        schema: The fields of a sample.
        cuts: See `BuildPlan`.
        names: See `BuildPlan`.
        shard_bytes: See `BuildPlan`.
        byte_count: See `BuildPlan`.
        source_sha256: See `BuildPlan`.
        state_sha256: See `BuildPlan`.
        on_error: See `build`.
        rejects_max: See `build`.
        may_replace: Whether a store at the target may become this one.
    """

    recipe: dict[str, Any]
    scan: _StoredScan
    schema: dict[str, Any]
    cuts: tuple[tuple[int, int], ...]
    names: tuple[str, ...]
    shard_bytes: int
    byte_count: int
    source_sha256: str
    state_sha256: str
    on_error: OnError
    rejects_max: str | int
    may_replace: bool

    def as_plan(self, workspace: Workspace) -> BuildPlan:
        """The plan, with the items of the tasks. What is estimated of each is left out."""
        items = [item for n in range(len(self.cuts)) for item in workspace.read_items(n)]
        scan = self.scan
        return BuildPlan(
            recipe=Recipe(**self.recipe),
            scan=Scan(
                format=scan.format,
                root=Path(os.fsdecode(scan.root)),
                items=items,
                classes=scan.classes,
                splits=scan.splits,
                fields=scan.fields,
                mask_colors=scan.mask_colors,
                rejects=scan.rejects,
                annotation_rejects=scan.annotation_rejects,
                ignored=Ignored(scan.ignored),
                notes=scan.notes,
                choices=scan.choices,
                options=scan.options,
            ),
            schema=msgspec.convert(self.schema, Schema),
            cuts=self.cuts,
            names=self.names,
            record_bytes=np.zeros(0, np.int64),
            shard_bytes=self.shard_bytes,
            byte_count=self.byte_count,
            source_sha256=self.source_sha256,
            state_sha256=self.state_sha256,
        )


def read_stored_plan(workspace: Workspace, out: Path) -> StoredPlan:
    """What `plan_build` has left for whoever publishes the store at `out`.

    Raises:
        BuildError: There is none.
    """
    try:
        if workspace.read_facts() is None:
            raise FileNotFoundError
        data = (workspace.folder / _NAME).read_bytes()
        return msgspec.msgpack.decode(data, type=StoredPlan)
    except FileNotFoundError as error:
        raise no_plan_error(workspace, out) from error
    except msgspec.DecodeError as error:
        raise BuildError(
            f"{workspace.folder / _NAME}: it was written by another version of packer ({error}). "
            "Use that version, or plan again with --overwrite."
        ) from error


def no_plan_error(workspace: Workspace, out: Path) -> BuildError:
    """What to say where nobody has planned a build for other processes."""
    if workspace.folder.exists():
        found = f"the unfinished build in {workspace.folder} has no plan that nodes could carry out"
    else:
        found = f"there is no planned build ({workspace.folder} does not exist)"
    return BuildError(f"{out}: {found}. Plan it first: packer build RAW {out} --plan-only")


_NAME = "build-plan"


@dataclass(frozen=True, kw_only=True)
class PlanReport(Summarized):
    """A build that is planned, and what is left of it to do.

    Attributes:
        path: Where the store is to be.
        shard_count: How many shards there will be.
        missing_shard_count: How many of them are still to be made.
        item_count: Raw items in all of them.
        reject_count: Raw items that the source refused already.
        bytes: Size that the store will have, about.
        is_needed: Whether anything is left to do: False where the store is up to date already.
        notes: What was seen, chosen or odd, a line each.
    """

    path: str
    shard_count: int = 0
    missing_shard_count: int = 0
    item_count: int = 0
    reject_count: int = 0
    bytes: int = 0
    is_needed: bool = True
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """The report by name, as `--json` prints it."""
        return asdict(self)

    def summary(self) -> str:
        """What is planned, and the commands that carry it out."""
        if not self.is_needed:
            return "\n".join([*self.notes, f"{self.path}: nothing to do, the store is up to date"])
        lines = [
            *self.notes,
            f"{self.path}: planned, {count_text(self.item_count, 'image')} in "
            f"{count_text(self.shard_count, 'shard')}, {self.missing_shard_count:,} to be made, "
            f"about {self.bytes:,} bytes",
        ]
        if self.reject_count:
            lines.append(f"{count_text(self.reject_count, 'image')} rejected so far")
        out = shlex.quote(self.path)
        lines += [
            "",
            f"packer work {out} --part 1/8   # ... to 8/8, at any time, on any nodes",
            f"packer publish {out}           # once they are done",
            f"packer status {out} --watch",
        ]
        return "\n".join(lines)


def plan_build(
    raw: str | Path,
    out: str | Path,
    recipe: Recipe | None = None,
    *,
    source: SourceOptions | None = None,
    on_error: OnError = "reject",
    max_rejects: str | int = "1%",
    overwrite: bool = False,
    update: bool = False,
    rehash: bool = False,
    retry_rejects: bool = False,
    progress: bool | None = None,
    on_step: OnStep = untold,
) -> PlanReport:
    """Do the first part of `build`: scan and plan, so that other processes can make the shards.

    Those are `packer.cluster.work.work`, on any nodes that see `raw` and `out` under the same
    paths, and then `packer.cluster.publish.publish_planned`. Called again, it goes on: finished
    shards are kept, and those that failed for what may have passed are to be made again.

    Args:
        raw: See `build`; a Dataset cannot be handed to other processes.
        out: Where the store is to be.
        recipe: See `build`, as all that follow.
        source: How to read `raw`.
        on_error: Whether to leave out an item that cannot be packed, or to stop.
        max_rejects: How many raw items may be rejected.
        overwrite: Replace a store at `out`, and discard an unfinished build of other settings.
        update: Bring the store at `out` up to date.
        rehash: With `update`, read every file.
        retry_rejects: With `update`, try rejects again.
        progress: Say on stderr how far the scan is. None does so in a notebook alone.
        on_step: Told of each step as it is done.

    Raises:
        BuildError: The errors of `build`; or the files can only be read forward, in another order.
    """
    out = Path(os.path.abspath(out))
    workspace = Workspace.of(out)
    run = Run(
        out=out,
        workspace=workspace,
        was_there=os.path.lexists(out),
        worker_count=None,
        scratch=None,
        on_error=on_error,
        rejects_max=max_rejects,
        overwrite=overwrite,
        update=update,
        rehash=rehash,
        retry_rejects=retry_rejects,
        shows_progress=is_wanted(progress),
        on_step=on_step,
        is_shared=True,
    )
    with (
        contextlib.ExitStack() as stack,
        Waiting("scanning", shows=run.shows_progress) as waiting,
        walks_told(waiting.count),
    ):
        scan = scan_raw(os.fspath(raw), source or SourceOptions(), run, None, stack)
        plan = make_plan(scan, recipe or Recipe())
    if on_error == "fail":
        stop_at([*plan.scan.rejects, *plan.scan.annotation_rejects])
    check_forward(plan)
    with disk_named(out, workspace.has_finished, plan.byte_count), TargetLock(workspace, out):
        with workspace.removed_unless_begun():
            if is_published(workspace, out, None if update else plan.facts()):
                workspace.remove()
                return PlanReport(path=str(out), is_needed=False)
            begun = begin(plan, run)
        if begun is None:
            return PlanReport(path=str(out), is_needed=False, notes=run.notices)
        for number in begun.numbers:
            workspace.drop_report(number)
        workspace.open_to_nodes()
        stored = _stored(begun.plan, run)
        write_synced(workspace.folder / _NAME, msgspec.msgpack.encode(stored))
    return PlanReport(
        path=str(out),
        shard_count=len(begun.plan.cuts),
        missing_shard_count=len(begun.numbers),
        item_count=len(begun.plan.scan.items),
        reject_count=len(begun.plan.scan.rejects),
        bytes=begun.plan.byte_count,
        notes=[*begun.plan.scan.notes, *run.notices],
    )


def _stored(plan: BuildPlan, run: Run) -> StoredPlan:
    scan = plan.scan
    return StoredPlan(
        recipe=plan.recipe.as_dict(),
        scan=_StoredScan(
            format=scan.format,
            root=os.fsencode(os.path.abspath(scan.root)),
            classes=scan.classes,
            splits=scan.splits,
            fields=scan.fields,
            mask_colors=scan.mask_colors,
            rejects=scan.rejects,
            annotation_rejects=scan.annotation_rejects,
            ignored=scan.ignored.counts,
            notes=scan.notes,
            choices=scan.choices,
            options=scan.options,
        ),
        schema=plan.schema.as_builtins(),
        cuts=plan.cuts,
        names=plan.names,
        shard_bytes=plan.shard_bytes,
        byte_count=plan.byte_count,
        source_sha256=plan.source_sha256,
        state_sha256=plan.state_sha256,
        on_error=run.on_error,
        rejects_max=run.rejects_max,
        may_replace=run.may_replace,
    )
