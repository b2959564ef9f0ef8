"""Plan, map, publish: a raw tree becomes a store."""

from __future__ import annotations

import contextlib
import enum
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from packer.engines.local import map_tasks
from packer.engines.worker import NO_SPACE
from packer.errors import (
    BuildError,
    BuildMismatchError,
    NoSpaceError,
    RejectedItemError,
    TargetExistsError,
    TooManyRejectsError,
)
from packer.plan import BuildPlan, facts_that_differ, library_versions, make_plan
from packer.progress import Progress
from packer.publish import check_target, publish_folder
from packer.recipe import Recipe
from packer.rejects import Rejects, describe_rejects, reject_count_max, write_rejects
from packer.sources import SourceOptions, scan_source
from packer.sources.items import Reject
from packer.sources.walk import readable_path
from packer.wording import count_text
from packer.workspace import TargetLock, TaskPlan, TaskReport, Workspace
from readers.machine import core_count, local_rank_count, mount_of
from readers.store.layout import MANIFEST_NAME, REJECTS_NAME
from readers.store.manifest import (
    FormatVersion,
    Manifest,
    SourceInfo,
    manifest_bytes,
    publish_manifest,
    read_manifest,
    write_synced,
)

OnError = Literal["reject", "fail"]

_SPACE_MARGIN = 1.05


class Step(enum.Enum):
    """What a build does, in order. A build that dies at any of them can be run again."""

    LOCKED = "the target is held by this build"
    PLANNED = "the plan and its tasks are written"
    SHARD_FINISHED = "a shard is in place"
    SHARDS_FINISHED = "all shards are in place"
    MANIFEST_WRITTEN = "the manifest is written"
    PUBLISHED = "the store has its name"
    CLEANED = "the workspace is gone"


@dataclass(frozen=True, kw_only=True)
class BuildReport:
    """What a build did. `found_count` = `sample_count` + `reject_count` + `ignored_count`.

    Attributes:
        path: The store.
        format: Name of the source that read the raw data.
        found_count: Raw items and other files met.
        sample_count: Samples stored.
        reject_count: Raw items not packed; the store's `rejects.jsonl` names each.
        ignored_count: Files that are no raw items.
        ignored: The same by reason.
        annotations: Annotations `found`, `stored` and `rejected`; empty where there are none.
        bytes: Size of all shards.
        shard_count: How many shards there are.
        kept_shard_count: Shards that an interrupted run of the same build had finished.
        seconds: Wall time.
        images_per_s: Raw items done for each second of it, kept shards apart.
        worker_count: Build workers.
        classes: Class name -> samples.
        splits: Split name -> samples.
        content_sha256: Digest over the digests of all shards, in hex.
        notes: What was seen, chosen or odd, a line each.
    """

    path: str
    format: str
    found_count: int
    sample_count: int
    reject_count: int
    ignored_count: int
    ignored: dict[str, int]
    annotations: dict[str, int]
    bytes: int
    shard_count: int
    kept_shard_count: int
    seconds: float
    images_per_s: float
    worker_count: int
    classes: dict[str, int]
    splits: dict[str, int]
    content_sha256: str
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """The report by name, as `--json` prints it."""
        return asdict(self)

    def summary(self) -> str:
        """What people want to see after hours of work."""
        lines = [
            *self.notes,
            f"{self.path}: {count_text(self.sample_count, 'sample')}, {self.bytes:,} bytes in "
            f"{count_text(self.shard_count, 'shard')}",
            f"found {self.found_count:,} = {self.sample_count:,} stored + {self.reject_count:,} "
            f"rejected + {self.ignored_count:,} ignored",
        ]
        lines += [f"  ignored: {count:,} {reason}" for reason, count in self.ignored.items()]
        if self.annotations:
            lines.append(
                f"annotations: found {self.annotations['found']:,} = "
                f"{self.annotations['stored']:,} stored + {self.annotations['rejected']:,} rejected"
            )
        if self.reject_count or self.annotations.get("rejected"):
            lines.append(f"  rejected: named in {self.path}/{REJECTS_NAME}")
        if self.splits:
            counts = ", ".join(f"{name} {count:,}" for name, count in self.splits.items())
            lines.append(f"splits: {counts}")
        if self.classes:
            names = [f"{name} {count:,}" for name, count in self.classes.items()]
            more = f", and {len(names) - 10:,} more" if len(names) > 10 else ""
            lines.append(f"{count_text(len(names), 'class')}: {', '.join(names[:10])}{more}")
        kept = count_text(self.kept_shard_count, "shard")
        kept = f", {kept} kept" if self.kept_shard_count else ""
        lines += [
            f"{self.seconds:.1f} s, {self.images_per_s:,.0f} images/s with {self.worker_count} "
            f"build workers{kept}",
            f"content {self.content_sha256}",
            "",
            "from readers import LMDBDataset, make_loader",
            f"dataset = LMDBDataset({self.path!r}"
            + (", returns=('image', 'label'))" if self.classes else ")"),
            "loader = make_loader(dataset, batch_size=64, train=True)",
        ]
        return "\n".join(lines)


def build(
    raw: str | Path,
    out: str | Path,
    recipe: Recipe | None = None,
    *,
    source: SourceOptions | None = None,
    worker_count: int | None = None,
    scratch: str | Path | None = None,
    on_error: OnError = "reject",
    rejects_max: str | int = "1%",
    overwrite: bool = False,
    shows_progress: bool = False,
    on_step: Callable[[Step], None] = lambda step: None,
) -> BuildReport:
    """Compile the images under `raw` into a store at `out`.

    Interrupted at any moment, the same call goes on where it stopped. Nothing exists at `out`
    until the store is whole.

    Args:
        raw: Folder of images, or a list of them; see `packer.sources`.
        out: Where the store is to be.
        recipe: The settings that decide its bytes. None means the defaults.
        source: How to read `raw`. None detects it.
        worker_count: Build workers. None means the cores that this job may use.
        scratch: Folder on a local disk in which shards are written before they are moved into
            place. None means beside the store, or the system's temporary folder when the store is
            to be on a network file system.
        on_error: "reject" leaves out a raw item that cannot be packed and names it; "fail" stops.
        rejects_max: How many rejects there may be: a count, or a share such as "1%".
        overwrite: Replace a store at `out`, in one step once the new one is whole, and discard an
            unfinished build of other settings.
        shows_progress: Draw a progress bar on stderr, when that is a terminal.
        on_step: Told of each step as it is done.

    Returns:
        The report. The store's manifest keeps what matters of it.

    Raises:
        ValueError: An argument is out of its range.
        SourceError: `raw` is not there, holds nothing to pack, or is of no known layout.
        TargetExistsError: Something is at `out`.
        TargetBusyError: Another build is writing there.
        BuildMismatchError: An unfinished build of other settings or data is in the way.
        TooManyRejectsError: Past `rejects_max`; the message names every reject.
        RejectedItemError: An item was rejected under on_error="fail".
        NoSpaceError: A disk is full.
        WorkerError: A build worker died.
    """
    started = time.monotonic()
    raw, out = Path(raw), Path(os.path.abspath(out))
    recipe = recipe or Recipe()
    if on_error not in ("reject", "fail"):
        raise ValueError(f"on_error must be 'reject' or 'fail'; got {on_error!r}")
    if worker_count is not None and worker_count < 1:
        raise ValueError(f"worker_count must be at least 1; got {worker_count!r}")
    reject_count_max(rejects_max, 0)
    workers = worker_count or max(1, core_count() // local_rank_count())
    workspace = Workspace.of(out)
    _check_apart(raw, out)
    was_there = os.path.lexists(out)
    if not workspace.folder.exists():
        check_target(out, overwrite=overwrite)
    scan = scan_source(raw, source or SourceOptions())
    if on_error == "fail":
        _stop_at([*scan.rejects, *scan.annotation_rejects])
    plan = make_plan(scan, recipe)
    with TargetLock(workspace, out), _no_space_named(out, plan):
        try:
            if _is_published(workspace, out, plan):
                # Killed between the last two steps: all that is left is to clean up.
                manifest = read_manifest(out)
                workspace.remove()
                return _report(out, manifest, started, workers, kept=len(manifest.shards), done=0)
            if not (was_there or overwrite) and os.path.lexists(out):
                raise TargetExistsError(
                    f"{out}: another build was running here, and has just finished this store. "
                    "Use it, build to another path, or replace it with --overwrite."
                )
            check_target(out, overwrite=overwrite)
            on_step(Step.LOCKED)
            kept = _prepare(
                workspace, plan, out, overwrite=overwrite, stops_at_reject=on_error == "fail"
            )
        except (BuildError, OSError):
            _remove_if_unused(workspace)
            raise
        on_step(Step.PLANNED)
        numbers = [n for n in range(len(plan.cuts)) if n not in kept]
        done = sum(end - first for n, (first, end) in enumerate(plan.cuts) if n not in kept)
        with (
            _scratch(workspace, scratch) as scratch_folder,
            Progress(
                total=len(scan.items), done=len(scan.items) - done, shows=shows_progress
            ) as bar,
        ):

            def on_progress(count: int, finished: int | None) -> None:
                bar.add(count)
                if finished is not None:
                    on_step(Step.SHARD_FINISHED)

            if numbers:
                map_tasks(workspace, numbers, scratch_folder, workers, on_progress)
        on_step(Step.SHARDS_FINISHED)
        reports = _reports(workspace, plan)
        rejects = Rejects(
            items=[*scan.rejects, *(r for report in reports for r in report.rejects)],
            annotations=[
                *scan.annotation_rejects,
                *(r for report in reports for r in report.annotation_rejects),
            ],
        )
        _check_rejects(rejects, plan, reports, workspace, out, on_error, rejects_max)
        manifest = _manifest(plan, reports, rejects)
        write_rejects(workspace.store / REJECTS_NAME, rejects)
        write_synced(workspace.folder / MANIFEST_NAME, manifest_bytes(manifest))
        publish_manifest(workspace.store, manifest)
        on_step(Step.MANIFEST_WRITTEN)
        publish_folder(workspace.store, out)
        on_step(Step.PUBLISHED)
        workspace.remove()
        on_step(Step.CLEANED)
    return _report(out, manifest, started, workers, kept=len(kept), done=done)


def _check_apart(raw: Path, out: Path) -> None:
    """See that the store will not lie among the raw data."""
    folder, target = Path(os.path.realpath(raw)), Path(os.path.realpath(out))
    if folder.is_dir() and folder in target.parents:
        raise BuildError(
            f"{out}: it lies inside the raw folder {raw}, where the next build would find it among "
            "the raw data. Build to a path outside."
        )


def _stop_at(rejects: Sequence[Reject]) -> None:
    """Raise the first reject of a build that is to stop at it."""
    if rejects:
        raise RejectedItemError(
            f"{rejects[0].path}: {rejects[0].reason}\n"
            "The build was told to stop at the first reject. Mend or remove it, or leave it out "
            "with --on-error reject."
        )


@contextlib.contextmanager
def _no_space_named(out: Path, plan: BuildPlan) -> Iterator[None]:
    """Say of which store, and of how much, a disk had no room for."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        raise NoSpaceError(
            f"{out}: {error.filename or 'a file'}: {error.strerror}. The store takes about "
            f"{plan.byte_count:,} bytes. Free some, raise the limit on file sizes (ulimit -f), or "
            "write the shards elsewhere with --scratch; then run the same command: finished "
            "shards are kept."
        ) from error


def _is_published(workspace: Workspace, out: Path, plan: BuildPlan) -> bool:
    """Whether the store at `out` is the one that this workspace was to publish, and we too."""
    facts = workspace.read_facts()
    if facts is not None and facts_that_differ(plan.facts(), facts):
        return False
    try:
        ours = (workspace.folder / MANIFEST_NAME).read_bytes()
        return ours == (out / MANIFEST_NAME).read_bytes() and not _is_same(workspace.store, out)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _is_same(store: Path, out: Path) -> bool:
    """Whether the same manifest still waits in the workspace: then `out` is an older equal."""
    return (store / MANIFEST_NAME).exists() and (
        (store / MANIFEST_NAME).read_bytes() == (out / MANIFEST_NAME).read_bytes()
    )


def _remove_if_unused(workspace: Workspace) -> None:
    if workspace.read_facts() is None:
        workspace.remove()


def _prepare(
    workspace: Workspace, plan: BuildPlan, out: Path, *, overwrite: bool, stops_at_reject: bool
) -> set[int]:
    """Begin a build, or take up an unfinished one. Numbers of the shards that are finished."""
    facts = plan.facts()
    unfinished = workspace.read_facts()
    differences = facts_that_differ(facts, unfinished) if unfinished is not None else []
    if differences and not overwrite:
        raise BuildMismatchError(
            f"{workspace.folder}: an unfinished build of {out.name} is there, of other settings or "
            f"data: {'; '.join(differences)}. Finish it with what it was begun with, or discard it "
            "with --overwrite."
        )
    items = plan.scan.items
    tasks = [items[first:end] for first, end in plan.cuts]
    if unfinished is None or differences:
        _check_space(out, plan)
        workspace.begin(tasks, facts)
    else:
        # They are not synced one by one, so a power cut may have emptied some.
        workspace.write_tasks(tasks)
    # The root may have moved, and on_error may be another: neither changes the store.
    workspace.write_task_plan(
        TaskPlan(
            root=os.fsencode(os.path.abspath(plan.scan.root)),
            schema=plan.schema.as_builtins(),
            recipe=plan.recipe.as_dict(),
            mask_colors=plan.scan.mask_colors,
            stops_at_reject=stops_at_reject,
        )
    )
    return {n for n in range(len(plan.cuts)) if workspace.read_report(n) is not None}


def _check_space(out: Path, plan: BuildPlan) -> None:
    """See that the store will fit, before hours of work."""
    need, free = int(plan.byte_count * _SPACE_MARGIN), shutil.disk_usage(out.parent).free
    if need > free:
        raise NoSpaceError(
            f"{out}: the store will take about {need:,} bytes, and its disk has {free:,} free. "
            "Free some, build to another disk, or make it smaller: --size for fewer pixels, or "
            "--image original for the files' own bytes."
        )


@contextlib.contextmanager
def _scratch(workspace: Workspace, scratch: str | Path | None) -> Iterator[Path]:
    """The folder in which shards are written: it must carry a live LMDB file."""
    if scratch is not None:
        base = Path(scratch)
        if not base.is_dir():
            raise BuildError(f"--scratch {base}: no such folder. Give one on a local disk.")
    elif not mount_of(workspace.folder).is_network:
        yield workspace.scratch
        return
    else:
        base = Path(tempfile.gettempdir())
    # Named after the target, so that a second run finds and clears what a killed one left.
    name = hashlib.sha256(os.fsencode(workspace.folder)).hexdigest()[:16]
    folder = base / f"packer-{name}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _reports(workspace: Workspace, plan: BuildPlan) -> list[TaskReport]:
    reports = [workspace.read_report(number) for number in range(len(plan.cuts))]
    assert None not in reports
    return [report for report in reports if report is not None]


def _check_rejects(
    rejects: Rejects,
    plan: BuildPlan,
    reports: list[TaskReport],
    workspace: Workspace,
    out: Path,
    on_error: OnError,
    rejects_max: str | int,
) -> None:
    if on_error == "fail":
        _stop_at([*rejects.items, *rejects.annotations])
    found = len(plan.scan.items) + len(plan.scan.rejects)
    allowed = reject_count_max(rejects_max, found)
    count = len(rejects.items)
    if count <= allowed and count < found:
        _check_annotations(rejects, reports, workspace, out)
        return
    write_rejects(workspace.reject_list, rejects)
    if count == found:
        # There is no work to lose, and what is put right next is often the command itself.
        workspace.forget()
        advice = "Nothing is left to store."
    else:
        advice = (
            "Mend or remove them and begin anew with --overwrite, or accept them with "
            f"--max-rejects {count}: the finished shards are kept for that."
        )
    raise TooManyRejectsError(
        f"{out}: {count:,} of {found:,} raw items rejected; {allowed:,} allowed by "
        f"--max-rejects {rejects_max}.\n{describe_rejects(rejects, workspace.reject_list)}\n"
        f"Nothing was published. {advice}"
    )


def _check_annotations(
    rejects: Rejects, reports: list[TaskReport], workspace: Workspace, out: Path
) -> None:
    """Refuse a store of which every annotation was rejected: they were read in a wrong way."""
    if not rejects.annotations or any(report.object_count for report in reports):
        return
    write_rejects(workspace.reject_list, rejects)
    workspace.forget()
    raise TooManyRejectsError(
        f"{out}: all {len(rejects.annotations):,} annotations were rejected.\n"
        f"{describe_rejects(rejects, workspace.reject_list)}\n"
        "Nothing was published. Their format is another one than it seemed, or they belong to "
        "other pictures."
    )


def _manifest(plan: BuildPlan, reports: list[TaskReport], rejects: Rejects) -> Manifest:
    scan = plan.scan
    labels, splits = _sum(r.label_counts for r in reports), _sum(r.split_counts for r in reports)
    shards = tuple(report.shard for report in reports if report.shard is not None)
    statistics: dict[str, Any] = {}
    if scan.classes:
        statistics["class_counts"] = [labels.get(n, 0) for n in range(len(scan.classes))]
    return Manifest(
        format=FormatVersion(),
        schema=plan.schema,
        classes=scan.classes,
        splits={name: splits.get(n, 0) for n, name in enumerate(scan.splits)},
        sample_count=sum(shard.sample_count for shard in shards),
        shards=shards,
        recipe=plan.recipe.as_dict(),
        source=SourceInfo(
            format=scan.format,
            sha256=plan.source_sha256,
            found_count=len(scan.items) + len(scan.rejects) + scan.ignored.total,
            reject_count=len(rejects.items),
            ignored=scan.ignored.counts,
            notes=(*scan.notes, *_frame_notes(reports), *_overhang_notes(reports)),
            annotations=_annotation_counts(reports, rejects),
            choices=scan.choices,
        ),
        statistics=statistics,
        versions=library_versions(),
    )


def _sum(counts: Iterable[dict[int, int]]) -> dict[int, int]:
    total: dict[int, int] = {}
    for part in counts:
        for key, count in part.items():
            total[key] = total.get(key, 0) + count
    return total


def _annotation_counts(reports: list[TaskReport], rejects: Rejects) -> dict[str, int]:
    """Annotations found, stored and rejected, those of rejected items among the latter."""
    stored = sum(report.object_count for report in reports)
    rejected = len(rejects.annotations) + sum(report.lost_object_count for report in reports)
    if not stored + rejected:
        return {}
    return {"found": stored + rejected, "stored": stored, "rejected": rejected}


def _overhang_notes(reports: list[TaskReport]) -> tuple[str, ...]:
    """One line about boxes that were kept as they are."""
    count = sum(report.overhang_count for report in reports)
    if not count:
        return ()
    return (f"{count_text(count, 'box')} over the edge of the picture; --clip-boxes cuts them off",)


def _frame_notes(reports: list[TaskReport]) -> tuple[str, ...]:
    """One line about pictures behind the first of their file."""
    frames = {path: n for report in reports for path, n in report.extra_frame_counts.items()}
    if not frames:
        return ()
    names = ", ".join(f"{readable_path(path)} ({n})" for path, n in list(frames.items())[:5])
    more = ", ..." if len(frames) > 5 else ""
    return (
        f"{len(frames):,} files hold more than one picture; the first of each is stored, "
        f"{sum(frames.values()):,} further ones are not: {names}{more}",
    )


def _report(
    out: Path, manifest: Manifest, started: float, workers: int, *, kept: int, done: int
) -> BuildReport:
    seconds = time.monotonic() - started
    return BuildReport(
        path=str(out),
        format=manifest.source.format,
        found_count=manifest.source.found_count,
        sample_count=manifest.sample_count,
        reject_count=manifest.source.reject_count,
        ignored_count=sum(manifest.source.ignored.values()),
        ignored=manifest.source.ignored,
        annotations=manifest.source.annotations,
        bytes=sum(shard.bytes for shard in manifest.shards),
        shard_count=len(manifest.shards),
        kept_shard_count=kept,
        seconds=seconds,
        images_per_s=done / seconds,
        worker_count=workers,
        classes=dict(
            zip(manifest.classes, manifest.statistics.get("class_counts", ()), strict=False)
        ),
        splits=manifest.splits,
        content_sha256=content_sha256(manifest),
        notes=list(manifest.source.notes),
    )


def content_sha256(manifest: Manifest) -> str:
    """Digest over the digests of all shards, in hex: equal for equal stores, wherever they are."""
    digests = json.dumps([shard.sha256 for shard in manifest.shards])
    return hashlib.sha256(digests.encode()).hexdigest()
