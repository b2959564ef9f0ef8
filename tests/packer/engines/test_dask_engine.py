"""Builds on a real Dask cluster: a scheduler and workers that are processes of their own."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster

from packer.building.build import build
from packer.engines.dask import DaskEngine
from packer.errors import BuildError, NodeError
from tests.packer.conftest import MANY_SHARDS, processes_with
from tests.packer.engines.engine_conformance import ITEM_COUNT, SHARD_COUNT, plan_job


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Two workers, each a process under a nanny that starts it again."""
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as made:
        made.wait_for_workers(2)
        yield made


def waiting_for_pipe(folder: Path) -> list[int]:
    """Build workers that open a named pipe at whose other end is nobody."""
    found = []
    for pid in processes_with(str(folder)):
        for thread in Path(f"/proc/{pid}/task").glob("*"):
            with contextlib.suppress(OSError):
                if (thread / "wchan").read_text() == "wait_for_partner":
                    found.append(pid)
    return found


def parent_of(pid: int) -> int:
    found = re.search(r"PPid:\t(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1])


def test_a_command_builds_on_the_workers_of_a_scheduler(
    cluster, raw, shards, tmp_path, packer, contents
):
    """The store has the bytes of one machine, nothing is left of the build, and the cluster is."""
    out = tmp_path / "out.lmdb"
    options = ("--size", "320", "--fit", "stretch", "--shard-size", "1MiB", "--engine", "dask")
    address = cluster.scheduler_address
    done = packer("build", raw, out, *options, "--scheduler", address, timeout=240)
    assert done.returncode == 0, done.stderr
    assert "with 2 build workers" in done.stdout
    assert contents(out) == contents(shards)
    assert [path.name for path in tmp_path.iterdir()] == ["out.lmdb"]
    assert not processes_with(str(tmp_path))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--scheduler", "tcp://127.0.0.1:1"), "give engine 'dask' as well"),
        (("--engine", "dask", "--scheduler", "tcp://127.0.0.1:1", "--workers", "2"), "not both"),
        (("--engine", "dask", "--plan-only"), "--engine does not apply"),
    ],
)
def test_options_that_do_not_apply_are_refused(raw, tmp_path, packer, arguments, words):
    """Before anything is looked at."""
    done = packer("build", raw, tmp_path / "out.lmdb", *arguments)
    assert done.returncode == 2
    assert words in done.stderr


def test_a_client_of_the_caller_stays_open(cluster, raw, shards, tmp_path, contents):
    """And the scheduler forgets all that it was asked for."""
    with Client(cluster, set_as_default=False) as client:
        build(raw, tmp_path / "out.lmdb", MANY_SHARDS, engine="dask", scheduler=client)
        assert contents(tmp_path / "out.lmdb") == contents(shards)
        assert client.status == "running"
    assert not cluster.scheduler.tasks


def test_a_worker_that_ends_costs_nothing(cluster, raw, tmp_path):
    """As at its time limit: another makes its shard, it is told, and the progress adds up."""
    tree = Path(shutil.copytree(raw, tmp_path / "raw"))
    job = plan_job(tree, tmp_path / "building")
    os.rename(tree / "ant/0.png", tmp_path / "aside.png")
    os.mkfifo(tree / "ant/0.png")
    killed: list[int] = []
    counts: list[int] = []
    notices: list[str] = []

    def on_progress(done: int, number: int | None) -> None:
        counts.append(done)
        waiting = waiting_for_pipe(job.workspace.folder)
        if waiting and not killed:
            os.replace(tmp_path / "aside.png", tree / "ant/0.png")
            killed.append(parent_of(waiting[0]))
            os.kill(killed[0], signal.SIGKILL)

    with DaskEngine(job.workspace, cluster, 1) as engine:
        engine.map(range(SHARD_COUNT), job.workspace.scratch, on_progress, notices.append)
    assert len(killed) == 1
    assert sum(counts) == ITEM_COUNT
    assert len(job.shards()) == SHARD_COUNT
    told = "Dask worker W has ended while making shard 0; W makes it"
    assert [re.sub(r"tcp://[\d.:]+", "W", text) for text in notices] == [told]


def test_an_item_that_kills_becomes_a_reject(raw, tmp_path):
    """After two build workers, told with the item and the Dask worker."""
    tree = Path(shutil.copytree(raw, tmp_path / "raw"))
    job = plan_job(tree, tmp_path / "building")
    (tree / "ant/1.png").unlink()
    os.mkfifo(tree / "ant/1.png")
    notices: list[str] = []

    def on_progress(done: int, number: int | None) -> None:
        for pid in waiting_for_pipe(job.workspace.folder):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSEGV)

    with DaskEngine(job.workspace, None, 2) as engine:
        engine.map(range(SHARD_COUNT), job.workspace.scratch, on_progress, notices.append)
    assert len(notices) == 2
    assert "is tried again on another worker" in notices[0]
    assert "(Dask worker inproc://" in notices[0]
    assert "for the second time: it becomes a reject" in notices[1]
    report = job.workspace.read_report(0)
    assert report is not None
    assert len(report.rejects) == 1


def test_a_worker_that_cannot_do_the_work_is_named(cluster, raw, tmp_path):
    """Before work begins: other libraries, no raw data, no target."""
    tree = Path(shutil.copytree(raw, tmp_path / "raw"))
    job = plan_job(tree, tmp_path / "building")
    plan = job.workspace.read_task_plan()

    def refused(words: str) -> None:
        with (
            DaskEngine(job.workspace, cluster, 1) as engine,
            pytest.raises(NodeError, match=rf"Dask worker tcp://\S+ on .*{words}"),
        ):
            job.run(engine)
        assert job.shards() == {}

    plan.versions = {"pillow": "0.1"}
    job.workspace.write_task_plan(plan)
    refused("other libraries .* pillow is")
    plan.versions = {}
    job.workspace.write_task_plan(plan)
    os.rename(tree, tmp_path / "away")
    refused("cannot read the raw data in .*raw: No such file")
    (job.workspace.folder / "task-plan").unlink()
    refused("cannot work in .*building.*see the target")


def test_a_scheduler_that_is_not_there_is_said(raw, tmp_path):
    """With what was expected."""
    job = plan_job(raw, tmp_path / "building")
    with (
        DaskEngine(job.workspace, "nonsense://x", 1) as engine,
        pytest.raises(BuildError, match=r"no Dask scheduler can be reached .* Expected an address"),
    ):
        job.run(engine)


def test_few_shards_are_submitted_at_a_time(raw, tmp_path, monkeypatch):
    """However many there are: memory of scheduler and client does not grow with them."""
    job = plan_job(raw, tmp_path / "building")
    monkeypatch.setattr("packer.engines.dask_task.make_shard", _no_shard)
    asked = finished = ahead = 0

    def numbers() -> Iterator[int]:
        nonlocal asked, ahead
        for number in range(100):
            asked += 1
            ahead = max(ahead, asked - finished)
            yield number

    def on_progress(done: int, number: int | None) -> None:
        nonlocal finished
        finished += number is not None

    with DaskEngine(job.workspace, None, 1) as engine:
        engine.map(numbers(), job.workspace.scratch, on_progress, lambda text: None)
    assert finished == 100
    assert ahead <= 20


def _no_shard(*arguments: Any) -> dict[str, Any]:
    return {"worker": "", "finished": 1}
