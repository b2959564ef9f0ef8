"""`packer submit` on a real Slurm: whatever happens to its jobs, one machine makes the same bytes.

The tests share a cluster, which takes seconds to start; where it cannot, they are skipped.
"""

from __future__ import annotations

import os
import signal

import pytest

from packer.cluster.slurm import logs_folder
from packer.cluster.status import status
from tests.cluster.conftest import SLURM_DEV, wait_until
from tests.packer.conftest import draw_tree

pytestmark = pytest.mark.slow


def test_three_jobs_make_a_store(submitted, alike):
    """It returns at once; scripts and logs stay, the workspace does not."""
    done = submitted.submit("--sbatch", "--time=10 --comment='two words'")
    assert (done.returncode, done.stderr) == (0, "")
    assert list(submitted.jobs) == ["plan", "work", "publish"]
    assert f"packer status {submitted.out} --watch" in done.stdout
    assert submitted.slurm.wait_until_ended(submitted.jobs["publish"]) == "COMPLETED"
    assert alike(submitted)
    assert not submitted.workspace.folder.exists()
    assert status(submitted.out).state == "published"
    names = {path.name.split("-")[0].split(".")[0] for path in logs_folder(submitted.out).iterdir()}
    assert names == {"plan", "work", "publish"}
    assert "12 images in 4 shards" in submitted.log("plan")
    assert "12 samples" in submitted.log("publish")
    again = submitted.submit()
    assert (again.returncode, "a store is there already" in again.stderr) == (1, True)


def test_a_task_that_is_killed_costs_nothing(submitted, alike):
    """Its shard is made by another task, or by the job that publishes."""
    submitted.submit_blocked("ant/0.png", task_count=2)
    node = submitted.mend()
    assert node.facts.part == "1/2"
    assert node.facts.log.startswith(str(logs_folder(submitted.out)))
    os.kill(node.facts.pid, signal.SIGKILL)
    assert submitted.slurm.wait_until_ended(submitted.jobs["publish"]) == "COMPLETED"
    assert "FAILED" in submitted.slurm.states(submitted.jobs["work"])
    assert alike(submitted)


def test_a_node_that_dies_costs_nothing(submitted, alike):
    """Slurm notices after seconds and starts its task again, elsewhere; that one goes on."""
    submitted.submit_blocked("ant/0.png", task_count=1)
    submitted.mend()
    job = submitted.jobs["work"]
    host = submitted.slurm.run("squeue", "-h", "-j", job, "-o", "%N").stdout.strip()
    assert submitted.slurm.dev("crash", host).returncode == 0
    try:
        assert submitted.slurm.wait_until_ended(submitted.jobs["publish"]) == "COMPLETED"
        assert alike(submitted)
        assert "4 shards made" in submitted.log("work")
    finally:
        assert submitted.slurm.dev("up").returncode == 0


def test_a_task_that_is_preempted_goes_on_when_it_is_requeued(submitted, alike, tmp_path):
    """It ends cleanly at SIGTERM, what is finished stays, its second start does the rest."""
    submitted.submit_blocked("bee/0.png", task_count=1)
    submitted.mend()
    assert len(submitted.workspace.reported()) == 1
    urgent = submitted.slurm.run(
        *("sbatch", "--parsable", "--partition=urgent", "--nodes=3", "--exclusive"),
        *(f"--output={tmp_path}/urgent.log", "--wrap=true"),
    ).stdout.strip()
    assert submitted.slurm.wait_until_ended(urgent) == "COMPLETED"
    assert submitted.slurm.wait_until_ended(submitted.jobs["publish"]) == "COMPLETED"
    assert alike(submitted)
    said = submitted.log("work")
    assert "Stopped. 1 of 4 shards finished and kept" in said
    assert "3 shards made" in said


def test_a_time_limit_and_a_second_submission(submitted, alike):
    """Publishing says what is missing, and the same command does the rest."""
    submitted.submit_blocked("ant/0.png", task_count=1)
    submitted.mend()
    job = submitted.jobs["work"]
    # What Slurm does at a time limit, without the minute that the shortest one takes.
    submitted.slurm.run("scancel", "--signal=TERM", "--full", job)
    assert submitted.slurm.wait_until_ended(submitted.jobs["publish"]) == "FAILED"
    said = submitted.log("publish")
    for words in (
        "4 of 4 shards are missing",
        f"task {job}_1 on ",
        f"stopped; log: {logs_folder(submitted.out)}/work-{job}_1.log",
        "Go on with the same packer submit",
    ):
        assert words in said
    assert status(submitted.out).nodes[0].state == "stopped"
    submitted.submit()
    assert submitted.slurm.wait_until_ended(submitted.jobs["publish"]) == "COMPLETED"
    assert alike(submitted)


def test_jobs_are_submitted_all_or_none(submitted):
    """Where Slurm refuses the second, the first is taken back, and its words are handed on."""
    done = submitted.submit(task_count=20_000)
    assert done.returncode == 1
    assert "Invalid job array specification" in done.stderr
    assert "Nothing is submitted" in done.stderr
    left = submitted.slurm.run("squeue", "-h", "-t", "PD,R", "-o", "%j").stdout
    assert "packer" not in left


def test_jobs_after_a_plan_that_failed_do_not_wait_for_ever(submitted, tmp_path):
    """They are cancelled; the plan's log says why, and the status where it is."""
    submitted.raw = draw_tree(tmp_path / "other", ["1.png"])
    (submitted.raw / "1.png").write_bytes(b"no picture at all")
    (submitted.raw / "1.png").rename(submitted.raw / "1.txt")
    submitted.submit()
    assert submitted.slurm.wait_until_ended(submitted.jobs["plan"]) == "FAILED"
    for name in ("work", "publish"):
        assert submitted.slurm.wait_until_ended(submitted.jobs[name]) == "CANCELLED"
    assert "Error: " in submitted.log("plan")
    found = status(submitted.out)
    assert (found.state, found.logs) == ("not planned", str(logs_folder(submitted.out)))


def test_the_cluster_of_the_tests_leaves_nothing(slurm):
    """Its daemons run as processes of its own folder, which `down` ends."""
    running = wait_until(
        lambda: slurm.run("sinfo", "-h", "-N", "-p", "main", "-o", "%N").stdout.split(), "nodes"
    )
    assert running == ["n1", "n2", "n3"]
    assert slurm.run(os.fspath(SLURM_DEV), "--help").returncode == 0
