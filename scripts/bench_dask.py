"""Memory of a Dask scheduler and its client over many shards, of which nothing is made.

    python scripts/bench_dask.py --counts 1000,10000,100000

Each shard is a task that says how far it is, as a real one does, and returns at once. Scheduler,
client and worker are this process. Shown are the most futures that were held at a time,
and the process's memory after so many shards.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from distributed import LocalCluster, get_worker

from packer.engines import dask_task, dask_workers
from packer.engines.dask import DaskEngine
from packer.workspace.folder import Workspace


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--counts", default="1000,10000,100000", help="shards after which to look")
    counts = [int(text) for text in parser.parse_args().counts.split(",")]
    vars(dask_task).update(make_shard=tell_alone)
    vars(dask_workers).update(check_worker=see_nothing)
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address="127.0.0.1:0"
        ) as cluster,
    ):
        measure(Workspace(Path(folder)), cluster, counts)


def measure(workspace: Workspace, cluster: LocalCluster, counts: list[int]) -> None:
    """Have shards not made, and print what is held."""
    asked = finished = ahead = 0
    started = time.monotonic()

    def numbers() -> Iterator[int]:
        nonlocal asked, ahead
        for number in range(max(counts)):
            asked += 1
            ahead = max(ahead, asked - finished)
            yield number

    def on_progress(done: int, number: int | None) -> None:
        nonlocal finished
        finished += number is not None
        if number is not None and finished in counts:
            print(
                f"{finished:>9,} shards{time.monotonic() - started:>9.0f} s"
                f"{resident_bytes() / 1e6:>9.1f} MB{ahead:>5} held at most"
                f"{len(cluster.scheduler.tasks):>5} tasks at the scheduler",
                flush=True,
            )

    print(f"        0 shards{0:>9} s{resident_bytes() / 1e6:>9.1f} MB")
    with DaskEngine(workspace, cluster, 1) as engine:
        engine.map(numbers(), workspace.scratch, on_progress, print)


def tell_alone(folder: str, number: int, token: str, *_: Any) -> dict[str, Any]:
    """In place of `make_shard`."""
    worker = get_worker()
    key = worker.get_current_task()
    worker.log_event(token, {"key": key, "done": 0, "worker": worker.address})
    return {"worker": worker.address, "finished": 1}


def see_nothing(*_: Any) -> None:
    """In place of `check_worker`."""


def resident_bytes() -> int:
    """What this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main()
