"""What was rejected and why, gathered: of a store, or of a build that has not published one."""

from __future__ import annotations

import os
import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from packer.items.raw_item import Reject
from packer.wording import Summarized, count_text, cut_text
from packer.workspace.folder import Workspace
from readers.store.layout import MANIFEST_NAME, REJECTS_NAME
from readers.store.manifest import read_manifest
from readers.store.place import Place, place_of
from readers.store.rejects import RejectLine, read_rejects
from readers.store.wording import few, few_text

ROOT_SHOWN = "."
"""What the raw folder itself is called among folders."""

_EXAMPLES_MAX = 3
_ROWS_SHOWN_MAX = 20
_REASON_CHARACTERS_MAX = 160

_VARYING = re.compile(r"'[^']*'|\"[^\"]*\"|[-+]?\d[\d,.]*")
"""What differs between reasons of one kind: names and numbers."""


@dataclass(frozen=True, kw_only=True)
class ReasonCount:
    """Rejects of one kind.

    Attributes:
        reason: Why the first of them was rejected.
        is_alike: Whether the others differ from it in names or numbers.
        count: How many there are.
        examples: Where the first few are in the raw data.
    """

    reason: str
    is_alike: bool
    count: int
    examples: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class RejectSummary(Summarized):
    """The rejects of a store or an unfinished build.

    Attributes:
        path: Where they are of.
        listed_in: The file that names every one; None while shards are still to be made.
        item_count: Raw items.
        annotation_count: Annotations of items that were stored.
        part_count: Parts of annotations that were stored without them.
        reasons: The most frequent first.
        folders: Folder of the raw data -> rejects in it, the most first.
        unfinished_count: Shards that are still to be made, whose rejects nobody knows yet.
    """

    path: str
    listed_in: str | None
    item_count: int
    annotation_count: int
    part_count: int
    reasons: tuple[ReasonCount, ...]
    folders: dict[str, int]
    unfinished_count: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The summary by name, as `--json` prints it."""
        return asdict(self)

    def summary(self) -> str:
        """The same for a person: a table by reason, and one by folder."""
        counts = [
            count_text(count, noun)
            for count, noun in (
                (self.item_count, "raw item"),
                (self.annotation_count, "annotation"),
                (self.part_count, "annotation part"),
            )
            if count
        ]
        lines = [f"{self.path}: {', '.join(counts) or 'nothing'} rejected"]
        if self.unfinished_count:
            shards = count_text(self.unfinished_count, "shard")
            lines.append(f"so far: {shards} are still to be made")
        if self.reasons:
            width = len(f"{self.reasons[0].count:,}")
            lines += ["", "by reason:"]
            lines += few(self.reasons, _ROWS_SHOWN_MAX, lambda one: _reason_rows(one, width))
            lines += ["", "by folder:"]
            rows = list(self.folders.items())
            lines += few(rows, _ROWS_SHOWN_MAX, lambda one: f"  {one[1]:>{width},}  {one[0]}")
        if self.reasons and self.listed_in is not None:
            lines += ["", f"each is named in {self.listed_in}"]
        return "\n".join(lines)


def _reason_rows(one: ReasonCount, width: int) -> str:
    more = " (and alike)" if one.is_alike else ""
    shown = few_text(one.examples, _EXAMPLES_MAX, count=one.count)
    reason = cut_text(one.reason, _REASON_CHARACTERS_MAX)
    return f"  {one.count:>{width},}  {reason}{more}\n  {'':{width}}    {shown}"


def rejects(path: str | Place) -> RejectSummary:
    """What was rejected of the raw data of a store, or of a build that has not published one.

    Args:
        path: The store, or the target of an unfinished build.

    Raises:
        StoreError: There is neither, or the list of rejects cannot be read.
    """
    place = place_of(path)
    if isinstance(place, Path) and not (place / MANIFEST_NAME).exists():
        workspace = Workspace.of(place)
        if workspace.reject_list.exists():
            # The build ended because of them, so that all were listed.
            lines = read_rejects(workspace.folder)
            return _summarised(str(place), str(workspace.reject_list), lines)
        if workspace.is_begun():
            return _of_unfinished(place, workspace)
    read_manifest(place)  # What is no store is told as such.
    return _summarised(str(place), f"{place}/{REJECTS_NAME}", read_rejects(place))


def _of_unfinished(place: Path, workspace: Workspace) -> RejectSummary:
    """Of the shards that are made; what the scan rejected is listed at the end alone."""
    plan = workspace.read_task_plan()
    done = 0

    def lines() -> Iterator[RejectLine]:
        nonlocal done
        for number in sorted(workspace.reported()):
            report = workspace.read_report(number, plan.id)
            if report is not None:
                done += 1
                yield from (_line(reject, "") for reject in report.rejects)
                yield from (_line(reject, "annotation") for reject in report.annotation_rejects)

    found = _summarised(str(place), None, lines())
    return RejectSummary(**{**vars(found), "unfinished_count": plan.shard_count - done})


def _line(reject: Reject, kind: str) -> RejectLine:
    return RejectLine(
        key=os.fsdecode(reject.key),
        path=reject.path,
        reason=reject.reason,
        kind="part" if reject.part else kind,
        part=reject.part,
    )


def _summarised(path: str, listed_in: str | None, lines: Iterable[RejectLine]) -> RejectSummary:
    kinds: Counter[str] = Counter()
    folders: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    first: dict[str, str] = {}
    alike: set[str] = set()
    examples: dict[str, list[str]] = {}
    for line in lines:
        kind = _VARYING.sub("*", line.reason)
        kinds[line.kind] += 1
        counts[kind] += 1
        folders[_folder_of(line)] += 1
        if first.setdefault(kind, line.reason) != line.reason:
            alike.add(kind)
        shown = examples.setdefault(kind, [])
        if len(shown) < _EXAMPLES_MAX:
            shown.append(line.path)
    return RejectSummary(
        path=path,
        listed_in=listed_in,
        item_count=kinds[""],
        annotation_count=kinds["annotation"],
        part_count=kinds["part"],
        reasons=tuple(
            ReasonCount(
                reason=first[kind],
                is_alike=kind in alike,
                count=count,
                examples=tuple(examples[kind]),
            )
            for kind, count in counts.most_common()
        ),
        folders=dict(folders.most_common()),
    )


def _folder_of(line: RejectLine) -> str:
    """Folder in the raw data, of the picture where it is known."""
    written = os.fsdecode(line.key_bytes) if line.key else line.path
    return posixpath.dirname(written).encode("utf-8", "backslashreplace").decode() or ROOT_SHOWN
