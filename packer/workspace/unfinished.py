"""Whether what an interrupted call has left is what this one would make."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from packer.errors import BuildMismatchError
from packer.plan.shards import facts_that_differ
from packer.workspace.folder import Workspace


def goes_on(workspace: Workspace, facts: dict[str, Any], out: Path, *, overwrite: bool) -> bool:
    """Whether a workspace holds an unfinished build of these facts; else it is to be begun anew.

    Args:
        workspace: Of the store at `out`.
        facts: See `BuildPlan.facts`.
        out: For messages.
        overwrite: Whether an unfinished build of others may be discarded.

    Raises:
        BuildMismatchError: One of others is there, and may not.
    """
    unfinished = workspace.read_facts()
    if unfinished is None:
        return False
    differences = facts_that_differ(facts, unfinished)
    if differences and not overwrite:
        raise BuildMismatchError(
            f"{workspace.folder}: an unfinished build of {out.name} is there, of other settings or "
            f"data: {'; '.join(differences)}. Finish it with what it was begun with, or discard it "
            "with --overwrite."
        )
    return not differences
