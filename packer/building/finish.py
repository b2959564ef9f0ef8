"""Finished shards become a store: what was rejected is weighed, the manifest made and published."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from packer.building.account import make_manifest
from packer.building.reject_limits import check_rejects, stop_at
from packer.building.update import update_cache_parts
from packer.plan.shards import BuildPlan
from packer.workspace.folder import TaskReport, Workspace
from packer.workspace.publish import publish
from packer.workspace.rejects import Rejects, reject_list_bytes
from packer.workspace.step import OnStep, untold
from readers.store.layout import REJECTS_NAME, UPDATE_CACHE_NAME
from readers.store.manifest import Manifest
from readers.store.place import Place

OnError = Literal["reject", "fail"]


def finish(
    plan: BuildPlan,
    workspace: Workspace,
    out: Place,
    plan_id: str,
    *,
    on_error: OnError,
    rejects_max: str | int,
    on_step: OnStep = untold,
    shows_progress: bool = False,
) -> Manifest:
    """Publish a build all of whose shards are finished.

    Args:
        plan: The build's plan.
        workspace: Of the store at `out`; its lock is held.
        out: The target; see `packer.workspace.publish.check_target` for what may be there.
        plan_id: See `TaskPlan.id`; reports of another are not taken.
        on_error: See `build`.
        rejects_max: See `build`.
        on_step: Told of each step as it is done.
        shows_progress: Draw a progress bar of what is uploaded.

    Raises:
        RejectedItemError: Something was rejected under on_error="fail".
        TooManyRejectsError: More was rejected than may be.
    """
    reports, rejects = _collect(plan, workspace, plan_id)
    if on_error == "fail":
        stop_at([*rejects.items, *rejects.annotations])
    check_rejects(rejects, plan, reports, workspace, out, rejects_max)
    manifest = make_manifest(plan, reports, rejects)
    files: dict[str, bytes | Iterable[bytes]] = {
        UPDATE_CACHE_NAME: update_cache_parts(plan, reports),
        REJECTS_NAME: reject_list_bytes(rejects),
    }
    publish(workspace, out, manifest, files, on_step, shows_progress)
    return manifest


def _collect(
    plan: BuildPlan, workspace: Workspace, plan_id: str
) -> tuple[list[TaskReport], Rejects]:
    """The reports of all shards, which have their last names now, and all that was rejected."""
    found = [workspace.settle(number, plan_id) for number in range(len(plan.cuts))]
    reports = [report for report in found if report is not None]
    assert len(reports) == len(found), "an engine ended without making every shard"
    rejects = Rejects(
        items=[*plan.scan.rejects, *(r for report in reports for r in report.rejects)],
        annotations=[
            *plan.scan.annotation_rejects,
            *(r for report in reports for r in report.annotation_rejects),
        ],
    )
    return reports, rejects
