"""What a Dask worker does for a build: it has one shard made by a build worker of its own.

The build worker is a process below the Dask worker, as it is below a driver that works alone. So a
decoder that crashes, or the kernel's out-of-memory killer, takes none of Dask's, and a death is
laid to an item wherever it happens. It is kept for the next shard, and ends when it had none for a
while, when the build ends, or with the Dask worker.
"""

from __future__ import annotations

import platform
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from distributed import get_worker

from packer.engines.local import Crew
from packer.errors import NodeError
from packer.plan.node_check import check_node
from packer.workspace.folder import Workspace
from packer.workspace.place import fresh_name
from packer.workspace.scratch import node_scratch_folder

_POLL_S = 0.5
"""How soon a task that nobody wants any more ends."""

_IDLE_S = 30.0
"""How long a build worker is kept without a shard, where nobody said that the build has ended."""


def versions() -> dict[str, str]:
    """What must be the same on both sides of a Dask cluster, by name; libraries are in the plan."""
    return {
        "Python": ".".join(platform.python_version_tuple()[:2]),
        "distributed": version("distributed"),
    }


def check_worker(folder: str, token: str, expected: dict[str, str] | None = None) -> None:
    """See that this Dask worker sees what the driver sees, may write there, and has its libraries.

    Args:
        folder: Of the workspace.
        token: Name of a file that the driver has put there: another folder of this name lacks it.
        expected: `versions` of the driver. None takes any.

    Raises:
        NodeError: It does not, may not or has not.
    """
    here = platform.node()
    other = [
        f"{name} is {ours} here and {expected[name]} where the build was started"
        for name, ours in versions().items()
        if expected is not None and ours != expected[name]
    ]
    if other:
        raise NodeError(f"{here}: {'; '.join(other)}. Use one environment everywhere.")
    workspace = Workspace(Path(folder))
    try:
        (workspace.folder / token).stat()
        plan = workspace.read_task_plan()
        mark = workspace.folder / f".{fresh_name('look')}"
        mark.touch()
        mark.unlink()
    except OSError as error:
        raise NodeError(
            f"{here}: it cannot work in {folder}, where the shards are to go: {error.strerror}. "
            "All Dask workers must see the target under this path, and may write beside it."
        ) from error
    check_node(plan)


def make_shard(
    folder: str,
    number: int,
    token: str,
    scratch: str | None,
    lost: dict[int, str],
    tell_s: float,
    expected: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Have one shard made here: the task of Dask.

    Args:
        folder: Of the workspace.
        number: Which shard.
        token: See `check_worker`. It is also the topic under which is told how far it is.
        scratch: Folder on this node's disk to write it in. None chooses one.
        lost: See `build_shard`.
        tell_s: How often to tell how far it is.
        expected: See `check_worker`.

    Returns:
        {"worker": address of this Dask worker}, and "finished": items, or "died": a `Death` by its
        names, or "unfit": why this node cannot work, or what a build worker says when it failed.
    """
    dask_worker = get_worker()
    result: dict[str, Any] = {"worker": dask_worker.address}
    try:
        check_worker(folder, token, expected)
    except NodeError as error:
        return {**result, "unfit": str(error)}
    key = dask_worker.get_current_task()

    def is_wanted() -> bool:
        state = dask_worker.state.tasks.get(key)
        is_open = dask_worker.status.name in ("running", "paused")
        return is_open and state is not None and state.state != "cancelled"

    def tell(done: int) -> None:
        dask_worker.log_event(token, {"key": key, "done": done, "worker": dask_worker.address})

    workspace = Workspace(Path(folder))
    tell(0)
    with node_scratch_folder(workspace, scratch) as place, _crews(dask_worker).lent(folder) as crew:
        worker = crew.workers[0] if crew.workers else crew.start()
        worker.give(place, number, lost)
        told = time.monotonic()
        while is_wanted():
            if not crew.ready(_POLL_S):
                continue
            messages = worker.messages()
            if not messages:
                death = crew.bury(worker)
                assert death is not None
                return {**result, "died": asdict(death)}
            last = messages[-1]
            if "finished" in last:
                worker.number = None
                return {**result, "finished": len(workspace.read_items(number))}
            if "failed" in last:
                worker.number = None
                return {**result, **last}
            if time.monotonic() - told >= tell_s:
                told = time.monotonic()
                tell(last["done"])
    return {**result, "unwanted": True}


def end_build(folder: str, dask_worker: Any) -> None:
    """End the build workers of a build on a Dask worker, which Dask fills in by the name."""
    _crews(dask_worker).end(folder)


class _Crews:
    """The build workers below one Dask worker: a crew of one for each of its threads that had work.

    Crews are taken and put back by threads, so all is done under a lock.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[str, list[tuple[Crew, threading.Timer]]] = {}
        self._lent: dict[str, list[Crew]] = {}

    @contextmanager
    def lent(self, folder: str) -> Iterator[Crew]:
        """A crew for one shard. One that still has a shard in the end is ended."""
        with self._lock:
            idle = self._idle.get(folder)
            if idle:
                crew, timer = idle.pop()
                timer.cancel()
            else:
                crew = Crew(Workspace(Path(folder)))
            self._lent.setdefault(folder, []).append(crew)
        try:
            yield crew
        finally:
            with self._lock:
                lent = self._lent.get(folder, [])
                is_kept = crew in lent and all(worker.number is None for worker in crew.workers)
                if crew in lent:
                    lent.remove(crew)
                if is_kept:
                    timer = threading.Timer(_IDLE_S, self._let_go, (folder, crew))
                    timer.daemon = True
                    timer.start()
                    self._idle.setdefault(folder, []).append((crew, timer))
            if not is_kept:
                crew.stop()

    def _let_go(self, folder: str, crew: Crew) -> None:
        with self._lock:
            idle = self._idle.get(folder, [])
            left = [entry for entry in idle if entry[0] is not crew]
            if len(left) == len(idle):
                return  # It was lent in this moment.
            self._idle[folder] = left
        crew.stop()

    def end(self, folder: str) -> None:
        """End all of a build. Those that are lent are stopped by whoever has them."""
        with self._lock:
            idle = self._idle.pop(folder, [])
            for crew in self._lent.pop(folder, []):
                for worker in list(crew.workers):
                    worker.kill()
        for crew, timer in idle:
            timer.cancel()
            crew.stop()


def _crews(dask_worker: Any) -> _Crews:
    """Those of a Dask worker; they live as long as it does. Several may be in one process."""
    crews = vars(dask_worker).setdefault("packer_crews", _Crews())
    assert isinstance(crews, _Crews)
    return crews
