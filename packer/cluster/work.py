"""A node's share of a planned build: it makes shards until none is left to make."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from packer.building.planned import no_plan_error
from packer.cluster.turns import Turns
from packer.engines.local import LocalEngine
from packer.errors import BuildError, DiskError, RejectedItemError
from packer.plan.node_check import check_node
from packer.progress import Progress, is_wanted
from packer.wording import Summarized, count_text, rate_text
from packer.workspace.folder import Workspace
from packer.workspace.nodes import BEAT_S, Claims, NodeFile, this_process
from packer.workspace.scratch import node_scratch_folder
from packer.workspace.space import disk_named
from packer.workspace.tasks import TaskPlan
from packer.workspace.unfinished import is_published
from readers.machine import core_count, local_rank_count
from readers.store.layout import MANIFEST_NAME


@dataclass(frozen=True, kw_only=True)
class WorkReport(Summarized):
    """What one call of `work` did.

    Attributes:
        path: Where the store is to be, or is.
        made_count: Shards that it made.
        image_count: Raw items that it worked on.
        reject_count: Those of them that were rejected.
        left_count: Shards that were not finished when it ended: others may be making them.
        seconds: Wall time.
        worker_count: Build workers.
        is_published: Whether the store was published already: there was nothing to do.
        notices: What happened on the way, a line each.
    """

    path: str
    made_count: int = 0
    image_count: int = 0
    reject_count: int = 0
    left_count: int = 0
    seconds: float = 0.0
    worker_count: int = 0
    is_published: bool = False
    notices: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """The report by name, as `--json` prints it."""
        return asdict(self)

    def summary(self) -> str:
        """What was done, in a line or two."""
        if self.is_published:
            what = count_text(self.made_count, "shard")
            return f"{self.path}: {what} made here; the store is published already, nothing to do"
        left = (
            f"{count_text(self.left_count, 'shard')} left, which others are making or could not"
            if self.left_count
            else "none is left to make"
        )
        rate = ""
        if self.image_count and self.seconds:
            workers = count_text(self.worker_count, "build worker")
            rate = f", {rate_text(self.image_count / self.seconds)} images/s with {workers}"
        return (
            f"{self.path}: {count_text(self.made_count, 'shard')} made, "
            f"{count_text(self.image_count, 'image')} ({self.reject_count:,} rejected) in "
            f"{self.seconds:.1f} s{rate}; {left}"
        )


class _AllFinishedError(Exception):
    """All that this process is making has been finished by others meanwhile."""


def work(
    out: str | Path,
    *,
    part: tuple[int, int] | None = None,
    workers: int | None = None,
    scratch: str | Path | None = None,
    name: str = "",
    progress: bool | None = None,
    look_s: float = BEAT_S,
) -> WorkReport:
    """Make shards of the planned build of `out`, beside any number of others that do.

    Nothing depends on who makes which shard, on how many processes there are, or on whether one
    dies: what is finished stays, and calling it again goes on.

    Args:
        out: Where the store is to be.
        part: (which, of how many), from 1: the shards to begin with. None takes any. Whoever is
            through with its part goes on with those of others.
        workers: Build workers. None means the cores that this job may use.
        scratch: Folder on a local disk to write shards in; see `build`.
        name: What `status` calls this process: the number of its job, say.
        progress: Say on stderr how far the work is: a bar on a terminal or in a notebook, else a
            line every 30 s. None does so in a notebook alone.
        look_s: How often to see whether others have finished what this process is making.

    Raises:
        ValueError: `part` or `workers` is out of its range.
        BuildError: Nobody has planned a build.
        NodeError: This node would make other bytes, or does not see the raw data.
        RejectedItemError: An item was rejected under on_error="fail", here or elsewhere.
        NoSpaceError: A disk is full.
        DiskError: A disk or a file server fails.
        WorkerError: Build workers died, over and over.
    """
    if part is not None and not 1 <= part[0] <= part[1]:
        raise ValueError(f"part must be I/N with I in [1, N]; got {part[0]}/{part[1]}")
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1; got {workers!r}")
    out = Path(os.path.abspath(out))
    workspace = Workspace.of(out)
    plan = read_shared_plan(workspace, out)
    if plan is None:
        return WorkReport(path=str(out), is_published=True)
    check_node(plan)
    text = f"{part[0]}/{part[1]}" if part is not None else ""
    node = NodeFile(workspace, this_process(name, text))
    workers = workers or max(1, core_count() // local_rank_count())
    run = _Run(out, workspace, plan, node)
    node.write()
    with run.told():
        run.make(part, workers, scratch, shows_progress=is_wanted(progress), look_s=look_s)
    return run.report(workers)


def read_shared_plan(workspace: Workspace, out: Path) -> TaskPlan | None:
    """What all tasks of a planned build have in common; None when the store is published already.

    Raises:
        BuildError: Nobody has planned a build for several nodes.
    """
    try:
        if workspace.read_facts() is None:
            raise FileNotFoundError
        plan = workspace.read_task_plan()
    except FileNotFoundError as error:
        if (out / MANIFEST_NAME).exists():
            return None
        raise no_plan_error(workspace, out) from error
    if not plan.is_shared:  # It is of one machine.
        raise no_plan_error(workspace, out)
    if not workspace.placed.is_dir():
        if is_published(workspace, out, None) or (
            not workspace.is_begun() and (out / MANIFEST_NAME).exists()
        ):
            return None  # Whoever published is just removing the workspace, or has been killed.
        raise no_plan_error(workspace, out)  # It is not written whole yet.
    return plan


class _Run:
    """One call of `work`, and what it has done so far."""

    def __init__(self, out: Path, workspace: Workspace, plan: TaskPlan, node: NodeFile) -> None:
        self._out, self._workspace, self._plan, self._node = out, workspace, plan, node
        self._claims = Claims(workspace, node.id)
        self._started = self._looked = time.monotonic()
        self._notices: list[str] = []
        self._is_published = False

    @contextlib.contextmanager
    def told(self) -> Iterator[None]:
        """Say in the node's file how it ended; a store that was published meanwhile is no error."""
        facts = self._node.facts
        try:
            yield
            facts.state = "done"
            self._is_published = not self._workspace.is_begun() and self._is_there()
        except (BuildError, OSError) as error:
            is_gone = not self._workspace.is_begun()
            if isinstance(error, (DiskError, OSError)) and is_gone and self._is_there():
                self._is_published = True
                return
            facts.state, facts.error = "failed", str(error)
            if isinstance(error, RejectedItemError) and self._plan.stops_at_reject:
                self._workspace.stop(str(error).splitlines()[0])
            raise
        except BaseException as error:
            is_bug = isinstance(error, Exception)
            facts.state = "failed" if is_bug else "stopped"
            facts.error = f"{type(error).__name__}: {error}" if is_bug else ""
            raise
        finally:
            self._claims.release(self._node.making)
            self._node.write()

    def _is_there(self) -> bool:
        return (self._out / MANIFEST_NAME).exists()

    def make(
        self,
        part: tuple[int, int] | None,
        workers: int,
        scratch: str | Path | None,
        *,
        shows_progress: bool,
        look_s: float,
    ) -> None:
        """Make shards until there is none to take."""
        turns = Turns(self._workspace, self._plan, part, self._node, self._claims)

        def on_progress(count: int, finished: int | None) -> None:
            bar.add(count)
            self._node.facts.image_count += count
            if finished is not None:
                report = self._workspace.read_report(finished, self._plan.id)
                self._node.end(finished, len(report.rejects) if report is not None else 0)
            elif self._node.is_due:
                self._node.write()
            now = time.monotonic()
            if now - self._looked >= look_s:
                self._looked = now
                making = self._node.making
                is_made = bool(making) and all(map(self._workspace.has_report, making))
                if is_made or not self._workspace.is_begun():
                    raise _AllFinishedError

        def on_notice(text: str) -> None:
            self._notices.append(text)
            bar.say(text)

        with (
            disk_named(self._out, self._workspace.has_finished),
            node_scratch_folder(self._workspace, scratch) as folder,
            Progress(total=self._plan.item_count, shows=shows_progress) as bar,
        ):
            numbers = iter(turns)
            while not turns.is_over and self._workspace.is_begun():
                try:
                    with LocalEngine(self._workspace, workers) as engine:
                        engine.map(numbers, folder, on_progress, on_notice)
                except _AllFinishedError:
                    self._node.give_up()

    def report(self, workers: int) -> WorkReport:
        """What was done."""
        facts = self._node.facts
        left = 0
        if self._workspace.is_begun():
            left = self._plan.shard_count - len(self._workspace.reported())
        return WorkReport(
            path=str(self._out),
            made_count=facts.finished_count,
            image_count=facts.image_count,
            reject_count=sum(facts.rejects.values()),
            left_count=left,
            seconds=time.monotonic() - self._started,
            worker_count=workers,
            is_published=self._is_published,
            notices=self._notices,
        )
