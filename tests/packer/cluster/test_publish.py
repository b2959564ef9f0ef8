"""Publishing a planned build: with all shards, with some missing, twice at once."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from packer.cluster.publish import publish_planned
from packer.cluster.work import work
from packer.engines.task import build_shard
from packer.errors import (
    DamagedTaskError,
    MissingShardsError,
    TargetBusyError,
    TooManyRejectsError,
)
from packer.workspace.lock import TargetLock
from packer.workspace.nodes import NodeFacts, NodeFile
from packer.workspace.step import Step
from tests.packer.cluster.conftest import WAIT_S


def test_the_few_that_are_missing_are_made(planned, shards, contents):
    """As many as asked for, on this machine; the report says which."""
    for number in (0, 2):
        build_shard(planned.workspace, number, planned.workspace.scratch)
    report = publish_planned(planned.out, workers=1, make_missing=2)
    assert (report.kept_shard_count, report.sample_count) == (2, 12)
    assert "shard-00001.lmdb, shard-00003.lmdb nobody had finished; made here" in report.notes
    assert contents(planned.out) == contents(shards)
    assert list(planned.out.parent.iterdir()) == [planned.out]


def test_many_missing_are_named_with_those_who_should_have_made_them(planned, shards, contents):
    """Which shards, which node and why, its log, and the command that goes on, which does."""
    build_shard(planned.workspace, 0, planned.workspace.scratch)
    facts = NodeFacts(name="task 7_2", host="n2", pid=1, state="failed", error="no\nmore", log="/l")
    NodeFile(planned.workspace, facts).write()
    with pytest.raises(MissingShardsError) as caught:
        publish_planned(planned.out, workers=1)
    said = str(caught.value)
    for words in (
        "3 of 4 shards are missing",
        "shard-00001.lmdb, shard-00002.lmdb, shard-00003.lmdb",
        "  task 7_2 on n2: no; log: /l",
        f"packer work {planned.out} && packer publish {planned.out}",
    ):
        assert words in said
    assert not planned.out.exists()
    work(planned.out, workers=1)
    publish_planned(planned.out)
    assert contents(planned.out) == contents(shards)


def test_of_two_at_once_one_publishes(planned, packer_command, shards, contents):
    """The other is told that it is busy, or finds it done; there is one whole store."""
    work(planned.out, workers=1)
    both = [
        subprocess.Popen(
            [*packer_command, "publish", str(planned.out)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    said = [process.communicate(timeout=WAIT_S) for process in both]
    statuses = sorted(process.returncode for process in both)
    assert statuses in ([0, 0], [0, 1])
    if statuses == [0, 1]:
        assert any("another build is running" in errors for _, errors in said)
    assert contents(planned.out) == contents(shards)
    assert list(planned.out.parent.iterdir()) == [planned.out]


def test_nobody_publishes_under_the_lock_of_another(planned):
    """Nor does it wait: it says who holds the target."""
    work(planned.out, workers=1)
    with (
        TargetLock(planned.workspace, planned.out),
        pytest.raises(TargetBusyError, match=r"another build is running \(host .*, pid \d+\)"),
    ):
        publish_planned(planned.out)


@pytest.mark.parametrize("step", [Step.SHARDS_FINISHED, Step.MANIFEST_WRITTEN, Step.PUBLISHED])
def test_publishing_that_was_interrupted_is_finished_by_the_next(planned, shards, contents, step):
    """At any of its steps, also when shards have their last names already."""

    def interrupt(told: Step) -> None:
        if told is step:
            raise KeyboardInterrupt

    work(planned.out, workers=1)
    with pytest.raises(KeyboardInterrupt):
        publish_planned(planned.out, on_step=interrupt)
    publish_planned(planned.out)
    assert contents(planned.out) == contents(shards)
    assert list(planned.out.parent.iterdir()) == [planned.out]


def test_a_workspace_that_is_being_removed_is_of_a_published_store(planned):
    """One who comes while another that has published removes it is told so, and not to plan."""

    def interrupt(told: Step) -> None:
        if told is Step.PUBLISHED:
            raise KeyboardInterrupt

    work(planned.out, workers=1)
    with pytest.raises(KeyboardInterrupt):
        publish_planned(planned.out, on_step=interrupt)
    shutil.rmtree(planned.workspace.placed)
    assert work(planned.out).is_published
    assert "the store was published already" in publish_planned(planned.out).notes
    assert list(planned.out.parent.iterdir()) == [planned.out]


def test_rejects_are_bounded_over_all_nodes(planned):
    """The plan says how many there may be; planning again says it anew, and keeps the shards."""
    (planned.raw / "bee/2.png").write_bytes(b"no picture")
    planned.plan(overwrite=True)
    work(planned.out, part=(1, 2), workers=1)
    with pytest.raises(TooManyRejectsError, match=r"bee/2\.png"):
        publish_planned(planned.out)
    assert planned.plan(max_rejects=1).missing_shard_count == 0
    assert publish_planned(planned.out).reject_count == 1


def test_a_damaged_task_file_is_named(planned):
    """It is not taken for a shard without items."""
    path = planned.workspace.folder / "tasks" / "00001"
    path.write_bytes(b"")
    with pytest.raises(DamagedTaskError, match=r"tasks/00001: 0 bytes .*--plan-only"):
        publish_planned(planned.out, workers=4)
    planned.plan()
    assert publish_planned(planned.out, workers=4).sample_count == 12


@pytest.mark.parametrize(("name", "value"), [("workers", 0), ("make_missing", -1)])
def test_a_count_out_of_range_is_refused(planned, name, value):
    """By its name and its limit."""
    with pytest.raises(ValueError, match=f"{name} must be at least"):
        publish_planned(planned.out, **{name: value})
