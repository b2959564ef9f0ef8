"""The reject list: every raw item that was not packed, and the bound on how many there may be."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from packer.items.raw_item import Reject
from packer.wording import reason_lines
from readers.store.manifest import write_synced
from readers.store.rejects import RejectLine, rejects_bytes
from readers.store.wording import few

_SHOWN_COUNT = 1000


def reject_count_max(limit: str | int, found_count: int) -> int:
    """How many rejects `limit` allows among so many raw items.

    Args:
        limit: A count, or a share such as "1%" or "0.5%", rounded down.
        found_count: Raw items in all.

    Raises:
        ValueError: It is neither.
    """
    text = str(limit).strip()
    try:
        if text.endswith("%"):
            if 0 <= float(text[:-1]) <= 100:
                # Exactly: 0.57% of 10,000 are 57, and floating point makes 56 of it.
                return int(found_count * Fraction(text[:-1]) / 100)
        elif int(text) >= 0:
            return int(text)
    except ValueError:
        pass
    raise ValueError(f"max_rejects must be a count or a share in [0%, 100%]; got {limit!r}")


def too_many_text(count: int, found_count: int, limit: str | int) -> str:
    """How many raw items were rejected, and how many may be.

    Args:
        count: Of rejects: more than `limit` allows, or all raw items.
        found_count: Raw items in all.
        limit: As for `reject_count_max`.
    """
    if count == found_count:
        # Whatever the limit allows, a store of nothing is none.
        what = "the only raw item was" if count == 1 else f"all {count:,} raw items were"
        return f"{what} rejected, so that nothing is left to store"
    allowed = reject_count_max(limit, found_count)
    share = str(limit).strip()
    rule = f"--max-rejects {share} allows {allowed or 'none'}"
    if share.endswith("%"):
        rule += f" of {found_count:,}" if allowed else ""
        if Fraction(share[:-1]) * found_count % 100:
            rule += f" ({share} of {found_count:,} is rounded down)"
    return f"{count:,} of {found_count:,} raw items rejected; {rule}"


@dataclass(frozen=True, kw_only=True)
class Rejects:
    """All that a build did not pack.

    Attributes:
        items: Raw items.
        annotations: Annotations of items that were packed, or of none; and parts of annotations
            that were packed without them.
    """

    items: Sequence[Reject] = ()
    annotations: Sequence[Reject] = ()

    @property
    def part_count(self) -> int:
        """How many of `annotations` are a part of one that was packed."""
        return sum(bool(reject.part) for reject in self.annotations)


def reject_list_bytes(rejects: Rejects) -> bytes:
    """The list as a store keeps it; see `readers.store.rejects`."""
    return rejects_bytes(
        RejectLine(
            key=os.fsdecode(reject.key),
            path=reject.path,
            reason=reject.reason,
            kind=kind if not reject.part else "part",
            part=reject.part,
        )
        for kind, part in (("", rejects.items), ("annotation", rejects.annotations))
        for reject in part
    )


def write_rejects(path: Path, rejects: Rejects) -> None:
    """Write the list to a file, whole or not at all."""
    write_synced(path, reject_list_bytes(rejects))


def describe_rejects(rejects: Rejects, path: Path) -> str:
    """A line for each reject, or one for all of a reason; and where all are listed, if not here."""
    together = [*rejects.items, *rejects.annotations]
    lines = reason_lines([(reject.path, reject.reason) for reject in together])
    shown = few(lines, _SHOWN_COUNT)
    if len(lines) < len(together) or len(shown) > _SHOWN_COUNT:
        shown.append(f"all are listed in {path}")
    return "\n".join(f"  {line}" for line in shown)
