"""Nodes that make the shards of a planned build: many, slow, killed, stopped, late, unfit."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess

import msgspec
import pytest

from packer.building.planned import plan_build
from packer.cluster.publish import publish_planned
from packer.cluster.turns import part_of
from packer.cluster.work import work
from packer.engines.task import build_shard
from packer.errors import BuildError, NodeError, RejectedItemError
from packer.recipe import Recipe
from packer.stores.verify import verify
from packer.workspace.nodes import read_nodes
from packer.workspace.tasks import plan_id
from tests.packer.cluster.conftest import WAIT_S, wait_until
from tests.packer.conftest import MANY_SHARDS, processes_with


def test_a_shell_loop_of_nodes_makes_the_bytes_of_one_machine(
    raw, shards, tmp_path, packer, packer_command, contents
):
    """Plan, three processes at once, publish: each a command of its own, and nothing is left."""
    out = tmp_path / "out.lmdb"
    size = ("--size", "320", "--fit", "stretch", "--shard-size", "1MiB")
    done = packer("build", raw, out, *size, "--plan-only")
    assert "12 images in 4 shards, 4 to be made" in done.stdout
    assert not out.exists()
    nodes = [
        subprocess.Popen(
            [*packer_command, "work", str(out), "--part", f"{number}/3", "--workers", "1"],
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in (1, 2, 3)
    ]
    said = [node.communicate(timeout=WAIT_S)[0] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0, 0]
    # Who is through earlier may make a shard once more that another is making.
    assert sum(int(text.split(": ")[1].split()[0]) for text in said) >= 4
    done = packer("publish", out)
    assert (done.returncode, "4 shards kept" in done.stdout) == (0, True)
    assert contents(out) == contents(shards)
    assert list(tmp_path.iterdir()) == [out]
    for command in ("work", "publish"):
        again = packer(command, out)
        assert (again.returncode, "published already" in again.stdout) == (0, True)


@pytest.mark.parametrize(("count", "parts"), [(0, 3), (4, 1), (4, 9), (100, 7)])
def test_parts_are_runs_that_share_all_shards(count, parts):
    """Each shard is in one part; parts differ by one at most."""
    found = [part_of(count, (which, parts)) for which in range(1, parts + 1)]
    assert [number for part in found for number in part] == list(range(count))
    assert max(map(len, found)) - min(map(len, found)) <= 1


def test_one_node_makes_the_parts_of_all(planned, shards, contents):
    """Whoever is through with its part goes on with those that nobody has begun."""
    report = work(planned.out, part=(3, 4), workers=2)
    assert (report.made_count, report.image_count, report.left_count) == (4, 12, 0)
    publish_planned(planned.out)
    assert contents(planned.out) == contents(shards)


def test_a_killed_node_costs_no_shard(planned, shards, contents):
    """What it was making is made by another, and what it left in its scratch folder is removed."""
    planned.block("ant/0.png")
    node = planned.start("--part", "1/2")
    planned.mend()
    node.send_signal(signal.SIGKILL)
    node.communicate()
    wait_until(lambda: not processes_with(str(planned.workspace.folder)), "its worker to end")
    assert list(planned.workspace.scratch.iterdir())
    report = work(planned.out, part=(2, 2), workers=1)
    assert (report.made_count, report.left_count) == (4, 0)
    assert not list(planned.workspace.scratch.iterdir())
    publish_planned(planned.out)
    assert contents(planned.out) == contents(shards)


def test_a_slow_node_holds_nobody_up(planned, shards, contents):
    """What it has begun is made once more by whoever is through, and then it gives up its own."""
    planned.block("ant/0.png")
    slow = planned.start("--part", "1/2", "--name", "slow")
    planned.mend()
    report = work(planned.out, part=(2, 2), workers=1)
    assert (report.made_count, report.left_count) == (4, 0)
    said, errors = slow.communicate(timeout=WAIT_S)
    assert (slow.returncode, errors) == (0, "")
    assert ": 0 shards made" in said
    assert {node.facts.state for node in read_nodes(planned.workspace)} == {"done"}
    publish_planned(planned.out)
    assert contents(planned.out) == contents(shards)


def test_a_node_that_is_late_finds_the_store_published(planned, shards, contents):
    """Its shard is of no use any more: it ends without an error, and spoils nothing."""
    planned.block("cat/3.png")
    late = planned.start("--part", "4/4")
    planned.mend()
    work(planned.out, workers=1)
    late.send_signal(signal.SIGSTOP)
    publish_planned(planned.out)
    late.send_signal(signal.SIGCONT)
    said, errors = late.communicate(timeout=WAIT_S)
    assert (late.returncode, errors) == (0, "")
    assert "published already" in said or ": 0 shards made" in said
    assert contents(planned.out) == contents(shards)
    assert list(planned.out.parent.iterdir()) == [planned.out]


def test_a_node_that_is_told_to_stop_ends_cleanly(planned, shards, contents):
    """As on preemption: finished shards stay, what it had taken is free, and it can go on."""
    planned.block("bee/1.png")
    node = planned.start("--part", "1/1")
    planned.mend()
    node.send_signal(signal.SIGTERM)
    _, errors = node.communicate(timeout=WAIT_S)
    assert node.returncode == 143
    assert "1 of 4 shards finished and kept" in errors
    assert [one.facts.state for one in read_nodes(planned.workspace)] == ["stopped"]
    assert os.listdir(planned.workspace.folder / "claims") == ["00000.1"]
    report = work(planned.out, part=(1, 1), workers=1)
    assert (report.made_count, report.left_count) == (3, 0)
    publish_planned(planned.out)
    assert contents(planned.out) == contents(shards)


def test_planning_again_goes_on(planned, shards, contents):
    """Finished shards are kept; those whose rejects may pass are made again."""
    plan = planned.workspace.read_task_plan()
    build_shard(planned.workspace, 0, planned.workspace.scratch)
    build_shard(planned.workspace, 1, planned.workspace.scratch, lost={0: "a worker died"})
    report = planned.plan()
    assert (report.shard_count, report.missing_shard_count) == (4, 3)
    assert planned.workspace.read_task_plan() == plan
    work(planned.out, workers=1)
    publish_planned(planned.out)
    assert contents(planned.out) == contents(shards)


def test_two_attempts_at_a_shard_are_never_mixed(planned):
    """A file server fails one of them, so that they differ: the report is about the file."""
    workspace = planned.workspace
    work(planned.out, workers=1)
    report = workspace.folder / "reports" / "00002"
    whole = report.read_bytes()
    build_shard(workspace, 2, workspace.scratch, lost={0: "the server failed"})
    lossy = report.read_bytes()
    assert lossy != whole
    report.write_bytes(whole)
    assert publish_planned(planned.out).sample_count == 12
    assert not verify(planned.out).problems


def test_a_report_of_another_plan_is_not_taken(planned, shards, contents):
    """A node that works on, on a build that was discarded, cannot spoil the one after it."""
    workspace = planned.workspace
    plan = workspace.read_task_plan()
    workspace.write_task_plan(msgspec.structs.replace(plan, id="0" * 32))
    build_shard(workspace, 1, workspace.scratch)
    workspace.write_task_plan(plan)
    assert workspace.read_report(1, plan.id) is None
    assert planned.plan().missing_shard_count == 4
    work(planned.out, workers=1)
    publish_planned(planned.out)
    assert contents(planned.out) == contents(shards)


def test_a_node_with_other_libraries_makes_nothing(planned):
    """Its pixels would differ; it says which library, and what each has."""
    plan = planned.workspace.read_task_plan()
    versions = {**plan.versions, "pillow": "1.1.7"}
    planned.workspace.write_task_plan(msgspec.structs.replace(plan, versions=versions))
    with pytest.raises(NodeError, match=r"pillow is .* here and was 1\.1\.7 there"):
        work(planned.out)
    assert planned.reported_count() == 0


@pytest.mark.parametrize("is_there", [True, False])
def test_a_node_that_does_not_see_the_raw_data_rejects_nothing(planned, is_there):
    """A folder that is not mounted there is empty, or none: no reason to call images missing."""
    shutil.rmtree(planned.raw)
    if is_there:
        planned.raw.mkdir()
    with pytest.raises(NodeError, match="raw"):
        work(planned.out)
    assert planned.reported_count() == 0


def test_the_first_reject_stops_all_nodes(planned):
    """Under on_error="fail": who meets it says which; who comes later makes nothing."""
    planned.plan(on_error="fail")
    (planned.raw / "ant/0.png").write_bytes(b"no picture")
    with pytest.raises(RejectedItemError, match=r"ant/0\.png"):
        work(planned.out, part=(1, 1), workers=1)
    with pytest.raises(RejectedItemError, match=r"Another node met a reject: ant/0\.png"):
        work(planned.out, part=(1, 1), workers=1)
    assert planned.reported_count() == 0


def test_without_a_plan_for_nodes_there_is_nothing_to_work_on(planned, tmp_path):
    """Neither where there is nothing, nor in the unfinished build of one machine."""
    with pytest.raises(BuildError, match=r"there is no planned build .*--plan-only"):
        work(tmp_path / "other.lmdb")
    plan = planned.workspace.read_task_plan()
    planned.workspace.write_task_plan(msgspec.structs.replace(plan, is_shared=False))
    with pytest.raises(BuildError, match=r"has no plan that nodes could carry out"):
        work(planned.out)
    with pytest.raises(ValueError, match=r"part must be I/N with I in \[1, N\]; got 4/3"):
        work(planned.out, part=(4, 3))


def test_one_machine_can_take_a_planned_build_up(planned, shards, contents, packer):
    """The ordinary command goes on with what nodes have finished."""
    build_shard(planned.workspace, 2, planned.workspace.scratch)
    size = ("--size", "320", "--fit", "stretch", "--shard-size", "1MiB")
    done = packer("build", planned.raw, planned.out, *size)
    assert (done.returncode, "1 shard kept" in done.stdout) == (0, True)
    assert contents(planned.out) == contents(shards)


def test_the_id_of_a_plan_follows_from_its_facts(planned):
    """From the file as well, so that a plan that is made again is the same one."""
    facts = planned.workspace.read_facts()
    assert planned.workspace.read_task_plan().id == plan_id(facts)
    assert plan_id({**facts, "format": "coco"}) != plan_id(facts)


def test_an_order_that_nodes_cannot_read_in_is_refused(tmp_path, raw):
    """Each node would have to unpack all of an archive: nothing is left behind."""
    archive = shutil.make_archive(str(tmp_path / "raw"), "gztar", raw)
    out = tmp_path / "out.lmdb"
    with pytest.raises(BuildError, match=r"raw\.tar\.gz.* can only be read forward.*--shuffle"):
        plan_build(archive, out, Recipe(shuffle=1))
    assert [path.name for path in tmp_path.iterdir()] == ["raw.tar.gz"]


def test_an_update_can_be_made_by_nodes(planned, draw_tree, contents, tmp_path):
    """Shards that stay are taken over; where nothing has changed there is nothing to do."""
    work(planned.out, workers=1)
    publish_planned(planned.out)
    assert not planned.plan(update=True).is_needed
    draw_tree(planned.raw, ["bee/0.png", "bee/9.png"])
    report = planned.plan(update=True)
    assert (report.is_needed, report.missing_shard_count < report.shard_count) == (True, True)
    work(planned.out, workers=1)
    publish_planned(planned.out)
    plan_build(planned.raw, tmp_path / "fresh.lmdb", MANY_SHARDS)
    work(tmp_path / "fresh.lmdb", workers=1)
    fresh = publish_planned(tmp_path / "fresh.lmdb")
    assert fresh.sample_count == 13 == verify(planned.out).sample_count
