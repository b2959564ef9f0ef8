"""Shard tasks on a Dask cluster: one future a shard, few of them at a time.

What travels is the path of the workspace and the number of a shard; images never do. The plan lies
in the workspace, which every Dask worker sees, and so do the shards. See `packer.engines.dask_task`
for what happens on a worker.
"""

from __future__ import annotations

import contextlib
import queue
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from distributed import Client, Future, KilledWorker, LocalCluster
from distributed import TimeoutError as DaskTimeoutError
from distributed.deploy.cluster import Cluster

from packer.engines.dask_task import end_build, make_shard
from packer.engines.dask_workers import LOOK_S, DaskWorkers
from packer.engines.deaths import Death, Deaths
from packer.engines.engine import OnNotice, OnProgress
from packer.engines.local import task_error
from packer.errors import BuildError, WorkerError
from packer.workspace.folder import Workspace

_AHEAD_COUNT = 16
"""Shards submitted at least beyond those that are being made, so that an adaptive cluster grows."""

_CONNECT_S = 30.0

_TOLD_PER_S = 50.0
"""Workers together say no more often than this how far they are: the scheduler passes it on."""

_TASK = f"__import__({make_shard.__module__!r}, fromlist=['x']).{make_shard.__name__}(*arguments)"
"""The task of Dask, as text: a worker that cannot import packer, or what it needs, says so then.
Of a function it could not even read the message, and would end, and begin again under its nanny."""

_STRAYS_MAX = 3
"""How often a shard may go to workers that cannot run packer, once one of those was seen."""


class DaskEngine:
    """Shard tasks on a Dask cluster: an `Engine`.

    Args:
        workspace: The build's workspace; it need not be there before `map`.
        scheduler: Address of the scheduler, or a Client or a Cluster of `distributed`, which stay
            open. None starts a `LocalCluster` on this machine, which ends with the engine.
        worker_count: Threads of that `LocalCluster`; each has a build worker, a process of its own.
        scratch: Folder on each node's own disk to write shards in. None chooses one there.
    """

    def __init__(
        self,
        workspace: Workspace,
        scheduler: str | Client | Cluster | None,
        worker_count: int,
        scratch: str | None = None,
    ) -> None:
        self._workspace, self._scheduler, self._scratch = workspace, scheduler, scratch
        self.worker_count = worker_count
        self._stack = contextlib.ExitStack()
        self._client: Client | None = None

    def start_ahead(self) -> None:
        """Connect. What fails is told by `map`."""
        with contextlib.suppress(BuildError):
            self._connected()

    def map(
        self, numbers: Iterable[int], scratch: Path, on_progress: OnProgress, on_notice: OnNotice
    ) -> None:
        """Have shards made; see `Engine.map`.

        A shard whose worker ends is given to another by Dask; one whose build worker died, by this.

        Raises:
            NodeError: A worker has other versions, or does not see the raw data or the target.
            BuildError: There is no scheduler, or it went away.
        """
        numbers = iter(numbers)
        first = next(numbers, None)
        if first is None:
            return
        client = self._connected()
        token = f".packer-{secrets.token_hex(8)}"
        (self._workspace.folder / token).touch()
        run = _Run(client, self._workspace, token, self._scratch, on_progress, on_notice)
        try:
            run.make(first, numbers)
        finally:
            run.end()
            self.worker_count = max(run.workers.thread_count_max, 1)
            (self._workspace.folder / token).unlink(missing_ok=True)

    def _connected(self) -> Client:
        if self._client is None:
            self._client = self._connect()
        return self._client

    def _connect(self) -> Client:
        scheduler = self._scheduler
        if isinstance(scheduler, Client):
            return scheduler
        if scheduler is None:
            # Its workers are threads, since what they start are processes already.
            scheduler = self._stack.enter_context(
                LocalCluster(
                    n_workers=1,
                    threads_per_worker=self.worker_count,
                    processes=False,
                    dashboard_address="127.0.0.1:0",
                )
            )
        try:
            client = Client(scheduler, timeout=_CONNECT_S, set_as_default=False, name="packer")
        except (OSError, ValueError) as error:  # A timeout is an OSError.
            raise BuildError(
                f"--scheduler {scheduler}: no Dask scheduler can be reached there: {error}. "
                "Expected an address such as tcp://10.0.0.1:8786, as dask scheduler prints it."
            ) from error
        self._stack.callback(client.close)
        return client

    def stop(self) -> None:
        """Close what was opened here; what the caller gave stays open."""
        self._client = None
        self._stack.close()

    def __enter__(self) -> DaskEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


@dataclass(kw_only=True)
class _Submitted:
    """One shard that was handed to Dask.

    Attributes:
        number: The shard.
        future: Dask's.
        done: Items of it that are done.
        worker: Address of the worker that is making it; empty as long as none does.
        stray_count: How often it went to workers that cannot run packer.
        bound_to: Addresses of the workers that alone may make it; empty means any.
    """

    number: int
    future: Future[Any]
    done: int = 0
    worker: str = ""
    stray_count: int = 0
    bound_to: Sequence[str] = ()


class _Held(NamedTuple):
    """One shard that is not handed to Dask, since no worker is left that could make it."""

    number: int
    not_on: str
    stray_count: int


@dataclass
class _Run:
    """One `map`: what is submitted, and what came of it."""

    client: Client
    workspace: Workspace
    token: str
    scratch: str | None
    on_progress: OnProgress
    on_notice: OnNotice
    _submitted: dict[str, _Submitted] = field(default_factory=dict)
    _submit_count: int = 0
    _held: list[_Held] = field(default_factory=list)
    _is_waiting_told: bool = False

    def __post_init__(self) -> None:
        # Told by threads of the client: a key that is done, or (when, how far a task is).
        self._events: queue.SimpleQueue[str | tuple[float, dict[str, Any]]] = queue.SimpleQueue()
        self.workers = DaskWorkers(self.client, self.workspace, self.token)
        self._deaths = Deaths(self.workspace, again="on another worker, if there is one")
        self.client.subscribe_topic(self.token, self._events.put)

    def make(self, first: int, numbers: Iterator[int]) -> None:
        """Have shards made until all are.

        Raises:
            NodeError: A worker that is there cannot do the work, or none of those that came can.
        """
        self.workers.check()
        number: int | None = first
        while number is not None or self._submitted or self._held:
            self._look()
            while number is not None and self._has_room():
                self._submit(number)
                number = next(numbers, None)
            try:
                event = self._events.get(timeout=LOOK_S)
            except queue.Empty:
                self._check_scheduler()
                self.on_progress(0, None)
                continue
            if isinstance(event, str):
                self._take(event)
            else:
                self._hear(event[1])

    def _has_room(self) -> bool:
        count = self.workers.thread_count
        return len(self._submitted) < count + max(count, _AHEAD_COUNT) and not self._held

    def _look(self, *, at_once: bool = False) -> None:
        """See which workers there are, now and then, and tell of those that are left out."""
        for text in self.workers.look(at_once=at_once):
            self.on_notice(f"{text} It is left out.")
        self.workers.check_any()
        for task in list(self._submitted.values()):
            if task.bound_to and self.workers and self.workers.are_gone(task.bound_to):
                self._take_back(task)
                self._again(task)
        if not self.workers.are_all_unfit:
            held, self._held = self._held, []
            for one in held:
                self._submit(one.number, not_on=one.not_on, stray_count=one.stray_count)
        if not self.workers and not self._is_waiting_told:
            self._is_waiting_told = True
            self.on_notice("the Dask cluster has no workers yet; the build waits for them")

    def _submit(self, number: int, *, not_on: str = "", stray_count: int = 0) -> None:
        """Hand a shard to Dask, for another worker than one, if there is another."""
        if self.workers.are_all_unfit:
            self._held.append(_Held(number, not_on, stray_count))
            return
        others = self.workers.others(not_on)
        # Of a preference, Dask keeps to it only as long as the others are not idle.
        is_bound = others is not None and self.workers.has_unfit
        key = f"packer-shard-{self.token[-8:]}-{self._submit_count}"
        self._submit_count += 1
        arguments = (
            str(self.workspace.folder),
            number,
            self.token,
            self.scratch,
            self._deaths.lost_items(number),
            max(1.0, self.workers.thread_count / _TOLD_PER_S),
            self.workers.expected,
        )
        future = self.client.submit(
            eval,
            _TASK,
            {"arguments": arguments},
            key=key,
            pure=False,
            workers=others,
            allow_other_workers=others is not None and not is_bound,
        )
        self._submitted[key] = _Submitted(
            number=number,
            future=future,
            stray_count=stray_count,
            bound_to=others if is_bound and others else (),
        )
        future.add_done_callback(lambda future: self._events.put(str(future.key)))

    def _hear(self, event: dict[str, Any]) -> None:
        """How far a task is; it may have been begun anew by another worker."""
        task = self._submitted.get(event["key"])
        if task is None:
            return
        if task.worker not in ("", event["worker"]):
            self.on_notice(
                f"Dask worker {task.worker} has ended while making shard {task.number}; "
                f"{event['worker']} makes it"
            )
        task.worker = event["worker"]
        if event["done"] != task.done:
            self.on_progress(event["done"] - task.done, None)
            task.done = event["done"]

    def _take(self, key: str) -> None:
        """Take what came of a shard."""
        task = self._submitted.get(key)
        if task is None:
            return
        result = self._result(task)
        if result is None:
            self._events.put(key)
            self.on_progress(0, None)
            return
        if key not in self._submitted:
            return  # All that might have made it had gone, and it was submitted anew.
        self._drop(task)
        if "finished" in result:
            self.on_progress(result["finished"] - task.done, task.number)
        elif "died" in result:
            death = Death(**result["died"])
            self.on_notice(f"{self._deaths.add(death)} (Dask worker {result['worker']})")
            self._again(task, result["worker"])
        elif "unfit" in result:
            self._leave_out(result["worker"], result["unfit"])
            self._again(task, result["worker"])
        elif "stray" in result:
            task.stray_count += 1
            self._again(task)
        elif "unwanted" in result:  # Its worker is closing.
            self._again(task, result["worker"])
        else:
            raise task_error(result)

    def _take_back(self, task: _Submitted) -> None:
        """Have Dask forget a shard that nobody can make any more."""
        self.client.cancel([task.future], force=True)
        self._drop(task)

    def _drop(self, task: _Submitted) -> None:
        del self._submitted[str(task.future.key)]
        task.future.release()

    def _again(self, task: _Submitted, address: str = "") -> None:
        if task.done:
            self.on_progress(-task.done, None)
        self._submit(task.number, not_on=address, stray_count=task.stray_count)

    def _leave_out(self, address: str, reason: str) -> None:
        """Give a worker that came later, and cannot do the work, nothing more."""
        text = self.workers.leave_out(address, f"on {reason}")
        if text is not None:
            self.on_notice(f"{text} It is left out.")
        self.workers.check_any()

    def _result(self, task: _Submitted) -> dict[str, Any] | None:
        """What a task returned; None when its worker went away with it, and it is made again."""
        try:
            result: dict[str, Any] = task.future.result(timeout=LOOK_S)
        except (TimeoutError, DaskTimeoutError):  # Two, until Python 3.11.
            return None
        except KilledWorker as error:
            raise WorkerError(
                f"shard {task.number}: one Dask worker after the other has ended while making it, "
                f"the last was {error.last_worker.address}. Are they out of memory, or is their "
                "time limit shorter than a shard takes (see --shard-size)? Run the same command: "
                "finished shards are kept."
            ) from error
        except Exception as error:  # Of Dask, or a bug: told whole, since nobody else has it.
            self._check_scheduler()
            # A worker without packer fails at once, and nobody says which that was.
            self._look(at_once=True)
            if self.workers.has_unfit and task.stray_count < _STRAYS_MAX:
                return {"stray": True}
            raise WorkerError(f"shard {task.number}: {type(error).__name__}: {error}") from error
        return result

    def _check_scheduler(self) -> None:
        if self.client.status != "running":
            raise BuildError(
                "the Dask scheduler went away. Shards that are finished are kept: start it again "
                "and run the same command."
            )

    def end(self) -> None:
        """Take back what is not made yet, and end the build's processes on all workers."""
        self._events = queue.SimpleQueue()
        if self.client.status != "running":
            return
        # Whatever fails here fails since the cluster is going, and its processes with it.
        with contextlib.suppress(Exception):
            self.client.unsubscribe_topic(self.token)
            futures = [task.future for task in self._submitted.values()]
            if futures:
                self.client.cancel(futures, force=True)
            self._submitted = {}
            self.client.run(end_build, str(self.workspace.folder), on_error="ignore")
