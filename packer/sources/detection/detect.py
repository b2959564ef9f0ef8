"""Which layout a raw folder has, and why.

Everything that is seen is collected first (evidence.py), and then one decision is made, since the
first match would be wrong: a folder of VOC annotations holds folders of pictures as well.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from packer.errors import AmbiguousFormatError, SourceError
from packer.sources.detection.evidence import collect_evidence, file_evidence
from packer.sources.detection.found import UNREAD, Evidence
from packer.sources.detection.look import look_at, shown_names
from packer.sources.source import AUTO_FORMAT, SourceOptions
from packer.sources.walk import PICTURE_TYPES, readable_path

LEAD_MIN = 20
"""How far the best layout must be ahead of the second, or a user has to decide."""


@dataclass(frozen=True, kw_only=True)
class Detection:
    """The layout that was decided on.

    Attributes:
        format: Name of the source.
        line: What was seen and why, in one line.
        evidence: Everything that was seen, the strongest first.
    """

    format: str
    line: str
    evidence: tuple[Evidence, ...] = ()


def detect(raw: Path, options: SourceOptions) -> Detection:
    """Decide which source reads the raw data, and say what was seen and why.

    Looks at the names in the first two levels of folders and into a few of the files.

    Raises:
        AmbiguousFormatError: Several layouts fit equally well; the message has them all.
        SourceError: Nothing was found, or what was found is read by no source. The message names
            it and what may be done.
    """
    if options.format != AUTO_FORMAT:
        return Detection(format=options.format, line=f"format: {options.format} (as asked for)")
    evidence, unread = gather(raw, options)
    shown = readable_path(os.fsencode(raw))
    best, others = evidence[0], evidence[1:]
    rivals = [other for other in others if best.score - other.score < LEAD_MIN]
    if rivals:
        lines = "\n".join(f"  {_candidate(e)}" for e in (best, *rivals))
        raise AmbiguousFormatError(
            f"{shown}: more than one layout fits, and nothing may be dropped in silence:\n{lines}\n"
            f"{_ways_out([best, *rivals, *others])}"
        )
    if best.format in UNREAD:
        name, advice = UNREAD[best.format]
        raise SourceError(
            f"{shown}: this looks like {name} ({best.seen}), which no source reads. {advice}. "
            f"{_ways_out(others)}"
        )
    if best.problem:
        raise SourceError(
            f"{shown}: this looks like {best.format} ({best.seen}), but {best.problem}. "
            f"{_ways_out(others)}"
        )
    also = [f"{other.format} ({other.seen})" for other in others]
    if unread and best.format in _PICTURES_ALONE:
        also.append(f"{len(unread)} other files, not read: {shown_names(unread)}")
    line = f"format: {best.format} ({best.seen}); also seen: {'; '.join(also) or 'nothing'}"
    return Detection(format=best.format, line=line, evidence=tuple(evidence))


_PICTURES_ALONE = ("imagefolder", "flat")
"""Formats that read pictures and names of folders, and no file of any other kind."""


def gather(raw: Path, options: SourceOptions) -> tuple[list[Evidence], list[bytes]]:
    """All that speaks for any layout, the strongest first; and files that are no pictures.

    Raises:
        SourceError: Nothing was found.
    """
    if raw.is_file():
        return file_evidence(raw), []
    look = look_at(raw)
    evidence = collect_evidence(look, options)
    if not evidence:
        raise SourceError(nothing_found(raw, look.unreadable))
    others = [listing.join(name) for listing in look.listings for name in listing.files]
    return evidence, others


def nothing_found(raw: Path, unreadable: Sequence[bytes] = ()) -> str:
    """One line for a raw path without pictures, naming folders that could not be looked into."""
    line = (
        f"{readable_path(os.fsencode(raw))}: no pictures found; looked for {PICTURE_TYPES} in this "
        "folder and all folders below"
    )
    if unreadable:
        return f"{line}, but could not list {shown_names(unreadable)}. Check the permissions."
    return f"{line}. Check the path."


def _candidate(evidence: Evidence) -> str:
    line = f"{evidence.format}: {evidence.seen}"
    if evidence.format in UNREAD:
        return f"{line}; {UNREAD[evidence.format][0]}, which no source reads"
    if evidence.problem:
        return f"{line}; but {evidence.problem}"
    return f"{line}; to take it give --format {evidence.format}"


def _ways_out(evidence: Iterable[Evidence]) -> str:
    """What a user may do about annotations that are not read."""
    formats = {found.format for found in evidence}
    ways = []
    if "csv" in formats:
        ways.append("--format csv (the list)")
    if "imagefolder" in formats:
        ways.append("--format imagefolder (names of folders become labels)")
    if formats & {"imagefolder", "flat"}:
        ways.append("--format flat (every picture, unlabelled)")
    if not ways:
        return "There are no pictures to pack without it."
    return f"To leave it aside, give {' or '.join(ways)}, or the folder of the pictures you want."
