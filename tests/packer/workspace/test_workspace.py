"""Builds that are interrupted, run again, or run twice at once."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from packer.building.build import Step, build
from packer.errors import BuildMismatchError, TargetBusyError, TargetExistsError
from packer.recipe import Recipe
from packer.workspace.folder import TaskReport, Workspace
from packer.workspace.lock import TargetLock
from readers.store.errors import StoreIncompleteError
from readers.store.manifest import ShardInfo, read_manifest
from readers.store.reader import open_store

DIED = 9

# Every call by which a build changes the names or the safety of what is on the disk.
CHANGING_CALLS = ("replace", "rename", "unlink", "rmdir", "mkdir", "fsync", "ftruncate")


def exit_status_of(work) -> int:
    """The exit status of a forked child that does `work` and leaves with 0."""
    child = os.fork()
    if child == 0:
        status = 70
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def die_at_step(step: Step, turn: int = 1):
    """An `on_step` that leaves by os._exit the `turn`-th time that a step is told."""
    turns = itertools.count(1)

    def on_step(told: Step) -> None:
        if told is step and next(turns) == turn:
            os._exit(DIED)

    return on_step


def die_before_call(number: int) -> None:
    """Leave this process by os._exit just before the call of this number that changes the disk."""
    calls = itertools.count()

    def dying(call):
        def at_last(*arguments, **options):
            if next(calls) == number:
                os._exit(DIED)
            return call(*arguments, **options)

        return at_last

    for name in CHANGING_CALLS:
        setattr(os, name, dying(getattr(os, name)))


def is_whole(path: Path) -> bool:
    """Whether a reader takes this for a store. What it takes must be whole."""
    try:
        store = open_store(path)
    except StoreIncompleteError:
        return False
    for shard in store.shards():
        for position in range(len(shard.lengths)):
            shard.check_record(position)
    return True


def copy_of(source: Path, target: Path) -> Path:
    """A copy of a folder with its times; what is there is removed."""
    shutil.rmtree(target, ignore_errors=True)
    return Path(shutil.copytree(source, target))


STEPS = [(step, 1) for step in Step] + [(Step.SHARD_FINISHED, 2)]


@pytest.mark.parametrize(("step", "turn"), STEPS, ids=[f"{s.name}-{n}" for s, n in STEPS])
def test_a_killed_build_is_refused_and_can_be_finished(
    step, turn, tmp_path, raw, many_shards, shards, contents, processes_with
):
    """Dead at any step, it is never taken for a whole store; the same call then completes it."""
    out = tmp_path / "out.lmdb"
    status = exit_status_of(
        lambda: build(raw, out, many_shards, worker_count=1, on_step=die_at_step(step, turn))
    )
    assert status == DIED
    wait_until(lambda: not processes_with(str(out)), "the worker to end")
    assert is_whole(out) == (step in (Step.PUBLISHED, Step.CLEANED))
    if step is Step.CLEANED:
        assert contents(out) == contents(shards)
        return
    report = build(raw, out, many_shards, worker_count=1)
    finished = {
        Step.LOCKED: 0,
        Step.PLANNED: 0,
        Step.SHARD_FINISHED: turn,
    }
    assert report.kept_shard_count == finished.get(step, 4)
    assert contents(out) == contents(shards)
    assert list(tmp_path.iterdir()) == [out]


def test_kept_shards_are_not_made_again(tmp_path, raw, many_shards, shards, contents):
    """Finished shards of an interrupted build are the same files afterwards."""
    out = tmp_path / "out.lmdb"
    exit_status_of(
        lambda: build(
            raw, out, many_shards, worker_count=1, on_step=die_at_step(Step.SHARD_FINISHED, 2)
        )
    )
    finished = Workspace.of(out).store
    before = {path.name: path.stat() for path in finished.iterdir()}
    assert sorted(before) == ["shard-00000.lmdb", "shard-00001.lmdb"]
    build(raw, out, many_shards, worker_count=1)
    for name, status in before.items():
        now = (out / name).stat()
        assert (now.st_ino, now.st_mtime_ns) == (status.st_ino, status.st_mtime_ns)
    assert contents(out) == contents(shards)


@pytest.fixture(scope="module")
def finished_shards(tmp_path_factory, raw, many_shards):
    """Workspace of a build that died when all its shards were in place. Not to be changed."""
    out = tmp_path_factory.mktemp("finished") / "out.lmdb"
    exit_status_of(
        lambda: build(
            raw, out, many_shards, worker_count=1, on_step=die_at_step(Step.SHARDS_FINISHED)
        )
    )
    return Workspace.of(out).folder


@pytest.mark.slow
def test_dying_before_any_call_of_publishing_does_no_harm(
    tmp_path, raw, many_shards, shards, contents, finished_shards
):
    """From the last shard to the end: each call that changes the disk may be the last one."""
    out = tmp_path / "out.lmdb"
    statuses = []
    for number in itertools.count():
        shutil.rmtree(out, ignore_errors=True)
        copy_of(finished_shards, Workspace.of(out).folder)

        def work(number=number):
            die_before_call(number)
            build(raw, out, many_shards, worker_count=1)

        statuses.append(exit_status_of(work))
        if statuses[-1] == 0:
            break
        if not is_whole(out):
            build(raw, out, many_shards, worker_count=1)
        elif Workspace.of(out).read_facts() is not None:
            report = build(raw, out, many_shards, worker_count=1)
            assert report.kept_shard_count == 4
        elif Workspace.of(out).folder.exists():
            # Died over the last three files of the workspace. The store is there, and that is said.
            with contextlib.suppress(TargetExistsError):
                build(raw, out, many_shards, worker_count=1)
        assert contents(out) == contents(shards)
        assert list(tmp_path.iterdir()) == [out]
    assert set(statuses[:-1]) == {DIED}
    assert len(statuses) > 20


@pytest.mark.slow
def test_dying_while_a_store_is_replaced_leaves_the_old_or_the_new(
    tmp_path, raw, many_shards, store, shards, contents, finished_shards
):
    """At no moment is there no store, or a mixture; running the command again finishes the swap."""
    out = tmp_path / "out.lmdb"
    seen = []
    for number in itertools.count():
        copy_of(store, out)
        copy_of(finished_shards, Workspace.of(out).folder)

        def work(number=number):
            die_before_call(number)
            build(raw, out, many_shards, worker_count=1, overwrite=True)

        status = exit_status_of(work)
        now = contents(out)
        assert now in (contents(store), contents(shards))
        seen.append(now == contents(shards))
        if status == 0:
            break
        assert status == DIED
        if Workspace.of(out).folder.exists():
            build(raw, out, many_shards, worker_count=1, overwrite=True)
        assert contents(out) == contents(shards)
        assert list(tmp_path.iterdir()) == [out]
    assert seen == sorted(seen)
    assert seen[0] is False
    assert seen[-1] is True


@pytest.mark.slow
def test_dying_while_a_store_is_replaced_by_renames_loses_neither(
    tmp_path, raw, many_shards, store, shards, contents, finished_shards
):
    """Where names cannot be exchanged, there is a moment without a store; never half of one."""
    out = tmp_path / "out.lmdb"
    seen = set()
    for number in itertools.count():
        copy_of(store, out)
        copy_of(finished_shards, Workspace.of(out).folder)

        def work(number=number):
            ctypes.CDLL = lambda *arguments, **options: None  # It has no renameat2.
            die_before_call(number)
            build(raw, out, many_shards, worker_count=1, overwrite=True)

        status = exit_status_of(work)
        now = contents(out) if out.exists() else {}
        assert now in ({}, contents(store), contents(shards))
        seen.add(len(now))
        if status == 0:
            break
        assert status == DIED
        if not now:
            assert contents(Workspace.of(out).folder / "store.replaced") == contents(store)
        if Workspace.of(out).folder.exists():
            build(raw, out, many_shards, worker_count=1, overwrite=True)
        assert contents(out) == contents(shards)
        assert list(tmp_path.iterdir()) == [out]
    assert seen == {0, len(contents(store)), len(contents(shards))}


def test_dying_while_another_build_is_discarded_mixes_nothing(
    tmp_path, raw, many_shards, shards, contents, finished_shards, store
):
    """With --overwrite the old workspace goes; half gone, it is not taken up by anybody."""
    out = tmp_path / "out.lmdb"
    for number in itertools.count():
        shutil.rmtree(out, ignore_errors=True)
        copy_of(finished_shards, Workspace.of(out).folder)

        def work(number=number):
            die_before_call(number)
            build(raw, out, worker_count=1, overwrite=True, on_step=die_at_step(Step.PLANNED))

        assert exit_status_of(work) == DIED
        facts = Workspace.of(out).read_facts()
        # Either build may be run now. The old one, as long as its facts are there: it is the one
        # that might be taken up. Once there are none, or the new one's, it is the end of this.
        if facts is None or facts["recipe"]["size"] is None:
            break
        build(raw, out, many_shards, worker_count=1)
        assert contents(out) == contents(shards)
    assert number > 0
    build(raw, out, worker_count=1, overwrite=True)
    assert contents(out) == contents(store)


def test_a_discarded_build_is_gone_before_its_tasks_are(tmp_path, raw, many_shards):
    """What says that a build has begun is removed first, since its tasks are about to be."""
    out = tmp_path / "out.lmdb"
    exit_status_of(lambda: build(raw, out, many_shards, on_step=die_at_step(Step.PLANNED)))
    workspace = Workspace.of(out)
    kept = {path.name for path in (workspace.folder / "tasks").iterdir()}
    assert len(kept) == 4

    def work():
        remove = shutil.rmtree

        def die_at_the_tasks(path, *arguments, **options):
            if Path(path).name == "tasks":
                os._exit(DIED)
            return remove(path, *arguments, **options)

        shutil.rmtree = die_at_the_tasks
        build(raw, out, overwrite=True)

    assert exit_status_of(work) == DIED
    assert {path.name for path in (workspace.folder / "tasks").iterdir()} == kept
    assert workspace.read_facts() is None


def test_tasks_are_written_anew_when_a_build_goes_on(tmp_path, raw, many_shards, shards, contents):
    """They are not synced: a power cut may have left one empty, with a name and no content."""
    out = tmp_path / "out.lmdb"
    exit_status_of(lambda: build(raw, out, many_shards, on_step=die_at_step(Step.PLANNED)))
    (Workspace.of(out).folder / "tasks" / "00002").write_bytes(b"")
    build(raw, out, many_shards, worker_count=1)
    assert contents(out) == contents(shards)


def test_a_finished_shard_that_is_cut_short_or_gone_is_made_again(
    tmp_path, raw, many_shards, shards, contents, finished_shards
):
    """A report counts only as long as its shard is there in full."""
    out = tmp_path / "out.lmdb"
    workspace = Workspace.of(out)
    copy_of(finished_shards, workspace.folder)
    (workspace.store / "shard-00001.lmdb").unlink()
    os.truncate(workspace.store / "shard-00002.lmdb", 4096)
    (workspace.folder / "reports" / "00003").write_bytes(b"\x81")
    report = build(raw, out, many_shards, worker_count=1)
    assert report.kept_shard_count == 1
    assert contents(out) == contents(shards)


# --- Another recipe, other data -------------------------------------------------------------------


def test_another_recipe_is_refused_and_named(tmp_path, raw, finished_shards, contents, store):
    """Every setting that differs, with both values; --overwrite discards what is there."""
    out = tmp_path / "out.lmdb"
    copy_of(finished_shards, Workspace.of(out).folder)
    recipe = Recipe(size=200, fit="crop", shard_bytes_max=2**20)
    with pytest.raises(BuildMismatchError) as caught:
        build(raw, out, recipe)
    assert "size was 320 and is 200" in str(caught.value)
    assert "fit was 'stretch' and is 'crop'" in str(caught.value)
    assert "mode" not in str(caught.value)
    assert "--overwrite" in str(caught.value)
    assert not out.exists()
    report = build(raw, out, overwrite=True, worker_count=1)
    assert report.kept_shard_count == 0
    assert contents(out) == contents(store)
    assert list(tmp_path.iterdir()) == [out]


def test_changed_raw_data_are_refused(tmp_path, draw_tree, class_names, many_shards):
    """A file rewritten since, one more, one less: half of the shards would be of other data."""
    tree = draw_tree(tmp_path / "raw", class_names)
    out = tmp_path / "out.lmdb"
    exit_status_of(lambda: build(tree, out, many_shards, on_step=die_at_step(Step.PLANNED)))
    times = (tree / class_names[0]).stat()
    changes = [
        lambda: os.utime(tree / class_names[0], ns=(0, times.st_mtime_ns + 1)),
        lambda: draw_tree(tree, ["ant/new.png"]),
        lambda: (tree / "bee/0.png").unlink(),
    ]
    for change in changes:
        change()
        with pytest.raises(BuildMismatchError, match=r"the raw data changed.*--overwrite"):
            build(tree, out, many_shards)
    report = build(tree, out, many_shards, overwrite=True, worker_count=1)
    assert report.sample_count == 12
    assert read_manifest(out).sample_count == 12


def test_a_published_store_is_not_reported_for_other_settings(
    tmp_path, raw, many_shards, store, shards, contents
):
    """Killed before it cleaned up, then run with another recipe: that recipe is what counts."""
    out = tmp_path / "out.lmdb"
    exit_status_of(
        lambda: build(raw, out, many_shards, worker_count=1, on_step=die_at_step(Step.PUBLISHED))
    )
    with pytest.raises(TargetExistsError, match="a store is there already"):
        build(raw, out)
    assert contents(out) == contents(shards)
    build(raw, out, overwrite=True, worker_count=1)
    assert contents(out) == contents(store)
    assert list(tmp_path.iterdir()) == [out]


# --- Two builds at once ---------------------------------------------------------------------------


def test_a_second_build_is_told_who_is_at_work(tmp_path, raw, many_shards, shards, contents):
    """Host and process of the first; which goes on undisturbed, and whose store then stands."""
    out = tmp_path / "out.lmdb"
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:

        def wait(step):
            if step is Step.PLANNED:
                os.write(ready[1], b"!")
                os.read(go[0], 1)

        status = 70
        try:
            build(raw, out, many_shards, worker_count=1, on_step=wait)
            status = 0
        finally:
            os._exit(status)
    try:
        assert os.read(ready[0], 1) == b"!"
        with pytest.raises(TargetBusyError) as caught:
            build(raw, out, many_shards)
        assert f"host {socket.gethostname()}, pid {child}" in str(caught.value)
        with pytest.raises(TargetBusyError):
            build(raw, out, overwrite=True)
    finally:
        os.write(go[1], b"!")
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        for descriptor in (*ready, *go):
            os.close(descriptor)
    assert contents(out) == contents(shards)
    assert list(tmp_path.iterdir()) == [out]
    with pytest.raises(TargetExistsError):
        build(raw, out, many_shards)


def test_a_lock_of_a_dead_process_holds_nobody_up(tmp_path):
    """The system lets go of it, whatever the file in its place still says."""
    workspace = Workspace.of(tmp_path / "out.lmdb")
    assert exit_status_of(lambda: TargetLock(workspace, tmp_path / "out.lmdb")) == 0
    assert "pid" in (workspace.folder / "lock").read_text()
    with TargetLock(workspace, tmp_path / "out.lmdb"):
        assert f"pid {os.getpid()}" in (workspace.folder / "lock").read_text()


def test_removing_a_workspace_spares_one_that_another_build_has_begun(tmp_path):
    """Between the removal of the lock and that of the folder, somebody else may move in."""
    workspace = Workspace.of(tmp_path / "out.lmdb")
    with TargetLock(workspace, tmp_path / "out.lmdb"):
        unlink = os.unlink
        try:

            def unlink_and_be_late(path, *arguments, **options):
                unlink(path, *arguments, **options)
                if Path(path).name == "lock":
                    (workspace.folder / "lock").write_text("the other's")

            os.unlink = unlink_and_be_late
            workspace.remove()
        finally:
            os.unlink = unlink
    assert (workspace.folder / "lock").read_text() == "the other's"


# --- Reports --------------------------------------------------------------------------------------


def test_a_report_is_read_back_as_long_as_its_shard_is_there(tmp_path):
    """By size: the digest of a terabyte is not taken at every start."""
    workspace = Workspace(tmp_path)
    for folder in ("store", "reports"):
        (tmp_path / folder).mkdir()
    assert workspace.read_report(0) is None
    shard = ShardInfo(
        file="shard-00000.lmdb", sample_count=1, bytes=8, sha256="0" * 64, identity="1" * 64
    )
    report = TaskReport(shard=shard, label_counts={3: 1}, extra_frame_counts={b"\xff.png": 2})
    workspace.write_report(0, report)
    assert workspace.read_report(0) is None
    (workspace.store / shard.file).write_bytes(bytes(8))
    assert workspace.read_report(0) == report
    (workspace.store / shard.file).write_bytes(bytes(9))
    assert workspace.read_report(0) is None
    workspace.write_report(1, TaskReport())
    assert workspace.read_report(1) == TaskReport()


# --- Killed from outside --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def slow_raw(tmp_path_factory):
    """Pictures that take 10 ms each to decode: 400 names of one large file."""
    from PIL import Image

    folder = tmp_path_factory.mktemp("slow") / "raw"
    folder.mkdir()
    Image.new("RGB", (1500, 1000), (9, 8, 7)).save(folder / "000.png")
    for number in range(1, 400):
        os.link(folder / "000.png", folder / f"{number:03d}.png")
    return folder


def wait_until(condition, what: str) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, f"waited 20 s for {what}"
        time.sleep(0.01)


def start(packer_command, *arguments) -> subprocess.Popen:
    return subprocess.Popen(
        [*packer_command, *map(os.fspath, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A shell that runs the suite in its background has it ignore Ctrl-C, children included.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


@pytest.mark.parametrize(
    ("number", "to_group", "status"),
    [
        (signal.SIGTERM, False, 143),
        (signal.SIGTERM, True, 143),
        (signal.SIGINT, True, 130),
        (signal.SIGKILL, False, -9),
    ],
    ids=["TERM", "TERM to all", "Ctrl-C", "KILL to the driver"],
)
def test_a_signal_ends_a_build_and_all_its_workers(
    tmp_path, slow_raw, packer_command, processes_with, number, to_group, status
):
    """Within two seconds, with the status that shells know, a word on what is kept, no orphans."""
    out = tmp_path / "out.lmdb"
    arguments = ("build", slow_raw, out, "--size", "8", "--fit", "stretch", "--workers", "2", "-q")
    running = start(packer_command, *arguments)
    shard = Workspace.of(out).scratch / "shard-00000.lmdb"
    wait_until(lambda: shard.exists() or running.poll() is not None, "the first shard")
    began = time.monotonic()
    (os.killpg if to_group else os.kill)(running.pid, number)
    said, errors = running.communicate(timeout=20)
    assert time.monotonic() - began < 2
    assert running.returncode == status
    assert said == ""
    if number != signal.SIGKILL:
        last = r"Stopped\. \d of \d+ shards? finished and kept: run the same command to go on\."
        assert re.fullmatch(last, errors.strip())
    wait_until(lambda: not processes_with(str(out)), "the workers to end")
    with pytest.raises(StoreIncompleteError):
        read_manifest(out)


@pytest.mark.parametrize("delay_s", [0.15, 0.45, 0.65])
def test_a_build_killed_at_any_moment_can_be_finished(
    tmp_path, raw, many_shards, shards, contents, packer_command, packer, processes_with, delay_s
):
    """The whole group is killed, with no warning; the same command then gives the same store."""
    out = tmp_path / "out.lmdb"
    settings = ("--size", "320", "--fit", "stretch", "--shard-size", "1MiB", "--workers", "2")
    running = start(packer_command, "build", raw, out, *settings)
    time.sleep(delay_s)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
    running.communicate(timeout=20)
    wait_until(lambda: not processes_with(str(out)), "the workers to end")
    if running.returncode == -signal.SIGKILL and not out.exists():
        done = packer("build", raw, out, *settings, "-q")
        assert (done.returncode, done.stderr) == (0, "")
    elif Workspace.of(out).folder.exists():
        build(raw, out, many_shards)
    assert contents(out) == contents(shards)
    assert list(tmp_path.iterdir()) == [out]


def test_what_is_no_finished_shard_is_not_published(tmp_path, raw, many_shards, shards, contents):
    """Half a copy of a killed worker, and a shard that was made before and is not of this store."""
    out = tmp_path / "out.lmdb"

    def leave(step):
        if step is Step.SHARDS_FINISHED:
            for name in ("shard-00001.lmdb.partial", "shard-00009.lmdb"):
                (Workspace.of(out).store / name).write_bytes(b"left behind")

    build(raw, out, many_shards, worker_count=1, on_step=leave)
    assert contents(out) == contents(shards)


def test_a_stopped_build_says_what_is_kept(tmp_path, raw, many_shards):
    """Finished shards of all runs, of how many."""
    out = tmp_path / "out.lmdb"
    nothing = "No shard was begun and nothing is left behind: run the same command again."
    assert Workspace.of(out).describe_kept() == nothing
    exit_status_of(
        lambda: build(
            raw, out, many_shards, worker_count=1, on_step=die_at_step(Step.SHARD_FINISHED, 2)
        )
    )
    kept = Workspace.of(out).describe_kept()
    assert kept == "2 of 4 shards finished and kept: run the same command to go on."
