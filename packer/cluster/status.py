"""How far a planned build has come, as any node can see it: a few listings, and a file a node."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from packer.cluster.slurm import logs_folder
from packer.errors import BuildError
from packer.wording import Summarized, count_text, rate_text, time_text
from packer.workspace.folder import Workspace
from packer.workspace.nodes import SeenNode, read_nodes
from readers.store.layout import MANIFEST_NAME
from readers.store.manifest import read_manifest

State = Literal["published", "planned", "not planned"]

_SHOWN_MAX = 20


@dataclass(frozen=True, kw_only=True)
class NodeStatus:
    """One process of `packer work`.

    Attributes:
        name: What it is called.
        host: Its machine.
        part: Its share of the shards.
        state: "working", "silent" (it has said nothing for minutes: killed, or hung), "done",
            "stopped" or "failed".
        error: Why it failed.
        log: File of its messages.
        making: Shards that it is making, and for how many seconds.
        finished_count: Shards that it has finished.
        images_per_s: Raw items done for each second since it began.
        seconds: Since it began.
        silent_s: Since it last said anything.
    """

    name: str
    host: str
    part: str
    state: str
    error: str
    log: str
    making: dict[int, float]
    finished_count: int
    images_per_s: float
    seconds: float
    silent_s: float


@dataclass(frozen=True, kw_only=True)
class Status(Summarized):
    """How far a build has come.

    Attributes:
        path: Where the store is to be, or is.
        state: Whether it is published, planned or neither.
        shard_count: Shards in all.
        finished_count: Shards that are finished.
        item_count: Raw items in all shards.
        reject_count: Rejects in finished shards, as far as those who made them have said.
        images_per_s: Of all nodes that work, together.
        left_s: Seconds until all shards are finished, at that pace; None where nobody works.
        logs: Folder of logs of `packer submit`; empty when there is none.
        nodes: All processes since the build was planned.
    """

    path: str
    state: State
    shard_count: int = 0
    finished_count: int = 0
    item_count: int = 0
    reject_count: int = 0
    images_per_s: float = 0.0
    left_s: float | None = None
    logs: str = ""
    nodes: list[NodeStatus] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """All of it by name, as `--json` prints it."""
        return asdict(self)

    def summary(self) -> str:
        """What a person wants to know, a line each."""
        if self.state == "published":
            count = count_text(self.shard_count, "shard")
            return f"{self.path}: published, {self.item_count:,} samples in {count}"
        if self.state == "not planned":
            logs = f" Logs: {self.logs}" if self.logs else ""
            return f"{self.path}: submitted, and not planned yet.{logs}"
        lines = [
            f"{self.path}: {self.finished_count:,} of {count_text(self.shard_count, 'shard')} "
            f"finished, {self.reject_count:,} rejects so far"
        ]
        working = [node for node in self.nodes if node.state == "working"]
        making = sum(len(node.making) for node in working)
        if working:
            left = ""
            if self.left_s is not None:
                end = time.strftime("%H:%M", time.localtime(time.time() + self.left_s))
                left = f", about {_long_text(self.left_s)} left (until {end})"
            lines.append(
                f"running: {count_text(making, 'shard')} on {count_text(len(working), 'node')}"
                f"{_rate_text(self.images_per_s)}{left}"
            )
        elif self.finished_count < self.shard_count:
            lines.append("running: nothing; no node works, or has begun yet")
        lines += _some([_running_line(node) for node in working])
        done = sum(node.state == "done" for node in self.nodes)
        if done:
            lines.append(f"done: {count_text(done, 'node')}")
        lost = [node for node in self.nodes if node.state not in ("working", "done")]
        if lost:
            lines.append(f"ended early: {count_text(len(lost), 'node')}")
            lines += _some([_lost_line(node) for node in lost])
        if self.finished_count == self.shard_count:
            lines.append(f"all shards are finished; next: packer publish {self.path}")
        if self.logs:
            lines.append(f"logs: {self.logs}")
        return "\n".join(lines)


def status(out: str | Path) -> Status:
    """How far the planned build of `out` has come. It needs no more than to read its folder.

    Raises:
        BuildError: Nobody has planned a build, or submitted one.
    """
    out = Path(os.path.abspath(out))
    workspace = Workspace.of(out)
    folder = logs_folder(out)
    logs = str(folder) if folder.is_dir() else ""
    try:
        if workspace.read_facts() is None:
            raise FileNotFoundError
        plan = workspace.read_task_plan()
    except FileNotFoundError:
        if (out / MANIFEST_NAME).exists():
            manifest = read_manifest(out)
            return Status(
                path=str(out),
                state="published",
                shard_count=len(manifest.shards),
                finished_count=len(manifest.shards),
                item_count=manifest.sample_count,
                reject_count=manifest.source.reject_count,
                logs=logs,
            )
        if logs:
            return Status(path=str(out), state="not planned", logs=logs)
        raise BuildError(
            f"{out}: nobody has planned or submitted a build of it. See packer submit, or packer "
            "build --plan-only."
        ) from None
    seen = read_nodes(workspace)
    finished = len(workspace.reported())
    nodes = [_node_status(node) for node in seen]
    live = [node for node in nodes if node.state == "working"]
    rate = sum(node.images_per_s for node in live)
    rejects: dict[int, int] = {}
    for one in seen:
        rejects.update(one.facts.rejects)
    left = plan.item_count * (1 - finished / plan.shard_count) if plan.shard_count else 0
    return Status(
        path=str(out),
        state="planned",
        shard_count=plan.shard_count,
        finished_count=finished,
        item_count=plan.item_count,
        reject_count=sum(rejects.values()),
        images_per_s=rate,
        left_s=left / rate if rate else None,
        logs=logs,
        nodes=nodes,
    )


def _node_status(node: SeenNode) -> NodeStatus:
    facts = node.facts
    is_silent = facts.state == "working" and not node.is_live
    return NodeStatus(
        name=facts.name,
        host=facts.host,
        part=facts.part,
        state="silent" if is_silent else facts.state,
        error=facts.error,
        log=facts.log,
        making={number: seconds + node.age_s for number, seconds in facts.making.items()},
        finished_count=facts.finished_count,
        images_per_s=facts.image_count / facts.seconds if facts.seconds else 0.0,
        seconds=facts.seconds,
        silent_s=node.age_s,
    )


def _who(node: NodeStatus) -> str:
    part = f", part {node.part}" if node.part else ""
    return f"{node.name} on {node.host}{part}" if node.name else f"{node.host}{part}"


def _running_line(node: NodeStatus) -> str:
    making = ", ".join(
        f"shard {number} for {_long_text(seconds)}"
        for number, seconds in sorted(node.making.items())[:_SHOWN_MAX]
    )
    return (
        f"  {_who(node)}: {making or 'between two shards'}; {node.finished_count:,} finished"
        f"{_rate_text(node.images_per_s)}"
    )


def _rate_text(images_per_s: float) -> str:
    """How fast images are made, once one is."""
    return f", {rate_text(images_per_s)} images/s" if images_per_s else ""


def _lost_line(node: NodeStatus) -> str:
    reason = node.error.splitlines()[0] if node.error else node.state
    if node.state == "silent":
        reason = f"no word for {_long_text(node.silent_s)}: killed, or hung"
    log = f"; log: {node.log}" if node.log else ""
    return f"  {_who(node)}: {reason}{log}"


def _some(lines: Sequence[str]) -> list[str]:
    more = len(lines) - _SHOWN_MAX
    return [*lines[:_SHOWN_MAX], *([f"  and {more:,} more"] if more > 0 else [])]


def _long_text(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    if 60 <= seconds < 3600:
        return f"{seconds / 60:.0f} min"
    return time_text(seconds)
