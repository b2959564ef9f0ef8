"""Exports a store: begins, goes on where a call was interrupted, and gives the folder its name.

As in a build, the work goes on in a workspace beside the target, `out.building`, and nothing exists
at the target until the export is whole.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from packer.errors import (
    NO_SPACE_ERRNOS,
    BuildMismatchError,
    DiskError,
    NoSpaceError,
    TargetExistsError,
)
from packer.stores.export.files import ExportFiles
from packer.stores.export.formats import make_writer
from packer.stores.export.job import Job
from packer.stores.export.losses import loss_lines, lost_fields
from packer.stores.export.parts import PartReport, cut_parts
from packer.stores.export.report import ExportPlan, ExportReport
from packer.stores.export.samples import KEYS_PIECE
from packer.stores.export.work import ExportWork, PartReports
from packer.stores.export.writer import Writer
from packer.stores.merge import check_apart, manifest_sha256
from packer.stores.selection import check_any_left, chosen_indices
from packer.threads import map_threads
from packer.wording import names_text
from packer.workspace.folder import Workspace
from packer.workspace.lock import TargetLock
from packer.workspace.space import missing_room
from packer.workspace.unfinished import facts_that_differ
from readers.machine import core_count
from readers.store.manifest import sync_folder, write_synced
from readers.store.reader import open_store

SHARD_BYTES_MAX = 500 * 2**20
"""Of an archive or table: what Hugging Face writes, and about what WebDataset advises."""

ABOUT_NAME, KEYS_NAME = ".packer-export.json", ".packer-keys.jsonl"
"""Files in a finished export: what it was made of; and the keys of pictures whose paths differ from
them. They lie in no folder of their own, which ImageFolder would take for a class."""


def export(
    store: str | Path,
    out: str | Path,
    *,
    as_: str,
    splits: Iterable[str] = (),
    keys: Iterable[str] | None = None,
    limit: int | None = None,
    shard_bytes_max: int = SHARD_BYTES_MAX,
    workers: int | None = None,
    on_plan: Callable[[ExportPlan], None] = lambda plan: None,
    on_progress: Callable[[int], None] = lambda count: None,
) -> ExportReport:
    """Write the samples of a store as files that other tools read.

    Pictures that are stored as the bytes of image files are written as these bytes; pixels become
    PNG. What the layout cannot carry is said before anything is written, and counted. A call that
    was interrupted goes on when it is made again; until it has finished there is nothing at `out`.

    Args:
        store: The store.
        out: Folder to write; it must not be there yet, or be empty.
        as_: The layout: "folder", "coco", "yolo", "voc", "tar" or "parquet".
        splits: Write samples of these splits. Empty writes all.
        keys: Write samples of these keys. None writes all.
        limit: Of those, write no more than so many.
        shard_bytes_max: Size of an archive or table, in bytes of the store's records.
        workers: Threads. None takes the cores of this job.
        on_plan: Told what is to be done, and what will be lost, before anything is written.
        on_progress: Told how many more samples are done.

    Raises:
        ValueError: An argument is out of its range.
        SchemaMismatchError: The store has no such split, or no images.
        UnknownKeyError: No sample has one of the keys.
        TargetExistsError: Something is at `out`.
        TargetBusyError: Another export or build is writing there.
        BuildMismatchError: Another unfinished one is in the way.
        NoSpaceError: The disk is full.
        DiskError: The disk or file server fails.
        BuildError: The store has nothing that the layout is for, or no sample is left.
        StoreError: A sample is damaged.

    Example:
        >>> report = export("shapes.lmdb", "shapes-files", as_="folder")
        >>> report.losses
        []
    """
    started = time.monotonic()
    _check_counts(limit=limit, shard_bytes_max=shard_bytes_max, workers=workers)
    out = Path(os.path.abspath(out))
    job = _job(store, splits, keys, limit, shard_bytes_max)
    check_apart(out, [job.store])
    writer = make_writer(as_, job)
    plan = _plan(job, writer, as_)
    facts = {
        "store": manifest_sha256(job.store),
        "layout": as_,
        "samples": hashlib.sha256(job.indices.astype("<i8").tobytes()).hexdigest(),
        "size of shards": shard_bytes_max,
    }
    workspace = Workspace.of(out)
    if not workspace.folder.exists():
        _check_target(out)
    with _disk_named(out), TargetLock(workspace, out):
        if not _is_published(out, workspace, facts):
            with workspace.removed_unless_begun():
                _begin(workspace, out, facts, plan)
            on_plan(plan)
            parts = cut_parts(job, holds_many=writer.holds_many)
            work = ExportWork(workspace, job, writer, on_progress)
            threads = workers or core_count()
            for _ in map_threads(work.make, parts, threads, work.stop):
                pass
            reports = PartReports(workspace, len(parts))
            writer.finish(ExportFiles(workspace.store), reports)
            report = _report(out, job, writer, plan, reports)
            _write_account(workspace.store, facts, report, reports)
            _publish(workspace, out)
        workspace.remove()
    report = msgspec.json.decode((out / ABOUT_NAME).read_bytes())["report"]
    return ExportReport(**{**report, "seconds": time.monotonic() - started})


def plan_export(
    store: str | Path,
    *,
    as_: str,
    splits: Iterable[str] = (),
    keys: Iterable[str] | None = None,
    limit: int | None = None,
) -> ExportPlan:
    """What `export` would do, and what it would lose; nothing is written.

    Raises:
        ValueError: An argument is out of its range.
        BuildError: The store has nothing that the layout is for, or no sample is left.
        StoreError: The store cannot be read.
    """
    _check_counts(limit=limit)
    job = _job(store, splits, keys, limit, SHARD_BYTES_MAX)
    return _plan(job, make_writer(as_, job), as_)


def describe_kept(out: str | Path) -> str:
    """What an export that is stopped now leaves, and how to go on."""
    out = Path(os.path.abspath(out))
    if (out / ABOUT_NAME).exists():
        return f"{out} is whole."
    if not Workspace.of(out).is_begun():
        return "Nothing was begun and nothing is left behind: run the same command again."
    return f"There is no {out} yet; what was finished is kept: run the same command to go on."


def _check_counts(**counts: int | None) -> None:
    for name, value in counts.items():
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1; got {value!r}")


def _job(
    store: str | Path,
    splits: Iterable[str],
    keys: Iterable[str] | None,
    limit: int | None,
    shard_bytes_max: int,
) -> Job:
    opened = open_store(store)
    indices = chosen_indices(opened, list(splits), (), keys)[:limit]
    check_any_left(opened, indices, "an export")
    return Job(opened, indices, shard_bytes_max)


def _plan(job: Job, writer: Writer, as_: str) -> ExportPlan:
    notes = list(writer.notes)
    empty = [split for split in job.splits if split not in job.filled_splits]
    if empty:
        notes.append(f"splits without a sample are left out: {names_text(empty)}")
    if job.odd_splits:
        shown = names_text(job.odd_splits)
        notes.append(f"splits that readers may not take for one by their names: {shown}")
    notes += [f"if there are any: {text}" for text in writer.changes.values()]
    return ExportPlan(
        store=str(job.store.path),
        as_=as_,
        sample_count=len(job.indices),
        bytes=int(job.sizes.sum()),
        losses=list(lost_fields(job, writer)),
        notes=notes,
    )


# --- begin, go on, publish ------------------------------------------------------------------------


def _check_target(out: Path) -> None:
    """See that an export may get this name. Raises TargetExistsError."""
    if not os.path.lexists(out) or (out.is_dir() and not any(out.iterdir())):
        return
    is_ours = (out / ABOUT_NAME).exists()
    what = "a finished export is there already" if is_ours else "it exists, so it is left alone"
    raise TargetExistsError(f"{out}: {what}. Export to another path, or move it away.")


def _begin(workspace: Workspace, out: Path, facts: Mapping[str, Any], plan: ExportPlan) -> None:
    """Begin, or go on with what an interrupted call has left."""
    _check_target(out)
    unfinished = workspace.read_facts()
    if unfinished is not None:
        differences = facts_that_differ(dict(facts), unfinished)
        if differences:
            raise BuildMismatchError(
                f"{workspace.folder}: an unfinished export or build of {out.name} is there, of "
                f"others: {'; '.join(differences)}. Finish it with what it was begun with, or "
                "remove that folder."
            )
        return
    reason = missing_room(
        out,
        plan.bytes,
        folder=out.parent,
        what=f"the export will take about {plan.bytes:,} bytes",
        remedy=lambda free: "Free some, write to another disk, or export less: --split, --limit.",
    )
    if reason is not None:
        raise NoSpaceError(reason)
    workspace.begin([], dict(facts))


def _is_published(out: Path, workspace: Workspace, facts: Mapping[str, Any]) -> bool:
    """Whether a call that died at the very end has given the export its name already."""
    if workspace.read_facts() is None or workspace.store.exists():
        return False
    try:
        about = msgspec.json.decode((out / ABOUT_NAME).read_bytes())
    except (OSError, msgspec.DecodeError):
        return False
    return isinstance(about, dict) and about.get("facts") == dict(facts)


def _publish(workspace: Workspace, out: Path) -> None:
    """Give the folder its name, in one step; what is there by now is left alone."""
    # Once for all files: to wait for each of a million takes hours.
    os.sync()
    try:
        os.rename(workspace.store, out)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            _check_target(out)
        raise
    sync_folder(out.parent)


@contextlib.contextmanager
def _disk_named(out: Path) -> Iterator[None]:
    """Say of which export a disk had no room for, or could not be written."""
    try:
        yield
    except OSError as error:
        place = os.fsdecode(error.filename or "a file")
        where = f"{out}: {place}: {error.strerror or error}"
        if error.errno in NO_SPACE_ERRNOS:
            raise NoSpaceError(
                f"{where}. Free some; then run the same command: what is done is kept."
            ) from error
        raise DiskError(
            f"{where}. Once that is mended, run the same command: what is done is kept."
        ) from error


# --- the account ----------------------------------------------------------------------------------


def _report(
    out: Path, job: Job, writer: Writer, plan: ExportPlan, reports: Iterable[PartReport]
) -> ExportReport:
    lost: dict[str, int] = {}
    file_count = byte_count = 0
    for report in reports:
        file_count += len(report.files)
        byte_count += sum(size for _, size in report.files)
        for what, count in report.lost.items():
            lost[what] = lost.get(what, 0) + count
    numbers = job.split_numbers
    return ExportReport(
        path=str(out),
        store=plan.store,
        as_=plan.as_,
        sample_count=plan.sample_count,
        file_count=file_count,
        bytes=byte_count,
        splits={name: int((numbers == at).sum()) for at, name in enumerate(job.splits)},
        losses=loss_lines(job, writer, lost),
        notes=plan.notes,
        seconds=0.0,
    )


def _write_account(
    folder: Path, facts: Mapping[str, Any], report: ExportReport, reports: Iterable[PartReport]
) -> None:
    """Say in the export what it is, and which keys its pictures have."""
    write_synced(folder / KEYS_NAME, (part.pieces.get(KEYS_PIECE, b"") for part in reports))
    about = {"facts": dict(facts), "report": report.as_dict()}
    write_synced(folder / ABOUT_NAME, msgspec.json.encode(about))
