"""Shards made of samples that are in stores already, and their publishing as one store.

As in a build, the work goes on in a workspace beside the target, the same call goes on where it was
interrupted, and nothing exists at the target until the store is whole.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from packer.counts import count_values
from packer.errors import BuildError, NoSpaceError
from packer.report import class_counts, content_sha256
from packer.stores.keys import KEY_FIELD, key_bytes
from packer.stores.rewrite import Rewriter
from packer.threads import map_threads
from packer.wording import Summarized, count_text, counts_text
from packer.workspace.folder import TaskReport, Workspace
from packer.workspace.lock import TargetLock
from packer.workspace.place import copy_into_place, move_into_place
from packer.workspace.publish import check_target, publish
from packer.workspace.scratch import scratch_folder
from packer.workspace.space import disk_named, missing_room
from packer.workspace.unfinished import goes_on, is_published
from readers.store.errors import CodecError, ShardError
from readers.store.layout import REJECTS_NAME, shard_name
from readers.store.manifest import Manifest, ShardInfo, read_manifest, sync_folder
from readers.store.reader import StoreReader
from readers.store.record import RecordLayout, RecordReader
from readers.store.schema import Schema
from readers.store.shard import ShardWriter
from readers.store.shard_reader import open_shard_file


@dataclass(frozen=True, kw_only=True)
class Part:
    """One shard to make.

    Attributes:
        store: Where its samples come from.
        rewriter: What is done to their records.
        indices: The samples, by position in the store, int64; None keeps a whole shard as it is.
        kept_shard: Number of that shard.
    """

    store: StoreReader
    rewriter: Rewriter
    indices: NDArray[np.int64] | None = None
    kept_shard: int = 0

    @property
    def sample_count(self) -> int:
        """Samples in it."""
        if self.indices is None:
            return self.store.manifest.shards[self.kept_shard].sample_count
        return len(self.indices)

    @property
    def byte_count(self) -> int:
        """Its size, about."""
        if self.indices is None:
            return self.store.manifest.shards[self.kept_shard].bytes
        return int(self.store.located(self.indices).lengths().sum())


@dataclass(frozen=True, kw_only=True)
class RepackReport(Summarized):
    """A store that was made of others.

    Attributes:
        path: The store.
        stores: What it was made of.
        sample_count: Samples in it.
        bytes: Size of all shards.
        shard_count: How many shards there are.
        kept_shard_count: Those of them that are files of the stores, as they were.
        classes: Class name -> samples, or objects where a sample has many.
        splits: Split name -> samples.
        seconds: Wall time.
        content_sha256: Digest over the digests of all shards, in hex.
        notes: What was decided or left out, a line each.
    """

    path: str
    stores: list[str]
    sample_count: int
    bytes: int
    shard_count: int
    kept_shard_count: int
    classes: dict[str, int]
    splits: dict[str, int]
    seconds: float
    content_sha256: str
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """The report by name, as `--json` prints it."""
        return asdict(self)

    def summary(self) -> str:
        """The same for a person."""
        kept = f", {self.kept_shard_count:,} of them as they were" if self.kept_shard_count else ""
        lines = [
            *self.notes,
            f"{self.path}: {count_text(self.sample_count, 'sample')}, {self.bytes:,} bytes in "
            f"{count_text(self.shard_count, 'shard')}{kept}",
        ]
        for what, counts in (("splits", self.splits), ("classes", self.classes)):
            if counts:
                lines.append(f"{what}: {counts_text(counts)}")
        lines.append(f"{self.seconds:.1f} s, content {self.content_sha256}")
        return "\n".join(lines)


def repack(
    out: Path,
    parts: Sequence[Part],
    schema: Schema,
    facts: dict[str, Any],
    account: Callable[[list[TaskReport]], Manifest],
    rejects: bytes,
    *,
    overwrite: bool = False,
    links: bool = False,
    scratch: str | Path | None = None,
    thread_count: int = 1,
    on_progress: Callable[[int], None] = lambda count: None,
) -> RepackReport:
    """Make a store of samples of other stores, and publish it.

    Every record that is copied is held against its checksum, so damage is not handed on. Files of
    shards that are kept whole are not read where their blocks can be shared; they keep the digests
    that `packer verify` holds them against.

    Args:
        out: Where the store is to be.
        parts: The shards.
        schema: The store's schema.
        facts: What must be the same for an interrupted call to go on, by name.
        account: Makes the manifest, from a report of each part.
        rejects: The reject list.
        overwrite: Replace a store at `out`, and discard another unfinished build.
        links: Keep shards as further names of the same files, rather than as copies.
        scratch: Folder on a local disk to write shards in; see `packer.workspace.scratch`.
        thread_count: Shards at once.
        on_progress: Told how many more samples are done.

    Raises:
        TargetExistsError: Something is at `out`.
        TargetBusyError: Another build is writing there.
        BuildMismatchError: Another unfinished build is in the way.
        NoSpaceError: A disk is full.
        DiskError: A disk or a file server fails.
        BuildError: A shard cannot be linked.
        StoreError: A sample is damaged.
    """
    started = time.monotonic()
    workspace = Workspace.of(out)
    if not workspace.folder.exists():
        check_target(out, overwrite=overwrite)
    size = sum(part.byte_count for part in parts)
    with disk_named(out, workspace.has_finished, size), TargetLock(workspace, out):
        if is_published(workspace, out, facts):
            workspace.remove()
        else:
            with workspace.removed_unless_begun():
                _begin(workspace, out, parts, facts, overwrite=overwrite, links=links)
            with scratch_folder(workspace, scratch) as folder:
                work = _Work(workspace, folder, schema, links, on_progress)
                reports = list(map_threads(work.make, enumerate(parts), thread_count, work.stop))
            publish(workspace, out, account(reports), {REJECTS_NAME: rejects})
    return _report(out, parts, started)


def _begin(
    workspace: Workspace,
    out: Path,
    parts: Sequence[Part],
    facts: dict[str, Any],
    *,
    overwrite: bool,
    links: bool,
) -> None:
    """Begin, or go on with what an interrupted call has left."""
    check_target(out, overwrite=overwrite)
    if not goes_on(workspace, facts, out, overwrite=overwrite):
        _check_space(out, parts, links=links)
        workspace.begin([], facts)


def _check_space(out: Path, parts: Sequence[Part], *, links: bool) -> None:
    # Shared blocks take no room, but whether they can be shared shows only when it is tried.
    need = sum(part.byte_count for part in parts if not (links and part.indices is None))
    reason = missing_room(
        out,
        need,
        folder=out.parent,
        what=f"the store will take about {need:,} bytes",
        remedy=lambda free: "Free some, write to another disk, or keep shards as links: --link.",
    )
    if reason is not None:
        raise NoSpaceError(reason)


def _report(out: Path, parts: Sequence[Part], started: float) -> RepackReport:
    manifest = read_manifest(out)
    return RepackReport(
        path=str(out),
        stores=list(dict.fromkeys(str(part.store.path) for part in parts)),
        sample_count=manifest.sample_count,
        bytes=manifest.shard_bytes,
        shard_count=len(manifest.shards),
        kept_shard_count=sum(part.indices is None for part in parts),
        classes=class_counts(manifest),
        splits=manifest.splits,
        seconds=time.monotonic() - started,
        content_sha256=content_sha256(manifest),
        notes=list(manifest.source.notes),
    )


class _Work:
    """Makes shards. Several threads may use it, each for a shard of its own."""

    def __init__(
        self,
        workspace: Workspace,
        scratch: Path,
        schema: Schema,
        links: bool,
        on_progress: Callable[[int], None],
    ) -> None:
        self._workspace = workspace
        self._scratch = scratch
        self._layout = RecordLayout.of(schema)
        self._links = links
        self._on_progress = on_progress
        self._is_stopped = threading.Event()

    def stop(self) -> None:
        """Have the shards that are being made given up."""
        self._is_stopped.set()

    def _check_stopped(self) -> None:
        if self._is_stopped.is_set():
            raise BuildError("stopped")  # Nobody asks for the result any more.

    def make(self, job: tuple[int, Part]) -> TaskReport:
        """Make a shard, unless it is there already."""
        number, part = job
        report = self._workspace.read_report(number)
        if report is None:
            if part.indices is None:
                report = TaskReport(shard=self._keep(part, number))
            else:
                report = self._write(part, part.indices, number)
            self._workspace.write_report(number, report)
        self._on_progress(part.sample_count)
        return report

    def _keep(self, part: Part, number: int) -> ShardInfo:
        """Put a shard of a store in place under a new name."""
        info = part.store.manifest.shards[part.kept_shard]
        final = self._workspace.store / shard_name(number)
        source = part.store.folder / info.file
        descriptor = open_shard_file(source, info)
        try:
            if self._links:
                _link(source, final)
            else:
                copy_into_place(descriptor, final, self._check_stopped)
        finally:
            os.close(descriptor)
        return msgspec.structs.replace(info, file=final.name)

    def _write(self, part: Part, indices: NDArray[np.int64], number: int) -> TaskReport:
        """Write a shard of chosen samples."""
        path = self._scratch / shard_name(number)
        path.unlink(missing_ok=True)
        report = TaskReport()
        tally = _Tally(self._layout, report)
        keys = RecordReader(self._layout, [KEY_FIELD])
        writer = ShardWriter(path, self._layout)
        try:
            for index in indices.tolist():
                self._check_stopped()
                shard, position = part.store.locate(index)
                shard.check_record(position)
                try:
                    made = part.rewriter.rewrite(shard.record(position))
                    key = key_bytes(keys.unpack(memoryview(made.record))[KEY_FIELD])
                    tally.add(memoryview(made.record))
                except CodecError as error:
                    raise ShardError.at(shard.path, str(error), position) from error
                writer.add_record(key, made.record, made.header)
            report.shard = writer.seal()
        except BaseException:
            writer.abort()
            raise
        move_into_place(path, self._workspace.store / path.name, self._check_stopped)
        return report


class _Tally:
    """Counts classes, splits and objects of the samples of one shard."""

    def __init__(self, layout: RecordLayout, report: TaskReport) -> None:
        counted = ("label", "labels", "split")
        objects = ("boxes", "masks", "keypoints", "corners")
        schema = layout.schema
        self._names = [name for name in counted if name in schema]
        self._objects = next((name for name in objects if name in schema), None)
        wanted = [*self._names, *([self._objects] if self._objects else [])]
        self._reader = RecordReader(layout, wanted)
        self._report = report

    def add(self, record: memoryview) -> None:
        """Count one more sample."""
        if not self._names and self._objects is None:
            return
        values = self._reader.unpack(record)
        for name in self._names:
            counts = self._report.split_counts if name == "split" else self._report.label_counts
            count_values(counts, values[name])
        if self._objects is not None:
            self._report.object_count += len(values[self._objects])


def _link(source: Path, final: Path) -> None:
    final.unlink(missing_ok=True)
    try:
        os.link(source, final, follow_symlinks=False)
    except OSError as error:
        raise BuildError(
            f"{source}: cannot be linked to {final}: {error.strerror}. A link needs both on one "
            "file system that knows links; leave --link out to copy."
        ) from error
    sync_folder(final.parent)
