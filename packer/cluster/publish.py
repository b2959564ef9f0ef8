"""The last part of a planned build: see that all shards are there, and give the store its name."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

from packer.building.finish import finish
from packer.building.planned import StoredPlan, read_stored_plan
from packer.cluster.work import read_shared_plan
from packer.engines.local import LocalEngine
from packer.errors import MissingShardsError, TargetBusyError
from packer.items.item_columns import byte_counts
from packer.plan.node_check import check_node
from packer.progress import Progress, is_wanted
from packer.report import BuildReport, make_report
from packer.wording import count_text
from packer.workspace.folder import Workspace
from packer.workspace.lock import TargetLock
from packer.workspace.nodes import read_nodes
from packer.workspace.publish import check_target
from packer.workspace.scratch import node_scratch_folder
from packer.workspace.space import disk_named
from packer.workspace.step import OnStep, Step, untold
from packer.workspace.tasks import TaskPlan
from packer.workspace.unfinished import is_published
from readers.machine import core_count, local_rank_count
from readers.store.manifest import read_manifest

_LITTLE_SHARE = 0.05
_SHOWN_MAX = 20


def publish_planned(
    out: str | Path,
    *,
    workers: int | None = None,
    scratch: str | Path | None = None,
    make_missing: int | None = None,
    progress: bool | None = None,
    on_step: OnStep = untold,
) -> BuildReport:
    """Publish the planned build of `out`: make what little is missing, and give it its name.

    What must not differ is settled by the target's lock: of two calls at once, one publishes.

    Args:
        out: Where the store is to be.
        workers: Build workers for what is missing. None means the cores that this job may use.
        scratch: Folder on a local disk to write shards in; see `build`.
        make_missing: How many missing shards to make here rather than to fail. None means a
            twentieth of all, or as many as there are build workers if that is more.
        progress: Say on stderr how far the work is: a bar on a terminal or in a notebook, else a
            line every 30 s. None does so in a notebook alone.
        on_step: Told of each step as it is done.

    Returns:
        The report; also where the store was published before.

    Raises:
        ValueError: An argument is out of its range.
        BuildError: Nobody has planned a build.
        MissingShardsError: Too many shards are missing; the message says which and why.
        TargetBusyError: Another process is publishing, or builds on one machine.
        TooManyRejectsError: Past what the build may reject; the message names every reject.
        NodeError: Shards are missing, and this node would make other bytes.
    """
    for name, value, least in (
        ("workers", workers, 1),
        ("make_missing", make_missing, 0),
    ):
        if value is not None and value < least:
            raise ValueError(f"{name} must be at least {least}; got {value!r}")
    started = time.monotonic()
    out = Path(os.path.abspath(out))
    workspace = Workspace.of(out)
    workers = workers or max(1, core_count() // local_rank_count())
    if read_shared_plan(workspace, out) is None:
        _remove_left(workspace, out)
        return _report(out, started, workers)
    with disk_named(out, workspace.has_finished), TargetLock(workspace, out):
        # Whoever held the lock may have published.
        tasks = read_shared_plan(workspace, out)
        if tasks is None or is_published(workspace, out, None):
            workspace.remove()
            return _report(out, started, workers)
        stored = read_stored_plan(workspace, out)
        check_target(out, overwrite=stored.may_replace)
        check_node(tasks)
        numbers = range(tasks.shard_count)
        workspace.look_anew()
        missing = [n for n in numbers if workspace.read_report(n, tasks.id) is None]
        if make_missing is None:
            make_missing = max(workers, int(_LITTLE_SHARE * tasks.shard_count))
        if len(missing) > make_missing:
            raise _missing_error(workspace, out, stored, missing)
        notices: list[str] = []
        done, making = 0, time.monotonic()
        if missing:
            text = f"{_shards(stored, missing)} nobody had finished; made here"
            notices.append(text)
            done = _make(
                workspace,
                tasks,
                missing,
                workers,
                scratch,
                notices,
                shows_progress=is_wanted(progress),
            )
        making_s = time.monotonic() - making
        on_step(Step.SHARDS_FINISHED)
        plan = stored.as_plan(workspace)
        manifest = finish(
            plan,
            workspace,
            out,
            tasks.id,
            on_error=stored.on_error,
            rejects_max=stored.rejects_max,
            on_step=on_step,
        )
    kept = len(numbers) - len(missing)
    return make_report(
        out,
        manifest,
        started,
        workers,
        kept=kept,
        done=done,
        making_s=making_s,
        raw_bytes=int(byte_counts(plan.scan.items).sum()),
        notices=notices,
    )


def _remove_left(workspace: Workspace, out: Path) -> None:
    """Remove what one who published had no time to, unless it is just at it."""
    if workspace.folder.exists():
        with contextlib.suppress(TargetBusyError), TargetLock(workspace, out):
            if read_shared_plan(workspace, out) is None:
                workspace.remove()


def _report(out: Path, started: float, workers: int) -> BuildReport:
    manifest = read_manifest(out)
    notices = ["the store was published already"]
    kept = len(manifest.shards)
    return make_report(
        out,
        manifest,
        started,
        workers,
        kept=kept,
        done=0,
        making_s=0.0,
        raw_bytes=0,
        notices=notices,
    )


def _make(
    workspace: Workspace,
    tasks: TaskPlan,
    missing: Sequence[int],
    workers: int,
    scratch: str | Path | None,
    notices: list[str],
    *,
    shows_progress: bool,
) -> int:
    """Make what is missing. How many items were done for it."""
    done = 0

    def on_progress(count: int, finished: int | None) -> None:
        nonlocal done
        done += count
        bar.add(count)

    def on_notice(text: str) -> None:
        notices.append(text)
        bar.say(text)

    total = sum(len(workspace.read_items(number)) for number in missing)
    with (
        node_scratch_folder(workspace, scratch) as folder,
        Progress(total=total, shows=shows_progress) as bar,
        LocalEngine(workspace, workers) as engine,
    ):
        bar.say(notices[-1])
        engine.map(missing, folder, on_progress, on_notice)
    return done


def _shards(stored: StoredPlan, numbers: Sequence[int]) -> str:
    shown = ", ".join(stored.names[number] for number in numbers[:_SHOWN_MAX])
    more = len(numbers) - _SHOWN_MAX
    return shown + (f" and {more:,} more" if more > 0 else "")


def _missing_error(
    workspace: Workspace, out: Path, stored: StoredPlan, missing: Sequence[int]
) -> MissingShardsError:
    """Which shards are missing, what became of those who should have made them, and what to do."""
    lines = [
        f"{out}: {len(missing):,} of {count_text(len(stored.names), 'shard')} are missing, more "
        f"than publishing makes by itself: {_shards(stored, missing)}. Nothing was published; "
        "what is finished is kept."
    ]
    lost = [node for node in read_nodes(workspace) if node.facts.state != "done"]
    for node in lost[:_SHOWN_MAX]:
        facts = node.facts
        who = facts.name or f"{facts.host}, pid {facts.pid}"
        how = facts.error.splitlines()[0] if facts.error else facts.state
        if facts.state == "working":
            how = f"no word for {node.age_s:.0f} s: killed, or still at work"
        log = f"; log: {facts.log}" if facts.log else ""
        lines.append(f"  {who} on {facts.host}: {how}{log}")
    if len(lost) > _SHOWN_MAX:
        lines.append(f"  and {len(lost) - _SHOWN_MAX:,} more: packer status {out}")
    lines.append(
        "Go on with the same packer submit (or packer build --plan-only) again; or make the rest "
        f"here: packer work {out} && packer publish {out}"
    )
    return MissingShardsError("\n".join(lines))
