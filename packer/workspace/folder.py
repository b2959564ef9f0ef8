"""The folder of an unfinished build, beside its target.

    out.lmdb.building/
      lock              held by the build that is at work; says which
      plan.json         facts that must stay the same; its presence says that a build has begun
      tasks/00000       raw items of each shard, msgpack
      reports/00000     what became of a finished shard; its presence says that the shard is whole
      scratch/          shards being written, where the target's file system may carry them
      store/            finished shards; with the manifest in it, it is renamed to out.lmdb

Every file appears whole, under its final name, or not at all.
"""

from __future__ import annotations

import contextlib
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
from readers.store.layout import BUILDING_SUFFIX, MANIFEST_NAME
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


class TaskPlan(msgspec.Struct, kw_only=True):
    """What a shard task needs to know beside its items.

    Attributes:
        root: Folder that the items' paths are relative to, as bytes.
        schema: The store's schema.
        recipe: The settings, by name.
        mask_colors: Colour of each value of the masks, where their files hold colours.
        names: Names of the shard files, in order.
        stops_at_reject: Whether the first reject ends the build.
    """

    root: bytes
    schema: dict[str, Any]
    recipe: dict[str, Any]
    mask_colors: tuple[tuple[int, int, int], ...] = ()
    names: tuple[str, ...]
    stops_at_reject: bool


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

    def begin(self, parts: Iterable[Sequence[RawItem]], facts: dict[str, Any]) -> None:
        """Begin a build: everything of an earlier one goes."""
        # First what says that one had begun: killed on the way, nothing of it is taken up again.
        for path in (self.folder / "plan.json", self.folder / MANIFEST_NAME, self.reject_list):
            path.unlink(missing_ok=True)
        sync_folder(self.folder)
        for name in ("store", "scratch", "tasks", "reports"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
            (self.folder / name).mkdir()
        self.write_tasks(parts)
        write_synced(self.folder / "plan.json", json.dumps(facts).encode())

    def write_tasks(self, parts: Iterable[Sequence[RawItem]]) -> None:
        """Write the raw items of every shard."""
        for number, items in enumerate(parts):
            (self.folder / "tasks" / f"{number:05d}").write_bytes(msgspec.msgpack.encode(items))

    def write_task_plan(self, plan: TaskPlan) -> None:
        """Say what the tasks need to know beside their items."""
        write_synced(self.folder / "task-plan", msgspec.msgpack.encode(plan))

    def read_task_plan(self) -> TaskPlan:
        """What the tasks need to know beside their items."""
        return msgspec.msgpack.decode((self.folder / "task-plan").read_bytes(), type=TaskPlan)

    def read_items(self, number: int) -> list[RawItem]:
        """The raw items of one shard."""
        data = (self.folder / "tasks" / f"{number:05d}").read_bytes()
        return msgspec.msgpack.decode(data, type=list[RawItem])

    def write_report(self, number: int, report: TaskReport) -> None:
        """Say that a shard is finished and in place."""
        path = self.folder / "reports" / f"{number:05d}"
        write_synced(path, msgspec.msgpack.encode(report))

    def read_report(self, number: int) -> TaskReport | None:
        """The report of a shard that is finished and still there; None when it is to be made."""
        try:
            data = (self.folder / "reports" / f"{number:05d}").read_bytes()
            report = msgspec.msgpack.decode(data, type=TaskReport)
            if report.shard is not None:
                found = (self.store / report.shard.file).stat().st_size
                if found != report.shard.bytes:
                    return None
        except (FileNotFoundError, msgspec.DecodeError):
            return None
        return report

    def counts(self) -> tuple[int, int]:
        """(shards that are finished, shards in all), by names alone: neither is opened."""
        return _number_count(self.folder / "reports"), _number_count(self.folder / "tasks")

    def describe_kept(self) -> str:
        """What a build that is stopped now leaves, and how to go on."""
        try:
            if self.read_facts() is None:
                return "No shard was begun and nothing is left behind: run the same command again."
            finished, planned = self.counts()
        except OSError:  # It may be stopped because its disk is gone.
            return "Finished shards are kept: run the same command to go on."
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
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        for name in last:
            (self.folder / name).unlink(missing_ok=True)
        # Another build may have taken hold of the folder since the lock is gone.
        with contextlib.suppress(OSError):
            self.folder.rmdir()


def _number_count(folder: Path) -> int:
    """How many files of a folder are named by a number: whole ones, none half written."""
    try:
        return sum(name.isdigit() for name in os.listdir(folder))
    except FileNotFoundError:
        return 0
