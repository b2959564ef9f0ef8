"""What every engine of the build must hold, wherever it has shards made.

An engine's test class inherits `EngineConformance` and makes the engine.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from packer.engines.engine import Engine
from packer.engines.task import build_shard
from packer.errors import DamagedTaskError, RejectedItemError, WorkerError
from packer.plan.shards import make_plan
from packer.sources import SourceOptions, scan_source
from packer.workspace.folder import Workspace
from packer.workspace.tasks import TaskPlan
from tests.packer.conftest import MANY_SHARDS, processes_with

SHARD_COUNT, ITEM_COUNT = 4, 12


@dataclass(kw_only=True)
class Told:
    """What an engine said while it worked.

    Attributes:
        counts: Items that were done, call by call.
        finished: Shards, in the order in which they were finished.
        notices: Lines about the run.
    """

    counts: list[int] = field(default_factory=list)
    finished: list[int] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)

    def progress(self, done: int, number: int | None) -> None:
        """The engine's `on_progress`."""
        self.counts.append(done)
        if number is not None:
            self.finished.append(number)


@dataclass(frozen=True, kw_only=True)
class Job:
    """A planned build, as far as its tasks, which are not done yet."""

    raw: Path
    workspace: Workspace

    def run(self, engine: Engine, numbers: range = range(SHARD_COUNT)) -> Told:
        """Have shards made."""
        told = Told()
        engine.map(numbers, self.workspace.scratch, told.progress, told.notices.append)
        return told

    def shards(self) -> dict[str, bytes]:
        """The finished shards, by name."""
        return {path.name: path.read_bytes() for path in self.workspace.store.iterdir()}

    def are_processes_left(self) -> bool:
        """Whether a process of the build is still there, after a moment in which it may end."""
        deadline = time.monotonic() + 10
        while processes_with(os.fspath(self.workspace.folder)):
            if time.monotonic() > deadline:
                return True
            time.sleep(0.02)
        return False


def plan_job(raw: Path, folder: Path, *, stops_at_reject: bool = False) -> Job:
    """Plan a build of twelve pictures into four shards, in a workspace at `folder`."""
    plan = make_plan(scan_source(raw, SourceOptions()), MANY_SHARDS)
    workspace = Workspace(folder)
    workspace.folder.mkdir(exist_ok=True)
    items = plan.scan.items
    workspace.begin([items[first:end] for first, end in plan.cuts], plan.facts())
    workspace.write_task_plan(
        TaskPlan(
            root=os.fsencode(raw),
            schema=plan.schema.as_builtins(),
            recipe=plan.recipe.as_dict(),
            stops_at_reject=stops_at_reject,
        )
    )
    assert (len(plan.cuts), len(items)) == (SHARD_COUNT, ITEM_COUNT)
    return Job(raw=raw, workspace=workspace)


class EngineConformance:
    """Laws of an engine of the build."""

    def make(self, workspace: Workspace, worker_count: int) -> Engine:
        """The engine, for as many workers as that, whatever they are."""
        raise NotImplementedError

    @pytest.fixture
    def job(self, raw: Path, tmp_path: Path) -> Job:
        tree = Path(shutil.copytree(raw, tmp_path / "raw"))
        return plan_job(tree, tmp_path / "building")

    @pytest.fixture
    def expected(self, raw: Path, tmp_path: Path) -> dict[str, bytes]:
        """The shards, made here one after the other."""
        job = plan_job(raw, tmp_path / "here")
        for number in range(SHARD_COUNT):
            build_shard(job.workspace, number, job.workspace.scratch)
        return job.shards()

    @pytest.mark.parametrize("worker_count", [1, 2, 9])
    def test_shards_are_the_same_for_any_number_of_workers(self, job, expected, worker_count):
        """Byte for byte, each finished once, and the progress adds up to the items."""
        with self.make(job.workspace, worker_count) as engine:
            told = job.run(engine)
        assert job.shards() == expected
        assert sorted(told.finished) == list(range(SHARD_COUNT))
        assert sum(told.counts) == ITEM_COUNT
        assert told.notices == []
        reports = [job.workspace.read_report(number) for number in range(SHARD_COUNT)]
        assert all(report is not None and not report.rejects for report in reports)
        assert list(job.workspace.scratch.iterdir()) == []
        assert not job.are_processes_left()

    def test_those_shards_are_made_that_were_asked_for(self, job, expected):
        """A build that goes on has some already; with none to make, nothing is done or told."""
        with self.make(job.workspace, 2) as engine:
            told = job.run(engine, range(1, 3))
        assert sorted(told.finished) == [1, 2]
        assert sum(told.counts) == 6
        assert job.shards() == {
            name: data for name, data in expected.items() if name[-6] in ("1", "2")
        }
        with self.make(job.workspace, 2) as engine:
            told = job.run(engine, range(0))
        assert told == Told()
        assert not job.are_processes_left()

    def test_it_may_start_before_there_is_a_workspace(self, raw, tmp_path, expected):
        """As it does while the raw data is looked through; then it makes the same shards."""
        folder = tmp_path / "building"
        with self.make(Workspace(folder), 2) as engine:
            engine.start_ahead()
            job = plan_job(raw, folder)
            told = job.run(engine)
        assert job.shards() == expected
        assert sum(told.counts) == ITEM_COUNT
        assert not job.are_processes_left()

    @pytest.mark.parametrize("is_ahead", [True, False])
    def test_without_work_it_ends_all_the_same(self, job, is_ahead):
        """Its context may be left by an error before any shard; stopping it twice is once."""
        with contextlib.suppress(LookupError), self.make(job.workspace, 2) as engine:
            if is_ahead:
                engine.start_ahead()
            raise LookupError
        assert not job.are_processes_left()
        engine.stop()
        engine.stop()

    def test_a_reject_is_reported_and_ends_nothing(self, job):
        """The other items are stored, and all are counted as done."""
        (job.raw / "bee/0.png").write_bytes(b"no picture")
        with self.make(job.workspace, 2) as engine:
            told = job.run(engine)
        assert sum(told.counts) == ITEM_COUNT
        reports = [job.workspace.read_report(number) for number in range(SHARD_COUNT)]
        assert [reject.path for report in reports for reject in report.rejects] == ["bee/0.png"]
        assert sum(report.shard.sample_count for report in reports) == ITEM_COUNT - 1

    def test_the_first_reject_ends_a_build_that_is_to_stop_at_it(self, raw, tmp_path):
        """With its path; nobody goes on working."""
        tree = Path(shutil.copytree(raw, tmp_path / "raw"))
        job = plan_job(tree, tmp_path / "building", stops_at_reject=True)
        (tree / "bee/0.png").write_bytes(b"no picture")
        with (
            self.make(job.workspace, 2) as engine,
            pytest.raises(RejectedItemError, match=r"^bee/0\.png: "),
        ):
            job.run(engine)
        assert not job.are_processes_left()
        assert job.workspace.read_report(1) is None

    def test_a_bug_in_a_task_is_handed_on_whole(self, job):
        """With the number of its shard and where it happened."""
        content = b"\xc1 no msgpack"
        digest = hashlib.sha256(content).digest()[:16]
        (job.workspace.folder / "tasks" / "00002").write_bytes(digest + content)
        with (
            self.make(job.workspace, 1) as engine,
            pytest.raises(WorkerError, match=r"(?s)shard 2: Traceback .*in build_shard"),
        ):
            job.run(engine)
        assert not job.are_processes_left()

    def test_a_damaged_task_is_named(self, job):
        """A power cut may have emptied its file: whoever planned can write it again."""
        path = job.workspace.folder / "tasks" / "00002"
        path.write_bytes(path.read_bytes()[:100])
        with (
            self.make(job.workspace, 1) as engine,
            pytest.raises(DamagedTaskError, match=r"tasks/00002: 100 bytes .* Plan again"),
        ):
            job.run(engine)
        assert not job.are_processes_left()

    def test_an_error_of_a_disk_is_one_of_the_system(self, job):
        """With its number, so that the build can say what to do about it."""
        (job.workspace.folder / "tasks" / "00002").unlink()
        with self.make(job.workspace, 1) as engine, pytest.raises(OSError, match="00002") as caught:
            job.run(engine)
        assert isinstance(caught.value, FileNotFoundError)
        assert not job.are_processes_left()

    def test_a_worker_that_dies_costs_no_item(self, job, expected):
        """Its shard is made again, it is told in a line, and the progress still adds up."""
        told = Told()

        def kill_at_first(done: int, number: int | None) -> None:
            told.progress(done, number)
            if len(told.finished) == 1 and number is not None:
                for pid in processes_with(os.fspath(job.workspace.folder)):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)

        with self.make(job.workspace, 1) as engine:
            engine.map(
                range(SHARD_COUNT), job.workspace.scratch, kill_at_first, told.notices.append
            )
        assert job.shards() == expected
        assert sorted(told.finished) == list(range(SHARD_COUNT))
        assert sum(told.counts) == ITEM_COUNT
        assert len(told.notices) == 1
        assert "died" in told.notices[0]

    @pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
    def test_an_interrupt_in_the_middle_leaves_no_process(self, job, error):
        """What is finished by then is whole, and nothing else is there."""

        def interrupt(done: int, number: int | None) -> None:
            if number is not None:
                raise error

        with self.make(job.workspace, 2) as engine, pytest.raises(error):
            engine.map(range(SHARD_COUNT), job.workspace.scratch, interrupt, lambda text: None)
        assert not job.are_processes_left()
        with self.make(job.workspace, 1) as engine:
            told = job.run(engine)
        assert sum(told.counts) == ITEM_COUNT

    def test_stopping_ends_a_worker_that_waits_for_ever(self, job):
        """One that reads from a server that is gone, as a pipe stands for here."""
        (job.raw / "ant/3.png").unlink()
        os.mkfifo(job.raw / "ant/3.png")

        def stop(done: int, number: int | None) -> None:
            if number == 0:
                raise LookupError

        with pytest.raises(LookupError), self.make(job.workspace, 2) as engine:
            engine.map(range(2), job.workspace.scratch, stop, lambda text: None)
        assert not job.are_processes_left()
