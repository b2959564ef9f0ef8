"""One shard, start to finish."""

from __future__ import annotations

import os

import pytest

from packer.errors import RejectedItemError
from packer.plan import make_plan
from packer.recipe import Recipe
from packer.sources import SourceOptions, scan_source
from packer.task import build_shard
from packer.workspace import TaskPlan, Workspace
from readers.store.shard import file_sha256


@pytest.fixture
def prepared(tmp_path, draw_tree):
    """A function that plans a build of some names, and returns its workspace and its raw folder."""

    def prepare(names, *, recipe=None, stops_at_reject=False):
        tree = draw_tree(tmp_path / "raw", names)
        plan = make_plan(scan_source(tree, SourceOptions()), recipe or Recipe())
        workspace = Workspace(tmp_path / "building")
        workspace.folder.mkdir()
        workspace.begin([plan.scan.items], plan.facts())
        workspace.write_task_plan(
            TaskPlan(
                root=os.fsencode(tree),
                schema=plan.schema.as_builtins(),
                recipe=plan.recipe.as_dict(),
                names=plan.names,
                stops_at_reject=stops_at_reject,
            )
        )
        return workspace, tree

    return prepare


def test_a_task_reports_what_it_stored(prepared):
    """Progress after each item; the shard in place, its digest, and labels counted."""
    workspace, _ = prepared(["a/1.png", "a/2.png", "b/1.png"])
    done = []
    report = build_shard(workspace, 0, workspace.scratch, done.append)
    assert done == [1, 2, 3]
    assert report.label_counts == {0: 2, 1: 1}
    assert (report.rejects, report.split_counts) == ([], {})
    shard = workspace.store / "shard-00000.lmdb"
    assert report.shard is not None
    assert (report.shard.sample_count, report.shard.bytes) == (3, shard.stat().st_size)
    assert report.shard.sha256 == file_sha256(shard)
    assert workspace.read_report(0) == report
    assert list(workspace.scratch.iterdir()) == []


def test_a_task_done_twice_gives_the_same_shard(prepared):
    """Whatever an earlier one left in the scratch folder."""
    workspace, _ = prepared(["a/1.png", "b/1.png"])
    first = build_shard(workspace, 0, workspace.scratch)
    (workspace.scratch / "shard-00000.lmdb").write_bytes(b"left by a build that was killed")
    assert build_shard(workspace, 0, workspace.scratch) == first


def test_a_task_without_samples_leaves_no_shard(prepared):
    """Its report says so, so that it is not done again."""
    workspace, tree = prepared(["1.png"])
    (tree / "1.png").unlink()
    report = build_shard(workspace, 0, workspace.scratch)
    assert report.shard is None
    assert [(r.key, r.path, r.reason) for r in report.rejects] == [
        (b"1.png", "1.png", "cannot be read: No such file or directory")
    ]
    assert list(workspace.store.iterdir()) == list(workspace.scratch.iterdir()) == []
    assert workspace.read_report(0) == report


def test_a_task_can_stop_at_the_first_reject(prepared):
    """Nothing of the shard is left, and there is no report of it."""
    workspace, tree = prepared(["1.png", "2.png", "3.png"], stops_at_reject=True)
    (tree / "2.png").unlink()
    done = []
    with pytest.raises(RejectedItemError, match=r"^2\.png: cannot be read"):
        build_shard(workspace, 0, workspace.scratch, done.append)
    assert done == [1]
    assert list(workspace.store.iterdir()) == list(workspace.scratch.iterdir()) == []
    assert workspace.read_report(0) is None


def test_a_file_on_the_way_to_its_end_is_not_taken(prepared):
    """One that shrinks or grows while it is read is rejected, not stored in part."""
    workspace, tree = prepared(["1.png"])
    before = (tree / "1.png").stat()
    data = (tree / "1.png").read_bytes()
    for changed in (data[:-1], data + b"x"):
        (tree / "1.png").write_bytes(changed)
        os.utime(tree / "1.png", ns=(before.st_atime_ns, before.st_mtime_ns))
        report = build_shard(workspace, 0, workspace.scratch)
        assert [r.reason for r in report.rejects] == [
            "the file changed while the build ran; run the build again when it is at rest"
        ]
