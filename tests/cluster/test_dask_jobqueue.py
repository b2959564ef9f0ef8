"""dask-jobqueue on a real Slurm: workers come as jobs, and end at their limits."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from packer.building.build import build
from packer.engines.dask import DaskEngine
from tests.cluster.conftest import Slurm, wait_until
from tests.packer.conftest import CLASS_NAMES, MANY_SHARDS, draw_tree, processes_with
from tests.packer.engines.engine_conformance import ITEM_COUNT, SHARD_COUNT, plan_job
from tests.packer.engines.test_dask_engine import waiting_for_pipe

jobqueue = pytest.importorskip("dask_jobqueue")

pytestmark = pytest.mark.slow


@pytest.fixture
def make_cluster(
    slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Any]]:
    """Makes a cluster of at most two jobs, which come as there is work; they end with the test."""
    for name in ("PATH", "SLURM_CONF", "PYTHONPATH"):
        monkeypatch.setenv(name, slurm.environment[name])
    made = []

    def make(**options: Any) -> Any:
        cluster = jobqueue.SLURMCluster(
            cores=1,
            processes=1,
            memory="1GB",
            queue="main",
            walltime="00:10:00",
            python=sys.executable,
            log_directory=os.fspath(tmp_path / "logs"),
            local_directory=os.fspath(tmp_path / "dask"),
            scheduler_options={"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"},
            **options,
        )
        made.append(cluster)
        cluster.adapt(minimum_jobs=0, maximum_jobs=2)
        return cluster

    yield make
    for cluster in made:
        cluster.close()
    slurm.run("scancel", "--full", "--name=dask-worker", check=False)
    wait_until(lambda: not processes_with(os.fspath(tmp_path / "dask")), "the workers to be gone")


@pytest.mark.parametrize("end", ["--lifetime", "the job's"])
def test_workers_that_end_at_their_limit_cost_nothing(slurm, make_cluster, tmp_path, end):
    """Others come in their place, and the shards are those of one machine."""
    tree = draw_tree(tmp_path / "raw", CLASS_NAMES)
    local = tmp_path / "local.lmdb"
    build(tree, local, MANY_SHARDS, worker_count=1)
    job = plan_job(tree, tmp_path / "building")
    os.rename(tree / "ant/0.png", tmp_path / "aside.png")
    os.mkfifo(tree / "ant/0.png")
    limits = ["--lifetime", "10s"] if end == "--lifetime" else []
    cluster = make_cluster(worker_extra_args=limits)
    waited: list[int] = []
    notices: list[str] = []
    counts: list[int] = []

    def on_progress(done: int, number: int | None) -> None:
        counts.append(done)
        waiting = waiting_for_pipe(job.workspace.folder)
        if waited or not waiting:
            return
        # Whoever waits goes on waiting, until it ends; the next one finds the picture.
        waited.extend(waiting)
        os.replace(tmp_path / "aside.png", tree / "ant/0.png")
        if end != "--lifetime":
            # What Slurm does at a time limit, without the minute that the shortest one takes.
            jobs = slurm.run("squeue", "-h", "-t", "R", "-n", "dask-worker", "-o", "%i")
            slurm.run("scancel", *jobs.stdout.split())

    with DaskEngine(job.workspace, cluster, 1) as engine:
        engine.map(range(SHARD_COUNT), job.workspace.scratch, on_progress, notices.append)
    assert (len(waited), sum(counts)) == (1, ITEM_COUNT)
    assert any("no workers yet" in text for text in notices)
    made = job.shards()
    assert len(made) == SHARD_COUNT
    assert all((local / name).read_bytes() == content for name, content in made.items())
