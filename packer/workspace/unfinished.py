"""Whether what an interrupted call has left is what this one would make.

What two calls must have in common for that is written down as facts, by name; see
`BuildPlan.facts`.
"""

from __future__ import annotations

import json
from typing import Any

from packer.errors import BuildMismatchError
from packer.workspace.folder import Workspace
from readers.store.errors import ManifestError, StoreIncompleteError, StoreNotFoundError
from readers.store.layout import MANIFEST_NAME
from readers.store.manifest import read_manifest_bytes
from readers.store.place import Place


def goes_on(workspace: Workspace, facts: dict[str, Any], out: Place, *, overwrite: bool) -> bool:
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


def is_published(workspace: Workspace, out: Place, facts: dict[str, Any] | None) -> bool:
    """Whether a call that died at the very end has published its store at `out` already.

    Then all that is left to do is to remove the workspace.

    Args:
        workspace: Of the store at `out`.
        out: The target.
        facts: Those of this call. None compares no facts, where what a call publishes depends on
            what is at the target.
    """
    unfinished = workspace.read_facts()
    if facts is not None and unfinished is not None and facts_that_differ(facts, unfinished):
        return False
    waiting = workspace.store / MANIFEST_NAME
    try:
        ours = (workspace.folder / MANIFEST_NAME).read_bytes()
        published = read_manifest_bytes(out)
        if ours != published:
            return False
        # The same manifest still waits in the workspace: then what is at the target is older.
        return not (waiting.exists() and waiting.read_bytes() == published)
    except (FileNotFoundError, StoreNotFoundError, StoreIncompleteError, ManifestError):
        return False


def facts_that_differ(ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    """What is not the same in two builds' facts, in words."""
    differences = []
    for name, value in ours.items():
        other = theirs.get(name)
        if json.loads(json.dumps(value)) == other:
            continue
        if name in ("recipe", "library versions") and isinstance(other, dict):
            differences += [
                f"{key} was {other.get(key)!r} and is {value.get(key)!r}"
                for key in sorted({*value, *other})
                if value.get(key) != other.get(key)
            ]
        elif name == "format":
            differences.append(f"format was {other} and is {value}")
        else:
            differences.append(f"the {name} changed")
    return differences
