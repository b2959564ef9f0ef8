"""The three jobs of `packer submit`, as scripts: what stands in them, and what is refused."""

from __future__ import annotations

import pytest

from packer.cluster.slurm import make_jobs, submit
from packer.errors import SubmitError
from tests.command import run_packer


def test_the_scripts_hand_all_options_on(raw, tmp_path, monkeypatch):
    """Those of the build to the plan, workers and scratch to those who make shards."""
    monkeypatch.chdir(tmp_path)
    done = run_packer(
        *("submit", raw, "my store.lmdb", "--tasks", "64", "--cpus-per-task", "8", "--dry-run"),
        *("--sbatch", "-p cpu --time=4:00:00 --comment='two words'", "--size", "320"),
        *("--include", "ant/*", "--include=b*", "--scratch", tmp_path, "--overwrite"),
    )
    assert done.exit_code == 0
    plan, work, publish = done.stdout.split("#!/bin/sh")[1:]
    target = f"'{tmp_path}/my store.lmdb'"
    assert (
        f"build {raw} {target} --size=320 '--include=ant/*' '--include=b*' --overwrite --plan-only"
    ) in plan
    assert f'work {target} --part "$SLURM_ARRAY_TASK_ID/64" ' in work
    for script in (work, publish):
        assert f"{target} " in script
        assert f" --workers 8 --scratch={tmp_path}\n" in script
    assert f"publish {target} --workers 8" in publish
    assert "#SBATCH --array=1-64\n" in work
    for script in (plan, work, publish):
        for line in (
            "--cpus-per-task=8",
            "-p cpu",
            "--time=4:00:00",
            '--comment="two words"',
            f"--chdir={tmp_path}",
            "--requeue",
        ):
            assert f"#SBATCH {line}\n" in script
        assert f'#SBATCH --output="{tmp_path}/my store.lmdb.slurm/' in script
    assert "--dependency=afterok:${plan} --kill-on-invalid-dep=yes" in plan
    assert "--dependency=afterok:${plan},afterany:${work} --kill-on-invalid-dep=yes" in work
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["--array=1-3", "-a 1-3", "-d afterok:1", "--dependency=x"])
def test_options_that_make_the_jobs_what_they_are_are_refused(tmp_path, option):
    """The array and its dependencies are ours."""
    with pytest.raises(ValueError, match=f"got '{option[:3]}"):
        make_jobs(tmp_path / "out.lmdb", ["packer"], [], task_count=3, sbatch=option)


@pytest.mark.parametrize("name", ["task_count", "cpus_per_task"])
def test_counts_are_positive(tmp_path, name):
    """By their names."""
    counts = {"task_count": 1, "cpus_per_task": 1, name: 0}
    with pytest.raises(ValueError, match=f"{name} must be at least 1; got 0"):
        make_jobs(tmp_path / "out.lmdb", ["packer"], [], **counts)


def test_workers_that_were_asked_for_go_before_cores(tmp_path):
    """Of each task, whatever Slurm gives it."""
    jobs = make_jobs(
        tmp_path / "out.lmdb",
        ["packer"],
        [],
        task_count=1,
        cpus_per_task=8,
        work_arguments=["--workers=3"],
    )
    assert "--workers=3\n" in jobs[1].script
    assert "--workers 8" not in jobs[1].script


def test_without_slurm_it_says_so(raw, tmp_path, monkeypatch):
    """And what to do instead; other errors come before a job is submitted."""
    monkeypatch.setenv("PATH", str(tmp_path))
    jobs = make_jobs(tmp_path / "out.lmdb", ["packer"], [], task_count=1)
    with pytest.raises(SubmitError, match=r"sbatch: there is no such program.*--dry-run"):
        submit(tmp_path / "out.lmdb", jobs)
    (tmp_path / "taken.lmdb").mkdir()
    (tmp_path / "taken.lmdb/file").touch()
    for arguments, words in (
        ((tmp_path / "no", tmp_path / "o.lmdb"), "no such file or folder"),
        ((raw, tmp_path / "taken.lmdb"), "is not a store"),
    ):
        done = run_packer("submit", *arguments, "--tasks", "2")
        assert (done.exit_code, words in done.stderr) == (1, True)
    usage = run_packer("submit", raw, tmp_path / "o.lmdb", "--tasks", "2", "--quality", "80")
    assert (usage.exit_code, "quality" in usage.stderr) == (2, True)
