"""What a build did, for people and for programs."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from packer.advice import gray_text, python_lines, sizes_text
from packer.wording import (
    Summarized,
    count_text,
    counts_text,
    rate_text,
    reason_lines,
    size_text,
    time_text,
)
from readers.store.layout import REJECTS_NAME
from readers.store.manifest import Manifest
from readers.store.place import Place
from readers.store.rejects import read_rejects
from readers.store.wording import few, few_text

_CLASSES_SHOWN_MAX = 10
_REASONS_MAX = 5


@dataclass(frozen=True, kw_only=True)
class BuildReport(Summarized):
    """What a build did. `found_count` = `sample_count` + `reject_count` + `ignored_count`.

    Attributes:
        path: The store.
        fields: Names of the fields of a sample.
        format: Name of the source that read the raw data.
        found_count: Raw items and other files met.
        sample_count: Samples stored.
        reject_count: Raw items not packed; the store's `rejects.jsonl` names each.
        ignored_count: Files that are no raw items.
        ignored: The same by reason.
        annotations: Annotations `found`, `stored` and `rejected`; empty where there are none. And
            `parts_rejected`, where parts of stored ones were: outlines, keypoints, attributes.
        rejects: What was rejected and why, in a few lines; empty where the store is at a URL.
        raw_bytes: Size of the raw images that were to be packed.
        bytes: Size of all shards.
        shard_count: How many shards there are.
        kept_shard_count: Shards that an interrupted run of the same build had finished.
        seconds: Wall time.
        images_per_s: Raw items done for each second in which shards were made; 0 where none were.
        worker_count: Build workers.
        classes: Class name -> samples.
        splits: Split name -> samples.
        content_sha256: Digest over the digests of all shards, in hex.
        notes: What was seen, chosen or odd, a line each.
        python: Lines of Python that read the store.
    """

    path: str
    fields: list[str]
    format: str
    found_count: int
    sample_count: int
    reject_count: int
    ignored_count: int
    ignored: dict[str, int]
    annotations: dict[str, int]
    raw_bytes: int
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
    python: list[str] = field(default_factory=list)
    rejects: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """The report by name, as `--json` prints it."""
        return asdict(self)

    def _rate(self) -> str:
        """How fast images were made, where any were."""
        if not self.images_per_s:
            return ""
        workers = count_text(self.worker_count, "build worker")
        return f", {rate_text(self.images_per_s)} images/s with {workers}"

    def _raw_text(self) -> str:
        """What the store was made of, where this run knows it."""
        return f"{size_text(self.raw_bytes)} of raw images -> " if self.raw_bytes else ""

    def summary(self) -> str:
        """What people want to see after hours of work."""
        lines = [
            *self.notes,
            f"{self.path}: {count_text(self.sample_count, 'sample')}, {self._raw_text()}"
            f"{size_text(self.bytes)} in {count_text(self.shard_count, 'shard')}",
            f"found {self.found_count:,} = {self.sample_count:,} stored + {self.reject_count:,} "
            f"rejected + {self.ignored_count:,} ignored",
        ]
        lines += [f"  ignored: {count:,} {reason}" for reason, count in self.ignored.items()]
        if self.annotations:
            lines.append(
                f"annotations: found {self.annotations['found']:,} = "
                f"{self.annotations['stored']:,} stored + {self.annotations['rejected']:,} rejected"
            )
        parts = self.annotations.get("parts_rejected", 0)
        if parts:
            lines.append(
                f"  {count_text(parts, 'part')} of stored annotations rejected (outlines, "
                "keypoints and the like): the rest of each is stored"
            )
        if self.reject_count or self.annotations.get("rejected") or parts:
            lines += [f"  {line}" for line in self.rejects]
            lines.append(f"  rejected: named in {self.path}/{REJECTS_NAME}")
        if self.splits:
            lines.append(f"splits: {counts_text(self.splits, len(self.splits))}")
        if self.classes:
            counts = self.classes
            if len(counts) > _CLASSES_SHOWN_MAX:
                counts = dict(sorted(counts.items(), key=lambda pair: -pair[1]))
            # Of masks, samples are not counted by class.
            is_counted = any(counts.values())
            most = _CLASSES_SHOWN_MAX
            shown = counts_text(counts, most) if is_counted else few_text([*counts], most)
            lines.append(f"{count_text(len(counts), 'class')}: {shown}")
        kept = count_text(self.kept_shard_count, "shard")
        kept = f", {kept} kept" if self.kept_shard_count else ""
        lines += [
            f"{time_text(self.seconds)}{self._rate()}{kept}",
            f"content {self.content_sha256}",
            "",
            *self.python,
        ]
        return "\n".join(lines)


def make_report(
    out: Place,
    manifest: Manifest,
    started: float,
    workers: int,
    *,
    kept: int,
    done: int,
    making_s: float,
    raw_bytes: int,
    notices: Sequence[str] = (),
) -> BuildReport:
    """The report of a store that was just published.

    Args:
        out: The store.
        manifest: Its manifest.
        started: `time.monotonic()` at the start of the build.
        workers: Build workers.
        kept: Shards that an interrupted run had finished.
        done: Raw items that this run worked on.
        making_s: How long it made shards, without looking for raw items and publishing.
        raw_bytes: Size of all raw images.
        notices: What happened to this run, and is not a fact about the store.
    """
    seconds = time.monotonic() - started
    return BuildReport(
        path=str(out),
        fields=list(manifest.schema.names),
        format=manifest.source.format,
        found_count=manifest.source.found_count,
        sample_count=manifest.sample_count,
        reject_count=manifest.source.reject_count,
        ignored_count=sum(manifest.source.ignored.values()),
        ignored=manifest.source.ignored,
        annotations=manifest.source.annotations,
        raw_bytes=raw_bytes,
        bytes=manifest.shard_bytes,
        shard_count=len(manifest.shards),
        kept_shard_count=kept,
        seconds=seconds,
        images_per_s=done / making_s if done else 0.0,
        worker_count=workers,
        classes=class_counts(manifest),
        splits=manifest.splits,
        content_sha256=content_sha256(manifest),
        notes=[
            *manifest.source.notes,
            *filter(None, (sizes_text(manifest), gray_text(manifest))),
            *notices,
        ],
        python=python_lines(str(out), manifest),
        rejects=_reject_lines(out, manifest),
    )


def _reject_lines(out: Place, manifest: Manifest) -> list[str]:
    """What the reject list of a store says, in short."""
    counts = manifest.source.annotations
    listed = (manifest.source.reject_count, counts.get("rejected"), counts.get("parts_rejected"))
    if not any(listed) or not isinstance(out, Path):
        return []
    return few(reason_lines((line.path, line.reason) for line in read_rejects(out)), _REASONS_MAX)


def class_counts(manifest: Manifest) -> dict[str, int]:
    """Class name -> samples, or objects where a sample has many; empty where nothing is counted."""
    counts = manifest.statistics.get("class_counts", ())
    return dict(zip(manifest.classes, counts, strict=False))


def content_sha256(manifest: Manifest) -> str:
    """Digest over the digests of all shards, in hex: equal for equal stores, wherever they are."""
    digests = json.dumps([shard.sha256 for shard in manifest.shards])
    return hashlib.sha256(digests.encode()).hexdigest()
