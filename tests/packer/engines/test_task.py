"""One shard, start to finish."""

from __future__ import annotations

import io
import os
import tarfile

import pytest
from PIL import Image

from packer.engines.task import build_shard
from packer.errors import RejectedItemError
from packer.plan.shards import make_plan
from packer.raw.containers import Containers
from packer.recipe import Recipe
from packer.sources import SourceOptions, scan_source
from packer.workspace.folder import Workspace
from packer.workspace.tasks import TaskPlan
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


@pytest.fixture
def archive(tmp_path, picture):
    """A function that plans a build of a .tgz of pictures, one a shard: workspace and archive."""

    def prepare(count, *, stops_at_reject=False):
        path = tmp_path / "raw" / "a.tgz"
        path.parent.mkdir()
        write_archive(path, [picture(str(number)) for number in range(count)])
        plan = make_plan(scan_source(path, SourceOptions()), Recipe())
        workspace = Workspace(tmp_path / "building")
        workspace.folder.mkdir()
        workspace.begin([[item] for item in plan.scan.items], plan.facts())
        workspace.write_task_plan(
            TaskPlan(
                root=os.fsencode(path.parent),
                schema=plan.schema.as_builtins(),
                recipe=plan.recipe.as_dict(),
                stops_at_reject=stops_at_reject,
            )
        )
        return workspace, path

    return prepare


def write_archive(path, pictures):
    with tarfile.open(path, "w:gz") as tar:
        for number, pixels in enumerate(pictures):
            file = io.BytesIO()
            # More than the reader unpacks at once.
            Image.fromarray(pixels).resize((240, 160)).save(file, "BMP")
            info = tarfile.TarInfo(f"{number:02}.bmp")
            info.size = file.tell()
            tar.addfile(info, io.BytesIO(file.getvalue()))


def open_descriptors(path):
    links = (f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd"))
    return sum(os.path.exists(link) and os.readlink(link) == str(path) for link in links)


def test_tasks_in_a_row_unpack_an_archive_once(archive, unpacked):
    """Each goes on where the last one ended; the shards are those of tasks on their own."""
    workspace, path = archive(8)
    end = max(i.member.position + i.byte_count for n in range(8) for i in workspace.read_items(n))
    alone = [build_shard(workspace, number, workspace.scratch) for number in range(8)]
    assert sum(unpacked) > 4 * end
    assert open_descriptors(path) == 0
    unpacked.clear()
    containers = Containers(os.fsencode(path.parent))
    in_a_row = [
        build_shard(workspace, number, workspace.scratch, containers=containers)
        for number in range(8)
    ]
    assert end <= sum(unpacked) < end + 2**16
    assert in_a_row == alone
    assert [report.shard.sample_count for report in in_a_row] == [1] * 8
    assert open_descriptors(path) == 1
    containers.close()
    assert open_descriptors(path) == 0


@pytest.mark.parametrize("how", ["replaced", "written over", "removed"])
def test_an_archive_that_changed_between_tasks_is_noticed(archive, picture, how):
    """One that is open still gives the old images, which would be stored beside new ones."""
    workspace, path = archive(3)
    containers = Containers(os.fsencode(path.parent))
    report = build_shard(workspace, 0, workspace.scratch, containers=containers)
    assert report.shard is not None
    if how == "written over":
        write_archive(path, [picture(name) for name in "abcd"])
    else:
        path.rename(path.with_name("old"))
        if how == "replaced":
            write_archive(path, [picture(name) for name in "abcd"])
    reasons = [
        reject.reason
        for number in (1, 2)
        for reject in build_shard(
            workspace, number, workspace.scratch, containers=containers
        ).rejects
    ]
    if how == "removed":
        assert reasons == ["cannot be read: No such file or directory"] * 2
    else:
        assert (
            reasons
            == ["the file changed while the build ran; run the build again when it is at rest"] * 2
        )
    containers.close()


def test_a_task_that_fails_keeps_nothing_open(archive):
    """What comes next begins with a file of its own."""
    workspace, path = archive(2, stops_at_reject=True)
    containers = Containers(os.fsencode(path.parent))
    build_shard(workspace, 0, workspace.scratch, containers=containers)
    assert open_descriptors(path) == 1
    os.utime(path, ns=(1, 1))
    with pytest.raises(RejectedItemError, match="changed while the build ran"):
        build_shard(workspace, 1, workspace.scratch, containers=containers)
    assert open_descriptors(path) == 0
