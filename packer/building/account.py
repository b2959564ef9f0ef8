"""The account of a build, as the manifest keeps it: found = stored + rejected + ignored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from packer.counts import summed_counts
from packer.pictures.statistics import statistics
from packer.plan.shards import BuildPlan, library_versions
from packer.wording import count_text, readable_path
from packer.workspace.folder import TaskReport
from packer.workspace.rejects import Rejects
from readers.store.manifest import FormatVersion, Manifest, SourceInfo
from readers.store.wording import few_text


def make_manifest(plan: BuildPlan, reports: Sequence[TaskReport], rejects: Rejects) -> Manifest:
    """The manifest of a store whose shards are all there.

    Args:
        plan: The build's plan.
        reports: One for each shard of the plan.
        rejects: All that was not packed.
    """
    scan = plan.scan
    labels = summed_counts(report.label_counts for report in reports)
    splits = summed_counts(report.split_counts for report in reports)
    shards = tuple(report.shard for report in reports if report.shard is not None)
    facts: dict[str, Any] = {}
    if scan.classes:
        facts["class_counts"] = [labels.get(n, 0) for n in range(len(scan.classes))]
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
            options=scan.options,
        ),
        statistics=facts | statistics(report.tally for report in reports),
        versions=library_versions(),
    )


def _annotation_counts(reports: Sequence[TaskReport], rejects: Rejects) -> dict[str, int]:
    """Annotations found, stored and rejected, those of rejected items among the latter.

    And how many parts of stored ones were rejected, where there are any.
    """
    parts = rejects.part_count
    stored = sum(report.object_count for report in reports)
    rejected = len(rejects.annotations) - parts
    rejected += sum(report.lost_object_count for report in reports)
    if not stored + rejected + parts:
        return {}
    counts = {"found": stored + rejected, "stored": stored, "rejected": rejected}
    return {**counts, "parts_rejected": parts} if parts else counts


def _overhang_notes(reports: Sequence[TaskReport]) -> tuple[str, ...]:
    """One line about boxes that were kept as they are."""
    count = sum(report.overhang_count for report in reports)
    if not count:
        return ()
    return (f"{count_text(count, 'box')} over the edge of the picture; --clip-boxes cuts them off",)


def _frame_notes(reports: Sequence[TaskReport]) -> tuple[str, ...]:
    """One line about pictures behind the first of their file."""
    frames = {path: n for report in reports for path, n in report.extra_frame_counts.items()}
    if not frames:
        return ()
    names = few_text(list(frames.items()), 5, lambda one: f"{readable_path(one[0])} ({one[1]})")
    return (
        f"{len(frames):,} files hold more than one picture; the first of each is stored, "
        f"{sum(frames.values()):,} further ones are not: {names}",
    )
