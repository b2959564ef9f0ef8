"""How much of the raw data may be rejected before a build publishes nothing."""

from __future__ import annotations

from collections.abc import Sequence

from packer.errors import RejectedItemError, TooManyRejectsError
from packer.items.raw_item import Reject
from packer.plan.shards import BuildPlan
from packer.workspace.folder import TaskReport, Workspace
from packer.workspace.rejects import (
    Rejects,
    describe_rejects,
    reject_count_max,
    too_many_text,
    write_rejects,
)
from readers.store.place import Place
from readers.store.schema import OBJECT_NAMES


def stop_at(rejects: Sequence[Reject]) -> None:
    """Raise the first reject of a build that is to stop at it.

    Raises:
        RejectedItemError: There is one.
    """
    if rejects:
        raise RejectedItemError(
            f"{rejects[0].path}: {rejects[0].reason}\n"
            "The build was told to stop at the first reject. Mend or remove it, or leave it out "
            "with --on-error reject."
        )


def check_rejects(
    rejects: Rejects,
    plan: BuildPlan,
    reports: Sequence[TaskReport],
    workspace: Workspace,
    out: Place,
    rejects_max: str | int,
) -> None:
    """See that a store may be published without what was rejected; else list all of it.

    Raises:
        TooManyRejectsError: It may not: past `rejects_max`, or nothing is left.
    """
    found = len(plan.scan.items) + len(plan.scan.rejects)
    count = len(rejects.items)
    if count <= reject_count_max(rejects_max, found) and count < found:
        if any(name in OBJECT_NAMES for name in plan.schema.names):
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
    rejects: Rejects, reports: Sequence[TaskReport], workspace: Workspace, out: Place
) -> None:
    """Refuse a store of objects of which every one was rejected: they were read in a wrong way."""
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
