"""Workers of a Dask cluster that cannot do a build's work: found, named and left out."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from distributed import Client, LocalCluster

from packer.engines.dask import DaskEngine
from packer.errors import NodeError
from tests.packer.conftest import processes_with
from tests.packer.engines.engine_conformance import ITEM_COUNT, SHARD_COUNT, plan_job
from tests.packer.engines.test_dask_engine import parent_of, waiting_for_pipe

WITHOUT_PACKER = "sys.modules['packer'] = None"
OTHER_PYTHON = "import platform; platform.python_version_tuple = lambda: ('2', '7', '18')"
BLIND = "pass"
"""Worker of a machine where the raw data lies elsewhere."""


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """One worker that can do the work, under a nanny that starts it again."""
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0") as made:
        made.wait_for_workers(1)
        yield made


@contextlib.contextmanager
def workers(address: str, *kinds: str, raw: Path, folder: Path) -> Iterator[None]:
    """Workers that cannot do the work, each a process; they end with the context."""
    started = []
    for kind in kinds:
        code = (
            f"import sys; {kind}; from distributed.cli.dask_worker import main; "
            f"main([{address!r}, '--no-nanny', '--no-dashboard', '--nthreads=1', "
            f"'--local-directory={folder}'])"
        )
        hide = ["unshare", "--mount", "sh", "-c", f"mount -t tmpfs none '{raw}'; exec \"$@\"", "sh"]
        command = [*(hide if kind == BLIND else []), sys.executable, "-c", code]
        started.append(
            subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        )
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def can_hide_folders() -> bool:
    done = subprocess.run(
        ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"],
        capture_output=True,
        check=False,
    )
    return done.returncode == 0


def test_workers_that_come_late_are_left_out_by_name(cluster, raw, tmp_path):
    """Without packer, with another Python, without the raw data: nothing is lost to them.

    The one worker that can do the work is killed, so that shards which only it may make need
    another; the nanny's next one has another address.
    """
    if not can_hide_folders():
        pytest.skip("needs unshare --mount, and to mount a tmpfs there")
    tree = Path(shutil.copytree(raw, tmp_path / "raw"))
    job = plan_job(tree, tmp_path / "building")
    os.rename(tree / "ant/0.png", tmp_path / "aside.png")
    os.mkfifo(tree / "ant/0.png")
    notices: list[str] = []
    counts: list[int] = []
    killed: list[int] = []
    kinds = (WITHOUT_PACKER, OTHER_PYTHON, BLIND)
    stack = contextlib.ExitStack()

    def on_progress(done: int, number: int | None) -> None:
        counts.append(done)
        if len(counts) == 1:  # The build has begun.
            address = cluster.scheduler_address
            stack.enter_context(workers(address, *kinds, raw=tree, folder=tmp_path))
        waiting = waiting_for_pipe(job.workspace.folder)
        left_out = [text for text in notices if text.endswith("It is left out.")]
        if len(left_out) == len(kinds) and waiting and not killed:
            os.replace(tmp_path / "aside.png", tree / "ant/0.png")
            killed.append(parent_of(waiting[0]))
            os.kill(killed[0], signal.SIGKILL)

    with stack, DaskEngine(job.workspace, cluster, 1) as engine:
        engine.map(range(SHARD_COUNT), job.workspace.scratch, on_progress, notices.append)
    assert (len(job.shards()), sum(counts), len(killed)) == (SHARD_COUNT, ITEM_COUNT, 1)
    told = sorted(re.sub(r"tcp://[\d.:]+", "W", text) for text in notices)
    left_out = [text for text in told if text.endswith("It is left out.")]
    assert len(left_out) == len(kinds)
    assert re.match(r"Dask worker W cannot run packer: .*ModuleNotFoundError.*packer", left_out[0])
    assert "Python is 2.7 here and" in left_out[1] + left_out[2]
    assert f"the raw folder {tree} is empty here" in left_out[1] + left_out[2]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (WITHOUT_PACKER, "cannot run packer: .*ModuleNotFoundError"),
        (OTHER_PYTHON, "Python is 2.7 here and .* where the build was started"),
    ],
    ids=["without-packer", "other-python"],
)
def test_a_worker_that_is_there_is_named_before_work_begins(cluster, raw, tmp_path, kind, words):
    """No shard is made, by those that could either."""
    job = plan_job(raw, tmp_path / "building")
    with workers(cluster.scheduler_address, kind, raw=raw, folder=tmp_path):
        with Client(cluster, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=60)
        with (
            DaskEngine(job.workspace, cluster, 1) as engine,
            pytest.raises(NodeError, match=rf"Dask worker tcp://\S+ .*{words}"),
        ):
            job.run(engine)
    assert job.shards() == {}
    assert not processes_with(os.fspath(job.workspace.folder))
