"""Whether this node can work on a build that another has planned: it must make the same bytes."""

from __future__ import annotations

import os
import socket

from packer.errors import NodeError
from packer.plan.shards import library_versions
from packer.wording import readable_path
from packer.workspace.tasks import TaskPlan


def check_node(plan: TaskPlan) -> None:
    """See that this node has the libraries of the one that planned, and sees the raw data.

    Without the raw data every item would become a reject; with other libraries, pixels differ.

    Raises:
        NodeError: It has not, or does not.
    """
    here = socket.gethostname()
    ours = library_versions()
    other = [
        f"{name} is {ours.get(name)} here and was {version} there"
        for name, version in sorted(plan.versions.items())
        if ours.get(name) != version
    ]
    if other:
        raise NodeError(
            f"{here}: it has other libraries than the node that planned the build, so its shards "
            f"would have other bytes: {'; '.join(other)}. Use one environment on all nodes."
        )
    root = readable_path(plan.root)
    try:
        with os.scandir(plan.root) as entries:
            is_empty = next(entries, None) is None
    except OSError as error:
        raise NodeError(
            f"{here}: it cannot read the raw data in {root}: {error.strerror}. All nodes must see "
            "it under this path, as the one that planned the build does."
        ) from error
    if is_empty:
        raise NodeError(
            f"{here}: the raw folder {root} is empty here, and had images where the build was "
            "planned. Is it mounted on this node?"
        )
