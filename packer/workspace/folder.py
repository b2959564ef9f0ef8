"""The folder of an unfinished build, beside its target.

    out.lmdb.building/
      lock              held by the build that is at work; says which
      plan.json         facts that must stay the same; its presence says that a build has begun
      task-plan         what all shard tasks have in common; see packer.workspace.tasks
      build-plan        what it takes to publish a build that other nodes make
      tasks/00000       name and raw items of each shard
      reports/00000     what became of a finished shard; its presence says that the shard is whole
      claims/ nodes/    who works on what, where several nodes do; see packer.workspace.nodes
      placed/           shards that nodes have finished, each attempt under a name of its own
      scratch/          shards being written, where the target's file system may carry them
      store/            finished shards; with the manifest in it, it is renamed to out.lmdb

Every file appears whole, under its final name, or not at all.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from packer.items.raw_item import RawItem, Reject
from packer.pictures.statistics import Tally
from packer.wording import count_text
from packer.workspace.place import fresh_name, write_apart
from packer.workspace.tasks import Task, TaskPlan, read_task, task_bytes
from readers.store.layout import BUILDING_SUFFIX, MANIFEST_NAME, shard_name
from readers.store.manifest import ShardInfo, sync_folder, write_synced


class TaskReport(msgspec.Struct, kw_only=True):
    """What became of the items of one shard.

    Attributes:
        shard: The finished shard, or None when every item was rejected.
        rejects: Items that were not packed.
        annotation_rejects: Annotations of packed items that were not packed.
        object_count: Annotated objects that were stored.
        lost_object_count: Those of items that were not packed.
        overhang_count: Stored boxes that stick out of their picture.
        label_counts: Stored samples of each label, or objects where a sample has many.
        split_counts: Stored samples of each split.
        extra_frame_counts: Pictures in a file behind its first, by path, where there are any.
        tally: What the stored pixels and sizes add up to.
        contents: Digest of the files of each item, in order; see `packer.building.update`.
        may_pass: Whether an item was rejected for what may be past when the build is run again: a
            file server that failed, memory that ran out.
    """

    shard: ShardInfo | None = None
    rejects: list[Reject] = []
    annotation_rejects: list[Reject] = []
    object_count: int = 0
    lost_object_count: int = 0
    overhang_count: int = 0
    label_counts: dict[int, int] = {}
    split_counts: dict[int, int] = {}
    extra_frame_counts: dict[bytes, int] = {}
    tally: Tally = msgspec.field(default_factory=Tally)
    contents: bytes = b""
    may_pass: bool = False


class _Finished(msgspec.Struct, array_like=True):
    """What a report's file holds.

    Attributes:
        plan_id: Of the build that the shard is of.
        attempt: File name in `placed/` of the shard that the report is about; empty when it has its
            own name in `store/`.
        report: The report.
    """

    plan_id: str
    attempt: str
    report: TaskReport


@dataclass(frozen=True)
class Workspace:
    """Paths and files of an unfinished build.

    Attributes:
        folder: The folder that holds everything.
    """

    folder: Path

    @classmethod
    def of(cls, target: Path) -> Workspace:
        """The workspace of the build of the store at `target`."""
        return cls(target.with_name(target.name + BUILDING_SUFFIX))

    @property
    def store(self) -> Path:
        """Where finished shards are collected."""
        return self.folder / "store"

    @property
    def placed(self) -> Path:
        """Where nodes put the shards that they have finished, each attempt under its own name."""
        return self.folder / "placed"

    @property
    def scratch(self) -> Path:
        """Where shards are written, unless another folder is given for that."""
        return self.folder / "scratch"

    @property
    def reject_list(self) -> Path:
        """Where all rejects are listed when there are too many for a store."""
        return self.folder / "rejects.jsonl"

    def read_facts(self) -> dict[str, Any] | None:
        """The facts that the unfinished build was planned with, or None when it never got there."""
        try:
            facts = json.loads((self.folder / "plan.json").read_bytes())
        except (FileNotFoundError, ValueError):
            return None
        return facts if isinstance(facts, dict) else None

    def is_begun(self) -> bool:
        """Whether there is an unfinished build: one look."""
        return (self.folder / "plan.json").exists()

    def begin(
        self,
        parts: Iterable[Sequence[RawItem]],
        facts: dict[str, Any],
        names: Sequence[str] | None = None,
    ) -> None:
        """Begin a build: everything of an earlier one goes.

        Args:
            parts: The raw items of each shard.
            facts: What must stay the same.
            names: File name of each shard. None numbers them.
        """
        # First what says that one had begun: killed on the way, nothing of it is taken up again.
        for name in ("plan.json", "task-plan", "build-plan", MANIFEST_NAME, self.reject_list.name):
            (self.folder / name).unlink(missing_ok=True)
        sync_folder(self.folder)
        for name in ("store", "scratch", "tasks", "reports"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
            (self.folder / name).mkdir()
        for name in ("claims", "nodes", "placed"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        self.write_tasks(parts, names)
        write_synced(self.folder / "plan.json", json.dumps(facts).encode())

    def open_to_nodes(self) -> None:
        """Have nodes begin: which of them worked on what is forgotten, what is finished stays."""
        for name in ("claims", "nodes"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
            (self.folder / name).mkdir(exist_ok=True)
        (self.folder / "placed").mkdir(exist_ok=True)

    def stop(self, reason: str) -> None:
        """Have nodes take no more shards, since the first reject is to end the build."""
        with contextlib.suppress(FileNotFoundError):
            write_apart(self.folder / "nodes" / ".stopped", reason.encode())

    def stop_reason(self) -> str | None:
        """Why nodes are to take no more shards; None when they may."""
        try:
            return (self.folder / "nodes" / ".stopped").read_text()
        except FileNotFoundError:
            return None

    def write_tasks(
        self, parts: Iterable[Sequence[RawItem]], names: Sequence[str] | None = None
    ) -> None:
        """Write the file of every shard: its name, and its raw items."""
        for number, items in enumerate(parts):
            name = shard_name(number) if names is None else names[number]
            _write_changed(self._task_path(number), task_bytes(name, list(items)))

    def _task_path(self, number: int) -> Path:
        return self.folder / "tasks" / f"{number:05d}"

    def read_task(self, number: int) -> Task:
        """What is to be made of one shard. See `packer.workspace.tasks.read_task` for errors."""
        return read_task(self._task_path(number))

    def write_task_plan(self, plan: TaskPlan) -> None:
        """Say what the tasks need to know beside their items."""
        write_synced(self.folder / "task-plan", msgspec.msgpack.encode(plan))

    def read_task_plan(self) -> TaskPlan:
        """What the tasks need to know beside their items."""
        return msgspec.msgpack.decode((self.folder / "task-plan").read_bytes(), type=TaskPlan)

    def is_shared(self) -> bool:
        """Whether several nodes may be making shards of the unfinished build."""
        try:
            return self.read_task_plan().is_shared
        except (FileNotFoundError, msgspec.DecodeError):
            return False

    def read_items(self, number: int) -> list[RawItem]:
        """The raw items of one shard."""
        return self.read_task(number).items

    def _report_path(self, number: int) -> Path:
        return self.folder / "reports" / f"{number:05d}"

    def write_report(
        self, number: int, report: TaskReport, *, plan_id: str = "", attempt: str = ""
    ) -> None:
        """Say that a shard is finished and in place.

        Args:
            number: The shard.
            report: What became of it.
            plan_id: Of the build; see `TaskPlan`.
            attempt: Name in `placed/` of the shard's file, where it has one of its own.
        """
        data = msgspec.msgpack.encode(_Finished(plan_id, attempt, report))
        write_apart(self._report_path(number), data)

    def has_report(self, number: int) -> bool:
        """Whether a shard seems to be finished: one look, on which nothing may depend."""
        return self._report_path(number).exists()

    def look_anew(self) -> None:
        """Have a client of a file server see what other nodes have finished by now.

        It may take for true what was so a minute ago. A change of its own in a folder shows it that
        there were others.
        """
        for folder in (self.folder / "reports", self.placed, self.store):
            path = folder / f".{fresh_name('look')}"
            with contextlib.suppress(OSError):
                path.touch()
                path.unlink()

    def reported(self) -> set[int]:
        """The shards that seem to be finished: by names alone."""
        return _numbers(self.folder / "reports")

    def read_report(self, number: int, plan_id: str = "") -> TaskReport | None:
        """The report of a shard that is finished and still there; None when it is to be made.

        Args:
            number: The shard.
            plan_id: Of the build; what is of another is not taken.
        """
        found = self._read_finished(number, plan_id)
        return found.report if found is not None else None

    def _read_finished(self, number: int, plan_id: str) -> _Finished | None:
        try:
            data = self._report_path(number).read_bytes()
            found = msgspec.msgpack.decode(data, type=_Finished)
        except (FileNotFoundError, msgspec.DecodeError):
            return None
        if found.plan_id != plan_id:
            return None
        shard = found.report.shard
        if shard is None:
            return found
        # A call that died while it published may have given the attempt its last name already.
        places = [self.store / shard.file]
        if found.attempt:
            places.insert(0, self.placed / found.attempt)
        for place in places:
            with contextlib.suppress(FileNotFoundError):
                return found if place.stat().st_size == shard.bytes else None
        return None

    def settle(self, number: int, plan_id: str = "") -> TaskReport | None:
        """Give a finished shard its name in `store/`. Only whoever holds the target's lock may.

        Returns:
            Its report; None when it is to be made.
        """
        found = self._read_finished(number, plan_id)
        if found is None:
            return None
        if found.attempt and found.report.shard is not None:
            with contextlib.suppress(FileNotFoundError):
                os.replace(self.placed / found.attempt, self.store / found.report.shard.file)
        return found.report

    def drop_report(self, number: int) -> None:
        """Have a shard made again."""
        self._report_path(number).unlink(missing_ok=True)

    def counts(self) -> tuple[int, int]:
        """(shards that are finished, shards in all), by names alone: neither is opened."""
        return len(_numbers(self.folder / "reports")), len(_numbers(self.folder / "tasks"))

    def has_finished(self) -> bool:
        """Whether a shard is finished, which the same command again need not make.

        True where the folder's disk fails, so that it cannot be seen.
        """
        for folder in (self.store, self.placed):
            try:
                if os.listdir(folder):
                    return True
            except (FileNotFoundError, NotADirectoryError, PermissionError):
                continue
            except OSError:
                return True
        return False

    def describe_kept(self) -> str:
        """What a build that is stopped now leaves, and how to go on."""
        try:
            if self.read_facts() is None:
                return "No shard was begun and nothing is left behind: run the same command again."
            finished, planned = self.counts()
        except OSError:  # It may be stopped because its disk is gone.
            return "Shards that were finished are kept: run the same command to go on."
        return (
            f"{finished:,} of {count_text(planned, 'shard')} finished and kept: run the same "
            "command to go on."
        )

    def keep_only(self, names: Collection[str]) -> None:
        """Remove what lies among the finished shards and is none of these files.

        A worker that was killed leaves a copy half made; and a shard that was made again because
        its rejects might pass may hold no sample now.
        """
        for entry in os.scandir(self.store):
            if entry.name not in names:
                os.unlink(entry.path)

    def forget(self) -> None:
        """Have the next build begin anew, whatever its settings; the reject list stays."""
        (self.folder / "plan.json").unlink(missing_ok=True)

    @contextlib.contextmanager
    def removed_unless_begun(self) -> Iterator[None]:
        """Remove everything when the context fails before a build has begun here.

        A signal as well: what was not begun leaves nothing behind.
        """
        try:
            yield
        except BaseException:
            self.remove_unless_begun()
            raise

    def remove_unless_begun(self) -> None:
        """Remove everything, unless there is an unfinished build."""
        if self.read_facts() is None:
            self.remove()

    def remove(self) -> None:
        """Remove everything. Killed on the way, what is left still says whether it was published.

        The lock goes last: until then nobody else may begin here.
        """
        last = ("plan.json", MANIFEST_NAME, "lock")
        for entry in self.folder.iterdir():
            if entry.name not in last:
                _remove_all(entry) if entry.is_dir() else entry.unlink(missing_ok=True)
        for name in last:
            (self.folder / name).unlink(missing_ok=True)
        # Another build may have taken hold of the folder since the lock is gone.
        with contextlib.suppress(OSError):
            self.folder.rmdir()


def _numbers(folder: Path) -> set[int]:
    """The files of a folder that are named by a number: whole ones, none half written."""
    try:
        return {int(name) for name in os.listdir(folder) if name.isdigit()}
    except FileNotFoundError:
        return set()


def _write_changed(path: Path, data: bytes) -> None:
    """Write a file, unless it is the same already; a node that reads it meanwhile has all of it."""
    try:
        if path.read_bytes() == data:
            return
    except FileNotFoundError:
        path.write_bytes(data)
        return
    aside = path.with_suffix(".new")
    aside.write_bytes(data)
    os.replace(aside, path)


_REMOVE_TRIES = 5


def _remove_all(folder: Path) -> None:
    """Remove a folder in which a node that is late may still put something."""
    for left in reversed(range(_REMOVE_TRIES)):
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            if not folder.exists():
                return
        except OSError as error:
            if not left or error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        else:
            return
